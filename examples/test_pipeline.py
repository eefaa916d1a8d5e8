"""Test a pipeline with pytest against a model server that fails by a script: no mocks, no key, no network."""

import sys
from collections.abc import Iterator

import pytest

import penstock as ps
from penstock.testing import ModelServer, faults


def pipeline(reviews: ps.DataFrame) -> ps.DataFrame:
    """What you ship."""
    return reviews.with_column("mood", ps.prompt("The mood of: {text}", model="gpt-5-mini", on_error="log"))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    with ModelServer(answer=lambda request: "sad" if "broke" in request.text else "glad") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        yield server


REVIEWS = {"text": ["It broke.", "I love it.", "It broke, too."]}


def test_moods(server: ModelServer) -> None:
    assert pipeline(ps.from_pydict(REVIEWS)).to_pydict()["mood"] == ["sad", "glad", "sad"]


def test_a_refused_review_is_recorded_and_the_others_are_kept(server: ModelServer) -> None:
    server.change(faults=[faults.ContentFilter(containing="love")])
    df = pipeline(ps.from_pydict(REVIEWS)).collect()
    assert df.to_pydict()["mood"] == ["sad", None, "sad"]
    assert df.errors().count_rows() == 1


def test_a_busy_server_costs_time_and_no_rows(server: ModelServer) -> None:
    server.change(faults=[faults.RateLimited(first=2, retry_after=0.1), faults.ServerError(503, first_tries=1)])
    assert None not in pipeline(ps.from_pydict(REVIEWS)).to_pydict()["mood"]


if __name__ == "__main__":
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", __file__]))
