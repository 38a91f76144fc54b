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
from pipelines.stages import modelling
from pipelines.stages.generating import ASKING, GENERATION
from pipelines.stages.graph import Graph
from pipelines.stages.modelling import AskingSettings, PlanningSettings, ReadingSettings, VerdictSettings
from pipelines.trials.speaking import SpeakingSession, check_speaker, cost_estimate, speaker_key
from plansmith.config.nl2plan import NL2PlanConfig
from plansmith.modelling.products import DialogueStep
from plansmith.modelling.prompts import prompts_digest
from plansmith.pipeline import Pipeline, Reporting
from plansmith.report.nl2plan_report import nl2plan_report
from plansmith.report.nl2plan_results import NL2PlanResults, nl2plan_results
from plansmith.stages import Stage

ROOTS = (*ASKING, *GENERATION, "plansmith.modelling.script.ScriptedGenerator")
"""Code of those who answer, reached only through what the run lends."""


def nl2plan(config: NL2PlanConfig) -> list[Stage[Any]]:
    """Return the stages in order; each names what it reads and every setting it depends on."""
    graph = Graph(config.seed)
    references = modelling.references_of(config.tasks.folder, config.tasks.domains)
    reading = ReadingSettings(
        folder=config.tasks.folder,
        domains=config.tasks.domains,
        digest=modelling.references_digest(references),
    )
    tasks = graph.stage("tasks", modelling.read_tasks, reading, {})
    made: dict[str, Stage[Any]] = {"tasks": tasks}
    who = speaker_key(config)

    def ask(name: str, step: str, number: int = 0) -> None:
        settings = AskingSettings(
            step=step,
            number=number,
            modelling=config.modelling,
            answers=config.answers,
            shares_domain=config.tasks.shares_domain,
            who=who,
            prompts=prompts_digest(),
        )
        made[name] = graph.stage(name, modelling.take_step, settings, dict(made), code_roots=ROOTS)

    # Steps 1 to 3: types, their hierarchy, actions in words
    for step in (DialogueStep.TYPES, DialogueStep.HIERARCHY, DialogueStep.ACTIONS):
        ask(step, step)

    # Step 4: every action in PDDL, twice; then what no action uses goes
    for number in range(1, config.modelling.passes + 1):
        ask(f"construct_{number}", DialogueStep.CONSTRUCTION, number)
    made["prune"] = graph.stage("prune", modelling.prune, config.modelling, dict(made))

    # Step 5, the problem, and step 6, the plan
    ask("task", DialogueStep.TASK)
    planning = PlanningSettings(planner=config.planner, shares_domain=config.tasks.shares_domain)
    planned = graph.stage("plan", modelling.plan, planning, dict(made))

    # The paper's baseline, and the verdict on both
    if config.zero_shot:
        settings_of = {"tasks": tasks}
        asking = AskingSettings(
            step=DialogueStep.ZERO_SHOT,
            modelling=config.modelling,
            answers=config.answers,
            shares_domain=False,
            who=who,
            prompts=prompts_digest(),
        )
        made[modelling.ZERO_SHOT] = graph.stage(
            modelling.ZERO_SHOT, modelling.take_step, asking, settings_of, code_roots=ROOTS
        )
    said = VerdictSettings(interpretations=modelling.read_interpretations(config.interpretations))
    graph.stage("judge", modelling.judge, said, {**made, "plan": planned})
    return graph.stages


PIPELINE = Pipeline(
    name="nl2plan",
    config=NL2PlanConfig,
    presets=PRESETS / "nl2plan",
    stages=nl2plan,
    session=SpeakingSession,
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
