"""WebDataset: tar files where members with the same name up to the first dot form one sample, which is one row.

Nothing is extracted to disk, so the paths in member names are harmless.
"""

from __future__ import annotations

import fnmatch
import os
import posixpath
import re
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import CorruptFileError, InvalidArgumentError, PenstockError
from penstock.io.batches import BATCH_NBYTES
from penstock.io.file_format import FilePart, reading
from penstock.io.files import DataFile, Paths
from penstock.io.formats.lines import with_compressed
from penstock.types import DataType, supertype, to_arrow_array

KEY = "__key__"
MAX_SAMPLE_NBYTES = 2**30
BATCH_SAMPLES = 1024
INFERRED_SAMPLES = 100

_MAX_HEADER_NBYTES = 2**20  # of a header for a long name, which tarfile reads whole at any size it states
_TEXT = {"txt", "text", "transcript"}
_INTEGER = {"cls", "cls2", "class", "count", "index", "inx", "id"}
_JSON = {"json", "jsn"}

MAX_SHARDS = 1_000_000
_BRACES = re.compile(r"\{(?:(?P<first>\d+)\.\.(?P<last>\d+)|(?P<items>[^{},]*(?:,[^{},]*)+))\}")

Sample = dict[str, Any]
Decoder = Callable[[Sample], Sample]


class _Header(tarfile.TarInfo):
    """A header that refuses absurd sizes, and damaged blocks, which tarfile takes for the end of the archive.

    The archive ends with two blocks of zeros, or with one at the end of the file.
    """

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Any:
        stream: Any = archive.fileobj
        start = stream.tell()
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            if stream.read(tarfile.BLOCKSIZE).strip(b"\0"):
                raise tarfile.ReadError(f"the block at byte {start} is empty, where a header is expected") from None
            raise
        except tarfile.EmptyHeaderError:  # type: ignore[attr-defined]
            if not start:
                raise
            raise tarfile.ReadError(f"it is truncated after {start} bytes") from None
        except (tarfile.TruncatedHeaderError, tarfile.InvalidHeaderError) as exc:  # type: ignore[attr-defined]
            raise tarfile.ReadError(f"no header at byte {start}: {exc}") from None

    def _proc_member(self, archive: tarfile.TarFile) -> Any:
        if self.type not in tarfile.REGULAR_TYPES and self.size > _MAX_HEADER_NBYTES:
            raise tarfile.ReadError(f"a header claims to be {self.size} bytes long")
        return super()._proc_member(archive)  # type: ignore[misc]


@dataclass(frozen=True)
class WebDatasetFormat:
    """Tar files of samples. Each of ``decoders`` in turn takes a sample, a dict of bytes by extension."""

    decoders: tuple[Decoder, ...] = ()
    extensions: tuple[str, ...] | None = None
    fileselect: tuple[str, ...] | Callable[[str], bool] | None = None
    max_sample_bytes: int = MAX_SAMPLE_NBYTES
    name: ClassVar[str] = "webdataset"
    suffixes: ClassVar[tuple[str, ...]] = with_compressed(".tar")
    num_files_inferred: ClassVar[int] = 1

    def infer_schema(self, file: DataFile) -> pa.Schema | None:
        samples = []
        for sample in self._samples(file):
            samples.append(sample)
            if len(samples) == INFERRED_SAMPLES:
                break
        names = list(dict.fromkeys(name for sample in samples for name in sample))
        fields = [(name, _common_type([s[name] for s in samples if name in s], name, file)) for name in names]
        return pa.schema(fields) if samples else None

    def parts(self, file: DataFile, schema: pa.Schema, predicate: pc.Expression | None) -> Iterator[FilePart]:
        yield FilePart(nbytes=file.size)

    def read(self, file: DataFile, part: FilePart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        held: list[Sample] = []
        nbytes = 0
        for sample in self._samples(file):
            held.append(sample)
            nbytes += sum(len(value) if isinstance(value, bytes | str) else 64 for value in sample.values())
            if len(held) >= BATCH_SAMPLES or nbytes >= BATCH_NBYTES:
                yield _batch(held, schema, file)
                held, nbytes = [], 0
        if held:
            yield _batch(held, schema, file)

    def _samples(self, file: DataFile) -> Iterator[Sample]:
        """Yield the decoded samples in file order."""
        with _opened(file) as archive:
            key, sample, nbytes = "", Sample(), 0
            for member, found, extension in self._members(archive):
                if found != key or extension in sample:
                    if sample:
                        yield self._decoded(key, sample, file)
                    key, sample, nbytes = found, {}, 0
                nbytes += member.size
                if nbytes > self.max_sample_bytes:
                    raise CorruptFileError(
                        f"Cannot read {str(file)!r}: sample {key!r} is {nbytes} bytes with {member.name!r}; "
                        f"raise max_sample_bytes={self.max_sample_bytes} if that is right."
                    )
                content = archive.extractfile(member)
                sample[extension] = content.read() if content is not None else b""
            if sample:
                yield self._decoded(key, sample, file)

    def _members(self, archive: tarfile.TarFile) -> Iterator[tuple[tarfile.TarInfo, str, str]]:
        """Yield the selected files of the archive with their keys and extensions."""
        for member in archive:
            archive.members = []  # type: ignore[attr-defined]  # tarfile would hold every header
            key, extension = split_member(member.name)
            if member.isfile() and extension and self._is_selected(member.name, extension):
                yield member, key, extension

    def _is_selected(self, name: str, extension: str) -> bool:
        if self.extensions is not None and extension not in self.extensions:
            return False
        if callable(self.fileselect):
            return bool(self.fileselect(name))
        return self.fileselect is None or any(fnmatch.fnmatch(name, pattern) for pattern in self.fileselect)

    def _decoded(self, key: str, contents: Sample, file: DataFile) -> Sample:
        sample = {KEY: key, **contents}
        for decode in self.decoders:
            try:
                sample = decode(sample)
            except PenstockError:
                raise
            except Exception as exc:
                raise CorruptFileError(f"Cannot decode sample {key!r} of {str(file)!r}: {exc}") from exc
        return sample


def expand_braces(path: str) -> list[str]:
    """Expand WebDataset's notation for shards: ``{first..last}`` and ``{this,that}``.

    >>> expand_braces("{train,val}-{08..10}.tar")[:4]
    ['train-08.tar', 'train-09.tar', 'train-10.tar', 'val-08.tar']
    >>> expand_braces("no {braces}.tar")
    ['no {braces}.tar']
    """
    found = _BRACES.search(path)
    if found is None:
        return [path]
    before, after = path[: found.start()], expand_braces(path[found.end() :])
    if found["items"] is not None:
        parts = found["items"].split(",")
    else:
        first, last = int(found["first"]), int(found["last"])
        width = len(found["first"]) if found["first"].startswith("0") else 0
        if abs(last - first) >= MAX_SHARDS:
            raise InvalidArgumentError(f"{path!r} stands for more than {MAX_SHARDS} files.")
        step = 1 if last >= first else -1
        parts = [f"{number:0{width}d}" for number in range(first, last + step, step)]
    return [f"{before}{part}{rest}" for part in parts for rest in after]


def shard_paths(paths: Paths) -> Paths:
    """Expand the braces in paths, except for an existing local file of that name."""
    given = list(paths) if isinstance(paths, list | tuple) else [paths]
    return [each for path in given for each in _shards(path)]


def _shards(path: Any) -> list[Any]:
    if not isinstance(path, str | os.PathLike) or os.path.exists(path):
        return [path]  # find_files refuses what is not a path
    return expand_braces(os.fspath(path))


def split_member(name: str) -> tuple[str, str]:
    """Return the key and the extension of a member; the extension is empty for a member outside any sample.

    >>> split_member("a.b/0001.seg.PNG"), split_member("a/.hidden.txt"), split_member("../../etc/passwd.txt")
    (('a.b/0001', 'seg.png'), ('', ''), ('../../etc/passwd', 'txt'))
    """
    folder, base = posixpath.split(name)
    stem, _, extension = base.partition(".")
    return (posixpath.join(folder, stem), extension.lower()) if stem else ("", "")


def decode_basic(sample: Sample) -> Sample:
    """Decode text, class numbers and JSON by their extensions; images and other files stay bytes.

    >>> decode_basic({"__key__": "1", "txt": b"hi", "cls": b"3", "json": b'{"a": 1}', "jpg": b"..."})
    {'__key__': '1', 'txt': 'hi', 'cls': 3, 'json': {'a': 1}, 'jpg': b'...'}
    """
    return {name: value if name == KEY else _decode(name.rpartition(".")[2], value) for name, value in sample.items()}


def _decode(extension: str, content: bytes) -> Any:
    if extension in _TEXT:
        return content.decode()
    if extension in _INTEGER:
        return int(content)
    if extension in _JSON:
        import orjson

        return orjson.loads(content)
    return content


def webdataset_format(
    *,
    decoder: bool | Decoder | Sequence[Decoder] | None = True,
    suffixes: Sequence[str] | None = None,
    fileselect: Sequence[str] | Callable[[str], bool] | None = None,
    max_sample_bytes: int = MAX_SAMPLE_NBYTES,
) -> WebDatasetFormat:
    """Return the format for the user's arguments."""
    given = [] if decoder is None or decoder is False else [decoder]
    if isinstance(decoder, list | tuple):
        given = list(decoder)
    decoders = [decode_basic if each is True else each for each in given]
    for each in decoders:
        if not callable(each):
            raise InvalidArgumentError(
                f"decoder={each!r} is not known; give True, False, a function of a sample (a dict), or a list of them."
            )
    wanted = None if suffixes is None else tuple(suffix.removeprefix(".").lower() for suffix in suffixes)
    selected = fileselect if callable(fileselect) or fileselect is None else tuple(fileselect)
    return WebDatasetFormat(tuple(decoders), wanted, selected, max_sample_bytes)  # type: ignore[arg-type]


def _common_type(values: Sequence[Any], name: str, file: DataFile) -> pa.DataType:
    """Return the common type of all values; otherwise bytes."""
    found: DataType | None = None
    try:
        for value in values:
            dtype = DataType(to_arrow_array([value], None, what=f"column {name!r}").type)
            found = dtype if found is None else supertype(found, dtype)
            if found is None:
                break
    except ValueError as exc:
        raise CorruptFileError(f"Cannot read {name!r} of the samples of {str(file)!r}: {exc}") from exc
    return pa.binary() if found is None else found.arrow


def _batch(samples: list[Sample], schema: pa.Schema, file: DataFile) -> pa.RecordBatch:
    columns = []
    for column in schema:
        values = [sample.get(column.name) for sample in samples]
        try:
            columns.append(to_arrow_array(values, DataType(column.type), what=f"column {column.name!r}"))
        except (ValueError, TypeError) as exc:
            raise CorruptFileError(f"Cannot read {column.name!r} of the samples of {str(file)!r}: {exc}") from exc
    if not columns:
        return pa.RecordBatch.from_arrays([pa.nulls(len(samples))], names=["rows"]).select([])
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@contextmanager
def _opened(file: DataFile) -> Iterator[tarfile.TarFile]:
    with reading(file), file.open_stream() as stream:
        try:
            with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header) as archive:
                yield archive
        except tarfile.TarError as exc:
            raise CorruptFileError(f"Cannot read {str(file)!r}: {exc}") from exc
