"""SGLang's engine, or a stand-in for it in a real child process."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import psutil
import pytest
from pydantic import BaseModel

import penstock as ps
from penstock.ai.local.serving.provider import SglangProvider
from penstock.ai.local.serving.sglang import SglangSpec
from penstock.errors import InvalidArgumentError, ProviderUnusableError, UdfError
from penstock.functions import prompt
from tests.ai.conftest import STAND_INS
from tests.ai.local_models import CHAT_TEMPLATE, save_llama


class Review(BaseModel):
    is_good: bool


@pytest.fixture
def model(tmp_path: Path) -> str:
    return save_llama(tmp_path / "model", chat_template=CHAT_TEMPLATE, num_positions=1024)


def answers(texts: list[Any], **options: Any) -> list[Any]:
    found: list[Any] = ps.from_pydict({"q": texts}).select(prompt(ps.col("q"), **options)).to_pydict()["q"]
    return found


# --- on SGLang where it is installed ----------------------------------------------------------------------------------


def test_return_formats_and_constraints_guide_the_answers(sglang: SglangProvider, tmp_path: Path) -> None:
    options = {"provider": sglang, "model": save_llama(tmp_path, num_positions=1024), "max_tokens": 64}
    choice = {"structured_outputs": {"choice": ["yes", "no."]}}
    kind: Any = Literal["good", "bad"]
    df = ps.from_pydict({"text": ["yes"] * 5, "json": ['{"is_good": true}'] * 5, "value": ['{"value": "good"}'] * 5})
    found = df.select(
        choice=prompt(ps.col("text"), extra_body=choice, **options),
        review=prompt(ps.col("json"), return_format=Review, **options),
        kind=prompt(ps.col("value"), return_format=kind, **options),
    ).to_pydict()
    assert set(found["choice"]) <= {"yes", "no."}
    assert all(type(review["is_good"]) is bool for review in found["review"])
    assert set(found["kind"]) <= {"good", "bad"}


def test_tokens_have_log_probabilities(sglang: SglangProvider, model: str) -> None:
    options = {"max_tokens": 4, "logprobs": True, "top_logprobs": 2, "temperature": 0}
    (found,) = answers(["kettle"], provider=sglang, model=model, **options)
    assert found["logprobs"]
    assert all(each["logprob"] <= 0 and len(each["top_logprobs"]) == 2 for each in found["logprobs"])


def test_the_engine_leaves_no_process(sglang: SglangProvider, model: str) -> None:
    before = set(psutil.Process().children(recursive=True))
    answers(["a"], provider=sglang, model=model, max_tokens=2)
    assert set(psutil.Process().children(recursive=True)) <= before


# --- on the stand-in --------------------------------------------------------------------------------------------------


def test_options_get_the_names_of_sglang(sglang_stand_in: SglangProvider, model: str) -> None:
    options = {
        "max_output_tokens": 9, "temperature": 0.5, "stop": "end", "seed": 3, "logit_bias": {"7": 1.5},
        "extra_body": {"min_p": 0.1, "guided_regex": "a+"}, "engine_kwargs": {"enable_deterministic_inference": True},
    }  # fmt: skip
    (found,) = answers(["SHOW"], provider=sglang_stand_in, model=model, **options)
    assert json.loads(found) == {
        "max_new_tokens": 9, "temperature": 0.5, "stop": ["end"], "sampling_seed": 3, "logit_bias": {"7": 1.5},
        "min_p": 0.1, "regex": "a+", "top_p": 0.5,
    }  # fmt: skip


def test_the_chat_template_writes_the_prompt(sglang_stand_in: SglangProvider, model: str) -> None:
    (found,) = answers(["Who?"], provider=sglang_stand_in, model=model, system_message="Be brief.")
    assert found == "<system>Be brief.<user>Who?<assistant>"
    (found,) = answers(["Who?"], provider=SglangProvider(use_completions=True), model=model)
    assert found == "Who?"


def test_tokens_are_decoded_here_if_sglang_has_no_tokenizer(sglang_stand_in: SglangProvider, model: str) -> None:
    provider = SglangProvider(use_completions=True, engine_kwargs={"skip_tokenizer_init": True})
    assert answers(["Who?"], provider=provider, model=model) == ["Who?"]


def test_a_deadly_prompt_is_the_error_of_its_row(sglang_stand_in: SglangProvider, model: str) -> None:
    provider = SglangProvider(use_completions=True)
    df = ps.from_pydict({"q": ["a", "DIE", "b"]}).select(
        prompt(ps.col("q"), provider=provider, model=model, on_error="null")
    )
    assert df.to_pydict()["q"] == ["a", None, "b"]
    (error,) = df.errors().to_pylist()
    assert "SGLang's process ended with exit code -9" in error["message"]


def test_a_query_that_stops_ends_the_process(sglang_stand_in: SglangProvider, model: str) -> None:
    before = set(psutil.Process().children(recursive=True))
    df = ps.from_pydict({"q": ["WAIT", "a"], "t": [1.0, -1.0]})
    with pytest.raises(UdfError, match="temperature must be a non-negative finite number"):
        df.select(prompt(ps.col("q"), provider=sglang_stand_in, model=model, temperature=ps.col("t"))).collect()
    assert set(psutil.Process().children(recursive=True)) <= before


def test_an_engine_that_cannot_start_ends_the_query(sglang_stand_in: SglangProvider, model: str) -> None:
    with pytest.raises(ProviderUnusableError, match=r"cannot start model .*Unexpected keyword argument 'nonsense'"):
        answers(["a"], provider=sglang_stand_in, model=model, engine_kwargs={"nonsense": 1}, on_error="null")


def test_a_cancelled_start_leaves_no_process(sglang_stand_in: SglangProvider, model: str) -> None:
    before = set(psutil.Process().children(recursive=True))

    async def run() -> None:
        start = asyncio.create_task(SglangSpec(model).make(0).start())
        await asyncio.sleep(0)  # the process is there
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start

    asyncio.run(run())
    assert set(psutil.Process().children(recursive=True)) <= before


ABANDONED = """
import sys
sys.path.insert(0, sys.argv[1])
import penstock as ps
from penstock.functions import prompt
ps.from_pydict({"q": ["WAIT"]}).select(prompt(ps.col("q"), provider="sglang", model=sys.argv[2])).collect()
"""


def test_the_engine_ends_when_this_process_is_killed(model: str) -> None:
    command = [sys.executable, "-c", ABANDONED, STAND_INS, model]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.kill()
        assert process.stdout.read() == ""  # ends when the engine's process, which has the same output, has ended


def test_options_without_an_effect_are_refused(sglang_stand_in: SglangProvider, model: str) -> None:
    shared = {"provider": sglang_stand_in, "model": model}
    with pytest.raises(InvalidArgumentError, match="lora"):
        prompt(ps.col("q"), lora="pirate", **shared)
    with pytest.raises(UdfError, match="enable_deterministic_inference"):
        answers(["a"], seed=1, **shared)
    with pytest.raises(UdfError, match="SGLang has no constraint 'json_object'; it has: choice, json"):
        answers(["a"], extra_body={"structured_outputs": {"json_object": True}}, **shared)
    with pytest.raises(
        InvalidArgumentError, match="embed_text with provider 'sglang' needs a server: run `sglang serve"
    ):
        ps.embed_text(ps.col("q"), provider="sglang", model=model)
