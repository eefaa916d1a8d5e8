"""``python -m penstock.testing``: serve from a command line."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress

from penstock.testing.model_server import ModelServer


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m penstock.testing",
        description="A server on loopback that speaks the APIs of OpenAI, Anthropic and Google. It repeats prompts.",
    )
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes a free port")
    with suppress(KeyboardInterrupt), ModelServer(port=parser.parse_args(arguments).port) as server:
        sys.stdout.write(
            f"port {server.port}\nOpenAI     {server.openai_url}\nAnthropic  {server.anthropic_url}\n"
            f"Google     {server.google_url}\n\nIn another terminal:\n"
            f"export OPENAI_API_KEY=test OPENAI_BASE_URL={server.openai_url}\n\nPress Ctrl-C to stop.\n"
        )
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main()
