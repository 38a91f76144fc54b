"""Stages that make the data of phase 1: problems, plans, corrupted plans, written examples."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.planner import PlannerActor
from actors.writer import ChainWriter, CorruptionWriter, ExplanationWriter
from pipelines.stages.dataset_problems import dataset_digest, dataset_rows
from plansmith.config.basics import StrictModel
from plansmith.config.pddl_instruct import ExamplesConfig
from plansmith.config.planner import PlannerConfig
from plansmith.config.problems import CountsConfig, DomainLevelConfig, LevelConfig, ProblemsConfig
from plansmith.data.artifacts import Artifact
from plansmith.data.drawing import (
    LEAKS,
    SplitShares,
    choose_problems,
    draw_problems,
    leak_of_texts,
    problem_row,
    split_of_form,
)
from plansmith.data.held_out import HeldOut
from plansmith.data.rows import (
    CorruptedPlanRow,
    ExampleRow,
    LeakRow,
    PlanRow,
    ProblemRow,
    SolvedProblemRow,
    Split,
)
from plansmith.errors import BadInputError
from plansmith.pddl.cases import read_text
from plansmith.pddl.model import Domain, Problem
from plansmith.pddl.parser import parse_domain, parse_problem
from plansmith.problems.library import load_domain
from plansmith.problems.renaming import random_renaming, rename_problem
from plansmith.problems.samplers.blocksworld import DOMAIN_NAME, BlocksworldSampler
from plansmith.stages import StageContext

PROJECT_ROOT = Path(__file__).resolve().parents[2]


def read_domain(domain_file: str) -> Domain:
    """Return the domain of a file, named as it is or below the project's root.

    Raises:
        BadInputError: no such file, or a mistake in it, with line and column.
    """
    return parse_domain(read_text(domain_path(domain_file)), source=domain_file)


def domain_path(domain_file: str) -> Path:
    """Return where a domain file is: as it is named, or below the project's root."""
    path = next((path for path in (Path(domain_file), PROJECT_ROOT / domain_file) if path.is_file()), None)
    if path is None:
        raise BadInputError(
            "no such domain file",
            where=domain_file,
            expected="the path of a PDDL domain",
            cure="set problems.domain_file",
        )
    return path


@dataclass(frozen=True)
class DrawnLevel:
    """Problems of one domain and size, before anybody knows which are taken; ``level`` is None for the user's files."""

    name: str
    level: CountsConfig | None
    domain: Domain
    problems: Sequence[Problem]
    source: str

    def wanted(self) -> dict[Split, int]:
        """Return how many problems each split may have."""
        if self.level is None:
            return dict.fromkeys(Split, len(self.problems))
        level = self.level
        return {
            Split.PHASE1: level.phase1,
            Split.PHASE2: level.phase2,
            Split.PROBE: level.probe,
            Split.TEST: level.test,
        }


class DrawingSettings(StrictModel):
    """What decides which problems a run has."""

    problems: ProblemsConfig
    """Where they come from, and how they are split."""
    pddl: str
    """Hash of the files that are read, see `pddl_digest`."""
    is_word_level: bool
    """The policy knows no object names but `problems.object_names`."""


def sample_problems(context: StageContext[DrawingSettings]) -> None:
    """Draw problems level by level and split them by canonical form.

    A form that one level has taken no other takes, but of a domain that is the same under other words, for one split.
    Those of a dataset keep its splits. What a split of texts would have leaked is written beside those that are drawn.
    """
    config = context.settings.problems
    rows, leaks = (dataset_rows(context, config), []) if config.dataset else _drawn_rows(context, config)
    is_left_out = {Split.PROBE: not config.probe_share, Split.PHASE2: not config.phase2_share}
    _check_splits(rows, [split for split in Split if not is_left_out.get(split)])
    context.output.write_rows(rows, ProblemRow)
    context.output.write_rows(leaks, LeakRow, table=LEAKS)


def _drawn_rows(
    context: StageContext[DrawingSettings], config: ProblemsConfig
) -> tuple[list[ProblemRow], list[LeakRow]]:
    """Return problems that are drawn, or those of the user's folder, split by canonical form."""
    rows, leaks = list[ProblemRow](), list[LeakRow]()
    taken: set[tuple[str, str]] = set()
    split_of: dict[str, Split] = {}
    for drawn in _drawn_levels(context, config):
        wanted = drawn.wanted()
        test_share = config.test_share_of(drawn.level) if drawn.level else config.test_share
        shares = SplitShares(test_share, config.phase2_share, context.seed, probe=config.probe_share)
        found = draw_problems(drawn.domain, drawn.problems)
        leaks.append(leak_of_texts(drawn.domain, found, shares, level=drawn.name))
        free = [
            item
            for item in found
            if (drawn.domain.name, item.form) not in taken
            and split_of.get(item.form) in (None, split_of_form(item.form, shares))
        ]
        for split, items in choose_problems(free, shares, wanted).items():
            taken.update((drawn.domain.name, item.form) for item in items)
            split_of.update((item.form, split) for item in items)
            if drawn.level and len(items) < wanted[split]:
                context.logger.info(
                    "%s, %s: %d of %d problems; no more forms", drawn.name, split, len(items), wanted[split]
                )
            rows += [
                problem_row(drawn.domain, item, level=drawn.name, split=split, source=drawn.source) for item in items
            ]
    return rows, leaks


def _check_splits(rows: Sequence[ProblemRow], needed: Sequence[Split]) -> None:
    counts = {split.value: sum(row.split == split for row in rows) for split in needed}
    if not all(counts.values()):
        raise BadInputError(
            "too few problems for a split",
            got=str(counts),
            expected=f"problems of {', '.join(counts)}",
            cure="give more problems, or change problems.test_share, phase2_share and probe_share",
        )


def _drawn_levels(context: StageContext[DrawingSettings], config: ProblemsConfig) -> Iterator[DrawnLevel]:
    """Yield the problems of the user's folder, or draw those of each level."""
    if config.folder:
        domain = read_domain(config.domain_file)
        problems = _problems_of_folder(context.settings, domain)
        yield DrawnLevel(config.tested_levels[0], None, domain, problems, config.folder)
        return
    levels = config.sampled_levels
    with context.progress(sum(level.n_draws for level in levels), "drawing problems", unit="problem") as bar:
        for level in levels:
            domain, draw = _sampler_of(level, config)
            drawn = []
            for number in range(level.n_draws):
                drawn.append(draw(random.Random(context.row_seed(level.name, number))))
                bar.update()
            yield DrawnLevel(level.name, level, domain, drawn, "sampler")


def _sampler_of(
    level: LevelConfig | DomainLevelConfig, config: ProblemsConfig
) -> tuple[Domain, Callable[[random.Random], Problem]]:
    """Return the domain of a level, and what draws its problems."""
    if isinstance(level, DomainLevelConfig):
        loaded = load_domain(level.domain)

        def draw(rng: random.Random) -> Problem:
            problem = loaded.sample(level.level, rng, sizes=level.sizes)
            if not config.object_names:
                return problem
            return rename_problem(problem, random_renaming(problem, config.object_names, rng), rng)

        return loaded.domain, draw
    domain = read_domain(config.domain_file)
    if domain.name != DOMAIN_NAME:
        raise BadInputError(
            f"problems.levels draws {DOMAIN_NAME}, not '{domain.name}'",
            where="problems.domain_file",
            expected=DOMAIN_NAME,
            cure="set problems.domains to draw with the sampler of a domain folder, "
            "or problems.folder to a folder of PDDL problems",
        )
    return domain, BlocksworldSampler(level.n_blocks, config.object_names, level.goal_moves).sample


def _problems_of_folder(settings: DrawingSettings, domain: Domain) -> list[Problem]:
    problems = []
    for path in problem_paths(Path(settings.problems.folder or "")):
        problems.append(parse_problem(read_text(path), domain, source=str(path)))
        if settings.is_word_level:
            _check_names(problems[-1], path, settings.problems.object_names)
    return problems


def pddl_digest(config: ProblemsConfig) -> str:
    """Return a hash of the PDDL of a run, so that an edited file is not taken for the one of an earlier run.

    A mistake in a file, and a level that does not exist, is said here, before anything starts.
    """
    if config.domains:
        loaded = {level.domain: load_domain(level.domain) for level in config.domains}
        for level in config.domains:
            loaded[level.domain].sizes_of(level.level, level.sizes)
        digests = [domain.digest() for domain in loaded.values()]
        digests += [dataset_digest(Path(config.dataset))] if config.dataset else []
        return hashlib.sha256("\0".join(digests).encode()).hexdigest()
    read_domain(config.domain_file)
    texts = [read_text(domain_path(config.domain_file))]
    if config.folder:
        texts += [read_text(path) for path in problem_paths(Path(config.folder))]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def _check_names(problem: Problem, path: Path, names: Sequence[str]) -> None:
    """Raise unless a word-level model knows all object names of a problem."""
    unknown = [typed.name for typed in problem.objects if typed.name not in names]
    if unknown:
        raise BadInputError(
            "object names that the word-level model does not know",
            where=str(path),
            got=", ".join(unknown[:8]),
            expected=f"names among problems.object_names: {', '.join(names)}",
            cure="list every object name of your problems in problems.object_names, or use a real model",
        )


def problem_paths(folder: Path) -> list[Path]:
    """Return the PDDL problems of a folder, by name; a `domain.pddl` among them is none.

    Raises:
        BadInputError: there are none.
    """
    paths = [path for path in sorted(folder.glob("*.pddl")) if path.name != "domain.pddl"]
    if not paths:
        raise BadInputError(
            "no problems here",
            where=str(folder),
            got="nothing" if folder.is_dir() else "no such folder",
            expected="*.pddl files",
            cure="give a folder of PDDL problems",
        )
    return paths


def synthesize_plans(context: StageContext[PlannerConfig]) -> None:
    """Solve every problem with Fast Downward.

    Raises:
        BadInputError: there were problems of D1, or of D2, and none is left to learn from.
    """
    problems = context.inputs["problems"].rows(ProblemRow)
    plans = solve_problems(
        context, problems, context.settings, held_out=HeldOut.of(problems), description="solving problems"
    )
    _report_left_out(context, problems, plans)
    split_of = {row.problem_id: row.split for row in problems}
    left = {split_of[plan.problem_id] for plan in plans if _is_kept(plan)}
    drawn = {*split_of.values()}
    for split in (Split.PHASE1, Split.PHASE2):
        if split in drawn - left:
            raise BadInputError(
                f"no problem of {split} is left to learn from",
                got=f"{sum(row.split == split for row in problems)}, each without a plan, solved from the start, or "
                "with a plan that passes a problem which only measures",
                expected="one at least",
                cure="draw more or larger problems, or hold out fewer (problems.test_share, probe_share)",
            )


def _is_kept(plan: PlanRow) -> bool:
    """Return whether a problem takes part: it is solved, not from the start, and passes none that only measures."""
    return plan.status == "solved" and bool(plan.plan) and plan.held_out_after is None


def solve_problems(
    context: StageContext[Any],
    problems: Sequence[ProblemRow],
    planner: PlannerConfig,
    *,
    held_out: HeldOut,
    description: str,
) -> list[PlanRow]:
    """Return a row for every problem, which is left as well; the workers judge every plan before it is kept."""
    shards = context.output.shards("rows", PlanRow)
    context.resources.map_rows(
        problems,
        ProblemRow,
        PlannerActor,
        shards=shards,
        batch_size=64,
        description=description,
        worker_settings={"config": planner, "held_out": held_out},
    )
    plans = shards.merged_rows()
    unsolved = sum(plan.status != "solved" for plan in plans)
    if unsolved:
        context.logger.warning("%d of %d problems have no plan and are left out", unsolved, len(plans))
    return plans


def _report_left_out(context: StageContext[Any], problems: Sequence[ProblemRow], plans: Sequence[PlanRow]) -> None:
    """Say how many problems of each level are not learnt from for what their plans pass."""
    passing = {plan.problem_id for plan in plans if plan.held_out_after is not None}
    n_drawn = Counter((row.level, row.split) for row in problems)
    n_passing = Counter((row.level, row.split) for row in problems if row.problem_id in passing)
    for (level, split), count in n_passing.items():
        context.logger.info("%s, %s: %d of %d problems left out; their plans pass a problem that only measures",
                            level, split, count, n_drawn[level, split])  # fmt: skip


def plans_of(row: PlanRow, n_plans: int) -> list[tuple[str, ...]]:
    """Return so many plans of a solved problem, fewer where there are fewer."""
    return [row.plan, *(item.plan for item in row.alternatives)][:n_plans]


def solved_problems(problems: Artifact, plans: Artifact, split: str, *, n_plans: int = 1) -> list[SolvedProblemRow]:
    """Return the solved problems of a split with their plans.

    Left out are goals that hold from the start, which teach nothing, and plans to learn from that pass a problem which
    only measures.

    Args:
        problems: with a table of `ProblemRow`.
        plans: with a table of `PlanRow`.
        split: of the problems.
        n_plans: rows of a problem, at most: each has another plan, the first as it was before there were others.
    """
    found = {row.problem_id: row for row in plans.rows(PlanRow) if _is_kept(row)}
    return [
        SolvedProblemRow(row.problem_id, row.level, row.domain_pddl, row.problem_pddl, plan)
        for row in problems.rows(ProblemRow)
        if row.split == split and row.problem_id in found
        for plan in plans_of(found[row.problem_id], n_plans)
    ]


class CorruptionSettings(StrictModel):
    """How many corrupted plans are drawn."""

    per_problem: float
    """For each problem of D1, over the four classes; a fraction is drawn."""


def corrupt_plans(context: StageContext[CorruptionSettings]) -> None:
    """Draw corrupted versions of the plans of D1, each proved by the validator to show exactly one error."""
    rows = solved_problems(context.inputs["problems"], context.inputs["plans"], Split.PHASE1)
    context.resources.map_rows(
        rows,
        SolvedProblemRow,
        CorruptionWriter,
        shards=context.output.shards("rows", CorruptedPlanRow),
        batch_size=256,
        description="corrupting plans",
        worker_settings={"per_problem": context.settings.per_problem, "seed": context.seed},
        is_resident=False,
    )


class WritingSettings(StrictModel):
    """How solved problems become the texts of phase 1."""

    rendering: str
    """How prompts and chains are written."""
    object_names: tuple[str, ...]
    """Names that objects get; none: each problem keeps its own."""
    examples: ExamplesConfig
    """How many of which kind."""
    renamings: Mapping[str, int]
    """`examples.renamings` of the levels that have their own."""


def write_chains(context: StageContext[WritingSettings]) -> None:
    """Write the plans of D1 as chains of thought, and valid and corrupted plans with their explanations."""
    settings = context.settings
    solved = solved_problems(context.inputs["problems"], context.inputs["plans"], Split.PHASE1)
    writing = {
        "rendering": settings.rendering,
        "names": settings.object_names,
        "examples": settings.examples,
        "renamings": settings.renamings,
        "seed": context.seed,
    }
    context.resources.map_rows(
        solved,
        SolvedProblemRow,
        ChainWriter,
        shards=context.output.shards("chains", ExampleRow),
        batch_size=64,
        description="writing chains of thought",
        worker_settings=writing,
        is_resident=False,
    )
    context.resources.map_rows(
        context.inputs["corrupted"].rows(CorruptedPlanRow),
        CorruptedPlanRow,
        ExplanationWriter,
        shards=context.output.shards("explanations", ExampleRow),
        batch_size=64,
        description="explaining corrupted plans",
        worker_settings={"rendering": settings.rendering},
        is_resident=False,
    )
