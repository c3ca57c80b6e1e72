"""Inspection: what is configured and how busy it is, encodable, and never a secret."""

from __future__ import annotations

import asyncio
import pickle
import threading
from typing import TYPE_CHECKING, Any, Literal

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec
import pytest

from promptkit import (
    Backend,
    BackendDetails,
    CacheControl,
    Catalog,
    DisconnectedError,
    Engine,
    GenerationCall,
    InvalidConfigError,
    MessageTemplate,
    OutputContract,
    Profile,
    ProfileDetails,
    PromptDefinition,
    PromptDetails,
    RetryPolicy,
    RunRequest,
    Secret,
    Setting,
    UnknownBackendError,
    UnknownProfileError,
    UnknownPromptError,
    load_catalog,
)
from promptkit.testing import EventRecorder, ScriptedClient
from servers.catalogs import small_catalog, team_catalog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.anyio

NUMBER: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
MORE = RunRequest(prompt_id="more")


def catalog_of_files(folder: Path) -> Catalog:
    (folder / "prompts" / "team").mkdir(parents=True)
    (folder / "schemas").mkdir()
    (folder / "promptkit.toml").write_text(
        """
        [backends.server]
        kind = "chat_completions"
        base_url = "http://127.0.0.1:1/v1"
        credential_env = "PROMPTKIT_TEST_KEY"
        [profiles.warm]
        backend = "server"
        model = "m"
        """
    )
    (folder / "prompts" / "team" / "ask.toml").write_text(
        """
        description = "Asks."
        variables = ["q"]
        inputs = ["doc"]
        profile = "warm"
        session = "s-{{ q }}"
        output = { kind = "json_schema", schema = "number", max_repairs = 2 }
        [[messages]]
        role = "system"
        content_file = "system.txt"
        cache_control = { type = "ephemeral", ttl = "1h" }
        [[messages]]
        role = "user"
        content = "{{ q }} {{ inputs.doc }}"
        """
    )
    (folder / "prompts" / "team" / "system.txt").write_text("Be terse.")
    (folder / "schemas" / "number.json").write_bytes(msgspec.json.encode(NUMBER))
    return load_catalog(folder)


# ---------------------------------------------------------------- prompts


def test_a_prompt_is_shown_as_defined_with_its_schema_its_hash_and_its_file(tmp_path: Path) -> None:
    catalog = catalog_of_files(tmp_path)
    details = Engine(catalog).inspect_prompt("team/ask")
    assert details == PromptDetails(
        id="team/ask",
        description="Asks.",
        messages=(
            MessageTemplate(role="system", content="Be terse.", cache_control=CacheControl(ttl="1h")),
            MessageTemplate(role="user", content="{{ q }} {{ inputs.doc }}"),
        ),
        variables=("q",),
        inputs=("doc",),
        profile="warm",
        session="s-{{ q }}",
        output=OutputContract(kind="json_schema", schema=NUMBER, name="number", max_repairs=2),
        fragments={},
        definition_hash=details.definition_hash,
        source="prompts/team/ask.toml",
    )
    assert details.messages is catalog.prompts["team/ask"].messages


def test_every_field_of_a_prompt_is_shown() -> None:
    shown = set(PromptDetails.__struct_fields__)
    assert shown == {*PromptDefinition.__struct_fields__, "fragments", "definition_hash", "source"}


async def test_the_hash_shown_is_that_of_every_preparation_and_run(tmp_path: Path) -> None:
    engine = Engine(catalog_of_files(tmp_path), client=ScriptedClient('{"a": 1}'))
    request = RunRequest(
        prompt_id="team/ask", variables={"q": "x"}, inputs={"doc": "text"}, credential=Secret("sk-MARK")
    )
    shown = engine.inspect_prompt("team/ask").definition_hash
    assert shown == (await engine.prepare(request)).definition_hash == (await engine.run(request)).definition_hash


def test_where_a_prompt_is_stored_changes_neither_its_hash_nor_anything_else_that_is_shown(tmp_path: Path) -> None:
    read = catalog_of_files(tmp_path)
    made = Catalog(
        prompts=read.prompts.values(),
        profiles=read.profiles.values(),
        backends=read.backends.values(),
        schemas=read.schemas,
    )
    from_file, from_memory = (Engine(catalog).inspect_prompt("team/ask") for catalog in (read, made))
    assert from_file.source == "prompts/team/ask.toml"
    assert from_memory == msgspec.structs.replace(from_file, source=None)


def test_combined_and_pickled_catalogs_keep_where_their_prompts_come_from(tmp_path: Path) -> None:
    read = catalog_of_files(tmp_path)
    for catalog in (read | team_like(), team_like() | read, pickle.loads(pickle.dumps(read))):  # noqa: S301
        assert Engine(catalog).inspect_prompt("team/ask").source == "prompts/team/ask.toml"
    assert Engine(read | team_like()).inspect_prompt("made").source is None


def team_like() -> Catalog:
    return Catalog(prompts=[PromptDefinition(id="made", messages=(MessageTemplate(role="user", content="hi"),))])


# ---------------------------------------------------------------- profiles


def test_a_profile_is_shown_with_the_origin_of_each_setting() -> None:
    details = Engine(small_catalog(max_waiting=3)).inspect_profile("warm")
    assert (details.id, details.backend, details.model) == ("warm", "server", "warm-model")
    assert details.settings["temperature"] == Setting(value=0.7, origin="profile")
    assert details.settings["top_p"] == Setting(value=None, origin="default")
    assert details.settings["max_waiting"] == Setting(value=3, origin="backend")
    assert details.settings["max_concurrency"] == Setting(value=8, origin="default")
    assert {setting.origin for setting in details.settings.values()} == {"profile", "backend", "default"}


def test_every_setting_of_a_profile_and_of_its_backend_is_shown() -> None:
    settings = Engine(small_catalog()).inspect_profile("warm").settings
    assert {*Profile.__struct_fields__, *Backend.__struct_fields__} - {"id"} <= set(settings)


async def test_the_settings_of_a_profile_are_those_of_its_runs() -> None:
    engine = Engine(small_catalog())
    prepared = (await engine.prepare(MORE)).settings
    shown = engine.inspect_profile("cold").settings
    assert {name: prepared[name] for name in shown} == shown


# ---------------------------------------------------------------- backends


def test_a_backend_is_shown_with_every_field_of_its_configuration() -> None:
    backend = Backend(
        id="far",
        kind="chat_completions",
        base_url="https://far/v1",
        credential_env="PROMPTKIT_TEST_KEY",
        max_waiting=3,
        retry=RetryPolicy(max_retries=9),
        headers={"x-team": "research"},
        session_parameter="user",
    )
    details = Engine(Catalog(backends=[backend])).inspect_backend("far")
    assert msgspec.structs.asdict(details) == {
        **msgspec.structs.asdict(backend),
        "max_concurrency": 8,
        "late_system": "send",
        "running": 0,
        "waiting": 0,
    }


def test_the_details_of_a_backend_have_the_fields_and_types_of_a_backend() -> None:
    configured = {field.name: field.type for field in msgspec.structs.fields(Backend)}
    shown = {field.name: field.type for field in msgspec.structs.fields(BackendDetails)}
    late_system = Literal["send", "refuse", "as_user"]
    assert shown == {**configured, "max_concurrency": int, "late_system": late_system, "running": int, "waiting": int}


@pytest.mark.parametrize(
    ("function", "error", "wrong", "right"),
    [
        ("inspect_prompt", UnknownPromptError, "folow", "follow"),
        ("inspect_profile", UnknownProfileError, "warn", "warm"),
        ("inspect_backend", UnknownBackendError, "sever", "server"),
    ],
)
def test_an_unknown_id_is_refused_with_the_nearest_one(
    function: str, error: type[Exception], wrong: str, right: str
) -> None:
    kind = function.removeprefix("inspect_")
    with pytest.raises(error, match=rf"^there is no {kind} '{wrong}': did you mean '{right}'\? the {kind}s are: '"):
        getattr(Engine(small_catalog()), function)(wrong)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await anyio.lowlevel.checkpoint()


async def test_the_counts_are_those_of_the_moment() -> None:
    gate, inside = anyio.Event(), anyio.Event()

    async def hold(_: GenerationCall) -> str:
        inside.set()
        await gate.wait()
        return "done"

    engine = Engine(small_catalog(max_concurrency=1), client=ScriptedClient(*[hold] * 4))
    view = engine.scoped("elsewhere")

    def counts() -> tuple[int, int]:
        details = engine.inspect_backend("server")
        return details.running, details.waiting

    assert counts() == (0, 0)
    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(engine.run, MORE)
        await until(lambda: counts() == (1, 3))
        await inside.wait()
        assert await anyio.to_thread.run_sync(counts) == (1, 3)
        with pytest.raises(UnknownBackendError):
            view.inspect_backend("server")
        gate.set()
    assert counts() == (0, 0)


async def test_a_run_on_a_view_counts_on_its_engine() -> None:
    seen: list[tuple[int, int]] = []

    def look(call: GenerationCall) -> str:
        found = [engine.inspect_backend("server"), engine.scoped("team").inspect_backend("server")]
        seen.extend((details.running, details.waiting) for details in found)
        return "done"

    engine = Engine(team_catalog(), client=ScriptedClient(look, look))
    for profile, expected in ((None, [(1, 0), (0, 0)]), ("warm", [(0, 0), (1, 0)])):
        request = RunRequest(prompt_id="ask", variables={"question": ""}, profile=profile)
        await engine.scoped("team").run(request)
        assert seen == expected
        seen.clear()


async def test_a_run_that_waits_to_retry_is_waiting_and_one_that_ended_is_neither() -> None:
    seen: list[tuple[str, int, int]] = []

    def look(event: Any) -> None:
        details = engine.inspect_backend("server")
        seen.append((type(event).__name__, details.running, details.waiting))

    failed = DisconnectedError("gone", transient=True)
    engine = Engine(small_catalog(), client=ScriptedClient(failed, "done"))
    await engine.run(msgspec.structs.replace(MORE, observer=look))
    assert seen == [
        ("RunStarted", 0, 0),
        ("AttemptFinished", 0, 1),
        ("RetryDelayed", 0, 1),
        ("AttemptFinished", 0, 1),
        ("RunFinished", 0, 0),
    ]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_another_thread_reads_the_counts_while_the_loop_runs_and_after_it_has_ended(backend: str) -> None:
    inside, over = threading.Event(), threading.Event()

    async def hold(_: GenerationCall) -> str:
        inside.set()
        await anyio.to_thread.run_sync(over.wait)
        return "done"

    engine = Engine(small_catalog(), client=ScriptedClient(hold))
    thread = threading.Thread(target=lambda: anyio.run(engine.run, MORE, backend=backend))
    thread.start()
    try:
        assert inside.wait(10)
        during = engine.inspect_backend("server")
    finally:
        over.set()
        thread.join()
    after = engine.inspect_backend("server")
    assert ((during.running, during.waiting), (after.running, after.waiting)) == ((1, 0), (0, 0))


def test_a_run_whose_loop_has_stopped_counts_no_more() -> None:
    inside = asyncio.Event()

    async def hold(_: GenerationCall) -> str:
        inside.set()
        await anyio.sleep_forever()
        return "never"

    engine = Engine(small_catalog(), client=ScriptedClient(hold))
    loop = asyncio.new_event_loop()
    run = loop.create_task(engine.run(MORE))
    loop.run_until_complete(inside.wait())
    stopped = engine.inspect_backend("server")
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(run)
    loop.close()
    assert (stopped.running, stopped.waiting) == (0, 0)


# ---------------------------------------------------------------- encoding and secrets


def all_details(engine: Engine, prompt: str, profile: str, backend: str) -> list[Any]:
    return [engine.inspect_prompt(prompt), engine.inspect_profile(profile), engine.inspect_backend(backend)]


def test_details_encode_and_are_read_back_the_same(tmp_path: Path) -> None:
    engine = Engine(catalog_of_files(tmp_path))
    found = all_details(engine, "team/ask", "warm", "server")
    assert [type(details) for details in found] == [PromptDetails, ProfileDetails, BackendDetails]
    for details in found:
        encoded = msgspec.json.encode(details)
        assert msgspec.json.encode(msgspec.json.decode(encoded, type=type(details))) == encoded
        assert msgspec.json.decode(encoded) == msgspec.json.decode(msgspec.json.encode(msgspec.to_builtins(details)))


def test_details_are_detached() -> None:
    engine = Engine(small_catalog())
    found = all_details(engine, "follow", "warm", "server")
    before = [msgspec.json.encode(details) for details in found]
    for details in found:
        for name in details.__struct_fields__:
            with pytest.raises(AttributeError):
                setattr(details, name, None)
            if isinstance(getattr(details, name), dict):
                with pytest.raises(TypeError):
                    getattr(details, name)["x"] = 1
    assert isinstance(found[0].output.schema, dict)
    with pytest.raises(TypeError):
        found[0].output.schema["properties"]["a"] = {}
    builtins = msgspec.to_builtins(found[0])
    builtins["output"]["schema"]["properties"].clear()
    assert [msgspec.json.encode(details) for details in all_details(engine, "follow", "warm", "server")] == before


async def test_no_secret_shows_in_details_wherever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTKIT_TEST_KEY", "sk-MARK-environment")
    recorder = EventRecorder()
    engine = Engine(small_catalog(credential_env="PROMPTKIT_TEST_KEY"), client=ScriptedClient("a", "b"))
    given = msgspec.structs.replace(MORE, credential=Secret("sk-MARK-request"), observer=recorder)
    execution = await engine.prepare_execution(MORE)
    await engine.run(given)
    await engine.run_prepared(execution)
    assert recorder.events
    assert engine.inspect_backend("server").credential_env == "PROMPTKIT_TEST_KEY"
    for view in (engine, engine.scoped("team")):
        assert "MARK" not in repr(view)
    for details in all_details(engine, "more", "cold", "server"):
        for shown in (repr(details), str(details), msgspec.json.encode(details).decode()):
            assert "MARK" not in shown


@pytest.mark.parametrize("name", ["Authorization", "X-Api-Key", "cookie", "x-auth-token"])
def test_a_header_that_would_show_a_secret_is_refused_when_the_backend_is_made(name: str) -> None:
    with pytest.raises(InvalidConfigError, match="credential_env") as refused:
        small_catalog(headers={name: "sk-MARK"})
    assert "MARK" not in str(refused.value)


async def test_inspection_needs_no_event_loop_and_takes_no_capacity() -> None:
    engine = Engine(small_catalog(max_concurrency=1, max_waiting=0), client=ScriptedClient("done"))
    found = await anyio.to_thread.run_sync(lambda: all_details(engine, "more", "cold", "server"))
    assert [details.id for details in found] == ["more", "cold", "server"]
    assert (await engine.run(MORE)).raw_output == "done"
