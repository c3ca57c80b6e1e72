//! The forms in which stored messages leave the tree. Each is stitched from slices of the stored text.

use std::str::FromStr;

use crate::error::excerpt;
use crate::fragment::{StoredContent, StoredMessage, StoredPart, unquoted};
use crate::{Error, Fragment, Marker};

/// How messages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Form {
    /// What digests cover.
    Canonical,
    /// The messages of a chat-completions request.
    Chat(Markers),
}

/// What a chat-completions backend is told about cache markers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Markers {
    /// Nothing.
    Omit,
    /// `cache_control` on the last content part of the marked message.
    CacheControl,
    /// `prompt_cache_breakpoint` in the same place. It has no time to live.
    PromptCacheBreakpoint,
}

impl FromStr for Markers {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "omit" => Ok(Self::Omit),
            "cache_control" => Ok(Self::CacheControl),
            "prompt_cache_breakpoint" => Ok(Self::PromptCacheBreakpoint),
            _ => Err(Error::UnknownMarkers(excerpt(text))),
        }
    }
}

impl Markers {
    /// The key and value, after a comma, that end the marked part.
    fn suffix(self, marker: Option<Marker>) -> &'static [u8] {
        match (self, marker) {
            (Self::Omit, _) | (_, None) => b"",
            (Self::PromptCacheBreakpoint, Some(_)) => br#","prompt_cache_breakpoint":{"mode":"explicit"}"#,
            (Self::CacheControl, Some(Marker::Unbounded)) => br#","cache_control":{"type":"ephemeral"}"#,
            (Self::CacheControl, Some(Marker::FiveMinutes)) => {
                br#","cache_control":{"type":"ephemeral","ttl":"5m"}"#
            }
            (Self::CacheControl, Some(Marker::OneHour)) => {
                br#","cache_control":{"type":"ephemeral","ttl":"1h"}"#
            }
        }
    }
}

/// Where bytes go. One writer serves a count, a buffer and a hash, so that they cannot disagree.
pub(crate) trait Sink {
    fn put(&mut self, bytes: &[u8]);
}

struct Count(usize);

impl Sink for Count {
    fn put(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }
}

struct Fill<'a>(&'a mut [u8]);

impl Sink for Fill<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let (here, rest) = std::mem::take(&mut self.0).split_at_mut(bytes.len());
        here.copy_from_slice(bytes);
        self.0 = rest;
    }
}

/// A JSON array of messages that is ready to be written.
#[derive(Debug)]
pub struct Encoding<'a> {
    fragments: Vec<&'a Fragment>,
    form: Form,
    size: usize,
}

impl<'a> Encoding<'a> {
    pub(crate) fn new(mut fragments: Vec<&'a Fragment>, form: Form) -> Self {
        fragments.retain(|fragment| !fragment.is_empty());
        let mut encoding = Self { fragments, form, size: 0 };
        let mut count = Count(0);
        encoding.write(&mut count);
        encoding.size = count.0;
        encoding
    }

    /// The exact number of bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Writes the array into `out`.
    ///
    /// # Panics
    ///
    /// If `out` has fewer than [`Self::size`] bytes.
    pub fn fill(&self, out: &mut [u8]) {
        self.write(&mut Fill(out));
    }

    fn write(&self, sink: &mut impl Sink) {
        sink.put(b"[");
        for (position, fragment) in self.fragments.iter().enumerate() {
            if position > 0 {
                sink.put(b",");
            }
            write_fragment(fragment, self.form, sink);
        }
        sink.put(b"]");
    }
}

/// Writes the messages of `fragment`, joined by commas.
pub(crate) fn write_fragment(fragment: &Fragment, form: Form, sink: &mut impl Sink) {
    if fragment.is_verbatim_in(form) {
        return sink.put(fragment.text());
    }
    for (position, message) in fragment.messages().enumerate() {
        if position > 0 {
            sink.put(b",");
        }
        match form {
            Form::Canonical => write_canonical(&message, sink),
            Form::Chat(markers) => write_chat(&message, markers, sink),
        }
    }
}

fn write_canonical(message: &StoredMessage<'_>, sink: &mut impl Sink) {
    let Some(marker) = message.marker() else {
        return sink.put(message.whole());
    };
    sink.put(open(message.whole()));
    sink.put(match marker {
        Marker::Unbounded => br#","cache_control":{"type":"ephemeral","ttl":null}}"#,
        Marker::FiveMinutes => br#","cache_control":{"type":"ephemeral","ttl":"5m"}}"#,
        Marker::OneHour => br#","cache_control":{"type":"ephemeral","ttl":"1h"}}"#,
    });
}

fn write_chat(message: &StoredMessage<'_>, markers: Markers, sink: &mut impl Sink) {
    let suffix = markers.suffix(message.marker());
    match message.content() {
        StoredContent::Text(_) if suffix.is_empty() => sink.put(message.whole()),
        StoredContent::Text(text) => {
            sink.put(message.head());
            sink.put(br#"[{"type":"text","text":"#);
            sink.put(text);
            sink.put(suffix);
            sink.put(b"}]}");
        }
        StoredContent::Parts(parts) => {
            let last = parts.len().saturating_sub(1);
            sink.put(message.head());
            sink.put(b"[");
            for (position, part) in parts.enumerate() {
                if position > 0 {
                    sink.put(b",");
                }
                write_chat_part(&part, sink);
                if position == last {
                    sink.put(suffix);
                }
                sink.put(b"}");
            }
            sink.put(b"]}");
        }
    }
}

/// Writes a part up to its closing brace.
fn write_chat_part(part: &StoredPart<'_>, sink: &mut impl Sink) {
    match *part {
        StoredPart::Text { whole, .. } => sink.put(open(whole)),
        StoredPart::ImageData { media_type, data } => {
            sink.put(br#"{"type":"image_url","image_url":{"url":"#);
            write_data_url(media_type, data, sink);
            sink.put(b"}");
        }
        StoredPart::ImageUrl { url, .. } => {
            sink.put(br#"{"type":"image_url","image_url":{"url":"#);
            sink.put(url);
            sink.put(b"}");
        }
        StoredPart::File { media_type, data, filename } => {
            sink.put(br#"{"type":"file","file":{"#);
            if let Some(filename) = filename {
                sink.put(br#""filename":"#);
                sink.put(filename);
                sink.put(b",");
            }
            sink.put(br#""file_data":"#);
            write_data_url(media_type, data, sink);
            sink.put(b"}");
        }
    }
}

fn write_data_url(media_type: &[u8], data: &[u8], sink: &mut impl Sink) {
    sink.put(br#""data:"#);
    sink.put(unquoted(media_type));
    sink.put(b";base64,");
    sink.put(unquoted(data));
    sink.put(br#"""#);
}

/// A JSON object without its closing brace.
fn open(object: &[u8]) -> &[u8] {
    &object[..object.len() - 1]
}
