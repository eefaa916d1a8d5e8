"""Video: every frame of 4 videos of 250 frames, 640 x 360 in H.264, scaled to 160 x 90, mean brightness of each."""

TARGETS = [("work_s", 0.67, "daft"), ("work_s", 1.2, "plain")]
DATASET = "videos"
NUM_ROWS = 4
FRAMES = 250
HEIGHT, WIDTH = 90, 160


def make_file(rng, folder, number):
    """Write a video of moving noise around a level that changes from frame to frame."""
    import av
    import numpy as np

    noise = rng.integers(-40, 41, (360, 640 * 2))
    with av.open(str(folder / f"{number}.mp4"), "w") as container:
        stream = container.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 640, 360, "yuv420p"
        stream.codec_context.gop_size = 50
        stream.codec_context.options = {"preset": "ultrafast", "sc_threshold": "0"}
        for i in range(FRAMES):
            grey = level_of(number, i) * 16 + 8 + noise[:, i * 2 : i * 2 + 640]  # in the middle of its level
            pixels = np.repeat(grey.astype(np.uint8)[:, :, np.newaxis], 3, axis=2)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())


def level_of(number, frame):
    return 4 + (frame // 10 + number) % 8


def penstock(run):
    import numpy as np

    import penstock as ps

    def levels(batch):
        means = batch["data"].mean(axis=(1, 2, 3), dtype=np.float32)
        return {"frame_pts": batch["frame_pts"], "is_key": batch["is_key_frame"], "level": (means // 16).astype("i8")}

    with run.working():
        df = ps.read_video_frames(f"{run.input}/*.mp4", image_height=HEIGHT, image_width=WIDTH)
        df = df.select("frame_pts", "is_key_frame", "data").map_batches(levels)
        df.write_parquet(run.output, mode="overwrite", compression="snappy")


def daft(run):
    """Daft 0.7.26 reads one video after the other: its read_video_frames of several does not end on two cores."""
    from pathlib import Path

    import daft
    import numpy as np

    @daft.func.batch(return_dtype=daft.DataType.int64())
    def level(images):
        pixels = images.to_arrow().storage.flatten().to_numpy().reshape(len(images), -1)
        return (pixels.mean(axis=1, dtype=np.float32) // 16).astype("i8")

    with run.working():
        for path in sorted(Path(run.input).glob("*.mp4")):
            df = daft.read_video_frames(str(path), image_height=HEIGHT, image_width=WIDTH)
            is_key = daft.col("is_key_frame").alias("is_key")
            df = df.select("frame_pts", is_key, level(daft.col("data")).alias("level"))
            df.write_parquet(run.output, write_mode="append", compression="snappy")


def plain(run):
    import os
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path

    import av
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    def rows_of(path):
        rows = []
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            stream.thread_type = "AUTO"
            for frame in container.decode(stream):
                pixels = frame.reformat(width=WIDTH, height=HEIGHT, format="rgb24").to_ndarray()
                level = int(pixels.mean(dtype=np.float32) // 16)
                rows.append({"frame_pts": frame.pts, "is_key": bool(frame.key_frame), "level": level})
        return rows

    with run.working():
        schema = pa.schema({"frame_pts": pa.int64(), "is_key": pa.bool_(), "level": pa.int64()})
        paths = sorted(Path(run.input).glob("*.mp4"))
        with (
            ThreadPoolExecutor(os.cpu_count()) as threads,
            pq.ParquetWriter(f"{run.output}/part-0.parquet", schema, compression="snappy") as writer,
        ):
            for rows in threads.map(rows_of, paths):
                writer.write_batch(pa.RecordBatch.from_pylist(rows, schema))
