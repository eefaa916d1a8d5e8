"""Where servers are: addresses checked before anything is sent and shown without secrets, and the proxy on the way."""

from __future__ import annotations

import base64
import urllib.request
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from penstock.errors import InvalidArgumentError, UnreachableError
from penstock.storage.secret import hidden


def checked_address(url: Any, what: str = "base_url") -> str:
    """Return an address of a server, or say what is wrong with it. A password in it is refused and never printed.

    >>> checked_address("http://localhost:8000/v1")
    'http://localhost:8000/v1'
    """
    if not isinstance(url, str):
        raise InvalidArgumentError(f"{what} is a text such as 'https://host/v1'; got {type(url).__name__}.")
    address: str = url.strip()
    before_query = address.partition("?")[0]
    if "@" in (before_query.partition("//")[2].partition("/")[0] if "//" in address else before_query):
        raise InvalidArgumentError(
            f"{what} has a user name or a password before '@'. Addresses are shown in errors and logs: give a key by "
            "api_key=, other credentials by headers=."
        )
    try:
        parts = urlsplit(address)
        is_complete = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_complete = False
    if not is_complete or not address.isprintable() or " " in address:
        raise InvalidArgumentError(
            f"{what}={hidden(before_query)!r} does not begin with http:// or https:// and a host, as "
            "'http://localhost:8000/v1' does."
        )
    return address


def without_end(url: str, end: str) -> str:
    """Return an address without an end of its path, which the paths of calls begin with.

    >>> without_end("https://host/v1/?a=1", "/v1")
    'https://host?a=1'
    """
    parts = urlsplit(url)
    return parts._replace(path=parts.path.rstrip("/").removesuffix(end)).geturl()


def joined(url: str, path: str) -> str:
    """Return the address of a path below another; a query, such as Azure's version of the API, goes with every call.

    >>> joined("https://host/v1/?api-version=1", "/responses")
    'https://host/v1/responses?api-version=1'
    """
    parts = urlsplit(url)
    return parts._replace(path=parts.path.rstrip("/") + path).geturl() if path else url


def shown(url: str, base: str = "") -> str:
    """Return an address, seen from ``base``, as it may be printed: without user, password and query.

    >>> shown("/v2?key=abc", "http://joe:pw@host/v1"), shown("http://joe:pw@host:81/x")
    ('http://host/v2', 'http://host:81/x')
    """
    try:
        parts = urlsplit(urljoin(base, url) if base else url)
    except ValueError:
        return "an address that cannot be read"
    return hidden(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl())


@dataclass(frozen=True)
class Proxy:
    """A proxy; ``authorization`` is the header that says who we are to it."""

    url: str
    authorization: str | None = field(default=None, repr=False)


def proxy_for(url: str) -> Proxy | None:
    """Return the proxy that the environment names for an address: HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, not NO_PROXY."""
    parts = urlsplit(url)
    proxies = urllib.request.getproxies()
    found = proxies.get(parts.scheme) or proxies.get("all")
    if not found or urllib.request.proxy_bypass(parts.netloc):
        return None
    proxy = urlsplit(found if "://" in found else f"http://{found}")
    if proxy.scheme not in ("http", "https") or not proxy.hostname:
        raise UnreachableError(
            f"The environment names the proxy {shown(found)} for {shown(url)}; only http:// and https:// proxies are "
            f"taken. Set {parts.scheme.upper()}_PROXY to one, or NO_PROXY={parts.hostname} to go without."
        )
    address = proxy._replace(netloc=proxy.netloc.rpartition("@")[2]).geturl()
    if proxy.username is None:
        return Proxy(address)
    user = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return Proxy(address, f"Basic {base64.b64encode(user.encode()).decode()}")
