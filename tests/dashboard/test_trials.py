"""A person edits a prompt and asks it about a few rows; the answers stand beside those of the run."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

import penstock as ps
from penstock.ai.provider_registry import detach_providers
from penstock.dashboard.job import JobBoard
from penstock.dashboard.server import DashboardServer
from penstock.errors import InvalidArgumentError
from penstock.testing import ModelServer, faults
from tests.dashboard.test_job import MARKUP, served
from tests.dashboard.test_live import check_access
from tests.dashboard.test_server import ask

TOPIC = f"tea {MARKUP}"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, _model_server: ModelServer) -> Path:
    folder = tmp_path_factory.mktemp("trials")
    rows = [{"id": number, "t": f"text {number}", "topic": TOPIC} for number in range(30)]
    (folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    _model_server.change(answer=None)  # it repeats the prompt
    ps.set_provider("openai", base_url=_model_server.openai_url, api_key="test")
    template = ps.format("Say {} of {} {{}}", ps.col("t").upper(), ps.col("topic"))
    answers = ps.prompt([template, "briefly"], system_message="Be kind.", model="gpt-5-mini", temperature=0)
    ps.read_json(str(folder / "in.jsonl")).with_column("a", answers).write_parquet(str(folder / "out"), resume=True)
    detach_providers()  # or the first test on a worker has it, whichever that is
    return folder / "out"


@pytest.fixture
def server(model_server: ModelServer) -> ModelServer:
    ps.set_provider("openai", base_url=model_server.openai_url, api_key="test")
    return model_server


def test_an_edited_prompt_is_asked_about_chosen_rows(job: Path, server: ModelServer, page: Page) -> None:
    """The page says what it costs before it asks; the prompt that is sent is the one that was edited."""
    with served(job) as dashboard:
        page.goto(dashboard.url.replace("/#", "/?view=rows#"))
        page.get_by_role("button", name="Try a prompt").click()
        for number in (3, 9):
            page.get_by_role("checkbox", name=f"Try row {number} of in.jsonl").check()
        expect(page.locator(".trial-part").first).to_have_value("Say {part 1} of {topic} {{}}")
        page.get_by_label("System message").fill("Be {id}.")
        page.locator(".trial-part").nth(1).fill("about {part 1} in {t}")
        page.get_by_role("button", name="Ask about 2 rows").click()
        expect(page.get_by_role("dialog")).to_contain_text(f"at {server.openai_url}, about 2 rows? That costs about $")
        check_access(page)
        page.get_by_role("button", name="Ask", exact=True).click()
        expect(page.locator("#trial-said")).to_contain_text("2 calls, $0.0")
        expect(page.locator("#trial-said")).to_contain_text("2 of 2 answers changed.")
        result = page.get_by_role("region", name="row 9 of in.jsonl")
        expect(result.locator("pre").first).to_contain_text("briefly")
        expect(result.locator("ins").first).to_contain_text("about")
        page.set_viewport_size({"width": 390, "height": 800})
        check_access(page)
        assert page.locator("[onerror]").count() == 0
    sent = [request.body for request in server.requests]
    assert {body["instructions"] for body in sent} == {"Be 3.", "Be 9."}
    texts = {tuple(part["text"] for part in body["input"][0]["content"]) for body in sent}
    assert texts == {(f"Say TEXT {n} of {TOPIC} {{}}", f"about TEXT {n} in text {n}") for n in (3, 9)}
    assert {body["temperature"] for body in sent} == {0}


def test_a_call_that_failed_is_no_changed_answer(job: Path, server: ModelServer, page: Page) -> None:
    server.change(faults=[faults.HttpError(400, "not this one", containing="number 3")])
    with served(job) as dashboard:
        page.goto(dashboard.url.replace("/#", f"/?{urlencode({'view': 'rows', 'try': 'rows', 'pick': '[3,4]'})}#"))
        page.locator(".trial-part").first.fill("number {id}")
        page.get_by_role("button", name="Ask about 2 rows").click()
        page.get_by_role("button", name="Ask", exact=True).click()
        expect(page.locator("#trial-said")).to_contain_text("1 of 2 questions failed. 1 of 1 answer changed.")
        expect(page.get_by_role("region", name="row 3 of in.jsonl")).to_contain_text("not this one")
        check_access(page)


def trial(board: JobBoard, **changes: Any) -> dict[str, Any]:
    (editable,) = board.prompts({})["prompts"]
    asked = {"column": "a", "system": editable["system"], "parts": editable["parts"], "numbers": [0, 1]}
    return board.try_prompt(asked | changes)


@pytest.mark.usefixtures("server")
def test_rows_of_the_input_are_tried_before_a_run(job: Path) -> None:
    """What is asked again comes from the ledger of the job."""
    found = trial(JobBoard([str(job)]), parts=["{id}"], numbers=None)
    assert [row["after"]["text"] for row in found["rows"]] == [str(number) for number in range(20)]
    assert [row["before"] for row in found["rows"]] == [None] * 20
    assert found["num_calls"] == 20
    assert trial(JobBoard([str(job)]), parts=["{id}"])["num_calls"] == 0


def test_a_job_cannot_choose_who_gets_the_key(
    job: Path, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    advice = f"start the dashboard with OPENAI_BASE_URL={model_server.openai_url}"
    with pytest.raises(InvalidArgumentError, match=advice):
        trial(JobBoard([str(job)]))
    assert model_server.num_requests == 0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"parts": ["", " "]}, "The prompt is empty."),
        ({"parts": ["What is it?"]}, "names no column, so it asks the same question for every row"),
        ({"parts": ["{nothing}"]}, "nothing"),
        ({"max_dollars": ""}, "The maximum is an amount above 0 dollars; got nothing."),
        ({"max_dollars": "0.0000001"}, "does not cover the first call"),
    ],
)
def test_a_request_that_a_person_can_mend_is_answered_with_the_reason(
    job: Path, server: ModelServer, changes: dict[str, Any], reason: str
) -> None:
    num_requests = server.num_requests
    with served(job) as dashboard:
        asked = {"column": "a", "system": "", "parts": ["Tell me of {t}"], "numbers": [0], "max_dollars": "1"} | changes
        status, _, answer = ask(dashboard, "POST", "/api/try", body=json.dumps(asked))
    assert (status, server.num_requests) == (400, num_requests)
    assert reason in json.loads(answer)["error"]


@pytest.mark.usefixtures("server")
def test_wrong_requests_are_refused(job: Path) -> None:
    board = JobBoard([str(job)])
    for wrong in ({"numbers": []}, {"numbers": list(range(21))}, {"parts": ["{nothing}"]}, {"parts": ["{"]}):
        with pytest.raises(ps.errors.PenstockError):
            trial(board, **wrong)


def test_the_process_of_a_query_asks_with_its_own_model(dashboard: DashboardServer, server: ModelServer) -> None:
    """Also for structured answers; a prompt with tools is refused."""

    def lookup(name: str) -> str:
        """Find a name."""
        return name

    server.change(answer=lambda request: __import__("json").dumps({"value": len(request.text)}))
    df = ps.from_pydict({"t": ["red", "green"]})
    with ps.config(dashboard=True, progress=False):
        df.with_column("a", ps.prompt("{t}", int, model="gpt-5-mini")).collect()
        df.with_column("a", ps.prompt("{t}", tool_functions=[lookup], model="gpt-5-mini")).collect()
    board: Any = dashboard._board
    (refused,) = board.shown({"query": "2"}).prompts({})["prompts"]
    assert refused["problem"].startswith("This prompt cannot be asked from here.")
    (editable,) = board.shown({"query": "1"}).prompts({})["prompts"]
    numbers = [row["number"] for row in board.shown({"query": "1"}).rows({})["rows"]]
    asked = {"query": "1", "column": "a", "system": "", "parts": ["very {t}"], "numbers": numbers, "max_dollars": 1}
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(board.shown(asked).try_prompt(asked)))  # as the server does
    thread.start()
    thread.join()
    assert editable["parts"] == ["{t}"]
    assert {(row["before"]["text"], row["after"]["text"]) for row in found[0]["rows"]} == {("3", "8"), ("5", "10")}
