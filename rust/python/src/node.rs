use std::borrow::Cow;
use std::sync::Arc;

use promptkit_history as history;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::error::Refusal;
use crate::lock::{release, unlocked};
use crate::message::write_messages;

/// One captured exchange and all before it. Immutable; made by `Turn.capture`; usable in any thread.
#[pyclass(frozen, module = "promptkit._history")]
pub(crate) struct Node(pub(crate) Arc<history::Node>);

#[pymethods]
impl Node {
    /// The run that made this exchange.
    #[getter]
    fn run_id(&self) -> Result<Cow<'_, str>, Refusal> {
        run_id(&self.0)
    }

    /// The run that made the exchange which this one continued, None for a first one.
    #[getter]
    fn parent_run_id(&self) -> Result<Option<Cow<'_, str>>, Refusal> {
        self.0.parent().map(|parent| run_id(parent)).transpose()
    }

    /// How many messages there are, replies and ancestors included.
    #[getter]
    fn message_count(&self) -> usize {
        self.0.message_count()
    }

    /// All messages, oldest first, as new tuples.
    fn messages<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let messages = unlocked(py, self.0.size(), || self.0.messages());
        write_messages(py, messages.map_err(|error| Refusal::history(&"messages", error))?)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        release(Arc::get_mut(&mut self.0).and_then(history::Node::take_parent));
    }
}

fn run_id(node: &history::Node) -> Result<Cow<'_, str>, Refusal> {
    node.run_id().map_err(|error| Refusal::history(&"run_id", error))
}
