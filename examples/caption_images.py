"""Caption pictures: read and shrink them on this machine, send them with a text, keep caption, tokens and cost."""

from pathlib import Path

from offline import connect

import penstock as ps

PHOTOS = Path(__file__).parent / "data" / "photos"

connect()
df = ps.read_images(str(PHOTOS), path_column="path")
df = df.with_column("small", ps.col("image").resize(160, 120))  # fewer tokens than the original
df = df.with_column(
    "answer", ps.prompt(["Describe this picture in one sentence.", ps.col("small")], model="gpt-5-mini", usage=True)
)
df = df.select(
    ps.col("path").split("/").list_get(-1).alias("photo"),
    ps.col("answer")["value"].alias("caption"),
    ps.col("answer")["input_tokens"].alias("tokens"),
    ps.col("answer")["cost"].alias("dollars"),
)
df.sort("photo").show()
