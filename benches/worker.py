"""A process that holds one implementation and measures what it is asked to: JSON, one line in, one line out."""

from __future__ import annotations

import ctypes
import gc
import importlib
import importlib.metadata
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from subjects import Subject

_FILL = (
    'They said "wait",\nand so the oven of the bakery stood still until Monday, when Maria found the broken fan, '
    "called the shop, and asked what another one would cost. "
)
_FLUSHED = 64 << 20  # more than the caches hold


def text(number: int, length: int) -> str:
    """Make a text that no other is equal to, with now and then a character that JSON escapes."""
    return (f"{number:010d} " + _FILL * (length // len(_FILL) + 1))[:length]


def turns(depth: int, start: int = 0) -> Iterator[tuple[str, str]]:
    """Make turns: 400 characters of user and 800 of assistant text."""
    return ((text(number, 400), text(number, 800)) for number in range(start, start + depth))


class _Late(Exception):  # noqa: N818  # it ends a measurement, and is no fault
    pass


class Worker:
    """Answers commands; each is a method."""

    def __init__(self, name: str) -> None:
        self.subject: Subject = importlib.import_module(f"subjects.{name}").Implementation()
        self.held: Any = None
        self.depth = 0
        self._number = 1 << 24
        self._flush = b""

    def versions(self) -> dict[str, str]:
        """Say what is measured."""
        return {name: importlib.metadata.version(name) for name in self.subject.packages}

    def hold(self, depth: int) -> dict[str, float]:
        """Load a history for what comes."""
        self.release()
        start = time.process_time()
        self.held, self.depth = self.subject.load(turns(depth)), depth
        return {"cpu": time.process_time() - start}

    def release(self) -> dict[str, float]:
        """Forget the history."""
        if self.depth:
            self.subject.drop(self.held)
        self.held, self.depth = None, 0
        settle()
        return {}

    def measure(self, what: str, depth: int, count: int, limit: float) -> dict[str, float]:
        """Do it `count` times; CPU and wall seconds of one time. Ends without a figure after `limit` seconds."""
        run = getattr(self, "_" + what)(depth, count, time.monotonic() + limit)
        gc.collect()
        cpu, wall = time.process_time(), time.perf_counter()
        try:
            left_over = run()
        except _Late:
            return {"late": limit}
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        del left_over
        return {"cpu": cpu / count, "wall": wall / count}

    def conversation(self, depth: int) -> dict[str, Any]:
        """Do everything once and give what came out, for comparing implementations."""
        loaded, grown, sent = self.subject.load(turns(depth)), self.subject.load([]), []
        for user, reply in turns(depth):
            grown, body = self.subject.grow_with_body(grown, user, reply)
            sent.append(json.loads(body))
        plain = self.subject.load([])
        for user, reply in turns(depth):
            plain = self.subject.grow(plain, user, reply)
        branched = self.subject.branch(loaded, "left?", "Left.")
        answer = {
            "sent": sent,
            "body": json.loads(self.subject.body(loaded, "right?")),
            "repeatable digest": self.subject.digest(loaded, "x") == self.subject.digest(loaded, "x"),
            "branched": self._pairs(branched),
            **{
                name: self._pairs(history) for name, history in (("loaded", loaded), ("grown", grown), ("built", plain))
            },
        }
        self.subject.drop(loaded)
        return answer

    def message_memory(self, depth: int) -> dict[str, float]:
        """Bytes a stored message beyond its UTF-8 text. For a fresh process."""
        self.hold(100)
        self.release()
        before = resident()
        self.held = self.subject.load(turns(depth))
        settle()
        return {"bytes": (resident() - before - 1200 * depth) / (2 * depth)}

    def branch_memory(self, depth: int, branches: int, limit: float) -> dict[str, float]:
        """Bytes of that many branches of one turn, their text included. Fewer when time or memory is out, scaled."""
        self.hold(depth)
        settle()
        end, before, kept = time.monotonic() + limit, resident(), []
        for user, reply in turns(branches, 1 << 20):
            kept.append(self.subject.branch(self.held, user, reply))
            if time.monotonic() > end or (len(kept) % 10 == 0 and resident() - before > 1 << 30):
                break
        settle()
        return {"bytes": (resident() - before) * branches / len(kept), "branches": len(kept)}

    def _pairs(self, history: Any) -> list[tuple[str, str]]:
        return [self.subject.pair(message) for message in self.subject.details(history)]

    def _build(self, depth: int, count: int, end: float) -> Callable[[], Any]:
        texts, grow = list(turns(depth)), self.subject.grow

        def run() -> Any:
            made = []
            for _ in range(count):
                history = self.subject.load([])
                for user, reply in texts:
                    history = grow(history, user, reply)
                    if time.monotonic() > end:
                        self.subject.drop(history)
                        raise _Late
                made.append(history)
            return _Leftover(self.subject, made)

        return run

    def _build_body(self, depth: int, count: int, end: float) -> Callable[[], Any]:
        texts, grow = list(turns(depth)), self.subject.grow_with_body

        def run() -> Any:
            made = []
            for _ in range(count):
                history = self.subject.load([])
                for user, reply in texts:
                    history, _body = grow(history, user, reply)
                    if time.monotonic() > end:
                        self.subject.drop(history)
                        raise _Late
                made.append(history)
            return _Leftover(self.subject, made)

        return run

    def _body(self, _depth: int, count: int, _end: float) -> Callable[[], Any]:
        return self._again(count, lambda user: self.subject.body(self.held, user))

    def _digest(self, _depth: int, count: int, _end: float) -> Callable[[], Any]:
        return self._again(count, lambda user: self.subject.digest(self.held, user))

    def _details(self, _depth: int, count: int, _end: float) -> Callable[[], Any]:
        return self._again(count, lambda _: self.subject.details(self.held))

    def _again(self, count: int, do: Callable[[str], Any]) -> Callable[[], Any]:
        user = text(self._next(1), 400)

        def run() -> Any:
            for _ in range(count):
                do(user)

        return run

    def _branch(self, _depth: int, count: int, _end: float) -> Callable[[], Any]:
        texts, branch, held = list(turns(count, self._next(count))), self.subject.branch, self.held
        return lambda: [branch(held, user, reply) for user, reply in texts]

    def _drop(self, depth: int, count: int, _end: float) -> Callable[[], Any]:
        made: list[Any] = [self.subject.load(turns(depth)) for _ in range(count)]

        def run() -> Any:
            while made:
                self.subject.drop(made[-1])
                made.pop()

        return run

    def _cold_body(self, _depth: int, count: int, _end: float) -> Callable[[], Any]:
        user = text(self._next(1), 400)
        self._cool(count)
        return lambda: self.subject.body(self.held, user)

    def _cold_copy(self, _depth: int, count: int, _end: float) -> Callable[[], Any]:
        source = memoryview(self.subject.body(self.held, ""))
        self._cool(count)
        return lambda: bytes(source)

    def _cool(self, count: int) -> None:
        """Have nothing of what will be read in the caches."""
        if count != 1:
            msg = "what is done twice is not cold"
            raise ValueError(msg)
        self._flush = self._flush or bytes(_FLUSHED)
        bytearray(self._flush)

    def _copy(self, _depth: int, count: int, _end: float) -> Callable[[], Any]:
        source = self.subject.body(self.held, "")
        target = memoryview(bytearray(len(source)))

        def run() -> Any:
            for _ in range(count):
                target[:] = source

        return run

    def _next(self, count: int) -> int:
        self._number += count
        return self._number


class _Leftover:
    """Histories that were made in a measurement and are forgotten after it."""

    def __init__(self, subject: Subject, made: list[Any]) -> None:
        self._subject, self._made = subject, made

    def __del__(self) -> None:
        for history in self._made:
            self._subject.drop(history)


def settle() -> None:
    """Give back what nobody holds, so that resident memory says what is held."""
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
        if trim is not None:
            trim(0)


def resident() -> int:
    """Bytes of resident memory; where the system does not say, the peak of them."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def main() -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what an implementation prints is no answer
    worker = Worker(sys.argv[1])
    for line in sys.stdin:
        command, arguments = json.loads(line)
        answers.write(json.dumps(getattr(worker, command)(**arguments)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
