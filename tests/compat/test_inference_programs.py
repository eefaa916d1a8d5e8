"""Programs of batch inference as users of Daft and Ray Data write them, with only the import lines changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock.compat.daft as daft
import penstock.compat.ray as ray
from penstock.ai.provider_registry import detach_providers
from penstock.compat.daft import DataType, Series, col
from penstock.compat.daft.functions import format, prompt
from penstock.compat.ray.data.llm import HttpRequestProcessorConfig, build_processor, vLLMEngineProcessorConfig
from penstock.testing import ModelServer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    with ModelServer(answer=lambda request: request.text.upper(), in_thread=True) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("PENSTOCK_VLLM_BASE_URL", server.openai_url)
        yield server
    detach_providers()


def test_daft_asks_a_model_and_writes_the_answers(server: ModelServer, tmp_path: Path) -> None:
    out = str(tmp_path / "answers")
    df = daft.from_pydict({"animal": ["otter", "heron"]})
    df = df.with_column("answer", prompt(format("name: {}", col("animal")), provider="openai", model="any"))
    df.write_parquet(out, write_mode="overwrite")
    assert daft.read_parquet(out).sort(col("animal"), desc=True).to_pydict() == {
        "animal": ["otter", "heron"],
        "answer": ["NAME: OTTER", "NAME: HERON"],
    }


def test_daft_runs_a_class_over_rows_batches_and_files(tmp_path: Path) -> None:
    @daft.cls(max_concurrency=1)
    class Scorer:
        def __init__(self, weight: float = 2.0) -> None:
            self.weight = weight

        @daft.method(return_dtype=DataType.struct({"size": DataType.int64(), "kind": DataType.string()}))
        def describe(self, file: daft.File) -> dict[str, Any]:
            with file.to_tempfile() as copy:
                return {"size": len(copy.read()), "kind": file.mime_type()}

        @daft.method.batch(return_dtype=DataType.list(DataType.float32()), batch_size=2)
        def embed(self, sizes: Series) -> list[list[float]]:
            return [[size * self.weight] for size in sizes.to_pylist()]

    for number in (1, 2, 3):
        (tmp_path / f"{number}.txt").write_text("x" * number)
    scorer = Scorer(weight=0.5)
    df = daft.from_glob_path(f"{tmp_path}/*.txt").with_column("about", scorer.describe(col("path")))
    df = df.select(col("about")["*"]).with_column("vector", scorer.embed(col("size"))).sort("size")
    assert df.to_pydict() == {
        "size": [1, 2, 3],
        "kind": ["text/plain"] * 3,
        "vector": [[0.5], [1.0], [1.5]],
    }


def test_ray_data_runs_a_predictor_on_actors(capsys: pytest.CaptureFixture[str]) -> None:
    class Predictor:
        def __init__(self, bias: float) -> None:
            self.bias = bias

        def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            return {"score": batch["data"].sum(axis=1) + self.bias}

    ds = ray.data.from_numpy(np.ones((5, 3)))
    scores = ds.map_batches(
        Predictor, fn_constructor_args=[1.0], batch_size=2, num_cpus=1, compute=ray.data.ActorPoolStrategy(size=2)
    )
    scores.show(limit=1)
    assert capsys.readouterr().out == "{'score': 4.0}\n"
    assert scores.sum("score") == 20


def test_ray_data_runs_processors(server: ModelServer) -> None:
    ds = ray.data.from_items(["snow", "rain"])
    engine = build_processor(
        vLLMEngineProcessorConfig(model_source="any", engine_kwargs={"max_model_len": 64}, concurrency=1, batch_size=2),
        preprocess=lambda row: {
            "messages": [{"role": "user", "content": row["item"]}],
            "sampling_params": {"temperature": 0.0, "max_tokens": 8},
        },
        postprocess=lambda row: {"answer": row["generated_text"]},
    )
    assert engine(ds).take_all() == [{"answer": "SNOW"}, {"answer": "RAIN"}]
    requests = build_processor(
        HttpRequestProcessorConfig(url=f"{server.openai_url}/chat/completions", qps=100),
        preprocess=lambda row: {
            "payload": {"model": "any", "messages": [{"role": "user", "content": row["item"]}]},
        },
        postprocess=lambda row: {"answer": row["http_response"]["choices"][0]["message"]["content"]},
    )
    assert requests(ds).take_all() == [{"answer": "SNOW"}, {"answer": "RAIN"}]
