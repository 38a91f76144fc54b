#!/usr/bin/env python3
"""NL2Plan (arXiv 2405.04215): from a paragraph of text to a domain, a problem and a plan, step by step.

`nl2plan` is the paper's six steps and its evaluation as a list of durable stages; running the file, or ``plansmith run
nl2plan``, runs them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # found from any folder, as `ray job submit` starts it
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pipelines.commands.run import run_command
from pipelines.run.paths import PRESETS
from pipelines.stages import modelling, modelling_lessons
from pipelines.stages.generating import ASKING, GENERATION
from pipelines.stages.graph import Graph
from pipelines.stages.modelling import AskingSettings, PlanningSettings, ReadingSettings, VerdictSettings
from pipelines.trials.speaking import check_speaker, cost_estimate, speaker_key, speaking_session
from plansmith.config.basics import narrowed
from plansmith.config.nl2plan import NL2PlanConfig
from plansmith.config.training import EngineNumerics
from plansmith.modelling.products import DialogueStep
from plansmith.modelling.prompts import prompts_digest
from plansmith.modelling.steps import PLANNING
from plansmith.pipeline import Pipeline, Reporting
from plansmith.report.nl2plan_report import nl2plan_report
from plansmith.report.nl2plan_results import NL2PlanResults, nl2plan_results
from plansmith.stages import Stage

ROOTS = (*ASKING, *GENERATION, "plansmith.modelling.script.ScriptedGenerator")
"""Code of those who answer, reached only through what the run lends."""


def nl2plan(config: NL2PlanConfig) -> list[Stage[Any]]:
    """Return the stages in order; each names what it reads and every setting it depends on."""
    graph = Graph(config.seed)

    # The texts; beyond the paper, a model that learns the steps from nothing
    given = modelling_lessons.learnt_speaker(graph, config) if config.lessons else read_tasks(graph, config)
    tasks, made, is_learnt = given["tasks"], dict(given), config.lessons is not None
    who = "" if is_learnt else speaker_key(config)

    edits = modelling.read_edits(config.tasks.edits)

    def asking(step: str, number: int = 0) -> AskingSettings:
        is_straight = step == DialogueStep.ZERO_SHOT
        return AskingSettings(
            step=step,
            number=number,
            modelling=config.modelling.model_copy(update={"planner_feedback": 0}),  # no answer depends on it
            answers=config.answers,
            shares_domain=config.tasks.shares_domain and not is_straight,
            sees_whole=config.tasks.domain == "whole" and not is_straight,
            edits={} if is_straight else edits,
            who=who,
            engine=narrowed(config.policy, EngineNumerics) if is_learnt else None,
            prompts=prompts_digest(),
        )

    def ask(name: str, step: str, number: int = 0) -> None:
        before = {"tasks": tasks} if step == DialogueStep.ZERO_SHOT else dict(made)
        made[name] = graph.stage(name, modelling.take_step, asking(step, number), before, code_roots=ROOTS)

    # Steps 1 to 3: types, their hierarchy, actions in words
    for step in (DialogueStep.TYPES, DialogueStep.HIERARCHY, DialogueStep.ACTIONS):
        ask(step, step)

    # Step 4: every action in PDDL, twice; then what no action uses goes
    for number in range(1, config.modelling.passes + 1):
        ask(f"construct_{number}", DialogueStep.CONSTRUCTION, number)
    made["prune"] = graph.stage("prune", modelling.prune, config.modelling, dict(made))
    if is_learnt:
        graph.stage(
            "compare_actions", modelling_lessons.compare_actions, None, {"tasks": tasks, "prune": made["prune"]}
        )

    # Step 5, the problem, and step 6, the plan
    ask("task", DialogueStep.TASK)
    planning = PlanningSettings(planner=config.planner, shares_domain=config.tasks.shares_domain)
    planned = graph.stage("plan", modelling.plan, planning, dict(made))

    # Beyond the paper: a model without a plan goes back to steps 4 and 5 with what stands in its way
    for turn in range(1, config.modelling.planner_feedback + 1):
        again = modelling.LookingAgainSettings(**asking(PLANNING).model_dump(), planner=config.planner)
        before = {**made, "plan": planned}
        name = f"look_again_{turn}"
        made[name] = graph.stage(name, modelling.look_again, again, before, code_roots=ROOTS)
        planned = graph.stage(f"plan_{turn}", modelling.plan, planning, dict(made))

    # The paper's baseline, and the verdict on both
    if config.zero_shot:
        ask(modelling.ZERO_SHOT, DialogueStep.ZERO_SHOT)
    said = VerdictSettings(interpretations=modelling.read_interpretations(config.interpretations))
    graph.stage("judge", modelling.judge, said, {**made, "plan": planned})
    return graph.stages


def read_tasks(graph: Graph, config: NL2PlanConfig) -> dict[str, Stage[Any]]:
    """Return the paper's tasks, or those of a folder, after adding the stage that reads them."""
    settings = ReadingSettings(
        folder=config.tasks.folder,
        domains=config.tasks.domains,
        digest=modelling.references_digest(modelling.references_of(config.tasks.folder, config.tasks.domains)),
    )
    return {"tasks": graph.stage("tasks", modelling.read_tasks, settings, {})}


PIPELINE = Pipeline(
    name="nl2plan",
    config=NL2PlanConfig,
    presets=PRESETS / "nl2plan",
    stages=nl2plan,
    session=speaking_session,
    results=nl2plan_results,
    reporting=Reporting(NL2PlanResults, nl2plan_report),
    check=check_speaker,
    estimate=cost_estimate,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the pipeline; return 0 when done, 1 when it failed, 2 for bad input."""
    return run_command(PIPELINE, argv)


if __name__ == "__main__":
    sys.exit(main())
