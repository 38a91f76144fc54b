"""The figures of a run from its artifacts: all of them when it is finished, before that what is known so far.

The report is made of them, and the live page at every look. Not here: the figures of one arm (`arms`, `metrics`), what
they look like (`run_report`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from plansmith.config.pddl_instruct import PddlInstructConfig
from plansmith.data.artifacts import Artifact, StageKind
from plansmith.data.rows import MetricRow, RolloutRow, VerdictRow
from plansmith.groups import some_of_each
from plansmith.pddl.validation import Verdict
from plansmith.report.arms import FINAL, Arm, arms_of, compared_with_final, evaluated_problems
from plansmith.report.attempts import AttemptExample, read_attempts
from plansmith.report.feedback_turns import FeedbackTurn, accuracy_by_turn
from plansmith.report.finished_stages import FinishedStage, RunSoFar, domain_levels_of, forms_of, read_columns
from plansmith.report.metrics import EvaluatedProblem, PairedComparison, compare_arms, summarise_arm, tested_levels
from plansmith.report.results import IterationRollouts, Losses, Results
from plansmith.report.run_facts import facts_of

Run = RunSoFar[PddlInstructConfig]


def results_so_far(run: Run) -> Results | None:
    """Return everything that can be said about a run by now; None before a policy has been tried."""
    arms = list(arms_of(run))
    if not arms:
        return None
    config, primary = run.config, run.config.primary_level
    checked = {stage.provenance.labels.get("arm"): stage.artifact for stage in run.stages(StageKind.VERIFIES)}
    evaluated = {arm.name: evaluated_problems(arm, checked.get(arm.name)) for arm in arms}
    rollouts = tuple(sorted(_rollouts(run), key=lambda item: item.iteration))
    last = arms[-1]
    n_shown = config.evaluation.n_failures_shown if last.name == FINAL else 0  # the live page chooses its own
    return Results(
        **facts_of(run, last.policy.manifest.provenance, {arm.name: arm.policy for arm in arms}),
        primary_level=primary,
        arms={name: summarise_arm(name, items, primary_level=primary) for name, items in evaluated.items()},
        paired_tests=_paired_tests(evaluated, primary),
        losses=_losses(run),
        rollout_valid_rate=tuple(item.n_valid / item.n for item in rollouts),
        rollouts=rollouts,
        failures=tuple(shown_attempts(last, is_valid=False, count=n_shown)),
        solved=next(iter(shown_attempts(last, is_valid=True, count=min(n_shown, 1))), None),
        feedback_turns=_feedback_turns(run, last),
    )


def _paired_tests(evaluated: Mapping[str, Sequence[EvaluatedProblem]], primary: str) -> tuple[PairedComparison, ...]:
    """Return the tests of the final arm against those before it; none before there is one.

    The first is the headline's, over the test problems of all levels; which it is was fixed before any run.
    """
    if FINAL not in evaluated:
        return ()
    scopes = tested_levels([item.level for item in evaluated[FINAL]], primary)
    return tuple(
        compare_arms(before, FINAL, level, evaluated_before=evaluated[before], evaluated_after=evaluated[FINAL])
        for before in compared_with_final(evaluated)
        for level in scopes
    )


def _rollouts(run: Run) -> Iterator[IterationRollouts]:
    """Yield what became of the rollouts to learn from."""
    for stage in run.stages(StageKind.JUDGES):
        if not {"arm", "probe"} & stage.provenance.labels.keys():
            (classes,) = read_columns(stage.artifact, VerdictRow, "error_class")
            if classes:
                yield IterationRollouts.of(stage.provenance.iteration, classes)


def _losses(run: Run) -> Losses:
    """Return the losses as printed, up to one that is NaN or infinite."""
    metrics = [row for built in run.stages(StageKind.BUILDS) for row in built.artifact.rows(MetricRow, "metrics")]

    def by_iteration(name: str) -> tuple[float, ...]:
        values = (row.value for row in metrics if row.name == name)
        return tuple(itertools.takewhile(math.isfinite, values))

    return Losses(by_iteration("loss/reasoning_as_printed"), by_iteration("loss/final_as_printed"))


def _feedback_turns(run: Run, last: Arm) -> tuple[FeedbackTurn, ...]:
    handed_back = run.one(StageKind.HANDS_BACK)
    if handed_back is None:
        return ()
    return accuracy_after_turns(handed_back, last.rollouts, run.config.evaluation.feedback_turns)


def accuracy_after_turns(handed_back: FinishedStage, tried: Artifact, n_turns: int) -> tuple[FeedbackTurn, ...]:
    """Return the accuracy after each turn of feedback, from the first attempts and the stage that handed them back."""
    solved_at = _solved_at(handed_back.artifact, tried)
    form_of = forms_of(handed_back.input("problems").artifact)
    forms = [form_of[problem_id] for problem_id in solved_at]
    return accuracy_by_turn(list(solved_at.values()), forms, range(n_turns + 1)) if solved_at else ()


def _solved_at(turns: Artifact, tried: Artifact) -> dict[str, int | None]:
    """Return for each problem the turn whose plan was valid, or None; a first attempt that has no turn was valid."""
    found: dict[str, int | None] = dict.fromkeys(read_columns(tried, RolloutRow, "problem_id")[0], 0)
    columns = read_columns(turns, VerdictRow, "problem_id", "iteration", "verdict", table="verdicts")
    for problem_id, turn, verdict in sorted(zip(*columns, strict=True)):
        found[problem_id] = turn if verdict == Verdict.VALID else None
    return found


def shown_attempts(arm: Arm, *, is_valid: bool, count: int) -> list[AttemptExample]:
    """Return so many attempts to show, spread over the levels and error classes."""
    if not count:
        return []
    level_of = domain_levels_of(arm.problems)
    verdicts = (verdict for verdict in arm.verdicts.rows(VerdictRow) if verdict.is_valid == is_valid)
    chosen = some_of_each(verdicts, lambda verdict: (level_of[verdict.problem_id][1], verdict.error_class), count)
    tables = {"judged": arm.verdicts, "rollouts": arm.rollouts, "problems": arm.problems, "plans": arm.plans}
    return list(read_attempts(chosen, arm=arm.name, **tables))
