"""The command with a terminal around it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from servers.command_line import environment

if TYPE_CHECKING:
    from collections.abc import Callable

# Ctrl-C is a signal to who has the terminal. A fork of this process would be one of many threads.
TAKES_THE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "promptkit", *sys.argv[1:]])
"""


class Screen:
    """A command whose three streams are a terminal, and all that it has written so far."""

    def __init__(self, *argv: str, **changes: str) -> None:
        self.written = b""
        self._changed = threading.Condition()
        environ = environment(**{"TERM": "xterm", "COLUMNS": "80", "LC_ALL": "C.UTF-8", **changes})
        import pty  # is not there on Windows

        self._terminal, end = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-c", TAKES_THE_TERMINAL, *argv],
            stdin=end,
            stdout=end,
            stderr=end,
            env=environ,
            start_new_session=True,
        )
        os.close(end)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self._terminal, 65536)
            except OSError:  # Linux says so when nobody has the other end any more
                piece = b""
            with self._changed:
                self.written += piece
                self._changed.notify_all()
            if not piece:
                return

    def wait_for(self, seen: Callable[[str], object]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: seen(self.text), 15), self.text

    @property
    def text(self) -> str:
        return self.written.decode("utf-8", "replace").replace("\r\n", "\n")

    def type(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    def interrupt(self, seen: Callable[[str], object]) -> None:
        """Press Ctrl-C, and again if nothing comes of it.

        Between showing its prompt and waiting for keys, Python's readline takes a signal and goes on waiting.
        """
        for _ in range(5):
            self.type(b"\x03")
            with self._changed:
                if self._changed.wait_for(lambda: seen(self.text) or not self._reader.is_alive(), 3):
                    return
        raise AssertionError(self.text)

    def terminate(self) -> None:
        self._process.terminate()

    def end(self) -> int:
        """Wait for the end, and give the exit status."""
        self._reader.join(15)
        if self._reader.is_alive():
            self._process.kill()
        status = self._process.wait(15)
        os.close(self._terminal)
        return status
