"""The samples of Ray Data's guide to offline batch inference, with the import changed and a small GPT-2.

Left out: TensorFlow, whose samples are the PyTorch ones with another model. vLLM is not installed: its sample asks a
server that PENSTOCK_VLLM_BASE_URL names. ``num_gpus=1`` and "cuda" stand for what the machine has: without a GPU they
are 0 and "cpu".
"""
# ruff: noqa: UP006, UP035 - type hints as the samples have them

from __future__ import annotations

from typing import Dict

import numpy as np
import pytest
import torch
import torch.nn as nn

import penstock as ray_data
from penstock.errors import MissingExtraError
from penstock.testing import ModelServer
from tests.seeds.samples import run_sample
from tests.seeds.tiny_models import DEVICE, GPUS

pytestmark = [
    # Batches are views, as they are in Ray Data; torch says once that a tensor made of one must not be written to.
    pytest.mark.filterwarnings("ignore:The given NumPy array is not writable"),
]

NUM_ACTORS = 1 if GPUS else 2  # of the samples that give each actor a GPU


# --- Quickstart ---


class HuggingFacePredictor:
    def __init__(self, model: str = "gpt2", device: str = "cpu"):
        from transformers import pipeline

        # Initialize a pre-trained GPT2 Huggingface pipeline.
        self.model = pipeline("text-generation", model=model, device=device)

    # Logic for inference on 1 batch of data.
    def __call__(self, batch: Dict[str, np.ndarray]) -> Dict[str, list]:
        # Get the predictions from the input batch.
        predictions = self.model(list(batch["data"]), max_length=20, num_return_sequences=1)
        # `predictions` is a list of length-one lists. For example:
        # [[{'generated_text': 'output_1'}], ..., [{'generated_text': 'output_2'}]]
        # Modify the output to get it into the following format instead:
        # ['output_1', 'output_2']
        batch["output"] = [sequences[0]["generated_text"] for sequences in predictions]
        return batch


def check_completions(predictions: ray_data.DataFrame, gpt2: str) -> None:
    rows = predictions.take_all()
    assert [row["data"] for row in rows] == ["Complete this", "for me"]
    direct = HuggingFacePredictor(gpt2)({"data": np.asarray(["Complete this", "for me"])})
    assert [row["output"] for row in rows] == direct["output"]
    assert all(row["output"].startswith(row["data"]) and row["output"] != row["data"] for row in rows)


def test_huggingface(gpt2: str, capsys: pytest.CaptureFixture[str]) -> None:
    # Step 1: Create a Ray Dataset from in-memory Numpy arrays.
    ds = ray_data.from_numpy(np.asarray(["Complete this", "for me"]))
    # Step 2: Map the Predictor over the Dataset to get predictions.
    # Use 2 parallel actors for inference.
    predictions = ds.map_batches(
        HuggingFacePredictor, fn_constructor_args=(gpt2,), compute=ray_data.ActorPoolStrategy(size=2)
    )
    # Step 3: Show one prediction output.
    predictions.show(limit=1)
    assert "Complete this" in capsys.readouterr().out
    check_completions(predictions, gpt2)


class TorchPredictor:
    def __init__(self):
        # Load a dummy neural network.
        # Set `self.model` to your pre-trained PyTorch model.
        self.model = nn.Sequential(
            nn.Linear(in_features=100, out_features=1),
            nn.Sigmoid(),
        )
        self.model.eval()

    # Logic for inference on 1 batch of data.
    def __call__(self, batch: Dict[str, np.ndarray]) -> Dict[str, np.ndarray]:
        tensor = torch.as_tensor(batch["data"], dtype=torch.float32)
        with torch.inference_mode():
            # Get the predictions from the input batch.
            return {"output": self.model(tensor).numpy()}


def check_output(predictions: ray_data.DataFrame) -> None:
    (row,) = predictions.take_all()
    assert list(row) == ["output"]
    assert row["output"].shape == (1,)
    assert row["output"].dtype == np.float32
    assert 0 < row["output"][0] < 1


def test_pytorch(capsys: pytest.CaptureFixture[str]) -> None:
    ds = ray_data.from_numpy(np.ones((1, 100)))
    predictions = ds.map_batches(TorchPredictor, compute=ray_data.ActorPoolStrategy(size=2))
    predictions.show(limit=1)
    assert "output" in capsys.readouterr().out
    check_output(predictions)


LLM_INFERENCE = """
import ray
from ray.data.llm import vLLMEngineProcessorConfig, build_processor
import numpy as np

config = vLLMEngineProcessorConfig(
    model="unsloth/Llama-3.1-8B-Instruct",
    engine_kwargs={
        "enable_chunked_prefill": True,
        "max_num_batched_tokens": 4096,
        "max_model_len": 16384,
    },
    concurrency=1,
    batch_size=64,
)
processor = build_processor(
    config,
    preprocess=lambda row: dict(
        messages=[
            {"role": "system", "content": "You are a bot that responds with haikus."},
            {"role": "user", "content": row["item"]}
        ],
        sampling_params=dict(
            temperature=0.3,
            max_tokens=250,
        )
    ),
    postprocess=lambda row: dict(
        answer=row["generated_text"]
    ),
)

ds = ray.data.from_items(["Start of the haiku is: Complete this for me..."])

ds = processor(ds)
ds.show(limit=1)
"""


def test_llm_inference(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with ModelServer(answer=lambda request: "Snowflakes gently fall", in_thread=True) as vllm:
        monkeypatch.setenv("PENSTOCK_VLLM_BASE_URL", vllm.openai_url)
        ds = run_sample(LLM_INFERENCE)["ds"]
        assert "Snowflakes gently fall" in capsys.readouterr().out
        assert ds.take_all() == [{"answer": "Snowflakes gently fall"}]
        assert [(each.path, each.body) for each in vllm.requests[1:]] == [
            (
                "/v1/chat/completions",
                {
                    "model": "unsloth/Llama-3.1-8B-Instruct",
                    "messages": [
                        {"role": "system", "content": "You are a bot that responds with haikus."},
                        {"role": "user", "content": "Start of the haiku is: Complete this for me..."},
                    ],
                    "temperature": 0.3,
                    "max_tokens": 250,
                },
            )
        ]


def test_llm_inference_needs_vllm() -> None:
    with pytest.raises(MissingExtraError, match=r"no server at base_url= needs 'vllm'.*penstock\[vllm\]"):
        run_sample(LLM_INFERENCE)


# --- Using GPUs for inference ---


def test_huggingface_on_gpus(gpt2: str) -> None:
    ds = ray_data.from_numpy(np.asarray(["Complete this", "for me"]))

    # Use 2 actors, each actor using 1 GPU. 2 GPUs total.
    predictions = ds.map_batches(
        HuggingFacePredictor,
        fn_constructor_kwargs={"model": gpt2, "device": f"{DEVICE}:0"},
        num_gpus=GPUS,
        # Specify the batch size for inference.
        # Increase this for larger datasets.
        batch_size=1,
        # Set the concurrency to the number of GPUs in your cluster.
        compute=ray_data.ActorPoolStrategy(size=NUM_ACTORS),
    )
    check_completions(predictions, gpt2)


class TorchPredictorOnDevice:
    def __init__(self):
        # Move the neural network to GPU device by specifying "cuda".
        self.model = nn.Sequential(
            nn.Linear(in_features=100, out_features=1),
            nn.Sigmoid(),
        ).to(DEVICE)
        self.model.eval()

    def __call__(self, batch: Dict[str, np.ndarray]) -> Dict[str, np.ndarray]:
        # Move the input batch to GPU device by specifying "cuda".
        tensor = torch.as_tensor(batch["data"], dtype=torch.float32, device=DEVICE)
        with torch.inference_mode():
            # Move the prediction output back to CPU before returning.
            return {"output": self.model(tensor).cpu().numpy()}


def test_pytorch_on_gpus() -> None:
    ds = ray_data.from_numpy(np.ones((1, 100)))

    # Use 2 actors, each actor using 1 GPU. 2 GPUs total.
    predictions = ds.map_batches(
        TorchPredictorOnDevice,
        num_gpus=GPUS,
        batch_size=1,
        compute=ray_data.ActorPoolStrategy(size=NUM_ACTORS),
    )
    check_output(predictions)


# --- Configuring Batch Size ---


def test_batch_size() -> None:
    ds = ray_data.from_numpy(np.ones((10, 100)))

    def assert_batch(batch: Dict[str, np.ndarray]):
        assert len(batch["data"]) == 2  # the sample, which is never run, counts the columns
        return batch

    # Specify that each input batch should be of size 2.
    ds = ds.map_batches(assert_batch, batch_size=2)
    assert ds.count_rows() == 10


# --- Handling CPU out-of-memory failures ---


def test_at_most_as_many_actors_as_the_cpus_allow(gpt2: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.runners.placement.available_cpus", lambda: 4 * 16)  # the sample's cluster
    ds = ray_data.from_numpy(np.asarray(["Complete this", "for me"]))

    predictions = ds.map_batches(
        HuggingFacePredictor,
        fn_constructor_args=(gpt2,),
        # Require 5 CPUs per actor (so at most 3 can fit per 16 CPU node).
        num_cpus=5,
        # 3 actors per node, with 4 nodes in the cluster means concurrency of 12.
        compute=ray_data.ActorPoolStrategy(size=12),
    )
    check_completions(predictions, gpt2)


def test_models_loaded_by_several_actors_at_the_same_time(gpt2: str) -> None:
    """Loading a model of transformers changes settings of the whole process for a while; twelve at once stay apart."""
    texts = [f"text {n}" for n in range(24)]
    ds = ray_data.from_numpy(np.asarray(texts))
    ds = ds.map_batches(
        HuggingFacePredictor,
        fn_constructor_args=(gpt2,),
        batch_size=1,
        compute=ray_data.ActorPoolStrategy(size=12),
    )
    direct = HuggingFacePredictor(gpt2)({"data": np.asarray(texts)})
    assert [row["output"] for row in ds.take_all()] == direct["output"]
