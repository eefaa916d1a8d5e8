"""Image embedding on one GPU, Parquet to Parquet: a ViT-B/16 with random weights, JPEG bytes of 320 x 240 pixels.

`--shape` takes the image tower of CLIP or SigLIP, or DINOv2, in their base sizes, and runs `limits` by default.

`python -m benchmarks.gpu.embed_images` compares

penstock      `read_parquet`, `decode_image`, `embed_image`, `write_parquet`
hand-tuned    a loop that decodes and resizes ahead on threads and uses bfloat16
decode alone  the same images decoded on all cores by libjpeg-turbo, each thread into the same memory again
gpu alone     the model on pixels that are on the device already
limits        two runs of Penstock, and the last two, in one process

The limit of a pipeline is the slower of the last two.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from benchmarks.gpu.measure import (
    Figures,
    Place,
    RowTimes,
    Run,
    device,
    main,
    penstock_figures,
    seconds_of,
    start_seconds,
    synchronize,
)

NUM_ROWS = 30_000
NUM_DISTINCT = 256
SMALL_ROWS = 16
WIDTH, HEIGHT, MODEL_SIZE = 320, 240, 224
BATCH_ROWS = 256


def prepare(place: Place) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    save_model(place)
    distinct = list(made_up_images(min(NUM_DISTINCT, place.num_rows)))
    images = [distinct[i % len(distinct)] for i in range(place.num_rows)]
    table = pa.table({"id": np.arange(len(images)), "jpeg": pa.array(images, pa.binary())})
    pq.write_table(table, place.input, row_group_size=1_024, use_dictionary=False)
    pq.write_table(table.slice(0, SMALL_ROWS), place.small_input)


def save_model(place: Place) -> None:
    """Write a model with random weights. CLIP and SigLIP are their base models with small text towers."""
    import torch
    import transformers

    torch.manual_seed(0)
    config, processor = {
        "vit": ("ViT", "ViTImageProcessor"),
        "clip": ("CLIP", "CLIPImageProcessor"),
        "siglip": ("Siglip", "SiglipImageProcessor"),
        "dinov2": ("Dinov2", "BitImageProcessor"),
    }[place.shape]
    of_tower = {"image_size": MODEL_SIZE, "patch_size": 14 if place.shape == "dinov2" else 16}
    is_pair = place.shape in ("clip", "siglip")
    sizes = {"vision_config": of_tower, "text_config": {"num_hidden_layers": 1}} if is_pair else of_tower
    with torch.device(device()):
        model = getattr(transformers, f"{config}Model")(getattr(transformers, f"{config}Config")(**sizes))
    model.save_pretrained(place.model)
    size = {"height": MODEL_SIZE, "width": MODEL_SIZE}
    getattr(transformers, processor)(size=size, do_center_crop=False).save_pretrained(place.model)


def made_up_images(count: int) -> Iterator[bytes]:
    """Yield pictures of smooth colours with some noise, which compress about as photographs do."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for _ in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (15, 20, 3), np.uint8)).resize((WIDTH, HEIGHT), Image.BICUBIC)
        noisy = np.asarray(coarse, np.int16) + rng.integers(-12, 13, (HEIGHT, WIDTH, 3), np.int16)
        out = io.BytesIO()
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(out, "JPEG", quality=88)
        yield out.getvalue()


# --- the parts ---


def penstock(place: Place) -> Figures:
    return penstock_figures(place, query(place), num_inputs=3)


def query(place: Place) -> Run:
    import penstock as ps

    ps.set_config(progress=False)

    def run(sources: list[str], target: str, provider: Any = "transformers") -> None:
        vector = ps.col("jpeg").decode_image().embed_image(provider=provider, model=place.model)
        ps.read_parquet(sources).select("id", vector.alias("vector")).write_parquet(target, mode="overwrite")

    return run


def limits(place: Place) -> Figures:
    import penstock as ps

    run, times = query(place), RowTimes()
    ps.attach_subscriber(times)
    start_s = start_seconds(place, run)[1]
    rates = []
    for _ in range(2):
        seconds_of(run, [place.input] * 3, place.output("out"))
        rates.append(times.rate_after(0.25))
    decoding, model = (part(place)["rows/s after start"] for part in (decode_alone, gpu_alone))
    return {
        "start s": start_s,
        "least rows/s": min(rates),
        "most rows/s": max(rates),
        "decode alone": decoding,
        "gpu alone": model,
        "limit / most": min(decoding, model) / max(rates),
    }


def decoded(jpeg: bytes) -> np.ndarray:
    """Return the pixels of an image at the size of the model, by the fastest decoder that is installed."""
    try:
        import cv2

        pixels = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR_RGB)
        return cv2.resize(pixels, (MODEL_SIZE, MODEL_SIZE), interpolation=cv2.INTER_LINEAR)
    except ImportError:
        from PIL import Image

        return np.asarray(Image.open(io.BytesIO(jpeg)).convert("RGB").resize((MODEL_SIZE, MODEL_SIZE), Image.BILINEAR))


def decoded_batch(jpegs: list[bytes]) -> Any:
    import torch

    pixels = torch.from_numpy(np.stack([decoded(jpeg) for jpeg in jpegs]))
    return pixels.pin_memory() if device() == "cuda" else pixels


class Encoder:
    """The model of the hand-tuned loop, which takes bytes of pixels."""

    def __init__(self, place: Place) -> None:
        import torch
        from transformers import AutoModel

        self.device = device()
        self.dtype = torch.bfloat16 if self.device == "cuda" else torch.float32
        self.model = AutoModel.from_pretrained(place.model, dtype=self.dtype).to(self.device).eval()

    def vectors(self, pixels: Any) -> Any:
        scaled = pixels.permute(0, 3, 1, 2).to(self.dtype) / 127.5 - 1
        tower = getattr(self.model, "vision_model", self.model)
        return tower(pixel_values=scaled).pooler_output.float()


def blank_batch(place: Place) -> Any:
    import torch

    shape = (min(BATCH_ROWS, place.num_rows), MODEL_SIZE, MODEL_SIZE, 3)
    return torch.zeros(shape, dtype=torch.uint8, device=device())


def batches_of(place: Place) -> list[list[bytes]]:
    import pyarrow.parquet as pq

    jpegs = pq.read_table(place.input)["jpeg"].to_pylist()
    return [jpegs[start : start + BATCH_ROWS] for start in range(0, len(jpegs), BATCH_ROWS)]


def hand_tuned(place: Place) -> Figures:
    import pyarrow as pa
    import pyarrow.parquet as pq
    import torch

    encoder = Encoder(place)
    with torch.inference_mode():
        encoder.vectors(blank_batch(place))
    synchronize()
    began = time.perf_counter()
    with torch.inference_mode(), ThreadPoolExecutor(os.cpu_count()) as ahead:
        pixels = ahead.map(decoded_batch, batches_of(place))
        parts = [encoder.vectors(batch.to(encoder.device, non_blocking=True)) for batch in pixels]
        found = torch.cat(parts).cpu().numpy()
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(found.ravel()), found.shape[1])
    pq.write_table(pa.table({"vector": vectors}), place.output("hand-tuned.parquet"))
    return {"rows/s after start": len(found) / (time.perf_counter() - began)}


def decode_alone(place: Place) -> Figures:
    import simplejpeg

    def decode_all(jpegs: list[bytes]) -> int:
        memory = np.empty((HEIGHT, WIDTH, 3), np.uint8)
        for jpeg in jpegs:
            simplejpeg.decode_jpeg(jpeg, buffer=memory)
        return len(jpegs)

    batches = batches_of(place)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        began = time.perf_counter()
        num_rows = sum(threads.map(decode_all, batches))
        return {"rows/s after start": num_rows / (time.perf_counter() - began)}


def gpu_alone(place: Place) -> Figures:
    import torch

    encoder = Encoder(place)
    pixels = blank_batch(place)
    num_rounds = 20 if encoder.device == "cuda" else 1
    with torch.inference_mode():
        for _ in range(2):  # the first time warms up
            synchronize()
            began = time.perf_counter()
            for _ in range(num_rounds):
                encoder.vectors(pixels)
            synchronize()
    return {"rows/s after start": num_rounds * len(pixels) / (time.perf_counter() - began)}


if __name__ == "__main__":
    parts = {"penstock": penstock, "hand-tuned": hand_tuned, "decode alone": decode_alone, "gpu alone": gpu_alone}
    main(
        "benchmarks.gpu.embed_images",
        NUM_ROWS,
        prepare,
        parts | {"limits": limits},
        shapes=("vit", "clip", "siglip", "dinov2"),
        shape_part="limits",
    )
