"""The tool `nl2plan`: the command of that name in a process of its own, in a folder that is gone afterwards.

Who answers is the server's choice and not the agent's: `plansmith mcp --policy`. Calls to it are bounded as time is.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from plansmith.config.tools import ToolSettings
from plansmith.errors import BadInputError, PlansmithError
from plansmith.tools.bounded import OutOfBoundsError

Row = dict[str, Any]

MOST_SAID = 2000
"""Characters, the last, of what a command that failed has said."""


def modelled(settings: ToolSettings, text: str) -> Row:
    """Return the domain and the problem that a model has written of a text, with a plan in them, or why there is none.

    Raises:
        BadInputError: the text cannot be used, or what was made is too long.
        OutOfBoundsError: it took too long.
        PlansmithError: nobody answered, or the calls were too many.
    """
    with tempfile.TemporaryDirectory(prefix="plansmith-mcp-") as name:
        source, folder = Path(name) / "text", Path(name) / "made"
        source.write_text(text, encoding="utf-8")
        named = ["--model", settings.model] if settings.model else []
        code, said = _finished(
            [sys.executable, "-m", "plansmith.cli", "nl2plan", str(source), "--policy", settings.policy, *named,
             "--out", str(folder), "--max-calls", str(settings.max_calls)],
            settings.modelling_time_limit_s,
        )  # fmt: skip
        if code != 0 and not (code == 1 and (folder / "plan.md").is_file()):
            kind = BadInputError if code == BadInputError.exit_code else PlansmithError
            raise kind("nl2plan failed", got=said.replace(str(source), "text")[-MOST_SAID:].strip())
        row = _row(folder, is_solved=code == 0)
    size = len(json.dumps(row).encode())
    if size > settings.max_answer_bytes:
        raise BadInputError("the answer is too long", got=f"{size} bytes",
                            expected=f"{settings.max_answer_bytes} at most")  # fmt: skip
    return row


def _finished(command: list[str], limit_s: float) -> tuple[int, str]:
    """Return a command's exit code and what it says of errors; at the limit it is killed with all that it started."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        _, said = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise OutOfBoundsError("out of time", got=f"more than {limit_s:g} s", cure="send less") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return process.returncode, said.decode(errors="replace")


def _row(folder: Path, *, is_solved: bool) -> Row:
    calls = [json.loads(line) for line in (folder / "calls.jsonl").read_text(encoding="utf-8").split("\n") if line]
    return {
        "status": "solved" if is_solved else "no_plan",
        "plan": (folder / "plan.txt").read_text(encoding="utf-8").split("\n")[:-1] if is_solved else None,
        "in_words": (folder / "plan.md").read_text(encoding="utf-8"),
        "domain": (folder / "domain.pddl").read_text(encoding="utf-8"),
        "problem": (folder / "problem.pddl").read_text(encoding="utf-8"),
        "calls": len(calls),
        "tokens": sum((call["prompt_tokens"] or 0) + (call["completion_tokens"] or 0) for call in calls),
    }
