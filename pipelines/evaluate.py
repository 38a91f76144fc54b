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

from actors.endpoint import Answer
from pipelines.parts.command import read_run
from pipelines.parts.endpoint_policy import ANSWERS, FAILURES, check_failures, endpoint_trial
from pipelines.parts.evaluation_options import check_arguments, endpoint_of, evaluation_parser
from pipelines.parts.evaluation_output import Evaluation, Tried
from pipelines.parts.evaluation_stages import Arm
from pipelines.parts.folder_policy import FolderPolicy, FolderWorkers, engine_config, has_gpu
from pipelines.parts.own_problems import (
    GivenProblem,
    KnownNames,
    Trial,
    TrialConfig,
    own_stages,
    policy_trial,
    read_problems,
)
from pipelines.parts.problem_stages import read_domain
from pipelines.parts.ray_session import RaySession
from pipelines.parts.rollout_stages import Sampling
from pipelines.parts.workers import MODEL, Workers, policy_version
from pipelines.pddl_instruct import arms, pddl_instruct
from plansmith.config.basics import narrowed
from plansmith.config.cluster import ClusterConfig
from plansmith.config.models import PddlInstructConfig
from plansmith.config.planner import PlannerConfig
from plansmith.config.training import EngineNumerics
from plansmith.console import exit_code_of, set_up_logging
from plansmith.data.artifacts import KEY_DIGITS, Artifact, find_artifact
from plansmith.data.rows import ProblemRow
from plansmith.errors import BadInputError
from plansmith.evaluation.report import format_table
from plansmith.evaluation.results import Results
from plansmith.layout import printable
from plansmith.learning.hub import resolve_model
from plansmith.learning.models import load_tokenizer
from plansmith.pddl.model import Domain
from plansmith.pddl.parser import parse_domain

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
    sampling = Sampling(
        temperature=drawing.temperature, max_new_tokens=drawing.max_new_tokens, prompting=_prompting(run, arm)
    )
    trial = policy_trial(policy, sampling, narrowed(config.policy, EngineNumerics))
    root = run.folder / "evaluations"
    stages = own_stages([item.row for item in given], trial, planner=config.planner, seed=config.seed)
    with Workers(config, root) as workers:
        artifacts = workers.run(stages, root=root)
    return _as_tried(arm, policy, artifacts, given, trial, head=_head(run, policy, str(folder)))


def _as_tried(
    arm: str, policy: Any, artifacts: Mapping[str, Artifact], given: Sequence[GivenProblem], trial: Trial, **more: Any
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
    rows = [item.row for item in given]
    prompting = arguments.rendering or ("compact" if policy.is_word_level else "full")
    sampling = Sampling(temperature=arguments.temperature, max_new_tokens=arguments.max_new_tokens, prompting=prompting)
    dtype = arguments.dtype or ("bfloat16" if has_gpu() else "float32")
    engine = engine_config(policy, rows, sampling, dtype=dtype, n_threads=arguments.num_cpus)
    trial = policy_trial(policy, sampling, narrowed(engine, EngineNumerics))
    settings = config.model_copy(update={"policy": engine})
    with FolderWorkers(settings, arguments.store, seed=arguments.seed) as workers:
        artifacts = _run(arguments, rows, trial, workers, config.planner)
    name = policy.folder.name if Path(arguments.policy).exists() else arguments.policy
    head = {**_given_head(arguments, name), "policy_version": policy.key[:KEY_DIGITS]}
    return _as_tried(GIVEN_ARM, policy, artifacts, given, trial, head=head)


def _behind_endpoint(arguments: argparse.Namespace, domain: Domain, config: TrialConfig) -> Tried:
    given = read_problems(domain, arguments.problems, known=None, seed=arguments.seed)
    endpoint = endpoint_of(arguments)
    share, url = arguments.max_unjudged_share, endpoint.settings.base_url
    trial = endpoint_trial(endpoint, arguments.rendering or "full", max_unjudged_share=share)
    with RaySession(config, arguments.store) as session:
        artifacts = _run(arguments, [item.row for item in given], trial, session, config.planner)
    answers = artifacts["try_problems"].rows(Answer, ANSWERS)
    failures = artifacts["try_problems"].rows(Answer, FAILURES)
    check_failures(failures, len(answers) + len(failures), share, where=url)
    head = {**_given_head(arguments, endpoint.settings.model), "policy_version": endpoint.settings.model, "url": url}
    return _as_tried(
        GIVEN_ARM, endpoint, artifacts, given, trial, head=head,
        failures={answer.question_id: str(answer.fault) for answer in failures},
        tokens={answer.question_id: answer.completion_tokens or 0 for answer in answers},
    )  # fmt: skip


def _run(
    arguments: argparse.Namespace,
    rows: Sequence[ProblemRow],
    trial: Trial,
    session: RaySession,
    planner: PlannerConfig,
) -> dict[str, Artifact]:
    stages = own_stages(rows, trial, planner=None if arguments.no_planner else planner, seed=arguments.seed)
    return session.run(stages, root=arguments.store)


def _given_head(arguments: argparse.Namespace, name: str) -> dict[str, Any]:
    """Return what the JSON says of any other policy first."""
    said = ("seed", "domain", "problems", "temperature", "max_new_tokens")
    values = {name: getattr(arguments, name) for name in said}
    return {"policy": name} | {key: str(value) if isinstance(value, Path) else value for key, value in values.items()}


if __name__ == "__main__":
    sys.exit(main())
