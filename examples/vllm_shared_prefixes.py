"""Run a model of your own on GPUs with vLLM: prompts that begin alike go together, so each beginning is computed once.

Without a GPU the prompts go to the test server instead, as they would to `vllm serve` at base_url.
"""

import shutil
from pathlib import Path

from offline import connect

import penstock as ps

REVIEWS = Path(__file__).parent / "data" / "reviews.jsonl"
RULES = "You label product reviews.\n" + "\n".join(
    f"Rule {n}: be exact, be short, and cite the text." for n in range(40)
)

provider = "vllm-prefix-caching" if shutil.which("nvidia-smi") else "vllm"
if provider == "vllm":
    server = connect()
    ps.attach_provider("vllm", base_url=server.openai_url if server else "http://localhost:8000/v1")

df = ps.read_json(str(REVIEWS)).limit(100)
df = df.with_column("manual", ps.lit(RULES) + "\nThe category is " + ps.col("category") + ".")  # four beginnings
answer = ps.prompt("{manual}\nIs this customer happy? {text}", provider=provider, model="Qwen/Qwen3-0.6B")
df = df.with_column("happy", answer)
df = df.drop("manual").collect()

df.group_by("category", "happy").agg(ps.col("id").count().alias("n")).sort(["category", "happy"]).show()
print(df.stats().models)
