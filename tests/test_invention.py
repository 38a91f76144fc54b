"""Invented domains: what every drawn one has, which are kept and why not, the same for any number of workers."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import BLOCKS, BLOCKS_TEXT, ROOT, blocks_task
from pydantic import ValidationError
from unified_planning.shortcuts import get_environment

from plansmith.config.domains import DomainSettings, WalkSettings
from plansmith.config.invention import InventionConfig, InventionGrid
from plansmith.config.planner import PlannerConfig
from plansmith.data.inventing import (
    Candidate,
    Refusal,
    size_of,
    try_candidate,
    write_files,
)
from plansmith.data.invention_selection import Selection
from plansmith.errors import BadInputError, ConfigError
from plansmith.invented import JOURNAL, InventionJob, invent_domains
from plansmith.pddl.diagnosis import diagnose
from plansmith.pddl.domain_forms import domain_form
from plansmith.pddl.model import Literal, conjuncts_of
from plansmith.pddl.parser import parse_domain
from plansmith.pddl.printer import print_domain
from plansmith.pddl.simulation import random_walk_to_goal
from plansmith.planners import FastDownward, PlannerResult, PlannerStatus
from plansmith.problems.invention.actions import ActionDrawing
from plansmith.problems.invention.breeding import breed_domain
from plansmith.problems.invention.drafts import Wish, draw_draft
from plansmith.problems.invention.drawing import draw_domain
from plansmith.problems.invention.folders import Invention
from plansmith.problems.library import load_domain
from plansmith.text.told import domain_words

sys.path.insert(0, str(ROOT / "benchmarks"))
from inventing import Agreement, compare

GRID = InventionGrid()
SMALL = InventionConfig(problems=4, walks=2, grid=InventionGrid(actions=((2, 6),), predicates=((3, 14),)))
"""Quickly tried."""


def drawn(seed: int, grid: InventionGrid = GRID, adl_share: float = 0.5) -> Invention:
    """Return the first domain that is drawn from a seed on."""
    trials = (draw_domain("drawn", grid, random.Random(f"{seed} {n}"), adl_share=adl_share) for n in range(20))
    return next(invention for invention in trials if invention is not None)


def candidate(number: int, form: str = "", refusal: Refusal | None = None, **size: int) -> Candidate:
    """Return a candidate, tried; of the size of Blocksworld but for what is named."""
    known = {"actions": 4, "predicates": 5, "parameters": 2, "types": 1, "plan_length": 4}
    return Candidate(number, refusal, known | size, "by hand", form or f"form {number}")


def test_drawn_domains_have_no_mistake_can_be_told_and_have_every_parameter_in_a_positive_precondition() -> None:
    for seed in range(60):
        domain = drawn(seed).domain
        assert diagnose(print_domain(domain)) == (), print_domain(domain)
        assert domain_words(domain).count("action:") == len(domain.actions)
        for action in domain.actions:
            positive = [part.atom for part in conjuncts_of(action.precondition)
                        if isinstance(part, Literal) and part.is_positive]  # fmt: skip
            assert {typed.name for typed in action.parameters} <= {name for atom in positive for name in atom.arguments}


def test_drawn_actions_require_no_two_values_of_one_variable() -> None:
    n_values = 0
    for seed in range(300):
        rng, wish = random.Random(seed), Wish(n_actions=4, n_predicates=8, n_parameters=4, n_types=3)
        draft = draw_draft(wish, rng)
        for action in ActionDrawing(draft, wish, rng, has_adl=seed % 2 == 0).actions():
            atoms = [part.atom for part in conjuncts_of(action.precondition)
                     if isinstance(part, Literal) and part.is_positive]  # fmt: skip
            for variable in draft.variables:
                n_owners = len(variable.owners)
                owners = [atom.arguments[:n_owners] for atom in atoms if atom.predicate in variable.predicates]
                assert len(set(owners)) == len(owners), str(action)
                n_values += len(owners)
    assert n_values > 1000


def test_drawn_domains_some_have_each_kind_of_adl_and_without_a_share_none_has() -> None:
    texts = "".join(print_domain(drawn(seed, adl_share=1).domain) for seed in range(60))
    for feature in (":conditional-effects", ":negative-preconditions", "(when", "(forall"):
        assert feature in texts
    plain = [drawn(seed, adl_share=0).domain.requirements for seed in range(20)]
    assert {flag for flags in plain for flag in flags} == {":strips", ":typing"}


def test_drawn_domain_is_the_same_for_the_same_source_in_any_process() -> None:
    program = (
        "import random; from tests.test_invention import drawn; from plansmith.problems.library import load_domain\n"
        "from plansmith.problems.invention.breeding import breed_domain\n"
        "print([drawn(seed).files() for seed in range(5)])\n"
        "print(breed_domain('b', [load_domain(n) for n in ('ferry', 'miconic')], random.Random(2)).files())"
    )
    texts = {
        subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True,
                       env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(texts) == 1


def test_drawn_domains_reach_the_size_of_rovers() -> None:
    rovers = size_of(load_domain("rovers").domain)
    assert rovers == {"actions": 9, "predicates": 23, "parameters": 6, "types": 7}
    grid = InventionGrid(actions=((9, 9),), predicates=((24, 24),), parameters=((6, 6),), types=((8, 8),))
    sizes = [size_of(drawn(seed, grid).domain) for seed in range(60)]
    assert any(all(size[line] >= rovers[line] for line in rovers) for size in sizes)


@pytest.mark.parametrize("seed", range(6))
def test_bred_domain_is_loaded_and_its_names_tell_nothing(seed: int, tmp_path: Path) -> None:
    parents = [load_domain(name) for name in ("blocksworld", "ferry", "zenotravel")]
    invention = breed_domain("bred", parents, random.Random(seed))
    assert invention is not None
    write_files(invention, tmp_path / "bred")
    loaded = load_domain(str(tmp_path / "bred"))
    words = set(print_domain(loaded.domain).replace("(", " ").replace(")", " ").split())
    told = {schema.name for parent in parents for schema in (*parent.domain.predicates, *parent.domain.actions)}
    told |= {typed.name for parent in parents for typed in parent.domain.types}
    assert words & told == set()
    assert domain_form(loaded.domain) not in {domain_form(parent.domain) for parent in parents}
    assert "bred from" in (tmp_path / "bred" / "settings.yaml").read_text(encoding="utf-8")


def test_union_of_large_domains_has_problems(tmp_path: Path) -> None:
    parents = [load_domain(name) for name in ("rovers", "satellite")]
    bred = (breed_domain("bred", parents, random.Random(seed)) for seed in range(40))
    unions = [found for found in bred if found is not None and " and " in found.source]
    assert len(unions) > 5
    n_drawn = 0
    for number, union in enumerate(unions):
        write_files(union, tmp_path / str(number))
        loaded = load_domain(str(tmp_path / str(number)))
        with contextlib.suppress(ConfigError):  # some goals can nowhere be reached
            loaded.sample(loaded.levels[0], random.Random(0), max_draws=20)
            n_drawn += 1
    assert n_drawn > len(unions) / 2


def test_walk_reaches_a_goal_that_every_action_reaches_and_none_that_is_farther_than_it_is_long() -> None:
    task = blocks_task("(ontable a) (clear a) (handempty)", "(holding a)", objects="a")
    assert random_walk_to_goal(task, 1, random.Random(0))[1]
    far = blocks_task("(on a b) (ontable b) (clear a) (handempty)", "(on b a)", objects="a b")
    assert not any(random_walk_to_goal(far, 3, random.Random(seed))[1] for seed in range(20))
    stuck = blocks_task("(ontable a)", "(holding a)", objects="a")
    assert not random_walk_to_goal(stuck, 5, random.Random(0))[1]


def blocks(**walk: Any) -> Invention:
    """Return Blocksworld with all blocks on the table, as if it had been invented."""
    init = [{"atom": f"({name} ?b)", "each": "?b"} for name in ("ontable", "clear")]
    given = {"objects": {"object": "blocks"}, "init": [*init, {"atom": "(handempty)"}], "steps": [8, 12]}
    given |= {"goal_predicates": ["on"], "goal_size": [2, 3], **walk}
    settings = DomainSettings(walk=WalkSettings.model_validate(given), levels={"L1": {"blocks": (4, 6)}})
    return Invention(replace(BLOCKS, name="blocks"), settings, "by hand")


class GivingUp(FastDownward):
    """Solves nothing."""

    def solve(self, domain_pddl: str, problem_pddl: str) -> PlannerResult:
        return PlannerResult(PlannerStatus.GAVE_UP, None, None, 0.0)


TRIED = InventionConfig(problems=6, planner=PlannerConfig(search="astar(blind())"))


def trial(invention: Invention | None, config: InventionConfig = TRIED, **more: Any) -> Candidate:
    with FastDownward(config.planner) as planner:
        return try_candidate(3, invention, config, planner, random.Random(1), **more)


def test_candidate_that_is_blocksworld_is_refused_for_nothing_in_itself() -> None:
    tried = trial(blocks())
    assert tried.refusal is None
    assert tried.form == domain_form(BLOCKS)
    assert dict(tried.size) | {"plan_length": 4} == {
        "actions": 4, "predicates": 5, "parameters": 2, "types": 1, "plan_length": 4
    }  # fmt: skip
    assert tried.size["plan_length"] in (4, 6)


def mistaken() -> Invention:
    domain = parse_domain(BLOCKS_TEXT.replace("(handempty)", "(handempty) (unused)", 1))
    return replace(blocks(), domain=replace(domain, name="blocks"))


NEVER: Mapping[str, Any] = {"init": [{"atom": "(ontable ?b)", "each": "?b"}]}
"""Nothing is clear, so no action applies."""


@pytest.mark.parametrize(
    ("invention", "config", "refusal"),
    [
        (None, {}, Refusal.NO_ACTION),
        (blocks(), {"grid": InventionGrid(actions=((5, 6),))}, Refusal.OUTSIDE),
        (mistaken(), {}, Refusal.DIAGNOSED),
        (blocks(**NEVER), {}, Refusal.NO_PROBLEM),
        (blocks(steps=[1, 1], goal_predicates=["holding"], goal_size=[1, 1]), {"min_distinct": 0.9}, Refusal.ALIKE),
        (blocks(goal_size=[1, 1]), {"min_longest_plan": 5}, Refusal.SHORT),
        (blocks(steps=[1, 1], goal_predicates=["holding"]), {"min_longest_plan": 1, "min_distinct": 0,
                                                             "max_walk_share": 0.01}, Refusal.WALKS),
    ],
    ids=["nothing drawn", "size", "mistake", "no problem", "alike", "short", "walks"],
)  # fmt: skip
def test_candidate_is_refused(invention: Invention | None, config: dict[str, Any], refusal: Refusal) -> None:
    assert trial(invention, TRIED.model_copy(update=config)).refusal is refusal


def test_candidate_that_the_planner_does_not_solve_is_refused() -> None:
    with GivingUp(TRIED.planner) as planner:
        assert try_candidate(0, blocks(), TRIED, planner, random.Random(0)).refusal is Refusal.UNSOLVED


def test_candidate_of_a_size_that_has_its_share_is_not_tried() -> None:
    tried = trial(blocks(), full=[("actions", (3, 4))])
    assert (tried.refusal, tried.form) == (Refusal.ENOUGH, "")


def test_selection_refuses_equals_in_other_words_and_known_domains() -> None:
    selection = Selection(10, InventionConfig(), {"known form": "rovers"})
    forms = ["a", "b", "a", "known form"]
    decided = [selection.decide(candidate(number, form)).refusal for number, form in enumerate(forms)]
    assert decided == [None, None, Refusal.EQUAL, Refusal.KNOWN]


def test_selection_gives_no_range_more_than_its_share() -> None:
    grid = InventionGrid(actions=((1, 4), (5, 9)), plan_length=((1, 2), (3, 60)), parameters=((1, 6),),
                         predicates=((1, 24),), types=((1, 8),))  # fmt: skip
    selection = Selection(4, InventionConfig(spread=1, grid=grid), {})  # two of each range of two, four of the others
    sizes = [{"plan_length": 1}, {"plan_length": 2}, {"actions": 5, "plan_length": 1}, {}, {"actions": 5}]
    decided = [selection.decide(candidate(number, **size)).refusal for number, size in enumerate(sizes)]
    assert decided == [None, None, Refusal.ENOUGH, Refusal.ENOUGH, None]
    assert selection.full == {("actions", (1, 4)), ("plan_length", (1, 2))}
    assert not selection.is_done
    assert selection.decide(candidate(9, actions=9, parameters=4, predicates=6)).refusal is None
    assert selection.is_done


def test_selection_decides_the_same_whether_a_full_size_was_tried_or_not() -> None:
    grid = InventionGrid(actions=((1, 4), (5, 9)))
    selections = [Selection(1, InventionConfig(spread=1, grid=grid), {}) for _ in range(2)]
    for selection in selections:
        selection.decide(candidate(0))
    tried = candidate(1, refusal=Refusal.SHORT)
    untried = replace(tried, refusal=Refusal.ENOUGH, form="", size=dict(list(tried.size.items())[:-1]))
    assert selections[0].decide(tried) == selections[1].decide(untried)
    assert selections[0].refusals == {Refusal.ENOUGH: 1}


def tree(folder: Path) -> dict[str, str]:
    """Return the texts of all files but the lock."""
    return {str(path.relative_to(folder)): path.read_text(encoding="utf-8")
            for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock"}  # fmt: skip


@pytest.fixture(scope="module")
def invented(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of three domains, half of the candidates bred."""
    folder = tmp_path_factory.mktemp("invented") / "out"
    invent_domains(InventionJob(3, 5, SMALL, ("ferry", "blocksworld")), folder)
    return folder


def test_invented_domains_are_the_same_for_two_workers_and_after_a_break(invented: Path, tmp_path: Path) -> None:
    job = InventionJob(3, 5, SMALL, ("ferry", "blocksworld"))
    folder = tmp_path / "two"
    told: list[Candidate] = []
    selection = invent_domains(job, folder, n_workers=2, decided=told.append)
    assert tree(folder) == tree(invented)
    assert [c.number for c in told] == list(range(len(told)))
    assert len(selection.taken) == 3

    lines = (folder / JOURNAL).read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / JOURNAL).write_text("".join(lines[: len(lines) // 2]) + '{"number": 7', encoding="utf-8")
    first = next(path for path in sorted(folder.iterdir()) if path.is_dir())
    for path in sorted(first.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    first.rmdir()
    invent_domains(job, folder, n_workers=1)
    assert tree(folder) == tree(invented)


def test_invented_domains_differ_from_each_other_and_from_the_library(invented: Path) -> None:
    rows = [json.loads(line) for line in (invented / JOURNAL).read_text(encoding="utf-8").splitlines()[1:]]
    names = {f"invented-5-{row['number']:05d}" for row in rows if row["refusal"] is None}
    assert {path.name for path in invented.iterdir() if path.is_dir()} == names
    forms = {domain_form(load_domain(str(invented / name)).domain) for name in names}
    assert len(forms) == 3
    assert domain_form(BLOCKS) not in forms


def agreement_on(folder: Path, n_plans: int) -> Agreement:
    """Return what unified-planning makes of the domains of a folder, and of plans of each, right ones and broken."""
    get_environment().error_used_name = False
    agreement = Agreement()
    with FastDownward(SMALL.planner) as planner, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for domain in sorted(path for path in folder.iterdir() if path.is_dir()):
            compare(domain, planner, n_plans, agreement)
    return agreement


def test_unified_planning_reads_invented_domains_and_agrees_on_plans(invented: Path) -> None:
    assert agreement_on(invented, 4) == Agreement(n_read=3, n_plans=12)


@pytest.mark.long
def test_500_invented_domains_are_the_same_for_other_workers_and_unified_planning_agrees_on_1000_plans(
    tmp_path: Path,
) -> None:
    job = InventionJob(500, 0)
    for n_workers in (2, 3):
        invent_domains(job, tmp_path / str(n_workers), n_workers=n_workers)
    assert tree(tmp_path / "2") == tree(tmp_path / "3")
    agreement = agreement_on(tmp_path / "2", 3)  # of a few domains the planner does not solve the problem
    assert (agreement.differing, agreement.n_read) == ([], 500) and agreement.n_plans >= 1000


def test_invented_domains_of_other_settings_in_the_folder_are_an_error(invented: Path) -> None:
    with pytest.raises(BadInputError) as caught:
        invent_domains(InventionJob(4, 5, SMALL, ("ferry", "blocksworld")), invented)
    assert "domains of other settings are here" in str(caught.value)
    assert '"n_domains": 3' in str(caught.value)


def test_invention_with_a_grid_that_no_domain_fits_says_why(tmp_path: Path) -> None:
    config = InventionConfig(grid=InventionGrid(predicates=((24, 24),), actions=((1, 1),)), patience=20)
    with pytest.raises(ConfigError) as caught:
        invent_domains(InventionJob(2, 0, config), tmp_path / "out")
    message = str(caught.value)
    assert "20 candidates in a row were refused" in message
    assert "0 of 2 domains; refused: " in message
    assert "outside the grid" in message
    assert "predicates [[24, 24]]" in message


def test_grid_whose_ranges_overlap_is_refused() -> None:
    with pytest.raises(ValidationError, match="without a common value"):
        InventionGrid(actions=((1, 3), (3, 5)))
