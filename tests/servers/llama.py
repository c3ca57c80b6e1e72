"""Serve the default local model over HTTP: a server that nobody here wrote.

Run as a program: prints its address, and serves until its standard input ends. It speaks chat completions below /v1 and
Anthropic messages at /v1/messages, and wants the key that is the program's argument.
"""

from __future__ import annotations

import os
import socket
import sys

os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def serve() -> None:
    """Serve."""
    import xllamacpp

    from promptkit._effects.model_weights import fetch_default_model

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    params = xllamacpp.CommonParams()
    params.model.path = str(fetch_default_model(lambda _: None))
    params.model_alias = {"served-model"}
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.api_keys = sys.argv[1:]
    params.n_ctx = 1024
    params.n_parallel = 1
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.warmup = False
    params.verbosity = -1
    server = xllamacpp.Server(params)
    print(f"http://127.0.0.1:{port}", flush=True)  # noqa: T201
    sys.stdin.read()
    del server


if __name__ == "__main__":
    serve()
