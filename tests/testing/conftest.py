from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from penstock.testing import ModelServer


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(in_thread=True) as server:
        yield server


@pytest.fixture
def client(server: ModelServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.openai_url, api_key="test", max_retries=0) as client:
        yield client
