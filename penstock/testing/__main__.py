"""``python -m penstock.testing``: serve from a command line."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence

from penstock.testing.http_server import HOST
from penstock.testing.script import Limits, Script, parse_fault, parse_latency
from penstock.testing.server_runner import ServerThread, collect_garbage_rarely


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until interrupted."""
    options = _parser().parse_args(arguments)
    collect_garbage_rarely()
    script = Script(
        latency=parse_latency(options.latency),
        faults=tuple(parse_fault(text) for text in options.fault),
        limits=Limits(options.requests_per_second, options.tokens_per_minute, options.max_concurrency),
        api_key=options.api_key,
    )
    server = ServerThread(script, options.port)
    sys.stdout.write(
        f"port {server.port}\nOpenAI     http://{HOST}:{server.port}/v1\nAnthropic  http://{HOST}:{server.port}\n"
        f"Google     http://{HOST}:{server.port}/v1beta\nPress Ctrl-C to stop.\n"
    )
    sys.stdout.flush()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        server.join()
    except KeyboardInterrupt:
        server.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m penstock.testing",
        description="A server on loopback that speaks the APIs of OpenAI, Anthropic and Google. It repeats prompts.",
    )
    add = parser.add_argument
    add("--port", type=int, default=0, help="0, the default, takes a free port")
    add("--latency", default="0", help="seconds, or 'Uniform(0.1, 0.5)', or 'LogNormal(median=0.5, p99=4)'")
    add("--fault", action="append", default=[], help="such as 'ServerError(503, share=0.1)'; may be repeated")
    add("--requests-per-second", type=float)
    add("--tokens-per-minute", type=float)
    add("--max-concurrency", type=int)
    add("--api-key", help="answer 401 to requests with another key")
    return parser


if __name__ == "__main__":
    main()
