"""Hugging Face datasets: from folders, from the local cache, from a hub on loopback, and as objects."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.errors import InvalidArgumentError, PathNotFoundError, UdfError, WriteError
from penstock.io.tables.huggingface import DatasetSource, hub_sink
from penstock.protocols import ReadRequest
from tests.explained import explained
from tests.io.tables.hub import SHA, Hub, running_hub


def parquet(**columns: Any) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream)
    return stream.getvalue()


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running_hub() as hub:
        yield hub


def options(hub: Hub) -> dict[str, str]:
    return {"endpoint": hub.url, "token": "hf_n0t-to-be-seen"}


# --- folders and the local cache ---


def test_folders_are_read_by_format_and_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "README.md").write_text("# about")
    (tmp_path / "data" / "train-00000-of-00002.parquet").write_bytes(parquet(a=[1]))
    (tmp_path / "data" / "train-00001-of-00002.parquet").write_bytes(parquet(a=[2]))
    (tmp_path / "data" / "test-00000-of-00001.parquet").write_bytes(parquet(a=[3]))
    (tmp_path / "data" / "notes.jsonl").write_text('{"b": 1}\n')
    assert sorted(ps.read_huggingface(tmp_path).to_pydict()["a"]) == [1, 2, 3]
    monkeypatch.chdir(tmp_path.parent)
    assert ps.read_huggingface(f"./{tmp_path.name}", split="test").to_pydict() == {"a": [3]}
    assert ps.read_huggingface(str(tmp_path), split="train").to_pydict() == {"a": [1, 2]}
    assert ps.read_huggingface(tmp_path, format="json").to_pydict() == {"b": [1]}
    with pytest.raises(PathNotFoundError, match=r"no data files of a known format .* for the split 'validation'"):
        ps.read_huggingface(tmp_path, split="validation")
    with pytest.raises(InvalidArgumentError, match="format='arrow' is not known"):
        ps.read_huggingface(tmp_path, format="arrow")


def test_the_local_cache_is_read_offline(tmp_path: Path) -> None:
    folder = tmp_path / "hub" / "datasets--me--words"
    (folder / "blobs").mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(SHA)
    (folder / "snapshots" / SHA / "data").mkdir(parents=True)
    (folder / "blobs" / "b10b").write_bytes(parquet(a=[1, 2]))
    (folder / "snapshots" / SHA / "data" / "train-0.parquet").symlink_to("../../../blobs/b10b")
    code = """
import penstock as ps
print(ps.read_huggingface("me/words", split="train").to_pydict())
try:
    ps.read_huggingface("me/other")
except OSError as exc:
    print(type(exc).__name__)
"""
    env = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["{'a': [1, 2]}", "PathNotFoundError"], done.stderr


# --- a hub ---


def test_a_repository_is_read(hub: Hub) -> None:
    files = {f"data/train-{number}.parquet": parquet(a=[number]) for number in range(3)}
    hub.repos["me/words"] = {"main": {"README.md": b"#", "data/test-0.parquet": parquet(a=[9]), **files},
                             "old": {"train.csv": b"a\n7\n"}}  # fmt: skip
    train = ps.read_huggingface("me/words", split="train", storage_options=options(hub))
    assert train.to_pydict() == {"a": [0, 1, 2]}
    hub.repos["me/train-words"] = hub.repos["me/words"]  # the name of a repository says nothing of its files
    assert ps.read_huggingface("me/train-words", split="test", storage_options=options(hub)).to_pydict() == {"a": [9]}
    assert ps.read_huggingface("me/train-words", split="train", storage_options=options(hub)).count_rows() == 3
    assert ps.read_huggingface("me/words", revision="old", storage_options=options(hub)).to_pydict() == {"a": [7]}
    by_path = ps.read_parquet("hf://datasets/me/words/data/train-*.parquet", storage_options=options(hub))
    assert by_path.to_pydict() == {"a": [0, 1, 2]}
    assert "hf_n0t" not in explained(train) + repr(train)


def test_the_parquet_copy_of_the_hub_is_read_where_there_is_nothing_else(hub: Hub) -> None:
    converted = {"default/train/0000.parquet": parquet(a=[1])}
    hub.repos["me/words"] = {"main": {"words.bin": b"?"}, "refs/convert/parquet": converted}
    assert ps.read_huggingface("me/words", storage_options=options(hub)).to_pydict() == {"a": [1]}
    with pytest.raises(PathNotFoundError, match="me/missing"):
        ps.read_huggingface("me/missing", storage_options=options(hub))


def test_a_write_is_one_commit(hub: Hub) -> None:
    df = ps.from_pydict({"a": [1, 2], "s": ["x", None]})
    written = df.write_huggingface("me/words", commit_message="First", storage_options=options(hub)).to_pydict()
    assert (written["rows"], written["commit"]) == ([2], [SHA])
    assert ps.read_huggingface("me/words", storage_options=options(hub)).to_pydict() == {"a": [1, 2], "s": ["x", None]}
    [[header, _]] = hub.commits
    assert header["value"]["summary"] == "First"
    assert hub.tokens == {"Bearer hf_n0t-to-be-seen"}

    more = ps.from_pydict({"a": [3], "s": ["y"]})
    more.write_huggingface("me/words", storage_options=options(hub))
    assert len(hub.repos["me/words"]["main"]) == 2
    more.write_huggingface("me/words", split="test", storage_options=options(hub))
    more.write_huggingface("me/words", overwrite=True, storage_options=options(hub))
    assert [operation["key"] for operation in hub.commits[-1]] == ["header", "file", "deletedFile", "deletedFile"]
    assert sorted(name.partition("-")[0] for name in hub.repos["me/words"]["main"]) == ["data/test", "data/train"]


def test_a_write_that_fails_commits_nothing(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    @ps.func
    def fails(value: int) -> int:
        raise ValueError("no")

    with pytest.raises(UdfError, match="no"):
        ps.range(3).select(fails(ps.col("id"))).write_huggingface("me/words", storage_options=options(hub))
    assert hub.commits == []
    hub.refuses_commits = True
    with pytest.raises(WriteError, match="Cannot write the dataset 'me/words'") as caught:
        ps.range(3).write_huggingface("me/words", storage_options=options(hub))
    assert "hf_n0t" not in str(caught.value) + repr(hub_sink("me/words", storage_options=options(hub)))
    assert list(tmp_path.iterdir()) == []  # nothing is left of the staged files
    with pytest.raises(InvalidArgumentError, match="must name a dataset repository"):
        ps.range(1).write_huggingface("https://host/me/words")


# --- datasets.Dataset ---


def test_datasets_are_read_without_a_copy() -> None:
    dataset = datasets.Dataset.from_dict({"a": list(range(1000)), "s": [str(number) for number in range(1000)]})
    found = ps.from_huggingface(dataset)
    assert found.where(ps.col("a") >= 998).to_pydict() == {"a": [998, 999], "s": ["998", "999"]}
    assert found.limit(2).select("s").to_pydict() == {"s": ["0", "1"]}
    [task] = DatasetSource(dataset).read_tasks(ReadRequest())
    [batch] = task.read()
    assert batch.column("a").buffers()[1].address == dataset.data.table.column("a").chunk(0).buffers()[1].address


def test_datasets_with_an_order_of_their_own_and_streams() -> None:
    dataset = datasets.Dataset.from_dict({"a": list(range(10))})
    assert ps.from_huggingface(dataset.select([3, 1])).to_pydict() == {"a": [3, 1]}
    assert ps.from_huggingface(dataset.to_iterable_dataset()).where(ps.col("a") > 7).to_pydict() == {"a": [8, 9]}
    with pytest.raises(InvalidArgumentError, match=r"choose a split, such as from_huggingface\(dataset\['train'\]\)"):
        ps.from_huggingface(datasets.DatasetDict({"train": dataset}))
    with pytest.raises(InvalidArgumentError, match=r"takes a datasets\.Dataset; got list"):
        ps.from_huggingface([1])
