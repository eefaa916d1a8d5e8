"""Run a model of your own on GPUs with vLLM: prompts that begin alike go together, so each beginning is computed once.

Without a GPU this prints the plan and stops.
"""

import shutil
from pathlib import Path

import penstock as ps

REVIEWS = Path(__file__).parent / "data" / "reviews.jsonl"
RULES = "You label product reviews.\n" + "\n".join(f"Rule {n}: be exact, be short, and cite the text." for n in range(40))

df = ps.read_json(str(REVIEWS))
df = df.with_column("manual", ps.lit(RULES) + "\nThe category is " + ps.col("category") + ".\n")  # four beginnings
answer = ps.prompt(
    "{manual}\nWhich part of the product is the review about? {text}",
    provider="vllm-prefix-caching",
    model="Qwen/Qwen3-0.6B",
    engine_kwargs={"max_model_len": 4096},
    max_output_tokens=20,
)
df = df.with_column("part", answer).exclude("manual")

df.explain()
if shutil.which("nvidia-smi"):
    df.show()
    print(df.stats())
else:
    print("There is no GPU here, so the plan is all there is to see.")
