"""Several seeds of `nl2plan`: every arm on the tasks of domains learnt of, and of others; a text is what is drawn.

Not here: tables, plot and sentences (`seeds_report`), the figures of one run (`plansmith.report.nl2plan_results`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from plansmith.ablation.seeds import SeedsResults, is_in_level, over_seeds
from plansmith.ablation.summary import ArmRun, made_with, tests_in_scopes
from plansmith.config.nl2plan import NL2PlanConfig
from plansmith.data.rows import ModelledVerdictRow, ModellingTaskRow
from plansmith.judging.taxonomy import ErrorClass
from plansmith.modelling.products import NL2PLAN
from plansmith.report.finished_stages import RunSoFar
from plansmith.report.metrics import EvaluatedProblem
from plansmith.report.nl2plan_results import OTHERS, compared_arms, domain_of, taught_domains

Run = RunSoFar[NL2PlanConfig]

NEVER, TAUGHT = "domains never learnt of", "domains learnt of, in other phrasings"


def nl2plan_seeds_results(name: str, runs: Sequence[Run], command: str) -> SeedsResults:
    """Return the figures of finished runs that differ in their seeds; the tests are those of each run, pooled."""
    tried = [arm_run for run in runs for arm_run in _arm_runs(run)]
    arms = list(dict.fromkeys(run.arm for run in tried))
    levels = {item.level for run in tried for item in run.evaluated}
    scopes = {level: partial(is_in_level, level) for level in (NEVER, TAUGHT) if level in levels}
    compared = set.intersection(*(set(_compared(run)) for run in runs))
    tests = tests_in_scopes(tried, [(arm, NL2PLAN) for arm in arms if arm in compared], scopes)
    made = made_with(runs[0].config, command)
    return over_seeds(name, tried, arms, scopes, tests, preset=runs[0].preset, **made)


def _compared(run: Run) -> list[str]:
    verdicts = run.artifacts["judge"].rows(ModelledVerdictRow)
    return compared_arms(verdicts, is_learnt="compare_actions" in run.artifacts)


def _arm_runs(run: Run) -> Iterator[ArmRun]:
    verdicts = run.artifacts["judge"].rows(ModelledVerdictRow)
    tasks = {row.task: row for row in run.artifacts["tasks"].rows(ModellingTaskRow)}
    taught = taught_domains(run.artifacts)
    for arm in (*OTHERS[::-1], NL2PLAN):
        own = tuple(_evaluated(row, tasks[row.task], taught) for row in verdicts if row.arm == arm)
        if own:
            yield ArmRun(arm, run.config.seed, own)


def _evaluated(row: ModelledVerdictRow, task: ModellingTaskRow, taught: set[str]) -> EvaluatedProblem:
    name = domain_of(task.domain)
    return EvaluatedProblem(
        problem_id=row.task,
        domain=name,
        level=TAUGHT if name in taught else NEVER,
        form=task.domain,  # the domain's text, which its tasks share
        is_valid=row.is_right,
        error_class=None if row.is_right else ErrorClass.GOAL_NOT_ACHIEVED,
        plan_length=len(row.plan),
        planner_plan_length=0,
        completion_tokens=0,
    )
