"""Other spellings of options, which error messages answer with the one to use."""

from __future__ import annotations

from collections.abc import Collection

OURS: dict[str, tuple[str, ...]] = {
    "accelerator_type": ("ray_options",),
    "arrow_open_stream_args": ("storage_options",),
    "compute": ("concurrency", "max_concurrency"),
    "concurrency": ("max_concurrency",),
    "cpus": ("num_cpus",),
    "descending": ("desc",),
    "dtype": ("return_dtype", "schema"),
    "file_path_col": ("file_path_column",),
    "filesystem": ("storage_options",),
    "fs": ("storage_options",),
    "gpus": ("num_gpus",),
    "include_paths": ("file_path_column",),
    "io_config": ("storage_options",),
    "key": ("by",),
    "limit": ("n",),
    "max_api_concurrency": ("max_concurrency",),
    "max_completion_tokens": ("max_output_tokens", "max_tokens"),
    "max_concurrency": ("concurrency",),
    "max_rows_per_file": ("rows_per_file",),
    "memory_bytes": ("memory",),
    "min_rows_per_file": ("rows_per_file",),
    "num_cpus": ("cpus",),
    "num_gpus": ("gpus",),
    "num_rows_per_file": ("rows_per_file",),
    "num_workers": ("concurrency", "max_concurrency"),
    "partition_by": ("partition_cols",),
    "partition_on": ("partition_cols",),
    "partitioning": ("hive_partitioning",),
    "path_column": ("file_path_column",),
    "paths": ("path",),
    "ray_remote_args": ("ray_options",),
    "resources": ("ray_options",),
    "reverse": ("desc",),
    "response_format": ("return_format",),
    "root_dir": ("path",),
    "row_group_size": ("rows_per_file",),
    "runtime_env": ("ray_options",),
    "save_mode": ("mode",),
    "schema_hints": ("schema",),
    "system": ("system_message",),
    "system_prompt": ("system_message",),
    "uri": ("path",),
    "write_mode": ("mode",),
}
"""The options that a spelling may mean; the message names the first one that the function has."""

ADVICE = {
    "ascending": "Use desc= instead: desc=True for descending order, or a list with a value for each key.",
    "api_key": "Give it to the provider: ps.set_provider('openai', api_key=...), or set OPENAI_API_KEY or the like.",
    "base_url": "Give it to the provider: ps.set_provider('openai', base_url=...).",
    "checkpoint_interval": "Set it for all jobs: ps.set_config(checkpoint_interval=...).",
    "concurrency": "The number of threads is a setting: ps.set_config(num_threads=...).",
    "inplace": "Leave it out: a verb changes nothing and returns a new DataFrame.",
    "file_extensions": "Name the files by a pattern, such as 'folder/*.csv'.",
    "memory_limit": "Set it for all queries: ps.set_config(memory_limit=...).",
    "num_blocks": "Use repartition(n).",
    "num_cpus": "The number of threads is a setting: ps.set_config(num_threads=...).",
    "num_partitions": "Use repartition(n).",
    "num_threads": "Set it for all queries: ps.set_config(num_threads=...).",
    "override_num_blocks": "Leave it out, reads are split by size; repartition(n) makes n partitions.",
    "parallelism": "Leave it out, reads are split by size; repartition(n) makes n partitions.",
    "partition_filter": "Read with hive_partitioning=True and use where(...): only matching folders are read.",
    "prefetch_batches": "Leave it out: reads run ahead within the memory limit.",
    "progress": "Set it for all queries: ps.set_config(progress=...).",
    "ray_remote_args": "Leave it out: reads and writes need no options of Ray.",
    "shuffle": "Use .shuffle() after the read.",
    "target_num_rows_per_block": "Use into_batches(n).",
    "try_create_dir": "Leave it out: folders are created.",
}


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
