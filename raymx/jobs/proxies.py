"""A cluster's own addresses and the proxies of the environment: requests to a dashboard go past them.

A proxy of a company's network cannot reach 127.0.0.1 of another machine, nor most addresses of a private network.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

_VARIABLES = ("no_proxy", "NO_PROXY")


def go_past(url: str) -> None:
    """Have this process, and those that it starts, reach the host of a URL with no proxy, where it is a near one."""
    host = urlsplit(url).hostname or ""
    if is_near(host):
        os.environ.update(with_exception(host, os.environ))


def with_exception(host: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that name the hosts without a proxy, with one more. Pure."""
    known = next((environment[name] for name in _VARIABLES if environment.get(name)), "")
    hosts = [one.strip() for one in known.split(",") if one.strip()]
    return dict.fromkeys(_VARIABLES, ",".join(hosts if host in hosts else [*hosts, host]))


def is_near(host: str) -> bool:
    """Whether a host is this machine or one of a private network: by its address, or by a name without a domain."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return bool(host) and "." not in host
    return address.is_private or address.is_loopback or address.is_link_local


def proxy_of(url: str) -> str:
    """``http_proxy=http://proxy:3128`` when requests to this URL go there; "" when they go past it."""
    parts = urlsplit(url)
    proxy = getproxies_environment().get(parts.scheme) or getproxies_environment().get("all")
    if not proxy or proxy_bypass(parts.netloc):
        return ""
    names = (f"{parts.scheme}_proxy", f"{parts.scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY")
    name = next((name for name in names if os.environ.get(name) == proxy), names[0])
    at = urlsplit(proxy)
    return f"{name}={proxy.replace(f'{at.username}:{at.password}@', '')}" if at.password else f"{name}={proxy}"
