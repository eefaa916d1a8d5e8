"""Media that lies on a store other than the local disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy as np
import pytest

import penstock as ps
from penstock.functions import pdf_pages, resample, video_keyframes


@pytest.fixture
def store() -> Iterator[str]:
    """A folder in the memory of this process, which penstock reaches as it does any store it leaves to fsspec."""
    filesystem = fsspec.filesystem("memory")
    filesystem.mkdir("/media")
    yield "memory://media"
    filesystem.rm("/media", recursive=True)


def put(path: str, store: str) -> str:
    url = f"{store}/{Path(path).name}"
    with fsspec.open(url, "wb") as file:
        file.write(Path(path).read_bytes())
    return url


def test_readers(store: str, tone: str, clip: str, booklet: str) -> None:
    urls = [put(path, store) for path in (tone, clip, booklet)]
    assert ps.read_audio(urls[0]).to_pylist()[0]["amplitude"].shape == (1, 8000)
    frames = ps.read_video_frames(f"{store}/*.mp4", is_key_frame=True).to_pylist()
    assert [frame["frame_index"] for frame in frames] == [0, 5, 10, 15]
    assert {frame["path"].strip("/") for frame in frames} <= {urls[1], urls[1].replace("memory://", "memory:///")}
    assert ps.read_pdf(urls[2], use_process=False).select("page_number").to_pydict() == {"page_number": [1, 2]}


def test_columns_of_urls(store: str, tone: str, clip: str, booklet: str) -> None:
    urls = [put(path, store) for path in (tone, clip, booklet)]
    row = (
        ps.from_pydict({"audio": [urls[0]], "video": [urls[1]], "pdf": [urls[2]]})
        .select(
            resample(ps.col("audio"), 4000),
            video_keyframes(ps.col("video")),
            pdf_pages(ps.col("pdf"), use_process=False),
        )
        .to_pylist()[0]
    )
    assert row["audio"].shape == (4000,)
    assert np.shape(row["video"]) == (4, 48, 64, 3)
    assert [page["page_number"] for page in row["pdf"]] == [1, 2]


def test_what_the_settings_forbid_stays_closed(tone: str, clip: str) -> None:
    with ps.config(allow_local_files=False):
        df = ps.from_pydict({"a": [tone], "v": [clip]}).select(
            resample(ps.col("a"), 8000, on_error="null"), video_keyframes(ps.col("v"), on_error="null")
        )
        done = df.collect()
    assert done.to_pylist() == [{"a": None, "v": None}]
    assert done.errors().to_pydict()["error_type"] == ["ForbiddenUrlError"] * 2
