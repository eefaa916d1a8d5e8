"""Ledger overhead: 10,000 prompts to a server of 50 ms, with and without a ledger, in turn; Parquet to Parquet."""

from benchmarks.model_server import API_KEY, MODEL, fresh_api, make_prompts, serving_in_50ms

FIGURES = {"overhead_percent": "percent more time with a ledger", "cpu_percent": "percent more CPU time with a ledger"}
TARGETS = [("overhead_percent", 5, None)]
DATASET = "prompts"
NUM_ROWS = 10_000
ROUNDS = 4

make_batch = make_prompts
serving = serving_in_50ms


def penstock(run):
    """Return the median of the rounds after the first, which imports modules and learns the server's pace."""
    import tempfile
    import time
    from statistics import median

    import penstock as ps
    from penstock.functions import prompt

    ps.set_provider("openai", base_url=fresh_api(), api_key=API_KEY)
    wall_s: dict[bool, list[float]] = {False: [], True: []}
    cpu_s: dict[bool, list[float]] = {False: [], True: []}

    def ask(cache_dir: str) -> None:
        start, cpu_start = time.perf_counter(), time.process_time()
        with ps.config(cache_dir=cache_dir):
            df = ps.read_parquet(run.input).with_column("answer", prompt(ps.col("prompt"), model=MODEL))
            df.write_parquet(run.output, mode="overwrite", compression="snappy")
        wall_s[bool(cache_dir)].append(time.perf_counter() - start)
        cpu_s[bool(cache_dir)].append(time.process_time() - cpu_start)

    with run.working():
        for number in range(ROUNDS + 1):
            for is_kept in (False, True) if number % 2 else (True, False):
                with tempfile.TemporaryDirectory() as folder:
                    ask(folder if is_kept else "")
    for name, spent in (("overhead_percent", wall_s), ("cpu_percent", cpu_s)):
        run.figures[name] = 100 * (median(spent[True][1:]) / median(spent[False][1:]) - 1)
