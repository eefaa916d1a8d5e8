"""Videos as columns and as rows: headers, frames at intervals, key frames, streaming, and what is broken."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import CorruptFileError, InvalidArgumentError, MissingExtraError, ReadError, UdfError
from penstock.functions import video_frames, video_keyframes, video_metadata
from penstock.media import video
from penstock.media.video import FrameChoice, chosen_frames
from tests.media_files import FPS, grey, write_clip, write_tone


def frames_of(path: str, expr: ps.Expression) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ps.from_pydict({"v": [path]}).select(expr.alias("v")).to_pydict()["v"][0]
    return found


def greys(images: Iterator[Any] | list[Any]) -> list[float]:
    return [float(np.mean(image)) for image in images]


def is_frame(image: np.ndarray[Any, Any], number: int) -> bool:
    """Whether an image is that frame of ``write_clip``, as far as compression lets it be."""
    return abs(float(image.mean()) - grey(number)) < 6


def test_metadata(clip: str) -> None:
    found = frames_of(clip, video_metadata(ps.col("v")))
    expected = {"width": 64, "height": 48, "fps": 10.0, "duration": 2.0, "frame_count": 20}
    assert {name: found[name] for name in expected} == expected  # type: ignore[call-overload]


@pytest.mark.parametrize("ending", ["mp4", "mkv", "avi", "mov"])
def test_all_frames_of_every_container(tmp_path: Path, ending: str) -> None:
    path = write_clip(tmp_path / f"clip.{ending}")
    rows = ps.read_video_frames(path).to_pylist()
    assert [row["frame_index"] for row in rows] == list(range(20))
    assert [row["frame_time"] for row in rows] == pytest.approx([number / FPS for number in range(20)])
    assert [row["frame_index"] for row in rows if row["is_key_frame"]] == [0, 5, 10, 15]
    assert all(is_frame(row["data"], row["frame_index"]) for row in rows)
    assert {row["path"] for row in rows} == {path}
    assert {row["data"].shape for row in rows} == {(48, 64, 3)}


def test_columns_and_types(clip: str) -> None:
    schema = ps.read_video_frames(clip, image_height=24, image_width=32).schema
    assert {field.name: str(field.dtype) for field in schema} == {
        "path": "string",
        "frame_index": "int64",
        "frame_time": "float64",
        "frame_time_base": "string",
        "frame_pts": "int64",
        "frame_dts": "int64",
        "frame_duration": "int64",
        "is_key_frame": "bool",
        "data": "image[RGB; 24x32]",
    }
    assert str(ps.read_video_frames(clip).schema["data"].dtype) == "image[RGB]"


def test_frames_of_one_size_reach_a_batch_as_one_array(clip: str) -> None:
    shapes = []

    def look(batch: dict[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
        shapes.append(batch["data"].shape)
        return {"mean": batch["data"].mean(axis=(1, 2, 3))}

    df = ps.read_video_frames(clip, image_height=24, image_width=32).map_batches(look, batch_size=20)
    means = df.to_pydict()["mean"]
    assert shapes == [(20, 24, 32, 3)]
    assert means == pytest.approx([grey(number) for number in range(20)], abs=6)


def test_key_frames_only(clip: str) -> None:
    keys = ps.read_video_frames(clip, is_key_frame=True).to_pylist()
    assert [row["frame_index"] for row in keys] == [0, 5, 10, 15]
    assert all(row["is_key_frame"] and is_frame(row["data"], row["frame_index"]) for row in keys)
    others = ps.read_video_frames(clip, is_key_frame=False).select("frame_index").to_pydict()["frame_index"]
    assert others == [number for number in range(20) if number % 5]

    images = frames_of(clip, video_keyframes(ps.col("v"), start_time=0.4, end_time=1.0))
    assert greys(images) == pytest.approx([grey(5), grey(10)], abs=6)


def test_a_range_and_an_interval(clip: str) -> None:
    found = frames_of(clip, video_frames(ps.col("v"), start_time=0.3, end_time=0.6))
    assert [frame["frame_index"] for frame in found] == [3, 4, 5, 6]
    found = frames_of(clip, video_frames(ps.col("v"), start_time=0.25, sample_interval_seconds=0.5))
    assert [frame["frame_time"] for frame in found] == pytest.approx([0.3, 0.8, 1.3, 1.8])
    assert all(is_frame(frame["data"], frame["frame_index"]) for frame in found)


def test_times_may_come_from_columns(clip: str) -> None:
    df = ps.from_pydict({"v": [clip, clip], "from": [0.0, 1.5], "to": [0.1, None]})
    df = df.select(video_frames(ps.col("v"), start_time=ps.col("from"), end_time=ps.col("to")))
    assert [[frame["frame_index"] for frame in found] for found in df.to_pydict()["v"]] == [
        [0, 1],
        [15, 16, 17, 18, 19],
    ]


@pytest.mark.parametrize(("codec", "b_frames"), [("mpeg4", 0), ("mpeg4", 2), ("libx264", 3)])
@pytest.mark.parametrize("interval", [0.3, 2.0, 3.7])
def test_jumping_gives_what_decoding_all_gives(tmp_path: Path, codec: str, b_frames: int, interval: float) -> None:
    """With a key frame every second, intervals above one are reached through the index."""
    path = write_clip(tmp_path / "long.mp4", num_frames=250, key_frame_every=10, codec=codec, b_frames=b_frames)
    every = ps.read_video_frames(path).select("frame_index", "frame_time", "frame_pts", "data").to_pylist()
    expected, wanted = [], 0.0
    for row in every:
        if row["frame_time"] >= wanted - 1e-9:
            expected.append(row)
            while wanted <= row["frame_time"] + 1e-9:
                wanted += interval
    sampled = ps.read_video_frames(path, sample_interval_seconds=interval).to_pylist()
    assert [row["frame_pts"] for row in sampled] == [row["frame_pts"] for row in expected]
    assert [row["frame_index"] for row in sampled] == [row["frame_index"] for row in expected]
    assert all(np.array_equal(a["data"], b["data"]) for a, b in zip(sampled, expected, strict=True))


def test_jumping_spares_decoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_clip(tmp_path / "long.mp4", num_frames=600, key_frame_every=10)
    num_decoded = 0
    given = video._Cursor.next

    def counted(cursor: video._Cursor) -> video.Frame | None:
        nonlocal num_decoded
        num_decoded += 1
        return given(cursor)

    monkeypatch.setattr(video._Cursor, "next", counted)
    sampled = ps.read_video_frames(path, sample_interval_seconds=20).to_pylist()
    assert [row["frame_time"] for row in sampled] == [0.0, 20.0, 40.0]
    assert num_decoded < 150


def test_paths_bytes_and_files_give_the_same(clip: str) -> None:
    df = ps.from_pydict({"path": [clip], "bytes": [Path(clip).read_bytes()], "file": [ps.VideoFile(clip)]})
    row = df.select(*(video_keyframes(ps.col(name)) for name in df.columns)).to_pylist()[0]
    assert len(row["path"]) == 4
    assert np.array_equal(row["path"], row["bytes"])
    assert np.array_equal(row["path"], row["file"])


def test_frames_are_scaled_when_asked(clip: str) -> None:
    df = ps.from_pydict({"v": [clip, None]}).select(video_frames(ps.col("v"), width=32, height=24, end_time=0.2))
    assert str(df.schema["v"].dtype.inner.fields["data"]) == "image[RGB; 24x32]"
    first, second = df.to_pydict()["v"]
    assert [frame["data"].shape for frame in first] == [(24, 32, 3)] * 3
    assert second is None


def test_odd_widths_have_no_padding(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "clip.mp4", num_frames=2)
    frame = ps.read_video_frames(path, image_height=7, image_width=5).to_pylist()[1]["data"]
    assert frame.shape == (7, 5, 3)
    assert np.ptp(frame.astype(int)) < 8


def test_a_long_video_never_lies_in_memory(tmp_path: Path) -> None:
    """1,200 frames of 180 kB are 216 MB; what is alive at any time is a few batches."""
    path = write_clip(tmp_path / "long.mp4", num_frames=1200, key_frame_every=100)
    most = 0

    def look(batch: pa.Table) -> dict[str, list[int]]:
        nonlocal most
        most = max(most, pa.total_allocated_bytes())
        return {"n": [batch.num_rows]}

    with ps.config(memory_limit=40_000_000, num_threads=2):
        df = ps.read_video_frames(path, image_height=240, image_width=250)
        df = df.map_batches(look, batch_format="pyarrow", concurrency=1)
        before = pa.total_allocated_bytes()  # not the resident memory, which depends on the tests that ran before
        assert sum(df.to_pydict()["n"]) == 1200
    assert most - before < 60_000_000


def test_a_limit_ends_the_decoding(clip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.io.formats import audio_video as formats

    monkeypatch.setattr(formats, "BATCH_NBYTES", 1)
    num_converted = 0
    pixels = video.Frame.pixels

    def counted(frame: video.Frame, *args: Any, **kwargs: Any) -> Any:
        nonlocal num_converted
        num_converted += 1
        return pixels(frame, *args, **kwargs)

    monkeypatch.setattr(video.Frame, "pixels", counted)
    with ps.config(num_threads=1):
        assert len(ps.read_video_frames(clip).limit(1).to_pylist()) == 1
    assert num_converted < 15
    num_converted = 0
    assert ps.read_video_frames(clip).select("frame_index").to_pydict()["frame_index"] == list(range(20))
    assert num_converted == 0, "nobody asked for pixels"


def test_a_filter_on_frames(clip: str) -> None:
    df = ps.read_video_frames(clip).where(ps.col("frame_time") >= 1.75).select("frame_index")
    assert df.to_pydict() == {"frame_index": [18, 19]}


def test_a_broken_video_is_the_error_of_its_row(clip: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(Path(clip).read_bytes()[:600])
    sound = write_tone(tmp_path / "tone.wav")
    df = ps.from_pydict({"v": [clip, str(broken), sound, "missing.mp4"]})
    with pytest.raises(UdfError, match=r"broken\.mp4"):
        df.select(video_metadata(ps.col("v"))).collect()
    done = df.select(video_keyframes(ps.col("v"), on_error="null")).collect()
    assert [found is None for found in done.to_pydict()["v"]] == [False, True, True, True]
    messages = done.errors().to_pydict()["message"]
    assert len(messages) == 3
    assert any("No video in" in message and "it holds audio" in message for message in messages)


def test_reading_skips_what_is_broken_if_told(clip: str) -> None:
    folder = Path(clip).parent
    (folder / "broken.mp4").write_bytes(b"nothing")
    with pytest.raises(CorruptFileError, match=r"broken\.mp4"):
        ps.read_video_frames(folder).collect()
    assert ps.read_video_frames(folder, ignore_corrupt_files=True).count_rows() == 20


def test_absurd_frames_are_refused(clip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(video, "MAX_FRAME_PIXELS", 1000)
    with pytest.raises(CorruptFileError, match="64 by 48 pixels"), chosen_frames(clip, FrameChoice()) as frames:
        list(frames)
    monkeypatch.undo()
    monkeypatch.setattr(video, "MAX_LIST_NBYTES", 5 * 64 * 48 * 3)
    with pytest.raises(ReadError, match="or use read_video_frames"):
        video.frames(clip)
    assert len(video.frames(clip, end_time=0.4) or []) == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_height": 24}, "width and height go together"),
        ({"image_height": 0, "image_width": 1}, "height must be a whole number"),
        ({"sample_interval_seconds": 0}, "sample_interval_seconds=0 must be more than 0"),
        ({"interval": 1}, "no option 'interval'"),
    ],
)
def test_wrong_options_are_refused_when_the_query_is_built(clip: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        ps.read_video_frames(clip, **options)


def test_a_missing_extra_names_its_command(clip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    for build in (lambda: video_metadata(ps.col("v")), lambda: ps.read_video_frames(clip)):
        with pytest.raises(MissingExtraError, match=r'pip install "penstock\[video\]"'):
            build()


class _Recorder(http.server.BaseHTTPRequestHandler):
    paths: list[str]

    def do_GET(self) -> None:
        self.paths.append(self.path)
        self.send_error(404)

    def log_message(self, *args: Any) -> None:
        pass


def test_a_playlist_reaches_nothing(tmp_path: Path) -> None:
    """A file from anywhere must not make FFmpeg open other files, nor URLs, as it does when it is left to itself."""
    import av

    clip = write_clip(tmp_path / "clip.ts", codec="mpeg2video")
    handler = type("Handler", (_Recorder,), {"paths": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/a.ts"
        for number, target in enumerate([clip, f"file://{clip}", url]):
            playlist = tmp_path / f"list{number}.m3u8"
            playlist.write_text(f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1.0,\n{target}\n#EXT-X-ENDLIST\n")
            concat = tmp_path / f"list{number}.ffconcat"
            concat.write_text(f"ffconcat version 1.0\nfile '{target}'\n")
            for path in (playlist, concat):
                with pytest.raises(CorruptFileError):
                    video.metadata(path)
        with av.open(str(tmp_path / "list0.m3u8")) as container:
            assert container.streams.video, "FFmpeg left to itself should open the other file"
        with pytest.raises(ReadError):
            video.metadata(f"concat:{clip}")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert handler.paths == []


def test_a_truncated_video_is_an_error(tmp_path: Path) -> None:
    path = Path(write_clip(tmp_path / "clip.mp4", num_frames=40))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(CorruptFileError, match=r"Cannot decode .*clip\.mp4"):
        video.frames(path)
