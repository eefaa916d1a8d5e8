"""Batches go through their states and end with files of answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest

from penstock.testing import BatchTiming, ModelServer, faults
from tests.testing.client import ask, until

if TYPE_CHECKING:
    import openai

SLOW = BatchTiming(processing_s=600)


def line(number: int, **changes: Any) -> dict[str, Any]:
    body = {"model": "m", "input": f"prompt {number}"}
    return {"custom_id": f"row-{number}", "method": "POST", "url": "/v1/responses", "body": body, **changes}


def create(client: openai.OpenAI, lines: list[dict[str, Any]]) -> str:
    content = b"".join(orjson.dumps(item, option=orjson.OPT_APPEND_NEWLINE) for item in lines)
    file = client.files.create(file=("input.jsonl", content), purpose="batch")
    assert (file.bytes, file.purpose) == (len(content), "batch")
    return client.batches.create(input_file_id=file.id, endpoint="/v1/responses", completion_window="24h").id


def ended(client: openai.OpenAI, batch_id: str) -> Any:
    ends = ("completed", "failed", "expired", "cancelled")
    until(lambda: client.batches.retrieve(batch_id).status in ends)
    return client.batches.retrieve(batch_id)


def results(client: openai.OpenAI, file_id: str) -> dict[str, Any]:
    lines = [orjson.loads(text) for text in client.files.content(file_id).content.splitlines()]
    return {item["custom_id"]: item for item in lines}


def test_a_batch_completes(client: openai.OpenAI) -> None:
    batch_id = create(client, [line(number) for number in range(10)])
    assert client.batches.retrieve(batch_id).status in ("validating", "in_progress", "finalizing", "completed")
    batch = ended(client, batch_id)
    assert (batch.status, batch.error_file_id) == ("completed", None)
    assert (batch.request_counts.total, batch.request_counts.completed) == (10, 10)
    answers = results(client, batch.output_file_id)
    assert list(answers) != sorted(answers)
    text = {key: item["response"]["body"]["output"][0]["content"][0]["text"] for key, item in answers.items()}
    assert text == {f"row-{number}": f"prompt {number}" for number in range(10)}
    assert [listed.id for listed in client.batches.list()] == [batch_id]


def test_requests_that_fail_are_in_a_file_of_their_own(server: ModelServer, client: openai.OpenAI) -> None:
    server.change(faults=[faults.HttpError(400, "Not that.", containing="prompt 3")])
    batch = ended(client, create(client, [line(number) for number in range(5)]))
    assert (batch.request_counts.completed, batch.request_counts.failed) == (4, 1)
    failed = results(client, batch.error_file_id)
    assert failed["row-3"]["response"]["status_code"] == 400
    assert failed["row-3"]["response"]["body"]["error"]["message"] == "Not that."
    assert "row-3" not in results(client, batch.output_file_id)


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ([], "empty_file"),
        ([line(1), line(1)], "duplicate_custom_id"),
        ([line(1, url="/v1/embeddings")], "mismatched_endpoint"),
        ([line(1), line(2, body={"model": "other", "input": "x"})], "mismatched_model"),
        ([{"custom_id": "a"}], "invalid_json_line"),
    ],
)
def test_a_bad_file_fails_validation(client: openai.OpenAI, lines: list[dict[str, Any]], code: str) -> None:
    batch = ended(client, create(client, lines))
    assert batch.status == "failed"
    assert [error.code for error in batch.errors.data] == [code]


def test_batches_fail_and_expire_by_script(server: ModelServer, client: openai.OpenAI) -> None:
    server.change(faults=[faults.BatchFails("Broken.", at=1), faults.BatchExpires(done=0.5)])
    lines = [line(number) for number in range(8)]
    failed = ended(client, create(client, lines))
    assert (failed.status, failed.errors.data[0].message) == ("failed", "Broken.")
    expired = ended(client, create(client, lines))
    assert expired.status == "expired"
    assert set(results(client, expired.output_file_id)) == {f"row-{number}" for number in range(4)}
    undone = results(client, expired.error_file_id)
    assert {item["error"]["code"] for item in undone.values()} == {"batch_expired"}
    assert len(undone) == 4


def test_a_batch_is_cancelled(server: ModelServer, client: openai.OpenAI) -> None:
    import openai

    server.change(batches=SLOW)
    batch_id = create(client, [line(1), line(2)])
    assert client.batches.cancel(batch_id).status == "cancelling"
    assert ended(client, batch_id).status == "cancelled"
    with pytest.raises(openai.ConflictError):
        client.batches.cancel(batch_id)


def test_files_come_and_go(client: openai.OpenAI) -> None:
    import openai

    file = client.files.create(file=("a.jsonl", b"one\r\ntwo\n--x\n"), purpose="batch")
    assert client.files.retrieve(file.id).filename == "a.jsonl"
    assert client.files.content(file.id).content == b"one\r\ntwo\n--x\n"
    assert [listed.id for listed in client.files.list()] == [file.id]
    assert client.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(file.id)


def message_batch(server: ModelServer, num_requests: int = 4) -> str:
    asked = {"model": "claude", "max_tokens": 99}
    requests = [
        {"custom_id": f"row-{n}", "params": {**asked, "messages": [{"role": "user", "content": f"p{n}"}]}}
        for n in range(num_requests)
    ]
    reply = ask(server, "/v1/messages/batches", {"requests": requests})
    assert reply.body["processing_status"] == "in_progress"
    assert reply.body["request_counts"]["processing"] == num_requests
    return str(reply.body["id"])


def message_results(server: ModelServer, batch_id: str) -> tuple[dict[str, int], dict[str, Any]]:
    path = f"/v1/messages/batches/{batch_id}"
    until(lambda: ask(server, path).body["processing_status"] == "ended")
    batch = ask(server, path).body
    assert batch["results_url"] == f"{server.url}{path}/results"
    lines = [orjson.loads(text) for text in ask(server, f"{path}/results").raw.splitlines()]
    counts = {kind: count for kind, count in batch["request_counts"].items() if count}
    return counts, {item["custom_id"]: item["result"] for item in lines}


def test_anthropics_batches_end(server: ModelServer) -> None:
    server.change(faults=[faults.HttpError(400, "No.", containing="p3"), faults.BatchExpires(done=0.5, at=2)])
    counts, results = message_results(server, message_batch(server))
    assert counts == {"succeeded": 3, "errored": 1}
    assert results["row-0"]["message"]["content"] == [{"type": "text", "text": "p0"}]
    assert results["row-3"]["error"]["error"] == {"type": "invalid_request_error", "message": "No."}
    counts, results = message_results(server, message_batch(server))
    assert counts == {"succeeded": 2, "expired": 2}
    assert results["row-2"] == {"type": "expired"}


def test_anthropics_batches_are_cancelled(server: ModelServer) -> None:
    server.change(batches=SLOW)
    batch_id = message_batch(server)
    assert ask(server, f"/v1/messages/batches/{batch_id}/results").status == 404
    assert ask(server, f"/v1/messages/batches/{batch_id}/cancel", b"").body["processing_status"] == "canceling"
    counts, results = message_results(server, batch_id)
    assert counts == {"canceled": 4}
    assert results["row-1"] == {"type": "canceled"}
