"""Parse paths and URLs, and show them without secrets."""

from __future__ import annotations

import os
import re

KINDS = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "azure": "az", "abfs": "az", "abfss": "az"}
"""The kind of object store for each scheme."""

WEB = ("http", "https")
REMOTE = (*WEB, *KINDS, "hf")
"""The remote schemes whose clients obey access rules."""

KNOWN_PLACES = "local paths, file://, http://, https://, s3://, gs://, az:// and hf://"

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.\-]+)://")
_SECRET_NAMES = "sig|token|secret|key|pass|credential|auth|cookie"
_SECRET_NAME = re.compile(f"(?i){_SECRET_NAMES}")
_SECRET = re.compile(rf"(?i)(?<=[?&;])([^=&#;]*(?:{_SECRET_NAMES})[^=&#;]*=)[^&#]*")
_USERINFO = re.compile(r"\b(?!abfss?:)([A-Za-z][A-Za-z0-9+.\-]*://)[^/?#\s]*@")  # Azure has the container there


def scheme_of(path: str) -> str:
    """Return the scheme of a URL in lower case; ``file`` for a path.

    >>> scheme_of("S3://bucket/key"), scheme_of("/tmp/a"), scheme_of("a.txt")
    ('s3', 'file', 'file')
    """
    found = _SCHEME.match(path)
    return found[1].lower() if found else "file"


def local_path(path: str) -> str | None:
    """Return the path on this machine that ``path`` or a ``file://`` URL names; None for any other URL.

    >>> local_path("file:///tmp/a%20b"), local_path("s3://bucket/key")
    ('/tmp/a b', None)
    """
    if scheme_of(path) != "file":
        return None
    if _SCHEME.match(path) is None:
        return os.path.expanduser(path)
    from urllib.parse import unquote

    rest = path[len("file://") :]
    host, slash, tail = rest.partition("/")
    # file://localhost/x is the standard; people also write file://x/y and file://~/y for a path.
    return unquote(slash + tail) if host == "localhost" else os.path.expanduser(unquote(rest))


def is_secret_name(name: str) -> bool:
    """Return whether a header, or a parameter of a URL, holds a secret by its name.

    >>> [is_secret_name(name) for name in ("X-Auth", "X-Amz-Signature", "Session-Token", "X-Team", "Accept")]
    [True, True, True, False, False]
    """
    return _SECRET_NAME.search(name) is not None


MAX_SHORT_PATH = 32  # characters


def short_path(path: str, *, is_folder: bool = False) -> str:
    """Return the last part of a path or URL, without secrets; the name of a folder ends with a slash.

    >>> short_path("/data/reviews.parquet"), short_path("https://me:pw@host/a.csv?sig=1")
    ('reviews.parquet', 'a.csv')
    >>> short_path("s3://bucket/out", is_folder=True)
    'out/'
    >>> short_path("20261118T152250-ed80f43e-fdd70fc4-00000.parquet")
    '20261118T152250-ed8…0000.parquet'
    """
    scheme = scheme_of(path)
    if scheme != "file":  # other stores may have a "?" in a name; what follows a "=" may be a secret
        path = re.split(r"[?#]" if scheme in WEB else r"[?#](?=.*=)", redacted(path))[0]
    name = path.rstrip("/").rpartition("/")[2] or path
    if len(name) > MAX_SHORT_PATH:
        name = f"{name[:19]}…{name[19 + 1 - MAX_SHORT_PATH :]}"
    return f"{name.rstrip('/')}/" if is_folder else name


def redacted(text: str) -> str:
    """Return text without the secrets of URLs in it: user names and passwords, signatures and tokens.

    >>> redacted("GET https://me:pw@host/a?X-Amz-Signature=abc&part=1 failed")
    'GET https://***@host/a?X-Amz-Signature=***&part=1 failed'
    """
    if "://" not in text:
        return text
    return _SECRET.sub(r"\1***", _USERINFO.sub(r"\1***@", text))
