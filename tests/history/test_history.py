"""What goes into the tree comes out of it, in every form, and nothing else gets in."""

import base64
import contextlib
import copy
import hashlib
import json
import pickle
from itertools import dropwhile, takewhile
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from promptkit._history import Node, Turn

MARKERS: tuple[Literal["omit", "cache_control", "prompt_cache_breakpoint"], ...] = (
    "omit",
    "cache_control",
    "prompt_cache_breakpoint",
)
ANTHROPIC_MARKERS: tuple[Literal["cache_control", "omit"], ...] = ("cache_control", "omit")


class _Ephemeral(msgspec.Struct, tag_field="type", tag="ephemeral"):
    ttl: str | None


class _Text(msgspec.Struct, tag_field="type", tag="text"):
    text: str


class _Image(msgspec.Struct, tag_field="type", tag="image", omit_defaults=True):
    media_type: str
    data: bytes | None = None
    url: str | None = None


class _File(msgspec.Struct, tag_field="type", tag="file", omit_defaults=True):
    media_type: str
    data: bytes
    filename: str | None = None


class _Message(msgspec.Struct, omit_defaults=True):
    role: str
    content: str | list[_Text | _Image | _File]
    cache_control: _Ephemeral | None = None


_STRUCTS = {"text": _Text, "image": _Image, "file": _File}

parts = st.one_of(
    st.tuples(st.just("text"), st.text()),
    st.tuples(st.just("image"), st.text(), st.binary(), st.none()),
    st.tuples(
        st.just("image"), st.text(), st.none(), st.text() | st.from_regex(r"data:[a-z/\"]*(;base64)?,?[A-Z=\\]*")
    ),
    st.tuples(st.just("file"), st.text(), st.binary(), st.none() | st.text()),
    st.tuples(st.just("file"), st.just("text/markdown"), st.text().map(str.encode), st.none() | st.text()),
)
messages = st.tuples(
    st.sampled_from(["system", "developer", "user", "assistant"]),
    st.text() | st.lists(parts, max_size=3).map(tuple),
    st.sampled_from([None, None, None, "", "5m", "1h"]),
)
conversations = st.lists(messages, max_size=4)


def as_struct(message: Any) -> _Message:
    role, content, marker = message
    if not isinstance(content, str):
        content = [_STRUCTS[kind](*fields) for kind, *fields in content]
    return _Message(role, content, None if marker is None else _Ephemeral(marker or None))


def recomputed_digest(all_messages: list[Any], session_id: str | None) -> str:
    rendered = ["promptkit/rendered/1", [as_struct(message) for message in all_messages], session_id]
    return "sha256:" + hashlib.sha256(msgspec.json.encode(rendered)).hexdigest()


def as_chat(message: Any, markers: str) -> dict[str, Any]:
    role, content, marker = message
    mark: dict[str, Any] = {}
    if marker is not None and markers == "cache_control":
        mark = {"cache_control": {"type": "ephemeral", **({"ttl": marker} if marker else {})}}
    elif marker is not None and markers == "prompt_cache_breakpoint":
        mark = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    if isinstance(content, str):
        return {"role": role, "content": [{"type": "text", "text": content} | mark] if mark else content}
    wire = [as_chat_part(part) for part in content]
    if wire:
        wire[-1] |= mark
    return {"role": role, "content": wire}


def as_chat_part(part: Any) -> dict[str, Any]:
    match part:
        case ("text", text):
            return {"type": "text", "text": text}
        case ("image", media_type, data, url):
            return {"type": "image_url", "image_url": {"url": url if data is None else data_url(media_type, data)}}
        case (_, media_type, data, filename):
            name = {} if filename is None else {"filename": filename}
            return {"type": "file", "file": name | {"file_data": data_url(media_type, data)}}
    raise AssertionError(part)


def data_url(media_type: str, data: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def as_blocks(message: Any, markers: str) -> list[dict[str, Any]]:
    _, content, marker = message
    wire = [as_block(part) for part in ([("text", content)] if isinstance(content, str) else content)]
    if wire and marker is not None and markers == "cache_control":
        wire[-1]["cache_control"] = {"type": "ephemeral", **({"ttl": marker} if marker else {})}
    return wire


def as_block(part: Any) -> dict[str, Any]:
    match part:
        case ("text", text):
            return {"type": "text", "text": text}
        case ("image", media_type, data, url):
            return {"type": "image", "source": url_source(url) if data is None else source(media_type, data)}
        case (_, media_type, data, filename):
            title = {} if filename is None else {"title": filename}
            return {"type": "document", "source": document_source(media_type, data)} | title
    raise AssertionError(part)


def url_source(url: str) -> dict[str, Any]:
    head, comma, data = url.partition(",")
    if head.startswith("data:") and head.endswith(";base64") and comma:
        media_type = head.removeprefix("data:").removesuffix(";base64")
        return {"type": "base64", "media_type": media_type, "data": data}
    return {"type": "url", "url": url}


def document_source(media_type: str, data: bytes) -> dict[str, Any]:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return source(media_type, data)
    plain = {"type": "text", "media_type": "text/plain", "data": text}
    return plain if media_type.startswith("text/") else source(media_type, data)


def source(media_type: str, data: bytes) -> dict[str, Any]:
    return {"type": "base64", "media_type": media_type, "data": base64.b64encode(data).decode()}


def is_system(message: Any) -> bool:
    return message[0] in {"system", "developer"}


def as_anthropic(model: list[Any], markers: str) -> tuple[bytes, bytes | None]:
    later = list(dropwhile(is_system, model))
    system = [block for message in model[: len(model) - len(later)] for block in as_blocks(message, markers)]
    wire: list[Any] = []
    for message in later:
        role, content, marker = message
        plain = isinstance(content, str) and (marker is None or markers == "omit")
        wire.append({"role": role, "content": content if plain else as_blocks(message, markers)})
    return compact(wire), compact(system) if len(later) < len(model) else None


def compact(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def assert_agrees(turn: Turn, model: list[Any], session_id: str | None = None) -> None:
    assert turn.messages() == model
    assert turn.message_count == len(model)
    assert turn.digest(session_id) == recomputed_digest(model, session_id)
    leading = sum(1 for _ in takewhile(is_system, model))
    late = next((index for index, message in enumerate(model) if index >= leading and is_system(message)), None)
    assert turn.late_system == late
    with_media = (
        n
        for n, (_, content, _) in enumerate(model)
        if not isinstance(content, str) and any(part[0] != "text" for part in content)
    )
    assert turn.media == next(with_media, None)
    as_user = [
        ("user", *rest) if n >= leading and is_system((role,)) else (role, *rest)
        for n, (role, *rest) in enumerate(model)
    ]
    how: Any
    for sent, how in ((model, "send"), (as_user, "as_user")):
        for markers in MARKERS:
            assert turn.encode_chat(markers, (), how) == compact([as_chat(message, markers) for message in sent])
        for markers in ANTHROPIC_MARKERS:
            assert turn.encode_anthropic(markers, (), how) == as_anthropic(sent, markers)


@given(conversations, conversations, st.text(), st.none() | st.text())
@settings(deadline=None)
def test_messages_come_back_equal_and_every_form_is_that_of_msgspec_and_json(
    old: list[Any], new: list[Any], reply: str, session_id: str | None
) -> None:
    first = Turn(None, old)
    assert_agrees(first, old, session_id)
    node = first.capture("run", reply)
    history = [*old, ("assistant", reply, None)]
    assert node.messages() == history
    assert node.message_count == len(history)
    assert_agrees(Turn(node, new), history + new, session_id)


LATE = ("send", "as_user")


@given(
    st.tuples(conversations, conversations, conversations), st.text(), st.sampled_from(MARKERS), st.sampled_from(LATE)
)
@settings(deadline=None)
def test_a_history_is_a_byte_prefix_of_every_continuation_in_every_marker_mode(
    told: tuple[list[Any], list[Any], list[Any]], reply: str, markers: Any, late: Any
) -> None:
    old, new, extra = told
    first = Turn(None, old)
    second = Turn(first.capture("1", reply), new)
    before = second.encode_chat(markers, (), late)
    assert before.startswith(first.encode_chat(markers, (), late)[:-1])
    whole = second.encode_chat(markers, extra, late)
    assert whole.startswith(before[:-1])
    assert whole == Turn(None, second.messages() + extra).encode_chat(markers, late_system=late)


@given(
    st.tuples(conversations, conversations, conversations),
    st.text(),
    st.sampled_from(ANTHROPIC_MARKERS),
    st.sampled_from(LATE),
)
@settings(deadline=None)
def test_both_anthropic_arrays_are_byte_prefixes_of_those_of_every_continuation(
    told: tuple[list[Any], list[Any], list[Any]], reply: str, markers: Any, late: Any
) -> None:
    old, new, extra = told
    first = Turn(None, old)
    second = Turn(first.capture("1", reply), new)
    continued = second.encode_anthropic(markers, extra, late)
    assert continued == Turn(None, second.messages() + extra).encode_anthropic(markers, late_system=late)
    for before in (first, Turn(first.capture("1", reply), []), second):
        messages, system = before.encode_anthropic(markers, (), late)
        assert continued[0].startswith(messages[:-1])
        assert (continued[1] or b"").startswith((system or b"")[:-1])


def test_an_anthropic_call_carries_leading_instructions_apart_and_later_ones_in_place() -> None:
    turn = Turn(
        None,
        [
            ("system", "Be brief.", None),
            ("developer", [("text", "One."), ("text", "Two.")], "5m"),
            ("user", "Look.", ""),
            ("system", "Now be long.", None),
            ("user", [("image", "image/png", b"png", None), ("file", "application/pdf", b"pdf", "a.pdf")], "1h"),
        ],
    )
    messages, system = turn.encode_anthropic("cache_control")
    assert system is not None
    assert json.loads(system) == [
        {"type": "text", "text": "Be brief."},
        {"type": "text", "text": "One."},
        {"type": "text", "text": "Two.", "cache_control": {"type": "ephemeral", "ttl": "5m"}},
    ]
    assert json.loads(messages) == [
        {
            "role": "user",
            "content": [{"type": "text", "text": "Look.", "cache_control": {"type": "ephemeral"}}],
        },
        {"role": "system", "content": "Now be long."},
        {
            "role": "user",
            "content": [
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "cG5n"}},
                {
                    "type": "document",
                    "source": {"type": "base64", "media_type": "application/pdf", "data": "cGRm"},
                    "title": "a.pdf",
                    "cache_control": {"type": "ephemeral", "ttl": "1h"},
                },
            ],
        },
    ]


@pytest.mark.parametrize(
    "text",
    [
        *(chr(point) for point in range(0x100)),
        "\u2028\u2029\ufeff\ufffe\uffff\ufdd0",
        "\U0001f600\U0010ffff",
        "".join(map(chr, range(0x100))),
        '\\u0000"\\',
    ],
)
def test_every_kind_of_character_is_escaped_as_msgspec_and_json_escape_it(text: str) -> None:
    wire = Turn(None, [("user", text, None)]).encode_chat("omit")
    assert wire == msgspec.json.encode([_Message("user", text)])
    assert wire == compact([{"role": "user", "content": text}])
    assert Turn(None, [("user", text, None)]).messages() == [("user", text, None)]


def test_a_turn_is_captured_any_number_of_times_and_knows_its_parent() -> None:
    turn = Turn(None, [("user", "q", None)])
    left, right = turn.capture("left", "l"), turn.capture("right", "r")
    child = Turn(left, []).capture("child", "c")
    assert (left.run_id, left.parent_run_id, child.run_id, child.parent_run_id) == ("left", None, "child", "left")
    assert right.messages() == [("user", "q", None), ("assistant", "r", None)]
    assert child.messages() == [*left.messages(), ("assistant", "c", None)]


def test_changing_the_callers_lists_afterwards_changes_nothing() -> None:
    content = [("text", "a")]
    given_messages: list[Any] = [("user", content, None)]
    turn = Turn(None, given_messages)
    content.append(("text", "b"))
    given_messages.clear()
    assert turn.messages() == [("user", (("text", "a"),), None)]


def test_neither_class_is_copied_pickled_subclassed_or_changed() -> None:
    turn = Turn(None, [])
    for value in (turn, turn.capture("run", "")):
        for refused in (copy.copy, pickle.dumps):
            with pytest.raises(TypeError):
                refused(value)
        with pytest.raises(TypeError):
            type("Sub", (type(value),), {})
        with pytest.raises(AttributeError):
            value.anything = 1  # type: ignore[union-attr]


SURROGATE = "a\ud800"


@pytest.mark.parametrize(
    ("message", "error", "says"),
    [
        (3, TypeError, "messages[1] must be a tuple (role, content, marker), not int"),
        (["user", "", None], TypeError, "messages[1] must be a tuple (role, content, marker), not list"),
        (("user", ""), ValueError, "messages[1] must be a tuple (role, content, marker)"),
        (("tool", "", None), ValueError, 'messages[1]: unknown role "tool"'),
        ((b"user", "", None), TypeError, "messages[1] role must be a str, not bytes"),
        (("user", None, None), TypeError, "messages[1] content must be a str or a sequence of parts, not NoneType"),
        (("user", "", "2h"), ValueError, 'messages[1]: unknown cache marker "2h"'),
        (("user", "", 5), TypeError, "messages[1] marker must be a str, not int"),
        (("user", SURROGATE, None), ValueError, "messages[1] content contains a lone surrogate"),
        (("user", [("text", SURROGATE)], None), ValueError, "messages[1] part 0 text contains a lone surrogate"),
        (("user", ["text"], None), TypeError, "messages[1] part 0 must be"),
        (("user", [()], None), ValueError, "messages[1] part 0 must be"),
        (("user", [("text", "ok"), ("audio", "x")], None), ValueError, "messages[1] part 1 must be"),
        (("user", [("image", "a/b", None, None)], None), ValueError, "either data or url"),
        (("user", [("image", "a/b", b"", "")], None), ValueError, "either data or url"),
        (("user", [("file", "a/b", "text", None)], None), TypeError, "messages[1] part 0 data must be bytes, not str"),
        (("user", [("file", "a/b", b"", 1)], None), TypeError, "messages[1] part 0 filename must be a str, not int"),
    ],
)
def test_a_wrong_message_is_refused_with_its_place(message: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error) as raised:
        Turn(None, [("user", "fine", None), message])
    assert type(raised.value) is error
    assert says in str(raised.value)


def test_a_refusal_repeats_only_the_start_of_what_it_refuses() -> None:
    swapped: Any = ("a whole prompt " * 1_000, "user", None)
    with pytest.raises(ValueError, match="unknown role") as raised:
        Turn(None, [swapped])
    assert len(str(raised.value)) < 200


def test_wrong_arguments_are_refused_by_name() -> None:
    turn: Any = Turn(None, [])
    with pytest.raises(ValueError, match=r"^run_id contains a lone surrogate"):
        turn.capture(SURROGATE, "")
    with pytest.raises(ValueError, match=r"^reply contains a lone surrogate"):
        turn.capture("", SURROGATE)
    with pytest.raises(ValueError, match=r"^session_id contains a lone surrogate"):
        turn.digest(SURROGATE)
    with pytest.raises(TypeError, match=r"^session_id must be a str, not int"):
        turn.digest(1)
    with pytest.raises(ValueError, match=r'^markers: unknown markers "none"'):
        turn.encode_chat("none")
    with pytest.raises(TypeError, match=r"^extra\[0\] must be a tuple"):
        turn.encode_chat("omit", [1])
    for encode in (turn.encode_chat, turn.encode_anthropic):
        with pytest.raises(TypeError, match=r"^extra must be a sequence of messages, not NoneType"):
            encode("omit", None)
        with pytest.raises(TypeError, match=r"^markers must be a str, not NoneType"):
            encode(None)
        with pytest.raises(TypeError, match=r"^late_system must be a str, not NoneType"):
            encode("omit", (), None)
        with pytest.raises(ValueError, match=r'^late_system: unknown treatment "refuse", expected "send" or "as_user"'):
            encode("omit", late_system="refuse")
    with pytest.raises(ValueError, match=r'^markers must be "cache_control" or "omit" in this form'):
        turn.encode_anthropic("prompt_cache_breakpoint")
    with pytest.raises(TypeError, match=r"^messages must be a sequence of messages, not set"):
        Turn(None, set())  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Turn(turn, [])
    with pytest.raises(TypeError):
        Node()


anything = st.recursive(
    st.none()
    | st.integers()
    | st.text(st.characters())
    | st.binary()
    | st.sampled_from(["user", "text", "image", "5m"]),
    lambda inner: st.lists(inner, max_size=4) | st.lists(inner, max_size=4).map(tuple),
)


@given(anything)
@settings(deadline=None)
def test_whatever_is_given_is_stored_or_refused_as_an_ordinary_exception(value: Any) -> None:
    attempts: list[Any] = [value, [("user", value, None)], [("user", [value], value)]]
    for attempt in attempts:
        try:
            turn = Turn(None, attempt)
        except (TypeError, ValueError):
            continue
        assert turn.message_count == len(attempt)


@given(anything, anything)
@settings(deadline=None)
def test_every_method_answers_whatever_it_is_given_or_refuses_with_an_ordinary_exception(one: Any, two: Any) -> None:
    turn: Any = Turn(None, [("user", "q", None)])
    calls = (
        lambda: Turn(one, two),
        lambda: turn.encode_chat(one, two),
        lambda: turn.encode_chat("omit", [], one),
        lambda: turn.encode_chat("omit", one),
        lambda: turn.encode_anthropic(one, two),
        lambda: turn.encode_anthropic("cache_control", one),
        lambda: turn.digest(one),
        lambda: turn.capture(one, two),
    )
    for call in calls:
        # Any other exception, pyo3's for a panic among them, is none of these two and fails the test.
        with contextlib.suppress(TypeError, ValueError):
            call()
    assert turn.messages() == [("user", "q", None)]


@given(st.text("0123456789abcdefA\0", max_size=40) | st.uuids().map(lambda value: value.hex) | st.text())
@settings(deadline=None)
def test_any_run_id_comes_back_however_it_is_kept(run_id: str) -> None:
    for new in ([("user", "q", None)], [("user", [("text", "q")], "5m"), ("user", "r", None)]):
        node = Turn(None, new).capture(run_id, "a")  # type: ignore[arg-type]
        assert node.run_id == run_id
        assert Turn(node, []).capture("child", "").parent_run_id == run_id


class TreeMachine(RuleBasedStateMachine):
    """Nodes that share their ancestors behave as lists that are copied at every turn."""

    nodes = Bundle("nodes")

    def __init__(self) -> None:
        super().__init__()
        self.alive: dict[str, tuple[Node, list[Any], str | None]] = {}
        self.runs = 0

    def keep(self, turn: Turn, model: list[Any], parent: str | None, reply: str) -> str:
        self.runs += 1
        run_id = f"run {self.runs}"
        self.alive[run_id] = turn.capture(run_id, reply), [*model, ("assistant", reply, None)], parent
        return run_id

    @rule(target=nodes, new=conversations, reply=st.text())
    def begin(self, new: list[Any], reply: str) -> str:
        return self.keep(Turn(None, new), new, None, reply)

    @rule(target=nodes, source=nodes, new=conversations, reply=st.text())
    def capture(self, source: str, new: list[Any], reply: str) -> str:
        node, history, _ = self.alive[source]
        model = history + new
        turn = Turn(node, new)
        assert_agrees(turn, model)
        return self.keep(turn, model, source, reply)

    @rule(source=consumes(nodes))
    def drop(self, source: str) -> None:
        del self.alive[source]

    @invariant()
    def every_handle_reads_as_its_list(self) -> None:
        for run_id, (node, model, parent) in self.alive.items():
            assert (node.run_id, node.parent_run_id, node.message_count) == (run_id, parent, len(model))
            assert node.messages() == model


TestTree = TreeMachine.TestCase
TestTree.settings = settings(deadline=None, max_examples=30, stateful_step_count=20)
