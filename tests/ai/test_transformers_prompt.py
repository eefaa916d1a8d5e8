"""Answers of local language models: those of a plain ``generate``, however many prompts share a batch."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import pydantic
import pytest
import torch

import penstock as ps
from penstock import functions
from penstock.ai.conversation import Generation, Image, ModelTurn, Request, Text, UserTurn
from penstock.ai.local.generation import TransformersPrompter
from penstock.ai.local.transformers import TransformersProvider
from penstock.ai.provider import Prompting
from penstock.ai.structured.return_formats import OutputFormat
from penstock.errors import InvalidArgumentError, RequestRefusedError
from penstock.plan.lower import lower
from penstock.plan.optimizer import RULES, optimize
from penstock.runners.placement import Machine, placed_workers
from tests.ai.local_models import CHAT_TEMPLATE, NO_SYSTEM_TEMPLATE, save_llama

TEXTS = ["Hello", "a much longer prompt than the other ones are", "x", "What is it?"]


def weather(city: str) -> str:
    return f"rain in {city}"


def prompter(model: str, **options: Any) -> TransformersPrompter:
    found = TransformersProvider().model(Prompting(model, {"device": "cpu", "max_tokens": 8, **options}))
    found = pickle.loads(pickle.dumps(found))
    assert isinstance(found, TransformersPrompter)
    found.load()
    return found


def ask(text: str, **fields: Any) -> Request:
    return Request((UserTurn((Text(text),)),), **fields)


def answers(model: str, requests: list[Request], **options: Any) -> list[Generation]:
    found = prompter(model, **options).generate(requests)
    assert [len(some) for some in found] == [request.num_answers for request in requests]  # type: ignore[arg-type]
    return [one for some in found for one in some]  # type: ignore[union-attr]


def by_transformers(folder: str, text: str, **options: Any) -> str:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    tokens = tokenizer(text, return_tensors="pt")
    with torch.inference_mode():
        out = model.generate(**tokens, max_new_tokens=8, pad_token_id=tokenizer.eos_token_id, **options)
    return str(tokenizer.decode(out[0, tokens["input_ids"].shape[1] :], skip_special_tokens=True))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_llama(tmp_path_factory.mktemp("llama"))


def test_answers_are_those_of_each_prompt_alone(llama: str) -> None:
    found = answers(llama, [ask(text) for text in TEXTS])
    assert [one.text for one in found] == [by_transformers(llama, text) for text in TEXTS]
    assert len({one.text for one in found}) > 1
    assert [one.input_tokens for one in found] == [len(text) for text in TEXTS]
    assert {one.model for one in found} == {llama}


def test_answers_of_like_limits_run_together(llama: str) -> None:
    """Each answer is that of its prompt alone, each prompt is computed once, and memory bounds the rows of a batch."""
    sizes = [(40, 3), (2, 30), (25, 12), (60, 5), (7, 25), (33, 2), (12, 9), (3, 14), (50, 2)]
    requests = [ask(("abcdefghij" * 6)[:size], options={"max_tokens": new}) for size, new in sizes]
    model = prompter(llama)
    alone = [model.generate([request])[0][0] for request in requests]  # type: ignore[index]
    shapes: list[tuple[int, int]] = []

    def note(module: object, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        shapes.append(tuple((args[0] if args else options["input_ids"]).shape))

    model.runtime.model.register_forward_pre_hook(note, with_kwargs=True)
    model.runtime.max_cached_tokens = 3 * 65  # three rows, if each has the longest prompt
    assert [some[0].text for some in model.generate(requests)] == [one.text for one in alone]  # type: ignore[index]
    prompts = [rows for rows, width in shapes if width > 1]
    assert sum(prompts) == len(requests)
    assert 3 <= len(prompts) <= 5
    assert sum(width == 1 for _, width in shapes) < sum(new for _, new in sizes)
    assert model.generate([]) == []


def test_a_model_that_takes_no_padding_gives_the_same_answers(llama: str) -> None:
    model = prompter(llama, logprobs=True, stop=["v"])
    requests = [
        ask(text, output=output) for text in TEXTS for output in (None, SimpleNamespace(schema={"enum": [1, 20]}))
    ]
    expected = model.generate(requests)
    model.runtime.takes_padding = False
    for one, same in zip(model.generate(requests), expected, strict=True):
        (one,), (same,) = one, same  # type: ignore[misc]
        assert (one.text, one.output_tokens, one.finish_reason) == (same.text, same.output_tokens, same.finish_reason)
        assert [each["logprob"] for each in one.logprobs] == pytest.approx(
            [each["logprob"] for each in same.logprobs], abs=1e-4
        )
    assert {some[0].text for some in expected[1::2]} <= {"1", "20"}  # type: ignore[index]


def test_a_query_that_is_stopped_does_not_finish_its_answers(tmp_path: Path) -> None:
    """A second row of a million tokens would take longer than the time limit of tests."""
    folder = save_llama(tmp_path, num_positions=2_000_000)
    (tmp_path / "generation_config.json").write_text('{"do_sample": false}')  # no token ends an answer
    df = ps.from_pydict({"q": ["x", "x"], "limit": [2, 1_000_000]})
    answer = functions.prompt(
        ps.col("q"), provider="transformers", model=folder, device="cpu", batch_size=1, max_tokens=ps.col("limit")
    )
    rows = df.select(answer).iter_rows()
    assert len(next(rows)["q"]) > 0
    rows.close()


def test_answers_always_match_the_return_format(tmp_path: Path) -> None:
    """The model is nonsense, and still every answer is valid at once."""
    folder = save_llama(tmp_path, num_positions=1024)

    class Review(pydantic.BaseModel):
        stars: Annotated[int, pydantic.Field(ge=1, le=5)]
        mood: Literal["good", "bad"]
        words: Annotated[list[Annotated[str, pydantic.Field(max_length=4)]], pydantic.Field(max_length=3)]
        is_long: bool | None

    df = ps.from_pydict({"q": [*TEXTS, None]})
    options = {"provider": "transformers", "model": folder, "device": "cpu", "max_reasks": 0, "max_tokens": 200}
    review = functions.prompt(ps.col("q"), Review, temperature=2.0, seed=1, **options)
    mood = functions.prompt(ps.col("q"), Literal["good", "bad"], **options)
    found = df.select(review.alias("review"), mood.alias("mood")).to_pydict()
    for row in found["review"][:-1]:
        Review.model_validate(row)
    assert len({str(row) for row in found["review"]}) > 2
    assert {*found["mood"][:-1]} <= {"good", "bad"}
    assert found["review"][-1] is found["mood"][-1] is None


def test_answers_have_no_keys_that_the_return_format_does_not_list(tmp_path: Path) -> None:
    """A schema of pydantic leaves objects open, so a model of random weights would write keys without end."""
    folder = save_llama(tmp_path, num_positions=1024)

    class Part(pydantic.BaseModel):
        is_new: bool

    class Parcel(pydantic.BaseModel):
        parts: Annotated[list[Part], pydantic.Field(max_length=2)]
        is_late: bool = False

    output = OutputFormat.of(Parcel)
    options = {"temperature": 2.0, "seed": 1, "max_tokens": 200}
    found = answers(folder, [ask(text, output=output, num_answers=4) for text in TEXTS], **options)
    assert {one.finish_reason for one in found} == {"stop"}
    parcels = [json.loads(one.text) for one in found]
    assert {tuple(parcel) for parcel in parcels} == {("parts",), ("parts", "is_late")}  # optional ones may be missing
    assert {tuple(part) for parcel in parcels for part in parcel["parts"]} == {("is_new",)}


def test_each_token_that_ends_an_answer_may_end_valid_json(tmp_path: Path) -> None:
    folder = save_llama(tmp_path)
    settings = json.loads((tmp_path / "generation_config.json").read_text())
    other = ord("~")
    (tmp_path / "generation_config.json").write_text(
        json.dumps(settings | {"eos_token_id": [other, settings["eos_token_id"]]})
    )
    runtime = prompter(folder).runtime
    matcher = runtime.matcher({"type": "integer"})
    digit, *ends = runtime.tokenizer.convert_tokens_to_ids(["7"])[0], *runtime.ends
    constraints = runtime._constraints
    assert constraints is not None
    assert not constraints.allowed([matcher], "cpu")[0, ends].any()
    assert matcher.consume_token(digit)
    assert constraints.allowed([matcher], "cpu")[0, [digit, *ends]].all()


def test_log_probabilities_are_those_of_the_model(llama: str) -> None:
    found = answers(llama, [ask(text) for text in TEXTS], logprobs=True, top_logprobs=3)
    runtime = prompter(llama).runtime
    for text, answer in zip(TEXTS, found, strict=True):
        prompt = runtime.tokenizer(text, return_tensors="pt")["input_ids"]
        texts, tokens = [], prompt[0].tolist()
        assert answer.logprobs is not None
        for each in answer.logprobs:
            with torch.inference_mode():
                expected = runtime.model(torch.tensor([tokens])).logits[0, -1].log_softmax(-1).topk(3)
            assert [top["logprob"] for top in each["top_logprobs"]] == pytest.approx(expected.values.tolist(), abs=1e-4)
            assert each["logprob"] == each["top_logprobs"][0]["logprob"]  # greedy
            texts.append(each["token"])
            tokens.append(int(expected.indices[0]))
        assert answer.output_tokens == len(texts) + (answer.finish_reason == "stop")  # the end is not part of the text
        assert runtime.tokenizer.decode(tokens[len(prompt[0]) :]) == answer.text


def test_a_penalty_counts_the_tokens_of_its_own_row(llama: str) -> None:
    found = [one.text for one in answers(llama, [ask(text) for text in TEXTS], repetition_penalty=1.4)]
    assert found == [by_transformers(llama, text, repetition_penalty=1.4) for text in TEXTS]


def test_finish_reasons_and_counts(llama: str) -> None:
    (cut,) = answers(llama, [ask("Hello")])
    assert (cut.finish_reason, cut.output_tokens) == ("length", 8)
    stop = cut.text[3]
    (stopped,) = answers(llama, [ask("Hello")], stop=[stop])
    assert stopped.text == cut.text[: cut.text.index(stop)]
    assert stopped.finish_reason == "stop"
    assert stopped.output_tokens is not None
    assert stopped.output_tokens < 8


def test_a_chat_template_is_used(tmp_path: Path) -> None:
    folder = save_llama(tmp_path, chat_template=CHAT_TEMPLATE)
    turns = (UserTurn((Text("Hi"),)), ModelTurn("Yes?"), UserTurn((Text("Bye"), Text("now"))))
    found = answers(folder, [Request(turns, system="Be brief."), ask("Hi")])
    texts = ["<system>Be brief.<user>Hi<assistant>Yes?<user>Bye\nnow<assistant>", "<user>Hi<assistant>"]
    assert [one.text for one in found] == [by_transformers(folder, text) for text in texts]


def test_a_template_without_system_messages(tmp_path: Path) -> None:
    folder = save_llama(tmp_path, chat_template=NO_SYSTEM_TEMPLATE)
    (found,) = answers(folder, [ask("Hi", system="Be brief.")])
    assert found.text == by_transformers(folder, "<user>Be brief.\n\nHi<assistant>")


def test_the_model_gets_the_schema(tmp_path: Path) -> None:
    folder = save_llama(tmp_path, chat_template=CHAT_TEMPLATE, num_positions=512)
    output: Any = SimpleNamespace(schema={"type": "integer"})
    (found,) = answers(folder, [ask("Hi", output=output)])
    schema = 'Answer with one JSON value that is valid against this JSON schema, and nothing else:\n{"type": "integer"}'
    assert found.input_tokens == len(f"<system>{schema}<user>Hi<assistant>")
    assert found.text.lstrip("-").isdecimal()


def test_sampling_is_repeated_with_a_seed(llama: str) -> None:
    requests = [ask("Hello", num_answers=3)]
    first = [one.text for one in answers(llama, requests, temperature=1.5, seed=7)]
    assert [one.text for one in answers(llama, requests, temperature=1.5, seed=7)] == first
    assert [one.text for one in answers(llama, requests, temperature=1.5, seed=8)] != first
    assert len(set(first)) == 3


def test_several_answers_without_sampling_are_the_same(llama: str) -> None:
    found = answers(llama, [ask("Hello", num_answers=2), ask("x")], temperature=0)
    assert found[0].text == found[1].text == by_transformers(llama, "Hello")
    assert found[2].text == by_transformers(llama, "x")


def test_a_prompt_that_is_too_long_is_that_rows_error(tmp_path: Path) -> None:
    folder = save_llama(tmp_path, num_positions=32)
    long, short = prompter(folder).generate([ask("x" * 40), ask("x")])
    assert isinstance(long, RequestRefusedError)
    assert "40 tokens" in str(long)
    assert "room for 24" in str(long)
    assert isinstance(short, list)


def test_a_model_of_texts_refuses_images(llama: str) -> None:
    (refused,) = prompter(llama).generate([Request((UserTurn((Text("?"), Image(b"", "image/png"))),))])
    assert isinstance(refused, RequestRefusedError)
    assert "takes texts only" in str(refused)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temprature": 1}, "Did you mean 'temperature'"),
        ({"max_output_tokens": 0}, "a number of tokens"),
        ({"max_output_tokens": True}, "a number of tokens"),
        ({"stop": [""]}, "stop is a text or a list of texts"),
        ({"temperature": "hot"}, "temperature is a number of 0 or more; got 'hot'"),
        ({"temperature": -0.5}, "temperature is a number of 0 or more"),
        ({"top_p": 1.5}, "top_p is a number above 0 and up to 1; got 1.5"),
        ({"top_k": 2.5}, "top_k is a whole number"),
        ({"seed": "x"}, "seed is a whole number"),
        ({"gpus": 2}, "has one GPU, or a share of one; got gpus=2.*several GPUs use provider='vllm'"),
        ({"repetition_penalty": 0}, "repetition_penalty is a number above 0"),
        ({"max_length": 0}, "max_length is a number of tokens"),
        ({"device": "tpu"}, "device is one of cpu, cuda.*; got 'tpu'"),
        ({"device": "cuda:x"}, "such as 'cuda:1'; got 'cuda:x'"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], message: str, llama: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        prompter(llama, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": 600}, "timeout is for remote models"),
        ({"requests_per_minute": 60}, "requests_per_minute is for remote models"),
        ({"tokens_per_minute": 60}, "tokens_per_minute is for remote models"),
        ({"tool_functions": [weather]}, "cannot call tool_functions"),
    ],
)
def test_what_is_for_other_models_is_refused_with_the_plan(options: dict[str, Any], message: str, llama: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        functions.prompt(ps.col("q"), provider="transformers", model=llama, **options)


def test_requests_may_have_options_of_their_own(llama: str) -> None:
    """Rows that agree are answered together, and each as if all had its options."""
    long, short = answers(llama, [ask("Hello"), ask("Hello", options={"max_tokens": 3})])
    assert (long.output_tokens, short.output_tokens) == (8, 3)
    assert long.text.startswith(short.text)
    drawn, greedy = answers(llama, [ask("Hello", options={"temperature": 2.0, "seed": 1}), ask("Hello")])
    assert drawn.text == answers(llama, [ask("Hello")], temperature=2.0, seed=1)[0].text != greedy.text
    (refused,) = prompter(llama).generate([ask("Hello", options={"temprature": 1})])
    assert isinstance(refused, InvalidArgumentError)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [("0",), ("1",), ("2",)]),
        ({"concurrency": 2}, [("0",), ("1",)]),
        ({"gpus": 0.5}, [(str(i // 2),) for i in range(6)]),
    ],
)
def test_each_free_gpu_gets_a_copy(options: dict[str, Any], expected: list[tuple[str, ...]], llama: str) -> None:
    answer = functions.prompt(ps.col("q"), provider="transformers", model=llama, device="cuda", **options)
    stages = lower(optimize(ps.from_pydict({"q": ["x"]}).select(answer)._plan, RULES), is_ordered=True)
    (workers,) = placed_workers(Machine(8, ("0", "1", "2"), 1 << 34), stages, 8).values()
    assert workers == expected
