"""``python -m penstock.testing``: the server from a command line; ``serve`` is the process of a ``ModelServer``."""

from __future__ import annotations

import argparse
import gc
import signal
import sys
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection

import cloudpickle

from penstock.testing.notation import parse_fault, parse_latency
from penstock.testing.script import Limits, Script
from penstock.testing.server import HOST
from penstock.testing.serving import Serving


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    _collect_garbage_seldom()
    serve_terminal(options)


def serve(fd: int) -> None:
    """Do what the handle says until its end of the socket closes, which it does when its process ends too."""
    _collect_garbage_seldom()
    connection = Connection(fd)
    _, (script, port) = cloudpickle.loads(connection.recv_bytes())
    serving = Serving(script, port)
    obeying = threading.Thread(target=_obey, args=(connection, serving), daemon=True)
    obeying.start()
    serving.run()
    obeying.join()  # it may have to tell why nothing could be served


def _obey(connection: Connection, serving: Serving) -> None:
    try:
        port = serving.wait_for_port()
    except OSError as error:
        connection.send_bytes(cloudpickle.dumps((True, error)))
        return
    connection.send_bytes(cloudpickle.dumps((False, port)))
    try:
        while True:
            verb, argument = cloudpickle.loads(connection.recv_bytes())
            try:
                answer = (False, serving.command(verb, argument))
            except Exception as error:
                answer = (True, error)
            connection.send_bytes(cloudpickle.dumps(answer))
    except (EOFError, OSError):
        serving.stop()


def _collect_garbage_seldom() -> None:
    """What is recorded lives on, and is no garbage to look for again and again."""
    gc.set_threshold(100_000, 50, 100)


def serve_terminal(options: argparse.Namespace) -> None:
    """Serve until interrupted."""
    limits = Limits(options.requests_per_second, options.tokens_per_minute, options.max_concurrency)
    script = Script(
        latency=parse_latency(options.latency),
        faults=tuple(parse_fault(text) for text in options.fault),
        limits=limits,
        api_key=options.api_key,
        models=options.model or None,
        seed=options.seed,
        keep_requests=options.keep_requests,
    )
    serving = Serving(script, options.port)
    thread = threading.Thread(target=serving.run, daemon=True)
    thread.start()
    port = serving.wait_for_port()
    sys.stdout.write(
        f"port {port}\nOpenAI     http://{HOST}:{port}/v1\nAnthropic  http://{HOST}:{port}\n"
        f"Google     http://{HOST}:{port}/v1beta\nCtrl-C ends it.\n"
    )
    sys.stdout.flush()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        thread.join()
    except KeyboardInterrupt:
        serving.stop()
        thread.join()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m penstock.testing",
        description="A server on loopback that speaks the APIs of OpenAI, Anthropic and Google. It repeats prompts.",
    )
    add = parser.add_argument
    add("--port", type=int, default=0, help="0 (the default) takes a free one")
    add("--latency", default="0", help="seconds, or 'Uniform(0.1, 0.5)', or 'LogNormal(median=0.5, p99=4)'")
    add("--fault", action="append", default=[], help="such as 'ServerError(503, share=0.1)'; may be given again")
    add("--requests-per-second", type=float)
    add("--tokens-per-minute", type=float)
    add("--max-concurrency", type=int)
    add("--api-key", help="answer 401 to requests with another key")
    add("--model", action="append", help="answer 404 to requests for other models; may be given again")
    add("--seed", type=int, default=0)
    add("--keep-requests", type=int, default=100_000)
    return parser


if __name__ == "__main__":
    main()
