//! The history of a conversation: a tree of immutable nodes, each one turn and all before it.
//!
//! A message is escaped to JSON once, when it enters, and kept in that form only. What goes to a backend is
//! copied out of it, what a reader asks for is unescaped from it, and the digest of a conversation is resumed
//! from the state that its last node saved. No walk recurses, whatever the depth.

#![forbid(unsafe_code)]

mod digest;
mod encoding;
mod error;
mod fragment;
mod group;
mod message;
mod tree;

pub use encoding::{Encoding, Form, LateSystem, Markers};
pub use error::Error;
pub use fragment::{Builder, Fragment};
pub use group::{Count, Group, Member, Snapshot, Totals};
pub use message::{Content, ImageSource, Marker, Message, Part, Role};
pub use tree::{Node, Turn};
