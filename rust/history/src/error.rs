use std::fmt;

/// Why a message, or a name that describes one, is refused.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The role is none of system, developer, user, assistant.
    UnknownRole(String),
    /// The time to live of a cache marker is neither empty nor `5m` nor `1h`.
    UnknownTtl(String),
    /// The treatment of cache markers is none of the three known ones.
    UnknownMarkers(String),
    /// The treatment of late messages of the system is none of the two known ones.
    UnknownLateSystem(String),
    /// The messages of one turn exceed 4 GiB in their JSON form.
    TooLarge,
    /// A string could not be written as JSON or read back: a fault of this crate, not of its caller.
    Json(serde_json::Error),
    /// Stored data could not be read back: a fault of this crate, not of its caller.
    Data(base64::DecodeError),
    /// Stored text could not be read back: a fault of this crate, not of its caller.
    Text(std::str::Utf8Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownRole(role) => {
                write!(
                    f,
                    "unknown role {role:?}, expected \"system\", \"developer\", \"user\" or \"assistant\""
                )
            }
            Self::UnknownTtl(ttl) => {
                write!(f, "unknown cache marker {ttl:?}, expected \"\", \"5m\" or \"1h\"")
            }
            Self::UnknownMarkers(markers) => write!(
                f,
                "unknown markers {markers:?}, expected \"omit\", \"cache_control\" or \"prompt_cache_breakpoint\""
            ),
            Self::UnknownLateSystem(late) => {
                write!(f, "unknown treatment {late:?}, expected \"send\" or \"as_user\"")
            }
            Self::TooLarge => f.write_str("the messages of one turn exceed 4 GiB"),
            Self::Json(fault) => write!(f, "JSON: {fault}"),
            Self::Data(fault) => write!(f, "stored data: {fault}"),
            Self::Text(fault) => write!(f, "stored text: {fault}"),
        }
    }
}

impl std::error::Error for Error {}

/// The start of a name that is not known, because it may be anything, a whole prompt in the wrong place included.
pub(crate) fn excerpt(name: &str) -> String {
    name.chars().take(24).collect()
}
