"""Faults happen when they are meant to, and look on the wire as they do in life."""

from __future__ import annotations

import http.client
import socket

import orjson
import pytest

from penstock.testing import Fixed, Limits, ModelServer, Uniform, faults
from tests.testing.client import ask, chat, said, until


def statuses(server: ModelServer, *texts: str) -> list[int]:
    return [chat(server, text).status for text in texts]


def test_when_faults_happen(server: ModelServer) -> None:
    server.change(
        faults=[faults.ServerError(500, at=2), faults.ServerError(502, first=1), faults.ServerError(503, at=(3, 5))]
    )
    assert statuses(server, *"abcdef") == [502, 500, 503, 200, 503, 200]
    server.change(faults=[faults.ServerError(503, first_tries=2)])
    assert statuses(server, "a", "b", "a", "a", "b", "b") == [503, 503, 503, 200, 503, 200]
    server.change(faults=[faults.ServerError(503, containing="boom", path="/chat")])
    assert statuses(server, "fine", "a boom") == [200, 503]
    assert ask(server, "/v1/responses", {"model": "m", "input": "boom"}).status == 200


def test_a_share_is_the_same_for_the_same_seed(server: ModelServer) -> None:
    texts = [str(number) for number in range(100)]
    server.change(faults=[faults.ServerError(503, share=0.3)], seed=7)
    first = statuses(server, *texts)
    assert 15 < first.count(503) < 45
    server.change(seed=7)
    assert statuses(server, *texts) == first
    server.change(seed=8)
    assert statuses(server, *texts) != first


def test_rate_limited_with_and_without_hints(server: ModelServer) -> None:
    headers = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1.5s"}
    server.change(
        faults=[faults.RateLimited(at=1), faults.RateLimited(2, 1500, headers=headers, code="insufficient_quota")]
    )
    bare = chat(server)
    assert (bare.status, bare.body["error"]["code"]) == (429, "rate_limit_exceeded")
    assert not {"retry-after", "retry-after-ms"} & set(bare.headers)
    hinted = chat(server)
    assert (hinted.headers["retry-after"], hinted.headers["retry-after-ms"]) == ("2", "1500")
    assert headers.items() <= hinted.headers.items()
    assert hinted.body["error"]["code"] == hinted.body["error"]["type"] == "insufficient_quota"
    assert server.counts.refused == 2


def test_resets(server: ModelServer) -> None:
    server.change(faults=[faults.Reset(at=1), faults.Reset(mid_body=True, at=2), faults.Truncated()])
    with pytest.raises(ConnectionResetError):
        chat(server)
    with pytest.raises(ConnectionResetError):
        chat(server)
    with pytest.raises(http.client.IncompleteRead) as cut:
        chat(server)
    assert cut.value.partial.startswith(b'{"id":"chatcmpl-')
    assert (server.counts.dropped, server.counts.in_flight) == (3, 0)


def test_bodies_that_are_no_json(server: ModelServer) -> None:
    server.change(faults=[faults.Malformed()])
    reply = chat(server)
    assert reply.status == 200
    with pytest.raises(orjson.JSONDecodeError):
        _ = reply.body


def test_a_hang_lasts_until_the_client_leaves(server: ModelServer) -> None:
    server.change(faults=[faults.Hang()])
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        sock.sendall(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")
        until(lambda: server.counts.in_flight == 1)
    until(lambda: server.counts.in_flight == 0)
    assert server.requests[0].status == 0


def test_an_outage_ends_on_the_same_port(server: ModelServer) -> None:
    server.change(faults=[faults.Outage(0.05, at=1)])
    with socket.create_connection(("127.0.0.1", server.port)) as bystander:
        until(lambda: server.counts.connections == 1)
        with pytest.raises(ConnectionResetError):
            chat(server)
        with pytest.raises(ConnectionResetError):
            bystander.recv(1)
    until(lambda: _is_up(server))
    assert said(chat(server, "back")) == "back"


def test_it_dies_and_comes_back_when_told(server: ModelServer) -> None:
    assert chat(server).status == 200
    server.die()
    with pytest.raises(ConnectionRefusedError):
        chat(server)
    server.come_back()
    assert chat(server).status == 200
    assert server.num_requests == 2


def test_delays_add_up(server: ModelServer) -> None:
    server.change(
        latency=Fixed(0.02), faults=[faults.Delay(0.03), faults.Delay(Uniform(0.05, 0.06)), faults.ServerError(at=2)]
    )
    assert (chat(server).status, chat(server).status) == (200, 500)
    first, second = server.requests
    assert first.ended is not None
    assert second.ended is not None
    assert first.ended - first.arrived >= 0.095
    assert second.ended - second.arrived >= 0.075


def test_the_users_function_decides(server: ModelServer) -> None:
    seen = []

    def answer(request: object) -> object:
        seen.append(request)
        match request.text:
            case "dict":
                return {"a": 1}
            case "fault":
                return faults.ServerError(503)
            case "refuse":
                return faults.Refusal("No.")
            case "raise":
                raise ValueError("a mistake in the test")
        return f"{request.model} was asked {request.text!r} at {request.path}"

    server.change(answer=answer)
    assert said(chat(server, "this")) == "m was asked 'this' at /chat/completions"
    assert said(chat(server, "dict")) == '{"a":1}'
    assert chat(server, "fault").status == 503
    assert chat(server, "refuse").body["choices"][0]["message"]["refusal"] == "No."
    failed = chat(server, "raise")
    assert (failed.status, failed.body["error"]["code"]) == (500, "answer_failed")
    assert "a mistake in the test" in failed.body["error"]["message"]
    assert len(seen) == 5


def test_tries_are_of_what_the_user_said_last(server: ModelServer) -> None:
    server.change(faults=[faults.InvalidAnswer("no", first_tries=1)])
    assert [said(chat(server, "a")), said(chat(server, "a"))] == ["no", "a"]
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "no"}, {"role": "user", "content": "b"}]
    assert said(chat(server, messages=talk)) == "no"


def test_an_answer_function_can_give_up_calling_tools(server: ModelServer) -> None:
    server.change(answer=lambda request: faults.CallTools([("f", "{not json")]))
    call = chat(server).body["choices"][0]["message"]["tool_calls"][0]
    assert call["function"]["arguments"] == "{not json"
    messages = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "done"},
    ]
    assert said(chat(server, messages=messages)) == "done"


def test_limits(server: ModelServer) -> None:
    server.change(limits=Limits(requests_per_second=0.1, burst_s=30))
    assert statuses(server, *"abcde") == [200, 200, 200, 429, 429]
    refused = chat(server)
    assert refused.headers["x-ratelimit-limit-requests"] == "6"
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    assert 1 <= int(refused.headers["retry-after"]) <= 10
    assert 1000 < int(refused.headers["retry-after-ms"]) <= 10_000
    server.change(limits=Limits(tokens_per_minute=600, burst_s=60))
    assert statuses(server, "x" * 1600, "x" * 1600) == [200, 429]  # it is charged for the answer too
    server.change(limits=Limits(requests_per_second=0.1, has_headers=False))
    assert chat(server).status == 200
    assert set(chat(server).headers) == {"content-type", "content-length", "x-request-id"}


def test_a_limit_on_concurrency(server: ModelServer) -> None:
    server.change(limits=Limits(max_concurrency=1), faults=[faults.Hang(at=1)])
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        sock.sendall(b"POST /v1/embeddings HTTP/1.1\r\ncontent-length: 25\r\n\r\n" + b'{"model":"m","input":"x"}')
        until(lambda: server.counts.in_flight == 1)
        assert chat(server).status == 429
    until(lambda: server.counts.in_flight == 0)
    assert chat(server).status == 200


def _is_up(server: ModelServer) -> bool:
    try:
        socket.create_connection(("127.0.0.1", server.port)).close()
    except ConnectionRefusedError:
        return False
    return True
