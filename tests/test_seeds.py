"""The samples of Daft's and Ray Data's documentation, with the import changed and small models of our own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict  # noqa: UP035 - as the samples have it

import numpy as np
import pytest
import torch
import torch.nn as nn

import penstock as daft
import penstock as ray_data
from penstock import DataType, Series


def pipeline(task: str, model: str) -> Any:
    """A stand-in for ``transformers.pipeline``: a linear layer over the letters of a text, made in the worker."""
    layer = nn.Linear(26, 2)
    with torch.no_grad():
        layer.weight.zero_()
        layer.weight[1, ord("g") - ord("a")] = 1.0  # good, amazing
        layer.weight[0, ord("w") - ord("a")] = 1.0  # worst
        layer.bias.zero_()

    def classify(text: str) -> list[dict[str, Any]]:
        counts = torch.tensor([[float(text.lower().count(chr(c))) for c in range(ord("a"), ord("z") + 1)]])
        with torch.inference_mode():
            label = ["NEGATIVE", "POSITIVE"][int(layer(counts).argmax(dim=-1))]
        return [{"label": label}]

    return classify


# --- @daft.cls ---


@daft.cls
class SentimentClassifier:
    def __init__(self):  # type: ignore[no-untyped-def]
        self.pipe = pipeline(
            "sentiment-analysis",
            model="distilbert-base-uncased-finetuned-sst-2-english",
        )

    def __call__(self, text: str) -> str:
        return self.pipe(text)[0]["label"]


def test_sentiment_classifier(capsys: pytest.CaptureFixture[str]) -> None:
    classifier = SentimentClassifier()

    df = daft.from_pydict({"review": [
        "This product is amazing",
        "Worst purchase I've ever made",
        "It's okay, nothing special",
    ]})  # fmt: skip
    df = df.select(classifier(df["review"]).alias("sentiment"))
    df.show()
    shown = capsys.readouterr().out
    assert "sentiment" in shown
    assert df.to_pydict() == {"sentiment": ["POSITIVE", "NEGATIVE", "POSITIVE"]}


@daft.cls
class TextEmbedder:
    def __init__(self, model_name: str = "Qwen/Qwen3-Embedding-0.6B"):
        torch.manual_seed(len(model_name))
        self.model = nn.EmbeddingBag(256, 4)
        if torch.cuda.is_available():
            self.model = self.model.to("cuda")

    @daft.method.batch(return_dtype=DataType.list(DataType.float32()))
    def embed(self, texts: Series) -> list:  # type: ignore[type-arg]
        text_list = texts.to_pylist()
        with torch.inference_mode():
            embeddings = torch.cat([self.model(torch.tensor([list(text.encode())])) for text in text_list]).numpy()
        return [row.tolist() for row in embeddings]


def test_text_embedder(capsys: pytest.CaptureFixture[str]) -> None:
    embedder = TextEmbedder()

    df = daft.from_pydict({"document": [
        "Daft distributes Python across a cluster",
        "Stateful UDFs amortize model initialization",
        "Batch processing maximizes GPU throughput",
    ]})  # fmt: skip
    df = df.select(embedder.embed(df["document"]).alias("embedding"))
    df.show()
    assert "embedding" in capsys.readouterr().out
    assert df.schema["embedding"].dtype == DataType.list(DataType.float32())
    vectors = df.to_pydict()["embedding"]
    assert [len(vector) for vector in vectors] == [4, 4, 4]
    assert vectors[0] != vectors[1]


class FakeOpenAI:
    """A client with the shape of ``openai.AsyncOpenAI`` that answers once two requests are waiting."""

    def __init__(self, api_key: str) -> None:
        assert api_key == "sk-test"
        asyncio.get_running_loop()  # as aiohttp and httpx ask for it
        self.chat = self.completions = self
        self._waiting = 0
        self._two = asyncio.Event()

    async def create(self, model: str, messages: list[dict[str, str]]) -> Any:
        self._waiting += 1
        if self._waiting == 2:
            self._two.set()
        await self._two.wait()
        message = type("Message", (), {"content": f"{model}: {messages[0]['content']}"})
        return type("Response", (), {"choices": [type("Choice", (), {"message": message})]})


@daft.cls
class APIInferenceClient:
    def __init__(self, api_key: str):
        self.client = FakeOpenAI(api_key=api_key)

    async def generate(self, prompt: str) -> str:
        response = await self.client.chat.completions.create(  # type: ignore[attr-defined]
            model="gpt-4o",
            messages=[{"role": "user", "content": prompt}],
        )
        return response.choices[0].message.content


def test_api_inference_client() -> None:
    client = APIInferenceClient("sk-test")
    df = daft.from_pydict({"prompt": ["one", "two", "three"]})
    df = df.with_column("answer", client.generate(daft.col("prompt")))
    assert df.to_pydict()["answer"] == ["gpt-4o: one", "gpt-4o: two", "gpt-4o: three"]


IMAGE_CLASSIFIER = """
import penstock as daft
import torch

def load_and_preprocess(image_path):
    return torch.full((1, 3), float(len(image_path)))

def decode_prediction(output):
    return ["even", "odd"][int(output.sum()) % 2]

@daft.cls(max_concurrency=4, use_process=True)
class ImageClassifier:
    def __init__(self, model_name: str):
        import torch
        self.model = {"identity": torch.nn.Identity()}[model_name]
        self.model.eval()

    def __call__(self, image_path: str) -> str:
        image = load_and_preprocess(image_path)
        with torch.no_grad():
            output = self.model(image)
        return decode_prediction(output)

df = daft.from_pydict({"path": ["a", "bb"]})
print(df.select(ImageClassifier("identity")(daft.col("path"))).to_pydict())
"""


def test_image_classifier_in_processes_from_a_plain_script(tmp_path: Path) -> None:
    script = tmp_path / "classify.py"
    script.write_text(IMAGE_CLASSIFIER)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=50)
    assert done.stdout == "{'path': ['odd', 'even']}\n", done.stderr


# --- ray.data ---


class TorchPredictor:
    def __init__(self) -> None:
        # Load a dummy neural network.
        # Set `self.model` to your pre-trained PyTorch model.
        self.model = nn.Sequential(
            nn.Linear(in_features=100, out_features=1),
            nn.Sigmoid(),
        )
        self.model.eval()

    # Logic for inference on 1 batch of data.
    def __call__(self, batch: Dict[str, np.ndarray]) -> Dict[str, np.ndarray]:  # noqa: UP006
        tensor = torch.as_tensor(batch["data"], dtype=torch.float32)
        with torch.inference_mode():
            # Get the predictions from the input batch.
            return {"output": self.model(tensor).numpy()}


def test_torch_predictor(capsys: pytest.CaptureFixture[str]) -> None:
    ds = ray_data.from_numpy(np.ones((1, 100)))
    predictions = ds.map_batches(TorchPredictor, compute=ray_data.ActorPoolStrategy(size=2))
    predictions.show(limit=1)
    assert "output" in capsys.readouterr().out
    (row,) = predictions.take_all()
    assert row["output"].shape == (1,)
    assert row["output"].dtype == np.float32
    assert 0 < row["output"][0] < 1


class TextPredictor:
    def __init__(self) -> None:
        self.model = lambda texts, **options: [[{"generated_text": text + " ..."}] for text in texts]

    def __call__(self, batch: Dict[str, np.ndarray]) -> Dict[str, list]:  # type: ignore[type-arg]  # noqa: UP006
        predictions = self.model(list(batch["data"]), max_length=20, num_return_sequences=1)
        batch["output"] = [sequences[0]["generated_text"] for sequences in predictions]
        return batch


def test_text_predictor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.runners.placement.available_cpus", lambda: 10)  # the sample asks for 2 x 5
    ds = ray_data.from_numpy(np.asarray(["Complete this", "for me"]))
    predictions = ds.map_batches(
        TextPredictor,
        num_cpus=5,
        batch_size=1,
        compute=ray_data.ActorPoolStrategy(size=2),
    )
    assert predictions.take_all() == [
        {"data": "Complete this", "output": "Complete this ..."},
        {"data": "for me", "output": "for me ..."},
    ]


def test_configuring_batch_size() -> None:
    ds = ray_data.from_numpy(np.ones((10, 100)))

    def assert_batch(batch: Dict[str, np.ndarray]):  # type: ignore[no-untyped-def]  # noqa: UP006
        assert len(batch["data"]) == 2
        return batch

    # Specify that each input batch should be of size 2.
    assert ds.map_batches(assert_batch, batch_size=2).count_rows() == 10


class Predictor:
    def __init__(self, model_path: str):
        self.model = torch.load(model_path, weights_only=False).eval()

    def __call__(self, batch):  # type: ignore[no-untyped-def]
        with torch.no_grad():
            x = torch.from_numpy(batch["features"])
            preds = self.model(x).argmax(dim=-1).cpu().numpy()
        return {**batch, "prediction": preds}


def test_read_predict_write(tmp_path: Path) -> None:
    model = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.eye(2))
    torch.save(model, tmp_path / "model.pt")
    features = np.array([[1, 0], [0, 1], [3, 2]], dtype=np.float32)
    daft.from_pydict({"features": features}).write_parquet(str(tmp_path / "inputs"))

    ds = ray_data.read_parquet(str(tmp_path / "inputs"))
    ds = ds.map_batches(
        Predictor,
        fn_constructor_args=(str(tmp_path / "model.pt"),),
        concurrency=4,
        batch_size=256,
    )
    ds.write_parquet(str(tmp_path / "outputs"))
    assert ray_data.read_parquet(str(tmp_path / "outputs")).to_pydict()["prediction"] == [0, 1, 0]


class LogisticRegression:
    def predict_proba(self, features: np.ndarray) -> np.ndarray:
        positive = 1 / (1 + np.exp(-features.sum(axis=1)))
        return np.stack([1 - positive, positive], axis=1)


def predict(batch, model):  # type: ignore[no-untyped-def]
    batch["pred"] = model.predict_proba(batch["features"])
    return batch


def test_tabular_model() -> None:
    model = LogisticRegression()
    ds = daft.from_pydict({"features": np.array([[0.0, 0.0], [50.0, 50.0]])})
    rows = ds.map_batches(predict, fn_kwargs={"model": model}, num_cpus=2, batch_size=10_000).take_all()
    assert [row["pred"].round(3).tolist() for row in rows] == [[0.5, 0.5], [0.0, 1.0]]


def test_multi_model_pipeline() -> None:
    class Detector:
        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            return {**batch, "boxes": [[n, n + 1] for n in batch["id"]]}

    class Classifier:
        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            return {**batch, "label": [f"{box[0]}-{box[1]}" for box in batch["boxes"]]}

    ds = ray_data.range(3)
    ds = ds.map_batches(Detector, concurrency=2)
    ds = ds.map_batches(Classifier, concurrency=2)
    assert [row["label"] for row in ds.take_all()] == ["0-1", "1-2", "2-3"]


# --- daft.File ---


class Pipeline:
    """A stand-in for the pipeline of ``faster_whisper``: a segment for each second of the sound in a file on disk."""

    def transcribe(self, path: str, vad_filter: bool, batch_size: int) -> tuple[Any, None]:
        seconds = Path(path).read_bytes()[3:]
        segments = [type("Segment", (), {"start": n, "end": n + 1, "text": chr(s)}) for n, s in enumerate(seconds)]
        return iter(segments), None


@daft.cls()
class FasterWhisperTranscriber:
    def __init__(self, model="distil-large-v3", compute_type="float32", device="auto"):  # type: ignore[no-untyped-def]
        self.pipe = Pipeline()

    @daft.method(return_dtype=daft.DataType.struct({
        "transcript": daft.DataType.string(),
        "segments": daft.DataType.list(daft.DataType.struct({
            "start": daft.DataType.float64(),
            "end": daft.DataType.float64(),
            "text": daft.DataType.string(),
        })),
    }))  # fmt: skip
    def transcribe(self, audio_file: daft.File):  # type: ignore[no-untyped-def]
        with audio_file.to_tempfile() as tmp:
            segments_iter, info = self.pipe.transcribe(  # noqa: RUF059 - as the sample has it
                str(tmp.name), vad_filter=True, batch_size=16
            )  # fmt: skip
            segments = [{"start": s.start, "end": s.end, "text": s.text}
                        for s in segments_iter]  # fmt: skip
            text = " ".join(seg["text"] for seg in segments)
            return {"transcript": text, "segments": segments}


def test_transcriber(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.mp3").write_bytes(b"ID3hi")
    transcriber = FasterWhisperTranscriber()
    df = daft.from_glob_path(f"{tmp_path}/*.mp3")
    df = df.with_column("result", transcriber.transcribe(daft.col("path")))
    df.show()
    assert "result" in capsys.readouterr().out
    assert df.to_pylist()[0]["result"] == {
        "transcript": "h i",
        "segments": [{"start": 0.0, "end": 1.0, "text": "h"}, {"start": 1.0, "end": 2.0, "text": "i"}],
    }
