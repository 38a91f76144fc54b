"""Every domain of the project: well written, sampled as its settings say, solvable, and true to the public original."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from conftest import REFERENCE

from plansmith.config.planner import PlannerConfig
from plansmith.errors import ConfigError
from plansmith.pddl.diagnosis import diagnose
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import parse_domain, parse_problem, parse_step
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.pddl.validation import Verdict, validate_plan
from plansmith.planners import FastDownward, PlannerStatus
from plansmith.problems.library import LEVEL_OBJECTS, domain_names, is_goal_reached_at_start, load_domain

NAMES = domain_names()
SAMPLED = [(name, level) for name in NAMES for level in load_domain(name).levels]

OURS = {
    "planbench-blocksworld": "blocksworld",
    "planbench-mystery-blocksworld": "mystery-blocksworld",
    "planbench-logistics": "logistics",
}
"""Folders of public originals under another name than our domain of the same semantics."""

RENAMED: dict[str, dict[str, str]] = {
    "blocksworld": {
        "on-table": "ontable",
        "arm-empty": "handempty",
        "pickup": "pick-up",
        "putdown": "put-down",
    },
    "rovers": {"rover": "rover"},  # both its domain and a type have this name; only the domain's differs from ours
}
"""By folder of the public original: words of its problems and plans with what our domain calls them."""

CHECKED_ELSEWHERE = {"openstacks": "tests/test_openstacks_original.py"}
"""By folder of the public original: the test that compares it, where renaming words cannot."""

MACHINE_ONLY = {"woodworking": ("do-grind", "do-plane", "do-saw-small", "do-saw-medium", "do-saw-large")}
"""By domain: actions whose machine ``?m`` no condition names, kept because the plans of the public original name it."""


@pytest.fixture(scope="module")
def planner():
    with FastDownward(PlannerConfig(search="first", time_limit_s=60, kill_after_s=90)) as solver:
        yield solver


def task_of(name: str, level: str, seed: int) -> PlanningTask:
    """Return the task of a sampled problem."""
    loaded = load_domain(name)
    return PlanningTask(loaded.domain, loaded.sample(level, random.Random(seed)))


@pytest.mark.parametrize("name", NAMES)
def test_domain_text_has_nothing_to_mend(name: str) -> None:
    loaded = load_domain(name)
    path = loaded.folder / loaded.settings.domain_file
    found = diagnose(path.read_text(encoding="utf-8"))
    kept = [f"parameter '?m' of action '{action}' is not used" for action in MACHINE_ONLY.get(name, ())]
    assert [item.message for item in found] == kept
    assert parse_domain(print_domain(loaded.domain)) == loaded.domain


@pytest.mark.parametrize("name", NAMES)
def test_domain_folder_says_where_it_comes_from(name: str) -> None:
    loaded = load_domain(name)
    readme = (loaded.folder / "README.md").read_text(encoding="utf-8")
    sizes = {size for level in loaded.settings.levels.values() for size in level}
    assert all(f"`{size}`" in readme for size in sizes)
    assert loaded.phrases is not None


@pytest.mark.parametrize(("name", "level"), SAMPLED)
def test_sample_gives_readable_problems_of_the_level_and_the_same_ones_again(name: str, level: str) -> None:
    loaded = load_domain(name)
    problems = [loaded.sample(level, random.Random(seed)) for seed in range(8)]
    assert [loaded.sample(level, random.Random(seed)) for seed in (0, 1)] == problems[:2]
    for problem in problems:
        assert parse_problem(print_problem(problem), loaded.domain) == problem
        assert not is_goal_reached_at_start(loaded.domain, problem)
        if level in LEVEL_OBJECTS:
            least, most = LEVEL_OBJECTS[level]
            assert least <= len(problem.objects) <= most
    assert len(set(map(print_problem, problems))) > 4


@pytest.mark.parametrize("name", NAMES)
def test_sampled_problems_of_the_first_level_are_solved_and_the_plans_valid(name: str, planner: FastDownward) -> None:
    loaded = load_domain(name)
    for seed in range(3):
        task = task_of(name, loaded.levels[0], seed)
        result = planner.solve(print_domain(task.domain), print_problem(task.problem))
        assert result.status is PlannerStatus.SOLVED
        assert validate_plan(task, [parse_step(step) for step in result.plan or ()]).is_valid


def originals() -> list[Any]:
    """Return the folder and the problem of every public original that one of our domains stands for.

    The first of each is tried always.
    """
    folders = [
        folder for folder in sorted((REFERENCE / "pddl").glob("*/")) if OURS.get(folder.name, folder.name) in NAMES
    ]
    compared = [folder.name for folder in folders if folder.name not in CHECKED_ELSEWHERE]
    marks = {1: (), 2: pytest.mark.long, 3: pytest.mark.long}
    return [pytest.param(name, f"p{number}", marks=marks[number]) for name in compared for number in marks]


def renamed(text: str, words: dict[str, str]) -> str:
    """Return PDDL text with whole words replaced."""
    return re.sub(r"[^\s()]+", lambda word: words.get(word[0].lower(), word[0].lower()), text)


@pytest.mark.skipif(not originals(), reason="the public originals are not there")
@pytest.mark.parametrize(("folder", "number"), originals())
def test_plans_of_the_public_original_are_judged_alike_under_our_domain(
    folder: str, number: str, planner: FastDownward
) -> None:
    source = REFERENCE / "pddl" / folder
    own = source / "domain.pddl"
    domain_text = (own if own.exists() else source / f"{number}-domain.pddl").read_text(encoding="utf-8")
    problem_text = (source / f"{number}.pddl").read_text(encoding="utf-8")
    loaded = load_domain(OURS.get(folder, folder))
    words = {parse_domain(domain_text).name: loaded.domain.name} | RENAMED.get(folder, {})
    theirs = PlanningTask.from_text(domain_text, problem_text)
    ours = PlanningTask(loaded.domain, parse_problem(renamed(problem_text, words), loaded.domain))
    result = planner.solve(domain_text, problem_text)
    assert result.status is PlannerStatus.SOLVED
    plan = [parse_step(step) for step in result.plan or ()]
    variants = [plan, plan[:-1], plan[1:], *(plan[:i] + plan[i + 1 :] for i in range(1, len(plan) - 1))]
    variants += [[*plan[:i], plan[i + 1], plan[i], *plan[i + 2 :]] for i in range(len(plan) - 1)]
    for steps in variants[:200]:
        expected = validate_plan(theirs, steps)
        got = validate_plan(ours, [parse_step(renamed(str(step), words)) for step in steps])
        assert (got.verdict, got.failed_step) == (expected.verdict, expected.failed_step), [str(s) for s in steps]
    assert validate_plan(ours, [parse_step(renamed(str(step), words)) for step in plan]).verdict is Verdict.VALID


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("blocks-classic", {"robots": 0}), ("transport", {"vehicles": 0}), ("spanner", {"locations": 0}),
     ("woodworking", {"colours": 99})],
)  # fmt: skip
def test_sizes_that_a_domain_has_no_problem_of_are_said(name: str, sizes: dict[str, int]) -> None:
    domain = load_domain(name)
    ranges = {**domain.settings.levels[domain.levels[0]], **{size: (value, value) for size, value in sizes.items()}}
    with pytest.raises(ConfigError, match="sizes that the domain has no problem of"):
        domain.sample("any", random.Random(0), sizes=ranges)
