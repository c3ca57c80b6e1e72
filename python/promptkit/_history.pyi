"""`promptkit._history`: conversations that share their ancestors, encoded once and hashed once."""

from collections.abc import Sequence
from typing import Literal, TypeAlias, final

_Role: TypeAlias = Literal["system", "developer", "user", "assistant"]
_Marker: TypeAlias = Literal["", "5m", "1h"]
_Part: TypeAlias = (
    tuple[Literal["text"], str]
    | tuple[Literal["image"], str, bytes, None]
    | tuple[Literal["image"], str, None, str]
    | tuple[Literal["file"], str, bytes, str | None]
)
# In: (role, content, marker). Out: the same, with the parts in a tuple.
_Message: TypeAlias = tuple[_Role, str | Sequence[_Part], _Marker | None]
_StoredMessage: TypeAlias = tuple[_Role, str | tuple[_Part, ...], _Marker | None]

# Tokens (value, known, complete): input, output, read from a cache, written to one, reasoning.
_Count: TypeAlias = tuple[int, bool, bool]
_Usage: TypeAlias = tuple[_Count, _Count, _Count, _Count, _Count]

__all__ = ["Group", "Node", "Turn"]

@final
class Group:
    """The totals of the runs that it is told of. Usable in any thread; told and asked without running Python code."""

    def __new__(cls) -> Group: ...
    def observe_member(self, run_id: str) -> None:
        """Take an event that ends nothing."""
    def observe_terminal(
        self, run_id: str, attempts: int, transient_retries: int, repair_calls: int, usage: _Usage
    ) -> None:
        """Take a terminal event, which counts if it is the first of its run.

        A number beyond 64 bits is taken as the largest one, and so is a sum; as a count of tokens it is not complete
        then. Raises `TypeError` or `ValueError`, and takes nothing, if a value has the wrong type or is negative.
        """
    def snapshot(self) -> tuple[list[str], list[bool], int, int, int, int, _Usage]:
        """The group at this moment.

        The run ids in the order in which they were first told of, for each whether it has ended, how many have,
        attempts, transient retries, repair calls, usage. The usage is as it adds up: that of no run is neither known
        nor incomplete.
        """

@final
class Node:
    """One captured exchange and all before it. Immutable; made by `Turn.capture`; usable in any thread."""

    @property
    def run_id(self) -> str:
        """The run that made this exchange."""
    @property
    def parent_run_id(self) -> str | None:
        """The run that made the exchange which this one continued, None for a first one."""
    @property
    def message_count(self) -> int:
        """How many messages there are, replies and ancestors included."""
    def messages(self) -> list[_StoredMessage]:
        """All messages, oldest first, as new tuples."""

@final
class Turn:
    """The effective messages of one request: a captured history, then new messages. Immutable.

    Raises `TypeError` or `ValueError`, which name the message, if one is not well-formed.
    """

    def __new__(cls, history: Node | None, messages: Sequence[_Message]) -> Turn: ...
    @property
    def message_count(self) -> int:
        """How many messages there are, history included."""
    @property
    def late_system(self) -> int | None:
        """The position of the first message of the system or the developer that follows one of another."""
    @property
    def media(self) -> int | None:
        """The position of the first message with an image or a file."""
    def encode_chat(
        self,
        markers: Literal["cache_control", "prompt_cache_breakpoint", "omit"],
        extra: Sequence[_Message] = (),
        late_system: Literal["send", "as_user"] = "send",
    ) -> bytes:
        """The `messages` array of a chat-completions request, compact JSON: these messages, then `extra`."""
    def encode_anthropic(
        self,
        markers: Literal["cache_control", "omit"],
        extra: Sequence[_Message] = (),
        late_system: Literal["send", "as_user"] = "send",
    ) -> tuple[bytes, bytes | None]:
        """The `messages` and the `system` array of an Anthropic request; None where no system message leads."""
    def digest(self, session_id: str | None) -> str:
        """The rendered digest, `sha256:` and 64 hexadecimal digits. Hashes only what is new since the history."""
    def messages(self) -> list[_StoredMessage]:
        """All messages, oldest first, as new tuples."""
    def capture(self, run_id: str, reply: str) -> Node:
        """A new node: these messages, then `reply` as the assistant's. Can be called any number of times."""
