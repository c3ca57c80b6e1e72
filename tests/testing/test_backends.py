"""A catalog that was loaded, with another backend for a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from promptkit import (
    Backend,
    Catalog,
    CredentialError,
    Engine,
    InvalidConfigError,
    RunRequest,
    UnknownBackendError,
    load_catalog,
)
from promptkit.testing import ScriptedClient, with_backend
from servers.catalogs import small_catalog

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio


@pytest.fixture
def loaded(tmp_path: Path) -> Catalog:
    files = {
        "promptkit.toml": '[backends.main]\nkind = "chat_completions"\nbase_url = "https://llm.example.com/v1"\n'
        'credential_env = "PROMPTKIT_NO_SUCH_KEY"\n[profiles.p]\nbackend = "main"\nmodel = "m"\nseed = 1\n',
        "prompts/read.toml": 'profile = "p"\ninputs = ["text"]\n[[messages]]\nrole = "user"\n'
        "content = '{% include \"tone.txt\" %} {{ inputs.text }}'\n",
        "prompts/tone.txt": "Briefly:",
        "inputs/a.txt": "some text",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return load_catalog(tmp_path)


async def test_the_folders_of_a_loaded_catalog_stay_so_that_inputs_and_includes_are_found(loaded: Catalog) -> None:
    from pathlib import Path

    request = RunRequest(prompt_id="read", inputs={"text": Path("a.txt")})
    with pytest.raises(CredentialError):
        await Engine(loaded, client=ScriptedClient("x")).run(request)
    changed = with_backend(loaded, "main", credential_env=None)
    with ScriptedClient("x") as client:
        await Engine(changed, client=client).run(request)
    assert client.calls[0].messages[0].content == "Briefly: some text"
    assert Engine(changed).inspect_prompt("read") == Engine(loaded).inspect_prompt("read")


def test_the_catalog_given_is_not_changed_and_other_fields_stay(loaded: Catalog) -> None:
    changed = with_backend(loaded, "main", base_url="http://localhost:9/v1", attempt_timeout=1.0)
    assert loaded.backends["main"].base_url == "https://llm.example.com/v1"
    assert changed.backends["main"] == Backend(
        id="main",
        kind="chat_completions",
        base_url="http://localhost:9/v1",
        credential_env="PROMPTKIT_NO_SUCH_KEY",
        attempt_timeout=1.0,
    )
    assert changed.prompts is loaded.prompts


def test_catalogs_made_in_python_change_too() -> None:
    catalog = with_backend(small_catalog(), "server", max_waiting=0)
    assert catalog.backends["server"].max_waiting == 0
    assert (catalog | Catalog()).backends["server"].max_waiting == 0


def test_a_value_that_is_not_allowed_and_one_that_a_profile_does_not_fit_are_refused(loaded: Catalog) -> None:
    with pytest.raises(InvalidConfigError, match="max_waiting"):
        with_backend(loaded, "main", max_waiting=-1)
    with pytest.raises(InvalidConfigError) as raised:
        with_backend(loaded, "main", kind="anthropic_messages", base_url="https://llm.example.com")
    assert [fault.key for fault in raised.value.faults] == ["profiles.p.seed", "profiles.p.max_output_tokens"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"credental_env": None}, "'credental_env' is no field .*: did you mean 'credential_env'"),
        ({"id": "other"}, "'id' is no field .*: its profiles refer to it"),
        ({"zzzzzz": 1}, "'zzzzzz' is no field .*: see Backend"),
    ],
)
def test_what_is_no_field_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        with_backend(small_catalog(), "server", **changes)


def test_an_unknown_backend_is_refused_with_a_near_miss() -> None:
    with pytest.raises(UnknownBackendError, match="there is no backend 'servr': did you mean 'server'"):
        with_backend(small_catalog(), "servr")
    with pytest.raises(TypeError, match="Expected a Catalog"):
        with_backend("catalog", "main")  # type: ignore[arg-type]
