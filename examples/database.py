"""Read rows from PostgreSQL, label them with a model, and add them to another table in one transaction.

DATABASE_URL names the database, such as postgresql://me@host/db; without it this uses a file of SQLite.
"""

import os
import tempfile
from pathlib import Path

from offline import connect

import penstock as ps

REVIEWS = Path(__file__).parent / "data" / "reviews.jsonl"
DATABASE = os.environ.get("DATABASE_URL") or f"sqlite:///{tempfile.mkdtemp()}/shop.db"

connect()
ps.read_json(str(REVIEWS)).write_sql("reviews", DATABASE, mode="overwrite")

df = ps.read_sql("select id, text from reviews where rating < 3", DATABASE)
df = df.with_column("happy", ps.prompt("Is this customer happy? {text}", model="gpt-5-mini"))
df.select("id", "happy").write_sql("verdicts", DATABASE, mode="overwrite", resume=True, job_dir=tempfile.mkdtemp())

ps.read_sql("select happy, count(*) as n from verdicts group by happy order by happy", DATABASE).show()
