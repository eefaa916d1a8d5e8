"""Prompts: 2,000 to a server whose latency is log-normal, median 100 ms and p99 3 s, Parquet to Parquet.

The n-th request waits the same time for every engine, so the slowest answer, of many seconds, bounds every engine:
what is lost beyond that was lost by waiting for slow rows before sending others.
"""

from benchmarks.model_server import serving_models
from benchmarks.workloads.prompts_50ms import DATASET, make_batch, penstock, plain

__all__ = ["DATASET", "NUM_ROWS", "TARGETS", "make_batch", "penstock", "plain", "serving"]

TARGETS = [("work_s", 1.2, "plain")]
NUM_ROWS = 2_000


def serving(num_rows):
    from penstock.testing import LogNormal

    return serving_models(latency=LogNormal(median=0.1, p99=3.0), seed=5, keep_requests=0)
