"""Processes of a session, for tests that kill a run and look at what is left; and a port for one of them."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path

RAY_AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
"""Two idle processes of Ray that look for the dead head for a minute before they end."""


def processes_of(session: int, *, besides: Sequence[str] = ()) -> dict[int, str]:
    """Return the living processes of a session with their command lines."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, session_id = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            line = (folder / "cmdline").read_text().replace("\0", " ").strip()
        except OSError:  # gone in the meantime
            continue
        if int(session_id) == session and state != "Z" and not line.startswith(tuple(besides)):
            found[int(folder.name)] = line
    return found


def survivors(session: int, *, besides: Sequence[str] = ()) -> list[str]:
    """Return what does not end by itself, after ending it."""
    for _ in range(6000):
        if not processes_of(session, besides=besides):
            return []
        time.sleep(0.1)
    left = processes_of(session, besides=besides)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return sorted(left.values())


def free_port() -> int:
    """Return a port that nobody has, from a range that neither Ray nor the kernel gives away unasked."""
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
