//! Nodes that share their ancestors, and the turn that is about to follow one.
//!
//! Every walk is a loop, the drop included: a derived one would recurse once a turn and exhaust the stack.

use std::borrow::Cow;
use std::sync::Arc;

use crate::digest::{Hasher, Last, Saved};
use crate::encoding::{Encoding, Form, Sink, write_fragment};
use crate::fragment::{FRAME, Shape, StoredMessage, View, label_size, quote};
use crate::{Builder, Content, Error, Fragment, Message, Role};

/// What the digest covers starts with its name, and what varies most, the session id, comes last.
const PREAMBLE: &[u8] = br#"["promptkit/rendered/1",["#;

/// One captured exchange, its reply included, and all before it.
///
/// The fields of a [`Fragment`] and of a saved state lie side by side here, because their padding would cost each
/// node 16 bytes more.
#[derive(Debug)]
pub struct Node {
    parent: Option<Arc<Node>>,
    /// A fragment whose label is the run id.
    bytes: Box<[u8]>,
    text_end: u32,
    /// Of the ancestors too.
    message_count: u32,
    /// The state of the digest after the last message.
    chain: [u32; 8],
    hashed: Length,
    shape: Shape,
    /// What there is among all messages, ancestors included.
    among: Among,
}

/// What not every backend takes, as bits: one byte is free in a node.
#[derive(Clone, Copy, Debug, Default)]
struct Among(u8);

impl Among {
    /// A message of the system or the developer follows one of another.
    const LATE_SYSTEM: u8 = 1;
    /// A message has an image or a file.
    const MEDIA: u8 = 2;

    /// What there is in `history` and in `new` after it.
    fn of(history: Option<&Node>, new: View<'_>) -> Self {
        let before = history.map_or(0, |node| node.among.0);
        let late = if new.has_late_system(history.is_some()) { Self::LATE_SYSTEM } else { 0 };
        let media = if new.has_media() { Self::MEDIA } else { 0 };
        Self(before | late | media)
    }

    fn has(self, bit: u8) -> bool {
        self.0 & bit != 0
    }
}

/// A number of bytes below 256 TiB.
#[derive(Clone, Copy, Debug)]
struct Length([u8; 6]);

impl Length {
    fn new(length: u64) -> Result<Self, Error> {
        match length.to_le_bytes() {
            [low @ .., 0, 0] => Ok(Self(low)),
            _ => Err(Error::TooLarge),
        }
    }

    fn get(self) -> u64 {
        let mut length = [0; 8];
        length[..6].copy_from_slice(&self.0);
        u64::from_le_bytes(length)
    }
}

impl Node {
    /// The run that made this exchange.
    ///
    /// # Errors
    ///
    /// None that a caller can cause.
    pub fn run_id(&self) -> Result<Cow<'_, str>, Error> {
        self.view().label()
    }

    /// The exchange that this one continued.
    #[must_use]
    pub fn parent(&self) -> Option<&Arc<Self>> {
        self.parent.as_ref()
    }

    /// Unlinks the ancestors, so that the caller decides where they are freed.
    pub fn take_parent(&mut self) -> Option<Arc<Self>> {
        self.parent.take()
    }

    /// How many messages there are, ancestors included.
    #[must_use]
    pub fn message_count(&self) -> usize {
        self.message_count as usize
    }

    /// How many bytes their canonical form has, a measure of how long a walk takes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.hashed.get()
    }

    /// All messages, oldest first.
    ///
    /// # Errors
    ///
    /// None that a caller can cause.
    pub fn messages(&self) -> Result<Vec<Message<'_>>, Error> {
        read(&views(Some(self)), self.message_count())
    }

    fn view(&self) -> View<'_> {
        View::new(&self.bytes, self.text_end, self.shape)
    }

    fn saved(&self) -> Saved {
        Saved { chain: self.chain, length: self.hashed.get() }
    }

    /// The end of the hashed text that the saved state does not cover. Mostly it lies in this node.
    fn tail(&self) -> Vec<u8> {
        let wanted = self.saved().pending();
        let mut tail = Vec::with_capacity(wanted);
        let mut next = Some(self);
        while let Some(node) = next.filter(|_| tail.len() < wanted) {
            let mut last = Last::new(wanted - tail.len());
            last.put(if node.parent.is_none() { PREAMBLE } else { b"," });
            write_fragment(node.view(), Form::Canonical, &mut last);
            tail.splice(..0, last.bytes);
            next = node.parent.as_deref();
        }
        tail
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let mut next = self.parent.take();
        // `into_inner` is Some for exactly one of the threads that give up the last references.
        while let Some(mut node) = next.and_then(Arc::into_inner) {
            next = node.parent.take();
        }
    }
}

/// The effective messages of one request: a captured history, then new messages.
#[derive(Debug)]
pub struct Turn {
    history: Option<Arc<Node>>,
    new: Fragment,
}

impl Turn {
    /// `new` after all of `history`.
    #[must_use]
    pub fn new(history: Option<Arc<Node>>, new: Fragment) -> Self {
        Self { history, new }
    }

    /// Unlinks the history, so that the caller decides where it is freed.
    pub fn take_history(&mut self) -> Option<Arc<Node>> {
        self.history.take()
    }

    /// How many messages there are.
    #[must_use]
    pub fn message_count(&self) -> usize {
        self.history.as_ref().map_or(0, |node| node.message_count()) + self.new.message_count()
    }

    /// How many bytes the new messages have, a measure of how long a digest takes.
    #[must_use]
    pub fn new_size(&self) -> u64 {
        u64::from(self.new.text_end)
    }

    /// About how many bytes all messages have, a measure of how long a walk takes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.history.as_ref().map_or(0, |node| node.size()) + self.new_size()
    }

    /// All messages, oldest first.
    ///
    /// # Errors
    ///
    /// None that a caller can cause.
    pub fn messages(&self) -> Result<Vec<Message<'_>>, Error> {
        let mut all = views(self.history.as_deref());
        all.push(self.new.view());
        read(&all, self.message_count())
    }

    /// The position of the first message of the system or the developer that follows one of another.
    ///
    /// Does not walk the history unless there is one in it.
    #[must_use]
    pub fn late_system(&self) -> Option<usize> {
        if !self.among().has(Among::LATE_SYSTEM) {
            return None;
        }
        let mut roles = self.stored().map(|message| message.role);
        let leading = roles.by_ref().position(|role| !role.is_system())?;
        roles.position(Role::is_system).map(|position| leading + 1 + position)
    }

    /// The position of the first message with an image or a file. Does not walk the history unless there is one.
    #[must_use]
    pub fn media(&self) -> Option<usize> {
        if self.among().has(Among::MEDIA) {
            self.stored().position(|message| message.has_media())
        } else {
            None
        }
    }

    fn among(&self) -> Among {
        Among::of(self.history.as_deref(), self.new.view())
    }

    fn stored(&self) -> impl Iterator<Item = StoredMessage<'_>> {
        let mut all = views(self.history.as_deref());
        all.push(self.new.view());
        all.into_iter().flat_map(View::messages)
    }

    /// The JSON array of all messages, then those of `extra`.
    #[must_use]
    pub fn encode<'a>(&'a self, form: Form, extra: &'a Fragment) -> Encoding<'a> {
        let mut all = views(self.history.as_deref());
        all.extend([self.new.view(), extra.view()]);
        Encoding::new(all, form)
    }

    /// SHA-256 over `["promptkit/rendered/1",[MESSAGE,...],SESSION_ID]`, of which only the new messages and
    /// what follows them are hashed now.
    ///
    /// # Errors
    ///
    /// None that a caller can cause.
    pub fn digest(&self, session_id: Option<&str>) -> Result<String, Error> {
        let mut end = b"],".to_vec();
        match session_id {
            Some(session_id) => quote(&mut end, session_id)?,
            None => end.extend_from_slice(b"null"),
        }
        end.push(b']');
        let mut hasher = self.hash(&self.new);
        hasher.put(&end);
        Ok(hasher.finish())
    }

    /// The exchange that a reply makes of this turn. A turn can be captured any number of times.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`]
    pub fn capture(&self, run_id: &str, reply: &str) -> Result<Node, Error> {
        let reply = Message { role: Role::Assistant, content: Content::Text(reply.into()), marker: None };
        let mut builder = Builder::continuing(&self.new, FRAME + reply.size() + label_size(run_id));
        builder.push(&reply)?;
        let fragment = builder.finish(run_id)?;
        let saved = self.hash(&fragment).save();
        let before = self.history.as_deref();
        Ok(Node {
            parent: self.history.clone(),
            among: Among::of(before, fragment.view()),
            message_count: before
                .map_or(0, |node| node.message_count)
                .checked_add(fragment.message_count)
                .ok_or(Error::TooLarge)?,
            bytes: fragment.bytes,
            text_end: fragment.text_end,
            shape: fragment.shape,
            chain: saved.chain,
            hashed: Length::new(saved.length)?,
        })
    }

    /// The hash of the history and then `new`.
    fn hash(&self, new: &Fragment) -> Hasher {
        let mut hasher = match &self.history {
            Some(node) => Hasher::resume(node.saved(), &node.tail()),
            None => Hasher::new(),
        };
        if self.history.is_none() {
            hasher.put(PREAMBLE);
        } else if !new.is_empty() {
            hasher.put(b",");
        }
        write_fragment(new.view(), Form::Canonical, &mut hasher);
        hasher
    }
}

/// The fragments of a node and its ancestors, oldest first.
fn views(node: Option<&Node>) -> Vec<View<'_>> {
    let mut found: Vec<_> =
        std::iter::successors(node, |node| node.parent.as_deref()).map(Node::view).collect();
    found.reverse();
    found
}

fn read<'a>(views: &[View<'a>], count: usize) -> Result<Vec<Message<'a>>, Error> {
    let mut messages = Vec::with_capacity(count);
    for view in views {
        for message in view.messages() {
            messages.push(message.read()?);
        }
    }
    Ok(messages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_with_its_counts_fills_an_allocation_of_96_bytes() {
        // Two counts before it, and eight bytes of the allocator's.
        assert_eq!(size_of::<Node>(), 72);
    }

    #[test]
    fn a_length_is_kept_up_to_256_tib_and_refused_above() {
        for length in [0, 1, (1 << 32) + 5, (1 << 48) - 1] {
            assert_eq!(Length::new(length).unwrap().get(), length);
        }
        assert!(Length::new(1 << 48).is_err());
    }
}
