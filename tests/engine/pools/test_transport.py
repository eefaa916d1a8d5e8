"""Batches between processes: whatever their size and type, and nothing left behind if the other side goes."""

from __future__ import annotations

import gc
import os
import pickle
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.engine.pools.transport import MAX_FILES, PeerClosedError, receive, send
from penstock.types import DataType, to_arrow_array

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def echoed(
    pair: Pair, message: Any, batch: pa.RecordBatch | None, is_known: bool = False
) -> tuple[Any, pa.RecordBatch | None]:
    """Send there and back; as an answer to what is known, or as a new batch."""
    ours, theirs = pair

    def echo() -> None:
        given = receive(theirs)
        send(theirs, *given, given[1] if is_known else None)

    thread = threading.Thread(target=echo)
    thread.start()
    send(ours, message, batch)
    answer = receive(ours, batch)
    thread.join()
    return answer


def open_fds() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def mapped_blocks() -> int:
    gc.collect()  # or what earlier tests left goes in between
    return sum("memfd:penstock" in line for line in Path("/proc/self/maps").read_text().splitlines())


@pytest.mark.parametrize("message", [("done",), ("open", b"x" * 5_000_000, ["/a"]), None])
def test_messages(pair: Pair, message: Any) -> None:
    assert echoed(pair, message, None) == (message, None)


BATCHES = {
    "numbers": pa.record_batch({"x": [1, None, 3], "y": ["a", "bb", None]}),
    "no rows": pa.record_batch({"x": pa.array([], pa.int64())}),
    "no columns": pa.RecordBatch.from_struct_array(pa.array([{}] * 7, pa.struct([]))),
    "nothing": pa.RecordBatch.from_struct_array(pa.array([], pa.struct([]))),
    "nested": pa.record_batch({"l": [[1, 2], None, []], "s": [{"a": 1}, None, {"a": 2}]}),
    "dictionary": pa.record_batch({"d": pa.array(["x", "y", "x"]).dictionary_encode()}),
    "embedding": pa.record_batch(
        {"e": to_arrow_array([np.ones(4, np.float32), None], DataType.embedding(DataType.float32(), 4), what="test")}
    ),
    "tensor": pa.record_batch(
        {"t": to_arrow_array([np.eye(2), np.zeros((3, 1)), None], DataType.tensor(DataType.float64()), what="test")}
    ),
    "python": pa.record_batch({"p": to_arrow_array([{1, 2}, None, object], DataType.python(), what="test")}),
}


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("name", BATCHES)
def test_batches_of_any_type(pair: Pair, name: str, is_known: bool) -> None:
    batch = BATCHES[name]
    message, back = echoed(pair, ("process", 5), batch, is_known)
    assert message == ("process", 5)
    assert back is not None
    assert back.schema == batch.schema
    assert back.num_rows == batch.num_rows
    assert back.equals(batch)
    back.validate(full=True)


def test_a_slice_travels_without_the_rest(pair: Pair) -> None:
    whole = pa.record_batch({"x": np.arange(1_000_000)})
    ours, theirs = pair
    send(ours, "part", whole.slice(500_000, 10))
    _, part = receive(theirs)
    assert part is not None
    assert part.column("x").to_pylist() == list(range(500_000, 500_010))
    send(ours, "again", whole.slice(500_000, 10))
    _, (fd,), _, _ = socket.recv_fds(theirs, 8, 1)
    assert os.fstat(fd).st_size < 10_000
    os.close(fd)


def test_an_answer_does_not_copy_the_columns_of_the_question(pair: Pair) -> None:
    ours, theirs = pair
    question = pa.record_batch({"image": [b"x" * 1_000] * 1_000, "n": range(1_000)})
    send(ours, "question", question)
    _, given = receive(theirs)
    assert given is not None
    answer = {"picture": given["image"], "copy": pa.array(given["n"].to_pylist()), "m": given["n"], "n": given["n"]}
    send(theirs, "answer", pa.record_batch(answer), known=given)
    _, back = receive(ours, known=question)
    assert back is not None
    assert back.to_pydict() == {name: column.to_pylist() for name, column in answer.items()}
    ours_too = {column.buffers()[-1].address for column in question.columns}
    assert [column.buffers()[-1].address in ours_too for column in back.columns] == [True, False, True, True]


def test_rows_that_move_are_not_unchanged(pair: Pair) -> None:
    ours, theirs = pair
    question = pa.record_batch({"n": range(10), "l": [[i] for i in range(10)]})
    send(ours, "question", question)
    _, given = receive(theirs)
    assert given is not None
    for answer in (given.slice(1, 5), given.slice(0, 5), given.take(pa.array(range(9, -1, -1)))):
        send(theirs, "answer", answer, known=given)
        _, back = receive(ours, known=question)
        assert back is not None
        assert back.equals(answer)


def test_a_hundred_megabytes_both_ways(pair: Pair) -> None:
    batch = pa.record_batch({"x": np.arange(12_500_000), "y": pa.nulls(12_500_000)})
    _, back = echoed(pair, "big", batch)
    assert back is not None
    assert back.nbytes >= 100_000_000
    assert back.equals(batch)


@pytest.mark.parametrize("num_rows", [3, 1_000_000])
def test_a_batch_outlives_the_connection_and_is_freed_with_its_last_reference(pair: Pair, num_rows: int) -> None:
    ours, theirs = pair
    blocks, fds = mapped_blocks(), open_fds()
    send(ours, "one", pa.record_batch({"x": np.arange(num_rows)}))
    _, batch = receive(theirs)
    assert open_fds() <= fds, "a process may hold more batches than files"
    assert mapped_blocks() == blocks + (num_rows > 3), "small ones are copied"
    ours.close()
    theirs.close()
    assert batch is not None
    column = batch.column("x").slice(1, 2)
    del batch
    assert column.to_pylist() == [1, 2]
    del column
    gc.collect()
    assert mapped_blocks() == blocks


def test_a_large_column_is_freed_while_the_others_are_kept(pair: Pair) -> None:
    num_rows = 1_000
    images = pa.array([b"x" * 1_000] * num_rows)
    ids = pa.array(range(num_rows))
    batch = pa.record_batch({"a": ids, "image": images, "b": ids, "mask": images}).replace_schema_metadata({"k": "v"})
    ours, theirs = pair
    blocks = mapped_blocks()
    send(ours, "one", batch)
    _, back = receive(theirs)
    assert back is not None
    assert back.equals(batch, check_metadata=True)
    assert mapped_blocks() == blocks + 2
    kept = back.select(["b", "mask"])
    del back
    assert mapped_blocks() == blocks + 1
    kept = kept.select(["b"])
    assert mapped_blocks() == blocks
    assert kept.column("b").equals(ids)


def test_more_large_columns_than_files_of_a_message(pair: Pair) -> None:
    batch = pa.record_batch({str(number): np.full(50_000, number) for number in range(MAX_FILES + 10)})
    _, back = echoed(pair, "wide", batch)
    assert back is not None
    assert back.equals(batch)


def test_the_other_side_is_gone(pair: Pair) -> None:
    ours, theirs = pair
    theirs.close()
    with pytest.raises(PeerClosedError):
        receive(ours)
    with pytest.raises(PeerClosedError):
        send(ours, "anyone?")
    with pytest.raises(PeerClosedError):
        send(ours, "anyone?", pa.record_batch({"x": [1]}))


@pytest.mark.parametrize("num_bytes", [0, 4, 8, 20])
def test_the_other_side_goes_in_the_middle_of_a_message(pair: Pair, num_bytes: int) -> None:
    """Its descriptor, if that has come, is closed."""
    ours, theirs = pair
    head = pickle.dumps("never all of it")
    read_end, write_end = os.pipe()
    fds = open_fds()
    beginning = (struct.pack("<Q", len(head)) + head)[:num_bytes]
    if beginning:
        socket.send_fds(theirs, [beginning], [read_end])
    theirs.close()
    with pytest.raises(PeerClosedError):
        receive(ours)
    assert len(open_fds()) <= len(fds) - 1  # theirs
    os.close(read_end)
    os.close(write_end)


def test_data_that_fits_no_memory_is_an_error_and_leaves_nothing(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    fds = open_fds()
    monkeypatch.setattr("penstock.engine.pools.transport._write", full)
    with pytest.raises(OSError, match="No space left"):
        send(pair[0], "big", pa.record_batch({"x": [1]}))
    assert open_fds() <= fds
