"""The policy of a run as a model folder of its own, with a card that says how it was made and what it is worth."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipelines.run.workers import MODEL, policy_version
from pipelines.stages.training import example_rows
from plansmith.config.generalization_gap import GeneralizationGapConfig
from plansmith.config.nl_pddl_bench import NlPddlBenchConfig
from plansmith.config.pddl_instruct import PddlInstructConfig
from plansmith.config.problems import task_of_level
from plansmith.config.self_criteach import SelfCriteachConfig
from plansmith.data.artifacts import StageKind
from plansmith.data.rows import ProblemRow, Split, TextRow
from plansmith.data.storage import atomic_file, storage_errors
from plansmith.learning.export import FORMALISING, PLANNING, MeasuredAccuracy, ModelCard, TrainedOn, export_model
from plansmith.learning.hub import is_repository
from plansmith.pddl.grounding import PlanningTask
from plansmith.pipeline import PublishedPolicy
from plansmith.report.arms import FINAL, Arm
from plansmith.report.criteach_paper import HARD, OF_HARD
from plansmith.report.criteach_results import CriteachResults
from plansmith.report.finished_stages import RunSoFar
from plansmith.report.formalisation_arms import main_arm, policies_among, text_arms
from plansmith.report.formalisation_metrics import FormalisationFigures
from plansmith.report.formalisation_results import FormalisationResults
from plansmith.report.gap_results import GapResults
from plansmith.report.metrics import LevelFigures
from plansmith.report.results import Results
from plansmith.report.statistics import interval_name
from plansmith.text.rendering import prompting_of, rendering_of

logger = logging.getLogger(__name__)

RECORD = "plansmith.json"
"""Which policy a published folder holds."""


def publish_policy(published: PublishedPolicy, run_name: str, target: Path) -> None:
    """Write a policy to ``target``, complete or not at all; one that is there already is left as it is."""
    told = hashlib.sha256(repr(published.card).encode()).hexdigest()
    record = {"policy_version": policy_version(published.policy), "run": run_name, "card": told}
    path = target / RECORD
    if path.is_file() and json.loads(path.read_text(encoding="utf-8")) == record:
        return
    with storage_errors(target):
        export_model(published.policy.path(MODEL), target, published.card)
        with atomic_file(path) as file:
            file.write((json.dumps(record, indent=2) + "\n").encode())
    logger.info("the kept policy: %s", target)


def planning_policy(run: RunSoFar[PddlInstructConfig], results: Results, method: str) -> PublishedPolicy:
    """Return the policy that a run keeps, which plans; ``method`` is how it was trained, in a sentence."""
    config, kept, rows = run.config, run.one(StageKind.KEEPS), _drawn(run)
    assert kept is not None, "a pipeline whose policies plan keeps one"
    tested = next(row for row in rows if row.split == Split.TEST)
    task = PlanningTask.from_text(tested.domain_pddl, tested.problem_pddl)
    domain_of = {row.level: row.domain for row in rows}
    final, before = results.arms[FINAL], results.arms.get("untrained")
    return PublishedPolicy(
        kept.artifact,
        ModelCard(
            **_card_of_run(run, method, rows),
            skill=PLANNING,
            rendering=config.rendering,
            example_prompt=rendering_of(config.rendering).plan_prompt(task),
            max_new_tokens=config.evaluation.max_new_tokens,
            accuracies=tuple(
                MeasuredAccuracy(
                    domain=domain_of[level],
                    level=level,
                    n_problems=figures.n,
                    n_right=figures.n_valid,
                    low=figures.ci95[0],
                    high=figures.ci95[1],
                    n_right_before=None if before is None else before.by_level[level].n_valid,
                )
                for level, figures in final.by_level.items()
            ),
            interval=f"95% {interval_name(final.all_levels.n, final.all_levels.n_forms)}",
        ),
    )


def formalising_policy(run: RunSoFar[NlPddlBenchConfig], results: FormalisationResults, method: str) -> PublishedPolicy:
    """Return the policy that a run is about, which writes problems, with its first answers' figures."""
    config, arms = run.config, {arm.name: arm for arm in text_arms(run)}
    arm = arms[main_arm(policies_among(arms))]
    figures, before = results.arms[arm.name], results.arms.get("untrained")
    texts = arm.texts.rows(TextRow)
    return PublishedPolicy(
        arm.policy,
        ModelCard(
            **_card_of_run(run, method, _drawn(run)),
            skill=FORMALISING,
            rendering=config.texts.rendering,
            example_prompt=next(text.prompt for text in texts if text.split == Split.TEST),
            max_new_tokens=config.evaluation.max_new_tokens,
            accuracies=tuple(
                MeasuredAccuracy(
                    domain=domain,
                    level=level,
                    n_problems=place.n,
                    n_right=_count(place),
                    low=place.ci95["equivalent"][0],
                    high=place.ci95["equivalent"][1],
                    n_right_before=None if before is None else _count(before.by_place[domain][level]),
                )
                for domain, places in figures.by_place.items()
                for level, place in places.items()
            ),
            interval=f"95% {interval_name(figures.n, figures.n_forms)}",
        ),
    )


def gap_policy(run: RunSoFar[GeneralizationGapConfig], results: GapResults, method: str) -> PublishedPolicy:
    """Return the policy that was trained last, with what it reached in every domain, seen or not."""
    last = results.last
    told = "It knows symbols and no names: hide those of a problem first."
    limits = (told,) if run.config.reading is not None else ()
    return _policy_of_arm(run, last.name, method, last.by_domain, results.trained_domains, last.seen, limits)


def criteach_policy(run: RunSoFar[SelfCriteachConfig], results: CriteachResults, method: str) -> PublishedPolicy:
    """Return the policy that was trained last, with what it reached in every domain, as the reference judges."""
    last, trained = results.last, results.trained_domains
    figures = {task: own for task, own in last.by_task.items() if task != HARD or not {*OF_HARD} & {*last.by_task}}
    policy = _policy_of_arm(run, last.name, method, figures, trained, last.figures)
    learnt = tuple(replace(row, domain=task_of_level(row.level)) for row in policy.card.training)
    return replace(policy, card=replace(policy.card, training=learnt))


def _policy_of_arm(
    run: RunSoFar[Any],
    name: str,
    method: str,
    by_domain: Mapping[str, LevelFigures],
    trained_domains: Collection[str],
    tested: LevelFigures,
    limits: tuple[str, ...] = (),
) -> PublishedPolicy:
    """Return the policy of an arm; ``tested`` are the figures whose interval is named."""
    judged = next(stage for stage in run.stages(StageKind.JUDGES) if stage.provenance.labels.get("arm") == name)
    arm, prompting = Arm.of(judged), judged.provenance.labels["prompting"]
    learnt = [row for row in _drawn(run) if row.split != Split.TEST]
    tests = [row for row in arm.problems.rows(ProblemRow) if row.split == Split.TEST]
    task = PlanningTask.from_text(tests[0].domain_pddl, tests[0].problem_pddl)
    return PublishedPolicy(
        arm.policy,
        ModelCard(
            **_card_of_run(run, method, [*learnt, *tests]),
            skill=PLANNING,
            rendering=prompting,
            example_prompt=prompting_of(prompting).plan_prompt(task),
            max_new_tokens=run.config.evaluation.max_new_tokens,
            accuracies=tuple(
                MeasuredAccuracy(
                    domain=domain,
                    level="all levels" if domain in trained_domains else "all levels, never trained on",
                    n_problems=figures.n,
                    n_right=figures.n_valid,
                    low=figures.ci95[0],
                    high=figures.ci95[1],
                )
                for domain, figures in by_domain.items()
            ),
            limits=limits,
            interval=f"95% {interval_name(tested.n, tested.n_forms)}",
        ),
    )


def _count(figures: FormalisationFigures) -> int:
    return round(figures.equivalent * figures.n)


def _drawn(run: RunSoFar[Any]) -> list[ProblemRow]:
    drawn = run.one(StageKind.DRAWS)
    assert drawn is not None, "a finished run has drawn problems"
    return drawn.artifact.rows(ProblemRow)


def _card_of_run(run: RunSoFar[Any], method: str, rows: Sequence[ProblemRow]) -> dict[str, Any]:
    """Return what a card says of any run: what it trained, how, and on which problems."""
    config = run.config
    learnt = [row for row in rows if row.split in (Split.PHASE1, Split.PHASE2)]
    test_forms = {row.canonical_form for row in rows if row.split == Split.TEST}
    trained = Counter((row.domain, row.level) for row in learnt)
    written = (row for stage in run.stages(StageKind.WRITES) for row in example_rows(stage.artifact))
    examples = Counter(str(row.kind) for row in written)
    return {
        "name": config.name,
        "base_model": config.model.folder and base_name(config.model.folder),
        "method": method,
        "training": tuple(TrainedOn(domain, level, count) for (domain, level), count in trained.items()),
        "config": config.model_dump(mode="json"),
        "n_test_forms": len(test_forms),
        "n_trained_forms": len(test_forms & {row.canonical_form for row in learnt}),
        "examples": tuple(sorted(examples.items())),
    }


def base_name(folder: str) -> str:
    """Return the name of a model: as it is if it names a repository of the hub, else the last part of the path.

    What no name of the hub may hold becomes a dash.
    """
    if is_repository(folder):
        return folder
    return re.sub(r"[^\w.-]+", "-", Path(folder).expanduser().resolve().name).strip("-.") or "model"
