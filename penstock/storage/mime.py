"""The MIME type of a file, by its first bytes."""

from __future__ import annotations

import re

SNIFF_NBYTES = 512
"""The number of bytes that ``sniff`` inspects."""

UNKNOWN = "application/octet-stream"

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"\0\0\1\0", "image/x-icon"),
    (b"8BPS", "image/vnd.adobe.photoshop"),
    (b"%PDF-", "application/pdf"),
    (b"PK\3\4", "application/zip"),
    (b"PK\5\6", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"BZh", "application/x-bzip2"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
    (b"\xfd7zXZ\0", "application/x-xz"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"PAR1", "application/vnd.apache.parquet"),
    (b"ARROW1", "application/vnd.apache.arrow.file"),
    (b"\x89HDF\r\n\x1a\n", "application/vnd.hdfgroup.hdf5"),
    (b"SQLite format 3\0", "application/vnd.sqlite3"),
    (b"\x93NUMPY", "application/x-npy"),
    (b"ID3", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"#!AMR", "audio/amr"),
    (b"MThd", "audio/midi"),
    (b"FLV\1", "video/x-flv"),
    (b"\0\0\1\xba", "video/mpeg"),
    (b"\0\0\1\xb3", "video/mpeg"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo"}
_FORM = {b"AIFF": "audio/aiff", b"AIFC": "audio/aiff"}
_BRANDS = {
    b"M4A": "audio/mp4",
    b"M4B": "audio/mp4",
    b"qt": "video/quicktime",
    b"avif": "image/avif",
    b"avis": "image/avif",
    b"heic": "image/heic",
    b"heix": "image/heic",
    b"mif1": "image/heif",
    b"3gp": "video/3gpp",
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
    if head.startswith(b"FORM"):
        return _FORM.get(head[8:12])
    if head.startswith(b"\x1aE\xdf\xa3"):
        return "video/webm" if b"webm" in head else "video/x-matroska"
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    if head[257:262] == b"ustar":
        return "application/x-tar"
    if len(head) > 1 and head[0] == 0xFF and head[1] in (0xFB, 0xF3, 0xF2, 0xFA):
        return "audio/mpeg"
    if len(head) > 1 and head[0] == 0xFF and head[1] in (0xF1, 0xF9):
        return "audio/aac"
    text = head.removeprefix(b"\xef\xbb\xbf")
    if _HTML.match(text):
        return "text/html"
    if _SVG.search(text) and text.lstrip().startswith(b"<"):
        return "image/svg+xml"
    return "application/xml" if _XML.match(text) else None
