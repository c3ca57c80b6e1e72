"""Serve llmock: a server that nobody here wrote, with the replies and errors of many providers.

Run as a program, with -P, since its own name is that of the package: prints its address, and serves until its standard
input ends. It counts what clients do and judges their retries.
"""

from __future__ import annotations

import sys


def serve() -> None:
    """Serve."""
    from llmock.testing import LLMockServer

    with LLMockServer() as server:
        print(server.url, flush=True)  # noqa: T201
        sys.stdin.read()


if __name__ == "__main__":
    serve()
