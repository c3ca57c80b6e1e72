"""What a test of an application needs: a scripted model, a clock turned by hand, and no network.

>>> import anyio
>>> from promptkit import Backend, Catalog, Engine, MessageTemplate, Profile, PromptDefinition, RunRequest
>>> catalog = Catalog(
...     backends=[Backend(id="b", kind="chat_completions", base_url="http://localhost:1/v1")],
...     profiles=[Profile(id="p", backend="b", model="m")],
...     prompts=[PromptDefinition(id="hi", messages=(MessageTemplate(role="user", content="Hi"),), profile="p")],
... )
>>> with ScriptedClient("Hello!") as client, no_network():
...     anyio.run(Engine(catalog, client=client).run, RunRequest(prompt_id="hi")).raw_output
'Hello!'
>>> client.calls[0].messages[0].content
'Hi'
"""

from promptkit._effects.network import NetworkRefusedError
from promptkit.testing.backends import with_backend
from promptkit.testing.event_recorder import EventRecorder
from promptkit.testing.gate import Gate
from promptkit.testing.manual_clock import ManualClock
from promptkit.testing.network import no_network
from promptkit.testing.prefix import assert_prefix_stable
from promptkit.testing.scripted_client import ScriptedClient

__all__ = [
    "EventRecorder",
    "Gate",
    "ManualClock",
    "NetworkRefusedError",
    "ScriptedClient",
    "assert_prefix_stable",
    "no_network",
    "with_backend",
]
