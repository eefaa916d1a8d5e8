"""Run a PyTorch model of your own: it is built once in each worker and gets whole batches, sized by measurement."""

from pathlib import Path

import numpy as np
import torch

import penstock as ps

PHOTOS = Path(__file__).parent / "data" / "photos"


@ps.cls(gpus=1 if torch.cuda.is_available() else 0)
class Encoder:
    """A small convolutional network; load your weights here."""

    def __init__(self, size: int) -> None:
        torch.manual_seed(0)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.net = torch.nn.Sequential(
            torch.nn.Conv2d(3, 16, 5, stride=4), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4),
            torch.nn.Flatten(), torch.nn.Linear(256, size),
        ).to(self.device).eval()  # fmt: skip

    @ps.method.batch(return_dtype=ps.DataType.embedding(ps.DataType.float32(), 32))
    def encode(self, images: ps.Series) -> np.ndarray:  # (n, 224, 224, 3), uint8, one buffer without a copy
        pixels = torch.tensor(images.to_numpy(), device=self.device).permute(0, 3, 1, 2) / 255
        with torch.inference_mode():
            vectors: np.ndarray = torch.nn.functional.normalize(self.net(pixels)).cpu().numpy()
            return vectors


df = ps.read_images(str(PHOTOS), width=224, height=224, path_column="path")
df = df.select(
    ps.col("path").split("/").list_get(-1).alias("photo"), Encoder(32).encode(ps.col("image")).alias("vector")
)
df = df.collect()
df.sort("photo").show()

pairs = df.nearest(df, on="vector", k=2).where(ps.col("rank") == 2)
print("Each photo and the one most like it:")
pairs.select(ps.col("right.photo").alias("photo"), ps.col("photo").alias("nearest"), "distance").sort("photo").show()
