"""Images: 2,000 JPEG files, decoded, resized to 224 x 224 and averaged.

A resize follows the decode, so a JPEG may be decoded at a fraction of its size (libjpeg's scaled decoding): Penstock
does that by itself; the hand-written loop, two threads of simplejpeg and OpenCV, does the same. Daft and Ray Data
decode in full, and filter differently when they resize, so the means are compared with a tolerance;
`image_decode_exact` compares without one. Ray Data and Daft read the files in the way their own guides show.
"""

TARGETS = [("work_s", 1 / 3.5, "daft"), ("work_s", 1.2, "plain"), ("peak_mb", 1 / 3, "daft")]
DATASET = "jpegs"
NUM_ROWS = 2_000
TOLERANCE = 1.0  # shades of 255, for the mean of each image
SIZE = 224


def make_file(rng, folder, number):
    """Write a photo-like JPEG, of about 100 kB and one of three sizes: smooth areas, edges, and some grain."""
    import cv2
    import numpy as np
    import simplejpeg

    width, height = ((640, 480), (500, 375), (1024, 768))[number % 3]
    coarse = rng.integers(0, 255, (12, 16, 3), dtype=np.uint8)
    picture = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC).astype(np.int16)
    for _ in range(12):
        centre = int(rng.integers(width)), int(rng.integers(height))
        colour = tuple(int(shade) for shade in rng.integers(0, 255, 3))
        cv2.circle(picture, centre, int(rng.integers(10, 120)), colour, -1)
    grain = rng.integers(-10, 11, picture.shape[:2], dtype=np.int16)[:, :, None]
    pixels = np.clip(picture + grain, 0, 255).astype(np.uint8)
    (folder / f"{number:05d}.jpg").write_bytes(simplejpeg.encode_jpeg(pixels, 90, "RGB", "420"))


def penstock(run):
    import penstock as ps

    @ps.func.batch(return_dtype=ps.DataType.float64())
    def mean(images: ps.Series):
        pixels = images.to_numpy()
        return pixels.reshape(len(pixels), -1).mean(axis=1)

    with run.working():
        df = ps.read_images(run.input, size=(SIZE, SIZE), include_paths=True)
        rows = df.select("path", mean(ps.col("image")).alias("mean")).to_pydict()
    return named(rows["path"], rows["mean"])


def daft(run):
    import daft
    import numpy as np
    from daft.functions import decode_image, download, resize

    @daft.func.batch(return_dtype=daft.DataType.float64())
    def mean(images: daft.Series):
        column = images.to_arrow()
        column = getattr(column, "storage", column)
        pixels = column.flatten().to_numpy(zero_copy_only=False)
        return daft.Series.from_numpy(np.ascontiguousarray(pixels.reshape(len(column), -1).mean(axis=1)))

    with run.working():
        df = daft.from_glob_path(f"{run.input}/*.jpg")
        image = resize(decode_image(download(daft.col("path")), mode="RGB"), SIZE, SIZE)
        rows = df.select(daft.col("path"), mean(image).alias("mean")).to_pydict()
    return named(rows["path"], rows["mean"])


def ray_data(run):
    import ray

    from benchmarks.ray_cluster import start

    def mean(batch):
        pixels = batch["image"]
        return {"path": batch["path"], "mean": pixels.reshape(len(pixels), -1).mean(axis=1)}

    start()
    with run.working():
        rows = ray.data.read_images(run.input, size=(SIZE, SIZE), mode="RGB", include_paths=True)
        rows = rows.map_batches(mean, batch_size=64).take_all()
    return named([row["path"] for row in rows], [row["mean"] for row in rows])


def plain(run, scaled=True):
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path

    import cv2
    import numpy as np
    import simplejpeg

    cv2.setNumThreads(1)
    at_least = SIZE if scaled else 0
    interpolation = cv2.INTER_LINEAR if scaled else cv2.INTER_AREA

    def mean(path):
        pixels = simplejpeg.decode_jpeg(path.read_bytes(), min_height=at_least, min_width=at_least)
        small = cv2.resize(pixels, (SIZE, SIZE), interpolation=interpolation)
        return np.ravel(small).mean()

    with run.working():
        paths = sorted(Path(run.input).glob("*.jpg"))
        with ThreadPoolExecutor(2) as threads:
            means = list(threads.map(mean, paths))
    return named(map(str, paths), means)


def named(paths, means):
    """Return the mean of each image by the name of its file."""
    return {path.rpartition("/")[2]: round(float(mean), 6) for path, mean in zip(paths, means, strict=True)}
