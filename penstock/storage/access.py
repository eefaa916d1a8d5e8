"""Access rules for URLs in the data.

URLs in the data may come from other people. They can name files on this machine (``file:///etc/passwd``) and servers
that only this machine reaches (``http://169.254.169.254/``). By default ``File`` and ``download`` read both, since most
columns hold paths of local files and of servers in a company's network. The settings ``allow_local_files=False`` and
``allow_private_urls=False`` forbid them, and ``download(allow="public")`` forbids them for one column. URLs inside
values, such as an ``image_url`` in a conversation, may name neither, unless ``allow_private_urls=True`` is set. Paths
given to readers are not checked.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Any

from penstock.config import get_config
from penstock.errors import ForbiddenUrlError, InvalidArgumentError
from penstock.storage.urls import REMOTE, local_path, redacted, scheme_of

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Access:
    """A rule for URLs. ``max_bytes`` bounds the whole content of a file on a web server."""

    allow_local: bool = True
    allow_private: bool = True
    allow_http: bool = True
    max_bytes: int | None = None

    def check(self, path: str, action: str = "read") -> None:
        """Refuse a path or URL that the rule does not allow to be ``read``, or ``written``."""
        if self == ANYTHING:
            return
        local = local_path(path)
        if local is None and scheme_of(path) not in REMOTE:
            # fsspec opens it: local:// is a local file, ftp:// a server of any network.
            raise ForbiddenUrlError(
                f"{redacted(path)!r} may not be {action}: {scheme_of(path)}:// is forbidden under an access rule "
                "(allow_local_files=False, allow_private_urls=False, or allow='public'); "
                f"only {', '.join(f'{scheme}://' for scheme in REMOTE)} are allowed."
            )
        if not self.allow_http and scheme_of(path) == "http":
            raise ForbiddenUrlError(
                f"{redacted(path)!r} may not be {action}: URLs inside conversations must be https:, of a store, or "
                "data:. For servers that you trust, ps.set_config(allow_private_urls=True) allows plain http too."
            )
        if local is not None and not self.allow_local:
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
    """Return the rule for ``allow``, which is ``any`` or ``public``; None applies the settings."""
    if allow is None:
        return configured_access()
    if allow == "any":
        return ANYTHING
    if allow == "public":
        return Access(allow_local=False, allow_private=False)
    raise InvalidArgumentError(
        f"allow={allow!r} is not known; use 'any' or 'public'. To read only from some places, keep their rows first, "
        "as in where(ps.col('url').startswith('https://images.example.com/'))."
    )


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
