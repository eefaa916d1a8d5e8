"""Whether remote files are still the same, as a job asks: by what their listing says."""

from __future__ import annotations

from penstock.io.file_source import FileSource
from penstock.io.formats.text import TextFormat
from tests.storage.servers import Bucket
from tests.storage.web import Web


def versions(path: str, options: dict[str, str] | None = None) -> dict[str, str]:
    return dict(FileSource(TextFormat(), path, storage_options=options).versions())


def test_an_object_is_known_by_size_time_and_etag(bucket: Bucket) -> None:
    """One by one as in a listing; another content of the same size, written in the same second, is another."""
    bucket.store.put("in/a.txt", b"one")
    bucket.store.put("in/b.txt", b"two")
    folder, file = f"{bucket.url}/in", f"{bucket.url}/in/a.txt"
    then = versions(folder, bucket.options)
    assert then == versions(folder, bucket.options)
    assert versions(file, bucket.options) == {file: then[file]}
    assert then[file].startswith("3 bytes, modified ")
    assert "etag" in then[file]
    bucket.store.put("in/a.txt", b"six")
    now = versions(folder, bucket.options)
    assert [name for name in then if then[name] != now[name]] == [file]


def test_a_file_on_the_web_is_known_by_what_its_server_says(web: Web) -> None:
    url = web.put("a.txt", b"one")
    then = versions(url)
    assert then[url].startswith("3 bytes")
    web.put("a.txt", b"three")
    assert versions(url)[url].startswith("5 bytes")
