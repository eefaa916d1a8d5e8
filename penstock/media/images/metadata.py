"""The header of an image file, read without decoding its pixels."""

from __future__ import annotations

from typing import Any

from penstock.media.images.packages import pillow, require_images
from penstock.media.sources import CONFIGURED_ACCESS, SourceAccess, open_source
from penstock.types import DataType

METADATA = DataType.struct({"width": "uint32", "height": "uint32", "format": "string", "mode": "string"})


def metadata(source: Any, access: SourceAccess = CONFIGURED_ACCESS) -> dict[str, Any] | None:
    """Return the header of an image without decoding it."""
    if source is None:
        return None
    require_images("image_file_metadata")
    with open_source(source, access) as stream, pillow().open(stream) as image:
        return {"width": image.width, "height": image.height, "format": image.format, "mode": image.mode}
