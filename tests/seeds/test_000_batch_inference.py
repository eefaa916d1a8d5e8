"""The examples of Daft's page on batch inference, which the page describes in words, against servers on loopback."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.ai.provider_registry import detach_providers
from penstock.testing import ModelServer
from tests.io.tables.hub import running_hub
from tests.seeds.samples import run_sample, run_sample_apart

ROLES = ["a linux terminal", "an english translator", "an interviewer", "a travel guide"]


def parquet(**columns: Any) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream)
    return stream.getvalue()


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(answer=lambda request: f"Done: {request.text}", api_key="sk-sample", latency=0.2) as server:
        yield server
    detach_providers()


# --- Prompt GPT-5 with OpenAI ---


def test_prompt_gpt_5_over_a_hugging_face_dataset_to_parquet(server: ModelServer, tmp_path: Path) -> None:
    sample = """
import daft
from daft.functions import prompt

(
    daft.read_huggingface("fka/awesome-chatgpt-prompts")
    # Generate model outputs in a new column
    .with_column(
        "output",
        prompt(
            daft.col("prompt"),
            model="gpt-5",
            provider="openai",
        ),
    )
    # Write to Parquet as the pipeline runs
    .write_parquet("output.parquet/", mode="overwrite")
)
"""
    prompts = [f"I want you to act as {role}." for role in ROLES]
    with running_hub() as hub:
        hub.repos["fka/awesome-chatgpt-prompts"] = {
            "main": {"data/train-0.parquet": parquet(act=ROLES, prompt=prompts)}
        }
        environment = {"HF_ENDPOINT": hub.url, "OPENAI_BASE_URL": server.openai_url, "OPENAI_API_KEY": "sk-sample"}
        run_sample_apart(sample, tmp_path, environment)

    rows = ps.read_parquet(str(tmp_path / "output.parquet")).to_pylist()
    assert {row["act"]: row["output"] for row in rows} == {r: f"Done: I want you to act as {r}." for r in ROLES}
    assert {(each.path, each.body["model"]) for each in server.requests} == {("/v1/responses", "gpt-5")}
    assert server.max_in_flight > 1  # without a word about it in the script


# --- Local text embedding with LM Studio ---


def test_embed_text_with_lm_studio(capsys: pytest.CaptureFixture[str]) -> None:
    sample = """
import daft
from daft.functions import embed_text

df = daft.from_pydict({"text": ["Hello, world!", "How is the weather?", None]})
df = df.with_column(
    "embedding",
    embed_text(
        daft.col("text"),
        provider="lm_studio",
        model="text-embedding-nomic-embed-text-v1.5",
    ),
)
df.show()
"""
    with ModelServer(dimensions=16) as studio:
        ps.set_provider("lm_studio", base_url=studio.openai_url)  # on its own port it needs no word
        df = run_sample(sample)["df"]
        assert "How is the weather?" in capsys.readouterr().out
        first, second, missing = df.to_pydict()["embedding"]
        models = {each.body["model"] for each in studio.requests}
        paths = {each.path for each in studio.requests}
    detach_providers()
    assert df.schema["embedding"].dtype == ps.DataType.embedding(ps.DataType.float32(), 16)
    assert first.shape == second.shape == (16,)
    assert not np.allclose(first, second)
    assert missing is None
    assert (models, paths) == ({"text-embedding-nomic-embed-text-v1.5"}, {"/v1/embeddings"})


# --- Scaling out on Ray ---


@pytest.mark.ray
def test_the_same_script_on_ray(server: ModelServer, ray_cluster: None) -> None:
    sample = """
import daft
daft.set_runner_ray()

from daft.functions import prompt

df = daft.from_pydict({"input": ["one", "two", "three"]})
df = df.with_column("output", prompt(daft.col("input"), model="gpt-5", provider="openai"))
"""
    ps.set_provider("openai", base_url=server.openai_url, api_key="sk-sample")
    try:
        assert run_sample(sample)["df"].to_pydict()["output"] == ["Done: one", "Done: two", "Done: three"]
    finally:
        ps.set_runner_local()
    assert server.num_requests == 3
