#!/usr/bin/env python3
"""NL2Plan (arXiv 2405.04215): from a paragraph of text to a domain, a problem and a plan, step by step.

`nl2plan` is the paper's six steps and its evaluation as a list of durable stages; running the file, or ``plansmith run
nl2plan``, runs them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # found from any folder, as `ray job submit` starts it
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pipelines.commands.run import run_command
from pipelines.run.paths import PRESETS
from pipelines.stages import modelling, modelling_lessons
from pipelines.stages.generating import ASKING, GENERATION
from pipelines.stages.graph import Graph
from pipelines.stages.modelling import (
    GROWN,
    AgreementSettings,
    AskingSettings,
    PlanningSettings,
    ReadingSettings,
)
from pipelines.trials.speaking import check_speaker, cost_estimate, speaker_key, speaking_session
from plansmith.ablation.nl2plan_seeds import nl2plan_seeds_results
from plansmith.ablation.seeds import SeedsResults, as_it_is, of_one_variant
from plansmith.ablation.seeds_report import seeds_report
from plansmith.config.basics import narrowed
from plansmith.config.modelling import ModellingConfig
from plansmith.config.nl2plan import NL2PlanConfig
from plansmith.config.training import EngineNumerics
from plansmith.modelling import folder as files
from plansmith.modelling.growing import GROWING
from plansmith.modelling.products import (
    AT_ONCE,
    DRAFT,
    OF_DRAFT,
    ONE_CALL,
    RULES,
    ZERO_SHOT,
    DialogueStep,
)
from plansmith.modelling.prompts import prompts_digest
from plansmith.modelling.references import Reference
from plansmith.modelling.steps import PLANNING
from plansmith.pipeline import Ablation, OverSeeds, Pipeline, Reporting
from plansmith.report.nl2plan_report import nl2plan_report
from plansmith.report.nl2plan_results import NL2PlanResults, nl2plan_results
from plansmith.stages import Stage

ROOTS = (*ASKING, *GENERATION)
"""Code of those who answer, reached only through what the run lends; that of the script is in `speaker_key`."""


MADE_BY: dict[str, str] = {
    DialogueStep.TYPES: files.TYPES,
    DialogueStep.HIERARCHY: files.HIERARCHY,
    DialogueStep.ACTIONS: files.ACTIONS,
}
"""The file that a step makes; step 4 makes one of each action."""


def nl2plan(config: NL2PlanConfig) -> list[Stage[Any]]:
    """Return the stages in order; each names what it reads and every setting it depends on."""
    graph = Graph(config.seed)

    # The texts; beyond the paper, a model that learns the steps from nothing
    given = modelling_lessons.learnt_speaker(graph, config) if config.lessons else read_tasks(graph, config)
    tasks = given["tasks"]

    # Steps 1 to 6; beyond the paper, several times
    drafts = [Draft(graph, config, given, number) for number in range(1, config.drafts + 1)]
    made = drafts[0].made
    if config.lessons:
        compared = {"tasks": tasks, "prune": made["prune"]}
        graph.stage("compare_actions", modelling_lessons.compare_actions, None, compared)

    # The paper's baseline; beyond the paper, all in one call, the steps without their checks or without advice, and no
    # model at all; the verdict on all
    judged = {**made, "plan": drafts[0].planned}
    if config.zero_shot:
        judged[ZERO_SHOT] = drafts[0].at_once(DialogueStep.ZERO_SHOT)
    if config.one_call:
        judged |= drafts[0].planned_at_once()
    for arm, lacking in config.lacking.items():
        draft = Draft(graph, config.model_copy(update={"modelling": lacking}), given, 1, suffix=f"_{arm}")
        judged |= {arm: draft.planned, **modelling.of_arm(arm, draft.steps)}
    if config.rules:
        read = graph.stage(RULES, modelling.read_by_rules, None, {"tasks": tasks})
        judged |= planned_apart(graph, config, RULES, {"tasks": tasks, "answers": read})
    known = () if config.lessons else references(config)
    names = None if config.lessons else {own.name for own in known}
    said = modelling.read_verdicts(config.interpretations, names, known)
    for own in drafts[1:]:  # for the pages
        arm = f"{DRAFT}{own.number}"
        judged |= {arm: own.planned, **modelling.of_arm(arm, own.steps)}
    graph.stage("judge", modelling.judge, said, judged)
    if len(drafts) > 1:
        held = {f"{own.number} {name}": stage for own in drafts for name, stage in own.results.items()}
        comparing = AgreementSettings(**said.model_dump(), shares_domain=config.tasks.shares_domain)
        graph.stage("compare_drafts", modelling.compare_drafts, comparing, {"tasks": tasks, **held})
    return graph.stages


class Draft:
    """The steps taken once: what has been made by now, and in the end the plans.

    Args:
        graph: that gets the stages.
        config: of the run.
        given: the tasks, and where the run trains its speaker this one and its lessons.
        number: of the draft, from 1.
        suffix: of the names of its stages; empty for the first draft's own.
    """

    def __init__(
        self, graph: Graph, config: NL2PlanConfig, given: Mapping[str, Stage[Any]], number: int, *, suffix: str = ""
    ) -> None:
        self.number, self.made = number, dict(given)
        self._graph, self._config, self._given = graph, config, given
        self._suffix = suffix or ("" if number == 1 else f"{OF_DRAFT}{number}")
        known = None if config.lessons else {own.domain for own in references(config)}
        self._edits = modelling.read_edits(config.tasks.edits, known)

        # Steps 1 to 3: types, their hierarchy, actions in words
        for step in (DialogueStep.TYPES, DialogueStep.HIERARCHY, DialogueStep.ACTIONS):
            self.ask(step, step)

        # Step 4: every action in PDDL, twice; then what no action uses goes
        for turn in range(1, config.modelling.passes + 1):
            self.ask(f"construct_{turn}", DialogueStep.CONSTRUCTION, turn)
        self._stage("prune", modelling.prune, self._modelling, self.made)

        # Step 5, the problem, and step 6, the plan
        self.ask("task", DialogueStep.TASK)
        if config.modelling.grows:  # beyond the paper: the domain gets the words that problems lack
            self._stage(GROWN, modelling.grow, self._asking(GROWING), self.made, code_roots=ROOTS)
            self.ask("task_grown", DialogueStep.TASK)
        self.planned = self._plan("plan")

        # Beyond the paper: a model without a plan goes back to steps 4 and 5 with what stands in its way
        for turn in range(1, config.modelling.planner_feedback + 1):
            again = modelling.LookingAgainSettings(**self._asking(PLANNING).model_dump(), planner=config.planner)
            before = {**self.made, "plan": self.planned}
            self._stage(f"{modelling.LOOK_AGAIN}_{turn}", modelling.look_again, again, before, code_roots=ROOTS)
            self.planned = self._plan(f"plan_{turn}")

    @property
    def steps(self) -> dict[str, Stage[Any]]:
        """Return what was made."""
        return {name: own for name, own in self.made.items() if name not in self._given}

    @property
    def results(self) -> dict[str, Stage[Any]]:
        """Return what was made, and the plans."""
        return {**self.steps, "plan": self.planned}

    def ask(self, name: str, step: str, turn: int = 0) -> None:
        """Add a stage that takes every task through a step."""
        self._stage(name, modelling.take_step, self._asking(step, turn), self.made, code_roots=ROOTS)

    def at_once(self, step: DialogueStep) -> Stage[Any]:
        """Return the stage that asks for all at once: for plans, or for domains and problems."""
        given = {"tasks": self._given["tasks"]}
        if self._config.lessons is not None:
            given |= modelling_lessons.speaker_at_once(self._graph, self._config, step)
        return self._graph.stage(step, modelling.take_step, self._asking(step), given, code_roots=ROOTS)

    def planned_at_once(self) -> dict[str, Stage[Any]]:
        """Return the plans in what was written in one call, and this."""
        made = {"tasks": self._given["tasks"], "answers": self.at_once(DialogueStep.ONE_CALL)}
        return planned_apart(self._graph, self._config, ONE_CALL, made)

    def _asking(self, step: str, turn: int = 0) -> AskingSettings:
        config, is_straight, is_learnt = self._config, step in AT_ONCE, self._config.lessons is not None
        return AskingSettings(
            step=step,
            number=turn,
            draft=self.number,
            modelling=self._modelling,
            answers=config.answers,
            shares_domain=config.tasks.shares_domain and not is_straight,
            sees_whole=config.tasks.domain == "whole" and not is_straight,
            edits=self._edits_of(step, turn),
            who="" if is_learnt else speaker_key(config),
            engine=narrowed(config.policy, EngineNumerics) if is_learnt else None,
            prompts=prompts_digest(),
        )

    @property
    def _modelling(self) -> ModellingConfig:
        """Return what answers depend on: not on how often a task goes back, which is told by which stages there are."""
        return self._config.modelling.model_copy(update={"planner_feedback": 0})

    def _edits_of(self, step: str, turn: int) -> dict[str, dict[str, str]]:
        """Return the edits that take the place of what a step makes, by domain and file; of what goes back, all."""
        if step in (GROWING, PLANNING):
            return self._edits
        made = {**MADE_BY, DialogueStep.CONSTRUCTION: files.action_folder(turn)}.get(step)
        own = {
            domain: {name: text for name, text in edits.items() if made is not None and name.startswith(made)}
            for domain, edits in self._edits.items()
        }
        return {domain: edits for domain, edits in own.items() if edits}

    def _plan(self, name: str) -> Stage[Any]:
        config = self._config
        planning = PlanningSettings(planner=config.planner, shares_domain=config.tasks.shares_domain)
        return self._graph.stage(self._named(name), modelling.plan, planning, dict(self.made))

    def _stage(self, name: str, run: Any, settings: Any, inputs: Mapping[str, Stage[Any]], **options: Any) -> None:
        self.made[name] = self._graph.stage(self._named(name), run, settings, dict(inputs), **options)

    def _named(self, name: str) -> str:
        return f"{name}{self._suffix}"


def planned_apart(
    graph: Graph, config: NL2PlanConfig, arm: str, made: Mapping[str, Stage[Any]]
) -> dict[str, Stage[Any]]:
    """Return the plans in what an arm has made of each task by itself, and this, after adding the stage that plans."""
    planning = PlanningSettings(planner=config.planner, shares_domain=False)
    planned = graph.stage(f"plan_{arm}", modelling.plan, planning, dict(made))
    return {arm: planned, **modelling.of_arm(arm, {"answers": made["answers"]})}


def references(config: NL2PlanConfig) -> tuple[Reference, ...]:
    """Return the paper's tasks, or those of a folder."""
    return modelling.references_of(config.tasks.folder, config.tasks.domains)


def read_tasks(graph: Graph, config: NL2PlanConfig) -> dict[str, Stage[Any]]:
    """Return the paper's tasks, or those of a folder, after adding the stage that reads them."""
    settings = ReadingSettings(
        folder=config.tasks.folder,
        domains=config.tasks.domains,
        digest=modelling.references_digest(references(config)),
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
    ablation=Ablation(
        about="Run every arm over several seeds: the steps with and without their checks, and a plan straight from the "
        "text. Print how many are right, in domains learnt of and in others, with paired tests.",
        variants=as_it_is,
        results=of_one_variant(nl2plan_seeds_results),
        reporting=Reporting(SeedsResults, seeds_report, "ablation"),
        preset="laptop",
    ),
    over_seeds=OverSeeds(nl2plan_seeds_results, Reporting(SeedsResults, seeds_report, "seeds")),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the pipeline; return 0 when done, 1 when it failed, 2 for bad input."""
    return run_command(PIPELINE, argv)


if __name__ == "__main__":
    sys.exit(main())
