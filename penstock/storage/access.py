"""Access rules for URLs in the data.

URLs in the data may come from other people. They can name files on this machine (``file:///etc/passwd``) and servers
that only this machine reaches (``http://169.254.169.254/``). By default ``File`` and ``download`` read both, since most
columns hold paths of local files and of servers in a company's network. The settings ``allow_local_files=False`` and
``allow_private_urls=False`` forbid them, and ``download(allow=...)`` forbids them for one column. URLs inside values,
such as an ``image_url`` in a conversation, may name neither, unless ``allow_private_urls=True`` is set. Paths given to
readers are not checked.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from penstock.config import get_config
from penstock.errors import ForbiddenUrlError, InvalidArgumentError
from penstock.storage.urls import REMOTE, local_path, redacted, scheme_of

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
MAX_QUOTED = 3


@dataclass(frozen=True, slots=True)
class Access:
    """A rule for URLs. With ``prefixes`` only URLs below one of them are allowed, local ones included.

    ``max_bytes`` bounds the whole content of a file on a web server.
    """

    allow_local: bool = True
    allow_private: bool = True
    allow_http: bool = True
    max_bytes: int | None = None
    prefixes: tuple[str, ...] | None = None

    def check(self, path: str, action: str = "read") -> None:
        """Refuse a path or URL that the rule does not allow to be ``read``, or ``written``."""
        if self == ANYTHING:
            return
        local = local_path(path)
        if local is None and scheme_of(path) not in REMOTE:
            # fsspec opens it: local:// is a local file, ftp:// a server of any network.
            raise ForbiddenUrlError(
                f"{redacted(path)!r} may not be {action}: {scheme_of(path)}:// is forbidden under an access rule "
                "(allow_local_files=False, allow_private_urls=False, or allow=...); "
                f"only {', '.join(f'{scheme}://' for scheme in REMOTE)} are allowed."
            )
        if self.prefixes is not None:
            if not any(_is_below(path, local, prefix) for prefix in self.prefixes):
                raise ForbiddenUrlError(
                    f"{redacted(path)!r} may not be {action}: only URLs below {', '.join(self.prefixes)} are allowed "
                    "(download(allow=...))."
                )
        elif not self.allow_http and scheme_of(path) == "http":
            raise ForbiddenUrlError(
                f"{redacted(path)!r} may not be {action}: URLs inside conversations must be https:, of a store, or "
                "data:. For servers that you trust, ps.set_config(allow_private_urls=True) allows plain http too."
            )
        elif local is not None and not self.allow_local:
            raise ForbiddenUrlError(
                f"{path!r} is a local file, which may not be {action} here "
                "(allow_local_files=False, or allow='public')."
            )

    def check_address(self, address: str, url: str) -> None:
        """Refuse a private address, unless the rule allows it."""
        if not self.allow_private and is_private(address):
            raise ForbiddenUrlError(
                f"{redacted(url)!r} has the private address {address}, which is forbidden here: by "
                "allow_private_urls=False, by allow='public', or because it is in a conversation, where only "
                "ps.set_config(allow_private_urls=True) allows it."
            )


ANYTHING = Access()


def configured_access() -> Access:
    """Return the rule of the settings."""
    config = get_config()
    return Access(config.allow_local_files, config.allow_private_urls is not False)


def access_inside_values(max_bytes: int) -> Access:
    """Return the rule for URLs inside values, which the author of the data chose, not the author of the query."""
    is_trusted = get_config().allow_private_urls is True
    return Access(allow_local=False, allow_private=is_trusted, allow_http=is_trusted, max_bytes=max_bytes)


def access_from(allow: Any) -> Access:
    """Return the rule for ``allow``: ``any``, ``public``, or allowed prefixes; None applies the settings."""
    if allow is None:
        return configured_access()
    if allow == "any":
        return ANYTHING
    if allow == "public":
        return Access(allow_local=False, allow_private=False)
    prefixes = [allow] if isinstance(allow, str) else list(allow) if isinstance(allow, Iterable) else []
    if not prefixes or not all(isinstance(prefix, str) and ("/" in prefix) for prefix in prefixes):
        raise InvalidArgumentError(
            f"allow={allow!r} is not known; use 'any', 'public', or a list of prefixes such as "
            "['s3://bucket/', 'https://images.example.com/']."
        )
    odd = [prefix for prefix in prefixes if local_path(prefix) is None and scheme_of(prefix) not in REMOTE]
    if odd:
        raise InvalidArgumentError(
            f"allow={odd[0]!r} is not a valid prefix: use a local path, or one of "
            f"{', '.join(f'{scheme}://' for scheme in REMOTE)}."
        )
    return Access(prefixes=tuple(prefixes))


def is_private(address: str) -> bool:
    """Return whether an IP address is not on the public internet.

    >>> [is_private(ip) for ip in ("127.0.0.1", "10.1.2.3", "169.254.169.254", "::ffff:127.0.0.1", "8.8.8.8")]
    [True, True, True, True, False]
    """
    ip: IpAddress = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if inner is None and ip in ipaddress.ip_network("64:ff9b::/96"):
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return is_private(str(inner))
    return not ip.is_global or ip.is_multicast


def _is_below(path: str, local: str | None, prefix: str) -> bool:
    """Return whether a path lies below a prefix; ``https://a.com`` is not a prefix of ``https://a.com.evil.org``."""
    base = local_path(prefix)
    if (base is None) != (local is None):
        return False
    if base is not None and local is not None:
        real, root = os.path.realpath(local), os.path.realpath(base)
        return real == root or real.startswith(root.rstrip("/") + "/")
    if _leads_up(path):
        return False
    scheme, _, rest = prefix.partition("://")
    found_scheme, _, found = path.partition("://")
    if scheme.lower() != found_scheme.lower():
        return False
    return found == rest or (found.startswith(rest) and (rest == "" or rest.endswith("/") or found[len(rest)] in "/?#"))


def _leads_up(url: str) -> bool:
    r"""Return whether a server may resolve a URL to a folder above, in any encoding of dots and slashes.

    >>> [_leads_up(f"https://a.com/{path}") for path in ("a/b..c", "a/../b", "a/..%2fb", "a/.%252e/b", "a\\..\\b")]
    [False, True, True, True, True]
    """
    path = url.split("?")[0].split("#")[0]
    for _ in range(MAX_QUOTED):  # proxies and the servers behind them may each unquote it
        path = unquote(path)
    return ".." in path.replace("\\", "/").split("/")
