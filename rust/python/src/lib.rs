//! `promptkit._history`: the conversation tree for Python.

mod error;
mod group;
mod lock;
mod message;
mod node;
mod turn;

/// Conversations that share their ancestors, encoded once and hashed once.
///
/// A message is a tuple `(role, content, marker)`. The role is "system", "developer", "user" or "assistant".
/// The content is a str or a sequence of parts: `("text", text)`, `("image", media_type, data, url)` with exactly
/// one of data and url, or `("file", media_type, data, filename or None)`. The marker is None, or asks to cache
/// the prompt up to this message: "" as long as the backend likes, "5m" or "1h". What comes out equals what went
/// in, with the parts in a tuple.
#[pyo3::pymodule(gil_used = false)]
mod _history {
    #[pymodule_export]
    use crate::group::Group;
    #[pymodule_export]
    use crate::node::Node;
    #[pymodule_export]
    use crate::turn::Turn;
}
