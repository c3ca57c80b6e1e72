//! The forms in which stored messages leave the tree. Each is stitched from slices of the stored text.

use std::cmp::Ordering;
use std::mem::MaybeUninit;
use std::str::FromStr;

use crate::error::excerpt;
use crate::fragment::{StoredContent, StoredMessage, StoredPart, View, unquoted};
use crate::{Error, Marker};

/// How messages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Form {
    /// What digests cover.
    Canonical,
    /// The messages of a chat-completions request.
    Chat(Markers, LateSystem),
    /// The messages of an Anthropic request, without the leading ones of the system and the developer.
    Anthropic(Markers, LateSystem),
    /// Those leading ones, as text blocks.
    AnthropicSystem(Markers),
}

/// What a backend is told about cache markers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Markers {
    /// Nothing.
    Omit,
    /// `cache_control` on the last content part of the marked message.
    CacheControl,
    /// `prompt_cache_breakpoint` in the same place. It has no time to live.
    PromptCacheBreakpoint,
}

/// What becomes of a message of the system or the developer that follows another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LateSystem {
    /// It keeps its role.
    Send,
    /// It becomes the user's.
    AsUser,
}

impl FromStr for LateSystem {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "send" => Ok(Self::Send),
            "as_user" => Ok(Self::AsUser),
            _ => Err(Error::UnknownLateSystem(excerpt(text))),
        }
    }
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

/// What is still to be written.
struct Fill<'a>(&'a mut [MaybeUninit<u8>]);

impl Sink for Fill<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let (here, rest) = std::mem::take(&mut self.0).split_at_mut(bytes.len());
        for (room, byte) in here.iter_mut().zip(bytes) {
            room.write(*byte);
        }
        self.0 = rest;
    }
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// A JSON array of messages that is ready to be written.
#[derive(Debug)]
pub struct Encoding<'a> {
    views: Vec<View<'a>>,
    form: Form,
    /// How many views lead with messages of the system alone, and how many messages of the next one do.
    leading: (usize, usize),
    size: usize,
}

impl<'a> Encoding<'a> {
    pub(crate) fn new(mut views: Vec<View<'a>>, form: Form) -> Self {
        views.retain(|view| !view.is_empty());
        let leading = match form {
            Form::Canonical | Form::Chat(_, LateSystem::Send) => (0, 0),
            Form::Chat(_, LateSystem::AsUser) | Form::Anthropic(..) | Form::AnthropicSystem(_) => {
                leading(&views)
            }
        };
        let mut encoding = Self { views, form, leading, size: 0 };
        let mut count = Count(0);
        encoding.write(&mut count);
        encoding.size = count.0;
        encoding
    }

    /// Whether no message belongs into the array.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self.form {
            Form::Canonical | Form::Chat(..) => self.views.is_empty(),
            Form::Anthropic(..) => self.leading.0 == self.views.len(),
            Form::AnthropicSystem(_) => self.leading == (0, 0),
        }
    }

    /// The exact number of bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Writes the array into `out`, all of which is initialised when this returns.
    ///
    /// # Panics
    ///
    /// If `out` has not [`Self::size`] bytes.
    pub fn fill(&self, out: &mut [MaybeUninit<u8>]) {
        let mut fill = Fill(out);
        self.write(&mut fill);
        assert!(fill.0.is_empty(), "the array is smaller than the memory for it");
    }

    /// The array in memory of its own.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.size);
        self.write(&mut bytes);
        bytes
    }

    fn write(&self, sink: &mut impl Sink) {
        sink.put(b"[");
        let mut list = List { sink, started: false };
        let (whole, begun) = self.leading;
        let reached = match self.form {
            Form::AnthropicSystem(_) => whole + 1,
            _ => self.views.len(),
        };
        for (position, view) in self.views.iter().take(reached).enumerate() {
            let leading = match position.cmp(&whole) {
                Ordering::Less => usize::MAX,
                Ordering::Equal => begun,
                Ordering::Greater => 0,
            };
            write_view(*view, leading, self.form, &mut list);
        }
        sink.put(b"]");
    }
}

/// How many messages lead that are the system's or the developer's.
fn leading(views: &[View<'_>]) -> (usize, usize) {
    let is_system = |message: &StoredMessage<'_>| message.role.is_system();
    for (position, view) in views.iter().enumerate() {
        let count = view.messages().take_while(is_system).count();
        if view.messages().nth(count).is_some() {
            return (position, count);
        }
    }
    (views.len(), 0)
}

/// Puts commas between items.
struct List<'a, S> {
    sink: &'a mut S,
    started: bool,
}

impl<S: Sink> List<'_, S> {
    fn next(&mut self) -> &mut S {
        if self.started {
            self.sink.put(b",");
        }
        self.started = true;
        self.sink
    }
}

/// Writes the messages of `view`, joined by commas.
pub(crate) fn write_fragment(view: View<'_>, form: Form, sink: &mut impl Sink) {
    write_view(view, usize::MAX, form, &mut List { sink, started: false });
}

/// Writes what belongs into the array. The first `leading` messages are the system's that lead the whole of it.
fn write_view(view: View<'_>, leading: usize, form: Form, list: &mut List<'_, impl Sink>) {
    let apart = matches!(form, Form::Anthropic(..)) && leading > 0;
    if !apart && view.is_verbatim_in(form) {
        if !view.is_empty() {
            list.next().put(view.text);
        }
        return;
    }
    for (position, message) in view.messages().enumerate() {
        let leads = position < leading;
        let as_user = |late| late == LateSystem::AsUser && !leads && message.role.is_system();
        match form {
            Form::Canonical => write_canonical(&message, list.next()),
            Form::Chat(markers, late) => {
                write_message(&message, as_user(late), markers, write_chat_part, list.next());
            }
            Form::Anthropic(markers, late) if !leads => {
                write_message(&message, as_user(late), markers, write_anthropic_part, list.next());
            }
            Form::AnthropicSystem(markers) if leads => write_blocks(&message, markers, list),
            Form::Anthropic(..) => {}
            Form::AnthropicSystem(_) => return,
        }
    }
}

fn write_canonical(message: &StoredMessage<'_>, sink: &mut impl Sink) {
    let Some(marker) = message.marker else {
        return sink.put(message.whole());
    };
    sink.put(open(message.whole()));
    sink.put(match marker {
        Marker::Unbounded => br#","cache_control":{"type":"ephemeral","ttl":null}}"#,
        Marker::FiveMinutes => br#","cache_control":{"type":"ephemeral","ttl":"5m"}}"#,
        Marker::OneHour => br#","cache_control":{"type":"ephemeral","ttl":"1h"}}"#,
    });
}

fn write_message<S: Sink>(
    message: &StoredMessage<'_>,
    as_user: bool,
    markers: Markers,
    write_part: fn(&StoredPart<'_>, &mut S),
    sink: &mut S,
) {
    let suffix = markers.suffix(message.marker);
    let head = if as_user { br#"{"role":"user","content":"# } else { message.head() };
    match message.content() {
        StoredContent::Text(_) if suffix.is_empty() && !as_user => sink.put(message.whole()),
        StoredContent::Text(text) if suffix.is_empty() => {
            sink.put(head);
            sink.put(text);
            sink.put(b"}");
        }
        StoredContent::Text(text) => {
            sink.put(head);
            sink.put(b"[");
            write_text_block(text, suffix, sink);
            sink.put(b"]}");
        }
        StoredContent::Parts(parts) => {
            sink.put(head);
            sink.put(b"[");
            write_parts(parts, suffix, write_part, &mut List { sink, started: false });
            sink.put(b"]}");
        }
    }
}

/// Writes the content of a message as blocks that belong to no message.
fn write_blocks<S: Sink>(message: &StoredMessage<'_>, markers: Markers, list: &mut List<'_, S>) {
    let suffix = markers.suffix(message.marker);
    match message.content() {
        StoredContent::Text(text) => write_text_block(text, suffix, list.next()),
        StoredContent::Parts(parts) => write_parts(parts, suffix, write_anthropic_part, list),
    }
}

fn write_text_block(text: &[u8], suffix: &[u8], sink: &mut impl Sink) {
    sink.put(br#"{"type":"text","text":"#);
    sink.put(text);
    sink.put(suffix);
    sink.put(b"}");
}

fn write_parts<'a, S: Sink>(
    parts: impl ExactSizeIterator<Item = StoredPart<'a>>,
    suffix: &[u8],
    write_part: fn(&StoredPart<'_>, &mut S),
    list: &mut List<'_, S>,
) {
    let count = parts.len();
    for (position, part) in parts.enumerate() {
        let sink = list.next();
        write_part(&part, sink);
        if position + 1 == count {
            sink.put(suffix);
        }
        sink.put(b"}");
    }
}

/// Writes a part up to its closing brace.
fn write_chat_part<S: Sink>(part: &StoredPart<'_>, sink: &mut S) {
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

/// Writes a part up to its closing brace.
fn write_anthropic_part<S: Sink>(part: &StoredPart<'_>, sink: &mut S) {
    match *part {
        StoredPart::Text { whole, .. } => sink.put(open(whole)),
        StoredPart::ImageData { media_type, data } => {
            sink.put(br#"{"type":"image","source":"#);
            write_base64_source(media_type, data, sink);
        }
        StoredPart::ImageUrl { url, .. } => {
            sink.put(br#"{"type":"image","source":"#);
            if let Some((media_type, data)) = data_of(unquoted(url)) {
                sink.put(br#"{"type":"base64","media_type":""#);
                sink.put(media_type);
                sink.put(br#"","data":""#);
                sink.put(data);
                sink.put(br#""}"#);
            } else {
                sink.put(br#"{"type":"url","url":"#);
                sink.put(url);
                sink.put(b"}");
            }
        }
        StoredPart::File { media_type, data, filename } => {
            sink.put(br#"{"type":"document","source":"#);
            if let Some(text) = part.quoted_text() {
                sink.put(br#"{"type":"text","media_type":"text/plain","data":"#);
                sink.put(&text);
                sink.put(b"}");
            } else {
                write_base64_source(media_type, data, sink);
            }
            if let Some(filename) = filename {
                sink.put(br#","title":"#);
                sink.put(filename);
            }
        }
    }
}

/// The media type and the data of a data URL.
fn data_of(url: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = url.strip_prefix(b"data:")?;
    let end = rest.iter().position(|byte| *byte == b',')?;
    Some((rest[..end].strip_suffix(b";base64")?, &rest[end + 1..]))
}

fn write_base64_source(media_type: &[u8], data: &[u8], sink: &mut impl Sink) {
    sink.put(br#"{"type":"base64","media_type":"#);
    sink.put(media_type);
    sink.put(br#","data":"#);
    sink.put(data);
    sink.put(b"}");
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
