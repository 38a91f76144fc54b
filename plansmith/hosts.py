"""Addresses that pages and tools of this machine listen on, and the names in requests that they answer to."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from urllib.parse import urlsplit

from plansmith.errors import BadInputError

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def answered_names(host: str) -> frozenset[str] | None:
    """Return the names that a server on an address answers to; None for an address that others reach, by any name.

    On an address of this machine alone it answers only to names of this machine: a page of another site that has
    pointed a name of its own to that address learns nothing.
    """
    return LOCAL_NAMES | {host} if is_local(host) else None


def is_local(host: str) -> bool:
    """Say whether only this machine reaches an address."""
    with contextlib.suppress(ValueError):
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    return False


def host_name(header: str) -> str:
    """Return the name in a Host header, without its port."""
    with contextlib.suppress(ValueError):
        return urlsplit(f"//{header}").hostname or ""
    return ""


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 is a free one.

    Raises:
        BadInputError: the address is taken, or none of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise cannot_listen(host, port, error) from error


def cannot_listen(host: str, port: int, error: Exception) -> BadInputError:
    """Return what a user is told whose address cannot be listened on."""
    return BadInputError(
        "cannot listen there", where=f"{host}:{port}", got=str(error), cure="take another --port; 0 is a free one"
    )


def address_of(bound: tuple[str, int]) -> str:
    """Return where a browser finds what listens there."""
    host, port = bound
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
