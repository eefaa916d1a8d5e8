"""``penstock doctor``: what this machine has, and what is missing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from penstock.cli.app import AsJson, app, print_json
from penstock.config import available_cpus, get_config
from penstock.errors import PenstockError
from penstock.observe.printable import terminal_width, wrapped_text
from penstock.storage.urls import redacted

PACKAGES = {
    "tables": ("pyarrow", "numpy", "duckdb", "pylance", "deltalake", "pyiceberg", "SQLAlchemy"),
    "object stores": ("obstore", "huggingface-hub"),
    "media": ("Pillow", "opencv-python-headless", "soundfile", "av", "pypdfium2"),
    "models": ("torch", "transformers", "sentence-transformers", "vllm"),
    "cluster": ("ray",),
}
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "HF_TOKEN", "AWS_ACCESS_KEY_ID")


@app.command()
def doctor(
    store: Annotated[
        list[str] | None, typer.Option(metavar="URL", help="A folder of an object store to list; may be repeated.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Show the packages, GPUs, keys and folders of this machine.

    Of a key it says only whether it is set.

    \b
    penstock doctor --store s3://bucket/folder
    """
    found = {
        "machine": _machine(),
        "packages": {use: {name: _version(name) for name in names} for use, names in PACKAGES.items()},
        "gpus": _gpus(),
        "keys": {name: "set" if os.environ.get(name) else "not set" for name in KEYS},
        "folders": {"temp_dir": _writable(get_config().temp_dir or tempfile.gettempdir())}
        | ({"cache_dir": _writable(cache)} if (cache := get_config().cache_dir) else {"cache_dir": "not set"}),
        "stores": {redacted(url): _reachable(url) for url in store or ()},
    }
    if json:
        print_json(found)
        return
    for title, values in found.items():
        if values or title == "gpus":
            _print_section(title, values)


def _print_section(title: str, values: Any) -> None:
    print(title)
    if isinstance(values, Sequence):
        values = dict.fromkeys(values or ["none"], "")
    for name, value in values.items():
        if isinstance(value, dict):
            value = ", ".join(f"{package} {version}" for package, version in value.items() if version) or "none"
        width = terminal_width(sys.stdout)
        for number, line in enumerate(wrapped_text(value, None if width is None else width - 22, indent="")):
            print(f"  {'' if number else name:<20}{line}".rstrip())
    print()


def _machine() -> dict[str, str]:
    from penstock import __version__

    return {
        "penstock": __version__,
        "python": platform.python_version(),
        "system": platform.platform(terse=True),
        "cores": str(available_cpus()),
        "memory limit": str(get_config().memory_limit or "automatic"),
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _gpus() -> list[str]:
    """Return the name, memory and driver of each GPU, by NVIDIA's own tool: torch would take seconds to load."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, timeout=20)
    return answer.stdout.strip().splitlines() if answer.returncode == 0 else [f"nvidia-smi: {answer.stderr.strip()}"]


def _writable(folder: str) -> str:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return f"{folder} (writable, {shutil.disk_usage(folder).free / 1e9:,.0f} GB free)"
    except OSError as exc:
        return f"{folder} ({exc.strerror})"


def _reachable(url: str) -> str:
    import penstock as ps

    try:
        ps.from_glob_path(f"{url.rstrip('/')}/**").limit(1).count_rows()
    except PenstockError as exc:
        return str(exc)
    return "reachable"
