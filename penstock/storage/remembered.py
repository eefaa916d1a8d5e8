"""Options of places whose files are named in columns.

A column of files holds paths, and never the secrets to read them with: those would end up in every file that is
written. So ``from_files(..., storage_options=...)`` and ``file(..., storage_options=...)`` remember the options for the
bucket in this process, and the query hands them on to its workers. The last options given for a bucket are in force.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.storage.options import StorageOptions
from penstock.storage.urls import WEB, scheme_of

_by_place: dict[str, StorageOptions] = {}


def place_of(path: str) -> str:
    """Return the part of a URL that options belong to: the scheme and the bucket, or server.

    >>> place_of("s3://bucket/a/b"), place_of("s3://*/b")
    ('s3://bucket', 's3://')
    """
    scheme, bucket = scheme_of(path), path.partition("://")[2].partition("/")[0]
    if scheme in WEB:
        return f"{scheme}://{bucket.partition('?')[0].partition('#')[0].lower()}"
    return f"{scheme}://{bucket if '*' not in bucket else ''}"


def remember(paths: Iterable[str], options: Mapping[str, Any] | None) -> None:
    """Keep the options for the places of ``paths``; ``s3://`` stands for every bucket, but nothing for every server."""
    if options:
        for place in {place_of(path) for path in paths if scheme_of(path) != "file"}:
            if place not in [f"{scheme}://" for scheme in WEB]:
                _by_place[place] = StorageOptions.of(options)


def options_for(path: str) -> StorageOptions | None:
    """Return what was remembered for the place of a path."""
    if not _by_place:
        return None
    return _by_place.get(place_of(path)) or _by_place.get(f"{scheme_of(path)}://")


def remembered() -> dict[str, StorageOptions]:
    """Return everything, to be restored in another process."""
    return dict(_by_place)


def restore(places: Mapping[str, Mapping[str, Any]]) -> None:
    """Take what another process remembered."""
    _by_place.update({place: StorageOptions(options) for place, options in places.items()})
