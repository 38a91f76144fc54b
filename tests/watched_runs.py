"""A small run folder written by hand, stage by stage, as a run leaves it; for the tests of the live page."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from conftest import BLOCKS_TEXT
from hand_made import write_artifact

from pipelines.pddl_instruct import PIPELINE
from plansmith.commands.watch import report_so_far
from plansmith.data.artifacts import StageKind
from plansmith.data.rows import (
    CompletionRow,
    JudgedStepRow,
    JudgingRow,
    MetricRow,
    OptimisationStepRow,
    PlanRow,
    ProblemRow,
    RolloutRow,
    VerdictRow,
)
from plansmith.judging.judge import PlanJudge
from plansmith.judging.taxonomy import ErrorClass
from plansmith.pddl.validation import Verdict
from plansmith.watch.server import Site, server_of

SUSSMAN_TEXT = """(define (problem p) (:domain blocksworld) (:objects a b c)
  (:init (on c a) (ontable a) (ontable b) (clear c) (clear b) (handempty)) (:goal (and (on a b) (on b c))))"""

BROKEN_CHAIN = (
    "aim: on? a b do: pick-up b check: clear b ontable b handempty ok: add: holding b "
    "now: holding b ontable a on c a clear c "
    "aim: on? b c do: stack b a check: holding b clear a ok: add: on b a clear b handempty "
    "now: handempty clear b on b a on c a ontable a final: pick-up b stack b a verdict: VALID"
)
"""Stacks b on a, which c is on: step 2 needs (clear a)."""

HOSTILE = '</script><script>window.stolen = 1</script><img src=x onerror="window.stolen = 2"> {{ 7 * 7 }} &amp;'

KEYS = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("problems", "plans", "policy")}


def write_problems(run_folder: Path, levels: Mapping[str, str]) -> None:
    """Write the problems of a run, their level by id, and a plan for each."""
    root = run_folder / "artifacts"
    problems = [
        ProblemRow(name, name, "blocksworld", level, "test", 3, BLOCKS_TEXT, SUSSMAN_TEXT, "sampler")
        for name, level in levels.items()
    ]
    plans = [PlanRow(name, "fd", "solved", ("(unstack c a)",), 6.0, 0.1, is_optimal=True) for name in levels]
    drawn, planned = {"rows": (ProblemRow, problems)}, {"rows": (PlanRow, plans)}
    write_artifact(root, "sample_problems", drawn, key=KEYS["problems"], kind=StageKind.DRAWS)
    write_artifact(root, "synthesize_plans", planned, key=KEYS["plans"], kind=StageKind.PLANS)
    write_artifact(root, "initial_policy", {}, key=KEYS["policy"])


def write_attempts(
    run_folder: Path,
    name: str,
    failures: Mapping[str, ErrorClass | None],
    *,
    completion: str = BROKEN_CHAIN,
    prompting: str = "compact",
    tried: str = "try",
    progress: Mapping[str, float] | None = None,
) -> None:
    """Write the attempts of an arm, or with ``tried="roll_out"`` of an iteration, and the verdicts on them."""
    root, data = run_folder / "artifacts", {"problems": KEYS["problems"], "plans": KEYS["plans"]}
    rollouts = [
        RolloutRow(f"{name}-{it}", it, 0, "v1", f"solve {it}", completion, (1,), (1, 2), (0.0, 0.0), "stop", 0)
        for it in failures
    ]
    attempts = tuple(CompletionRow(row.rollout_id, 0, "v1", completion) for row in rollouts)
    judged = PlanJudge(prompting).judge(JudgingRow("", BLOCKS_TEXT, SUSSMAN_TEXT, attempts))
    verdicts = [
        _verdict(row, it, error, (progress or {}).get(it, 0.5 if error else 1.0))
        for row, (it, error) in zip(judged.verdicts, failures.items(), strict=True)
    ]
    labels = {"arm": name, "prompting": prompting} if tried == "try" else {"prompting": prompting}
    iteration = int(number) if (number := name.rpartition("_")[2]).isdecimal() else 0
    told = {"kind": StageKind.GENERATES, "iteration": iteration}
    given = data | {"policy": KEYS["policy"]}
    generated = write_artifact(root, f"{tried}_{name}", {"rows": (RolloutRow, rollouts)}, inputs=given, **told)
    told |= {"kind": StageKind.JUDGES, "labels": labels}
    made_from = {"rollouts": generated.key, "problems": KEYS["problems"]}
    tables = {"rows": (VerdictRow, verdicts), "steps": (JudgedStepRow, judged.steps)}
    write_artifact(root, f"judge_{name}", tables, inputs=made_from, **told)


def _verdict(row: VerdictRow, problem_id: str, error: ErrorClass | None, progress: float) -> VerdictRow:
    """Return a true verdict with the figures that a test asks for."""
    verdict, step = (Verdict.PRECONDITION_UNSATISFIED, 2) if error else (Verdict.VALID, None)
    return replace(
        row, problem_id=problem_id, verdict=verdict, error_class=error, failed_step=step, claimed_verdict=None,
        plan_cost=None if error else 6.0, progress=progress,
    )  # fmt: skip


def write_training(run_folder: Path, stage: str, losses: Sequence[float], *, tokens_per_s: float = 1500.0) -> None:
    """Write what an optimisation leaves."""
    curve = [OptimisationStepRow(step, loss, 0.1, 1.0) for step, loss in enumerate(losses, start=1)]
    metrics = [MetricRow(stage, 0, "", "", "training/tokens_per_s", tokens_per_s)]
    tables = {"curve": (OptimisationStepRow, curve), "metrics": (MetricRow, metrics)}
    told = {"kind": StageKind.OPTIMISES, "labels": {"objective": "supervised"}}
    write_artifact(run_folder / "artifacts", stage, tables, **told)


def write_record(run_folder: Path, *, stages: Mapping[str, str] | None = None) -> None:
    """Write what the run is."""
    config = PIPELINE.settings("smoke", overrides=["name=hand-made", "seed=3"]).model_dump(mode="json")
    record: dict[str, Any] = {"pipeline": PIPELINE.name, "preset": "by-hand", "config": config}
    run_folder.mkdir(parents=True, exist_ok=True)
    (run_folder / "run.json").write_text(json.dumps(record))
    if stages:
        said = {name: {"key": key, "iteration": 0} for name, key in stages.items()}
        (run_folder / "stages.json").write_text(json.dumps(said))


def write_live(run_folder: Path, source: str, doing: str, **values: Any) -> None:
    """Write what a process says, as `plansmith.live` does."""
    (run_folder / "live").mkdir(parents=True, exist_ok=True)
    text = json.dumps({"source": source, "doing": doing} | values)
    (run_folder / "live" / f"{source}.json").write_text(text)


@contextmanager
def serving(folder: Path) -> Iterator[int]:
    """Serve the page of a folder from this process; give the port."""
    with server_of(Site(folder, report_so_far), "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
