#!/usr/bin/env python3
"""The command `evaluate`: the stored figures of one arm of a run, or its policy tried on problems of your own.

Attempts at your own problems are durable stages under ``RUN/evaluations``, keyed by the weights and the problems: the
same command again costs nothing, and two arms share the planner's work.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # found from any folder
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pipelines.parts.command import read_run
from pipelines.parts.evaluation_stages import Arm, evaluated_problems
from pipelines.parts.feedback_stages import Sampling, judge, sample_rollouts
from pipelines.parts.problem_stages import problem_paths, solved_problems, synthesize_plans
from pipelines.parts.workers import MODEL, Workers, policy_version
from pipelines.pddl_instruct import arms, pddl_instruct
from plansmith.config.models import PddlInstructConfig
from plansmith.console import exit_code_of, set_up_logging
from plansmith.data.artifacts import KEY_DIGITS, Artifact, find_artifact
from plansmith.data.rows import PlanRow, ProblemRow, Split, VerdictRow
from plansmith.data.sampling import draw_problems, problem_row
from plansmith.data.storage import atomic_file, storage_errors
from plansmith.errors import BadInputError
from plansmith.evaluation.metrics import ArmResult, EvaluatedProblem, summarise_arm
from plansmith.evaluation.report import format_table
from plansmith.evaluation.results import Results
from plansmith.learning.models import load_tokenizer
from plansmith.learning.tokenizer import encode
from plansmith.pddl.cases import read_text
from plansmith.pddl.model import Domain, Problem
from plansmith.pddl.parser import parse_domain, parse_problem
from plansmith.problems.renaming import random_renaming, rename_problem
from plansmith.stages import Stage, StageContext, row_seed, run_stages


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


@dataclass(frozen=True)
class GivenProblem:
    """A problem of the user's as the policy sees it, and the objects that stand behind its names."""

    row: ProblemRow
    object_of: Mapping[str, str]


@dataclass(frozen=True)
class Attempts:
    """One arm's attempts at one set of problems."""

    arm: Arm
    problems: Artifact
    plans: Artifact
    primary_level: str
    about: str
    object_of: Mapping[str, Mapping[str, str]]
    """The user's object by the name it got, for each problem that was renamed."""


def main(argv: Sequence[str] | None = None) -> int:
    """Evaluate one arm of a run; return 0 when done, 1 when it failed, 2 for bad input."""
    arguments = _parser().parse_args(argv)
    set_up_logging()
    return exit_code_of(lambda: _evaluate(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="plansmith evaluate",
        description="Show what a policy of a run reached, or let it try problems of your own.",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder, such as runs/demo")
    parser.add_argument("--arm", default="final", help="untrained, phase1, iteration_1, ..., or final (default)")
    parser.add_argument("--problems", type=Path, metavar="DIR", help="PDDL problems of the run's domain to try; "
                        "default: show the stored figures on the run's test problems")  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="where to write figures and attempts as JSON; "
                        "with --problems, default: RUN/evaluations/ARM-KEY.json")  # fmt: skip
    return parser


def _evaluate(arguments: argparse.Namespace) -> int:
    config, preset = read_run(arguments.run)
    run = FinishedRun(arguments.run.resolve(), preset, config)
    if arguments.out is not None and not arguments.out.absolute().parent.is_dir():
        raise BadInputError("no folder for the JSON file", where=str(arguments.out), cure="make it, or change --out")
    attempts = (
        _stored(run, arguments.arm) if arguments.problems is None else _tried(run, arguments.arm, arguments.problems)
    )
    evaluated = evaluated_problems(attempts.arm, attempts.problems, attempts.plans)
    figures = summarise_arm(arguments.arm, evaluated, primary_level=attempts.primary_level)
    print(format_table(Results(config.name, preset, config.seed, attempts.primary_level, {arguments.arm: figures})))
    out = arguments.out
    if out is None and arguments.problems is not None:
        out = run.folder / "evaluations" / f"{arguments.arm}-{attempts.arm.verdicts.key[:KEY_DIGITS]}.json"
    if out is not None:
        _write_json(out, run, figures, attempts, evaluated)
        print(f"\nfigures and plans: {out}")
    return 0


# --- what the run left


def _arm_stages(run: FinishedRun, arm: str) -> tuple[str, str]:
    """Return the stage of an arm's policy and the name of its evaluation."""
    known = arms(run.config)
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
        done = [name for name, (policy, _) in arms(run.config).items() if run.artifact(policy) is not None]
        raise BadInputError(
            f"the arm {arm} is not finished", where=str(run.folder), got=f"no result of {', '.join(lacking)}",
            expected=f"an arm whose policy is finished: {', '.join(done)}" if done else "a run with a finished policy",
            cure=f"finish the run: plansmith run pddl_instruct --resume --name {run.config.name} "
            f"--runs {run.folder.parent}",
        )  # fmt: skip
    return [artifact for artifact in found.values() if artifact is not None]


def _stored(run: FinishedRun, arm: str) -> Attempts:
    """Return the attempts at the test problems that the run itself made."""
    policy_stage, evaluation = _arm_stages(run, arm)
    names = (policy_stage, f"try_{evaluation}", f"judge_{evaluation}", "sample_problems", "synthesize_plans")
    policy, rollouts, verdicts, problems, plans = _finished(run, arm, names)
    level = run.config.problems.primary_level
    return Attempts(Arm(arm, policy, rollouts, verdicts), problems, plans, level, "test problems of the run", {})


# --- problems of the user's own


def _tried(run: FinishedRun, arm: str, folder: Path) -> Attempts:
    """Return the attempts at every problem of a folder; what is already done is read, not done again."""
    policy, drawn = _finished(run, arm, (_arm_stages(run, arm)[0], "sample_problems"))
    domain = parse_domain(drawn.rows(ProblemRow)[0].domain_pddl)
    given = read_problems(run.config, policy, domain, folder)
    stages = {stage.name: stage for stage in own_stages(run.config, policy, [problem.row for problem in given])}
    root = run.folder / "evaluations"
    with Workers(run.config, root) as workers:
        artifacts = run_stages(list(stages.values()), root=root, resources=workers)
    return Attempts(
        arm=Arm(arm, policy, artifacts["try_problems"], artifacts["judge_plans"]),
        problems=artifacts["read_problems"],
        plans=artifacts["solve_problems"],
        primary_level=given[0].row.level,
        about=str(folder),
        object_of={problem.row.problem_id: problem.object_of for problem in given},
    )


def own_stages(config: PddlInstructConfig, policy: Artifact, rows: Sequence[ProblemRow]) -> list[Stage]:
    """Return the stages that solve, try and judge problems; the policy is named by its key."""

    def stage(name: str, run: Callable[[StageContext], None], settings: Mapping[str, Any], **inputs: Stage) -> Stage:
        return Stage(name=name, run=run, settings=settings, inputs=inputs, seed=config.seed)

    def write_problems(context: StageContext) -> None:
        context.output.write_rows(rows, ProblemRow)

    digest = hashlib.sha256(json.dumps([asdict(row) for row in rows], sort_keys=True).encode()).hexdigest()
    problems = stage("read_problems", write_problems, {"problems": digest})
    plans = stage("solve_problems", synthesize_plans, {"planner": config.planner}, problems=problems)
    attempt = {"policy": policy.key, "rendering": config.rendering, "evaluation": config.evaluation.sampling(),
               "dtype": config.policy.dtype}  # fmt: skip
    tried = stage("try_problems", partial(_try_problems, policy=policy), attempt, problems=problems, plans=plans)
    judged = stage("judge_plans", judge, {}, rollouts=tried, problems=problems)
    return [problems, plans, tried, judged]


def _try_problems(context: StageContext, policy: Artifact) -> None:
    """Let the policy try every problem for which there is a plan to find."""
    config: PddlInstructConfig = context.resources.config
    rows = solved_problems(context.inputs["problems"], context.inputs["plans"], Split.TEST)
    if not rows:
        raise BadInputError("nothing to try", got="no problem for which the planner found a plan of one step or more",
                            expected="solvable problems", cure="give other problems")  # fmt: skip
    sampling = Sampling(1, config.evaluation.temperature, config.evaluation.max_new_tokens, iteration=0)
    with_policy = replace(context, inputs={**context.inputs, "policy": policy})
    sample_rollouts(with_policy, rows, sampling, description="trying problems")


def read_problems(config: PddlInstructConfig, policy: Artifact, domain: Domain, folder: Path) -> list[GivenProblem]:
    """Return the problems of a folder, their objects renamed where the model does not know their names.

    Raises:
        BadInputError: no problems, a mistake in one, or more objects than the model knows names for.
    """
    tokenizer = load_tokenizer(str(policy.path(MODEL)))

    def is_known(name: str) -> bool:
        return tokenizer.unk_token_id is None or tokenizer.unk_token_id not in encode(tokenizer, name)

    constants = {constant.name for constant in domain.constants}
    pool = [name for name in config.problems.object_names if is_known(name) and name not in constants]
    given = []
    for path in problem_paths(folder):
        problem = parse_problem(read_text(path), domain, source=str(path))
        names = [item.name for item in problem.objects]
        renaming: dict[str, str] = {}
        if not all(map(is_known, names)):
            renaming, problem = _renamed(problem, pool, path, random.Random(row_seed(config.seed, "names", path.name)))
        [item] = draw_problems(domain, [problem])
        row = problem_row(domain, item, level=folder.resolve().name, split=Split.TEST, source=path.name)
        back = {name: old for old, name in renaming.items()}
        given.append(GivenProblem(replace(row, problem_id=path.stem), back))  # a file is a problem, whatever it repeats
    return given


def _renamed(problem: Problem, pool: Sequence[str], path: Path, rng: random.Random) -> tuple[dict[str, str], Problem]:
    if len(problem.objects) > len(pool):
        raise BadInputError("more objects than the model knows names for", where=str(path),
                            got=f"{len(problem.objects)} objects", expected=f"{len(pool)} at most: {' '.join(pool)}",
                            cure="leave this problem out, or train with more problems.object_names")  # fmt: skip
    renaming = random_renaming(problem, pool, rng)
    return renaming, rename_problem(problem, renaming, rng)


# --- JSON


def _write_json(
    out: Path, run: FinishedRun, figures: ArmResult, attempts: Attempts, evaluated: Sequence[EvaluatedProblem]
) -> None:
    content = {
        "run": run.config.name,
        "preset": run.preset,
        "seed": run.config.seed,
        "policy_version": policy_version(attempts.arm.policy),
        "problems": attempts.about,
        **asdict(figures),
        "attempts": _attempts_as_json(attempts, evaluated),
        "without_a_plan": [row.problem_id for row in attempts.plans.rows(PlanRow) if row.status != "solved"],
    }
    with storage_errors(out.parent), atomic_file(out) as file:
        file.write((json.dumps(content, indent=2, allow_nan=False) + "\n").encode())


def _attempts_as_json(attempts: Attempts, evaluated: Sequence[EvaluatedProblem]) -> list[dict[str, Any]]:
    """Return each attempt with both plans, in the names of the problem's file."""
    planner_plan = {row.problem_id: row.plan for row in attempts.plans.rows(PlanRow)}
    plan = {row.problem_id: row.plan for row in attempts.arm.verdicts.rows(VerdictRow)}

    def in_own_names(problem_id: str, steps: Sequence[str]) -> list[str]:
        object_of = attempts.object_of.get(problem_id, {})
        words = [step.strip("()").split() for step in steps]  # a policy's step need not be PDDL
        return [f"({' '.join([*step[:1], *(object_of.get(name, name) for name in step[1:])])})" for step in words]

    return [
        {
            "problem": item.problem_id,
            "level": item.level,
            "is_valid": item.is_valid,
            "error_class": item.error_class,
            "plan": in_own_names(item.problem_id, plan[item.problem_id]),
            "planner_plan": in_own_names(item.problem_id, planner_plan[item.problem_id]),
            "tokens": item.completion_tokens,
        }
        for item in evaluated
    ]


if __name__ == "__main__":
    sys.exit(main())
