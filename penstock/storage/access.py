"""What a URL that came with the data may reach.

A column of URLs that others filled in can name files of this machine (``file:///etc/passwd``) and servers that only
this machine sees (``http://169.254.169.254/``). By default both are allowed, since paths of local files and of servers
inside a company's network are what most columns hold. The settings ``allow_local_files=False`` and
``allow_private_urls=False`` forbid them for ``File`` and ``download``, ``download(allow=...)`` for one column. Paths
given to readers are the user's own and are not checked.
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
    """A rule for URLs. With ``prefixes`` only what lies below one of them is allowed, wherever that is."""

    allow_local: bool = True
    allow_private: bool = True
    prefixes: tuple[str, ...] | None = None

    def check(self, path: str, done: str = "read") -> None:
        """Refuse a path or URL that may not be read, or ``written``."""
        if self == ANYTHING:
            return
        local = local_path(path)
        if local is None and scheme_of(path) not in REMOTE:
            # Whatever fsspec makes of it: local:// is a local file, ftp:// a server of any network.
            raise ForbiddenUrlError(
                f"{redacted(path)!r} may not be {done}: {scheme_of(path)}:// is forbidden where URLs have a rule "
                "(allow_local_files=False, allow_private_urls=False, or allow=...); "
                f"only {', '.join(f'{scheme}://' for scheme in REMOTE)} can be held to it."
            )
        if self.prefixes is not None:
            if not any(_is_below(path, local, prefix) for prefix in self.prefixes):
                raise ForbiddenUrlError(
                    f"{redacted(path)!r} may not be {done}: only what lies below {', '.join(self.prefixes)} is allowed "
                    "(download(allow=...))."
                )
        elif local is not None and not self.allow_local:
            raise ForbiddenUrlError(
                f"{path!r} is a local file, and those may not be {done} here: they are forbidden "
                "(allow_local_files=False, or allow='public')."
            )

    def check_address(self, address: str, url: str) -> None:
        """Refuse to connect to an address that is not of the public internet, unless that is allowed."""
        if not self.allow_private and is_private(address):
            raise ForbiddenUrlError(
                f"{redacted(url)!r} leads to the private address {address}, and those are forbidden here "
                "(allow_private_urls=False, or allow='public')."
            )


ANYTHING = Access()


def configured_access() -> Access:
    """Return the rule that the settings make."""
    config = get_config()
    return Access(config.allow_local_files, config.allow_private_urls)


def access_from(allow: Any) -> Access:
    """Return the rule for ``allow``: None is the settings', ``any``, ``public``, or the prefixes that are allowed."""
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
            f"allow={odd[0]!r} cannot be held to: prefixes are local paths, or begin with one of "
            f"{', '.join(f'{scheme}://' for scheme in REMOTE)}."
        )
    return Access(prefixes=tuple(prefixes))


def is_private(address: str) -> bool:
    """Return whether an IP address is anything but one of the public internet.

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
    """Return whether a path lies below a prefix; ``https://a.com`` is no prefix of ``https://a.com.evil.org``."""
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
    r"""Return whether a server may take a URL for one above it, however the dots and slashes are written.

    >>> [_leads_up(f"https://a.com/{path}") for path in ("a/b..c", "a/../b", "a/..%2fb", "a/.%252e/b", "a\\..\\b")]
    [False, True, True, True, True]
    """
    path = url.split("?")[0].split("#")[0]
    for _ in range(MAX_QUOTED):  # some servers and those behind them unquote it again
        path = unquote(path)
    return ".." in path.replace("\\", "/").split("/")
