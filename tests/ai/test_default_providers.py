"""Each task has its own default provider, and the first that leaves this machine for a paid one is logged."""

from __future__ import annotations

import logging

import pytest

import penstock as ps
from penstock.ai.provider_registry import find_provider
from penstock.errors import InvalidArgumentError

FUNCTIONS = ("prompt", "embed_text", "embed_image", "classify_text", "classify_image")


def defaults() -> list[str]:
    return [find_provider(None, function).name for function in FUNCTIONS]


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_PROVIDER", raising=False)
    for name in ("OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(f"{name}_API_KEY", "test")


def test_without_a_choice_only_prompts_leave_this_machine() -> None:
    assert defaults() == ["openai", *["transformers"] * 4]


def test_a_provider_is_for_all_tasks_or_for_one() -> None:
    ps.set_provider("anthropic", task="prompt")
    assert defaults() == ["anthropic", *["transformers"] * 4]
    ps.set_provider("openai")
    assert defaults() == ["openai"] * 5
    assert find_provider(None, "relevance").name == "transformers"  # no API has it
    ps.set_provider("transformers", task="embed")
    assert defaults() == ["openai", "transformers", "transformers", "openai", "openai"]


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"task='embedding' is not known.*mean 'embed'"):
        ps.set_provider("openai", task="embedding")  # type: ignore[arg-type]


def test_the_first_switch_to_a_paid_provider_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    ps.set_provider("openai")
    with caplog.at_level(logging.WARNING, "penstock"):
        for _ in range(2):
            defaults()
    assert [record.getMessage().split(";")[0] for record in caplog.records] == [
        "embed_text asks 'openai', which charges for it",
        "classify_text asks 'openai', which charges for it",
    ]


@pytest.mark.parametrize("provider", ["openai", "transformers"])
def test_what_a_call_asks_for_and_a_server_of_ones_own_are_not_logged(
    provider: str, caplog: pytest.LogCaptureFixture
) -> None:
    find_provider("openai", "embed_text")
    options = {"base_url": "http://localhost:1/v1", "api_key": "x"} if provider == "openai" else {}
    ps.set_provider(provider, **options)
    defaults()
    assert not caplog.records
