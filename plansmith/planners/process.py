"""A warm worker process that is spoken to in JSON lines: start, ask, restart, stop; what it does is not known here.

A worker says one line when it is ready, answers every request with one line, and ends when its input closes.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from plansmith.errors import PlannerCrashError, PlansmithError

START_LIMIT_S = 60.0
STOP_LIMIT_S = 5.0
ATTEMPTS = 2


class WorkerProcess:
    """The life of one worker: a program beside this file, replaced when it dies.

    `ask` is for one thread at a time; `hang_up` may be called from another while it waits.
    """

    def __init__(self, program: str, *arguments: str, cure: str) -> None:
        """Name the worker, without starting it.

        Args:
            program: the name of a file beside this one.
            arguments: of the program.
            cure: what to do about a worker that does not start.
        """
        # -P: the script's own folder holds modules named like installed packages and must not be searched.
        self._command = [sys.executable, "-P", str(Path(__file__).with_name(program)), *arguments]
        self._cure = cure
        self._process: subprocess.Popen[bytes] | None = None
        self._is_hung_up = False

    @property
    def pid(self) -> int | None:
        """Return the process id; None while there is no process."""
        return self._process.pid if self._process else None

    def start(self) -> dict[str, Any]:
        """Start the process and return its first line.

        Raises:
            PlansmithError: it ends, or says nothing, instead of getting ready.
        """
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "PYTHONHASHSEED": "0"},  # planners iterate over sets: same problem, same plan
        )
        if greeting := self._read_line(START_LIMIT_S):
            return dict(json.loads(greeting))
        self.kill()
        raise PlansmithError(
            "the planner's worker did not start; its own message is on standard error",
            where=" ".join(self._command),
            cure=self._cure,
        )

    def ask(self, request: dict[str, Any], *, limit_s: float) -> dict[str, Any]:
        """Return the worker's answer; a worker that has died is replaced and asked once more.

        Raises:
            PlannerCrashError: it died or said nothing for `limit_s`, twice; or `hang_up` was called.
        """
        for _ in range(ATTEMPTS):
            if self._process is None and not self._is_hung_up:
                self.start()
            if self._is_hung_up:
                raise PlannerCrashError("the planner was closed")
            if answer := self._ask_once(request, limit_s):
                return answer
            self.kill()
        raise PlannerCrashError("the planner's worker died or fell silent", got=f"{ATTEMPTS} failures on one problem")

    def _ask_once(self, request: dict[str, Any], limit_s: float) -> dict[str, Any] | None:
        assert self._process
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):  # a dead worker, or an input that `hang_up` has closed
            return None
        line = self._read_line(limit_s)
        return dict(json.loads(line)) if line else None

    def _read_line(self, limit_s: float) -> bytes:
        """Return one line; nothing if the worker has died or does not answer in time."""
        assert self._process
        assert self._process.stdout
        poll = select.poll()  # select.select refuses the high descriptors of a busy Ray process
        poll.register(self._process.stdout, select.POLLIN)
        return self._process.stdout.readline() if poll.poll(limit_s * 1000) else b""

    def hang_up(self) -> None:
        """Close the worker's input for good, which ends the worker and a call that waits for its answer."""
        self._is_hung_up = True
        if (process := self._process) and process.stdin:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()

    def stop(self) -> None:
        """Let the worker end by itself; kill it where it does not."""
        self.hang_up()
        if self._process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=STOP_LIMIT_S)
        self.kill()

    def kill(self) -> None:
        """Kill the worker's process group; what a worker runs must die with it."""
        if self._process is None:
            return
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdout, self._process.stdin):
            assert pipe
            with contextlib.suppress(BrokenPipeError):  # an unsent request to a dead worker
                pipe.close()
        self._process = None
