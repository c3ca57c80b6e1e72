use std::sync::Arc;

use promptkit_history::Node;
use pyo3::marker::Ungil;
use pyo3::prelude::*;

/// Below this many bytes the work takes less than getting the interpreter lock back may.
const LARGE: u64 = 1 << 20;

/// Does `work` on about `size` bytes, and lets other threads run meanwhile if that is much.
pub(crate) fn unlocked<T: Ungil>(py: Python<'_>, size: u64, work: impl Ungil + FnOnce() -> T) -> T {
    if size < LARGE { work() } else { py.detach(work) }
}

/// Frees a history, unlocked if that is a long walk.
pub(crate) fn release(history: Option<Arc<Node>>) {
    let Some(node) = history.filter(|node| Arc::strong_count(node) == 1) else { return };
    // Where the interpreter is shutting down, the closure is dropped uncalled, and the history with it.
    let _ = Python::try_attach(move |py| {
        let size = node.size();
        unlocked(py, size, move || drop(node));
    });
}
