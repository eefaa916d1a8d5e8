"""A model server that shares no code with ``penstock.testing``: bare asyncio, OpenAI's two prompt APIs, embeddings.

    python -m tests.plain_server --latency 0.8 --slots 40            # refuses the 41st request with 429
    python -m tests.plain_server --latency 3                         # takes any number of requests
    python -m tests.plain_server --latency 0.1 --slots 4 --queues    # makes the 5th request wait
    python -m tests.plain_server --slots 4 --queues --most-waiting 8 --refuse-status 503    # refuses the 13th
    python -m tests.plain_server --fails-with 503 --fails-after 200  # an outage after 200 answers
    python -m tests.plain_server --poison crash                      # a text with "poison" ends all connections
    python -m tests.plain_server --poison exit                       # a text with "poison" ends the process

It prints its address. ``GET /counts`` returns what it saw. ``POST /script`` with JSON changes the options while it
runs: ``latency``, ``spread`` (a share of the latency), ``slots``, ``queues``, ``most_waiting``, ``refuse_status``,
``bad_every`` (each n-th text gets a 400), ``fails_with`` and ``poison`` (a status, "hang", "close", "crash" or "exit"),
``fails_after`` (a number of answers), ``down_s`` (the time that a crash takes), ``log`` (a file that gets the number
of each text that was answered).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class PlainServer:
    def __init__(self, **script: Any) -> None:
        defaults = {"latency": 0.8, "spread": 0.0, "slots": 0, "queues": False, "most_waiting": 0}
        defaults |= {"refuse_status": 429, "bad_every": 0, "fails_with": "", "fails_after": 0, "poison": ""}
        self.script = defaults | {"down_s": 0.5, "log": ""} | script
        names = ("requests", "answered", "refused", "failed", "in_flight", "most_in_flight", "waiting")
        self.counts = dict.fromkeys(names, 0)
        self._room = asyncio.Condition()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self.serve, "127.0.0.1", self.port, backlog=2048)
        self.port = self._server.sockets[0].getsockname()[1]

    def crash(self) -> None:
        """Close all connections and accept none for a while, as a process that dies and is restarted."""
        assert self._server is not None
        if not self._server.is_serving():
            return
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        self._restarting = asyncio.create_task(self.restart())

    async def restart(self) -> None:
        await asyncio.sleep(self.script["down_s"])
        await self.start()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode().split("\r\n")
                method, path, _ = lines[0].split(" ")
                lengths = [int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length")]
                body = await reader.readexactly(lengths[0]) if lengths else b""
                status, answer = await self.reply(method, path, body)
                content = json.dumps(answer).encode()
                writer.write(
                    b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                    % (status, len(content))
                    + content
                )
                await writer.drain()
                if self.script["log"] and status == 200 and method == "POST" and path != "/script":
                    with open(self.script["log"], "a") as log:
                        log.write(f"{number_in(json.loads(body))}\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def reply(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        if path == "/counts":
            return 200, self.counts
        if path == "/script":
            self.script |= json.loads(body)
            return 200, self.script
        self.counts["requests"] += 1
        slots = self.script["slots"]
        most = math.inf if not slots or (self.script["queues"] and not self.script["most_waiting"]) else slots
        if self.counts["in_flight"] + self.counts["waiting"] >= most + self.script["most_waiting"]:
            self.counts["refused"] += 1
            return self.script["refuse_status"], {"error": {"message": "too many requests", "type": "rate_limit"}}
        self.counts["waiting"] += 1
        async with self._room:
            await self._room.wait_for(lambda: not slots or self.counts["in_flight"] < slots)
            self.counts["waiting"] -= 1
            self.counts["in_flight"] += 1
        self.counts["most_in_flight"] = max(self.counts["most_in_flight"], self.counts["in_flight"])
        try:
            spread = self.script["spread"]
            await asyncio.sleep(self.script["latency"] * random.uniform(1 - spread, 1 + spread))
            asked = json.loads(body)
            if not (fate := self.fate(asked)):
                return self.answer(path, asked)
            self.counts["failed"] += 1
            if fate == "hang":
                await asyncio.Event().wait()
            if fate == "crash":
                self.crash()
            if fate == "exit":
                os._exit(1)
            if fate in ("close", "crash"):
                raise ConnectionResetError
            return int(fate), {"error": {"message": "the server failed", "type": "server_error"}}
        finally:
            async with self._room:
                self.counts["in_flight"] -= 1
                self._room.notify()

    def fate(self, asked: dict[str, Any]) -> str:
        """Return how a request fails, an empty text if it is answered."""
        if self.script["fails_with"] and self.counts["answered"] >= self.script["fails_after"]:
            return str(self.script["fails_with"])
        return str(self.script["poison"]) if "poison" in text_in(asked) else ""

    def answer(self, path: str, asked: dict[str, Any]) -> tuple[int, Any]:
        number = number_in(asked)
        if self.script["bad_every"] and number % self.script["bad_every"] == 0:
            self.counts["failed"] += 1
            return 400, {"error": {"message": f"text {number} is not acceptable", "type": "invalid_request_error"}}
        self.counts["answered"] += 1
        if path.endswith("/embeddings"):
            texts = asked["input"] if isinstance(asked["input"], list) else [asked["input"]]
            data = [{"index": i, "embedding": [float(i), 1.0], "object": "embedding"} for i in range(len(texts))]
            return 200, {"data": data, "model": asked["model"], "usage": {"prompt_tokens": 9, "total_tokens": 9}}
        answer = f"answer {number}"
        if path.endswith("/chat/completions"):
            message = {"role": "assistant", "content": answer}
            usage = {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150}
            return 200, {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}
        content = [{"type": "output_text", "text": answer, "annotations": []}]
        return 200, {
            "id": "r",
            "status": "completed",
            "model": asked["model"],
            "output": [{"type": "message", "role": "assistant", "status": "completed", "content": content}],
            "usage": {"input_tokens": 100, "output_tokens": 50, "total_tokens": 150},
        }


def text_in(asked: dict[str, Any]) -> str:
    return json.dumps(asked.get("input") or asked.get("messages"))


def number_in(asked: dict[str, Any]) -> int:
    return int((re.findall(r"\d+", text_in(asked)) or ["0"])[0])


@contextmanager
def held_port(port: int = 0) -> Iterator[int]:
    """Keep a port while nobody listens there: or a client that tries to connect to it may get it as its own port."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", port))
        yield holder.getsockname()[1]


async def run(port: int, script: dict[str, Any]) -> None:
    server = PlainServer(**script)
    with held_port(port) as server.port:
        await server.start()
        print(f"http://127.0.0.1:{server.port}/v1", flush=True)  # noqa: T201
        await asyncio.Event().wait()


def command(**script: Any) -> list[str]:
    """Return the command that runs the server."""
    options = [f"--{name.replace('_', '-')}={value}" for name, value in script.items() if value is not True]
    options += [f"--{name}" for name, value in script.items() if value is True]
    return [sys.executable, "-m", "tests.plain_server", *options]


@contextmanager
def plain_server(**script: Any) -> Iterator[str]:
    """Run the server in a process of its own and yield its base URL."""
    with subprocess.Popen(command(**script), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


@contextmanager
def supervised_server(down_s: float, **script: Any) -> Iterator[tuple[str, list[float]]]:
    """Run the server, and start it again ``down_s`` after each end. Yield its base URL, and the times of its ends."""
    ends, is_over = list[float](), threading.Event()

    def restart() -> None:
        nonlocal process
        while process.wait() is not None and not is_over.is_set():
            ends.append(time.monotonic())
            is_over.wait(down_s)
            process = subprocess.Popen(command(port=port, **script), stdout=subprocess.DEVNULL)

    with held_port() as port:
        process = subprocess.Popen(command(port=port, **script), stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        with process.stdout as printed:
            base_url = printed.readline().strip()
        thread = threading.Thread(target=restart)
        thread.start()
        try:
            yield base_url, ends
        finally:
            is_over.set()
            while thread.is_alive():
                process.kill()
                thread.join(0.1)


def change(base_url: str, **script: Any) -> None:
    """Change what a server does."""
    body = json.dumps(script).encode()
    urllib.request.urlopen(base_url.removesuffix("/v1") + "/script", body).close()


def counts(base_url: str) -> dict[str, int]:
    """Return what a server saw so far."""
    with urllib.request.urlopen(base_url.removesuffix("/v1") + "/counts") as response:
        found: dict[str, int] = json.load(response)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.8)
    parser.add_argument("--spread", type=float, default=0.0)
    parser.add_argument("--slots", type=int, default=0)
    parser.add_argument("--queues", action="store_true")
    parser.add_argument("--most-waiting", type=int, default=0)
    parser.add_argument("--refuse-status", type=int, default=429)
    parser.add_argument("--bad-every", type=int, default=0)
    parser.add_argument("--fails-with", default="")
    parser.add_argument("--fails-after", type=int, default=0)
    parser.add_argument("--poison", default="")
    parser.add_argument("--down-s", type=float, default=0.5)
    parser.add_argument("--log", default="")
    given = vars(parser.parse_args())
    asyncio.run(run(given.pop("port"), given))
