"""Addresses of servers: check them, join paths, hide secrets in them, and find proxies."""

from __future__ import annotations

import urllib.request
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from penstock.errors import InvalidArgumentError, UnreachableError
from penstock.storage.secret import Secret, hidden, sealed, unsealed

PUBLIC_PARAMETERS = ("api-version", "api_version", "version")
"""Parameters in the query of an address that are never keys."""


def checked_address(url: Any, what: str = "base_url") -> str:
    """Check the address of a server and seal its query, which may hold a key. Refuse a password, and never print it.

    >>> checked_address("http://localhost:8000/v1?api-version=1")
    'http://localhost:8000/v1?api-version=1'
    """
    if not isinstance(url, str):
        raise InvalidArgumentError(f"{what} must be a text such as 'https://host/v1'; got {type(url).__name__}.")
    address: str = url.strip()
    if not address:
        raise InvalidArgumentError(f"{what} is empty. Leave it out for the default address, or give 'http://host/v1'.")
    before_query = address.partition("?")[0]
    if "@" in (before_query.partition("//")[2].partition("/")[0] if "//" in address else before_query):
        raise InvalidArgumentError(
            f"{what} has a user name or a password before '@', and addresses appear in errors and logs. Pass a key as "
            "api_key=, other credentials as headers=."
        )
    try:
        parts = urlsplit(address)
        is_complete = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_complete = False
    if not is_complete or not address.isprintable() or " " in address:
        raise InvalidArgumentError(
            f"{what}={hidden(before_query)!r} must start with http:// or https:// and a host, as in "
            "'http://localhost:8000/v1'."
        )
    return address if not parts.query else parts._replace(query=_sealed_query(parts.query)).geturl()


def _sealed_query(query: str) -> str:
    """Seal all values of a query except the version of the API, because a key may have any name."""
    parts = []
    for pair in query.split("&"):
        name, equals, value = pair.partition("=")
        if value and name not in PUBLIC_PARAMETERS:
            Secret(unquote(value))  # hide this form as well, because a server may quote it
            value = sealed(value)
        parts.append(name + equals + value)
    return "&".join(parts)


def without_end(url: str, end: str) -> str:
    """Return an address without the end of its path, with which the paths of calls begin.

    >>> without_end("https://host/v1/?a=1", "/v1")
    'https://host?a=1'
    """
    parts = urlsplit(url)
    return parts._replace(path=parts.path.rstrip("/").removesuffix(end)).geturl()


def joined(url: str, path: str) -> str:
    """Return the URL of a call: an address with a path added. Its query is part of every call.

    >>> joined("https://host/v1/?api-version=1", "/responses")
    'https://host/v1/responses?api-version=1'
    """
    parts = urlsplit(unsealed(url))
    return parts._replace(path=parts.path.rstrip("/") + path if path else parts.path).geturl()


def shown(url: str, base: str = "") -> str:
    """Return an address, relative to ``base``, for messages: without user, password and query.

    >>> shown("/v2?key=abc", "http://joe:pw@host/v1"), shown("http://joe:pw@host:81/x")
    ('http://host/v2', 'http://host:81/x')
    """
    try:
        parts = urlsplit(urljoin(base, url) if base else url)
    except ValueError:
        return "an address that cannot be read"
    return hidden(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl())


def proxy_for(url: str) -> str | None:
    """Return the proxy for an address from the environment: HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY.

    It may hold a password.
    """
    parts = urlsplit(url)
    proxies = urllib.request.getproxies()
    found = proxies.get(parts.scheme) or proxies.get("all")
    if not found or urllib.request.proxy_bypass(parts.netloc):
        return None
    proxy = found if "://" in found else f"http://{found}"
    if urlsplit(proxy).scheme not in ("http", "https") or not urlsplit(proxy).hostname:
        raise UnreachableError(
            f"The environment names the proxy {shown(found)} for {shown(url)}; only http:// and https:// proxies are "
            f"supported. Set {parts.scheme.upper()}_PROXY to one, or NO_PROXY={parts.hostname} to connect directly."
        )
    return proxy
