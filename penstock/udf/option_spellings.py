"""Other spellings of options. Penstock accepts some; for the rest an error names the option to use."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from penstock.errors import InvalidArgumentError

ACCEPTED = {
    "file_path_column": "path_column",
    "image_height": "height",
    "image_width": "width",
    "include_paths": "path_column",
    "limit": "n",
    "max_concurrency": "concurrency",
    "memory_bytes": "memory",
    "num_cpus": "cpus",
    "num_gpus": "gpus",
    "overwrite": "mode",
}
"""Spellings of other engines that stand for ours where a function has that."""

OURS: dict[str, tuple[str, ...]] = {
    "accelerator_type": ("ray_options",),
    "arrow_open_stream_args": ("storage_options",),
    "compute": ("concurrency",),
    "concurrency": ("max_concurrency",),
    "descending": ("desc",),
    "dtype": ("return_dtype", "schema"),
    "filesystem": ("storage_options",),
    "fs": ("storage_options",),
    "io_config": ("storage_options",),
    "key": ("by",),
    "max_completion_tokens": ("max_output_tokens", "max_tokens"),
    "num_workers": ("concurrency",),
    "partition_by": ("partition_cols",),
    "partition_on": ("partition_cols",),
    "ray_remote_args": ("ray_options",),
    "resources": ("ray_options",),
    "reverse": ("desc",),
    "root_dir": ("path",),
    "row_group_size": ("rows_per_file",),
    "runtime_env": ("ray_options",),
    "save_mode": ("mode",),
    "system_prompt": ("system_message",),
    "uri": ("path",),
    "write_mode": ("mode",),
}
"""The options that a spelling far from them may mean; the message names the first one that the function has."""

_BY_DUCKDB = "DuckDB reads such files: ps.from_arrow(duckdb.read_csv(path, comment='#', null_padding=True).arrow())."
_PATHS_ONLY = "A column has paths only: give it to from_files or download, or set the variables of the store."
ADVICE = {
    "allow_variable_columns": _BY_DUCKDB,
    "ascending": "Use desc= instead: desc=True for descending order, or a list with a value for each key.",
    "checkpoint_interval": "Set it for all jobs: ps.set_config(checkpoint_interval=...).",
    "comment": _BY_DUCKDB,
    "concurrency": "The number of threads is a setting: ps.set_config(num_threads=...).",
    "inplace": "Leave it out: a verb changes nothing and returns a new DataFrame.",
    "fileselect": "Use suffixes=[...], which picks the columns by their extensions.",
    "file_extensions": "Name the files by a pattern, such as 'folder/*.csv'.",
    "memory_limit": "Set it for all queries: ps.set_config(memory_limit=...).",
    "num_blocks": "Use repartition(n).",
    "num_cpus": "The number of threads is a setting: ps.set_config(num_threads=...).",
    "num_partitions": "Use repartition(n).",
    "num_threads": "Set it for all queries: ps.set_config(num_threads=...).",
    "override_num_blocks": "Leave it out, reads are split by size; repartition(n) makes n partitions.",
    "parallelism": "Leave it out, reads are split by size; repartition(n) makes n partitions.",
    "io_config": _PATHS_ONLY,
    "partition_filter": "Read with hive_partitioning=True and use where(...): only matching folders are read.",
    "prefetch_batches": "Leave it out: reads run ahead within the memory limit.",
    "progress": "Set it for all queries: ps.set_config(progress=...).",
    "ray_remote_args": "Leave it out: reads and writes need no options of Ray.",
    "shuffle": "Use .shuffle() after the read.",
    "storage_options": _PATHS_ONLY,
    "target_num_rows_per_block": "Use into_batches(n).",
    "try_create_dir": "Leave it out: folders are created.",
}


def in_our_words(what: str, given: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Return options under our names.

    >>> in_our_words("read_csv", {"include_paths": True, "columns": ["a"]}, ["columns", "path_column"])
    {'columns': ['a'], 'path_column': 'path'}
    """
    others = {name: ACCEPTED[name] for name in given if name not in known and ACCEPTED.get(name) in known}
    renamed = {name: value for name, value in given.items() if name not in others}
    for name, ours in others.items():
        value = given[name]
        match name:
            case "include_paths":  # the name of the column may be given too
                renamed.setdefault(ours, "path" if value else None)
                continue
            case "overwrite":
                value = "overwrite" if value else "append"
        if renamed.get(ours) is not None:
            raise InvalidArgumentError(f"{what}: {name}= means {ours}=; give one of them.")
        renamed[ours] = value
    return renamed


def spelling_hint(name: str, known: Collection[str]) -> str:
    """Return a sentence that says what to write in place of an option, or an empty text.

    >>> spelling_hint("write_mode", ["path", "mode"])
    ' Use mode= instead.'
    >>> spelling_hint("promt", ["prompt"])
    ''
    """
    ours = next((option for option in OURS.get(name, ()) if option in known), None)
    if ours is not None:
        return f" Use {ours}= instead."
    return f" {ADVICE[name]}" if name in ADVICE else ""
