"""Parameters of Ray Data that say where and how fast work runs. Penstock passes on the resources of actors, and decides
the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.compat.translation import refusal
from penstock.errors import InvalidArgumentError

PLACEMENT = frozenset(
    {
        *("override_num_blocks", "parallelism", "ray_remote_args", "ray_remote_args_fn", "runtime_env", "resources"),
        *("label_selector", "fallback_strategy", "max_calls", "accelerator_type", "scheduling_strategy", "num_blocks"),
        *("zero_copy_batch", "udf_modifying_row_count", "try_create_dir", "meta_provider", "locality_hints", "strict"),
        *("aggregator_ray_remote_args", "partition_size_hint", "validate_schemas", "boundaries", "num_partitions"),
    }
)
OF_ACTORS = ("accelerator_type", "label_selector", "resources", "runtime_env", "scheduling_strategy")
RESOURCES = frozenset({"concurrency", "num_cpus", "num_gpus", "memory", "compute"})
FORMATS: dict[Any, Any] = {"default": "numpy", None: "pyarrow"}


def function_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a function that ``map_batches`` knows; a format of None is Arrow."""
    options = {key: value for key, value in given.items() if key not in PLACEMENT}
    of_actors = {key: given[key] for key in OF_ACTORS if given.get(key) is not None}
    options["ray_options"] = {**(given.get("ray_remote_args") or {}), **of_actors} or None
    if "batch_format" in options:
        options["batch_format"] = FORMATS.get(options["batch_format"], options["batch_format"])
    if options.get("batch_size") == "default":
        del options["batch_size"]
    return {key: value for key, value in options.items() if value is not None}


def refuse_if(is_wrong: object, message: str) -> None:
    """Raise the error of an argument that Ray Data refuses too."""
    if is_wrong:
        raise InvalidArgumentError(message)


def check_filesystem(verb: str, filesystem: Any) -> None:
    """Refuse a file system other than the local one, which paths without a scheme name anyway."""
    if filesystem is not None and getattr(filesystem, "type_name", "") != "local":
        raise refusal(f"{verb}(filesystem=...)", "use a path with s3:// or its like, and storage_options=")


def check_placement(verb: str, given: Mapping[str, Any]) -> None:
    """Refuse options that a verb without a user's function cannot honour."""
    for key, value in given.items():
        if key not in PLACEMENT and key not in RESOURCES and value is not None:
            raise refusal(f"{verb}({key}=...)")
