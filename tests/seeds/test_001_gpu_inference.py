"""The samples of "GPU Inference with @daft.cls", with the import changed and small models in the place of large ones.

``gpus=1`` and "cuda" stand for what the machine has: without a GPU they are 0 and "cpu".
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import penstock as daft
from penstock import DataType, Series
from tests.seeds.chat_server import ChatServer
from tests.seeds.tiny_models import (
    DEVICE,
    DOCUMENTS,
    GPUS,
    REVIEWS,
    SAMPLE_RATE,
    BatchedInferencePipeline,
    WhisperModel,
    read_image,
)

# --- Load a Model and Run It ---


def test_sentiment_classifier(sentiment_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    from transformers import pipeline

    @daft.cls
    class SentimentClassifier:
        def __init__(self):
            self.pipe = pipeline(
                "sentiment-analysis",
                model=sentiment_model,  # for "distilbert-base-uncased-finetuned-sst-2-english"
            )

        def __call__(self, text: str) -> str:
            return self.pipe(text)[0]["label"]

    classifier = SentimentClassifier()

    df = daft.from_pydict({"review": [
        "This product is amazing",
        "Worst purchase I've ever made",
        "It's okay, nothing special",
    ]})  # fmt: skip
    df = df.select(classifier(df["review"]).alias("sentiment"))
    df.show()
    assert "NEGATIVE" in capsys.readouterr().out
    assert df.to_pydict() == {"sentiment": list(REVIEWS.values())}


# --- Real Inference: Transcription with Faster-Whisper ---


@daft.cls()
class FasterWhisperTranscriber:
    def __init__(self, model="distil-large-v3", compute_type="float32", device="auto"):
        self.model = WhisperModel(model, compute_type=compute_type, device=device)
        self.pipe = BatchedInferencePipeline(self.model)

    @daft.method(return_dtype=daft.DataType.struct({
        "transcript": daft.DataType.string(),
        "segments": daft.DataType.list(daft.DataType.struct({
            "start": daft.DataType.float64(),
            "end": daft.DataType.float64(),
            "text": daft.DataType.string(),
        })),
    }))  # fmt: skip
    def transcribe(self, audio_file: str):  # the sample takes a `daft.File` and opens it by `to_tempfile()`
        segments_iter, _info = self.pipe.transcribe(audio_file, vad_filter=True, batch_size=16)
        segments = [{"start": s.start, "end": s.end, "text": s.text} for s in segments_iter]
        text = " ".join(seg["text"] for seg in segments)
        return {"transcript": text, "segments": segments}


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    """A folder with two seconds of sound: a low tone and a high one."""
    import soundfile

    seconds = np.arange(SAMPLE_RATE) / SAMPLE_RATE
    for name, hertz in {"low": 220, "high": 880}.items():
        tone = np.sin(2 * np.pi * hertz * seconds).astype(np.float32)
        soundfile.write(tmp_path / f"{name}.mp3", tone, SAMPLE_RATE)
    return tmp_path


def test_faster_whisper_transcriber(whisper_model: str, recordings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    transcriber = FasterWhisperTranscriber(whisper_model)
    df = daft.from_glob_path(f"{recordings}/*.mp3")
    df = df.with_column("result", transcriber.transcribe(daft.col("path")))
    df.show()
    assert "transcript" in capsys.readouterr().out

    results = df.to_pydict()["result"]
    high, low = (transcriber.transcribe(str(recordings / f"{name}.mp3")) for name in ("high", "low"))
    assert results == [high, low]
    assert high["transcript"] != low["transcript"]
    assert all(segment["start"] <= segment["end"] for segment in high["segments"])


# --- Batch Embeddings with @daft.method.batch ---


@daft.cls
class TextEmbedder:
    def __init__(self, model_name: str = "Qwen/Qwen3-Embedding-0.6B"):
        import torch
        from sentence_transformers import SentenceTransformer

        self.model = SentenceTransformer(model_name)
        if torch.cuda.is_available():
            self.model = self.model.to("cuda")

    @daft.method.batch(return_dtype=DataType.list(DataType.float32()))
    def embed(self, texts: Series) -> list:
        text_list = texts.to_pylist()
        embeddings = self.model.encode(text_list, convert_to_numpy=True)
        return [row.tolist() for row in embeddings]


def test_text_embedder(embedding_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    from sentence_transformers import SentenceTransformer

    embedder = TextEmbedder(embedding_model)

    df = daft.from_pydict({"document": [
        "Daft distributes Python across a cluster",
        "Stateful UDFs amortize model initialization",
        "Batch processing maximizes GPU throughput",
    ]})  # fmt: skip
    df = df.select(embedder.embed(df["document"]).alias("embedding"))
    df.show()
    assert "embedding" in capsys.readouterr().out
    assert df.schema["embedding"].dtype == DataType.list(DataType.float32())

    vectors = np.array(df.to_pydict()["embedding"])
    np.testing.assert_allclose(vectors, SentenceTransformer(embedding_model).encode(DOCUMENTS), rtol=1e-5, atol=1e-6)
    assert len(np.unique(vectors.round(3), axis=0)) == len(DOCUMENTS)


# --- GPU Allocation and Concurrency ---


def load_and_preprocess(image_path: str) -> torch.Tensor:
    pixels = torch.from_numpy(read_image(image_path, size=(64, 64)).copy())
    return pixels.permute(2, 0, 1).float().unsqueeze(0) / 255.0


def decode_prediction(output: torch.Tensor) -> str:
    return f"class {int(output.argmax())}"


@daft.cls(
    gpus=GPUS,
    max_concurrency=4,
    use_process=True,
)
class ImageClassifier:
    def __init__(self, hub: str, model_name: str):
        import torch

        # A folder in the place of the repository "pytorch/vision"; torch has one loader for both.
        self.model = torch.hub.load(hub, model_name, source="local", pretrained=True)
        self.model.to(DEVICE).eval()

    def __call__(self, image_path: str) -> str:
        image = load_and_preprocess(image_path)
        with torch.no_grad():
            output = self.model(image.to(DEVICE))
        return decode_prediction(output)


def test_image_classifier(vision_hub: str, images: Path) -> None:
    classify = ImageClassifier(vision_hub, "resnet50")
    df = daft.from_glob_path(f"{images}/*.jpg")
    df = df.select("path", classify(daft.col("path")).alias("prediction"))
    rows = df.to_pylist()
    assert [Path(row["path"]).stem for row in rows] == ["blue", "green", "grey", "red"]
    assert [row["prediction"] for row in rows] == [classify(row["path"]) for row in rows]
    assert len({row["prediction"] for row in rows}) > 1


# --- Production Patterns: into_batches() and repartition() before the UDF stage ---


@pytest.mark.parametrize("layout", ["into_batches", "repartition"])
def test_batches_are_evened_out_before_the_model(embedding_model: str, layout: str) -> None:
    embedder = TextEmbedder(embedding_model)
    df = daft.from_pydict({"document": DOCUMENTS * 4})
    df = df.into_batches(2) if layout == "into_batches" else df.repartition(6)
    df = df.with_column("embedding", embedder.embed(daft.col("document")))
    rows = df.to_pylist()
    assert [row["document"] for row in rows] == DOCUMENTS * 4
    np.testing.assert_allclose(rows[0]["embedding"], rows[-3]["embedding"], rtol=1e-5, atol=1e-6)


# --- Choosing Your Configuration ---


@pytest.mark.parametrize(
    "options",
    [
        {"gpus": GPUS, "max_concurrency": 1},
        {"gpus": GPUS, "max_concurrency": 1, "use_process": True},
    ],
    ids=["embedding or classification", "large language model or transcription"],
)
def test_configurations(options: dict[str, float]) -> None:
    @daft.cls(**options)
    class Scorer:
        def __init__(self):
            self.model = torch.nn.Identity().to(DEVICE)

        @daft.method.batch(return_dtype=DataType.float32(), batch_size=16)
        def score(self, x: Series) -> torch.Tensor:
            return self.model(x.to_torch().float().to(DEVICE)).cpu()

    df = daft.range(40)
    assert df.select(Scorer().score(daft.col("id"))).to_pydict() == {"id": [float(n) for n in range(40)]}


@daft.cls
class APIInferenceClient:
    def __init__(self, api_key: str):
        import openai

        self.client = openai.AsyncOpenAI(api_key=api_key)  # the sample has OpenAI, whose answers cannot be awaited

    async def generate(self, prompt: str) -> str:
        response = await self.client.chat.completions.create(
            model="gpt-4o",
            messages=[{"role": "user", "content": prompt}],
        )
        return response.choices[0].message.content


@pytest.fixture
def chat_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    with ChatServer(api_key="sk-test") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        yield server


def test_api_inference_client(chat_server: ChatServer) -> None:
    client = APIInferenceClient("sk-test")
    prompts = [f"question {n}" for n in range(20)]
    df = daft.from_pydict({"prompt": prompts})
    df = df.with_column("answer", client.generate(daft.col("prompt")))
    assert df.to_pydict()["answer"] == [f"gpt-4o: {prompt}" for prompt in prompts]
    assert sorted(chat_server.prompts) == sorted(prompts)  # each asked once
