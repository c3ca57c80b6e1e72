"""Programs that a test runs in an interpreter of its own, because signals and the end of a process take part."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import promptkit

TESTS = Path(__file__).parents[1]

COMMON = """
import faulthandler
faulthandler.dump_traceback_later(15, exit=True)  # a deadlock ends the process, and shows where it was
import asyncio, atexit, os, random, signal, sys, threading, time
import anyio
from promptkit import *
from promptkit.testing import ScriptedClient
from servers.catalogs import small_catalog

signal.signal(signal.SIGINT, signal.default_int_handler)
MORE = RunRequest(prompt_id="more")
ASK = RunRequest(prompt_id="ask", variables={"question": "Where?"}, capture_exchange=True)

def ctrl_c(after):
    # In real time, at any instruction of the main thread: as a person does it.
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, after)

def press_when(moment):
    def press():
        moment.wait()
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=press).start()

class Quick:
    async def generate(self, call):
        await anyio.sleep(0.0003)
        return GenerationReply(content="x")

class Never:
    def __init__(self):
        self.asked = threading.Event()
        self.cancelled = 0
    async def generate(self, call):
        self.asked.set()
        try:
            await anyio.sleep_forever()
        except BaseException:
            self.cancelled += 1
            raise

class Deaf(Never):
    # Told to end, it goes on until it is let go.
    def __init__(self):
        super().__init__()
        self.told, self.let_go = threading.Event(), False
    async def generate(self, call):
        try:
            return await super().generate(call)
        finally:
            self.told.set()
            with anyio.CancelScope(shield=True):
                while not self.let_go:
                    await anyio.sleep(0.001)

def capacity(engine):
    now = engine.inspect_backend("server")
    return now.running, now.waiting

def settled(engine):
    # After a second Ctrl-C a run ends by itself.
    until = time.monotonic() + 5
    while capacity(engine) != (0, 0) and time.monotonic() < until:
        time.sleep(0.001)
    return capacity(engine)
"""

on_posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX signals and fork")


def run_script(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a program in an interpreter of its own."""
    return subprocess.run(
        [sys.executable, *options, "-c", COMMON + script],
        capture_output=True,
        text=True,
        timeout=18,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(promptkit.__file__).parents[1]), str(TESTS)])},
    )
