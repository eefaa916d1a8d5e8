"""Options as Daft and Ray Data spell them are refused with our own spelling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import penstock
import penstock.functions
from penstock.errors import InvalidArgumentError

ps: Any = penstock  # type checkers would refuse these calls too


@pytest.mark.parametrize(
    ("call", "advice"),
    [
        (lambda: ps.range(1).write_parquet(root_dir="x"), "Use path= instead."),
        (lambda: ps.range(1).write_parquet("x", write_mode="overwrite"), "Use mode= instead."),
        (lambda: ps.range(1).write_parquet("x", checkpoint_interval=5), "ps.set_config(checkpoint_interval=...)"),
        (lambda: ps.range(1).write_csv("x", min_rows_per_file=5), "Did you mean 'rows_per_file'?"),
        (lambda: ps.range(1).write_json("x", try_create_dir=True), "folders are created"),
        (lambda: ps.range(1).sort("id", descending=True), "Use desc= instead."),
        (lambda: ps.range(1).write_sql("t", "sqlite:///x", write_mode="append"), "Use mode= instead."),
        (lambda: ps.read_parquet(paths="x"), "Did you mean 'path'?"),
        (lambda: ps.read_parquet("x", io_config={}), "Use storage_options= instead."),
        (lambda: ps.read_csv("x", override_num_blocks=8), "reads are split by size"),
        (lambda: ps.read_images("x", ray_remote_args={}), "reads and writes need no options of Ray"),
        (lambda: ps.range(3, parallelism=2), "reads are split by size"),
        (lambda: ps.range(1).repartition(num_blocks=2), "Use repartition(n)."),
        (lambda: ps.cls(ray_remote_args={}), "Use ray_options= instead."),
        (lambda: ps.functions.download(ps.col("u"), io_config={}), "Use storage_options= instead."),
        (lambda: ps.functions.prompt(ps.col("t"), model="m", system_prompt="x"), "Use system_message= instead."),
        (
            lambda: ps.functions.prompt(ps.col("t"), model="m", api_key="secret-key"),
            "ps.set_provider('openai', api_key=...)",
        ),
    ],
)
def test_the_refusal_names_ours(call: Callable[[], Any], advice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with pytest.raises(InvalidArgumentError) as caught:
        call()
    assert advice in str(caught.value)
    assert "secret-key" not in str(caught.value)
