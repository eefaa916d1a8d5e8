"""The values of a row become the parts and turns of a request."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import io
import threading
import timeit
from collections.abc import Awaitable, Callable
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as PilImage

import penstock as ps
from penstock.ai.conversation import (
    Audio,
    Document,
    Image,
    ModelTurn,
    Part,
    Text,
    ToolCall,
    ToolResult,
    ToolTurn,
    UserTurn,
)
from penstock.ai.messages import attachments
from penstock.ai.messages.message import Message, check_message_types, read_message
from penstock.errors import ForbiddenUrlError, PathNotFoundError, ReadError, RequestRefusedError, TypeMismatchError
from penstock.storage.file import AudioFile, File, ImageFile
from penstock.types import DataType

PDF = b"%PDF-1.7\n1 0 obj\n"
WAV = b"RIFF\x24\0\0\0WAVEfmt " + bytes(20)


def message(*values: Any) -> Message | None:
    return asyncio.run(read_message(values))


def parts(*values: Any) -> tuple[Part, ...] | None:
    """Return the parts of the only turn of a message."""
    if (found := message(*values)) is None:
        return None
    (turn,) = found.turns
    assert isinstance(turn, UserTurn)
    return turn.parts


def part(value: Any) -> Part:
    given = parts(value)
    assert given is not None
    (only,) = given
    return only


def encoded(kind: str, mode: str = "RGB", size: tuple[int, int] = (5, 3)) -> bytes:
    file = io.BytesIO()
    PilImage.new(mode, size, 120).save(file, kind)
    return file.getvalue()


def decoded(image: Part) -> np.ndarray[Any, Any]:
    assert isinstance(image, Image)
    with PilImage.open(io.BytesIO(image.data)) as opened:
        assert opened.get_format_mimetype() == image.mime_type
        return np.asarray(opened)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("Hello", "Hello"),
        ("", ""),
        (7, "7"),
        (1.5, "1.5"),
        (True, "true"),
        (np.int64(3), "3"),
        (Decimal("1.50"), "1.50"),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        ({"a": 1, "day": datetime.date(2026, 1, 2), "d": Decimal("1.5")}, '{"a":1,"day":"2026-01-02","d":"1.5"}'),
        (["x", 1, None], '["x",1,null]'),
        ([{"role": "lead", "name": "Ada"}], '[{"role":"lead","name":"Ada"}]'),
        (b"plain text", "plain text"),
        ("\ufeffmarked".encode(), "marked"),
        (b"<html><p>Hi</p></html>", "<html><p>Hi</p></html>"),
        (File(b"a,b\n1,2\n"), "a,b\n1,2\n"),
    ],
)
def test_what_is_text(value: Any, text: str) -> None:
    assert part(value) == Text(text)


def test_several_values_are_parts_of_one_turn() -> None:
    assert message("Compare", 3, b"and four") == Message((UserTurn((Text("Compare"), Text("3"), Text("and four"))),))


@pytest.mark.parametrize("values", [(None,), ("text", None), (None, None), (None, np.zeros((2, 2, 3), np.uint8))])
def test_a_null_makes_the_row_null(values: tuple[Any, ...]) -> None:
    assert message(*values) is None
    assert parts(*values) is None


def test_lists_that_ask_nothing_are_refused() -> None:
    with pytest.raises(RequestRefusedError, match="an empty list has nothing to send"):
        message([])
    with pytest.raises(RequestRefusedError, match="add a message of the user"):
        message([{"role": "system", "content": "Be brief."}])
    assert message([], "text") == Message((UserTurn((Text("text"),)),))


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_pixels_are_sent_without_loss(channels: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 4, channels), np.uint8)
    assert (decoded(part(pixels)).reshape(pixels.shape) == pixels).all()


def test_pixels_of_other_depths_are_made_bytes() -> None:
    assert decoded(part(np.full((2, 2), 0x1234, np.uint16))).tolist() == [[0x12, 0x12]] * 2
    assert decoded(part(np.array([[0.0, 1.0]], np.float32))).tolist() == [[0, 255]]
    assert decoded(part(np.array([[0.0, 200.0]], np.float32))).tolist() == [[0, 200]]
    assert decoded(part(np.array([[True, False]]))).tolist() == [[255, 0]]


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_large_image_is_sent_as_jpeg(channels: int) -> None:
    assert decoded(part(np.full((1100, 1000, channels), 255, np.uint8))).shape[:2] == (1100, 1000)
    sent = part(np.full((1100, 1000, channels), 255, np.uint8))
    assert isinstance(sent, Image)
    assert sent.mime_type == "image/jpeg"


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "F"])
def test_images_of_pillow(mode: str) -> None:
    assert decoded(part(PilImage.new(mode, (5, 3)))).shape[:2] == (3, 5)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_encoded_images_stay_as_they_are(kind: str) -> None:
    data = encoded(kind)
    assert part(data) == part(ImageFile(data)) == Image(data, f"image/{kind.lower()}")


@pytest.mark.parametrize(("kind", "mode"), [("BMP", "RGB"), ("TIFF", "RGB"), ("TIFF", "L")])
def test_images_that_no_provider_takes_are_encoded_anew(kind: str, mode: str) -> None:
    sent = part(encoded(kind, mode))
    assert isinstance(sent, Image)
    assert sent.mime_type == "image/png"
    assert decoded(sent).shape[:2] == (3, 5)


def test_a_list_of_images_is_a_part_for_each() -> None:
    frames = [np.zeros((2, 2, 3), np.uint8), None, np.zeros((2, 2, 3), np.uint8)]
    sent = parts("What happens?", frames)
    assert sent is not None
    assert [type(each) for each in sent] == [Text, Image, Image]


def test_documents_and_recordings() -> None:
    assert part(PDF) == Document(PDF, "application/pdf", "document.pdf")
    assert part(WAV) == part(AudioFile(WAV)) == Audio(WAV, "audio/wav")
    assert part(b"ID3" + bytes(9)) == Audio(b"ID3" + bytes(9), "audio/mpeg")
    video = b"\0\0\0\x18ftypmp42" + bytes(9)
    assert part(video) == Document(video, "video/mp4", "video")


@pytest.mark.parametrize("name", ["notes.md", "table.csv", "page.html", "code.py", "data.json", "README"])
def test_a_text_file_is_text_under_its_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("<html>Übung</html>" if name.endswith("html") else "Übung")
    sent = part(File(path))
    assert sent == Text(f"[File: {name}]\n{path.read_text()}")


def test_files_by_content_and_name(tmp_path: Path) -> None:
    for name, data in {"r.pdf": PDF, "misnamed.txt": PDF}.items():
        (tmp_path / name).write_bytes(data)
        assert part(File(tmp_path / name)) == Document(data, "application/pdf", name)
    (tmp_path / "letter.docx").write_bytes(b"PK\3\4" + bytes(20))
    sent = part(File(tmp_path / "letter.docx"))
    assert isinstance(sent, Document)
    assert sent.mime_type == "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    with pytest.raises(PathNotFoundError, match="missing"):
        part(File(tmp_path / "missing.pdf"))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"\x00\x01\x02\x03", "4 bytes is binary data of an unknown type, which models cannot read; accepted are text"),
        (b"PK\3\4" + bytes(9), "is application/zip"),
        (b"\xe9t\xe9 \x00", "binary data"),
        (np.zeros(384, np.float32), r"shape \(384,\) and float32 is not an image"),
        (np.zeros((3, 224, 224), np.float32), "not an image"),
        (object(), "a value of type object cannot be sent to a model; accepted are"),
        ({"photo": b"\0\1"}, "it holds a bytes; pass that as a separate part"),
        (b"\0\0\0\x18ftypheic" + bytes(9), "cannot be sent as an image: not an image"),
        (b"BM" + b"\xff" * 9, "cannot be sent as an image: damaged BMP"),
    ],
)
def test_what_no_model_reads_is_refused(value: Any, said: str) -> None:
    with pytest.raises(TypeMismatchError, match=said):
        parts("Look:", value)


def test_an_attachment_may_not_be_huge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachments, "MAX_ATTACHMENT_NBYTES", 100)
    path = tmp_path / "long.pdf"
    path.write_bytes(PDF + bytes(100))
    with pytest.raises(TypeMismatchError, match=r"long\.pdf.* has 117 bytes, more than the 100 .* resize images"):
        part(File(path))
    with pytest.raises(TypeMismatchError, match="117 bytes"):
        part(path.read_bytes())


def test_files_are_read_and_images_encoded_beside_the_event_loop() -> None:
    readers = []

    class Watched(File):
        def read(self) -> bytes:
            readers.append(threading.current_thread())
            return super().read()

    async def ask() -> Message | None:
        return await read_message(("Look:", Watched(PDF)))

    assert asyncio.run(ask()) is not None
    assert readers
    assert threading.main_thread() not in readers


# --- conversations ----------------------------------------------------------------------------------------------------


def test_a_conversation() -> None:
    said = [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "developer", "content": "In French."},
        {"role": "user", "content": "Bye"},
    ]
    turns = (UserTurn((Text("Hi"),)), ModelTurn("Hello"), UserTurn((Text("Bye"),)))
    assert message(said) == Message(turns, "Be short.\n\nIn French.")
    assert message(said, "Again?") == Message((*turns, UserTurn((Text("Again?"),))), "Be short.\n\nIn French.")


def test_a_null_content_of_a_user_makes_the_row_null() -> None:
    assert message([{"role": "user", "content": None}]) is None


EPHEMERAL = {"type": "ephemeral"}


def test_parts_that_a_provider_keeps_stay_apart() -> None:
    manual = {"type": "text", "text": "The manual.", "cache_control": {"type": "ephemeral", "ttl": None}}
    question = {"type": "text", "text": "Why?", "cache_control": None}
    found = message([
        {"role": "system", "content": [{"type": "text", "text": "Be short."}, manual]},
        {"role": "system", "content": "In French."},
        {"role": "user", "content": [{"type": "image", "image": PNG, "cache_control": EPHEMERAL}, question]},
    ])  # fmt: skip
    turn = UserTurn((Image(PNG, "image/png", EPHEMERAL), Text("Why?")))
    parts = (Text("Be short."), Text("The manual.", EPHEMERAL), Text("In French."))
    assert found == Message((turn,), "Be short.\nThe manual.\n\nIn French.", parts)


PNG = encoded("PNG")
PNG_URL = "data:image/png;base64," + base64.b64encode(PNG).decode()


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"type": "text", "text": "Hi", "image_url": None}, Text("Hi")),
        ({"type": "input_text", "text": "Hi"}, Text("Hi")),
        ({"type": "image_url", "image_url": {"url": PNG_URL, "detail": "low"}}, Image(PNG, "image/png")),
        ({"type": "input_image", "image_url": PNG_URL}, Image(PNG, "image/png")),
        ({"type": "image", "image": PNG}, Image(PNG, "image/png")),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG_URL[22:]}},
            Image(PNG, "image/png"),
        ),
        (
            {"type": "file", "file": {"filename": "r.pdf", "file_data": base64.b64encode(PDF).decode()}},
            Document(PDF, "application/pdf", "r.pdf"),
        ),
        (
            {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain,a%20b"},
            Text("[File: a.txt]\na b"),
        ),
        (
            {"type": "input_audio", "input_audio": {"data": base64.b64encode(WAV).decode(), "format": "wav"}},
            Audio(WAV, "audio/wav"),
        ),
        (WAV, Audio(WAV, "audio/wav")),
    ],
)
def test_parts_of_a_conversation(item: Any, expected: Part) -> None:
    assert message([{"role": "user", "content": [item]}]) == Message((UserTurn((expected,)),))


@pytest.mark.parametrize(
    "part",
    [
        lambda url: {"type": "image_url", "image_url": {"url": url}},
        lambda url: {"type": "input_image", "image_url": url},
        lambda url: {"type": "image", "source": {"type": "url", "url": url}},
        lambda url: {"type": "image", "image": url},
        lambda url: {"type": "input_file", "file_url": url},
    ],
    ids=["image_url", "input_image", "source", "image", "file_url"],
)
def test_urls_of_a_conversation_reach_no_private_address(part: Any) -> None:
    asked: list[str] = []

    class Pictures(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            is_long = self.path == "/long"
            self.send_response(302 if self.path == "/passwd" else 200)
            self.send_header("Location", "file:///etc/passwd")
            if not is_long:
                self.send_header("Content-Length", str(len(PNG)))
            self.end_headers()
            self.wfile.write(PNG)
            with contextlib.suppress(OSError):
                for _ in range(64 if is_long else 0):
                    self.wfile.write(bytes(2**20))

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Pictures) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        at = f"127.0.0.1:{server.server_port}"

        def read(url: str) -> Message | None:
            return message([{"role": "user", "content": [part(url)]}])

        for url, words in {
            f"http://{at}/cat.png": "must be https:.*allow_private_urls=True",
            f"https://{at}/cat.png": "has the private address 127.0.0.1.*allow_private_urls=True",
            f"https://localhost:{server.server_port}/cat.png": "has the private address",
            f"https://[::ffff:127.0.0.1]:{server.server_port}/cat.png": "has the private address",
        }.items():
            with pytest.raises(ForbiddenUrlError, match=words):
                read(url)
        assert not asked
        with ps.config(allow_private_urls=True):
            assert read(f"http://{at}/cat.png") == Message((UserTurn((Image(PNG, "image/png"),)),))
            for path, words in {"passwd": "not a web address", "long": "more than max_bytes=52,428,800"}.items():
                with pytest.raises(ReadError, match=words):
                    read(f"http://{at}/{path}")
        server.shutdown()


def test_tool_calls_of_a_conversation() -> None:
    calls = [{"id": i, "type": "function", "function": {"name": "add", "arguments": "{}"}} for i in "ab"]
    said = [
        {"role": "user", "content": "1 + 2, 3 + 4?"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "a", "content": "3"},
        {"role": "tool", "tool_call_id": "b", "content": "7"},
    ]
    a, b = (ToolCall(i, "add", "{}") for i in "ab")
    read = message(said)
    assert read is not None
    assert read.turns[1:] == (ModelTurn("", (a, b)), ToolTurn((ToolResult(a, "3"), ToolResult(b, "7"))))


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"role": "boss", "content": "x"}, "role 'boss'; the roles are system, developer, user"),
        ({"role": "user", "content": [{"type": "smell", "smell": "x"}]}, "type 'smell' and fields type, smell"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": "/etc/passwd"}]}, "not a URL of https"),
        ({"role": "user", "content": [{"type": "input_image", "image_url": "file:///x"}]}, "not a URL of https"),
        ({"role": "user", "content": [{"type": "file", "file": {"file_id": "f-1"}}]}, "valid at one provider only"),
        ({"role": "tool", "tool_call_id": "z", "content": "x"}, "answers call 'z', which no message before it made"),
        ({"role": "assistant", "content": PNG}, "assistant message holds something other than text"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": "data:oops"}]}, "not a data: URL"),
        ({"role": "user", "content": "x", "cache_control": EPHEMERAL}, "role 'user' has a 'cache_control' that cannot"),
        (
            {"role": "assistant", "content": [{"type": "text", "text": "x", "cache_control": EPHEMERAL}]},
            "role 'assistant' has a 'cache_control' that cannot be sent there; put it into a part",
        ),
        (
            {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": "ephemeral"}]},
            "cache_control takes a dict, such as .*; got 'ephemeral'",
        ),
    ],
)
def test_what_is_wrong_in_a_conversation_is_named(said: dict[str, Any], error: str) -> None:
    with pytest.raises(TypeMismatchError, match=error):
        message([said])


# --- types, when the plan is built ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype",
    [
        *(DataType.string(), DataType.int64(), DataType.bool(), DataType.date(), DataType.binary(), DataType.null()),
        *(DataType.image("RGB"), DataType.file(), DataType.file("audio"), DataType.python()),
        *(DataType.list(str), DataType.struct({"a": int}), DataType.list(DataType.image())),
        *(DataType.tensor("uint8"), DataType.tensor("float32", (8, 8, 3)), DataType.tensor("uint16", (8, 8))),
        DataType.list(DataType.struct({"role": str, "content": str})),
    ],
)
def test_types_that_models_read(dtype: DataType) -> None:
    check_message_types([("x", dtype)])


@pytest.mark.parametrize(
    ("dtype", "error"),
    [
        (DataType.embedding("float32", 384), "'x' is .*, which a language model cannot read.* cast it to a list"),
        (DataType.tensor("float32", (3, 224, 224)), "'x' is .*, which is not an image; an image has shape"),
        (DataType.tensor("int64"), "not an image"),
        (
            DataType.struct({"id": int, "photo": DataType.image()}),
            r"pass the fields as separate parts.* \[x\['photo'\], ...\]",
        ),
    ],
)
def test_types_that_no_model_reads_are_refused(dtype: DataType, error: str) -> None:
    with pytest.raises(TypeMismatchError, match=error):
        check_message_types([("x", dtype)])


def test_plain_text_costs_next_to_nothing() -> None:
    """Thousands of rows a second pass here; a thread for each would cost several times as much."""

    async def best_of(work: Callable[[], Awaitable[Any]]) -> float:
        times = []
        for _ in range(7):
            start = timeit.default_timer()
            for _ in range(500):
                await work()
            times.append(timeit.default_timer() - start)
        return min(times)

    async def both() -> tuple[float, float]:
        values = ("Hello",)
        return await best_of(lambda: read_message(values)), await best_of(lambda: asyncio.to_thread(len, values))

    of_text, of_thread = asyncio.run(both())
    assert of_text < of_thread / 3
