"""What a body was packed in for its way: undone, within bounds."""

from __future__ import annotations

import contextlib
import zlib

from returns.result import Failure, Result, Success

MEMBERS = 16  # of a gzip body: each is looked for in what the last one left
_GZIP = zlib.MAX_WBITS | 16


class _TooMuchError(Exception):
    """A body that unpacks to more than is taken, in words that complete a sentence."""


def unpacked(raw: bytes, encoding: str, *, most: int) -> Result[bytes, str]:
    """Undo the content encoding, bounded: a small body can unpack to a very large one.

    The failure completes "a body that ...".
    """
    if len(raw) > most:
        return Failure(f"has more than {most:,} bytes")
    if encoding in {"", "identity"} or not raw:
        return Success(raw)
    window = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": zlib.MAX_WBITS}.get(encoding)
    if window is None:
        return Failure("has a content-encoding that was not asked for")
    try:
        return Success(_inflated(raw, window, most))
    except _TooMuchError as error:
        return Failure(str(error))
    except zlib.error:
        if encoding == "deflate":
            with contextlib.suppress(zlib.error):
                return _bare(raw, most)
        return Failure(f"its content-encoding {encoding!r} does not describe")


def _bare(raw: bytes, most: int) -> Result[bytes, str]:
    """Inflate what comes without its head, as some servers send it."""
    try:
        return Success(_inflated(raw, -zlib.MAX_WBITS, most))
    except _TooMuchError as error:
        return Failure(str(error))


def _inflated(raw: bytes, window: int, most: int) -> bytes:
    pieces: list[bytes] = []
    room = most
    for _ in range(MEMBERS):
        unpacking = zlib.decompressobj(window)
        pieces.append(unpacking.decompress(raw, room + 1))
        room -= len(pieces[-1])
        if room < 0:
            msg = f"unpacks to more than {most:,} bytes"
            raise _TooMuchError(msg)
        if not unpacking.eof:
            raise zlib.error
        raw = unpacking.unused_data.lstrip(b"\0")  # gzip may have several members, and padding
        if not raw:
            return b"".join(pieces)
    msg = f"is packed in more than {MEMBERS} pieces"
    raise _TooMuchError(msg)
