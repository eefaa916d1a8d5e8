"""Transcribe sound: resample it on this machine and send it with a prompt to a model that listens."""

import tempfile
from pathlib import Path

import numpy as np
import soundfile
from offline import connect

import penstock as ps

folder = Path(tempfile.mkdtemp())
for name, seconds in (("call-1", 1.0), ("call-2", 2.5), ("call-3", 4.0)):  # stand-ins for your recordings
    times = np.arange(int(16_000 * seconds)) / 16_000
    soundfile.write(folder / f"{name}.wav", 0.3 * np.sin(2 * np.pi * 440 * times), 16_000)

server = connect()
if server is not None:
    ps.attach_provider("google", base_url=server.google_url, api_key="test")

df = ps.from_glob_path(str(folder / "*.wav")).select("path")
df = df.with_column("header", ps.col("path").audio_metadata())
df = df.with_column("text", ps.prompt(["Transcribe this recording.", ps.col("path").audio_file()], provider="google"))
df.select(
    ps.col("path").split("/").list_get(-1).alias("file"),
    (ps.col("header")["frames"] / ps.col("header")["sample_rate"]).alias("seconds"),
    "text",
).sort("file").show()
