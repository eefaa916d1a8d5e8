"""Record docs/resume.png: a real terminal in which a job is killed and then continues. Needs tmux and Chromium.

python scripts/record_resume.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = """import penstock as ps

df = ps.read_parquet("reviews/")
df = df.with_column("verdict", ps.prompt("Is this customer happy? {text}", model="gpt-5-mini"))
df.write_parquet("out/", resume=True)
"""
COUNT = """python -c "import penstock as ps; print(ps.read_parquet('out/').count_rows(), 'rows')\""""
COMMANDS = ("cat verdicts.py", "timeout -s KILL 10 python verdicts.py", "python verdicts.py", COUNT)
COLUMNS, LINES = 104, 34
PAGE = """<!DOCTYPE html><meta charset="utf-8"><style>{stylesheet}
body {{ margin: 0; padding: 22px 26px; background: {background}; color: {foreground}; }}
pre {{ margin: 0; font: 15px/1.4 "DejaVu Sans Mono", monospace; }}</style><pre>{code}</pre>"""


def main() -> None:
    sys.path.insert(0, str(ROOT))
    import penstock as ps
    from penstock.testing import LogNormal, ModelServer

    with tempfile.TemporaryDirectory() as folder, ModelServer(latency=LogNormal(median=0.6, p99=2)) as server:
        os.chdir(folder)
        texts = ps.read_json(str(ROOT / "examples" / "data" / "reviews.jsonl")).to_pydict()["text"]
        rows = [{"id": number, "text": f"{texts[number % len(texts)]} (order {number})"} for number in range(3000)]
        ps.from_pylist(rows).write_parquet("reviews")
        Path("verdicts.py").write_text(SCRIPT)
        save(on_a_terminal(server.openai_url), ROOT / "docs" / "resume.png")


def on_a_terminal(base_url: str) -> str:
    """Type the commands into a terminal and return what it shows at the end, with its colours."""
    environment = {"PS1": "$ ", "TERM": "xterm-256color", "PYTHONPATH": str(ROOT), "HOME": os.getcwd()}
    environment |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment |= {"OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": "test"}
    tmux = ["tmux", "-L", "penstock-record"]
    size = ["-x", str(COLUMNS), "-y", str(LINES)]
    shell = ["env", *(f"{name}={value}" for name, value in environment.items()), "bash", "--norc", "-i"]
    subprocess.run([*tmux, "new-session", "-d", *size, *shell], check=True)
    try:
        time.sleep(0.5)  # the shell prints its prompt
        for number, command in enumerate(COMMANDS):
            subprocess.run([*tmux, "send-keys", f"{command}; touch done-{number}", "Enter"], check=True)
            while not Path(f"done-{number}").exists():
                time.sleep(0.2)
        time.sleep(0.5)
        shown = subprocess.run([*tmux, "capture-pane", "-e", "-p"], check=True, capture_output=True, text=True).stdout
    finally:
        subprocess.run([*tmux, "kill-server"], check=True)
    for number in range(len(COMMANDS)):
        shown = shown.replace(f"; touch done-{number}", "")
    return shown.rstrip()


def save(shown: str, path: Path) -> None:
    console = Console(record=True, width=COLUMNS, quiet=True, force_terminal=True)
    console.print(Text.from_ansi(shown), soft_wrap=True)
    Path("page.html").write_text(console.export_html(theme=MONOKAI, code_format=PAGE, inline_styles=False))
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(device_scale_factor=2)
        page.goto(f"file://{os.getcwd()}/page.html")
        page.set_viewport_size({"width": 1010, "height": 400})
        page.locator("body").screenshot(path=str(path))
        browser.close()


if __name__ == "__main__":
    main()
