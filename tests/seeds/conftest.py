"""The models of the samples, written once a session."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = (
    "1"  # read when huggingface_hub is imported: what a test does not write itself is missing
)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a folder or a file for each model."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def sentiment_model(models: Path) -> str:
    from tests.seeds.tiny_models import save_sentiment_classifier

    save_sentiment_classifier(models / "distilbert")
    return str(models / "distilbert")


@pytest.fixture(scope="session")
def whisper_model(models: Path) -> str:
    from tests.seeds.tiny_models import save_whisper

    save_whisper(models / "whisper")
    return str(models / "whisper")


@pytest.fixture(scope="session")
def embedding_model(models: Path) -> str:
    from tests.seeds.tiny_models import save_text_embedder

    save_text_embedder(models / "embedder")
    return str(models / "embedder")


@pytest.fixture(scope="session")
def gpt2(models: Path) -> str:
    from tests.seeds.tiny_models import save_gpt2

    save_gpt2(models / "gpt2")
    return str(models / "gpt2")


@pytest.fixture(scope="session")
def resnet_weights(models: Path) -> str:
    from tests.seeds.tiny_models import save_resnet

    save_resnet(models / "resnet50.pt")
    return str(models / "resnet50.pt")


@pytest.fixture(scope="session")
def vision_hub(models: Path) -> str:
    from tests.seeds.tiny_models import save_hub

    save_hub(models / "vision")
    return str(models / "vision")


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of JPEG files, one a colour."""
    from tests.seeds.tiny_models import save_images

    folder = tmp_path_factory.mktemp("images")
    save_images(folder)
    return folder
