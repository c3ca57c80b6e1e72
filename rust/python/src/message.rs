//! Messages between Python tuples and the tree.

use std::fmt;

use promptkit_history::{Builder, Content, Fragment, ImageSource, Message, Part};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PySequence, PyString, PyTuple};

use crate::error::Refusal;
use crate::lock::unlocked;

const MESSAGE: &str = "a tuple (role, content, marker)";
const PART: &str =
    "(\"text\", text), (\"image\", media_type, data, url) or (\"file\", media_type, data, filename)";

/// Where in the arguments something is, written only when it is wrong.
#[derive(Clone, Copy)]
struct Place<'a> {
    argument: &'a str,
    message: usize,
    part: Option<usize>,
    field: &'static str,
}

impl Place<'_> {
    fn field(self, field: &'static str) -> Self {
        Self { field, ..self }
    }

    fn part(self, position: usize) -> Self {
        Self { part: Some(position), ..self }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.argument, self.message)?;
        if let Some(part) = self.part {
            write!(f, " part {part}")?;
        }
        if !self.field.is_empty() {
            write!(f, " {}", self.field)?;
        }
        Ok(())
    }
}

/// The messages that Python calls `argument`.
pub(crate) fn read_messages(argument: &str, messages: &Bound<'_, PyAny>) -> PyResult<Fragment> {
    // A tuple of its own, so that no other thread changes a list under the loop.
    let messages = messages
        .cast::<PySequence>()
        .map_err(|_| Refusal::wrong_type(&argument, "a sequence of messages", messages))?
        .to_tuple()?;
    let mut builder = Builder::default();
    for (position, message) in messages.iter_borrowed().enumerate() {
        push_message(&mut builder, &message, Place { argument, message: position, part: None, field: "" })?;
    }
    Ok(builder.finish("").map_err(|error| Refusal::history(&argument, error))?)
}

fn push_message(builder: &mut Builder, message: &Bound<'_, PyAny>, place: Place<'_>) -> PyResult<()> {
    let refuse = |error| Refusal::history(&place, error);
    let fields = message.cast::<PyTuple>().map_err(|_| Refusal::wrong_type(&place, MESSAGE, message))?;
    let (role, content, marker): (Bound<'_, PyAny>, Bound<'_, PyAny>, Bound<'_, PyAny>) =
        fields.extract().map_err(|_| Refusal::wrong_shape(&place, MESSAGE))?;
    let parts;
    let message = Message {
        role: read_text(&role, place.field("role"))?.parse().map_err(refuse)?,
        content: if content.is_instance_of::<PyString>() {
            Content::Text(read_text(&content, place.field("content"))?.into())
        } else {
            parts = split_parts(&content, place)?;
            let parts = parts.iter().enumerate();
            Content::Parts(
                parts
                    .map(|(position, part)| read_part(part, place.part(position)))
                    .collect::<Result<_, _>>()?,
            )
        },
        marker: match optional(&marker) {
            None => None,
            Some(marker) => Some(read_text(marker, place.field("marker"))?.parse().map_err(refuse)?),
        },
    };
    Ok(unlocked(fields.py(), message.size() as u64, || builder.push(&message)).map_err(refuse)?)
}

/// The fields of each part, which the parts then borrow from.
fn split_parts<'py>(parts: &Bound<'py, PyAny>, place: Place<'_>) -> PyResult<Vec<Vec<Bound<'py, PyAny>>>> {
    let split = |(position, part): (usize, Borrowed<'_, 'py, PyAny>)| match part.cast::<PyTuple>() {
        Ok(fields) => Ok(fields.iter().collect()),
        Err(_) => Err(Refusal::wrong_type(&place.part(position), PART, &part).into()),
    };
    parts
        .cast::<PySequence>()
        .map_err(|_| Refusal::wrong_type(&place.field("content"), "a str or a sequence of parts", parts))?
        .to_tuple()?
        .iter_borrowed()
        .enumerate()
        .map(split)
        .collect()
}

fn read_part<'a>(fields: &'a [Bound<'_, PyAny>], place: Place<'_>) -> Result<Part<'a>, Refusal> {
    let (kind, fields) = fields.split_first().ok_or_else(|| Refusal::wrong_shape(&place, PART))?;
    match (read_text(kind, place.field("type"))?, fields) {
        ("text", [text]) => Ok(Part::Text(read_text(text, place.field("text"))?.into())),
        ("image", [media_type, data, url]) => Ok(Part::Image {
            media_type: read_text(media_type, place.field("media_type"))?.into(),
            source: match (optional(data), optional(url)) {
                (Some(data), None) => ImageSource::Data(read_bytes(data, place.field("data"))?.into()),
                (None, Some(url)) => ImageSource::Url(read_text(url, place.field("url"))?.into()),
                _ => return Err(Refusal::wrong_shape(&place, "an image with either data or url")),
            },
        }),
        ("file", [media_type, data, filename]) => Ok(Part::File {
            media_type: read_text(media_type, place.field("media_type"))?.into(),
            data: read_bytes(data, place.field("data"))?.into(),
            filename: match optional(filename) {
                None => None,
                Some(filename) => Some(read_text(filename, place.field("filename"))?.into()),
            },
        }),
        _ => Err(Refusal::wrong_shape(&place, PART)),
    }
}

fn optional<'a, 'py>(value: &'a Bound<'py, PyAny>) -> Option<&'a Bound<'py, PyAny>> {
    (!value.is_none()).then_some(value)
}

/// The text of a str that Python calls `place`.
pub(crate) fn read_text<'a>(
    value: &'a Bound<'_, PyAny>,
    place: impl fmt::Display,
) -> Result<&'a str, Refusal> {
    let text = value.cast::<PyString>().map_err(|_| Refusal::wrong_type(&place, "a str", value))?;
    text.to_str().map_err(|_| Refusal::surrogate(&place))
}

fn read_bytes<'a>(value: &'a Bound<'_, PyAny>, place: Place<'_>) -> Result<&'a [u8], Refusal> {
    let data = value.cast::<PyBytes>().map_err(|_| Refusal::wrong_type(&place, "bytes", value))?;
    Ok(data.as_bytes())
}

/// A list of message tuples.
pub(crate) fn write_messages<'py>(
    py: Python<'py>,
    messages: Vec<Message<'_>>,
) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for message in messages {
        list.append(write_message(py, message)?)?;
    }
    Ok(list)
}

fn write_message<'py>(py: Python<'py>, message: Message<'_>) -> PyResult<Bound<'py, PyTuple>> {
    let content = match message.content {
        Content::Text(text) => PyString::new(py, &text).into_any(),
        Content::Parts(parts) => {
            let parts = parts.into_iter().map(|part| write_part(py, part)).collect::<PyResult<Vec<_>>>()?;
            PyTuple::new(py, parts)?.into_any()
        }
    };
    (message.role.as_str(), content, message.marker.map(promptkit_history::Marker::ttl)).into_pyobject(py)
}

fn write_part<'py>(py: Python<'py>, part: Part<'_>) -> PyResult<Bound<'py, PyTuple>> {
    match part {
        Part::Text(text) => ("text", text).into_pyobject(py),
        Part::Image { media_type, source } => {
            let (data, url) = match source {
                ImageSource::Data(data) => (Some(PyBytes::new(py, &data)), None),
                ImageSource::Url(url) => (None, Some(url)),
            };
            ("image", media_type, data, url).into_pyobject(py)
        }
        Part::File { media_type, data, filename } => {
            ("file", media_type, PyBytes::new(py, &data), filename).into_pyobject(py)
        }
    }
}
