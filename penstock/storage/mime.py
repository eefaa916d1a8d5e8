"""The MIME type of a file, by its first bytes."""

from __future__ import annotations

import re

SNIFF_NBYTES = 512
"""The number of bytes that ``sniff`` inspects."""

UNKNOWN = "application/octet-stream"

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"BM", "image/bmp"),
    *((start, "image/tiff") for start in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")),
    (b"%PDF-", "application/pdf"),
    (b"PK\3\4", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
    (b"PAR1", "application/vnd.apache.parquet"),
    (b"ARROW1", "application/vnd.apache.arrow.file"),
    (b"\x93NUMPY", "application/x-npy"),
    (b"ID3", "audio/mpeg"),
    *((bytes([0xFF, second]), "audio/mpeg") for second in (0xFB, 0xF3, 0xF2, 0xFA)),
    *((bytes([0xFF, second]), "audio/aac") for second in (0xF1, 0xF9)),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo"}
_BRANDS = {
    b"M4A": "audio/mp4",
    b"qt": "video/quicktime",
    b"3gp": "video/3gpp",
    b"avi": "image/avif",
    b"hei": "image/heic",
    b"mif1": "image/heif",
}
_HTML = re.compile(rb"\s*(<!--.*?-->\s*)*<(!doctype html|html|head|body|title)\b", re.I | re.S)
_XML = re.compile(rb"\s*<\?xml\b", re.I)
_SVG = re.compile(rb"<svg\b", re.I)


def sniff(data: bytes) -> str | None:
    """Return the MIME type of content that begins with ``data``; None if the first bytes match no type.

    >>> sniff(b"%PDF-1.7"), sniff(b"RIFF\\x24\\0\\0\\0WAVEfmt "), sniff(b"some text")
    ('application/pdf', 'audio/wav', None)
    """
    head = bytes(data[:SNIFF_NBYTES])
    if head[4:8] == b"ftyp":
        return next((kind for brand, kind in _BRANDS.items() if head[8:12].startswith(brand)), "video/mp4")
    if head.startswith(b"RIFF"):
        return _RIFF.get(head[8:12])
    if head.startswith(b"\x1aE\xdf\xa3"):
        return "video/webm" if b"webm" in head else "video/x-matroska"
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    if head[257:262] == b"ustar":
        return "application/x-tar"
    text = head.removeprefix(b"\xef\xbb\xbf")
    if _HTML.match(text):
        return "text/html"
    if _SVG.search(text) and text.lstrip().startswith(b"<"):
        return "image/svg+xml"
    return "application/xml" if _XML.match(text) else None
