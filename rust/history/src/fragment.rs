//! Consecutive messages in one piece of canonical JSON, and the index that finds their pieces.
//!
//! The text is the canonical form without cache markers, joined by commas, so that an ordinary turn goes to the
//! wire as it stands. Its keys have a fixed order, so the index keeps only what the literals below cannot tell:
//! where each message and each part ends. Four bytes an offset keep the index at a few bytes a message.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::encoding::Form;
use crate::{Content, Error, ImageSource, Marker, Markers, Message, Part, Role};

const ROLE: &[u8] = br#"{"role":""#;
const CONTENT: &[u8] = br#"","content":"#;
/// A message's bytes besides its content, and a comma.
pub(crate) const FRAME: usize = ROLE.len() + "assistant".len() + CONTENT.len() + r#""",}"#.len();
const TEXT: &[u8] = br#"{"type":"text","text":"#;
const IMAGE: &[u8] = br#"{"type":"image","media_type":"#;
const FILE: &[u8] = br#"{"type":"file","media_type":"#;
const DATA: &[u8] = br#","data":"#;
const URL: &[u8] = br#","url":"#;
const FILENAME: &[u8] = br#","filename":"#;

/// Consecutive messages, immutable, and possibly a label after them.
#[derive(Debug, Default)]
pub struct Fragment {
    /// The messages, then the label. One allocation for both keeps a node small.
    bytes: Box<[u8]>,
    messages: Box<[IndexedMessage]>,
    text_end: u32,
    marked: bool,
    media: bool,
}

#[derive(Clone, Debug)]
struct IndexedMessage {
    end: u32,
    role: Role,
    marker: Option<Marker>,
    /// None for one text. Boxed twice, because a thin pointer halves the index of the many without parts.
    parts: Option<Box<IndexedParts>>,
}

#[derive(Clone, Debug)]
struct IndexedParts(Box<[IndexedPart]>);

#[derive(Clone, Copy, Debug)]
struct IndexedPart {
    kind: PartKind,
    media_type_end: u32,
    data_end: u32,
    end: u32,
}

#[derive(Clone, Copy, Debug)]
enum PartKind {
    Text,
    ImageData,
    ImageUrl,
    File,
    NamedFile,
}

impl Fragment {
    /// The canonical JSON of the messages without their markers, joined by commas.
    pub(crate) fn text(&self) -> &[u8] {
        &self.bytes[..self.text_end as usize]
    }

    /// What was given to [`Builder::finish`].
    pub(crate) fn label(&self) -> Result<&str, Error> {
        std::str::from_utf8(&self.bytes[self.text_end as usize..]).map_err(Error::Text)
    }

    /// How many messages there are.
    #[must_use]
    pub fn message_count(&self) -> usize {
        self.messages.len()
    }

    /// Whether there is no message.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Whether the text is what `form` asks for.
    pub(crate) fn is_verbatim_in(&self, form: Form) -> bool {
        match form {
            Form::Canonical => !self.marked,
            Form::Chat(Markers::Omit) => !self.media,
            Form::Chat(_) => !self.media && !self.marked,
        }
    }

    pub(crate) fn messages(&self) -> impl Iterator<Item = StoredMessage<'_>> {
        let mut start = 0;
        self.messages.iter().map(move |index| {
            let end = index.end as usize;
            let message = StoredMessage { bytes: &self.bytes, start, end, index };
            start = end + b",".len();
            message
        })
    }
}

/// A message where it is stored. Every slice is escaped; a quoted one has its quotes.
pub(crate) struct StoredMessage<'a> {
    bytes: &'a [u8],
    start: usize,
    end: usize,
    index: &'a IndexedMessage,
}

pub(crate) enum StoredContent<'a, P> {
    Text(&'a [u8]),
    Parts(P),
}

pub(crate) enum StoredPart<'a> {
    Text { whole: &'a [u8], text: &'a [u8] },
    ImageData { media_type: &'a [u8], data: &'a [u8] },
    ImageUrl { media_type: &'a [u8], url: &'a [u8] },
    File { media_type: &'a [u8], data: &'a [u8], filename: Option<&'a [u8]> },
}

impl<'a> StoredMessage<'a> {
    pub(crate) fn marker(&self) -> Option<Marker> {
        self.index.marker
    }

    pub(crate) fn whole(&self) -> &'a [u8] {
        &self.bytes[self.start..self.end]
    }

    /// All before the value of the content.
    pub(crate) fn head(&self) -> &'a [u8] {
        &self.bytes[self.start..self.content_start()]
    }

    fn content_start(&self) -> usize {
        self.start + ROLE.len() + self.index.role.as_str().len() + CONTENT.len()
    }

    pub(crate) fn content(
        &self,
    ) -> StoredContent<'a, impl ExactSizeIterator<Item = StoredPart<'a>> + use<'a>> {
        let bytes = self.bytes;
        let start = self.content_start();
        let Some(parts) = &self.index.parts else {
            return StoredContent::Text(&bytes[start..self.end - b"}".len()]);
        };
        let mut start = start + b"[".len();
        StoredContent::Parts(parts.0.iter().map(move |part| {
            let stored = part.locate(bytes, start);
            start = part.end as usize + b",".len();
            stored
        }))
    }

    /// The message as its author gave it.
    pub(crate) fn read(&self) -> Result<Message<'a>, Error> {
        let content = match self.content() {
            StoredContent::Text(quoted) => Content::Text(unescape(quoted)?),
            StoredContent::Parts(parts) => {
                Content::Parts(parts.map(|part| part.read()).collect::<Result<_, _>>()?)
            }
        };
        Ok(Message { role: self.index.role, content, marker: self.index.marker })
    }
}

impl IndexedPart {
    fn locate<'a>(&self, bytes: &'a [u8], start: usize) -> StoredPart<'a> {
        let (media_type_end, data_end) = (self.media_type_end as usize, self.data_end as usize);
        let end = self.end as usize;
        let close = end - b"}".len();
        match self.kind {
            PartKind::Text => {
                StoredPart::Text { whole: &bytes[start..end], text: &bytes[start + TEXT.len()..close] }
            }
            PartKind::ImageData => StoredPart::ImageData {
                media_type: &bytes[start + IMAGE.len()..media_type_end],
                data: &bytes[media_type_end + DATA.len()..close],
            },
            PartKind::ImageUrl => StoredPart::ImageUrl {
                media_type: &bytes[start + IMAGE.len()..media_type_end],
                url: &bytes[media_type_end + URL.len()..close],
            },
            PartKind::File | PartKind::NamedFile => StoredPart::File {
                media_type: &bytes[start + FILE.len()..media_type_end],
                data: &bytes[media_type_end + DATA.len()..data_end],
                filename: matches!(self.kind, PartKind::NamedFile)
                    .then(|| &bytes[data_end + FILENAME.len()..close]),
            },
        }
    }
}

impl<'a> StoredPart<'a> {
    fn read(&self) -> Result<Part<'a>, Error> {
        Ok(match *self {
            Self::Text { text, .. } => Part::Text(unescape(text)?),
            Self::ImageData { media_type, data } => {
                Part::Image { media_type: unescape(media_type)?, source: ImageSource::Data(decode(data)?) }
            }
            Self::ImageUrl { media_type, url } => {
                Part::Image { media_type: unescape(media_type)?, source: ImageSource::Url(unescape(url)?) }
            }
            Self::File { media_type, data, filename } => Part::File {
                media_type: unescape(media_type)?,
                data: decode(data)?,
                filename: filename.map(unescape).transpose()?,
            },
        })
    }
}

/// Writes messages one after the other.
#[derive(Debug, Default)]
pub struct Builder {
    bytes: Vec<u8>,
    messages: Vec<IndexedMessage>,
    marked: bool,
    media: bool,
}

impl Builder {
    /// Starts with no message and room in the index for `count`.
    #[must_use]
    pub fn with_capacity(count: usize) -> Self {
        Self { messages: Vec::with_capacity(count), ..Self::default() }
    }

    /// Starts with the messages of `fragment` and room for `reserved` bytes more.
    pub(crate) fn continuing(fragment: &Fragment, reserved: usize) -> Self {
        let text = fragment.text();
        let mut bytes = Vec::with_capacity(text.len() + reserved);
        bytes.extend_from_slice(text);
        let mut messages = Vec::with_capacity(fragment.messages.len() + 1);
        messages.extend_from_slice(&fragment.messages);
        Self { bytes, messages, marked: fragment.marked, media: fragment.media }
    }

    /// Adds a message.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`]; what was pushed before stays, but this builder is of no more use.
    pub fn push(&mut self, message: &Message<'_>) -> Result<(), Error> {
        // At once: growing and shrinking would leave holes between long-lived nodes that nothing fills.
        self.bytes.reserve(FRAME + message.size());
        if !self.messages.is_empty() {
            self.bytes.push(b',');
        }
        self.bytes.extend_from_slice(ROLE);
        self.bytes.extend_from_slice(message.role.as_str().as_bytes());
        self.bytes.extend_from_slice(CONTENT);
        let parts = match &message.content {
            Content::Text(text) => {
                quote(&mut self.bytes, text)?;
                None
            }
            Content::Parts(parts) => Some(Box::new(IndexedParts(self.push_parts(parts)?))),
        };
        self.bytes.push(b'}');
        self.marked |= message.marker.is_some();
        self.messages.push(IndexedMessage {
            end: offset(&self.bytes)?,
            role: message.role,
            marker: message.marker,
            parts,
        });
        Ok(())
    }

    fn push_parts(&mut self, parts: &[Part<'_>]) -> Result<Box<[IndexedPart]>, Error> {
        self.bytes.push(b'[');
        let mut indexed = Vec::with_capacity(parts.len());
        for part in parts {
            if !indexed.is_empty() {
                self.bytes.push(b',');
            }
            indexed.push(self.push_part(part)?);
        }
        self.bytes.push(b']');
        Ok(indexed.into_boxed_slice())
    }

    fn push_part(&mut self, part: &Part<'_>) -> Result<IndexedPart, Error> {
        let bytes = &mut self.bytes;
        let (mut media_type_end, mut data_end) = (0, 0);
        let kind = match part {
            Part::Text(text) => {
                bytes.extend_from_slice(TEXT);
                quote(bytes, text)?;
                PartKind::Text
            }
            Part::Image { media_type, source } => {
                bytes.extend_from_slice(IMAGE);
                quote(bytes, media_type)?;
                media_type_end = offset(bytes)?;
                match source {
                    ImageSource::Data(data) => {
                        bytes.extend_from_slice(DATA);
                        encode(bytes, data);
                        PartKind::ImageData
                    }
                    ImageSource::Url(url) => {
                        bytes.extend_from_slice(URL);
                        quote(bytes, url)?;
                        PartKind::ImageUrl
                    }
                }
            }
            Part::File { media_type, data, filename } => {
                bytes.extend_from_slice(FILE);
                quote(bytes, media_type)?;
                media_type_end = offset(bytes)?;
                bytes.extend_from_slice(DATA);
                encode(bytes, data);
                data_end = offset(bytes)?;
                match filename {
                    None => PartKind::File,
                    Some(filename) => {
                        bytes.extend_from_slice(FILENAME);
                        quote(bytes, filename)?;
                        PartKind::NamedFile
                    }
                }
            }
        };
        bytes.push(b'}');
        self.media |= !matches!(kind, PartKind::Text);
        Ok(IndexedPart { kind, media_type_end, data_end, end: offset(&self.bytes)? })
    }

    /// The messages, and a label of the owner's to keep with them.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`]
    pub fn finish(mut self, label: &str) -> Result<Fragment, Error> {
        let text_end = offset(&self.bytes)?;
        self.bytes.extend_from_slice(label.as_bytes());
        Ok(Fragment {
            bytes: self.bytes.into_boxed_slice(),
            messages: self.messages.into_boxed_slice(),
            text_end,
            marked: self.marked,
            media: self.media,
        })
    }
}

fn offset(bytes: &[u8]) -> Result<u32, Error> {
    u32::try_from(bytes.len()).map_err(|_| Error::TooLarge)
}

/// Appends `text` as a JSON string.
pub(crate) fn quote(bytes: &mut Vec<u8>, text: &str) -> Result<(), Error> {
    serde_json::to_writer(bytes, text).map_err(Error::Json)
}

fn unescape(quoted: &[u8]) -> Result<Cow<'_, str>, Error> {
    if quoted.contains(&b'\\') {
        serde_json::from_slice(quoted).map(Cow::Owned).map_err(Error::Json)
    } else {
        std::str::from_utf8(unquoted(quoted)).map(Cow::Borrowed).map_err(Error::Text)
    }
}

/// Appends `data` as a JSON string of base64.
fn encode(bytes: &mut Vec<u8>, data: &[u8]) {
    bytes.push(b'"');
    bytes.extend_from_slice(STANDARD.encode(data).as_bytes());
    bytes.push(b'"');
}

fn decode(quoted: &[u8]) -> Result<Cow<'_, [u8]>, Error> {
    STANDARD.decode(unquoted(quoted)).map(Cow::Owned).map_err(Error::Data)
}

/// The inside of a JSON string, still escaped.
pub(crate) fn unquoted(quoted: &[u8]) -> &[u8] {
    &quoted[1..quoted.len() - 1]
}
