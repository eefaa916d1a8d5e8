"""An image pipeline: 2,000 JPEG files listed, downloaded, decoded, resized, passed to a batch function, to Parquet.

The function takes a list of arrays and returns a list of embeddings, as a model does. The hand-written loop is two
threads of simplejpeg and OpenCV, with libjpeg's scaled decoding as in `image_decode`. No engine is charged for the
import of the libraries that the loop imports before its work.
"""

from benchmarks.workloads.image_decode import DATASET, NUM_ROWS, SIZE, make_file, named

__all__ = ["DATASET", "NUM_ROWS", "TARGETS", "daft", "make_file", "penstock", "plain", "ray_data"]

TARGETS = [("work_s", 1 / 3, "daft"), ("work_s", 1.1, "plain"), ("peak_mb", 250, None)]
GRID = 4  # an embedding holds the means of so many rows and columns of tiles
TOLERANCE = 1.0  # shades of 255


def embed(images):
    """Return the mean of each tile of each image."""
    import numpy as np

    tiles = np.stack(images).reshape(len(images), GRID, SIZE // GRID, GRID, SIZE // GRID, 3)
    return list(tiles.mean(axis=(2, 4), dtype=np.float32).reshape(len(images), -1))


def written(folder):
    """Return the mean of each embedding by the name of the file. Engines decode differently, as in `image_decode`.

    `pq.read_table` would import pandas, 38 MB that no engine but the one with the lowest peak would show.
    """
    from pathlib import Path

    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.concat_tables(pq.ParquetFile(path).read() for path in Path(folder).rglob("*.parquet"))
    return named(table["path"].to_pylist(), [sum(each) / len(each) for each in table["embedding"].to_pylist()])


def penstock(run):
    import tempfile

    import cv2  # noqa: F401
    import pyarrow.compute
    import pyarrow.parquet  # noqa: F401
    import simplejpeg  # noqa: F401

    import penstock as ps

    folder = tempfile.mkdtemp()

    @ps.func.batch(return_dtype=ps.DataType.list(ps.DataType.float32()))
    def embedding(images: ps.Series):
        return embed(images.to_pylist())

    with run.working():
        image = ps.col("path").download().decode_image(mode="RGB").resize(SIZE, SIZE)
        df = ps.from_glob_path(f"{run.input}/*.jpg").select("path", embedding(image).alias("embedding"))
        df.write_parquet(folder, mode="overwrite", compression="snappy")
    return written(folder)


def daft(run):
    import tempfile

    import daft
    from daft.functions import decode_image, download, resize

    folder = tempfile.mkdtemp()

    @daft.func.batch(return_dtype=daft.DataType.list(daft.DataType.float32()))
    def embedding(images: daft.Series):
        return embed(images.to_pylist())

    with run.working():
        image = resize(decode_image(download(daft.col("path")), mode="RGB"), SIZE, SIZE)
        df = daft.from_glob_path(f"{run.input}/*.jpg").select("path", embedding(image).alias("embedding"))
        df.write_parquet(folder, write_mode="overwrite", compression="snappy")
    return written(folder)


def ray_data(run):
    import tempfile

    import ray

    from benchmarks.ray_cluster import start

    folder = tempfile.mkdtemp()

    def embedding(batch):
        return {"path": batch["path"], "embedding": embed(batch["image"])}

    start()
    with run.working():
        rows = ray.data.read_images(run.input, size=(SIZE, SIZE), mode="RGB", include_paths=True)
        rows.map_batches(embedding, batch_size=64).write_parquet(folder, compression="snappy")
    return written(folder)


def plain(run):
    import tempfile
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path

    import cv2
    import pandas  # noqa: F401  (pyarrow imports it at the first conversion; here it is not charged to the work)
    import pyarrow as pa
    import pyarrow.parquet as pq
    import simplejpeg

    cv2.setNumThreads(1)
    folder = tempfile.mkdtemp()

    def embeddings(paths):
        pixels = (simplejpeg.decode_jpeg(path.read_bytes(), min_height=SIZE, min_width=SIZE) for path in paths)
        return embed([cv2.resize(each, (SIZE, SIZE), interpolation=cv2.INTER_LINEAR) for each in pixels])

    with run.working():
        paths = sorted(Path(run.input).glob("*.jpg"))
        with ThreadPoolExecutor(2) as threads:
            parts = threads.map(embeddings, (paths[start : start + 32] for start in range(0, len(paths), 32)))
            found = [each for part in parts for each in part]
        table = pa.table({"path": list(map(str, paths)), "embedding": pa.array(found, pa.list_(pa.float32()))})
        pq.write_table(table, f"{folder}/part-0.parquet")
    return written(folder)
