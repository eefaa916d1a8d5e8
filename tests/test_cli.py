"""The command ``penstock``, as a shell runs it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.cache.ledger import key_of, open_ledger
from penstock.cli import main
from penstock.config import config
from penstock.testing import ModelServer, faults
from tests.plain_server import counts, plain_server
from tests.terminals import run_in_terminal


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    ledger = open_ledger(tmp_path / "ledger")
    for number in range(50):
        ledger.put({key_of({"n": number}): bytes([number]) * 500})
    ledger.close()
    return tmp_path


def test_stats_for_people_and_for_programs(cache_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "stats", "--dir", str(cache_dir)]) == 0
    shown = capsys.readouterr().out
    assert "records" in shown
    assert "50" in shown
    assert "kB" in shown
    assert main(["cache", "stats", "--dir", str(cache_dir / "ledger"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["num_records"] == 50


def test_prune_by_size_of_the_configured_cache(cache_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with config(cache_dir=str(cache_dir)):
        assert main(["cache", "prune", "--max-size", "10kB", "--older-than", "30d", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["num_kept"] + result["num_removed"] == 50
    assert result["nbytes_after"] <= 10_000


def test_clear_wants_to_be_sure(cache_dir: Path) -> None:
    command = [sys.executable, "-m", "penstock", "cache", "clear", "--dir", str(cache_dir)]
    asked = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert asked.returncode == 2
    assert "would remove 50 finished calls" in asked.stderr
    assert "--yes" in asked.stderr
    assert subprocess.run([*command, "--yes"], capture_output=True).returncode == 0
    assert list((cache_dir / "ledger").iterdir()) == []


@pytest.mark.parametrize(
    ("args", "message", "status"),
    [
        (["stats"], "give --dir DIR, or set PENSTOCK_CACHE_DIR", 2),
        (["stats", "--dir", "nowhere"], "There is no ledger at 'nowhere/ledger'", 1),
        (["prune", "--dir", "nowhere"], "needs --max-size, --older-than or both", 2),
        (["prune", "--dir", "nowhere", "--older-than", "soon"], "'soon' is not an age", 2),
        (["prune", "--dir", "nowhere", "--max-size", "big"], "'big' is not a size", 2),
    ],
)
def test_mistakes_are_explained(args: list[str], message: str, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    with config(cache_dir=""):
        assert main(["cache", *args]) == status
    assert message in capsys.readouterr().err


# --- models, SQL and jobs ---------------------------------------------------------------------------------------------


@pytest.fixture
def reviews(tmp_path: Path, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of three rows; the model server is that of the environment."""
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.openai_url)
    monkeypatch.setenv("PENSTOCK_PROGRESS", "0")
    path = tmp_path / "reviews.csv"
    path.write_text("text,stars\ngood,5\nbad,1\nfine,4\n")
    return path


def run(*args: object, input: str = "", status: int = 0) -> str:
    """Run a command in a process and return its standard output."""
    command = [sys.executable, "-m", "penstock", *map(str, args)]
    done = subprocess.run(command, input=input, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return done.stdout if status in (0, 3) else done.stderr


def test_prompts_from_a_file_to_a_job_and_back(reviews: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = reviews.parent / "out"
    command = ["prompt", str(reviews), "--column", "text", "--prompt", "Say: {text}", "--model", "gpt-5-mini"]
    command += ["--where", "stars > 1"]
    assert main([*command, "-o", str(out), "--resume", "--budget", "5", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts.pop("seconds") > 0
    assert facts.pop("dollars") > 0
    assert facts.pop("input_tokens") > 0
    assert facts.pop("output_tokens") > 0
    assert facts == {"output": str(out), "rows": 2, "failed_rows": 0, "failed": 0, "calls": 2, "cached": 0}
    assert ps.read_parquet(str(out)).to_pydict()["answer"] == ["Say: good", "Say: fine"]
    assert main(["jobs", str(reviews.parent), "--json"]) == 0
    (job,) = json.loads(capsys.readouterr().out)
    assert (job["root"], job["state"], job["num_rows"]) == (str(out), "finished", 2)
    assert job["command"].startswith("penstock prompt")
    assert main([*command, "-o", str(out)]) == 1
    assert "use --mode overwrite to replace it" in capsys.readouterr().err


def test_a_job_keeps_the_command_that_began_it(reviews: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A refused command is not that of the job, a moved job is not run again elsewhere, and a damaged one is listed."""
    out, moved = reviews.parent / "out", reviews.parent / "moved"
    command = ["prompt", str(reviews), "-m", "gpt-5-mini", "-o", str(out), "--resume"]
    assert main([*command, "--prompt", "Say: {text}"]) == 0
    assert main([*command, "--prompt", "Shout: {text}"]) == 1
    assert "begun with another query" in capsys.readouterr().err
    assert main(["retry", str(out)]) == 0
    shutil.copytree(out, moved)
    assert main(["retry", str(moved)]) == 1
    assert f"writes to {str(out)!r}" in capsys.readouterr().err
    (moved / "_penstock_job" / "job.json").write_text("{")
    assert main(["jobs", str(reviews.parent), "--json"]) == 0
    found = {job["root"]: job for job in json.loads(capsys.readouterr().out)}
    assert {root: job["state"] for root, job in found.items()} == {str(out): "finished", str(moved): "damaged"}
    assert found[str(out)]["command"].endswith("--prompt 'Say: {text}'")


def test_a_killed_command_can_be_continued(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.txt").write_text("".join(f"review {n}\n" for n in range(40)))
    out = tmp_path / "out"
    with plain_server(latency=0.2, slots=2, queues=True) as base_url:
        options = ["-c", "text", "-m", "gpt-5-mini", "--base-url", base_url, "-o", str(out), "--resume"]
        command = [sys.executable, "-m", "penstock", "prompt", str(tmp_path / "in.txt"), *options]
        environment = os.environ | {"OPENAI_API_KEY": "x"}
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            while not counts(base_url)["answered"]:
                assert process.poll() is None
            process.kill()
        assert main(["jobs", str(tmp_path), "--json"]) == 0
        (job,) = json.loads(capsys.readouterr().out)
        assert job["command"].startswith("penstock prompt")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OPENAI_API_KEY", "x")
            assert main(["retry", str(out)]) == 0
    assert ps.read_parquet(str(out)).count_rows() == 40


def test_a_prompt_without_the_column_is_sent_before_it(reviews: Path, model_server: ModelServer) -> None:
    out, question = str(reviews.parent / "out.jsonl"), reviews.parent / "prompt.txt"
    question.write_text("Say\n")
    command = ["prompt", str(reviews), "-c", "text", "--prompt-file", str(question), "-m", "gpt-5-mini", "-o", out]
    assert main(command) == 0
    assert '"Say"' in json.dumps(model_server.requests[0].body)
    answers = ps.read_json(out).to_pydict()["answer"]
    assert [answer.split() for answer in answers] == [["Say", "good"], ["Say", "bad"], ["Say", "fine"]]


def test_streams_are_json_lines(reviews: Path) -> None:
    lines = '{"q": "one"}\n{"q": "two"}\n'
    answers = run("prompt", "-", "-c", "q", "-m", "gpt-5-mini", "--as", "a", input=lines)
    assert [json.loads(line) for line in answers.splitlines()] == [{"q": "one", "a": "one"}, {"q": "two", "a": "two"}]


@pytest.mark.parametrize("width", [60, 120, 200])
def test_rows_on_a_terminal_stay_whole_above_the_progress(
    width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also rows that are longer than a line, and wide characters. The display lives for the 0.8 s of a call."""
    texts = ["0 short", *(f"{number} {'long 漢字 ' * 40}" for number in range(1, 70))]
    ps.from_pydict({"text": texts}).write_json(str(tmp_path / "in.jsonl"))
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    command = [sys.executable, "-m", "penstock", "prompt", str(tmp_path / "in.jsonl"), "-c", "text", "-m", "gpt-5-mini"]
    with plain_server(latency=0.8) as url:
        for num_rows, limit in ((3, ["--limit", "3"]), (70, [])):
            was_drawn: list[object] = []
            drawn = {"prompt": was_drawn.append}
            screen, _, status = run_in_terminal([*command, "--base-url", url, *limit], width, drawn)
            assert (status, len(was_drawn)) == (0, 1)
            *lines, closing = screen
            assert closing.startswith(f"✓ {num_rows} rows in ")
            assert closing.partition(", ")[2].startswith(f"{150 * num_rows:,} tokens, $0.0")
            assert [json.loads(line)["text"] for line in lines] == texts[:num_rows]


def test_the_closing_line_says_what_was_made_and_where(
    reviews: Path, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of a query that is too short for a display; JSON has the same facts."""
    monkeypatch.chdir(reviews.parent)
    model_server.change(faults=[faults.HttpError(400, containing="bad")])
    command = ["prompt", str(reviews), "-c", "text", "-m", "gpt-5-mini", "--on-error", "null", "-o", "out"]
    assert main([*command, "--mode", "overwrite"]) == 3
    closing, hint = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"✓ 3 rows in [\d.]+ m?s, 1 failed \(see errors\(\)\), \d+ tokens, \$0\.0\d+ → out", closing)
    assert hint == "1 row failed: penstock errors out"
    assert main([*command, "--mode", "overwrite", "--json"]) == 3
    facts = json.loads(capsys.readouterr().out)
    assert (facts["output"], facts["rows"], facts["failed"], facts["cached"]) == ("out", 3, 1, 0)
    assert min(facts[name] for name in ("calls", "input_tokens", "output_tokens", "dollars", "seconds")) > 0


@pytest.fixture
def mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with forty rows in Parquet, below a README."""
    monkeypatch.setenv("PENSTOCK_PROGRESS", "0")
    folder = tmp_path / "mixed"
    ps.from_pydict({"text": [str(number) for number in range(40)]}).write_parquet(str(folder / "part"))
    (folder / "README.md").write_text("Reviews.")
    return folder


def test_a_folder_with_files_of_several_formats_is_refused(mixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (mixed / "extra.csv").write_text("text\none\n")
    for path, pattern in ((mixed, mixed / "**/*.csv"), (mixed / "*", mixed / "**/*.csv")):
        assert main(["embed", str(path), "-c", "text"]) == 2
        shown = capsys.readouterr().err
        assert "holds files of several formats (1 .csv, 1 .md" in shown
        assert f"give a pattern such as {str(pattern)!r}, or --input-format csv" in shown
    for given in (f"t={mixed}/**/*.parquet", f"t={mixed}/**/*.csv"):
        assert main(["sql", "select count(*) as n from t", given]) == 0
    assert [json.loads(line)["n"] for line in capsys.readouterr().out.splitlines()] == [40, 1]


def test_files_beside_the_data_are_named(mixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "select count(*) as n from mixed", str(mixed)]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {"n": 40}
    assert shown.err == "penstock: the input is the files of type .parquet; skipped README.md\n"


def test_failed_rows_are_shown_and_retried(
    reviews: Path, model_server: ModelServer, capfd: pytest.CaptureFixture[str]
) -> None:
    model_server.change(faults=[faults.HttpError(400, containing="bad")])
    out = reviews.parent / "out"
    command = ["prompt", str(reviews), "-c", "text", "-m", "gpt-5-mini", "--on-error", "null", "--resume"]
    assert main([*command, "-o", str(out)]) == 3
    assert f"1 row failed: penstock errors {out}" in capfd.readouterr().err
    assert main(["errors", str(out), "--json"]) == 0
    (failed,) = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert "bad" in failed["input"]
    assert main(["errors", str(out)]) == 0
    (line,) = capfd.readouterr().out.splitlines()
    assert re.match(r"prompt: row \d of .* failed with RequestRefusedError: .*; its values: \{.*bad", line)
    model_server.change(faults=[])
    assert main(["retry", str(out)]) == 0
    assert sorted(ps.read_parquet(str(out)).to_pydict()["answer"]) == ["bad", "fine", "good"]


def test_a_schema_a_cost_and_labels(reviews: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", str(reviews), "--prompt", "Say: {text}", "-m", "gpt-5-mini", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["calls"] == 3
    out = str(reviews.parent / "labelled.jsonl")
    assert main(["classify", str(reviews), "-c", "text", "-l", "praise", "-l", "blame", "-o", out, "--limit", "2"]) == 0
    assert set(ps.read_json(out).to_pydict()["label"]) <= {"praise", "blame"}


def test_rows_that_go_into_a_table_are_counted(reviews: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for query in ("select * from reviews", "select * from reviews where stars > 1"):
        out = str(reviews.parent / f"{len(query)}.lance")
        assert main(["sql", query, str(reviews), "-o", out, "--json"]) == 0
    assert [json.loads(line)["rows"] for line in capsys.readouterr().out.splitlines()] == [3, 2]


def test_sql_joins_files_by_name(reviews: Path) -> None:
    names = reviews.parent / "names.jsonl"
    names.write_text('{"stars": 5, "name": "five"}\n{"stars": 1, "name": "one"}\n')
    query = "select n.name, r.text from reviews r join n using (stars) order by 1"
    rows = run("sql", query, reviews, f"n={names}").splitlines()
    assert [json.loads(row) for row in rows] == [{"name": "five", "text": "good"}, {"name": "one", "text": "bad"}]


def test_a_reader_that_has_seen_enough_is_no_failure(reviews: Path) -> None:
    command = [sys.executable, "-m", "penstock", "sql", "select * from reviews", str(reviews)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert (process.wait(), process.stderr and process.stderr.read()) == (0, b"")


def test_a_script_gets_its_arguments_and_settings(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys, penstock as ps\nprint(sys.argv[1:], ps.get_config().memory_limit)")
    assert run("run", "--memory-limit", "1GB", script, "--since", "May") == "['--since', 'May'] 1000000000\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ps.range(3).select('nope')", "penstock.errors.ColumnNotFoundError: Column 'nope' not found; available: id."),
        ("int('x')", "ValueError: invalid literal for int() with base 10: 'x'"),
    ],
)
def test_an_error_in_a_script_shows_its_line(line: str, message: str, tmp_path: Path, capsys: Any) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"import penstock as ps\n{line}\n")
    assert main(["run", str(script)]) == 1
    _, place, shown, *_, last = capsys.readouterr().err.splitlines()
    assert (place.strip(), shown.strip(), last) == (f'File "{script}", line 2, in <module>', line, message)


@pytest.mark.parametrize(
    ("line", "text", "code"),
    [
        ("sys.exit(7)", "", 7),
        ("sys.exit('no input')", "no input\n", 1),
        ("sys.exit()", "", 0),
        ("raise KeyboardInterrupt", "penstock: interrupted\n", 130),
    ],
)
def test_a_script_ends_with_its_own_status(line: str, text: str, code: int, tmp_path: Path, capsys: Any) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"import sys\n{line}\n")
    assert main(["run", str(script)]) == code
    assert capsys.readouterr().err == text


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"penstock {ps.__version__}\n"


def test_rows_are_printed_as_they_come(tmp_path: Path) -> None:
    """So ``| head`` ends the calls soon, and a person sees the first rows early."""
    (tmp_path / "in.txt").write_text("".join(f"review {n}\n" for n in range(200)))
    with plain_server(latency=0.1, slots=4) as base_url:
        options = ["-c", "text", "-m", "gpt-5-mini", "--base-url", base_url]
        command = [sys.executable, "-m", "penstock", "prompt", str(tmp_path / "in.txt"), *options]
        environment = os.environ | {"OPENAI_API_KEY": "x"}
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["answer"] == "answer 0"
            assert counts(base_url)["answered"] < 200
            process.stdout.close()
            process.wait()
        assert counts(base_url)["answered"] < 200


def test_doctor_names_no_key(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    assert main(["doctor", "--json"]) == 0
    shown = capsys.readouterr().out
    assert json.loads(shown)["keys"]["OPENAI_API_KEY"] == "set"
    assert "sk-secret" not in shown


def test_doctor_runs_where_the_system_knows_no_affinity(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr("os.sched_getaffinity")  # as on macOS
    assert main(["doctor", "--json"]) == 0
    assert int(json.loads(capsys.readouterr().out)["machine"]["cores"]) >= 1


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["prompt", "-", "-c", "text"], "Standard input is empty"),
        (["prompt", "nowhere", "-c", "text"], "Path 'nowhere' does not exist"),
        (["prompt", "folder", "-c", "text"], "The folder 'folder' is empty."),
        (["prompt", "empty.csv", "-c", "text", "-m", "x"], "Column 'text' not found; there are no columns."),
    ],
)
def test_an_input_that_is_not_there(
    args: list[str], message: str, monkeypatch: Any, capsys: Any, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.csv").touch()
    with open(os.devnull) as empty:
        monkeypatch.setattr(sys, "stdin", empty)
        assert main(args) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("command", ["retry", "dashboard"])
def test_a_file_that_cannot_be_opened(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("job", "command"):
        (tmp_path / "_penstock_job" / f"{name}.json").mkdir(parents=True)
    assert main([command, str(tmp_path)]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith(f"penstock: '{tmp_path}")
    assert shown.endswith(".json': Is a directory\n")


def test_rows_of_a_folder_without_a_job_cannot_be_run_again(reviews: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["retry", str(reviews.parent)]) == 1
    assert f"There is no job in {str(reviews.parent)!r}" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["jobs", "errors"])
def test_a_folder_that_does_not_exist(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "nowhere"]) == 1
    assert "There is no folder 'nowhere'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "args",
    [
        ["prompt", "-m", "m", "--prompt", "Say: {txt}"],
        ["cost", "-m", "m", "-c", "txt"],
        ["embed", "-p", "openai", "-m", "m", "-c", "txt"],
        ["classify", "-p", "openai", "-m", "m", "-c", "txt", "-l", "praise", "-l", "complaint"],
    ],
    ids=lambda args: args[0],
)
def test_a_wrong_column_is_reported_before_a_missing_key(
    args: list[str], reviews: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert main([*args, str(reviews)]) == 1
    shown = capsys.readouterr().err
    assert "Column 'txt' not found" in shown
    assert ("where {{ and }} are braces" in shown) == ("--prompt" in args)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["prompt", "reviews.csv"], "Give --prompt or --prompt-file, --column, or both"),
        (["prompt", "reviews.csv", "-c", "text", "--resume"], "need a folder for the results"),
        (["prompt", "reviews.csv", "-c", "text", "-o", "out.xlsx"], "cannot write files of type '.xlsx'"),
        (
            ["prompt", "reviews.csv", "-c", "text", "--schema", "nowhere.json"],
            "Cannot read 'nowhere.json': No such file",
        ),
        (
            ["prompt", "reviews.csv", "-c", "text", "--schema", "list.json"],
            "'list.json' is not a JSON schema, which is",
        ),
        (["prompt", "reviews.csv", "-c", "text", "--option", "cold"], "must have the form NAME=VALUE"),
        (["embed", "reviews.xlsx", "-c", "text"], "does not say its format: give --input-format"),
        (["embed", "reviews.csv", "-c", "text", "--input-format", "xlsx"], "--input-format 'xlsx' is not known"),
        (["embed", "folder", "-c", "text"], "No file in 'folder' has a known extension"),
        (["dashboard", "out", "--port", "99999"], "Invalid value for '--port'"),
        (["embed", "reviews.csv"], "Give --column, or --text with a template"),
    ],
)
def test_wrong_arguments(args: list[str], message: str, reviews: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(reviews.parent)
    Path("list.json").write_text("[]")
    Path("folder").mkdir()
    Path("folder", "notes.xyz").touch()
    model = ["-m", "gpt-5-mini"] if args[0] == "prompt" else []
    assert main([*args, *model]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["embed", "-c", "n"], 'write it as a text, such as --text "{NAME}"'),
        (["embed", "-c", "t", "--option", "bath_size=3"], "python -m pydoc penstock.embed_text lists the options"),
        (["classify", "-c", "t", "-l", "one"], "Give two or more, such as ['one', 'other'].\n"),
        (["prompt", "-c", "t", "-m", "m", "-p", "openai"], "set OPENAI_API_KEY, to none for a server without keys.\n"),
    ],
    ids=["type", "option", "label", "key"],
)
def test_remedies_are_words_of_a_shell(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / "x.jsonl").write_text('{"t": "a", "n": 1}\n')
    assert main([arguments[0], str(tmp_path / "x.jsonl"), *arguments[1:]]) in (1, 2)
    assert words in capsys.readouterr().err
