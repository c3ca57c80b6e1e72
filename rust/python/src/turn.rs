use std::convert::Infallible;
use std::mem::MaybeUninit;
use std::ptr::null;
use std::slice;
use std::sync::Arc;

use promptkit_history as history;
use promptkit_history::{Encoding, Form, Fragment, LateSystem, Markers};
use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::error::Refusal;
use crate::lock::{release, unlocked};
use crate::message::{read_messages, read_text, write_messages};
use crate::node::Node;

/// The effective messages of one request: a captured history, then new messages. Immutable; usable in any thread.
///
/// Raises `TypeError` or `ValueError`, which name the message, if one is not well-formed.
#[pyclass(frozen, module = "promptkit._history")]
pub(crate) struct Turn(history::Turn);

#[pymethods]
impl Turn {
    #[new]
    fn new(history: Option<&Bound<'_, Node>>, messages: &Bound<'_, PyAny>) -> PyResult<Self> {
        let history = history.map(|node| Arc::clone(&node.get().0));
        Ok(Self(history::Turn::new(history, read_messages("messages", messages)?)))
    }

    /// How many messages there are, history included.
    #[getter]
    fn message_count(&self) -> usize {
        self.0.message_count()
    }

    /// The position of the first message of the system or the developer that follows one of another, None if there
    /// is none.
    #[getter]
    fn late_system(&self, py: Python<'_>) -> Option<usize> {
        unlocked(py, self.0.size(), || self.0.late_system())
    }

    /// The position of the first message with an image or a file, None if there is none.
    #[getter]
    fn media(&self, py: Python<'_>) -> Option<usize> {
        unlocked(py, self.0.size(), || self.0.media())
    }

    /// The `messages` array of a chat-completions request, compact JSON: these messages, then `extra`.
    ///
    /// `markers` says what becomes of cache markers, `late_system` what becomes of a message of the system or the
    /// developer that follows one of another: `send` keeps its role, `as_user` makes it the user's. A history's array
    /// without its closing bracket is a prefix of that of every continuation with the same two, byte for byte. Raises
    /// `ValueError` or `TypeError` for unknown ones and for messages that are not well-formed.
    #[pyo3(
        signature = (markers, extra = Argument::Absent, late_system = Argument::Absent),
        text_signature = "(self, markers, extra=(), late_system='send')"
    )]
    fn encode_chat<'py>(
        &self,
        py: Python<'py>,
        markers: &Bound<'py, PyAny>,
        extra: Argument<'py>,
        late_system: Argument<'py>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (markers, late, extra) = (read_markers(markers)?, read_late(late_system)?, read_extra(extra)?);
        self.encode(py, Form::Chat(markers, late), &extra, write)
    }

    /// The `messages` and the `system` array of an Anthropic request, compact JSON: these messages, then `extra`.
    ///
    /// `system` has the text blocks of the leading messages whose role is "system" or "developer", None where there
    /// is no such message; a later one stays where it is, as `late_system` says. Each array without its closing bracket is a
    /// prefix of that of every continuation, as with `encode_chat`. Raises what `encode_chat` raises, and `ValueError`
    /// for the markers that this form does not have.
    #[pyo3(
        signature = (markers, extra = Argument::Absent, late_system = Argument::Absent),
        text_signature = "(self, markers, extra=(), late_system='send')"
    )]
    fn encode_anthropic<'py>(
        &self,
        py: Python<'py>,
        markers: &Bound<'py, PyAny>,
        extra: Argument<'py>,
        late_system: Argument<'py>,
    ) -> PyResult<(Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>)> {
        let (markers, late, extra) = (read_markers(markers)?, read_late(late_system)?, read_extra(extra)?);
        if markers == Markers::PromptCacheBreakpoint {
            return Err(Refusal::wrong_shape(&"markers", "\"cache_control\" or \"omit\" in this form").into());
        }
        let messages = self.encode(py, Form::Anthropic(markers, late), &extra, write)?;
        let system = self.encode(py, Form::AnthropicSystem(markers), &extra, |py, encoding| {
            (!encoding.is_empty()).then(|| write(py, encoding)).transpose()
        })?;
        Ok((messages, system))
    }

    /// The rendered digest: "sha256:" and the SHA-256, in lower-case hexadecimal, of the compact JSON
    /// `["promptkit/rendered/1",[MESSAGE,...],SESSION_ID]`. Hashes only what is new since the history.
    fn digest(&self, py: Python<'_>, session_id: &Bound<'_, PyAny>) -> PyResult<String> {
        let session_id = (!session_id.is_none()).then(|| read_text(session_id, "session_id")).transpose()?;
        let digest = unlocked(py, self.0.new_size(), || self.0.digest(session_id));
        Ok(digest.map_err(|error| Refusal::history(&"session_id", error))?)
    }

    /// All messages, oldest first, as new tuples.
    fn messages<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let messages = unlocked(py, self.0.size(), || self.0.messages());
        write_messages(py, messages.map_err(|error| Refusal::history(&"messages", error))?)
    }

    /// A new node: these messages, then `reply` as the assistant's. Can be called any number of times.
    fn capture(&self, py: Python<'_>, run_id: &Bound<'_, PyAny>, reply: &Bound<'_, PyAny>) -> PyResult<Node> {
        let run_id = read_text(run_id, "run_id")?;
        let reply = read_text(reply, "reply")?;
        let size = self.0.new_size() + reply.len() as u64;
        let node = unlocked(py, size, || self.0.capture(run_id, reply));
        Ok(Node(Arc::new(node.map_err(|error| Refusal::history(&"reply", error))?)))
    }
}

impl Turn {
    fn encode<'py, T>(
        &self,
        py: Python<'py>,
        form: Form,
        extra: &Fragment,
        write: impl FnOnce(Python<'py>, &Encoding<'_>) -> PyResult<T>,
    ) -> PyResult<T> {
        let encoding = unlocked(py, self.0.size(), || self.0.encode(form, extra));
        write(py, &encoding)
    }
}

/// What may be left out, which None is not.
pub(crate) enum Argument<'py> {
    Absent,
    Given(Bound<'py, PyAny>),
}

impl<'py> FromPyObject<'_, 'py> for Argument<'py> {
    type Error = Infallible;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> Result<Self, Infallible> {
        Ok(Self::Given(value.to_owned()))
    }
}

fn read_extra(extra: Argument<'_>) -> PyResult<Fragment> {
    match extra {
        Argument::Absent => Ok(Fragment::default()),
        Argument::Given(messages) => read_messages("extra", &messages),
    }
}

fn read_markers(markers: &Bound<'_, PyAny>) -> PyResult<Markers> {
    let markers = read_text(markers, "markers")?;
    Ok(markers.parse().map_err(|error| Refusal::history(&"markers", error))?)
}

fn read_late(late_system: Argument<'_>) -> PyResult<LateSystem> {
    let Argument::Given(late_system) = late_system else { return Ok(LateSystem::Send) };
    let late_system = read_text(&late_system, "late_system")?;
    Ok(late_system.parse().map_err(|error| Refusal::history(&"late_system", error))?)
}

/// Writes into memory that is not zeroed first, which would take half as long again as the writing.
fn write<'py>(py: Python<'py>, encoding: &Encoding<'_>) -> PyResult<Bound<'py, PyBytes>> {
    let size = encoding.size();
    let length = isize::try_from(size).map_err(|_| PyMemoryError::new_err(()))?;
    // SAFETY: given no text, it makes an object with room for `length` bytes or sets an error.
    let made = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(null(), length)) }?;
    let bytes = made.cast_into::<PyBytes>()?;
    // SAFETY: the room is `size` bytes long, lives as long as `bytes`, and no one else knows of it before this
    // function returns. `fill` initialises all of it or panics, and then the object is forgotten.
    let room = unsafe {
        slice::from_raw_parts_mut(ffi::PyBytes_AsString(bytes.as_ptr()).cast::<MaybeUninit<u8>>(), size)
    };
    unlocked(py, size as u64, || encoding.fill(room));
    Ok(bytes)
}

impl Drop for Turn {
    fn drop(&mut self) {
        release(self.0.take_history());
    }
}
