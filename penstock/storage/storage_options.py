"""``storage_options``: one set of short names for all object stores, without showing their secrets.

A column of files holds paths and never credentials, because a write would put them into every output file. So
``from_files(..., storage_options=...)`` shares the options of a bucket with the whole process, and a query passes them
to its workers. The last options given for a bucket apply.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

from penstock.errors import InvalidArgumentError, did_you_mean
from penstock.storage.secret import Secret
from penstock.storage.urls import KINDS, WEB, is_secret_name, redacted, scheme_of

# Our names, as in fsspec's file systems, and the names in the client.
_NAMES: dict[str, dict[str, str]] = {
    "s3": {
        "key": "access_key_id",
        "secret": "secret_access_key",
        "token": "session_token",
        "endpoint_url": "endpoint",
        "anon": "skip_signature",
    },
    "gs": {"token": "bearer_token", "key": "service_account_key", "endpoint_url": "base_url", "anon": "skip_signature"},
    "az": {
        "key": "account_key",
        "account": "account_name",
        "sas_token": "sas_key",
        "endpoint_url": "endpoint",
        "anon": "skip_signature",
    },
}
_CLIENT_OPTIONS = (
    *("allow_http", "allow_invalid_certificates", "connect_timeout", "default_headers", "pool_idle_timeout"),
    *("pool_max_idle_per_host", "proxy_url", "read_timeout", "timeout", "user_agent"),
)
_PREFIXES = {"s3": "aws_", "gs": "google_", "az": "azure_storage_"}
_OTHER_NAMES = {
    "s3": ("region", "virtual_hosted_style_request", "request_payer", "server_side_encryption", "sse_kms_key_id"),
    "gs": ("service_account", "service_account_path", "application_credentials"),
    "az": ("client_id", "client_secret", "tenant_id", "token", "bearer_token", "access_key", "use_azure_cli"),
    "hf": ("token", "endpoint", "block_size", "revision", "expand_info", "use_listings_cache", "skip_instance_cache"),
    "web": ("headers",),
}
_RETRY_OPTIONS = ("max_retries", "retry_timeout")
_ENVIRONMENT = ("AWS_", "GOOGLE_", "AZURE_")
_SHOWN = ("endpoint", "endpoint_url", "region", "bucket", "anon", "skip_signature", "account_name", "account")
_ENDPOINTS = {"s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"), "az": ("AZURE_STORAGE_ENDPOINT",)}
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_SECRET_WORDS = ("KEY", "SECRET", "TOKEN", "PASSWORD", "CREDENTIAL", "SIGNATURE", "SAS")


def client_arguments(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of a client of ``kind`` (``s3``, ``gs``, ``az``) for a user's options.

    >>> client_arguments("s3", {"key": "me", "endpoint_url": "http://localhost:9000"})["config"]
    {'access_key_id': 'me', 'endpoint': 'http://localhost:9000'}
    """
    arguments: dict[str, dict[str, Any]] = {"config": {}, "client_options": {}, "retry_config": {}}
    for name, value in options.items():
        if value is not None:
            is_client, is_retry = name in _CLIENT_OPTIONS, name in _RETRY_OPTIONS
            group = "client_options" if is_client else "retry_config" if is_retry else "config"
            arguments[group][_NAMES[kind].get(name, name)] = value
    return arguments


def library_options(uri: str, options: Mapping[str, Any] | None) -> dict[str, str] | None:
    """Return a user's options as Lance and Delta Lake take them: as text, under the store's own names.

    None means that the environment has all options.

    >>> library_options("s3://bucket/table", {"key": "me", "endpoint_url": "http://localhost:9000", "anon": True})
    {'aws_access_key_id': 'me', 'aws_endpoint': 'http://localhost:9000', 'aws_skip_signature': 'true', \
'allow_http': 'true'}
    """
    kind = KINDS.get(scheme_of(uri))
    given = {name: value for name, value in StorageOptions.of(options).items() if value is not None}
    if kind is not None:
        given = {_library_name(kind, name): value for name, value in given.items()}
        if endpoint_of(kind, given).startswith("http://") and not any(name.endswith("allow_http") for name in given):
            given["allow_http"] = True
    found = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}
    return found or None


def _library_name(kind: str, name: str) -> str:
    if name == "anon":
        return _PREFIXES[kind].removesuffix("storage_") + "skip_signature"
    ours = _NAMES[kind] | ({"region": "region"} if kind == "s3" else {})
    return _PREFIXES[kind] + ours[name] if name in ours else name


def endpoint_of(kind: str, config: Mapping[str, Any]) -> str:
    """Return the address of the server in the options or the environment; empty for the cloud's own."""
    for name in ("endpoint", "endpoint_url", "base_url"):
        if found := config.get(name) or config.get(_PREFIXES[kind] + name):
            return str(found)
    return next((os.environ[name] for name in _ENDPOINTS.get(kind, ()) if os.environ.get(name)), "")


def _names_of(kind: str) -> set[str]:
    """Return the names of options of ``s3``, ``gs``, ``az``, ``hf`` or ``web``; there are more with a prefix."""
    if kind not in _NAMES:
        return set(_OTHER_NAMES[kind])
    return {*_NAMES[kind], *_NAMES[kind].values(), *_CLIENT_OPTIONS, *_RETRY_OPTIONS, *_OTHER_NAMES[kind]}


def _is_option(kind: str, name: str) -> bool:
    lowered, brand = name.lower(), _PREFIXES.get(kind, "").partition("_")[0]
    return lowered in _names_of(kind) or bool(brand and lowered.startswith(f"{brand}_"))


def check_known(
    options: Mapping[str, Any] | None, kinds: Iterable[str] = tuple(_OTHER_NAMES), *, is_final: bool = True
) -> None:
    """Refuse options that no store of ``kinds`` has. A column may mix stores, so by default the options of any store
    pass.

    With ``is_final=False``, for paths that are not known yet, refuse only a likely misspelling: another name may be an
    option of an fsspec protocol.
    """
    for name in map(str, options or {}):
        if any(_is_option(kind, name) for kind in kinds):
            continue
        hint = did_you_mean(name, sorted({name for kind in kinds for name in _names_of(kind)}))
        if hint or is_final:
            raise InvalidArgumentError(
                f"storage_options: {name!r} is not known.{hint} docs/guides/files.md lists the options."
            )


def environment() -> tuple[tuple[str, str], ...]:
    """Return the environment variables that clients read; a change of one needs a new client."""
    return tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith(_ENVIRONMENT)))


def secrets_of(options: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the secret values of the options and the environment."""
    hidden = [value for name, value in environment() if any(word in name for word in _SECRET_WORDS)]
    for name, value in (options or {}).items():
        if name.removeprefix("aws_") not in _SHOWN and isinstance(value, str):
            hidden.append(value)
    return tuple(sorted({value for value in hidden if len(value) >= 4}, key=len, reverse=True))


def scrubbed(text: str, secrets: tuple[str, ...]) -> str:
    """Return text without secrets and without terminal colours."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return redacted(_COLOURS.sub("", text))


@runtime_checkable
class StoreSettings(Protocol):
    """Settings of a store that another system names differently."""

    def storage_options(self) -> dict[str, Any]: ...


class StorageOptions(Mapping[str, Any]):
    """A user's options. Their text hides the values, since plans are printed and logged.

    Values that are secrets by their names are kept as ``Secret``, so a pickle does not hold them, and revealed when
    they are read.

    >>> import pickle
    >>> options = StorageOptions({"key": "AKIA123", "region": "eu-west-1"})
    >>> options, options["key"], b"AKIA123" in pickle.dumps(options)
    ({'key': '***', 'region': 'eu-west-1'}, 'AKIA123', False)
    """

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self._values = {name: _sealed(str(name), value) for name, value in (options or {}).items()}

    @classmethod
    def of(cls, options: Mapping[str, Any] | None) -> StorageOptions:
        """Return the options of a dict, or no options for None."""
        if options is not None and not isinstance(options, Mapping):
            raise InvalidArgumentError(f"storage_options takes a dict of options; got {type(options).__name__}.")
        return options if isinstance(options, cls) else cls(options)

    def __getitem__(self, name: str) -> Any:
        return _revealed(self._values[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr({name: value if name in _SHOWN else "***" for name, value in self._values.items()})

    __str__ = __repr__

    def __penstock_key__(self) -> Any:
        """Return None: options locate data without changing it, and credentials change from day to day."""
        return None


def _sealed(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):  # headers
        return {key: _sealed(str(key), inner) for key, inner in value.items()}
    return Secret(value) if isinstance(value, str) and (is_secret_name(name) or redacted(value) != value) else value


def _revealed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _revealed(inner) for key, inner in value.items()}
    return value.reveal() if isinstance(value, Secret) else value


_by_place: dict[str, StorageOptions] = {}


def place_of(path: str) -> str:
    """Return the part of a URL that options belong to: the scheme and the bucket or server.

    >>> place_of("s3://bucket/a/b")
    's3://bucket'
    """
    scheme, bucket = scheme_of(path), path.partition("://")[2].partition("/")[0]
    if scheme in WEB:
        return f"{scheme}://{bucket.partition('?')[0].partition('#')[0].lower()}"
    return f"{scheme}://{bucket}"


def share_options(paths: Iterable[str], options: Mapping[str, Any] | None) -> None:
    """Share options for the buckets and servers of ``paths``."""
    if options:
        places = {place_of(path) for path in paths if scheme_of(path) != "file"}
        _by_place.update(dict.fromkeys(places, StorageOptions.of(options)))


def shared_options_for(path: str) -> StorageOptions | None:
    return _by_place.get(place_of(path)) if _by_place else None


def all_shared_options() -> dict[str, StorageOptions]:
    """Return all shared options by place, to restore them in another process."""
    return dict(_by_place)


def restore_shared_options(places: Mapping[str, Mapping[str, Any]]) -> None:
    """Share options that another process shared."""
    _by_place.update({place: StorageOptions.of(options) for place, options in places.items()})
