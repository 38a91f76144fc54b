"""The command `evaluate`: what a policy reaches, be it an arm of a run, a model folder, or a model behind an endpoint.

With ``--formalise`` at writing the problems of texts (`text_policy`, `own_texts`, `text_output`), else at plans.

Attempts are durable stages, keyed by the policy and the problems: the same command again costs nothing, and policies
share the planner's work. The parts are in `pipelines.trials`: `own_problems` has the stages, `folder_policy`
and `endpoint_policy` the policies of no run, `evaluation_output` what is printed and written.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pipelines.run.workers import MODEL, policy_version
from pipelines.stages.generating import check_failures
from pipelines.stages.phase1_data import read_domain
from pipelines.trials.endpoint_policy import EndpointSession
from pipelines.trials.folder_policy import FolderPolicy, FolderWorkers, engine_config
from pipelines.trials.options import (
    check_arguments,
    endpoint_of,
    evaluation_parser,
    is_address,
    planner_of,
    sampling_of,
)
from pipelines.trials.output import Evaluation, Tried
from pipelines.trials.own_problems import (
    GIVEN_ARM,
    AttemptSettings,
    GivenProblem,
    KnownNames,
    TrialConfig,
    domain_of_problems,
    own_stages,
    read_problems,
)
from pipelines.trials.text_output import show_texts, stored_texts
from pipelines.trials.text_policy import evaluate_texts
from plansmith.config.basics import narrowed
from plansmith.config.cluster import ClusterConfig
from plansmith.config.generation import EndpointModel, SamplingConfig
from plansmith.config.planner import PlannerConfig
from plansmith.config.training import EngineNumerics
from plansmith.console import exit_code_of, set_up_logging
from plansmith.data.artifacts import KEY_DIGITS, Artifact, StageKind, find_artifact
from plansmith.data.rows import FAILURES, USAGE, FailedRequestRow, ProblemRow, Split, UsageRow
from plansmith.errors import BadInputError
from plansmith.generation import asking
from plansmith.layout import printable
from plansmith.learning.hub import resolve_model
from plansmith.learning.models import load_tokenizer
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Domain
from plansmith.pipeline import Pipeline, RunRecord, find_pipeline
from plansmith.report.arms import FINAL, Arm, chosen_iteration
from plansmith.report.finished_stages import RunSoFar
from plansmith.report.render import format_tables
from plansmith.report.results import Results
from plansmith.report.tables import further_tables, level_table
from plansmith.stages import Stage
from plansmith.text.rendering import prompting_of


@dataclass(frozen=True)
class FinishedRun:
    """A run with what its stages left; settings are named as those of every pipeline with arms."""

    folder: Path
    preset: str
    pipeline: Pipeline[Any, Any]
    config: Any

    @classmethod
    def read(cls, folder: Path) -> FinishedRun:
        """Return the run in a folder.

        Raises:
            BadInputError: it holds none, or one whose pipeline is not there or reads other settings.
        """
        record = RunRecord.read(folder)
        pipeline = find_pipeline(record.pipeline)
        return cls(folder.resolve(), record.preset, pipeline, record.settings(pipeline.config))

    @cached_property
    def stages(self) -> Sequence[Stage[Any]]:
        """Return the stages of the run."""
        return self.pipeline.stages(self.config)

    @property
    def judges(self) -> dict[str, Stage[Any]]:
        """Return the stage that judges each arm's attempts; not of the final arm, whose attempts are another's."""
        return {
            stage.labels["arm"]: stage
            for stage in self.stages
            if stage.kind == StageKind.JUDGES and "arm" in stage.labels
        }

    @property
    def keeper(self) -> Stage[Any] | None:
        """Return the stage that keeps the final policy, if there is one."""
        return next((stage for stage in self.stages if stage.kind == StageKind.KEEPS), None)

    @property
    def arms(self) -> list[str]:
        """Return the names of all arms."""
        return [*self.judges, *([FINAL] if self.keeper else [])]

    @property
    def is_of_texts(self) -> bool:
        """Return whether its policies write the problems of texts."""
        return any(stage.kind == StageKind.JUDGES_TEXTS for stage in self.stages)

    def so_far(self) -> RunSoFar[Any]:
        """Return its settings with the artifacts of its finished stages."""
        found = {stage.name: artifact for stage in self.stages if (artifact := self.artifact(stage)) is not None}
        return RunSoFar(self.pipeline.name, self.config, self.preset, found)

    def artifact(self, stage: Stage[Any]) -> Artifact | None:
        """Return the artifact of a stage under the run's settings, or None while it is unfinished."""
        return find_artifact(self.folder / "artifacts", stage.name, stage.key)


def main(argv: Sequence[str] | None = None) -> int:
    """Evaluate one policy; return 0 when done, 1 when it failed, 2 for bad input."""
    parser = evaluation_parser()
    arguments = parser.parse_args(argv)
    if (arguments.run is None) == (arguments.policy is None):
        parser.error("give either a run folder or --policy")
    set_up_logging()
    return exit_code_of(lambda: _evaluate(arguments))


def _evaluate(arguments: argparse.Namespace) -> int:
    check_arguments(arguments)
    if arguments.formalise:
        return show_texts(evaluate_texts(arguments), arguments)
    if arguments.policy is not None:
        evaluation, preset = Evaluation.of(_given(arguments)), ""
        folder, name = arguments.store, str(evaluation.tried.head["policy"]).replace("/", "-")
    else:
        run, arm = FinishedRun.read(arguments.run), arguments.arm or FINAL
        if run.is_of_texts:
            return show_texts(stored_texts(run.so_far(), run.folder, arguments), arguments)
        tried = _stored(run, arm) if arguments.problems is None else _tried(run, arm, arguments.problems)
        evaluation, preset, folder, name = Evaluation.of(tried), run.preset, run.folder / "evaluations", arm
    out = arguments.out
    if out is None and arguments.problems is not None:
        out = folder / f"{name}-{evaluation.tried.arm.verdicts.key[:KEY_DIGITS]}.json"
    _say(evaluation, preset, arguments.show)
    if out is not None:
        evaluation.write(out)
        print(f"\nfigures and plans: {out}")
    return 0


def _say(evaluation: Evaluation, preset: str, n_shown: int) -> None:
    tried, head = evaluation.tried, evaluation.tried.head
    if "policy" in head:
        print(f"{GIVEN_ARM}: {head['policy']} (prompts: {tried.prompting})\n")
    name = str(head.get("run", GIVEN_ARM))
    results = Results(name, preset, int(head["seed"]), tried.level, {tried.arm.name: evaluation.figures})
    print(format_tables([*(level_table(results, level) for level in results.levels), *further_tables(results)]))
    for note in evaluation.notes():
        print(f"\n{note}")
    for text in evaluation.failed(n_shown):
        print(f"\n{printable(text)}")


# --- a run


def _arm_stages(run: FinishedRun, arm: str) -> tuple[Stage[Any], Stage[Any]]:
    """Return the stage of an arm's policy and the stage that judges its attempts.

    Raises:
        BadInputError: no such arm, or the run has not come so far.
    """
    if arm in run.judges:
        return run.judges[arm].inputs["rollouts"].inputs["policy"], run.judges[arm]
    if arm == FINAL and run.keeper is not None:
        (kept,) = _finished(run, arm, [run.keeper])
        chosen = run.keeper.inputs[f"policy_{chosen_iteration(kept)}"]
        judges = run.judges.values()
        return run.keeper, next(stage for stage in judges if stage.inputs["rollouts"].inputs["policy"] is chosen)
    close = difflib.get_close_matches(arm, run.arms, n=1)
    raise BadInputError("no such arm", where=str(run.folder), got=repr(arm),
                        expected=f"one of {', '.join(run.arms)}" if run.arms else "a pipeline that has arms",
                        cure=f"did you mean {close[0]}?" if close else "say which: --arm")  # fmt: skip


def _finished(run: FinishedRun, arm: str, stages: Sequence[Stage[Any]]) -> list[Artifact]:
    """Return the artifacts of stages that an arm needs.

    Raises:
        BadInputError: the run has not come that far.
    """
    found = {stage.name: run.artifact(stage) for stage in stages}
    lacking = [name for name, artifact in found.items() if artifact is None]
    if lacking:
        policies = {name: judge.inputs["rollouts"].inputs["policy"] for name, judge in run.judges.items()}
        done = [name for name, policy in policies.items() if run.artifact(policy) is not None]
        raise BadInputError(
            f"the arm {arm} is not finished", where=str(run.folder), got=f"no result of {', '.join(lacking)}",
            expected=f"an arm whose policy is finished: {', '.join(done)}" if done else "a run with a finished policy",
            cure=f"finish the run: plansmith run {run.pipeline.name} --resume --name {run.config.name} "
            f"--runs {run.folder.parent}",
        )  # fmt: skip
    return [artifact for artifact in found.values() if artifact is not None]


def _head(run: FinishedRun, policy: Artifact, problems: str) -> dict[str, Any]:
    return {"run": run.config.name, "preset": run.preset, "seed": run.config.seed,
            "policy_version": policy_version(policy), "problems": problems}  # fmt: skip


def _stored(run: FinishedRun, arm: str) -> Tried:
    """Return the attempts at the test problems that the run itself made."""
    policy_stage, judge = _arm_stages(run, arm)
    tried, drawn = judge.inputs["rollouts"], judge.inputs["problems"]
    found = _finished(run, arm, (policy_stage, tried, judge, drawn, tried.inputs["plans"]))
    head, rows = _head(run, found[0], "test problems of the run"), found[3].rows(ProblemRow)
    level = getattr(run.config, "primary_level", None) or next(row.level for row in rows if row.split == Split.TEST)
    return Tried(Arm(arm, *found), prompting=judge.labels["prompting"], level=level, head=head, is_own=False)


def _tried(run: FinishedRun, arm: str, folder: Path) -> Tried:
    """Return an arm's attempts at every problem of a folder; what is already done is read, not done again."""
    config = run.config
    policy_stage, judge = _arm_stages(run, arm)
    policy, drawn = _finished(run, arm, (policy_stage, judge.inputs["problems"]))
    known = KnownNames.of(load_tokenizer(str(policy.path(MODEL))), config.problems.object_names)
    domain = domain_of_problems((row.domain_pddl for row in drawn.rows(ProblemRow)), folder)
    given = read_problems(domain, folder, known=known, seed=config.seed)
    drawing = config.evaluation
    trial = AttemptSettings(
        sampling=SamplingConfig(temperature=drawing.temperature, max_new_tokens=drawing.max_new_tokens),
        engine=narrowed(config.policy, EngineNumerics),
        prompting=judge.labels["prompting"],
        policy=policy.key,
    )
    root, rows = run.folder / "evaluations", [item.row for item in given]
    with run.pipeline.session(config, root) as session:
        stages = own_stages(rows, trial, policy=policy, planner=config.planner, seed=config.seed)
        artifacts = session.run(stages, root=root)
    return _as_tried(arm, policy, artifacts, given, trial, head=_head(run, policy, str(folder)))


def _as_tried(
    arm: str,
    policy: Any,
    artifacts: Mapping[str, Artifact],
    given: Sequence[GivenProblem],
    trial: AttemptSettings,
    **more: Any,
) -> Tried:
    """Return what the stages left of a trial on problems of the user's own."""
    names = ("try_problems", "judge_plans", "read_problems", "solve_problems")
    return Tried(
        arm=Arm(arm, policy, *(artifacts[name] for name in names)),
        prompting=trial.prompting,
        level=given[0].row.level,
        object_of={item.row.problem_id: item.object_of for item in given},
        **more,
    )


# --- any other policy


def _given(arguments: argparse.Namespace) -> Tried:
    """Return the attempts of a model folder, or of a model behind an endpoint."""
    domain = read_domain(str(arguments.domain))
    config = TrialConfig(planner=planner_of(arguments), cluster=ClusterConfig(num_cpus=arguments.num_cpus))
    if is_address(arguments.policy):
        return _behind_endpoint(arguments, domain, config)
    return _in_folder(arguments, domain, config)


def _in_folder(arguments: argparse.Namespace, domain: Domain, config: TrialConfig) -> Tried:
    policy = FolderPolicy.read(resolve_model(arguments.policy))
    known = KnownNames.of(policy.tokenizer, arguments.object_names) if policy.is_word_level else None
    given = read_problems(domain, arguments.problems, known=known, seed=arguments.seed)
    prompting = arguments.rendering or ("compact" if policy.is_word_level else "full")
    rows, prompts = [item.row for item in given], prompting_of(prompting)
    asked = {
        row.problem_id: asking(prompts.plan_prompt(PlanningTask.from_text(row.domain_pddl, row.problem_pddl)))
        for row in rows
    }
    sampling = sampling_of(arguments)
    engine = engine_config(
        policy, asked, room=sampling.max_new_tokens, dtype=arguments.dtype, n_threads=arguments.num_cpus
    )
    trial = AttemptSettings(
        sampling=sampling, engine=narrowed(engine, EngineNumerics), prompting=prompting, policy=policy.key
    )
    settings = config.model_copy(update={"policy": engine})
    with FolderWorkers(settings, arguments.store, seed=arguments.seed) as workers:
        stages = own_stages(rows, trial, policy=policy, planner=_planner(arguments, config), seed=arguments.seed)
        artifacts = workers.run(stages, root=arguments.store)
    name = policy.folder.name if Path(arguments.policy).exists() else arguments.policy
    head = {**_given_head(arguments, name), "policy_version": policy.key[:KEY_DIGITS]}
    return _as_tried(GIVEN_ARM, policy, artifacts, given, trial, head=head)


def _behind_endpoint(arguments: argparse.Namespace, domain: Domain, config: TrialConfig) -> Tried:
    given = read_problems(domain, arguments.problems, known=None, seed=arguments.seed)
    endpoint = endpoint_of(arguments)
    share, rows = arguments.max_unjudged_share, [item.row for item in given]
    trial = AttemptSettings(
        sampling=sampling_of(arguments),
        engine=narrowed(endpoint, EndpointModel),
        prompting=arguments.rendering or "full",
        max_failed_share=share,
    )
    with EndpointSession(config, arguments.store, endpoint=endpoint) as session:
        stages = own_stages(rows, trial, policy=None, planner=_planner(arguments, config), seed=arguments.seed)
        artifacts = session.run(stages, root=arguments.store)
    usage = artifacts["try_problems"].rows(UsageRow, USAGE)
    failures = artifacts["try_problems"].rows(FailedRequestRow, FAILURES)
    check_failures(failures, len(usage) + len(failures), share, where=endpoint.url)
    head = {**_given_head(arguments, endpoint.model), "policy_version": endpoint.model, "url": endpoint.url}
    return _as_tried(
        GIVEN_ARM, endpoint, artifacts, given, trial, head=head,
        failures={row.problem_id: row.fault for row in failures},
        tokens={row.problem_id: row.completion_tokens or 0 for row in usage},
    )  # fmt: skip


def _planner(arguments: argparse.Namespace, config: TrialConfig) -> PlannerConfig | None:
    return None if arguments.no_planner else config.planner


def _given_head(arguments: argparse.Namespace, name: str) -> dict[str, Any]:
    """Return what the JSON says of any other policy first."""
    said = ("seed", "domain", "problems", "temperature", "max_new_tokens")
    values = {name: getattr(arguments, name) for name in said}
    return {"policy": name} | {key: str(value) if isinstance(value, Path) else value for key, value in values.items()}
