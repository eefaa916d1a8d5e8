"""S3 listings with keys that are no paths, such as ``a//b`` and ``a/../b``: obstore fails on a whole page of them.

Arrow's own client lists them; those that no reader of ours can name are left out, and the log says so.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.storage.options import client_arguments, endpoint_of

logger = logging.getLogger(__name__)


def list_usable(
    bucket: str, prefix: str, is_deep: bool, options: Mapping[str, Any]
) -> Iterator[tuple[str, int | None]]:
    """Yield the key and size of every file below ``prefix`` that has a path; folders too, with None, unless deep."""
    import pyarrow.fs

    folder = f"{bucket}/{prefix}".rstrip("/")
    selector = pyarrow.fs.FileSelector(folder, recursive=is_deep, allow_not_found=True)
    odd: list[str] = []
    for info in _arrow_s3(options).get_file_info(selector):
        key = info.path.removeprefix(f"{bucket}/")
        is_file = info.type == pyarrow.fs.FileType.File
        if info.path == folder:  # the folder "" within
            odd.append(f"{key}//")
        elif not is_path(key):
            odd.extend([key] if is_file or not is_deep else [])
        elif is_file or not is_deep:
            yield key, info.size if is_file else None
    if odd:
        logger.warning(
            "Left out %d keys of s3://%s that are no paths, such as %r: copy them to names without empty parts, '.' or "
            "'..' to read them.", len(odd), bucket, odd[0],
        )  # fmt: skip


def is_path(key: str) -> bool:
    """Return whether a key can be a path: no part of it is empty, or leads elsewhere.

    >>> [is_path(key) for key in ("a/b.txt", "a//b.txt", "/a", "a/../b")]
    [True, False, False, False]
    """
    return not any(part in ("", ".", "..") for part in key.split("/"))


def _arrow_s3(options: Mapping[str, Any]) -> Any:
    import pyarrow.fs

    found = client_arguments("s3", options)["config"].items()
    config = {name.lower().removeprefix("aws_"): value for name, value in found}
    given = {
        "access_key": config.get("access_key_id"),
        "secret_key": config.get("secret_access_key"),
        "session_token": config.get("session_token"),
        "anonymous": True if config.get("skip_signature") else None,
        "region": config.get("region"),
        "endpoint_override": endpoint_of("s3", config) or None,
        "force_virtual_addressing": bool(config.get("virtual_hosted_style_request")) or None,
    }
    return pyarrow.fs.S3FileSystem(**{name: value for name, value in given.items() if value is not None})
