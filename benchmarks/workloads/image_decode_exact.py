"""Images: the same JPEGs decoded in full, then resized by areas; every mean equal to the hand-written loop's."""

from benchmarks.workloads import image_decode
from benchmarks.workloads.image_decode import DATASET, NUM_ROWS, SIZE, make_file, named

__all__ = ["DATASET", "NUM_ROWS", "TARGETS", "make_file", "penstock", "plain"]

TARGETS = [("work_s", 1.2, "plain")]


def penstock(run):
    import penstock as ps

    @ps.func.batch(return_dtype=ps.DataType.float64())
    def mean(images: ps.Series):
        pixels = images.to_numpy()
        return pixels.reshape(len(pixels), -1).mean(axis=1)

    with run.working():
        df = ps.read_images(run.input, size=(SIZE, SIZE), include_paths=True, scaled=False)
        rows = df.select("path", mean(ps.col("image")).alias("mean")).to_pydict()
    return named(rows["path"], rows["mean"])


def plain(run):
    return image_decode.plain(run, scaled=False)
