"""WebDataset: tar files where members with the same name up to the first dot form one sample, which is one row.

Nothing is extracted to disk, so the paths in member names are harmless.
"""

from __future__ import annotations

import os
import posixpath
import re
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, ClassVar

import pyarrow as pa

from penstock.config import piece_nbytes
from penstock.errors import CorruptFileError, InvalidArgumentError, PenstockError
from penstock.io.batch_sizes import BATCH_NBYTES, grouped, rows_alone
from penstock.io.data_file import DataFile
from penstock.io.file_format import FileFormat, FilePart, reading
from penstock.io.files import Paths
from penstock.io.formats.lines import with_compressed
from penstock.types import DataType, to_arrow_array

KEY = "__key__"
MAX_SAMPLE_NBYTES = 2**30
BATCH_SAMPLES = 1024
INFERRED_SAMPLES = 100

_MAX_HEADER_NBYTES = 2**20  # the largest header of a long name; tarfile would read it whole at any stated size
_TEXT = {"txt", "text", "transcript"}
_INTEGER = {"cls", "cls2", "class", "count", "index", "inx", "id"}
_JSON = {"json", "jsn"}

_BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}")

Sample = dict[str, Any]
Decoder = Callable[[Sample], Sample]


class _Header(tarfile.TarInfo):
    """A header that refuses absurd sizes, and damaged blocks, which tarfile would take for the end of the archive.

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
class WebDatasetFormat(FileFormat):
    """Tar files of samples. Each of ``decoders`` in turn takes a sample, a dict of bytes by extension."""

    decoders: tuple[Decoder, ...] = ()
    extensions: tuple[str, ...] | None = None
    max_sample_bytes: int = MAX_SAMPLE_NBYTES
    name: ClassVar[str] = "webdataset"
    suffixes: ClassVar[tuple[str, ...]] = with_compressed(".tar")

    def infer_schema(self, file: DataFile) -> pa.Schema | None:
        with closing(self._samples(file)) as found:  # type: ignore[type-var]
            samples = list(islice(found, INFERRED_SAMPLES))
        names = list(dict.fromkeys(name for sample in samples for name in sample))
        columns = [_array([sample.get(name) for sample in samples], None, name, file) for name in names]
        return (
            pa.schema([(name, column.type) for name, column in zip(names, columns, strict=True)]) if samples else None
        )

    def read(self, file: DataFile, part: FilePart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for samples in grouped(self._samples(file), _nbytes, piece_nbytes(BATCH_NBYTES), BATCH_SAMPLES):
            yield _batch(samples, schema, file)

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
            if member.isfile() and extension and (self.extensions is None or extension in self.extensions):
                yield member, key, extension

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
    """Expand WebDataset's notation for shards.

    >>> expand_braces("train-{08..10}.tar")
    ['train-08.tar', 'train-09.tar', 'train-10.tar']
    """
    found = _BRACES.search(path)
    if found is None:
        return [path]
    first, last = found.groups()
    numbers = [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
    rest = expand_braces(path[found.end() :])
    return [f"{path[: found.start()]}{number}{after}" for number in numbers for after in rest]


def shard_paths(paths: Paths) -> Paths:
    """Expand ranges of shards in paths; ``find_files`` refuses anything that is not a path."""
    given: list[Any] = list(paths) if isinstance(paths, list | tuple) else [paths]
    shards = [expand_braces(os.fspath(path)) if isinstance(path, str | os.PathLike) else [path] for path in given]
    return list(chain.from_iterable(shards))


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
    max_sample_bytes: int = MAX_SAMPLE_NBYTES,
) -> WebDatasetFormat:
    """Return the format for the user's arguments."""
    given: list[Any] = list(decoder) if isinstance(decoder, list | tuple) else [decoder] if decoder else []
    decoders = [decode_basic if each is True else each for each in given]
    for each in decoders:
        if not callable(each):
            raise InvalidArgumentError(
                f"decoder={each!r} is not known; give True, False, a function of a sample (a dict), or a list of them."
            )
    wanted = None if suffixes is None else tuple(suffix.removeprefix(".").lower() for suffix in suffixes)
    return WebDatasetFormat(tuple(decoders), wanted, max_sample_bytes)


def _nbytes(sample: Sample) -> int:
    return sum(len(value) if isinstance(value, bytes | str) else 64 for value in sample.values())


def _batch(samples: list[Sample], schema: pa.Schema, file: DataFile) -> pa.RecordBatch:
    columns = [_array([sample.get(c.name) for sample in samples], DataType(c.type), c.name, file) for c in schema]
    if not columns:
        return rows_alone(len(samples))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _array(values: list[Any], dtype: DataType | None, name: str, file: DataFile) -> pa.Array:
    try:
        return to_arrow_array(values, dtype, what=f"column {name!r}")
    except (ValueError, TypeError) as exc:
        raise CorruptFileError(f"Cannot read {name!r} of the samples of {str(file)!r}: {exc}") from exc


@contextmanager
def _opened(file: DataFile) -> Iterator[tarfile.TarFile]:
    with reading(file), file.open_stream() as stream:
        try:
            with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header) as archive:
                yield archive
        except tarfile.TarError as exc:
            raise CorruptFileError(f"Cannot read {str(file)!r}: {exc}") from exc
