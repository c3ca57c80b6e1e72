//! Depth costs no stack, and a handle frees exactly what nothing else reaches.

#![allow(clippy::unwrap_used, reason = "clippy.toml spares test functions, not what they call")]

use std::sync::Arc;
use std::thread;

use promptkit_history::{Builder, Content, Form, Fragment, LateSystem, Markers, Message, Node, Role, Turn};

const STACK: usize = 256 * 1024;

fn user(text: &str) -> Fragment {
    let mut builder = Builder::default();
    builder.push(&Message { role: Role::User, content: Content::Text(text.into()), marker: None }).unwrap();
    builder.finish("").unwrap()
}

fn conversation(turns: usize) -> Arc<Node> {
    let mut last = None;
    for number in 0..turns {
        last = Some(Arc::new(Turn::new(last, user("hello")).capture(&number.to_string(), "hi").unwrap()));
    }
    last.unwrap()
}

fn live_in_a_small_stack(turns: usize) {
    let life = move || {
        let turn = Turn::new(Some(conversation(turns)), user("bye"));
        let nothing = Fragment::default();
        let wire = turn.encode(Form::Chat(Markers::Omit, LateSystem::Send), &nothing).to_vec();
        assert!(wire.ends_with(br#"{"role":"user","content":"bye"}]"#));
        assert_eq!(turn.messages().unwrap().len(), 2 * turns + 1);
        assert!(turn.digest(None).unwrap().starts_with("sha256:"));
    };
    thread::Builder::new().stack_size(STACK).spawn(life).unwrap().join().unwrap();
}

#[test]
fn a_conversation_of_100_000_turns_lives_in_a_small_stack() {
    live_in_a_small_stack(100_000);
}

#[test]
fn a_conversation_of_1_000_000_turns_lives_in_a_small_stack() {
    live_in_a_small_stack(1_000_000);
}

#[test]
fn dropping_a_branch_frees_it_up_to_the_fork_and_no_further() {
    let trunk = conversation(3);
    let fork = Arc::downgrade(&trunk);
    let branch = Arc::new(Turn::new(Some(Arc::clone(&trunk)), user("left")).capture("left", "l").unwrap());
    let middle = Arc::downgrade(&branch);
    let leaf = Turn::new(Some(branch), user("leaf")).capture("leaf", "f").unwrap();
    drop(trunk);
    assert!(fork.upgrade().is_some());
    let sibling = Turn::new(fork.upgrade(), user("right")).capture("right", "r").unwrap();
    drop(leaf);
    assert!(middle.upgrade().is_none());
    assert_eq!(sibling.message_count(), 8);
    drop(sibling);
    assert!(fork.upgrade().is_none());
}

#[test]
fn many_threads_drop_branches_of_one_deep_trunk_in_small_stacks() {
    let trunk = conversation(100_000);
    let root = Arc::downgrade(&trunk);
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let trunk = Arc::clone(&trunk);
            let drop_branch = move || drop(Turn::new(Some(trunk), user("x")).capture("x", "y").unwrap());
            thread::Builder::new().stack_size(STACK).spawn(drop_branch).unwrap()
        })
        .collect();
    drop(trunk);
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(root.upgrade().is_none());
}
