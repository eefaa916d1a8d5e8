"""The server gives data and takes orders only with the token, and only under an address of this machine."""

from __future__ import annotations

import http.client
import json
import sys
from urllib.parse import urlsplit

import pytest

import penstock as ps
from penstock.dashboard.process import LiveBoard
from penstock.dashboard.server import DashboardServer
from penstock.errors import InvalidArgumentError


def ask(
    server: DashboardServer,
    method: str,
    path: str,
    *,
    token: str | None = None,
    host: str | None = None,
    body: str = "",
) -> tuple[int, dict[str, str], bytes]:
    url = urlsplit(server.url)
    headers = {"Authorization": f"Bearer {url.fragment if token is None else token}"}
    if host is not None:
        headers["Host"] = host
    connection = http.client.HTTPConnection(str(url.hostname), url.port or 0)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def test_data_and_orders_need_the_token(dashboard: DashboardServer) -> None:
    for method, path in (("GET", "/api/state"), ("GET", "/api/rows"), ("POST", "/api/control"), ("GET", "/api/other")):
        for token in ("", "wrong", "é"):
            assert ask(dashboard, method, path, token=token)[0] == 401
    assert ask(dashboard, "GET", "/api/state")[0] == 200
    assert ask(dashboard, "GET", "/api/control")[0] == 405  # no change of state by a link
    status, _, page = ask(dashboard, "GET", "/", token="")
    assert status == 200
    assert urlsplit(dashboard.url).fragment.encode() not in page


def test_a_name_that_dns_could_point_here_is_refused(dashboard: DashboardServer) -> None:
    assert ask(dashboard, "GET", "/api/state", host="evil.example")[0] == 403
    assert ask(dashboard, "GET", "/", host="evil.example")[0] == 403
    assert ask(dashboard, "GET", "/api/state", host="localhost:1")[0] == 200


@pytest.mark.parametrize("path", ["/", "/app.js", "/api/state", "/missing"])
def test_every_answer_has_the_security_headers(dashboard: DashboardServer, path: str) -> None:
    _, headers, _ = ask(dashboard, "GET", path)
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; ")
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    "body", ["", "[]", "{}", '{"query": "x", "action": "pause"}', '{"query": 1, "action": "pause", "stage": {}}']
)
def test_a_wrong_order_is_refused_with_a_reason(dashboard: DashboardServer, body: str) -> None:
    status, _, answer = ask(dashboard, "POST", "/api/control", body=body)
    assert status == 400
    assert json.loads(answer)["error"]


def test_a_port_in_use_is_refused(dashboard: DashboardServer) -> None:
    port = urlsplit(dashboard.url).port or 0
    with pytest.raises(InvalidArgumentError, match=f"cannot listen on 127.0.0.1, port {port}"):
        DashboardServer(LiveBoard(), port=port)


def test_a_worker_process_starts_no_dashboard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_DASHBOARD", "1")

    @ps.func(use_process=True)
    def has_server(x: int) -> bool:
        ps.range(x).collect()
        return "penstock.dashboard.server" in sys.modules

    with ps.config(dashboard=False):
        assert ps.range(1).select(has_server(ps.col("id"))).to_pydict() == {"id": [False]}
