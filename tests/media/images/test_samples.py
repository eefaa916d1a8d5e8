"""The image samples of Daft's and Ray Data's documentation, with the import changed and a small model of our own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn as nn

import penstock as daft
import penstock as ray_data
from tests.media.images.samples import jpeg


def load_model(name: str) -> nn.Module:
    """A stand-in for a downloaded model: it tells red from blue by the mean of the channels."""
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2, bias=False))
    with torch.no_grad():
        model[2].weight.copy_(torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]))
    return model.eval()


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(10):
        pixels = np.zeros((90, 120, 3), np.uint8)
        pixels[:, :, 2 * (number % 2)] = 200
        (folder / f"{number}.jpg").write_bytes(jpeg(pixels))
    (folder / "x.jpg").write_bytes(b"no image")
    return folder


EXPECTED = ["red", "blue"] * 5


def test_a_class_that_loads_and_classifies_by_path(photos: Path) -> None:
    def load_and_preprocess(path: str) -> torch.Tensor:
        from PIL import Image

        with Image.open(path) as image:
            return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1).float()[None]

    @daft.cls(max_concurrency=2, on_error="ignore")
    class ImageClassifier:
        def __init__(self, model_name: str) -> None:
            self.model = load_model(model_name)

        def __call__(self, image_path: str) -> str:
            image = load_and_preprocess(image_path)
            with torch.no_grad():
                output = self.model(image)
            return ["red", "blue"][int(output.argmax())]

    df = daft.from_glob_path(str(photos / "*.jpg"))
    df = df.select(ImageClassifier("resnet18")(daft.col("path")).alias("label")).collect()
    assert df.to_pydict()["label"] == [*EXPECTED, None]
    assert df.errors().count_rows() == 1


def test_expressions_decode_and_resize_for_a_model(photos: Path) -> None:
    @daft.cls
    class Classifier:
        def __init__(self) -> None:
            self.model = load_model("resnet18")

        @daft.method.batch(return_dtype=daft.DataType.string(), batch_size=4)
        def __call__(self, images: daft.Series) -> list[str]:
            batch = images.to_torch().permute(0, 3, 1, 2).float()
            assert tuple(batch.shape[1:]) == (3, 32, 32)
            with torch.inference_mode():
                return [["red", "blue"][int(best)] for best in self.model(batch).argmax(dim=1)]

    files = sorted(photos.glob("*.jpg"))
    df = daft.from_pydict({"name": [file.stem for file in files], "bytes": [file.read_bytes() for file in files]})
    df = df.with_column("image", daft.col("bytes").decode_image(on_error="null").resize(32, 32))
    df = df.where(daft.col("image").not_null()).with_column("label", Classifier()(daft.col("image")))
    assert df.select("name", "label").to_pydict() == {"name": [str(n) for n in range(10)], "label": EXPECTED}


# Batches are views, as they are in Ray Data; torch says once that a tensor made of one must not be written to.
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_read_images_map_batches_predict(photos: Path) -> None:
    (photos / "x.jpg").unlink()

    def preprocess(row: dict[str, Any]) -> dict[str, Any]:
        return {"path": row["path"], "tensor": row["image"].transpose(2, 0, 1).astype(np.float32)}

    class Predictor:
        def __init__(self) -> None:
            self.model = load_model("resnet18")

        def __call__(self, batch: dict[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
            with torch.inference_mode():
                best = self.model(torch.as_tensor(batch["tensor"])).argmax(dim=1).numpy()
            return {"path": batch["path"], "label": [["red", "blue"][int(index)] for index in best]}

    ds = ray_data.read_images(str(photos), size=(32, 32), mode="RGB", include_paths=True)
    predictions = ds.map(preprocess).map_batches(Predictor, batch_size=4, compute=ray_data.ActorPoolStrategy(size=1))
    assert [row["label"] for row in predictions.take(10)] == EXPECTED
