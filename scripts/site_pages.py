"""Write the pages of the site that come from the code: the reference, the settings and the examples.

MkDocs loads this module as a hook (``mkdocs.yml``). Names are read from the running package and not from its sources,
because many functions are rows of a table (``penstock/functions/table.py``).
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import typer.main  # noqa: E402

import penstock as ps  # noqa: E402
import penstock.functions as functions  # noqa: E402
from penstock import errors  # noqa: E402
from penstock.cli.app import app  # noqa: E402
from penstock.config import Config  # noqa: E402
from penstock.frame.aggregate import GroupedDataFrame  # noqa: E402

# The pages of public names, by the modules that define them.
PAGES = {
    "reading": ("Reading data", ("penstock.frame.read", "penstock.frame.sql")),
    "udf": ("Your own functions", ("penstock.udf",)),
    "columns": ("Columns", ("penstock.expr.column", "penstock.functions", "penstock.frame.sql_expression")),
    "models": ("Models and providers", ("penstock.ai", "penstock.functions.ai", "penstock.cost")),
    "types": ("Types and files", ("penstock.types", "penstock.storage", "penstock.expr.series_methods")),
    "running": (
        "Running and settings",
        ("penstock.config", "penstock.runners", "penstock.events", "penstock.observe", "penstock.dashboard"),
    ),
    "protocols": ("Sources and sinks", ("penstock.protocols",)),
}
FAMILY_NAMES = {
    "ai": "Models",
    "json": "JSON",
    "core": "Basics",
    "substrings": "Substrings",
    "regular_expressions": "Regular expressions",
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the families of functions in the navigation."""
    assert config.nav is not None
    [reference] = [tab["Reference"] for tab in config.nav if "Reference" in tab]
    [entry] = [entry for entry in reference if "Functions by family" in entry]
    entry["Functions by family"] = [{title(family): f"reference/functions/{family}.md"} for family in families()]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to those of ``docs/``."""
    for path, text in pages():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Link to the examples on the site, where a page links to their scripts for readers of the repository.

    ../../examples/own_model.py  ->  ../start/examples.md#own-model
    """
    depth = page.file.src_uri.count("/")

    def on_site(link: re.Match[str]) -> str:
        return f"]({'../' * depth}start/examples.md{'#' if link[1] else ''}{link[1].replace('_', '-')})"

    return re.sub(r"\]\((?:\.\./)+examples/(\w*)(?:\.py)?\)", on_site, markdown)


def pages() -> Iterator[tuple[str, str]]:
    """Yield the path and the Markdown of each generated page."""
    for page, (heading, _) in PAGES.items():
        names = [name for name in ps.__all__ if page_of(name) == page]
        yield f"reference/{page}.md", f"# {heading}\n\n" + "".join(entry(f"ps.{name}", public(name)) for name in names)
    yield "reference/index.md", index()
    yield "reference/dataframe.md", dataframe()
    yield "reference/functions.md", function_table()
    for family, members in families().items():
        text = "".join(entry(name, functions.FUNCTIONS[name], heading="##") for name in members)
        yield f"reference/functions/{family}.md", f"# {title(family)}\n\n{text}"
    yield "reference/settings.md", settings()
    yield "reference/errors.md", error_tree()
    yield "reference/command-line-options.md", commands()
    yield "start/examples.md", examples()
    yield "internals/rooms.md", rooms()


def public(name: str) -> Any:
    return getattr(ps, name)


def page_of(name: str) -> str | None:
    module = ps._MODULE_OF[name]
    if module == "penstock.functions":  # which gathers the functions of its modules
        module = inspect.unwrap(public(name)).__module__
    if module.startswith(PAGES["models"][1]):
        return "models"
    return next((page for page, (_, homes) in PAGES.items() if module.startswith(homes)), None)


def index() -> str:
    """Link each public name of ``penstock`` to its place."""
    lines = ["# Reference\n", "Every public name, from its docstring. `help(ps.prompt)` shows the same in Python.\n"]
    for page, (heading, _) in PAGES.items():
        found = [f"[`{name}`]({page}.md#ps{name.lower()})" for name in ps.__all__ if page_of(name) == page]
        lines.append(f"- **[{heading}]({page}.md)**: {', '.join(found)}")
    lines.append("- **[DataFrame](dataframe.md)**: every verb, and how to read, write and look at rows")
    lines.append("- **[Functions](functions.md)** of columns, as a table that you can search")
    lines.append("- **[Settings](settings.md)**, the [command line](command-line.md), [errors](errors.md)")
    lines.append("- **[Provider options](providers.md)**, and [formats and stores](stores.md)")
    return "\n".join(lines) + "\n"


def dataframe() -> str:
    """Return the page of a DataFrame: its verbs by the modules that define them."""
    by_module: dict[str, list[str]] = {}
    for name, member in inspect.getmembers(ps.DataFrame):
        if not name.startswith("_"):
            by_module.setdefault(defined_in(member), []).append(name)
    text = f"# DataFrame\n\n{prose(inspect.getdoc(ps.DataFrame) or '')}\n"
    for module, names in sorted(by_module.items(), key=lambda item: item[0].rpartition(".")[2]):
        text += f"\n## {title(module.rpartition('.')[2])}\n\n"
        text += "".join(entry(f"df.{name}", getattr(ps.DataFrame, name)) for name in names)
    grouped = [name for name in vars(GroupedDataFrame) if not name.startswith("_")]
    text += "\n## Groups\n\nThe methods of `df.groupby(...)`.\n\n"
    return text + "".join(entry(f"groups.{name}", getattr(GroupedDataFrame, name)) for name in grouped)


def defined_in(member: Any) -> str:
    found = member.fget if isinstance(member, property) else member
    return str(getattr(inspect.unwrap(found), "__module__", "dataframe"))


def families() -> dict[str, list[str]]:
    """Return the functions by the module that defines them."""
    found: dict[str, list[str]] = {}
    for name in functions.__all__:
        module = inspect.unwrap(functions.FUNCTIONS[name]).__module__
        family = module.rpartition(".")[2] if module.startswith("penstock.functions.") else "core"
        found.setdefault(family, []).append(name)
    return dict(sorted(found.items(), key=lambda item: title(item[0])))


def function_table() -> str:
    count, column = len(functions.__all__), ps.col("x")
    lines = [
        "# Functions",
        "",
        f"{count} functions of `penstock.functions`. Most are methods of a column too: `upper(ps.col('t'))` is",
        "`ps.col('t').upper()`. A name leads to its description and an example.",
        "",
        '<input class="filter" type="search" placeholder="Filter: part of a name or description" aria-label="Filter">',
    ]
    for family, members in families().items():
        lines += ["", f"## {title(family)}", "", "| function | |", "|---|---|"]
        for name in members:
            first = plain((inspect.getdoc(functions.FUNCTIONS[name]) or "").split("\n\n")[0]).replace("|", "\\|")
            note = "" if hasattr(column, name) else " *Not a method.*"
            lines.append(f"| [`{call_of(name)}`](functions/{family}.md#{name}) | {first}{note} |")
    return "\n".join(lines) + "\n"


def call_of(name: str) -> str:
    parameters = inspect.signature(functions.FUNCTIONS[name]).parameters.values()
    names = [{2: "*", 4: "**"}.get(each.kind, "") + each.name for each in parameters]
    return f"{name}({', '.join(names)})".replace("|", "\\|")


def title(name: str) -> str:
    return FAMILY_NAMES.get(name, name.replace("_", " ").capitalize())


def entry(name: str, found: Any, heading: str = "###") -> str:
    """Return the section of a name: its signature and its docstring; of a class also its methods."""
    short = name.removeprefix("ps.").rpartition(".")[2] if heading == "##" else name
    anchor = re.sub(r"[^a-z0-9_]", "", name.lower())
    text = f"{heading} `{short}` {{ #{anchor} }}\n\n{signature(short, found)}{prose(inspect.getdoc(found) or '')}\n\n"
    if inspect.isclass(found) and name.startswith("ps.") and found is not ps.Series:
        for method, member in vars(found).items():
            if method.startswith("_") or method in functions.FUNCTIONS:
                continue
            if isinstance(member, property | classmethod | staticmethod) or inspect.isfunction(member):
                text += f"**`{found.__name__}.{method}`**\n\n{prose(inspect.getdoc(member) or '')}\n\n"
    return text


def signature(name: str, found: Any) -> str:
    """Return the call as a block of code, one parameter a line if it is long."""
    if isinstance(found, property) or not callable(found):
        return ""
    try:
        parameters = list(inspect.signature(found).parameters.values())
    except (TypeError, ValueError):
        return ""
    shown = [shown_parameter(each) for each in parameters if each.name not in ("self", "cls")]
    keyword_only = [n for n, each in enumerate(parameters) if each.kind is inspect.Parameter.KEYWORD_ONLY]
    if keyword_only and not any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters):
        shown.insert(keyword_only[0] - (len(parameters) - len(shown)), "*")
    line = f"{name}({', '.join(shown)})"
    if len(line) > 88:
        line = f"{name}(\n    " + ",\n    ".join(shown) + ",\n)"
    return f"```python\n{line}\n```\n\n"


def shown_parameter(parameter: inspect.Parameter) -> str:
    star = {2: "*", 4: "**"}.get(parameter.kind, "")
    hint = parameter.annotation if isinstance(parameter.annotation, str) else ""
    default = "" if parameter.default is parameter.empty else f"{' = ' if hint else '='}{parameter.default!r}"
    return f"{star}{parameter.name}{': ' if hint else ''}{hint}{default}"


def plain(text: str) -> str:
    """Return a docstring's text as Markdown: code marks, links to pages, one line."""
    text = re.sub(r"``([^`]+)``", r"`\1`", " ".join(text.split()))
    text = re.sub(r"`?docs/([A-Za-z/-]+\.md)`?", lambda page: f"`docs/{page[1]}`", text)
    return text.replace("<", "&lt;") if "`" not in text else text


def prose(doc: str) -> str:
    """Return a docstring as Markdown: examples and indented blocks are code, lists of options are lists."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", doc):
        lines = paragraph.splitlines()
        if paragraph.startswith(">>>"):
            parts.append(f"```pycon\n{paragraph}\n```")
        elif lines and re.match(r"[A-Z][^.]*:$", lines[0]) and len(lines) > 1 and lines[1].startswith("  "):
            parts.append(f"**{lines[0]}**\n\n" + options("\n".join(lines[1:])))
        elif paragraph.startswith("    "):
            parts.append(f"```text\n{textwrap.dedent(paragraph)}\n```")
        else:
            parts.append(plain(paragraph))
    return "\n\n".join(parts)


def options(text: str) -> str:
    """Return lines of a name, spaces and a description as a Markdown list; deeper lines go on with the line above."""
    items: list[str] = []
    for line in textwrap.dedent(text).splitlines():
        name, _, description = line.partition("  ")
        if line.startswith(" ") and items:
            items[-1] += f" {plain(line)}"
        elif line.strip():
            items.append(f"- `{name.strip()}`: {plain(description)}")
    return "\n".join(items)


def settings() -> str:
    """Return the table of settings, with meanings from the docstring of ``Config``."""
    meanings = dict(re.findall(r"- `(\w+)`: (.*)", prose(inspect.getdoc(Config) or "")))
    lines = [
        "# Settings",
        "",
        "`ps.set_config(name=value)` sets them for the process, `with ps.config(name=value):` for a block, and an",
        "environment variable for a program. A size may be text such as `2GB`, a time text such as `30d`.",
        "",
        "| setting, environment variable | |",
        "|---|---|",
    ]
    for name, field in Config.__dataclass_fields__.items():
        names = f"`{name}`<br>`PENSTOCK_{name.upper()}`<br>default `{field.default!r}`"
        lines.append(f"| {names} | {meanings[name]} |")
    return "\n".join(lines) + "\n"


def error_tree() -> str:
    """Return the errors as a tree, each with its first line."""
    lines = [
        "# Errors",
        "",
        "Every error that Penstock raises on purpose is a `PenstockError`; most are also instances",
    ]
    lines += ["of the built-in class that fits. Import them from `penstock.errors`.", ""]

    def add(kind: type[BaseException], depth: int) -> None:
        others = [each.__name__ for each in kind.__bases__ if each.__module__ == "builtins" and each is not Exception]
        also = f" (a `{'`, `'.join(others)}`)" if others else ""
        first = plain((inspect.getdoc(kind) or "").split("\n\n")[0])
        lines.append(f"{'    ' * depth}- **`{kind.__name__}`**{also}: {first}")
        for child in kind.__subclasses__():
            if child.__module__ == errors.__name__:
                add(child, depth + 1)

    add(errors.PenstockError, 0)
    return "\n".join(lines) + "\n"


def commands() -> str:
    """Return the options of every command of the program ``penstock``."""
    text = "# Command line options\n\n[The command line](command-line.md) explains them with examples.\n"

    def add(command: Any, name: str) -> None:
        nonlocal text
        for child in getattr(command, "commands", {}).values():
            add(child, f"{name} {child.name}")
        if not hasattr(command, "commands"):
            text += f"\n## {name}\n\n{plain(command.help or '')}\n\n| option | |\n|---|---|\n"
            for each in command.params:
                label = (
                    ", ".join(each.opts) if each.param_type_name == "option" else (each.metavar or each.name.upper())
                )
                told = plain(getattr(each, "help", "") or "").replace("|", "\\|")
                text += f"| `{label}` | {told} |\n"

    add(typer.main.get_command(app), "penstock")
    return text


def examples() -> str:
    """Return the example scripts with their docstrings as explanations."""
    text = "# Examples\n\nEach script runs offline as it is in a clone: `python examples/quickstart.py`.\n"
    for path in sorted((ROOT / "examples").glob("*.py")):
        source = path.read_text()
        tree = ast.parse(source)
        first, _, rest = (ast.get_docstring(tree) or path.stem).partition("\n")
        code = "\n".join(source.splitlines()[tree.body[0].end_lineno or 0 :]).strip()
        text += f"\n## {path.stem.replace('_', ' ').capitalize()}\n\n{plain(first)} {plain(rest)}\n\n"
        text += f'```python title="examples/{path.name}"\n{code}\n```\n'
    books = ", ".join(f"`{path.name}`" for path in sorted((ROOT / "examples" / "notebooks").glob("*.ipynb")))
    return f"{text}\n## Notebooks\n\nIn `examples/notebooks/`, with tables, pictures and progress: {books}.\n"


def rooms() -> str:
    """Return the maps of the rooms: the docstrings of the package's folders."""
    text = (
        "# The rooms\n\nThe map of each folder of the package. The [architecture](../ARCHITECTURE.md) has the whole.\n"
    )
    for path in sorted((ROOT / "penstock").rglob("__init__.py")):
        doc = ast.get_docstring(ast.parse(path.read_text()))
        if doc and path.parent != ROOT / "penstock":
            text += f"\n## {path.parent.relative_to(ROOT / 'penstock')}/\n\n{prose(doc)}\n"
    return text
