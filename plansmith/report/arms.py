"""The arms of a run, which are its policies with their attempts at the test problems, as its artifacts have them.

Report, live page and the other windows take the figures of an arm from here, so that all of them show the same.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow.compute as pc

from plansmith.data.artifacts import Artifact, StageKind
from plansmith.data.rows import USAGE, PlanRow, ProblemRow, RolloutRow, UsageRow, VerdictRow, VerificationRow
from plansmith.data.tables import read_arrow
from plansmith.judging.taxonomy import ErrorClass
from plansmith.pddl.validation import Verdict
from plansmith.report.finished_stages import FinishedStage, RunSoFar, read_columns
from plansmith.report.metrics import EvaluatedProblem
from plansmith.text.chains import VALID as STATED_VALID

CHOSEN = "chosen.json"
"""Which iteration's policy was kept, beside its weights."""
FINAL = "final"
"""The arm of the kept policy; its attempts are those of the iteration that it comes from."""
AFTER_TURNS = "final_turns"
"""The arm of the kept policy once it got its failed plans back."""
CONTROL = "supervised"
"""How the names of the control's arms begin, one an iteration."""


@dataclass(frozen=True)
class Arm:
    """One policy with its attempts at some problems, judged.

    With ``turns``, the artifact of failed plans that the policy got back, the last attempt at a problem counts.
    """

    name: str
    policy: Any
    rollouts: Artifact
    verdicts: Artifact
    problems: Artifact
    plans: Artifact
    turns: Artifact | None = None

    @classmethod
    def of(cls, judged: FinishedStage) -> Arm:
        """Return the arm whose attempts a stage has judged.

        Raises:
            ArtifactError: what it was made from is not there.
        """
        tried, problems = judged.input("rollouts"), judged.input("problems")
        is_policy = "policy" in tried.provenance.inputs  # a random walk has none
        policy, plans = (tried.input("policy") if is_policy else tried).artifact, tried.input("plans").artifact
        name = judged.provenance.labels["arm"]
        return cls(name, policy, tried.artifact, judged.artifact, problems.artifact, plans)


def arms_of(run: RunSoFar[Any]) -> Iterator[Arm]:
    """Yield the arms that have been judged, the final one last."""
    found = [Arm.of(stage) for stage in run.stages(StageKind.JUDGES) if "arm" in stage.provenance.labels]
    yield from found
    kept = run.one(StageKind.KEEPS)
    if kept is not None:
        key = kept.provenance.inputs[f"policy_{chosen_iteration(kept.artifact)}"]
        chosen = next((arm for arm in found if arm.policy.key == key), None)
        if chosen is not None:
            yield replace(chosen, name=FINAL, policy=kept.artifact)


def after_turns(run: RunSoFar[Any]) -> Arm | None:
    """Return the final arm with the turns of feedback that it had, None where it had none."""
    handed_back = run.one(StageKind.HANDS_BACK)
    final = next((arm for arm in arms_of(run) if arm.name == FINAL), None)
    if handed_back is None or final is None:
        return None
    return replace(final, name=AFTER_TURNS, turns=handed_back.artifact)


def compared_with_final(arms: Iterable[str]) -> list[str]:
    """Return the arms that the final one is tested against, the headline's first.

    That is phase 1, or the untrained policy in a run without it; which one was fixed before any run. The control
    (its last arm) and the untrained policy stand beside it.
    """
    names = list(arms)
    controls = [name for name in names if name.startswith(CONTROL)]
    return [name for name in ("phase1", *controls[-1:], "untrained") if name in names]


def chosen_iteration(kept: Artifact) -> int:
    """Return the iteration whose policy was kept; 0 is the policy before the loop."""
    return int(json.loads(kept.path(CHOSEN).read_text(encoding="utf-8"))["iteration"])


def evaluated_problems(arm: Arm, verification: Artifact | None = None) -> list[EvaluatedProblem]:
    """Return the attempts of one arm with the facts of their problems; ``verification`` has the arm's v_hat."""
    problem_of = _by_id(arm.problems, ProblemRow, "problem_id", "domain", "level", "canonical_form")
    plan_of = _by_id(arm.plans, PlanRow, "problem_id", "plan", "cost", "is_optimal")
    v_hats = dict(zip(*read_columns(verification, VerificationRow, "example_id", "v_hat"), strict=True)) if (
        verification is not None) else {}  # fmt: skip
    evaluated = []
    for problem_id, n_tokens, rollout_id, verdict, error, plan, cost, progress, stated in _last_attempts(arm):
        domain, level, form = problem_of[problem_id]
        planner_plan, planner_cost, is_optimal = plan_of[problem_id]
        evaluated.append(
            EvaluatedProblem(
                problem_id=problem_id,
                domain=domain,
                level=level,
                form=form,
                is_valid=verdict == Verdict.VALID,
                error_class=ErrorClass(error) if error else None,
                plan_length=len(plan),
                planner_plan_length=len(planner_plan),
                completion_tokens=n_tokens,
                plan_cost=cost,
                planner_cost=planner_cost,
                is_planner_optimal=is_optimal,
                progress=progress,
                stated_verdict=None if stated is None else stated == STATED_VALID,
                v_hat=v_hats.get(rollout_id),
            )
        )
    return evaluated


def _last_attempts(arm: Arm) -> Iterator[tuple[Any, ...]]:
    """Yield what counts of the last attempt at each problem, see `_attempts`."""
    turns = () if arm.turns is None else _attempts(arm.turns, arm.turns, table="verdicts")
    handed_back = {attempt[0]: attempt for attempt in turns}
    for attempt in _attempts(arm.verdicts, arm.rollouts):
        yield handed_back.get(attempt[0], attempt)


def _attempts(judged: Artifact, rollouts: Artifact, *, table: str = "rows") -> Iterator[tuple[Any, ...]]:
    """Yield problem, tokens, and what else counts of each attempt, turn by turn."""
    tokens_of = _token_counts(rollouts)
    names = ("problem_id", "rollout_id", "verdict", "error_class", "plan", "plan_cost", "progress", "claimed_verdict")
    columns = read_columns(judged, VerdictRow, "iteration", *names, table=table)
    for _, problem_id, rollout_id, *judgement in sorted(zip(*columns, strict=True), key=lambda row: row[0]):
        yield problem_id, tokens_of[rollout_id], rollout_id, *judgement


def _by_id(artifact: Artifact, row_type: type[Any], *names: str) -> dict[str, tuple[Any, ...]]:
    """Return some columns of a table by the first of them."""
    ids, *columns = read_columns(artifact, row_type, *names)
    return dict(zip(ids, zip(*columns, strict=True), strict=True))


def tokens_of_problems(rollouts: Artifact) -> dict[str, int]:
    """Return how many tokens all answers to each problem have."""
    tokens_of, found = _token_counts(rollouts), Counter[str]()
    for rollout_id, problem_id in zip(*read_columns(rollouts, RolloutRow, "rollout_id", "problem_id"), strict=True):
        found[problem_id] += tokens_of[rollout_id]
    return dict(found)


def _token_counts(rollouts: Artifact) -> dict[str, int]:
    """Return how many tokens the policy wrote, by rollout; of a server's model as it counted them, 0 if it did not."""
    if (rollouts.folder / f"{USAGE}.parquet").is_file():
        ids, counts = read_columns(rollouts, UsageRow, "rollout_id", "completion_tokens", table=USAGE)
        return {name: count or 0 for name, count in zip(ids, counts, strict=True)}
    table = read_arrow(rollouts.path("rows.parquet"), RolloutRow, ["rollout_id", "token_ids"])
    lengths = pc.list_value_length(table.column("token_ids")).to_pylist()
    return dict(zip(table.column("rollout_id").to_pylist(), lengths, strict=True))
