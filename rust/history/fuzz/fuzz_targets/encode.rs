//! Whatever conversation is stored, each form is JSON, says what was stored, and begins that of a continuation.
//!
//! `cargo +nightly fuzz run encode`, in the folder above.

#![no_main]

use std::sync::Arc;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use promptkit_history::{Builder, Content, Form, Fragment, ImageSource, LateSystem, Marker, Markers, Message, Part, Role, Turn};
use serde_json::Value;

#[derive(Arbitrary, Debug)]
enum Piece {
    Text(String),
    Image(String, Vec<u8>),
    Link(String, String),
    File(String, Vec<u8>, Option<String>),
}

#[derive(Arbitrary, Debug)]
struct Line {
    role: u8,
    marker: u8,
    content: Result<String, Vec<Piece>>,
}

#[derive(Arbitrary, Debug)]
struct Exchanges {
    turns: Vec<(Vec<Line>, String, String)>,
    new: Vec<Line>,
}

fn part(piece: &Piece) -> Part<'_> {
    match piece {
        Piece::Text(text) => Part::Text(text.into()),
        Piece::Image(media_type, data) => {
            Part::Image { media_type: media_type.into(), source: ImageSource::Data(data.into()) }
        }
        Piece::Link(media_type, url) => {
            Part::Image { media_type: media_type.into(), source: ImageSource::Url(url.into()) }
        }
        Piece::File(media_type, data, filename) => Part::File {
            media_type: media_type.into(),
            data: data.into(),
            filename: filename.as_ref().map(Into::into),
        },
    }
}

fn message(line: &Line) -> Message<'_> {
    Message {
        role: [Role::System, Role::Developer, Role::User, Role::Assistant][usize::from(line.role % 4)],
        content: match &line.content {
            Ok(text) => Content::Text(text.into()),
            Err(pieces) => Content::Parts(pieces.iter().map(part).collect()),
        },
        marker: [None, Some(Marker::Unbounded), Some(Marker::FiveMinutes), Some(Marker::OneHour)]
            [usize::from(line.marker % 4)],
    }
}

fn fragment(lines: &[Line]) -> Fragment {
    let mut builder = Builder::default();
    for line in lines {
        builder.push(&message(line)).unwrap();
    }
    builder.finish("").unwrap()
}

fn encode(turn: &Turn, form: Form) -> Vec<u8> {
    let nothing = Fragment::default();
    turn.encode(form, &nothing).to_vec()
}

/// The texts of a value, wherever they are.
fn texts<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => found.push(text),
        Value::Array(values) => values.iter().for_each(|value| texts(value, found)),
        Value::Object(values) => values.values().for_each(|value| texts(value, found)),
        _ => {}
    }
}

fuzz_target!(|exchanges: Exchanges| {
    let forms = [
        Form::Canonical,
        Form::Chat(Markers::Omit, LateSystem::Send),
        Form::Chat(Markers::CacheControl, LateSystem::Send),
        Form::Chat(Markers::PromptCacheBreakpoint, LateSystem::Send),
        Form::Chat(Markers::CacheControl, LateSystem::AsUser),
        Form::Anthropic(Markers::CacheControl, LateSystem::Send),
        Form::Anthropic(Markers::CacheControl, LateSystem::AsUser),
        Form::AnthropicSystem(Markers::CacheControl),
    ];
    let mut model = Vec::new();
    let mut history = None;
    let mut before = forms.map(|_| b"[]".to_vec());
    for (lines, run_id, reply) in &exchanges.turns {
        model.extend(lines.iter().map(message));
        model.push(Message { role: Role::Assistant, content: Content::Text(reply.into()), marker: None });
        let node = Arc::new(Turn::new(history, fragment(lines)).capture(run_id, reply).unwrap());
        assert_eq!(node.run_id().unwrap(), run_id.as_str());
        assert_eq!(node.messages().unwrap(), model);
        history = Some(node);
    }
    model.extend(exchanges.new.iter().map(message));
    let turn = Turn::new(history.clone(), fragment(&exchanges.new));
    assert_eq!(turn.messages().unwrap(), model);
    if history.is_some() {
        let captured = Turn::new(history, Fragment::default());
        before = forms.map(|form| encode(&captured, form));
    }
    for (form, before) in forms.into_iter().zip(before) {
        let wire = encode(&turn, form);
        assert!(wire.starts_with(&before[..before.len() - 1]));
        let value: Value = serde_json::from_slice(&wire).unwrap();
        if matches!(form, Form::Canonical | Form::Chat(..)) {
            assert_eq!(value.as_array().map(Vec::len), Some(model.len()));
            for (message, value) in model.iter().zip(value.as_array().into_iter().flatten()) {
                if !matches!(form, Form::Chat(_, LateSystem::AsUser)) {
                    assert_eq!(value["role"], message.role.as_str());
                }
                let mut found = Vec::new();
                texts(value, &mut found);
                match &message.content {
                    Content::Text(text) => assert!(found.contains(&text.as_ref())),
                    Content::Parts(parts) => {
                        for part in parts {
                            if let Part::Text(text) = part {
                                assert!(found.contains(&text.as_ref()));
                            }
                        }
                    }
                }
            }
        }
    }
});
