"""Two ranks of a trainer, each in a process of its own, for tests that compare them with one."""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import queue
from collections.abc import Callable
from typing import Any

from processes import free_port


def on_two_ranks(work: Callable[..., Any], *arguments: Any) -> tuple[Any, Any]:
    """Return what each rank makes of ``work(rank, port, *arguments)``, a function of a module."""
    port = free_port()
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["deepspeed", "peft", "transformers.models.llama.modeling_llama"])  # once for both
    results = processes.Queue()
    ranks = [processes.Process(target=_as_rank, args=(work, rank, port, arguments, results)) for rank in (0, 1)]
    for process in ranks:
        process.start()
    received: dict[int, bytes] = {}
    while len(received) < len(ranks):
        with contextlib.suppress(queue.Empty):
            received |= [results.get(timeout=1.0)]
        assert {process.exitcode for process in ranks} <= {None, 0}, "a rank died; its own words are above"
    for process in ranks:
        process.join()
    return pickle.loads(received[0]), pickle.loads(received[1])


def _as_rank(work: Callable[..., Any], rank: int, port: int, arguments: tuple[Any, ...], results: Any) -> None:
    """Do the work of a rank and send what came of it; runs in a process of its own."""
    results.put((rank, pickle.dumps(work(rank, port, *arguments))))
