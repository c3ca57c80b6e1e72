"""Depth costs no stack, whichever thread walks, and a tree is shared by threads and processes."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from promptkit._history import Node, Turn

TURNS = 100_000


def conversation(turns: int) -> Node:
    node = Turn(None, [("user", "first", None)]).capture("0", "answer")
    for number in range(1, turns):
        node = Turn(node, [("user", "next", None)]).capture(str(number), "answer")
    return node


def run_in_small_stack(work: Callable[[], None]) -> None:
    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as failure:  # noqa: BLE001 - carried to the test, which raises it
            failures.append(failure)

    before = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=guarded)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    if failures:
        raise failures[0]


def test_a_conversation_of_100_000_turns_lives_in_a_stack_of_256_kib() -> None:
    def live() -> None:
        node = conversation(TURNS)
        turn = Turn(node, [("user", "last", "5m")])
        assert turn.message_count == 2 * TURNS + 1
        assert turn.encode_chat("omit").count(b'"role"') == 2 * TURNS + 1
        assert turn.encode_chat("cache_control").endswith(b'"cache_control":{"type":"ephemeral","ttl":"5m"}}]}]')
        assert turn.digest("session").startswith("sha256:")
        messages = turn.messages()
        assert messages[0] == ("user", "first", None)
        assert messages[-1] == ("user", "last", "5m")
        assert len(node.messages()) == 2 * TURNS
        del node
        del turn

    run_in_small_stack(live)


def test_a_deep_trunk_outlives_its_handle_and_goes_with_its_last_branch() -> None:
    def live() -> None:
        trunk = conversation(TURNS)
        branches = [Turn(trunk, []).capture(str(number), str(number)) for number in range(3)]
        del trunk
        assert [branch.message_count for branch in branches] == [2 * TURNS + 1] * 3
        while branches:
            assert branches.pop().parent_run_id == str(TURNS - 1)

    run_in_small_stack(live)


def test_many_threads_branch_from_one_node_and_read_the_same_bytes() -> None:
    # Above the size at which walks release the interpreter lock.
    trunk = Turn(None, [("user", "x" * 2_000_000, "")]).capture("trunk", "answer")

    def branch(number: int) -> tuple[bytes, str, int]:
        node = Turn(trunk, [("user", str(number), None)]).capture(str(number), "reply")
        turn = Turn(node, [])
        return turn.encode_chat("cache_control"), turn.digest(None), len(turn.messages())

    expected = [branch(number) for number in range(16)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(branch, range(16))) == expected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_forked_child_reads_and_continues_what_its_parent_captured() -> None:
    script = """
import os
from promptkit._history import Turn
node = Turn(None, [("user", "x" * 2_000_000, None)]).capture("parent", "answer")
expected = Turn(node, []).digest(None)
child = os.fork()
if child == 0:
    assert Turn(node, []).digest(None) == expected
    branch = Turn(node, [("user", "more", None)]).capture("child", "reply")
    assert Turn(branch, []).encode_chat("omit").endswith(b'"reply"}]')
    del node, branch
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert Turn(node, []).digest(None) == expected
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
