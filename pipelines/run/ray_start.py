"""Starting a Ray of one's own on a machine that may be busy with other things. Not here: joining a running one."""

from __future__ import annotations

import logging
import os
import traceback
from typing import Any

from plansmith.errors import PlansmithError

logger = logging.getLogger(__name__)

START_WAIT_S = 90
"""How long a start may take; three times what Ray gives itself. Its core reads this once in a process, at the first
start, so a second start cannot be given more than the first."""

WAITS = ("RAY_raylet_start_wait_time_s", "RAY_gcs_server_port_wait_time_s")
"""Where Ray 2.60 reads how long it waits for its two processes; what the user has set stays."""

SIGNS_OF_A_SLOW_START = ("timed out", "Failed to start GCS")
"""What Ray says, in errors of no type of its own, when one of its processes was not there in time."""


def start_ray(ray: Any, **options: Any) -> None:
    """Start a Ray on this machine; if its processes are not up in time, end them and start once more.

    Args:
        ray: the module.
        options: what `ray.init` takes besides the address.

    Raises:
        PlansmithError: the second start was too slow as well.
    """
    for variable in WAITS:
        os.environ.setdefault(variable, str(START_WAIT_S))
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    slow = _slow_start(ray, options)
    if slow is not None:
        logger.warning("Ray did not start in time on this busy machine; starting it once more")
        slow = _slow_start(ray, options)
    if slow is not None:
        raise PlansmithError("Ray did not start, twice", where="this machine", got=slow,
                             expected=f"its processes up within {os.environ[WAITS[0]]} s",
                             cure="give the same command again when less runs here; the log is under "
                                  "/tmp/ray/session_latest/logs")  # fmt: skip


def _slow_start(ray: Any, options: dict[str, Any]) -> str | None:
    """Start Ray; return None, or what it says if that took too long. Any other error is raised."""
    try:
        ray.init(address="local", **options)
    except Exception as error:
        said = str(error)
        if not any(sign in said for sign in SIGNS_OF_A_SLOW_START):
            raise
        _end_half_started(error)
        return said.strip().splitlines()[0]
    return None


def _end_half_started(error: BaseException) -> None:
    """End the processes of a start that failed: Ray forgets them, and they would compete with those of the next."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        node: Any = frame.f_locals.get("self")
        if hasattr(node, "kill_all_processes"):
            node.kill_all_processes(check_alive=False, allow_graceful=False)
