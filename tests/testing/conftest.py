from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from penstock.testing import ModelServer

if TYPE_CHECKING:
    import openai


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(in_thread=True) as server:
        yield server


@pytest.fixture
def client(server: ModelServer) -> Iterator[openai.OpenAI]:
    import openai  # here, as it takes seconds and only some workers need it

    with openai.OpenAI(base_url=server.openai_url, api_key="test", max_retries=0) as client:
        yield client
