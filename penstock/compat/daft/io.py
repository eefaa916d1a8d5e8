"""``IOConfig`` and the settings of each store, translated to ``storage_options``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.errors import InvalidArgumentError


@dataclass(frozen=True)
class S3Config:
    """Settings of S3."""

    region_name: str | None = None
    endpoint_url: str | None = None
    key_id: str | None = None
    session_token: str | None = None
    access_key: str | None = None
    anonymous: bool | None = None


@dataclass(frozen=True)
class GCSConfig:
    """Settings of Google Cloud Storage."""

    project_id: str | None = None
    credentials: str | None = None
    token: str | None = None
    anonymous: bool | None = None


@dataclass(frozen=True)
class AzureConfig:
    """Settings of Azure Blob Storage."""

    storage_account: str | None = None
    access_key: str | None = None
    sas_token: str | None = None
    anonymous: bool | None = None
    endpoint_url: str | None = None


@dataclass(frozen=True)
class HTTPConfig:
    """Settings of web servers."""

    bearer_token: str | None = None


@dataclass(frozen=True)
class HuggingFaceConfig:
    """Settings of Hugging Face."""

    token: str | None = None
    anonymous: bool | None = None


_NAMES = {
    "region_name": "region", "key_id": "key", "access_key": "secret", "session_token": "token", "anonymous": "anon",
    "bearer_token": "token", "storage_account": "account_name", "credentials": "token", "project_id": "project",
}  # fmt: skip


@dataclass(frozen=True)
class IOConfig:
    """Settings of all stores. Only those of one store can be given, as a path has one store."""

    s3: S3Config | None = None
    azure: AzureConfig | None = None
    gcs: GCSConfig | None = None
    http: HTTPConfig | None = None
    hf: HuggingFaceConfig | None = None

    def storage_options(self) -> dict[str, Any]:
        """Return the settings that are given, by our names."""
        stores = [store for store in vars(self).values() if store is not None]
        if len(stores) > 1:
            raise InvalidArgumentError("IOConfig takes the settings of one store here; make one for each store.")
        given = vars(stores[0]) if stores else {}
        return {_NAMES.get(name, name): value for name, value in given.items() if value is not None}


def storage_options(io_config: IOConfig) -> dict[str, Any]:
    """Return the ``storage_options`` of an IOConfig."""
    return io_config.storage_options()
