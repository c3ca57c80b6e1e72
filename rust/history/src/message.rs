use std::borrow::Cow;
use std::str::FromStr;

use crate::Error;
use crate::error::excerpt;

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Instructions of the operator.
    System,
    /// Instructions of the application.
    Developer,
    /// The user.
    User,
    /// The model.
    Assistant,
}

impl Role {
    /// The role as backends spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Developer => "developer",
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }

    /// Whether it is the application that speaks: the system's role, or the developer's.
    #[must_use]
    pub fn is_system(self) -> bool {
        matches!(self, Self::System | Self::Developer)
    }
}

impl FromStr for Role {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        [Self::System, Self::Developer, Self::User, Self::Assistant]
            .into_iter()
            .find(|role| role.as_str() == text)
            .ok_or_else(|| Error::UnknownRole(excerpt(text)))
    }
}

/// A request to cache the prompt up to and including the marked message, by how long it shall live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// As long as the backend likes.
    Unbounded,
    /// Five minutes.
    FiveMinutes,
    /// One hour.
    OneHour,
}

impl Marker {
    /// The time to live as backends spell it, empty where none is asked for.
    #[must_use]
    pub fn ttl(self) -> &'static str {
        match self {
            Self::Unbounded => "",
            Self::FiveMinutes => "5m",
            Self::OneHour => "1h",
        }
    }
}

impl FromStr for Marker {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        [Self::Unbounded, Self::FiveMinutes, Self::OneHour]
            .into_iter()
            .find(|marker| marker.ttl() == text)
            .ok_or_else(|| Error::UnknownTtl(excerpt(text)))
    }
}

/// One message, borrowed from its author on the way in and, where possible, from the tree on the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: Content<'a>,
    /// Whether a cached prefix ends here.
    pub marker: Option<Marker>,
}

impl Message<'_> {
    /// How many bytes the variable parts of the content have once they are encoded.
    #[must_use]
    pub fn size(&self) -> usize {
        let size = |part: &Part<'_>| match part {
            Part::Text(text) => escaped_size(text),
            Part::Image { media_type, source: ImageSource::Url(url) } => {
                escaped_size(media_type) + escaped_size(url)
            }
            Part::Image { media_type, source: ImageSource::Data(data) } => {
                escaped_size(media_type) + base64_size(data)
            }
            Part::File { media_type, data, filename } => {
                let filename = filename.as_deref().map_or(0, escaped_size);
                escaped_size(media_type) + base64_size(data) + filename
            }
        };
        match &self.content {
            Content::Text(text) => escaped_size(text),
            Content::Parts(parts) => parts.iter().map(size).sum(),
        }
    }
}

/// `serde_json` writes the escapes of RFC 8259, section 7: the short ones, and six bytes for other controls.
fn escaped_size(text: &str) -> usize {
    // Arithmetic without branches on runs of one length, whose sums fit a byte: a compiler makes vectors of that,
    // and it takes a quarter of the time of a table.
    let extra = |byte: u8| {
        let control = u8::from(byte < 0x20);
        let short = u8::from(byte.wrapping_sub(0x08) < 6) & u8::from(byte != 0x0b);
        5 * control - 4 * short + u8::from(byte == b'"') + u8::from(byte == b'\\')
    };
    let (runs, rest) = text.as_bytes().as_chunks::<32>();
    let run = |run: &[u8; 32]| usize::from(run.iter().fold(0_u8, |sum, byte| sum.wrapping_add(extra(*byte))));
    let rest: usize = rest.iter().map(|byte| usize::from(extra(*byte))).sum();
    text.len() + runs.iter().map(run).sum::<usize>() + rest
}

fn base64_size(data: &[u8]) -> usize {
    data.len().div_ceil(3) * 4
}

/// The content of a message. One text and a list of one text part are different messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// One text.
    Text(Cow<'a, str>),
    /// A list of parts, in order, possibly empty.
    Parts(Vec<Part<'a>>),
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// Text.
    Text(Cow<'a, str>),
    /// An image.
    Image {
        /// Its media type, such as `image/png`.
        media_type: Cow<'a, str>,
        /// Where it is.
        source: ImageSource<'a>,
    },
    /// A file.
    File {
        /// Its media type, such as `application/pdf`.
        media_type: Cow<'a, str>,
        /// Its bytes.
        data: Cow<'a, [u8]>,
        /// Its name, if the backend shall see one.
        filename: Option<Cow<'a, str>>,
    },
}

/// Where an image is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageSource<'a> {
    /// Here.
    Data(Cow<'a, [u8]>),
    /// At an address that the backend reads.
    Url(Cow<'a, str>),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_escaped_size_is_that_of_the_escaped_text(text in "[\\x00-\\x7f\u{e9}\u{1f600}]{0,200}") {
            prop_assert_eq!(escaped_size(&text) + 2, serde_json::to_string(&text).unwrap().len());
        }
    }
}
