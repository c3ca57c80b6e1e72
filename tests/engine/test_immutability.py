"""Whoever is given something may try to change it, and changes nothing: not the catalog, a sibling, or the history.

What clients, observers, callbacks and readers receive is attacked by every ordinary means: attributes set and deleted,
items set and deleted, every method that changes a container, the ``__dict__`` of what has one. The means that exist
to go around a class (``object.__setattr__``, ``dict.__setitem__(value, ...)``, ``msgspec.structs.force_setattr``, a new
``__class__``, a second ``__init__``) are not ordinary, and nothing in Python withstands them.
"""

from __future__ import annotations

import contextlib
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from promptkit import (
    Backend,
    CacheControl,
    Catalog,
    ConversationTurn,
    CoordinateRequest,
    Engine,
    FilePart,
    GenerationCall,
    GenerationReply,
    ImagePart,
    Message,
    MessageTemplate,
    OutputContract,
    Profile,
    PromptDefinition,
    ReportedUsage,
    RetryPolicy,
    RunRequest,
    Secret,
    TextPart,
)
from promptkit.errors import ConnectError

if TYPE_CHECKING:
    from os import PathLike

    from promptkit import Exchange

pytestmark = pytest.mark.anyio

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer", "enum": [1, 2]}}, "required": ["a"]}
CATALOG = Catalog(
    backends=[
        Backend(
            id="b",
            kind="chat_completions",
            base_url="http://127.0.0.1:1/v1",
            headers={"x-team": "ours"},
            retry=RetryPolicy(max_retries=3, base_delay=0.0, max_delay=0.0),
        )
    ],
    profiles=[
        Profile(id="f", backend="b", model="m", stop=("END",), extra={"metadata": {"list": [{"deep": "value"}]}})
    ],
    prompts=[
        PromptDefinition(
            id="p",
            messages=(
                MessageTemplate(role="system", content="Terse.", cache_control=CacheControl(ttl="1h")),
                MessageTemplate(role="user", content="{{ v.list[0] }} {{ inputs.doc }}"),
            ),
            variables=("v",),
            inputs=("doc",),
            profile="f",
            output=OutputContract(kind="json_schema", schema="s", max_repairs=1),
        )
    ],
    schemas={"s": SCHEMA},
)
CHANGES: dict[str, tuple[tuple[Any, ...], ...]] = {
    "append": (("CHANGED",),),
    "extend": ((["CHANGED"],),),
    "insert": ((0, "CHANGED"),),
    "remove": (("CHANGED",),),
    "pop": ((), (0,), ("a",)),
    "popitem": ((),),
    "clear": ((),),
    "sort": ((),),
    "reverse": ((),),
    "add": (("CHANGED",),),
    "update": (({"CHANGED": "CHANGED"},),),
    "setdefault": (("CHANGED", "CHANGED"),),
    "__setitem__": ((0, "CHANGED"), ("CHANGED", "CHANGED")),
    "__delitem__": ((0,),),
    "__iadd__": ((["CHANGED"],),),
    "__ior__": (({"CHANGED": "CHANGED"},),),
    "__delattr__": (),
    "__setattr__": (),
}


class Vandal:
    """Tries to change all that it is given, inside and out. ``reached`` counts the kinds of values that it got at."""

    def __init__(self) -> None:
        self.reached: set[str] = set()

    def attack(self, value: object) -> None:
        """Change what can be changed."""
        self._attack(value, set(), [])

    def _attack(self, value: object, seen: set[int], kept: list[object]) -> None:
        if isinstance(value, type) or callable(value) or id(value) in seen:
            return
        seen.add(id(value))
        kept.append(value)  # or another object would get its id
        self.reached.add(type(value).__name__)
        ours = type(value).__module__.startswith("promptkit")  # what others made leads to modules, and to everything
        names = [name for name in dir(value) if not name.startswith("__" if ours else "_")]
        inner = [getattr(value, name, None) for name in names] if ours else []
        if isinstance(value, dict):
            inner += [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple):
            inner += value
        for item in inner:
            if not isinstance(item, str | int | float | None):
                self._attack(item, seen, kept)
        for name in names:
            with contextlib.suppress(Exception):
                setattr(value, name, "CHANGED")
            with contextlib.suppress(Exception):
                delattr(value, name)
        for method, calls in CHANGES.items():
            for arguments in calls:
                with contextlib.suppress(Exception):
                    getattr(value, method)(*arguments)
        if isinstance(value, dict):
            for key in list(value):
                with contextlib.suppress(Exception):
                    value[key] = "CHANGED"
                with contextlib.suppress(Exception):
                    del value[key]
        with contextlib.suppress(Exception):
            vars(value).clear()


class Polite(Vandal):
    """Changes nothing."""

    def attack(self, value: object) -> None:
        """Leave it."""


class Client:
    """Fails once, then answers what breaks the contract, then what keeps it; and so again for every run."""

    def __init__(self, vandal: Vandal) -> None:
        self._vandal = vandal
        self.sent: list[bytes] = []

    async def generate(self, call: GenerationCall) -> GenerationReply:
        sent = call.encoded_messages("chat_completions").messages
        settings = msgspec.json.encode([call.backend, call.profile, call.output, call.session_id])
        shown = msgspec.json.encode(call.messages)
        self.sent.append(sent + settings + shown)
        assert call.credential is not None
        assert call.credential.reveal() == "planted"
        purpose = call.purpose
        failing = call.attempt == 1
        self._vandal.attack(call)
        if failing:
            msg = "refused"
            raise ConnectError(msg, transient=True)
        return GenerationReply(
            content="no JSON" if purpose == "generate" else '{"a": 1}', usage=ReportedUsage(input_tokens=1)
        )


class Reader:
    def __init__(self, vandal: Vandal) -> None:
        self._vandal = vandal

    async def read(self, path: PathLike[str], limit: int) -> bytes:
        self._vandal.attack(path)
        return f"content of {limit}".encode()


async def hold(vandal: Vandal) -> dict[str, Any]:
    """Hold a conversation with branches, and give everything that can be seen of it."""
    client = Client(vandal)
    engine = Engine(CATALOG, client=client, input_reader=Reader(vandal))
    secret = Secret("planted")
    appended = (
        Message(
            role="user",
            content=(
                TextPart(text="see"),
                ImagePart(media_type="image/png", data=b"png"),
                FilePart(media_type="application/pdf", data=b"pdf", filename="a.pdf"),
            ),
            cache_control=CacheControl(),
        ),
    )

    def request(**fields: Any) -> RunRequest:
        return RunRequest(
            **{
                "prompt_id": "p",
                "variables": {"v": {"list": ["x", {"y": 1}]}},
                "inputs": {"doc": PurePosixPath("a/b.txt")},
                "credential": secret,
                "observer": vandal.attack,
                "appended_messages": appended,
                "capture_exchange": True,
                **fields,
            }
        )

    shared = request()
    root = (await engine.run(shared)).exchange
    sibling = (await engine.run(request(continue_from=root))).exchange
    seen: list[Exchange] = []

    def choose(turn: ConversationTurn) -> RunRequest | None:
        seen.append(turn.exchange)
        remaining = turn.remaining_turns
        if turn.result is not None:
            vandal.attack(turn.result.value)
            vandal.attack(turn.result.exchange)
        vandal.attack(turn)
        return shared if remaining else None

    await engine.coordinate(CoordinateRequest(start=root, additional_turns=2, next=choose, observer=vandal.attack))
    execution = await engine.prepare_execution(shared)
    vandal.attack(execution.details)
    last = await engine.run_prepared(execution)
    prepared = await engine.prepare(shared)
    return {
        "catalog": msgspec.json.encode([CATALOG.backends, CATALOG.profiles, CATALOG.prompts, CATALOG.schemas]),
        "sent": client.sent,
        "histories": [exchange.details().messages for exchange in (root, sibling, *seen, last.exchange)],
        "prepared": prepared,
        "details": execution.details,
        "values": (last.value, last.raw_output, last.usage),
    }


async def test_nobody_can_change_what_he_is_given() -> None:
    before = await hold(Polite())
    vandal = Vandal()
    after = await hold(vandal)
    assert after == before
    assert len(before["sent"]) == 3 * 5
    assert b"CHANGED" not in repr(after).encode()
    assert {
        *("GenerationCall", "Backend", "Profile", "OutputContract", "RetryPolicy", "Secret", "FrozenDict", "tuple"),
        *("Message", "CacheControl", "TextPart", "ImagePart", "FilePart", "Turn"),
        *("RunStarted", "AttemptFinished", "RetryDelayed", "RunFinished", "TokenUsage", "TokenCount"),
        *("ConversationTurn", "RunResult", "Exchange", "Validation", "Timing", "PurePosixPath", "dict"),
        *("PreparedRun", "Setting"),
    } <= vandal.reached


async def test_the_handles_neither_gain_nor_lose_an_attribute() -> None:
    engine = Engine(CATALOG, client=Client(Polite()), input_reader=Reader(Polite()))
    request = RunRequest(
        prompt_id="p",
        variables={"v": {"list": [1]}},
        inputs={"doc": "text"},
        credential=Secret("planted"),
        capture_exchange=True,
    )
    exchange = (await engine.run(request)).exchange
    for handle, private in ((request.credential, "_value"), (exchange, "_node"), (CATALOG, "_definitions")):
        for name in (private, "other"):
            with pytest.raises(AttributeError, match="does not change"):
                setattr(handle, name, 1)
            with pytest.raises(AttributeError, match="does not change"):
                delattr(handle, name)
