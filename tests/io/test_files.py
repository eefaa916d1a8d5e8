"""Which files a path, a pattern or a folder stands for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.errors import InvalidArgumentError, PathNotFoundError
from penstock.io.files import find_files

FILES = ("a.csv", "b.csv", "notes.md", "sub/c.csv", "sub/deep/d.csv", "_temp/e.csv", ".git/f.csv", "sub/_SUCCESS", ".g")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in FILES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path


def names(folder: Path, *paths: str | Path, suffixes: tuple[str, ...] = (".csv",)) -> list[str]:
    return [os.path.relpath(str(file), folder) for file in find_files(list(paths), suffixes)]


def test_a_folder_is_searched_below_without_hidden_names_and_other_suffixes(folder: Path) -> None:
    assert names(folder, folder) == ["a.csv", "b.csv", "sub/c.csv", "sub/deep/d.csv"]


def test_a_folder_without_matching_suffixes_gives_all_files(folder: Path) -> None:
    assert names(folder, folder / "sub", suffixes=(".parquet",)) == ["sub/c.csv", "sub/deep/d.csv"]


def test_a_named_file_may_have_any_name(folder: Path) -> None:
    assert names(folder, folder / "sub" / "_SUCCESS") == ["sub/_SUCCESS"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.csv", ["a.csv", "b.csv"]),
        ("[b-z].csv", ["b.csv"]),
        ("?.csv", ["a.csv", "b.csv"]),
        ("*/c.csv", ["sub/c.csv"]),
        ("**/*.csv", ["a.csv", "b.csv", "sub/c.csv", "sub/deep/d.csv"]),
        ("**/d.csv", ["sub/deep/d.csv"]),
        ("**/deep/**/*.csv", ["sub/deep/d.csv"]),
        ("**", ["a.csv", "b.csv", "notes.md", "sub/c.csv", "sub/deep/d.csv"]),
        ("su*", ["sub/c.csv", "sub/deep/d.csv"]),
        ("_te*/*.csv", ["_temp/e.csv"]),
    ],
)
def test_patterns(folder: Path, pattern: str, expected: list[str]) -> None:
    assert names(folder, folder / pattern) == expected


@pytest.mark.parametrize("path", ["", "*", "**", "**/*.csv"])
def test_links_to_the_folder_itself_and_to_its_parent_give_each_file_once(folder: Path, path: str) -> None:
    (folder / "again").symlink_to(folder)
    (folder / "sub" / "up").symlink_to(folder)
    (folder / "sub" / "a_twin").symlink_to(folder / "sub" / "deep")

    assert names(folder, folder / path) == [
        "a.csv",
        "b.csv",
        *(["notes.md"] if path in ("*", "**") else []),
        "sub/c.csv",
        "sub/deep/d.csv",
    ]


def test_links_to_other_folders_are_followed(folder: Path) -> None:
    (folder / "sub" / "temp").symlink_to(folder / "_temp")

    assert names(folder, folder / "sub") == ["sub/c.csv", "sub/deep/d.csv", "sub/temp/e.csv"]


def test_a_list_keeps_its_order(folder: Path) -> None:
    assert names(folder, folder / "sub", folder / "a.csv") == ["sub/c.csv", "sub/deep/d.csv", "a.csv"]


def test_file_urls_home_and_relative_paths(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir(folder)
    assert names(folder, f"file://{folder}/a.csv", "~/b.csv", "sub/c.csv") == ["a.csv", "b.csv", "sub/c.csv"]


def test_a_name_with_pattern_characters_is_found_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a[1].csv").write_text("")
    assert names(tmp_path, tmp_path / "a[1].csv") == ["a[1].csv"]


def test_sizes_are_known(folder: Path) -> None:
    assert [file.size for file in find_files(folder / "a.csv")] == [5]


def test_remote_urls_go_through_fsspec() -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe({"/bucket/x/1.csv": b"a\n1\n", "/bucket/x/2.csv": b"a\n2\n", "/bucket/y.txt": b""})
    try:
        assert [str(file) for file in find_files("memory://bucket/x/*.csv")] == [
            "memory:///bucket/x/1.csv",
            "memory:///bucket/x/2.csv",
        ]
        [file] = find_files("memory://bucket/x/2.csv")
        with file.open_stream() as stream:
            assert stream.read() == b"a\n2\n"
        assert len(find_files("memory://bucket", (".csv",))) == 2
        with pytest.raises(PathNotFoundError, match=r"memory://bucket/x/3\.csv"):
            find_files("memory://bucket/x/3.csv")
    finally:
        memory.store.clear()


def test_a_protocol_nobody_knows_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="gopher://"):
        find_files("gopher://host/x.csv")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("b.cvs", r"Path '.*/b\.cvs' does not exist\. Did you mean 'b\.csv'\?"),
        ("subb/c.csv", r"Path '.*/subb/c\.csv' does not exist\.$"),
        ("*.parquet", r"No file matches '.*/\*\.parquet'\. Folder '.*' holds .*b\.csv"),
        ("nowhere/*/*.csv", r"No file matches .*\. Folder '.*/nowhere' does not exist, or is empty\."),
    ],
)
def test_nothing_found_names_the_path_and_what_is_near(folder: Path, path: str, message: str) -> None:
    with pytest.raises(PathNotFoundError, match=message):
        find_files(folder / path)


def test_an_empty_folder_says_so(tmp_path: Path) -> None:
    (tmp_path / "_only_hidden").write_text("")
    with pytest.raises(PathNotFoundError, match="holds no files"):
        find_files(tmp_path)


def test_no_path_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="No path given"):
        find_files([])
