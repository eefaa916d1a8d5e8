"""Small sound, video and PDF files, made by the tests that read them."""

from __future__ import annotations

import hashlib
import math
import wave
from collections.abc import Sequence
from pathlib import Path

import numpy as np

FPS = 10
PAGE_SIZE = (200, 100)  # points


def write_tone(
    path: Path, *, sample_rate: int = 8000, seconds: float = 1.0, pitches: Sequence[float] = (440.0,)
) -> str:
    """Write a WAV file with a sine wave for each channel, of half the full amplitude."""
    times = np.arange(round(sample_rate * seconds)) / sample_rate
    channels = [np.sin(2 * math.pi * pitch * times) / 2 for pitch in pitches]
    samples = np.round(np.stack(channels, axis=1) * 32767).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(len(pitches))
        file.setsampwidth(2)
        file.setframerate(sample_rate)
        file.writeframes(samples.tobytes())
    return str(path)


def write_compressed_tone(
    path: Path,
    codec: str,
    *,
    sample_rate: int = 44100,
    pitch: float = 440.0,
    options: dict[str, str] | None = None,
) -> str:
    """Write a second of a sine wave with FFmpeg; the ending of the path says the container, which takes options."""
    import av

    with av.open(str(path), "w", options=options or {}) as container:
        stream = container.add_stream(codec, rate=sample_rate, layout="mono")
        wave_form = np.sin(2 * math.pi * pitch * np.arange(sample_rate) / sample_rate).astype(np.float32) / 2
        frame = av.AudioFrame.from_ndarray(wave_form.reshape(1, -1), format="fltp", layout="mono")
        frame.sample_rate = sample_rate
        resampler = av.AudioResampler(
            format=stream.codec_context.format, layout="mono", rate=sample_rate, frame_size=stream.frame_size or 1024
        )
        for part in [*resampler.resample(frame), *resampler.resample(None)]:
            container.mux(stream.encode(part))
        container.mux(stream.encode())
    return str(path)


def write_clip(
    path: Path,
    *,
    num_frames: int = 20,
    size: tuple[int, int] = (64, 48),
    key_frame_every: int = 5,
    codec: str = "mpeg4",
    b_frames: int = 0,
    fps: int = FPS,
) -> str:
    """Write a video whose frames are grey, each lighter than the one before; see ``grey``."""
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=fps)
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        stream.codec_context.gop_size = key_frame_every
        stream.codec_context.max_b_frames = b_frames
        stream.codec_context.options = {"sc_threshold": "0" if codec == "libx264" else "1000000000"}  # no others
        for number in range(num_frames):
            pixels = np.full((size[1], size[0], 3), grey(number), np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
    return str(path)


def grey(number: int) -> int:
    """Return the value of every pixel of a frame of ``write_clip``."""
    return 12 * (number % 21)


def write_pdf(path: Path, texts: Sequence[str], *, page_size: tuple[int, int] = PAGE_SIZE) -> str:
    """Write a PDF with one page for each text, whose lines are set in Helvetica."""
    path.write_bytes(pdf_bytes(texts, page_size=page_size))
    return str(path)


def pdf_bytes(texts: Sequence[str], *, page_size: tuple[int, int] = PAGE_SIZE) -> bytes:
    """Return the bytes of a PDF: a catalogue, the list of pages, a font, and for each page itself and its content."""
    page_numbers = [4 + 2 * number for number in range(len(texts))]
    kids = " ".join(f"{number} 0 R" for number in page_numbers)
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(texts)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for text, number in zip(texts, page_numbers, strict=True):
        lines = " ".join(f"({line}) Tj T*" for line in text.split("\n"))
        content = f"BT /F1 8 Tf 10 {page_size[1] - 20} Td 10 TL {lines} ET"
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {page_size[0]} {page_size[1]}] "
            f"/Resources << /Font << /F1 3 0 R >> >> /Contents {number + 1} 0 R >>",
            f"<< /Length {len(content)} >>\nstream\n{content}\nendstream",
        ]
    return _assembled(objects)


def locked_pdf_bytes(text: str, password: str) -> bytes:
    """Return a PDF of one page that asks for a password: by RC4 with 40 bits, which every reader knows."""
    padding = bytes.fromhex("28BF4E5E4E758A4164004E56FFFA01082E2E00B6D0683E802F0CA9FE6453697A")
    padded = (password.encode() + padding)[:32]
    owner = _rc4(hashlib.md5(padded).digest()[:5], padded)
    permissions = -4
    key = hashlib.md5(padded + owner + permissions.to_bytes(4, "little", signed=True) + b"id").digest()[:5]
    user = _rc4(key, padding)
    number_of_content = 5
    content_key = hashlib.md5(key + number_of_content.to_bytes(3, "little") + b"\0\0").digest()[:10]
    content = _rc4(content_key, f"BT /F1 8 Tf 10 80 Td ({text}) Tj ET".encode()).decode("latin-1")
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [4 0 R] /Count 1 >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 100] /Resources << /Font << /F1 3 0 R >> >> "
        f"/Contents {number_of_content} 0 R >>",
        f"<< /Length {len(content)} >>\nstream\n{content}\nendstream",
        f"<< /Filter /Standard /V 1 /R 2 /O <{owner.hex()}> /U <{user.hex()}> /P {permissions} >>",
    ]
    return _assembled(objects, f"/Encrypt 6 0 R /ID [<{b'id'.hex()}> <{b'id'.hex()}>]")


def _rc4(key: bytes, data: bytes) -> bytes:
    state, j = list(range(256)), 0
    for i in range(256):
        j = (j + state[i] + key[i % len(key)]) % 256
        state[i], state[j] = state[j], state[i]
    out, i, j = bytearray(), 0, 0
    for byte in data:
        i = (i + 1) % 256
        j = (j + state[i]) % 256
        state[i], state[j] = state[j], state[i]
        out.append(byte ^ state[(state[i] + state[j]) % 256])
    return bytes(out)


def _assembled(objects: Sequence[str], trailer: str = "") -> bytes:
    """Return numbered objects as a file, with the table of where each begins."""
    content, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(content))
        content += f"{number} 0 obj\n{body}\nendobj\n".encode("latin-1")
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    end = (
        f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
        f"trailer << /Size {len(objects) + 1} /Root 1 0 R {trailer} >>\nstartxref\n{len(content)}\n%%EOF\n"
    )
    return content + end.encode()
