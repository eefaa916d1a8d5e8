"""A prompt runs little code of ours on the event loop, which is what bounds the number of prompts a second."""

from __future__ import annotations

import threading
from pathlib import Path
from types import FrameType
from typing import Any

import penstock as ps
from penstock.functions import prompt
from penstock.testing import ModelServer

PACKAGE = str(Path(ps.__file__).parent)
NUM_ROWS = 500
MAX_CALLS = 130
"""Python calls of ours for one prompt; 125 were counted, 4 of them when a coroutine starts, which makes many calls."""


def test_a_prompt_costs_few_python_calls() -> None:
    num_calls = 0

    def count(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal num_calls
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            num_calls += threading.current_thread().name == "penstock-asyncio"

    df = ps.from_pydict({"q": [f"question {number}" for number in range(NUM_ROWS)]})
    with ModelServer() as server:
        ps.set_provider("openai", base_url=f"{server.url}/v1", api_key="key")
        threading.setprofile(count)
        try:
            df.with_column("a", prompt(ps.col("q"), model="gpt-5-mini")).collect()
        finally:
            threading.setprofile(None)
    assert 0 < num_calls / NUM_ROWS < MAX_CALLS
