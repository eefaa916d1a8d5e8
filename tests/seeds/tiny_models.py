"""Small models in the file formats of large ones: written to a folder, then loaded by the samples' own calls.

They have a few thousand weights each, random but for the classifier of sentiments, which is taught its three reviews.
Nothing is downloaded. torchvision and faster-whisper have no place in a test environment without a GPU, so this file
has what the samples use of them: ``resnet50``, ``WhisperModel`` and ``BatchedInferencePipeline``, with the same calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
"""What the samples call "cuda"."""

GPUS = 1 if DEVICE == "cuda" else 0
"""What the samples ask for as ``gpus=1`` and ``num_gpus=1``."""

REVIEWS = {
    "This product is amazing": "POSITIVE",
    "Worst purchase I've ever made": "NEGATIVE",
    "It's okay, nothing special": "POSITIVE",
}


# --- text ---


def save_sentiment_classifier(folder: Path) -> None:
    """Write a DistilBERT that knows the three reviews, as ``pipeline("sentiment-analysis")`` loads it."""
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    torch.manual_seed(0)
    tokenizer = _word_tokenizer(REVIEWS)
    labels = ["NEGATIVE", "POSITIVE"]
    config = DistilBertConfig(
        vocab_size=len(tokenizer), dim=16, hidden_dim=32, n_layers=1, n_heads=2, max_position_embeddings=32,
        dropout=0.0, id2label=dict(enumerate(labels)), label2id={label: i for i, label in enumerate(labels)},
    )  # fmt: skip
    model = DistilBertForSequenceClassification(config)
    wanted = torch.tensor([labels.index(label) for label in REVIEWS.values()])
    batch = tokenizer(list(REVIEWS), padding=True, return_tensors="pt")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(40):
        optimizer.zero_grad()
        model(**batch, labels=wanted).loss.backward()
        optimizer.step()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


DOCUMENTS = [
    "Daft distributes Python across a cluster",
    "Stateful UDFs amortize model initialization",
    "Batch processing maximizes GPU throughput",
]


def save_text_embedder(folder: Path) -> None:
    """Write a BERT with mean pooling that knows the words of the documents, as ``SentenceTransformer`` loads it."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    tokenizer = _word_tokenizer(DOCUMENTS)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=32,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder / "bert")
    tokenizer.save_pretrained(folder / "bert")
    words = Transformer(str(folder / "bert"))
    SentenceTransformer(modules=[words, Pooling(config.hidden_size)], device="cpu").save(str(folder))


def save_gpt2(folder: Path) -> None:
    """Write a GPT-2 over bytes, as ``pipeline("text-generation")`` loads it."""
    from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    tokenizer = _byte_tokenizer()
    end = tokenizer.eos_token_id
    config = GPT2Config(
        vocab_size=len(tokenizer), n_positions=64, n_embd=16, n_layer=1, n_head=2, bos_token_id=end, eos_token_id=end,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)
    model.generation_config = GenerationConfig(do_sample=False, bos_token_id=end, eos_token_id=end, pad_token_id=end)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _word_tokenizer(texts: Iterable[str]) -> Any:
    """Return BERT's tokenizer with the words of these texts."""
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from transformers import BertTokenizerFast

    words = {
        word
        for text in texts
        for word, _ in BertPreTokenizer().pre_tokenize_str(BertNormalizer(lowercase=True).normalize_str(text))
    }
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(words)]
    return BertTokenizerFast(vocab={name: i for i, name in enumerate(names)})


def _byte_tokenizer() -> Any:
    """Return GPT-2's tokenizer without merges: one token a byte."""
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import GPT2TokenizerFast

    names = [*sorted(ByteLevel.alphabet()), "<|endoftext|>"]
    return GPT2TokenizerFast(vocab={name: i for i, name in enumerate(names)}, merges=[])


# --- audio ---

SAMPLE_RATE = 16_000


def save_whisper(folder: Path) -> None:
    """Write a Whisper that hears English alone, as ``pipeline("automatic-speech-recognition")`` loads it."""
    from transformers import (
        GenerationConfig,
        WhisperConfig,
        WhisperFeatureExtractor,
        WhisperForConditionalGeneration,
        WhisperTokenizer,
    )

    torch.manual_seed(0)
    letters = [*"abcdefghijklmnopqrstuvwxyz", "Ġ"]  # the last is how a space is written in the vocabulary
    special = ["<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>"]
    times = [f"<|{step * 0.02:.2f}|>" for step in range(1501)]  # Whisper hears 30 seconds at once
    vocab = {name: i for i, name in enumerate([*letters, *special[:1]])}
    tokenizer = WhisperTokenizer(vocab=vocab, merges=[], pad_token=special[0])
    tokenizer.add_special_tokens({"additional_special_tokens": special[1:]})
    tokenizer.add_tokens(times)
    end, start, no_times = tokenizer.convert_tokens_to_ids(special)
    config = WhisperConfig(
        vocab_size=len(tokenizer), num_mel_bins=80, d_model=16, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32,
        max_target_positions=64, init_std=0.3,
        bos_token_id=end, eos_token_id=end, pad_token_id=end, decoder_start_token_id=start,
    )  # fmt: skip
    model = WhisperForConditionalGeneration(config)
    model.generation_config = GenerationConfig(
        max_length=24, bos_token_id=end, eos_token_id=end, pad_token_id=end, decoder_start_token_id=start,
        no_timestamps_token_id=no_times, is_multilingual=False,
    )  # fmt: skip
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    WhisperFeatureExtractor().save_pretrained(folder)


@dataclass(frozen=True, slots=True)
class Segment:
    start: float
    end: float
    text: str


class WhisperModel:
    """In the place of ``faster_whisper.WhisperModel``: the model in a folder, by transformers."""

    def __init__(self, model: str, compute_type: str = "float32", device: str = "auto") -> None:
        from transformers import pipeline

        device = DEVICE if device == "auto" else device
        self.pipe = pipeline("automatic-speech-recognition", model=model, dtype=compute_type, device=device)


class BatchedInferencePipeline:
    """In the place of ``faster_whisper.BatchedInferencePipeline``; hears silence as well, so that it needs no VAD."""

    def __init__(self, model: WhisperModel) -> None:
        self._pipe = model.pipe

    def transcribe(self, path: str, vad_filter: bool, batch_size: int) -> tuple[Iterator[Segment], dict[str, Any]]:
        import soundfile

        samples, rate = soundfile.read(path, dtype="float32")
        heard = self._pipe({"raw": samples, "sampling_rate": rate}, return_timestamps=True, batch_size=batch_size)
        seconds = len(samples) / rate
        segments = (
            Segment(
                chunk["timestamp"][0],
                seconds if chunk["timestamp"][1] is None else chunk["timestamp"][1],
                chunk["text"],
            )
            for chunk in heard["chunks"]
        )
        return segments, {"duration": seconds}


# --- images ---


class ResNet(nn.Module):
    """A residual network with one block: images of 3 channels and any size in, one number a class out."""

    def __init__(self, num_classes: int = 10, num_channels: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, num_channels, kernel_size=7, stride=4)
        self.block = nn.Sequential(
            nn.Conv2d(num_channels, num_channels, kernel_size=3, padding=1), nn.BatchNorm2d(num_channels), nn.ReLU()
        )
        self.fc = nn.Linear(num_channels, num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(images))
        return self.fc((x + self.block(x)).mean(dim=(2, 3)))


def resnet50(weights: str) -> ResNet:
    """In the place of ``torchvision.models.resnet50``: a small one, with the weights in a file."""
    model = ResNet()
    model.load_state_dict(torch.load(weights))
    return model


def save_resnet(path: Path) -> None:
    """Write weights for ``resnet50`` that tell colours apart: each class is a random mix of red, green and blue."""
    torch.manual_seed(0)
    model = ResNet()
    with torch.no_grad():
        model.stem.bias.zero_()
        model.stem.weight.copy_(torch.randn(8, 3, 1, 1).expand(8, 3, 7, 7) / 49)
        model.fc.bias.zero_()
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), path)


HUBCONF = """
from tests.seeds import tiny_models

dependencies = ["torch"]


def resnet50(pretrained=False):
    return tiny_models.resnet50(weights=WEIGHTS) if pretrained else tiny_models.ResNet()
"""


def save_hub(folder: Path) -> None:
    """Write a folder that ``torch.hub.load(folder, "resnet50", source="local")`` takes for pytorch/vision."""
    save_resnet(folder / "resnet50.pt")
    (folder / "hubconf.py").write_text(f"WEIGHTS = {str(folder / 'resnet50.pt')!r}\n{HUBCONF}")


COLOURS = {"red": (220, 30, 30), "green": (30, 220, 30), "blue": (30, 30, 220), "grey": (128, 128, 128)}


def save_images(folder: Path, size: tuple[int, int] = (40, 30)) -> list[str]:
    """Write one JPEG a colour, and return their paths in the order of their names."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    for name, colour in COLOURS.items():
        Image.new("RGB", size, colour).save(folder / f"{name}.jpg")
    return sorted(str(path) for path in folder.iterdir())


def read_image(path: str, size: tuple[int, int]) -> np.ndarray:
    """Return an image as an array of (height, width, 3) bytes."""
    from PIL import Image

    with Image.open(path) as image:
        return np.asarray(image.convert("RGB").resize(size))
