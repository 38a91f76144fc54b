#!/usr/bin/env python3
"""The command `evaluate`: what a policy reaches, be it an arm of a run, a model folder, or a model behind an endpoint.

Attempts are durable stages, keyed by the policy and the problems: the same command again costs nothing, and policies
share the planner's work. The parts are in `pipelines.parts`: `own_problems` has the stages, `folder_policy`
and `endpoint_policy` the policies of no run, `evaluation_output` what is printed and written.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # found from any folder
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pipelines.parts.command import read_run
from pipelines.parts.endpoint_policy import EndpointSession
from pipelines.parts.evaluation_options import check_arguments, endpoint_of, evaluation_parser
from pipelines.parts.evaluation_output import Evaluation, Tried
from pipelines.parts.evaluation_stages import Arm
from pipelines.parts.folder_policy import FolderPolicy, FolderWorkers, engine_config
from pipelines.parts.generating import FAILURES, USAGE, check_failures
from pipelines.parts.own_problems import (
    AttemptSettings,
    GivenProblem,
    KnownNames,
    TrialConfig,
    own_stages,
    read_problems,
)
from pipelines.parts.problem_stages import read_domain
from pipelines.parts.workers import MODEL, Workers, policy_version
from pipelines.pddl_instruct import arms, pddl_instruct
from plansmith.config.basics import narrowed
from plansmith.config.cluster import ClusterConfig
from plansmith.config.generation import EndpointModel, SamplingConfig
from plansmith.config.loading import build_model
from plansmith.config.models import PddlInstructConfig
from plansmith.config.planner import PlannerConfig
from plansmith.config.training import EngineNumerics
from plansmith.console import exit_code_of, set_up_logging
from plansmith.data.artifacts import KEY_DIGITS, Artifact, find_artifact
from plansmith.data.rows import FailedRequestRow, ProblemRow, UsageRow
from plansmith.errors import BadInputError
from plansmith.evaluation.report import format_table
from plansmith.evaluation.results import Results
from plansmith.generation import asking
from plansmith.layout import printable
from plansmith.learning.hub import resolve_model
from plansmith.learning.models import load_tokenizer
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Domain
from plansmith.pddl.parser import parse_domain
from plansmith.text.rendering import prompting_of

GIVEN_ARM = "policy"
"""What the table calls a policy that is no arm of a run."""


@dataclass(frozen=True)
class FinishedRun:
    """A run with what its stages left."""

    folder: Path
    preset: str
    config: PddlInstructConfig

    def artifact(self, stage_name: str) -> Artifact | None:
        """Return the artifact of a stage under the run's settings, or None while it is unfinished."""
        stage = next(stage for stage in pddl_instruct(self.config) if stage.name == stage_name)
        return find_artifact(self.folder / "artifacts", stage.name, stage.key)

    def arms(self) -> dict[str, tuple[str, str]]:
        """Return the stage of each arm's policy and the name of its evaluation."""
        return arms(self.config, self.artifact("final_policy"))


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
    if arguments.policy is not None:
        evaluation, preset = Evaluation.of(_given(arguments)), ""
        folder, name = arguments.store, str(evaluation.tried.head["policy"]).replace("/", "-")
    else:
        config, preset = read_run(arguments.run)
        run, arm = FinishedRun(arguments.run.resolve(), preset, config), arguments.arm or "final"
        tried = _stored(run, arm) if arguments.problems is None else _tried(run, arm, arguments.problems)
        evaluation, folder, name = Evaluation.of(tried), run.folder / "evaluations", arm
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
    figures = {tried.arm.name: evaluation.figures}
    print(format_table(Results(name, preset, int(head["seed"]), tried.level, figures)))
    for note in evaluation.notes():
        print(f"\n{note}")
    for text in evaluation.failed(n_shown):
        print(f"\n{printable(text)}")


# --- a run


def _arm_stages(run: FinishedRun, arm: str) -> tuple[str, str]:
    """Return the stage of an arm's policy and the name of its evaluation."""
    known = run.arms()
    if arm not in known:
        close = difflib.get_close_matches(arm, known, n=1)
        raise BadInputError("no such arm", where=str(run.folder), got=repr(arm), expected=f"one of {', '.join(known)}",
                            cure=f"did you mean {close[0]}?" if close else None)  # fmt: skip
    return known[arm]


def _finished(run: FinishedRun, arm: str, stage_names: Sequence[str]) -> list[Artifact]:
    """Return the artifacts of stages that an arm needs.

    Raises:
        BadInputError: the run has not come that far.
    """
    found = {name: run.artifact(name) for name in stage_names}
    lacking = [name for name, artifact in found.items() if artifact is None]
    if lacking:
        done = [name for name, (policy, _) in run.arms().items() if run.artifact(policy) is not None]
        raise BadInputError(
            f"the arm {arm} is not finished", where=str(run.folder), got=f"no result of {', '.join(lacking)}",
            expected=f"an arm whose policy is finished: {', '.join(done)}" if done else "a run with a finished policy",
            cure=f"finish the run: plansmith run pddl_instruct --resume --name {run.config.name} "
            f"--runs {run.folder.parent}",
        )  # fmt: skip
    return [artifact for artifact in found.values() if artifact is not None]


def _prompting(run: FinishedRun, arm: str) -> str:
    """Return how an arm was asked."""
    baselines = {f"untrained_{name}": name for name in run.config.evaluation.baseline_prompts}
    return baselines.get(arm, run.config.rendering)


def _head(run: FinishedRun, policy: Artifact, problems: str) -> dict[str, Any]:
    return {"run": run.config.name, "preset": run.preset, "seed": run.config.seed,
            "policy_version": policy_version(policy), "problems": problems}  # fmt: skip


def _stored(run: FinishedRun, arm: str) -> Tried:
    """Return the attempts at the test problems that the run itself made."""
    policy_stage, evaluation = _arm_stages(run, arm)
    names = (policy_stage, f"try_{evaluation}", f"judge_{evaluation}", "sample_problems", "synthesize_plans")
    policy, rollouts, verdicts, problems, plans = _finished(run, arm, names)
    head, level = _head(run, policy, "test problems of the run"), run.config.primary_level
    found = Arm(arm, policy, rollouts, verdicts)
    return Tried(found, problems, plans, prompting=_prompting(run, arm), level=level, head=head, is_own=False)


def _tried(run: FinishedRun, arm: str, folder: Path) -> Tried:
    """Return an arm's attempts at every problem of a folder; what is already done is read, not done again."""
    config = run.config
    policy, drawn = _finished(run, arm, (_arm_stages(run, arm)[0], "sample_problems"))
    known = KnownNames.of(load_tokenizer(str(policy.path(MODEL))), config.problems.object_names)
    domain = parse_domain(drawn.rows(ProblemRow)[0].domain_pddl)
    given = read_problems(domain, folder, known=known, seed=config.seed)
    drawing = config.evaluation
    trial = AttemptSettings(
        sampling=SamplingConfig(temperature=drawing.temperature, max_new_tokens=drawing.max_new_tokens),
        engine=narrowed(config.policy, EngineNumerics),
        prompting=_prompting(run, arm),
        policy=policy.key,
    )
    root, rows = run.folder / "evaluations", [item.row for item in given]
    with Workers(config, root) as workers:
        stages = own_stages(rows, trial, policy=policy, planner=config.planner, seed=config.seed)
        artifacts = workers.run(stages, root=root)
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
    return Tried(
        arm=Arm(arm, policy, artifacts["try_problems"], artifacts["judge_plans"]),
        problems=artifacts["read_problems"],
        plans=artifacts["solve_problems"],
        prompting=trial.prompting,
        level=given[0].row.level,
        object_of={item.row.problem_id: item.object_of for item in given},
        **more,
    )


# --- any other policy


def _given(arguments: argparse.Namespace) -> Tried:
    """Return the attempts of a model folder, or of a model behind an endpoint."""
    domain = read_domain(str(arguments.domain))
    limit_s = arguments.planner_time_s
    planner = PlannerConfig(search=arguments.planner_search, time_limit_s=limit_s, kill_after_s=limit_s + 10)
    config = TrialConfig(planner=planner, cluster=ClusterConfig(num_cpus=arguments.num_cpus))
    if arguments.policy.startswith(("http://", "https://")):
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
    sampling = _sampling(arguments)
    engine = engine_config(policy, asked, sampling, dtype=arguments.dtype, n_threads=arguments.num_cpus)
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
        sampling=_sampling(arguments),
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


def _sampling(arguments: argparse.Namespace) -> SamplingConfig:
    drawn = {"temperature": arguments.temperature, "max_new_tokens": arguments.max_new_tokens}
    return build_model(SamplingConfig, drawn, where="the command line")


def _planner(arguments: argparse.Namespace, config: TrialConfig) -> PlannerConfig | None:
    return None if arguments.no_planner else config.planner


def _given_head(arguments: argparse.Namespace, name: str) -> dict[str, Any]:
    """Return what the JSON says of any other policy first."""
    said = ("seed", "domain", "problems", "temperature", "max_new_tokens")
    values = {name: getattr(arguments, name) for name in said}
    return {"policy": name} | {key: str(value) if isinstance(value, Path) else value for key, value in values.items()}


if __name__ == "__main__":
    sys.exit(main())
