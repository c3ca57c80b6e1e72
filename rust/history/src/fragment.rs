//! Consecutive messages in one piece of canonical JSON, and the index that finds their pieces.
//!
//! The text is the canonical form without cache markers, joined by commas, so that an ordinary turn goes to the
//! wire as it stands. Its keys have a fixed order: where every message is one text without a marker, the literals
//! below find everything, and there is no index. Else one follows the text, in the same allocation: for each
//! message where it ends, its marker and its parts, for each part what it is and where its pieces end.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use memchr::memchr2;

use crate::encoding::Form;
use crate::{Content, Error, ImageSource, LateSystem, Marker, Markers, Message, Part, Role};

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

/// What the bytes of a fragment need besides themselves to be read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shape(u8);

impl Shape {
    /// A message has a marker.
    const MARKED: u8 = 1;
    /// A message has an image or a file.
    const MEDIA: u8 = 2;
    /// An index follows the text.
    const INDEXED: u8 = 4;
    /// The label is 16 bytes for 32 hexadecimal digits.
    const PACKED: u8 = 8;
    /// A message is the system's or the developer's.
    const SYSTEM: u8 = 16;
    /// A message is another's.
    const OTHER: u8 = 32;
    /// One of the system's follows one of another's.
    const LATE: u8 = 64;

    fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    fn set(&mut self, flag: u8) {
        self.0 |= flag;
    }
}

/// Consecutive messages, immutable, and possibly a label after them.
#[derive(Debug, Default)]
pub struct Fragment {
    /// The messages, their index if they need one, the label. One allocation for all keeps a node small.
    pub(crate) bytes: Box<[u8]>,
    pub(crate) text_end: u32,
    pub(crate) message_count: u32,
    pub(crate) shape: Shape,
}

impl Fragment {
    /// How many messages there are.
    #[must_use]
    pub fn message_count(&self) -> usize {
        self.message_count as usize
    }

    /// Whether there is no message.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.message_count == 0
    }

    pub(crate) fn view(&self) -> View<'_> {
        View::new(&self.bytes, self.text_end, self.shape)
    }
}

/// A fragment, wherever it is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    /// The canonical JSON of the messages without their markers, joined by commas.
    pub(crate) text: &'a [u8],
    /// The index and the label.
    rest: &'a [u8],
    shape: Shape,
}

impl<'a> View<'a> {
    pub(crate) fn new(bytes: &'a [u8], text_end: u32, shape: Shape) -> Self {
        let (text, rest) = bytes.split_at(text_end as usize);
        Self { text, rest, shape }
    }

    pub(crate) fn is_empty(self) -> bool {
        self.text.is_empty()
    }

    /// Whether a message of the system or the developer follows one of another, if the messages `continue` others.
    pub(crate) fn has_late_system(self, continues: bool) -> bool {
        self.shape.has(if continues { Shape::SYSTEM } else { Shape::LATE })
    }

    /// Whether a message has an image or a file.
    pub(crate) fn has_media(self) -> bool {
        self.shape.has(Shape::MEDIA)
    }

    /// What was given to [`Builder::finish`].
    pub(crate) fn label(self) -> Result<Cow<'a, str>, Error> {
        let mut messages = self.messages();
        if self.shape.has(Shape::INDEXED) {
            messages.by_ref().for_each(drop);
        }
        let label = messages.index;
        if self.shape.has(Shape::PACKED) {
            return Ok(Cow::Owned(unpack(label)));
        }
        std::str::from_utf8(label).map(Cow::Borrowed).map_err(Error::Text)
    }

    /// Whether the text is what `form` asks for.
    pub(crate) fn is_verbatim_in(self, form: Form) -> bool {
        let (marked, media) = (self.shape.has(Shape::MARKED), self.shape.has(Shape::MEDIA));
        match form {
            Form::Canonical => !marked,
            Form::Chat(markers, late) | Form::Anthropic(markers, late) => {
                !(media
                    || marked && markers != Markers::Omit
                    || late == LateSystem::AsUser && self.shape.has(Shape::SYSTEM))
            }
            Form::AnthropicSystem(_) => false,
        }
    }

    pub(crate) fn messages(self) -> Messages<'a> {
        Messages { text: self.text, start: 0, index: self.rest, indexed: self.shape.has(Shape::INDEXED) }
    }
}

pub(crate) struct Messages<'a> {
    text: &'a [u8],
    start: usize,
    /// What remains of it; where there is none, and after the last message, the label.
    index: &'a [u8],
    indexed: bool,
}

impl<'a> Iterator for Messages<'a> {
    type Item = StoredMessage<'a>;

    fn next(&mut self) -> Option<StoredMessage<'a>> {
        let bytes = self.text.get(self.start..).filter(|bytes| !bytes.is_empty())?;
        let role = match bytes[ROLE.len()] {
            b's' => Role::System,
            b'd' => Role::Developer,
            b'u' => Role::User,
            _ => Role::Assistant,
        };
        let mut message = StoredMessage { bytes, role, marker: None, parts: None };
        if self.indexed {
            let (entry, rest) = self.index.split_first_chunk::<MESSAGE_ENTRY>()?;
            let [end @ .., kind] = *entry;
            self.index = rest;
            message.bytes = &self.text[self.start..u32::from_le_bytes(end) as usize];
            message.marker = match kind & 3 {
                0 => None,
                1 => Some(Marker::Unbounded),
                2 => Some(Marker::FiveMinutes),
                _ => Some(Marker::OneHour),
            };
            if kind & HAS_PARTS != 0 {
                let (count, rest) = self.index.split_first_chunk()?;
                let size = u32::from_le_bytes(*count) as usize * PART_ENTRY;
                let (parts, rest) = rest.split_at_checked(size)?;
                self.index = rest;
                message.parts = Some(parts.as_chunks().0);
            }
        } else {
            message.bytes = &bytes[..text_end(bytes, message.content_start()) + b"}".len()];
        }
        self.start += message.bytes.len() + b",".len();
        Some(message)
    }
}

/// Where the JSON string that starts at `start` ends.
fn text_end(bytes: &[u8], start: usize) -> usize {
    let mut end = start + 1;
    while let Some(found) = bytes.get(end..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        end += found;
        if bytes[end] == b'"' {
            return end + 1;
        }
        end += 2;
    }
    bytes.len() - b"}".len()
}

/// The end of a message, and a byte for its marker and whether parts follow.
const MESSAGE_ENTRY: usize = 5;
const HAS_PARTS: u8 = 4;
/// What a part is, and three ends.
const PART_ENTRY: usize = 13;

/// A message where it is stored. Every slice is escaped; a quoted one has its quotes.
pub(crate) struct StoredMessage<'a> {
    bytes: &'a [u8],
    pub(crate) role: Role,
    pub(crate) marker: Option<Marker>,
    /// None for one text.
    parts: Option<&'a [[u8; PART_ENTRY]]>,
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
    pub(crate) fn whole(&self) -> &'a [u8] {
        self.bytes
    }

    /// All before the value of the content.
    pub(crate) fn head(&self) -> &'a [u8] {
        &self.bytes[..self.content_start()]
    }

    fn content_start(&self) -> usize {
        ROLE.len() + self.role.as_str().len() + CONTENT.len()
    }

    pub(crate) fn content(
        &self,
    ) -> StoredContent<'a, impl ExactSizeIterator<Item = StoredPart<'a>> + use<'a>> {
        let bytes = self.bytes;
        let start = self.content_start();
        let Some(parts) = self.parts else {
            return StoredContent::Text(&bytes[start..bytes.len() - b"}".len()]);
        };
        let mut start = start + b"[".len();
        StoredContent::Parts(parts.iter().map(move |entry| {
            let part = IndexedPart::read(*entry);
            let stored = part.locate(bytes, start);
            start = part.end as usize + b",".len();
            stored
        }))
    }

    pub(crate) fn has_media(&self) -> bool {
        match self.content() {
            StoredContent::Text(_) => false,
            StoredContent::Parts(mut parts) => parts.any(|part| !matches!(part, StoredPart::Text { .. })),
        }
    }

    /// The message as its author gave it.
    pub(crate) fn read(&self) -> Result<Message<'a>, Error> {
        let content = match self.content() {
            StoredContent::Text(quoted) => Content::Text(unescape(quoted)?),
            StoredContent::Parts(parts) => {
                Content::Parts(parts.map(|part| part.read()).collect::<Result<_, _>>()?)
            }
        };
        Ok(Message { role: self.role, content, marker: self.marker })
    }
}

/// Ends count from the start of the message.
#[derive(Clone, Copy)]
struct IndexedPart {
    kind: PartKind,
    media_type_end: u32,
    data_end: u32,
    end: u32,
}

#[derive(Clone, Copy)]
enum PartKind {
    Text,
    ImageData,
    ImageUrl,
    File,
    NamedFile,
}

impl IndexedPart {
    fn write(self) -> [u8; PART_ENTRY] {
        let mut entry = [0; PART_ENTRY];
        entry[0] = self.kind as u8;
        for (number, end) in [self.media_type_end, self.data_end, self.end].into_iter().enumerate() {
            entry[1 + 4 * number..][..4].copy_from_slice(&end.to_le_bytes());
        }
        entry
    }

    fn read([kind, m0, m1, m2, m3, d0, d1, d2, d3, e0, e1, e2, e3]: [u8; PART_ENTRY]) -> Self {
        Self {
            kind: match kind {
                0 => PartKind::Text,
                1 => PartKind::ImageData,
                2 => PartKind::ImageUrl,
                3 => PartKind::File,
                _ => PartKind::NamedFile,
            },
            media_type_end: u32::from_le_bytes([m0, m1, m2, m3]),
            data_end: u32::from_le_bytes([d0, d1, d2, d3]),
            end: u32::from_le_bytes([e0, e1, e2, e3]),
        }
    }

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
    /// The content of a file of text, as a JSON string. None where it is no text, or not UTF-8.
    pub(crate) fn quoted_text(&self) -> Option<Vec<u8>> {
        let Self::File { media_type, data, .. } = *self else { return None };
        if !unquoted(media_type).starts_with(b"text/") {
            return None;
        }
        let content = decode(data).ok()?;
        let mut quoted = Vec::new();
        quote(&mut quoted, std::str::from_utf8(&content).ok()?).ok()?;
        Some(quoted)
    }

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
    index: Vec<u8>,
    message_count: u32,
    shape: Shape,
}

impl Builder {
    /// Starts with the messages of `fragment` and room for `reserved` bytes more.
    pub(crate) fn continuing(fragment: &Fragment, reserved: usize) -> Self {
        let view = fragment.view();
        let mut bytes = Vec::with_capacity(view.text.len() + view.rest.len() + reserved);
        bytes.extend_from_slice(view.text);
        let mut builder =
            Self { bytes, index: Vec::new(), message_count: fragment.message_count, shape: fragment.shape };
        if view.shape.has(Shape::INDEXED) {
            // What follows the index is the label of `fragment`, which has none.
            builder.index.extend_from_slice(view.rest);
        }
        builder
    }

    /// Adds a message.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`]; what was pushed before stays, but this builder is of no more use.
    pub fn push(&mut self, message: &Message<'_>) -> Result<(), Error> {
        let plain = message.marker.is_none() && matches!(message.content, Content::Text(_));
        if !plain && !self.shape.has(Shape::INDEXED) {
            self.begin_index()?;
        }
        // At once: growing and shrinking would leave holes between long-lived nodes that nothing fills.
        self.bytes.reserve(FRAME + message.size());
        if !self.bytes.is_empty() {
            self.bytes.push(b',');
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(ROLE);
        self.bytes.extend_from_slice(message.role.as_str().as_bytes());
        self.bytes.extend_from_slice(CONTENT);
        let entry = self.index.len();
        self.index.extend_from_slice(if self.shape.has(Shape::INDEXED) { &[0; MESSAGE_ENTRY] } else { &[] });
        match &message.content {
            Content::Text(text) => quote(&mut self.bytes, text)?,
            Content::Parts(parts) => self.push_parts(parts, start)?,
        }
        self.bytes.push(b'}');
        self.message_count = self.message_count.checked_add(1).ok_or(Error::TooLarge)?;
        let end = offset(self.bytes.len())?;
        if let Some([place @ .., kind]) = self.index[entry..].first_chunk_mut::<MESSAGE_ENTRY>() {
            *place = end.to_le_bytes();
            *kind = match message.marker {
                None => 0,
                Some(Marker::Unbounded) => 1,
                Some(Marker::FiveMinutes) => 2,
                Some(Marker::OneHour) => 3,
            };
            if matches!(message.content, Content::Parts(_)) {
                *kind |= HAS_PARTS;
            }
        }
        if message.marker.is_some() {
            self.shape.set(Shape::MARKED);
        }
        if message.role.is_system() {
            let late = if self.shape.has(Shape::OTHER) { Shape::LATE } else { 0 };
            self.shape.set(Shape::SYSTEM | late);
        } else {
            self.shape.set(Shape::OTHER);
        }
        Ok(())
    }

    /// Writes the index of the messages that did not need one.
    fn begin_index(&mut self) -> Result<(), Error> {
        let view = View { text: &self.bytes, rest: &[], shape: self.shape };
        let mut end = 0;
        for message in view.messages() {
            end += message.whole().len();
            self.index.extend_from_slice(&offset(end)?.to_le_bytes());
            self.index.push(0);
            end += b",".len();
        }
        self.shape.set(Shape::INDEXED);
        Ok(())
    }

    fn push_parts(&mut self, parts: &[Part<'_>], start: usize) -> Result<(), Error> {
        self.index.extend_from_slice(&offset(parts.len())?.to_le_bytes());
        self.bytes.push(b'[');
        for (position, part) in parts.iter().enumerate() {
            if position > 0 {
                self.bytes.push(b',');
            }
            let part = self.push_part(part, start)?;
            self.index.extend_from_slice(&part.write());
        }
        self.bytes.push(b']');
        Ok(())
    }

    fn push_part(&mut self, part: &Part<'_>, start: usize) -> Result<IndexedPart, Error> {
        let bytes = &mut self.bytes;
        let offset = |bytes: &[u8]| offset(bytes.len() - start);
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
        let end = offset(bytes)?;
        if !matches!(kind, PartKind::Text) {
            self.shape.set(Shape::MEDIA);
        }
        Ok(IndexedPart { kind, media_type_end, data_end, end })
    }

    /// The messages, and a label of the owner's to keep with them.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`]
    pub fn finish(mut self, label: &str) -> Result<Fragment, Error> {
        let text_end = offset(self.bytes.len())?;
        let packed = pack(label.as_bytes());
        let label = packed.as_ref().map_or(label.as_bytes(), |packed| packed.as_slice());
        if packed.is_some() {
            self.shape.set(Shape::PACKED);
        }
        self.bytes.reserve_exact(self.index.len() + label.len());
        self.bytes.extend_from_slice(&self.index);
        self.bytes.extend_from_slice(label);
        Ok(Fragment {
            bytes: self.bytes.into_boxed_slice(),
            text_end,
            message_count: self.message_count,
            shape: self.shape,
        })
    }
}

/// How many bytes a label takes.
pub(crate) fn label_size(label: &str) -> usize {
    pack(label.as_bytes()).map_or(label.len(), |packed| packed.len())
}

/// What 32 lower-case hexadecimal digits say, as run ids mostly are.
fn pack(label: &[u8]) -> Option<[u8; 16]> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let (pairs, []) = label.as_chunks::<2>() else { return None };
    let pairs: &[[u8; 2]; 16] = pairs.try_into().ok()?;
    let mut packed = [0; 16];
    for (byte, [high, low]) in packed.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(packed)
}

fn unpack(packed: &[u8]) -> String {
    let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value)]);
    packed.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn offset(length: usize) -> Result<u32, Error> {
    u32::try_from(length).map_err(|_| Error::TooLarge)
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_label_comes_back(label in prop_oneof![any::<String>(), "[0-9a-f]{30,34}", "[0-9a-fA-F]{32}"]) {
            let fragment = Builder::default().finish(&label).unwrap();
            prop_assert_eq!(fragment.view().label().unwrap(), label);
        }
    }

    #[test]
    fn a_label_of_32_hexadecimal_digits_takes_16_bytes() {
        assert_eq!(label_size("0123456789abcdef0123456789abcdef"), 16);
        assert_eq!(label_size("0123456789ABCDEF0123456789ABCDEF"), 32);
    }
}
