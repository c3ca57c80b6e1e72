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
    /// About how many bytes the content has once it is encoded.
    #[must_use]
    pub fn size(&self) -> usize {
        let size = |part: &Part<'_>| match part {
            Part::Text(text) | Part::Image { source: ImageSource::Url(text), .. } => text.len(),
            Part::Image { source: ImageSource::Data(data), .. } | Part::File { data, .. } => {
                data.len() / 3 * 4
            }
        };
        match &self.content {
            Content::Text(text) => text.len(),
            Content::Parts(parts) => parts.iter().map(size).sum(),
        }
    }
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
