"""``IOConfig`` and the settings of each store, translated to ``storage_options``."""

from __future__ import annotations

from typing import Any, ClassVar

from penstock.compat.translation import refusal
from penstock.errors import InvalidArgumentError

_IGNORED = frozenset(  # settings about waiting times and speed
    {
        *("num_tries", "max_connections", "max_connections_per_io_thread", "retry_initial_backoff_ms", "retry_mode"),
        *("connect_timeout_ms", "read_timeout_ms", "buffer_time", "multipart_size", "multipart_max_concurrency"),
        *(
            "max_retries",
            "project_id",
            "user_agent",
            "use_content_defined_chunking",
            "row_group_size",
            "target_filesize",
        ),
    }
)


class StoreConfig:
    """Settings of one store. ``names`` maps them to Penstock's names; settings that change no result are ignored."""

    names: ClassVar[dict[str, str]]

    def __init__(self, **given: Any) -> None:
        for name, value in given.items():
            if name not in self.names and name not in _IGNORED and value is not None:
                raise refusal(f"{type(self).__name__}({name}=...)")
        self.given = given

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self.names:
            raise AttributeError(name)
        return self.given.get(name)


class S3Config(StoreConfig):
    """Settings of S3."""

    names: ClassVar = {
        "region_name": "region", "endpoint_url": "endpoint_url", "key_id": "key", "session_token": "token",
        "access_key": "secret", "anonymous": "anon",
    }  # fmt: skip


class GCSConfig(StoreConfig):
    """Settings of Google Cloud Storage."""

    names: ClassVar = {"credentials": "service_account_path", "token": "token", "anonymous": "anon"}


class AzureConfig(StoreConfig):
    """Settings of Azure Blob Storage."""

    names: ClassVar = {
        "storage_account": "account", "access_key": "key", "sas_token": "sas_token", "bearer_token": "bearer_token",
        "tenant_id": "tenant_id", "client_id": "client_id", "client_secret": "client_secret", "anonymous": "anon",
        "endpoint_url": "endpoint_url",
    }  # fmt: skip


class HTTPConfig(StoreConfig):
    """Settings of web servers."""

    names: ClassVar = {"bearer_token": "headers"}

    def __init__(self, *, bearer_token: str | None = None, **given: Any) -> None:
        sent = None if bearer_token is None else {"Authorization": f"Bearer {bearer_token}"}
        super().__init__(bearer_token=sent, **given)


class HuggingFaceConfig(StoreConfig):
    """Settings of Hugging Face."""

    names: ClassVar = {"token": "token", "anonymous": "anon"}


class IOConfig:
    """Settings of all stores. Only one store may have settings, because a path has one store."""

    def __init__(self, s3: Any = None, azure: Any = None, gcs: Any = None, http: Any = None, hf: Any = None) -> None:
        self.s3, self.azure, self.gcs, self.http, self.hf = s3, azure, gcs, http, hf

    def storage_options(self) -> dict[str, Any]:
        """Return the given settings under Penstock's names."""
        stores: list[StoreConfig] = [store for store in vars(self).values() if store is not None]
        if len(stores) > 1:
            raise InvalidArgumentError("IOConfig takes the settings of one store here; make one for each store.")
        given = [(store.names[name], value) for store in stores for name, value in store.given.items()
                 if value is not None and name in store.names]  # fmt: skip
        return dict(given)


def storage_options(io_config: IOConfig) -> dict[str, Any]:
    """Return the ``storage_options`` of an IOConfig."""
    return io_config.storage_options()
