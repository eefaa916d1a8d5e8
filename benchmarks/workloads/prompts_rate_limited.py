"""Prompts: 9,000 to a server that refuses (429) more than 300 requests a second without announcing the limit.

Penstock has to find the rate. The hand-written loop knows it and stays 3 % below. The figures are
by the server's own record: how much of the 300 was left unused, from the tenth second on (from the half, of a run too
short for that) to the last request, and how many requests were refused.
"""

from benchmarks.model_server import control, make_prompts, prompt_bodies, run_plain, said, serving_models, with_answers
from benchmarks.workloads import prompts_50ms

FIGURES = {
    "unused_percent": "% of the allowed rate unused after 10 s",
    "refused_percent": "% of the requests refused",
}
TARGETS = [("unused_percent", 10, None), ("refused_percent", 5, None)]
DATASET = "prompts"
NUM_ROWS = 9_000
LATENCY_S = 0.05
PER_SECOND = 300
SETTLED_AFTER_S = 10

make_batch = make_prompts


def serving(num_rows):
    return serving_models(latency=LATENCY_S, requests_per_second=PER_SECOND, has_limit_headers=False)


def penstock(run):
    prompts_50ms.penstock(run)
    run.figures = figures(control("requests"))


def plain(run):
    run_plain(run, "/responses", prompt_bodies, said, with_answers, per_second=0.97 * PER_SECOND)
    run.figures = figures(control("requests"))


def figures(requests):
    """Return the server's record."""
    taken = sorted(request["arrived"] for request in requests if request["status"] == 200)
    start = min(request["arrived"] for request in requests)
    end = taken[-1]
    settled = start + min(SETTLED_AFTER_S, (end - start) / 2)
    rate = sum(arrived > settled for arrived in taken) / (end - settled)
    refused = sum(request["status"] == 429 for request in requests)
    return {
        "unused_percent": 100 * (1 - rate / PER_SECOND),
        "refused_percent": 100 * refused / len(requests),
    }
