"""Messages: who says what, and the parts that content is made of."""

from __future__ import annotations

import re
from copy import copy
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import force_setattr

from promptkit._values.construction import Checked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from promptkit._history import _Message as MessageTuple
    from promptkit._history import _Part as PartTuple
    from promptkit._history import _StoredMessage as StoredTuple

Role = Literal["system", "developer", "user", "assistant"]
"""Who a message is from, sent as authored."""


# Names by RFC 6838, section 4.2, parameters by RFC 9110, section 5.6.6. All of it goes into a data URL as it stands, so
# what means something else there is left out: the number sign, the percent sign, quoted values (they may have commas).
# Compiled with the first part: that takes longer than all else that this file does when it is imported.
_NAME = r"[A-Za-z0-9][A-Za-z0-9!$&^_.+-]{0,126}"
_PARAMETER = r" ?; ?[A-Za-z0-9!$&'*+.^_`|~-]+=[A-Za-z0-9!$&'*+.^_`|~-]+"
_MEDIA_TYPE = f"{_NAME}/{_NAME}"
_WITH_PARAMETERS = f"{_NAME}/{_NAME}(?:{_PARAMETER})*"
_DATA_URL = f"data:(?:{_NAME}/{_NAME}(?:{_PARAMETER})*)?(?:;base64)?,"


SHOWN = 100  # bytes or characters of a part in its repr


class CacheControl(Checked, frozen=True, kw_only=True):
    """Cache metadata of one message, sent as authored: the prompt up to here may be kept for reuse.

    Attributes:
        type: always "ephemeral".
        ttl: the lifetime asked for: "5m", "1h", or None for the backend's default.
    """

    type: Literal["ephemeral"] = "ephemeral"
    ttl: Literal["5m", "1h"] | None = None


class TextPart(Checked, frozen=True, kw_only=True, tag_field="type", tag="text"):
    """A piece of text."""

    text: str

    @classmethod
    def _remedy(cls, value: Any) -> str | None:
        """Say how a text becomes a part."""
        return "wrap it, TextPart(text=...)" if isinstance(value, str) else None


class ImagePart(Checked, frozen=True, kw_only=True, tag_field="type", tag="image", omit_defaults=True):
    """An image: exactly one of ``data`` and ``url``.

    Attributes:
        media_type: such as "image/png".
        data: its bytes.
        url: an address that the backend reads (http or https), or a data URL; promptkit fetches nothing.
    """

    media_type: str
    data: bytes | None = None
    url: str | None = None

    def _problems(self) -> Iterator[tuple[str, str]]:
        """Check the media type, and that there is one source."""
        if not re.fullmatch(_MEDIA_TYPE, self.media_type):
            yield "media_type", _no_media_type(self.media_type, "image/png")
        elif not self.media_type.lower().startswith("image/"):
            yield "media_type", f"is {self.media_type!r}, which is no image: give a FilePart"
        if (self.data is None) == (self.url is None):
            yield "data", "give exactly one of data and url"
        if self.url is not None:
            yield from _url_problems(self.url)

    def __repr__(self) -> str:
        """Give the fields, a long content by its length."""
        return f"ImagePart(media_type={self.media_type!r}, data={_short(self.data)}, url={_short(self.url)})"


class FilePart(Checked, frozen=True, kw_only=True, tag_field="type", tag="file", omit_defaults=True):
    """A file.

    Attributes:
        media_type: such as "application/pdf". It may have parameters: "text/plain; charset=utf-8".
        data: its bytes.
        filename: its name, or None if it has none.
    """

    media_type: str
    data: bytes
    filename: str | None = None

    def _problems(self) -> Iterator[tuple[str, str]]:
        """Check the media type."""
        if not re.fullmatch(_WITH_PARAMETERS, self.media_type):
            yield "media_type", _no_media_type(self.media_type, "application/pdf or text/plain; charset=utf-8")

    def __repr__(self) -> str:
        """Give the fields, a long content by its length."""
        return f"FilePart(media_type={self.media_type!r}, data={_short(self.data)}, filename={self.filename!r})"


def _short(value: bytes | str | None) -> str:
    if value is None or len(value) <= SHOWN:
        return repr(value)
    return f"<{len(value):,} {'bytes' if isinstance(value, bytes) else 'characters'}>"


def _no_media_type(given: str, example: str) -> str:
    return f"is {given[:100]!r}, which is no media type: a type and a subtype, such as {example}"


def _url_problems(url: str) -> Iterator[tuple[str, str]]:
    # The address is not repeated in these sentences: it may hold a key.
    if not url.isascii() or not url.isprintable() or " " in url:
        yield "url", "has whitespace, control characters or characters outside ASCII: percent-encode them"
    elif url[:5].lower() == "data:":
        if not re.match(_DATA_URL, url, re.IGNORECASE):
            yield "url", "is no data URL: data:image/png;base64, and the data"
    elif not _names_a_host(url):
        yield "url", "must start with http:// or https:// and name a host, or be a data URL"


def _names_a_host(url: str) -> bool:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname)


ContentPart = TextPart | ImagePart | FilePart
"""One part of a message with more than plain text."""


class Message(Checked, frozen=True, kw_only=True, omit_defaults=True):
    """One message: a role, its content (text, or a tuple of parts) and its cache marker, if any.

    >>> Message(role="user", content="What stands in the second paragraph?").role
    'user'
    """

    role: Role
    content: str | tuple[ContentPart, ...]
    cache_control: CacheControl | None = None


def to_tuple(message: Message) -> MessageTuple:
    """Give the form in which a message enters the history store."""
    marker = message.cache_control
    content = message.content if isinstance(message.content, str) else tuple(_part_tuple(p) for p in message.content)
    return (message.role, content, None if marker is None else marker.ttl or "")


def from_tuples(stored: Iterable[StoredTuple]) -> tuple[Message, ...]:
    """Build messages from the form in which they leave the history store."""
    return tuple(_message(*fields) for fields in stored)


BLANK = Message(role="user", content="")


def _message(role: Role, content: str | Iterable[PartTuple], marker: Literal["", "5m", "1h"] | None) -> Message:
    # A copy is not checked, as a new one would be: what comes out of the store was checked when it went in.
    message = copy(BLANK)
    force_setattr(message, "role", role)
    force_setattr(message, "content", content if isinstance(content, str) else tuple(_part(part) for part in content))
    if marker is not None:
        force_setattr(message, "cache_control", CacheControl(ttl=marker or None))
    return message


def _part_tuple(part: ContentPart) -> PartTuple:
    match part:
        case TextPart():
            return ("text", part.text)
        case ImagePart(data=bytes(data)):
            return ("image", part.media_type, data, None)
        case ImagePart():
            return ("image", part.media_type, None, part.url or "")
        case FilePart():
            return ("file", part.media_type, part.data, part.filename)


def _part(part: PartTuple) -> ContentPart:
    match part:
        case ("text", text):
            return TextPart(text=text)
        case ("image", media_type, data, url):
            return ImagePart(media_type=media_type, data=data, url=url)
        case ("file", media_type, data, filename):
            return FilePart(media_type=media_type, data=data, filename=filename)
