//! The tree against lists of messages that are copied at every turn.

#![allow(clippy::unwrap_used, reason = "clippy.toml spares test functions, not what they call")]

use std::borrow::Cow;
use std::mem::MaybeUninit;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use promptkit_history::{
    Builder, Content, Form, Fragment, ImageSource, LateSystem, Marker, Markers, Message, Node, Part, Role,
    Turn,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const MARKERS: [Markers; 3] = [Markers::Omit, Markers::CacheControl, Markers::PromptCacheBreakpoint];

fn text() -> impl Strategy<Value = Cow<'static, str>> {
    prop_oneof![any::<String>(), "[\\x00-\\x7f]{0,80}"].prop_map(Cow::Owned)
}

fn data() -> impl Strategy<Value = Cow<'static, [u8]>> {
    any::<Vec<u8>>().prop_map(Cow::Owned)
}

fn url() -> impl Strategy<Value = Cow<'static, str>> {
    let data = "data:[a-z/\"]{0,9}(;base64)?(,[A-Za-z0-9+/=,\\\\]{0,9})?".prop_map(Cow::Owned);
    prop_oneof![text(), data]
}

fn file() -> impl Strategy<Value = (Cow<'static, str>, Cow<'static, [u8]>)> {
    let written = any::<String>().prop_map(|text| Cow::Owned(text.into_bytes()));
    let media_type = prop_oneof![text(), "text/[a-z]{0,5}".prop_map(Cow::Owned)];
    (media_type, prop_oneof![data(), written])
}

fn part() -> impl Strategy<Value = Part<'static>> {
    let source = prop_oneof![data().prop_map(ImageSource::Data), url().prop_map(ImageSource::Url)];
    prop_oneof![
        text().prop_map(Part::Text),
        (text(), source).prop_map(|(media_type, source)| Part::Image { media_type, source }),
        (file(), option::of(text())).prop_map(|((media_type, data), filename)| Part::File {
            media_type,
            data,
            filename
        }),
    ]
}

fn message() -> impl Strategy<Value = Message<'static>> {
    let role = select(vec![Role::System, Role::Developer, Role::User, Role::Assistant]);
    let content =
        prop_oneof![4 => text().prop_map(Content::Text), 1 => vec(part(), 0..4).prop_map(Content::Parts)];
    let marker = select(vec![Marker::Unbounded, Marker::FiveMinutes, Marker::OneHour]);
    (role, content, option::weighted(0.2, marker)).prop_map(|(role, content, marker)| Message {
        role,
        content,
        marker,
    })
}

#[derive(Clone, Debug)]
enum Step {
    /// Captures a turn after any node, or after none.
    Capture {
        after: Option<Index>,
        new: Vec<Message<'static>>,
        reply: String,
    },
    Drop(Index),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (option::weighted(0.9, any::<Index>()), vec(message(), 0..4), any::<String>())
            .prop_map(|(after, new, reply)| Step::Capture { after, new, reply }),
        1 => any::<Index>().prop_map(Step::Drop),
    ]
}

fn fragment(messages: &[Message<'_>]) -> Fragment {
    let mut builder = Builder::default();
    for message in messages {
        builder.push(message).unwrap();
    }
    builder.finish("").unwrap()
}

const LATE: [LateSystem; 2] = [LateSystem::Send, LateSystem::AsUser];
const FORMS: [Form; 12] = [
    Form::Chat(Markers::Omit, LateSystem::Send),
    Form::Chat(Markers::Omit, LateSystem::AsUser),
    Form::Chat(Markers::CacheControl, LateSystem::Send),
    Form::Chat(Markers::CacheControl, LateSystem::AsUser),
    Form::Chat(Markers::PromptCacheBreakpoint, LateSystem::Send),
    Form::Chat(Markers::PromptCacheBreakpoint, LateSystem::AsUser),
    Form::Anthropic(Markers::Omit, LateSystem::Send),
    Form::Anthropic(Markers::Omit, LateSystem::AsUser),
    Form::Anthropic(Markers::CacheControl, LateSystem::Send),
    Form::Anthropic(Markers::CacheControl, LateSystem::AsUser),
    Form::AnthropicSystem(Markers::Omit),
    Form::AnthropicSystem(Markers::CacheControl),
];

fn encode(turn: &Turn, form: Form, extra: &Fragment) -> Vec<u8> {
    let encoding = turn.encode(form, extra);
    let written = encoding.to_vec();
    assert_eq!(written.len(), encoding.size());
    encoding.fill(&mut vec![MaybeUninit::uninit(); written.len()]);
    written
}

fn decode(turn: &Turn, form: Form) -> Value {
    serde_json::from_slice(&encode(turn, form, &fragment(&[]))).unwrap()
}

/// The canonical form, built from quoted strings by hand because `serde_json` orders keys by name.
fn canonical(message: &Message<'_>) -> String {
    let part = |part: &Part<'_>| match part {
        Part::Text(text) => format!(r#"{{"type":"text","text":{}}}"#, json!(text)),
        Part::Image { media_type, source } => {
            let (key, value) = match source {
                ImageSource::Data(data) => ("data", json!(STANDARD.encode(data))),
                ImageSource::Url(url) => ("url", json!(url)),
            };
            format!(r#"{{"type":"image","media_type":{},"{key}":{value}}}"#, json!(media_type))
        }
        Part::File { media_type, data, filename } => format!(
            r#"{{"type":"file","media_type":{},"data":"{}"{}}}"#,
            json!(media_type),
            STANDARD.encode(data),
            filename.as_ref().map_or_else(String::new, |name| format!(r#","filename":{}"#, json!(name)))
        ),
    };
    let content = match &message.content {
        Content::Text(text) => json!(text).to_string(),
        Content::Parts(parts) => format!("[{}]", parts.iter().map(part).collect::<Vec<_>>().join(",")),
    };
    let marker = match message.marker {
        None => "",
        Some(Marker::Unbounded) => r#","cache_control":{"type":"ephemeral","ttl":null}"#,
        Some(Marker::FiveMinutes) => r#","cache_control":{"type":"ephemeral","ttl":"5m"}"#,
        Some(Marker::OneHour) => r#","cache_control":{"type":"ephemeral","ttl":"1h"}"#,
    };
    format!(r#"{{"role":"{}","content":{content}{marker}}}"#, message.role.as_str())
}

fn digest(messages: &[Message<'_>], session_id: Option<&str>) -> String {
    let messages: Vec<_> = messages.iter().map(canonical).collect();
    let input = format!(r#"["promptkit/rendered/1",[{}],{}]"#, messages.join(","), json!(session_id));
    Sha256::digest(input).iter().fold(String::from("sha256:"), |text, byte| format!("{text}{byte:02x}"))
}

/// What a backend reads. Values, because the order of keys is fixed by the tests beside the Python package.
fn chat(message: &Message<'_>, markers: Markers) -> Value {
    let data_url =
        |media_type: &str, data: &[u8]| format!("data:{media_type};base64,{}", STANDARD.encode(data));
    let part = |part: &Part<'_>| match part {
        Part::Text(text) => json!({"type": "text", "text": text}),
        Part::Image { media_type, source } => {
            let url = match source {
                ImageSource::Data(data) => data_url(media_type, data),
                ImageSource::Url(url) => url.to_string(),
            };
            json!({"type": "image_url", "image_url": {"url": url}})
        }
        Part::File { media_type, data, filename } => {
            let mut file = json!({"file_data": data_url(media_type, data)});
            if let Some(filename) = filename {
                file["filename"] = json!(filename);
            }
            json!({"type": "file", "file": file})
        }
    };
    let mark = match (markers, message.marker) {
        (Markers::Omit, _) | (_, None) => None,
        (Markers::PromptCacheBreakpoint, Some(_)) => {
            Some(("prompt_cache_breakpoint", json!({"mode": "explicit"})))
        }
        (Markers::CacheControl, Some(Marker::Unbounded)) => {
            Some(("cache_control", json!({"type": "ephemeral"})))
        }
        (Markers::CacheControl, Some(marker)) => {
            Some(("cache_control", json!({"type": "ephemeral", "ttl": marker.ttl()})))
        }
    };
    let mut content = match &message.content {
        Content::Text(text) if mark.is_none() => json!(text),
        Content::Text(text) => json!([{"type": "text", "text": text}]),
        Content::Parts(parts) => parts.iter().map(part).collect(),
    };
    if let (Some((key, value)), Some(last)) =
        (mark, content.as_array_mut().and_then(|parts| parts.last_mut()))
    {
        last[key] = value;
    }
    json!({"role": message.role.as_str(), "content": content})
}

fn blocks(message: &Message<'_>, markers: Markers) -> Vec<Value> {
    let base64 = |media_type: &str, data: &[u8]| json!({"type": "base64", "media_type": media_type, "data": STANDARD.encode(data)});
    let document = |media_type: &str, data: &[u8]| match std::str::from_utf8(data) {
        Ok(text) if media_type.starts_with("text/") => {
            json!({"type": "text", "media_type": "text/plain", "data": text})
        }
        _ => base64(media_type, data),
    };
    let part = |part: &Part<'_>| match part {
        Part::Text(text) => json!({"type": "text", "text": text}),
        Part::Image { source: ImageSource::Url(url), .. } => {
            let data = url.strip_prefix("data:").and_then(|rest| rest.split_once(','));
            let packed = data.and_then(|(head, data)| Some((head.strip_suffix(";base64")?, data)));
            json!({"type": "image", "source": match packed {
                Some((media_type, data)) => json!({"type": "base64", "media_type": media_type, "data": data}),
                None => json!({"type": "url", "url": url}),
            }})
        }
        Part::Image { media_type, source: ImageSource::Data(data) } => {
            json!({"type": "image", "source": base64(media_type, data)})
        }
        Part::File { media_type, data, filename: None } => {
            json!({"type": "document", "source": document(media_type, data)})
        }
        Part::File { media_type, data, filename: Some(name) } => {
            json!({"type": "document", "source": document(media_type, data), "title": name})
        }
    };
    let mut blocks: Vec<_> = match &message.content {
        Content::Text(text) => vec![json!({"type": "text", "text": text})],
        Content::Parts(parts) => parts.iter().map(part).collect(),
    };
    if let (Markers::CacheControl, Some(marker), Some(last)) = (markers, message.marker, blocks.last_mut()) {
        last["cache_control"] = match marker {
            Marker::Unbounded => json!({"type": "ephemeral"}),
            _ => json!({"type": "ephemeral", "ttl": marker.ttl()}),
        };
    }
    blocks
}

fn anthropic(message: &Message<'_>, markers: Markers) -> Value {
    let content = match &message.content {
        Content::Text(text) if markers == Markers::Omit || message.marker.is_none() => json!(text),
        _ => blocks(message, markers).into(),
    };
    json!({"role": message.role.as_str(), "content": content})
}

fn assert_agrees(node: &Arc<Node>, model: &[Message<'static>]) {
    assert_eq!(node.messages().unwrap(), model);
    assert_eq!(node.message_count(), model.len());
    let turn = Turn::new(Some(Arc::clone(node)), fragment(&[]));
    assert_eq!(turn.digest(None).unwrap(), digest(model, None));
    let leads = |message: &&Message<'_>| matches!(message.role, Role::System | Role::Developer);
    let leading = model.iter().take_while(leads).count();
    let late = model[leading..].iter().position(|message| leads(&message)).map(|position| leading + position);
    assert_eq!(turn.late_system(), late);
    let has_media = |message: &Message<'_>| match &message.content {
        Content::Text(_) => false,
        Content::Parts(parts) => parts.iter().any(|part| !matches!(part, Part::Text(_))),
    };
    assert_eq!(turn.media(), model.iter().position(has_media));
    let said = |late: LateSystem, position: usize, message: &Message<'_>, mut sent: Value| {
        if late == LateSystem::AsUser && position >= leading && leads(&message) {
            sent["role"] = json!("user");
        }
        sent
    };
    for (late, markers) in LATE.into_iter().flat_map(|late| MARKERS.map(|markers| (late, markers))) {
        let sent =
            model.iter().enumerate().map(|(n, message)| said(late, n, message, chat(message, markers)));
        assert_eq!(decode(&turn, Form::Chat(markers, late)), sent.collect::<Value>());
    }
    for markers in [Markers::Omit, Markers::CacheControl] {
        for late in LATE {
            let messages = model.iter().enumerate().skip(leading);
            let sent = messages.map(|(n, message)| said(late, n, message, anthropic(message, markers)));
            assert_eq!(decode(&turn, Form::Anthropic(markers, late)), sent.collect::<Value>());
        }
        let system = model[..leading].iter().flat_map(|message| blocks(message, markers));
        assert_eq!(decode(&turn, Form::AnthropicSystem(markers)), system.collect::<Value>());
        let nothing = fragment(&[]);
        assert_eq!(turn.encode(Form::AnthropicSystem(markers), &nothing).is_empty(), leading == 0);
        let apart = turn.encode(Form::Anthropic(markers, LateSystem::Send), &nothing).is_empty();
        assert_eq!(apart, leading == model.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_branches_dropped_in_any_order_read_as_copied_lists_would(steps in vec(step(), 1..24)) {
        let mut alive: Vec<(Arc<Node>, Vec<Message<'static>>)> = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Drop(index) if !alive.is_empty() => {
                    alive.swap_remove(index.index(alive.len()));
                }
                Step::Drop(_) => {}
                Step::Capture { after, new, reply } => {
                    let parent = after.filter(|_| !alive.is_empty()).map(|index| &alive[index.index(alive.len())]);
                    let mut model = parent.map_or_else(Vec::new, |(_, messages)| messages.clone());
                    let turn = Turn::new(parent.map(|(node, _)| Arc::clone(node)), fragment(&new));
                    model.extend(new);
                    prop_assert_eq!(turn.messages().unwrap(), &model[..]);
                    prop_assert_eq!(turn.digest(Some("a\"b")).unwrap(), digest(&model, Some("a\"b")));
                    let node = turn.capture(&number.to_string(), &reply).unwrap();
                    prop_assert_eq!(node.run_id().unwrap(), number.to_string());
                    prop_assert_eq!(
                        node.parent().map(|node| node.run_id().unwrap()),
                        parent.map(|(node, _)| node.run_id().unwrap())
                    );
                    let content = Content::Text(reply.into());
                    model.push(Message { role: Role::Assistant, content, marker: None });
                    alive.push((Arc::new(node), model));
                }
            }
        }
        for (node, model) in &alive {
            assert_agrees(node, model);
        }
    }

    #[test]
    fn an_array_without_its_bracket_begins_that_of_every_continuation(
        old in vec(message(), 0..4), new in vec(message(), 0..4), extra in vec(message(), 0..3), reply: String,
    ) {
        let first = Turn::new(None, fragment(&old));
        let second = Turn::new(Some(Arc::new(first.capture("1", &reply).unwrap())), fragment(&new));
        for form in FORMS {
            let before = encode(&first, form, &fragment(&[]));
            let after = encode(&second, form, &fragment(&extra));
            prop_assert!(after.starts_with(&before[..before.len() - 1]));
        }
    }

    #[test]
    fn the_wire_does_not_tell_new_messages_from_history_or_extra(
        old in vec(message(), 0..3), new in vec(message(), 0..3), extra in vec(message(), 0..3), reply: String,
    ) {
        let root = Arc::new(Turn::new(None, fragment(&old)).capture("1", &reply).unwrap());
        let split = Turn::new(Some(Arc::clone(&root)), fragment(&new));
        let mut all = root.messages().unwrap();
        all.extend(new.clone());
        all.extend(extra.clone());
        let whole = Turn::new(None, fragment(&all));
        for form in FORMS {
            let split = encode(&split, form, &fragment(&extra));
            prop_assert_eq!(split, encode(&whole, form, &fragment(&[])));
        }
    }
}
