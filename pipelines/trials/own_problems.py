"""Problems of the user's own: read from a folder, solved for reference, tried by a policy, judged.

Each of the four is a durable stage, whoever the policy is: the arm of a run, a model folder (`folder_policy`), or a
model behind an endpoint (`endpoint_policy`).
"""

from __future__ import annotations

import logging
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pipelines.stages.generating import ASKING, GENERATION, GenerationSettings, sample_rollouts
from pipelines.stages.given import given_row, problems_stage
from pipelines.stages.graph import Graph
from pipelines.stages.judging import JudgingSettings, judge_plans
from pipelines.stages.phase1_data import synthesize_plans
from plansmith.config.basics import StrictModel
from plansmith.config.cluster import ClusterConfig
from plansmith.config.planner import PlannerConfig
from plansmith.config.training import PolicyConfig
from plansmith.data.artifacts import Artifact
from plansmith.data.rows import PlanRow, ProblemRow
from plansmith.errors import BadInputError
from plansmith.learning.tokenizer import encode
from plansmith.pddl.cases import read_text
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Domain, Problem
from plansmith.pddl.parser import parse_domain, parse_problem
from plansmith.planners import PlannerStatus
from plansmith.problems.renaming import random_renaming, rename_problem
from plansmith.stages import Stage, StageContext, row_seed

logger = logging.getLogger(__name__)

GIVEN_ARM = "policy"
"""What tables call a policy that is no arm of a run."""
NOT_ASKED = "not_asked"
"""Status of a problem that no planner was asked about."""
GOAL_HOLDS = "the goal holds from the start"
REASONS = {
    PlannerStatus.UNSOLVABLE: "proven unsolvable",
    PlannerStatus.GAVE_UP: "the planner found no plan",
    PlannerStatus.OUT_OF_TIME: "the planner ran out of time",
    PlannerStatus.OUT_OF_MEMORY: "the planner ran out of memory",
    PlannerStatus.UNSUPPORTED: "the planner does not support it",
    PlannerStatus.CRASHED: "the planner crashed",
}
"""Why a problem is not tried, by the planner's status."""

_COMMENT = re.compile(r";[^\n]*")
_DOMAIN = re.compile(r"\s*\(\s*define\s*\(\s*domain\b\s*([^\s()]*)", re.IGNORECASE)
_OF_DOMAIN = re.compile(r"\(\s*:domain\s+([^\s()]+)", re.IGNORECASE)


@dataclass(frozen=True)
class GivenProblem:
    """A problem of the user's as the policy sees it, and the objects that stand behind its names."""

    row: ProblemRow
    object_of: Mapping[str, str]


@dataclass(frozen=True)
class KnownNames:
    """What a word-level model can read: whether it knows a name, and the names it was trained to call objects by."""

    is_known: Callable[[str], bool]
    pool: Sequence[str]

    @classmethod
    def of(cls, tokenizer: Any, names: Sequence[str]) -> KnownNames:
        """Return what a tokenizer knows; one that reads every text knows every name."""
        unknown = tokenizer.unk_token_id

        def is_known(name: str) -> bool:
            return unknown is None or unknown not in encode(tokenizer, name)

        return cls(is_known, [name for name in names if is_known(name)])


class AttemptSettings(GenerationSettings):
    """What the attempts of a policy depend on."""

    policy: str = ""
    """Key of its weights; none behind an endpoint."""


class TrialConfig(StrictModel):
    """The settings that trying problems needs, named as in a run's."""

    planner: PlannerConfig
    cluster: ClusterConfig = ClusterConfig()
    policy: PolicyConfig = PolicyConfig()
    """Of a model folder; an endpoint takes no notice."""


@dataclass(frozen=True)
class LeftOut:
    """A problem that is not tried, and why."""

    problem_id: str
    reason: str


def problem_files(folder: Path) -> list[Path]:
    """Return the PDDL problems of a folder in the order of their numbers; domains among them are none.

    Raises:
        BadInputError: there are none.
    """
    files = [path for path in folder.glob("*") if path.suffix.lower() == ".pddl" and path.is_file()]
    problems = [path for path in files if path.name != "domain.pddl" and not _DOMAIN.match(_bare(path))]
    if not problems:
        inside = sorted({str(path.parent) for path in folder.glob("*/*.pddl")})
        raise BadInputError(
            "no problems here", where=str(folder), expected="*.pddl files with problems",
            got=f"{len(files)} domains and no problem" if files else "nothing" if folder.is_dir() else "no such folder",
            cure=f"give one folder, such as {inside[0]}" if inside else "give a folder of PDDL problems",
        )  # fmt: skip
    return sorted(problems, key=_by_number)


def domain_of_problems(domains: Iterable[str], folder: Path) -> Domain:
    """Return the one among domains that the problems of a folder name, or the first where they name none of them.

    Args:
        domains: their PDDL, the same as often as there are problems of it.
        folder: of the problems.

    Raises:
        BadInputError: no problems, or they name several.
    """
    found = {match[1].lower() for path in problem_files(folder) if (match := _OF_DOMAIN.search(_bare(path)))}
    known = list(dict.fromkeys(domains))
    named = [text for text in known if (match := _DOMAIN.match(_COMMENT.sub("", text))) and match[1].lower() in found]
    if len(named) > 1:
        cure = "give each domain's problems a folder of their own"
        raise BadInputError("problems of several domains", where=str(folder), got=some(sorted(found)), cure=cure)
    return parse_domain((named or known)[0])


def _bare(path: Path) -> str:
    return _COMMENT.sub("", read_text(path))


def _by_number(path: Path) -> list[tuple[int, str]]:
    """Order instance-2 before instance-10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path.stem)]


def read_problems(domain: Domain, folder: Path, *, known: KnownNames | None, seed: int) -> list[GivenProblem]:
    """Return the problems of a folder, each under its file's name, and its objects renamed where names are not known.

    Args:
        domain: of all of them; a problem that names another domain is read as one of this, with a warning.
        folder: of PDDL problems.
        known: None for a policy that reads every name.
        seed: of the renaming.

    Raises:
        BadInputError: no problems, a mistake in one, or more objects than the model knows names for.
    """
    constants = {constant.name for constant in domain.constants}
    given, strangers = [], []
    for path in problem_files(folder):
        problem = parse_problem(read_text(path), domain, source=str(path))
        if problem.domain_name != domain.name:
            strangers.append(f"{path.name} ({problem.domain_name})")
            problem = replace(problem, domain_name=domain.name)  # a planner refuses another
        back: dict[str, str] = {}
        if known is not None and not all(known.is_known(item.name) for item in problem.objects):
            pool = [name for name in known.pool if name not in constants]
            back, problem = _renamed(problem, pool, path, random.Random(row_seed(seed, "names", path.name)))
        given.append(GivenProblem(given_row(domain, problem, path, level=folder.resolve().name), back))
    if strangers:
        logger.warning("%d of %d problems name another domain than %s; they are read as its problems all the same: %s",
                       len(strangers), len(given), domain.name, some(strangers))  # fmt: skip
    return given


def _renamed(problem: Problem, pool: Sequence[str], path: Path, rng: random.Random) -> tuple[dict[str, str], Problem]:
    """Return the user's object by the name it gets, and the problem under these names."""
    if len(problem.objects) > len(pool):
        raise BadInputError("more objects than the model knows names for", where=str(path),
                            got=f"{len(problem.objects)} objects",
                            expected=f"{len(pool)} at most: {' '.join(pool)}" if pool else "known names",
                            cure="leave this problem out, or train with more problems.object_names; for a model folder "
                            "say with --object-names which it was trained with")  # fmt: skip
    renaming = random_renaming(problem, pool, rng)
    return {name: old for old, name in renaming.items()}, rename_problem(problem, renaming, rng)


# --- stages


def own_stages(
    rows: Sequence[ProblemRow], trial: AttemptSettings, *, policy: Any, planner: PlannerConfig | None, seed: int
) -> list[Stage[Any]]:
    """Return the stages that solve, try and judge problems.

    Args:
        rows: the problems.
        trial: how they are tried.
        policy: that tries them; None behind an endpoint.
        planner: that solves them; without one every problem is tried.
        seed: of the answers.
    """
    graph = Graph(seed)
    problems = problems_stage(graph, rows)
    data: dict[str, Stage[Any]] = {"problems": problems}
    if planner is None:
        data["plans"] = graph.stage("solve_problems", _leave_unsolved, None, data)
    else:
        data["plans"] = graph.stage("solve_problems", synthesize_plans, planner, data)
    run = partial(_try_problems, policy=policy)
    tried = graph.stage("try_problems", run, trial, data, code_roots=ASKING if policy is None else GENERATION)
    judging = JudgingSettings(prompting=trial.prompting)
    graph.stage("judge_plans", judge_plans, judging, {"rollouts": tried, "problems": problems})
    return graph.stages


def _leave_unsolved(context: StageContext[None]) -> None:
    """Write that no planner was asked."""
    ids = [row.problem_id for row in context.inputs["problems"].rows(ProblemRow)]
    context.output.write_rows([PlanRow(name, "none", NOT_ASKED, (), None, 0.0, False) for name in ids], PlanRow)


def _try_problems(context: StageContext[AttemptSettings], policy: Any) -> None:
    problems, plans = context.inputs["problems"], context.inputs["plans"]
    left_out = {item.problem_id for item in problems_left_out(problems, plans)}
    rows = [row for row in problems.rows(ProblemRow) if row.problem_id not in left_out]
    if not rows:
        raise BadInputError(
            "nothing to try", got=summary_of(problems_left_out(problems, plans)),
            expected="a problem whose goal does not hold yet and for which the planner finds a plan",
            cure="give other problems; with --policy also more --planner-time-s, or none to compare with: --no-planner",
        )  # fmt: skip
    inputs = {**context.inputs, "policy": policy}
    sample_rollouts(replace(context, inputs=inputs), rows, description="trying problems")


def problems_left_out(problems: Artifact, plans: Artifact) -> list[LeftOut]:
    """Return the problems that are not tried: nothing is to be planned there, or the planner found no plan."""
    status_of = {row.problem_id: row.status for row in plans.rows(PlanRow)}
    left_out = []
    for row in problems.rows(ProblemRow):
        task, status = PlanningTask.from_text(row.domain_pddl, row.problem_pddl), status_of[row.problem_id]
        if task.is_goal(task.initial_state):
            left_out.append(LeftOut(row.problem_id, GOAL_HOLDS))
        elif status not in (PlannerStatus.SOLVED, NOT_ASKED):
            left_out.append(LeftOut(row.problem_id, REASONS.get(PlannerStatus(status), status)))
    return left_out


def summary_of(left_out: Sequence[LeftOut]) -> str:
    """Return how many problems are left out for which reason, and which."""
    counts = Counter(item.reason for item in left_out)
    names = {reason: [item.problem_id for item in left_out if item.reason == reason] for reason in counts}
    return "; ".join(f"{count} because {reason} ({some(names[reason])})" for reason, count in counts.most_common())


def some(names: Sequence[str], most: int = 8) -> str:
    """Return the first names of many, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
