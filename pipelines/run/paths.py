"""Where presets and runs are; light, so that a command that trains nothing need not import what training needs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

PRESETS = Path(__file__).resolve().parents[1] / "presets"
RUNS_VARIABLE = "PLANSMITH_RUNS"
JOB_VARIABLE = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Set by Ray in the process of a submitted job."""


def default_runs(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of all runs where none is named; in a job of Ray one that outlives the job."""
    if RUNS_VARIABLE in environment:
        return Path(environment[RUNS_VARIABLE])
    return Path.home() / "plansmith-runs" if JOB_VARIABLE in environment else Path("runs")
