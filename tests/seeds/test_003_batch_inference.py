"""The samples of Ray Data's page on batch inference, with the import changed and small models for large ones.

``num_gpus=1`` and ``.cuda()`` stand for what the machine has: without a GPU they are 0 and the CPU. Buckets are
folders. Four workers with a GPU each need four GPUs, so on a machine with one the samples' ``concurrency`` is 1.
"""

from __future__ import annotations

from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import penstock as ray_data
from tests.seeds import tiny_models
from tests.seeds.tiny_models import COLOURS, DEVICE, GPUS, read_image

REPLICAS = 1 if GPUS else 4

# Batches are views, as they are in Ray Data; torch says once that a tensor made of one must not be written to.
pytestmark = pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")

# --- Pattern ---


class Predictor:
    def __init__(self, model_path: str):
        import torch

        # A whole model, not its weights alone: since torch 2.6 one says that the file is trusted.
        self.model = torch.load(model_path, weights_only=False).to(DEVICE).eval()

    def __call__(self, batch):
        import torch

        with torch.no_grad():
            x = torch.from_numpy(batch["features"]).to(DEVICE)
            preds = self.model(x).argmax(dim=-1).cpu().numpy()
        return {**batch, "prediction": preds}


def save_largest_of(path: Path, num_features: int) -> str:
    """Write a model whose prediction is the place of the largest feature."""
    model = nn.Linear(num_features, num_features, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.eye(num_features))
    torch.save(model, path)
    return str(path)


def test_pattern(tmp_path: Path) -> None:
    model_path = save_largest_of(tmp_path / "model.pt", num_features=5)
    features = np.random.default_rng(0).random((1000, 5), dtype=np.float32)
    ray_data.from_pydict({"id": np.arange(1000), "features": features}).write_parquet(f"{tmp_path}/inputs/")

    ds = ray_data.read_parquet(f"{tmp_path}/inputs/")
    ds = ds.map_batches(
        Predictor,
        fn_constructor_args=(model_path,),
        concurrency=REPLICAS,
        num_gpus=GPUS,
        batch_size=256,
    )
    ds.write_parquet(f"{tmp_path}/outputs/")

    rows = ray_data.read_parquet(f"{tmp_path}/outputs/").take_all()
    assert list(rows[0]) == ["id", "features", "prediction"]
    assert {row["id"]: row["prediction"] for row in rows} == dict(enumerate(features.argmax(axis=1)))


# --- CPU pre-processing + GPU inference ---


def read_images(folder: Path, size: tuple[int, int]) -> ray_data.DataFrame:
    """In the place of ``ray.data.read_images``: a column of bytes, decoded by Pillow."""

    def decode(batch: dict[str, Any]) -> dict[str, Any]:
        return {"image": np.stack([read_image(path, size) for path in batch["path"]]), "path": batch["path"]}

    return ray_data.from_glob_path(f"{folder}/*.jpg").map_batches(decode)


def decode_and_normalize(batch):
    x = torch.from_numpy(batch["image"]).permute(0, 3, 1, 2).float() / 255.0
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    return {"path": batch["path"], "features": ((x - mean[:, None, None]) / std[:, None, None]).numpy()}


def test_cpu_and_gpu_stages(tmp_path: Path, images: Path, resnet_weights: str) -> None:
    model_path = tmp_path / "model.pt"
    torch.save(tiny_models.resnet50(weights=resnet_weights), model_path)

    ds = read_images(images, size=(224, 224))
    ds = ds.map_batches(decode_and_normalize, num_cpus=2)  # CPU stage
    ds = ds.map_batches(
        Predictor, fn_constructor_args=(str(model_path),), num_gpus=GPUS, concurrency=REPLICAS
    )  # GPU stage
    ds.write_parquet(f"{tmp_path}/predictions/")

    rows = sorted(ray_data.read_parquet(f"{tmp_path}/predictions/").take_all(), key=itemgetter("path"))
    assert [Path(row["path"]).stem for row in rows] == sorted(COLOURS)
    assert {row["features"].shape for row in rows} == {(3, 224, 224)}
    pixels = {"image": np.stack([read_image(row["path"], (224, 224)) for row in rows]), "path": [None] * len(rows)}
    wanted = Predictor(str(model_path))(decode_and_normalize(pixels))["prediction"]
    assert [row["prediction"] for row in rows] == wanted.tolist()
    assert len(set(wanted.tolist())) > 1


# --- Image classification ---


class ImageClassifier:
    def __init__(self, weights):
        # For torchvision.models.resnet50(weights="DEFAULT"), which is downloaded.
        self.model = tiny_models.resnet50(weights=weights).to(DEVICE).eval()

    def __call__(self, batch):
        import torch

        x = torch.from_numpy(batch["image"]).to(DEVICE).permute(0, 3, 1, 2).float() / 255.0
        with torch.no_grad():
            logits = self.model(x)
        batch["pred"] = logits.argmax(dim=-1).cpu().numpy()
        return batch


def test_image_classification(tmp_path: Path, images: Path, resnet_weights: str) -> None:
    ds = read_images(images, size=(224, 224))
    ds = ds.map_batches(
        ImageClassifier,
        fn_constructor_kwargs={"weights": resnet_weights},
        num_gpus=GPUS,
        batch_size=128,
        concurrency=REPLICAS,
    )
    ds.write_parquet(f"{tmp_path}/preds/")

    rows = sorted(ray_data.read_parquet(f"{tmp_path}/preds/").take_all(), key=itemgetter("path"))
    assert {row["image"].shape for row in rows} == {(224, 224, 3)}
    assert {row["image"].dtype for row in rows} == {np.dtype(np.uint8)}
    direct = ImageClassifier(resnet_weights)({"image": np.stack([row["image"] for row in rows])})
    assert [row["pred"] for row in rows] == direct["pred"].tolist()
    assert len(set(direct["pred"].tolist())) > 1


# --- Tabular models ---


def predict(batch, model):
    batch["pred"] = model.predict_proba(batch["features"])
    return batch


def test_tabular_model() -> None:
    from sklearn.linear_model import LogisticRegression

    features = np.random.default_rng(0).normal(size=(500, 3))
    model = LogisticRegression().fit(features, features.sum(axis=1) > 0)

    ds = ray_data.from_pydict({"features": features})
    ds = ds.map_batches(predict, fn_kwargs={"model": model}, num_cpus=2, batch_size=10_000)
    predicted = np.stack([row["pred"] for row in ds.take_all()])
    np.testing.assert_allclose(predicted, model.predict_proba(features))


# --- Multi-model pipelines ---


class Detector:
    """Finds the box around what is brighter than the mean of its image."""

    def __init__(self):
        self.model = nn.AvgPool2d(3, stride=1, padding=1).to(DEVICE).eval()

    def __call__(self, batch):
        x = torch.from_numpy(batch["image"]).to(DEVICE).float().mean(dim=-1)
        with torch.no_grad():
            x = self.model(x)
        found = [(image > image.mean()).nonzero() for image in x]
        batch["boxes"] = [[*hits.min(dim=0).values.tolist(), *hits.max(dim=0).values.tolist()] for hits in found]
        return batch


class Classifier:
    """Tells the colour of what is in the box."""

    def __init__(self):
        self.colours = torch.tensor(list(COLOURS.values()), dtype=torch.float32, device=DEVICE)

    def __call__(self, batch):
        labels = []
        for image, (top, left, bottom, right) in zip(batch["image"], batch["boxes"], strict=True):
            colour = torch.from_numpy(image[top : bottom + 1, left : right + 1].copy()).float().mean(dim=(0, 1))
            nearest = torch.cdist(colour.to(DEVICE)[None], self.colours).argmin()
            labels.append(list(COLOURS)[int(nearest)])
        return {"path": batch["path"], "boxes": batch["boxes"], "label": labels}


@pytest.fixture
def scenes(tmp_path: Path) -> Path:
    """A folder of black images, each with one square of a colour."""
    from PIL import Image

    folder = tmp_path / "scenes"
    folder.mkdir()
    for name, colour in COLOURS.items():
        image = Image.new("RGB", (64, 64))
        image.paste(colour, (16, 8, 40, 32))  # left, top, right, bottom
        image.save(folder / f"{name}.jpg", quality=95)
    return folder


def test_multi_model_pipeline(tmp_path: Path, scenes: Path) -> None:
    ds = read_images(scenes, size=(64, 64))
    share = GPUS / 4  # of one GPU, so that two workers of both models fit on it; the sample gives each worker a GPU
    ds = ds.map_batches(Detector, num_gpus=share, concurrency=2)
    ds = ds.map_batches(Classifier, num_gpus=share, concurrency=2)
    ds.write_parquet(f"{tmp_path}/out/")

    rows = sorted(ray_data.read_parquet(f"{tmp_path}/out/").take_all(), key=itemgetter("path"))
    assert [row["label"] for row in rows] == [Path(row["path"]).stem for row in rows] == sorted(COLOURS)
    for row in rows:
        np.testing.assert_allclose(row["boxes"], [8, 16, 31, 39], atol=2)
