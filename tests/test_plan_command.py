"""``plansmith plan``: one problem, several plans, and batches, with the real Fast Downward."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from plansmith.cli import main
from plansmith.config.planner import PlannerConfig
from plansmith.errors import BadInputError, ConfigError
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import parse_step
from plansmith.pddl.validation import validate_plan
from plansmith.planners import (
    FastDownward,
    PlannerResult,
    PlannerStatus,
    diverse_plans,
    judged_result,
)
from plansmith.planners.batch import BAD_INPUT, PlanningCase, SolvedCase, asked_of, cases_of_lines, solve_cases
from plansmith.planners.diverse import MAX_KNOWN_AGAIN, SEARCHES
from tests.test_planners import (
    BLOCKSWORLD,
    HARD,
    SUSSMAN,
    UNSOLVABLE,
    blocks_problem,
    child_pids,
    counter_problem,
    one_tower,
    wait_until_dead,
)

SUSSMAN_STEPS = ["(unstack c a)", "(put-down c)", "(pick-up b)", "(stack b c)", "(pick-up a)", "(stack a b)"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a domain and a problem that can be solved, one that cannot, and one that is no PDDL."""
    texts = {"domain": BLOCKSWORLD, "a-sussman": SUSSMAN, "b-unsolvable": UNSOLVABLE, "c-broken": "(define"}
    for name, text in texts.items():
        (tmp_path / f"{name}.pddl").write_text(text)
    return tmp_path


def plan(folder: Path, problem: str, *options: str) -> int:
    return main(["plan", str(folder / "domain.pddl"), str(folder / f"{problem}.pddl"), *options])


def rows_of(path: Path) -> dict[str, dict[str, object]]:
    return {row["id"]: row for row in map(json.loads, path.read_text().splitlines())}


# one problem


def test_plan_prints_the_plan_as_fast_downward_writes_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(folder, "a-sussman") == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [*SUSSMAN_STEPS, "; cost = 6 (unit cost)"]
    assert "an optimal plan of 6 steps, cost 6" in err


def test_plan_out_holds_the_plan_and_stdout_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(folder, "a-sussman", "--out", str(folder / "plan")) == 0
    assert (folder / "plan").read_text().splitlines() == [*SUSSMAN_STEPS, "; cost = 6 (unit cost)"]
    assert capsys.readouterr().out == ""


def test_plan_general_cost_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    domain = BLOCKSWORLD.replace(":strips", ":strips :action-costs")
    domain = domain.replace("(:action pick-up", "(:functions (total-cost) - number)\n  (:action pick-up")
    domain = domain.replace(":effect (and", ":effect (and (increase (total-cost) 5)")
    (folder / "domain.pddl").write_text(domain)
    problem = SUSSMAN.replace("(:init", "(:init (= (total-cost) 0)").rstrip()[:-1] + "(:metric minimize (total-cost)))"
    (folder / "costly.pddl").write_text(problem)
    assert plan(folder, "costly") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "; cost = 30 (general cost)"  # six steps at 5


def test_plan_json_is_one_object(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(folder, "a-sussman", "--json", "--search", "first") == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["status"], row["cost"], row["is_optimal"]) == ("solved", float(len(row["plan"])), False)


def test_plan_with_an_engine_of_unified_planning(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(folder, "a-sussman", "--planner", "up:fast-downward-opt") == 0
    assert capsys.readouterr().out.splitlines() == [*SUSSMAN_STEPS, "; cost = 6 (unit cost)"]


def test_plan_unsolvable_exits_1_and_says_that_it_is_proven(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(folder, "b-unsolvable") == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "unsolvable: proven" in err


def test_plan_out_of_time_exits_1_and_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "hard.pddl").write_text(HARD)
    assert plan(folder, "hard", "--search", "astar(blind())", "--time-limit", "0.5", "--json") == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["status"] == "out_of_time"
    assert "no plan, out of time" in err


@pytest.mark.parametrize(
    ("problem", "options", "said"),
    [
        ("c-broken", [], "missing ')'"),
        ("no-such-file", [], "cannot be read"),
        ("a-sussman", ["--planner", "zebra"], "unknown planner"),
        ("a-sussman", ["--search", "fastest"], "unknown search"),
        ("a-sussman", ["--search", "astar(zebra())"], "refuses the search"),
        ("a-sussman", ["--search", "first", "--planner", "up:fast-downward"], "their own search"),
        ("a-sussman", ["--time-limit", "0"], "time_limit_s"),
        ("a-sussman", ["--memory-limit", "1"], "memory_limit_mib"),
        ("a-sussman", ["--k", "0"], "no plans wanted"),
        ("a-sussman", ["--k", "2", "--search", "first"], "several searches"),
        ("a-sussman", ["--out", "no/such/folder/plan"], "cannot write"),
        ("a-sussman", ["--batch", "x", "--out", "y"], "a batch needs"),
    ],
)
def test_plan_bad_input_exits_2_and_says_what(
    folder: Path, capsys: pytest.CaptureFixture[str], problem: str, options: list[str], said: str
) -> None:
    assert plan(folder, problem, *options) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err


def test_plan_without_problem_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan"]) == 2
    assert "nothing to solve" in capsys.readouterr().err


# several plans


@pytest.fixture(scope="module")
def task() -> PlanningTask:
    return PlanningTask.from_text(BLOCKSWORLD, one_tower(5))


class CountingPlanner(FastDownward):
    """Counts its searches, and remembers which translations they found or made."""

    def __init__(self) -> None:
        super().__init__()
        self.n_searches, self.translations = 0, set[int]()

    def _search(self, folder: Path, settings: PlannerConfig) -> PlannerResult:
        self.n_searches += 1
        result = super()._search(folder, settings)
        translation = folder / "output.sas"
        self.translations |= {translation.stat().st_mtime_ns} if translation.exists() else set()
        return result


def test_diverse_plans_are_valid_different_as_multisets_and_the_same_for_a_seed(task: PlanningTask) -> None:
    with FastDownward() as planner:
        first, again, other = (diverse_plans(planner, BLOCKSWORLD, one_tower(5), k=6, seed=seed) for seed in (1, 1, 2))
    plans = [result.plan or () for result in first]
    assert len({tuple(sorted(steps)) for steps in plans}) == 6
    assert all(validate_plan(task, [parse_step(step) for step in steps]).is_valid for steps in plans)
    assert first[0].is_optimal and first[0].cost == 8.0  # four blocks, two steps each
    assert plans == [result.plan for result in again]
    assert plans != [result.plan for result in other]


def test_diverse_plans_fewer_come_back_when_there_is_only_one() -> None:
    domain, problem = counter_problem(3)  # each state has one action that counts on
    with FastDownward() as planner:
        found = diverse_plans(planner, domain, problem, k=3)
    assert [result.cost for result in found] == [7.0]


def test_diverse_plans_end_soon_where_plans_repeat_and_translate_once() -> None:
    domain, problem = counter_problem(3)
    with CountingPlanner() as planner:
        diverse_plans(planner, domain, problem, k=50)
        assert planner.n_searches <= len(SEARCHES) + MAX_KNOWN_AGAIN
        assert len(planner.translations) == 1


def test_opened_problem_keeps_no_plan_of_an_earlier_search() -> None:
    with FastDownward() as planner, planner.opened(BLOCKSWORLD, one_tower(5)) as search:
        optimal = search(PlannerConfig(search="optimal"))
        other = search(PlannerConfig(search="lazy_greedy([goalcount()],randomize_successors=true,random_seed=3)"))
        with pytest.raises(ConfigError, match="refuses the search"):
            search(PlannerConfig(search="no_such_search()"))
    assert optimal.is_optimal and not other.is_optimal
    assert other.plan != optimal.plan


def test_diverse_plans_orders_of_the_same_actions_count_once() -> None:
    domain = """(define (domain doors) (:requirements :strips) (:predicates (open ?d) (door ?d))
      (:action push :parameters (?d) :precondition (door ?d) :effect (open ?d)))"""
    problem = """(define (problem p) (:domain doors) (:objects a b) (:init (door a) (door b))
      (:goal (and (open a) (open b))))"""
    with FastDownward() as planner:
        found = diverse_plans(planner, domain, problem, k=2)
    assert [sorted(result.plan or ()) for result in found] == [["(push a)", "(push b)"]]


def test_diverse_plans_unsolvable_gives_none_at_once() -> None:
    with CountingPlanner() as planner:
        assert diverse_plans(planner, BLOCKSWORLD, UNSOLVABLE, k=4) == []
        assert planner.n_searches == 1


def test_diverse_plans_searches_that_know_no_axioms_are_passed_over() -> None:
    domain = """(define (domain reach) (:requirements :strips :derived-predicates)
      (:predicates (edge ?x ?y) (path ?x ?y))
      (:derived (path ?x ?y) (or (edge ?x ?y) (exists (?z) (and (edge ?x ?z) (path ?z ?y)))))
      (:action link :parameters (?x ?y) :precondition (path ?x ?x) :effect (edge ?x ?y)))"""
    problem = "(define (problem p) (:domain reach) (:objects a b c) (:init (edge a a) (edge b c)) (:goal (path a c)))"
    with FastDownward() as planner:
        found = diverse_plans(planner, domain, problem, k=2)
    assert min(len(result.plan or ()) for result in found) == 1  # one more edge, a to b or a to c, makes the path
    assert not any(result.is_optimal for result in found)  # the only optimal search knows no axioms


def test_plan_k_writes_numbered_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "tower.pddl").write_text(one_tower(5))
    assert plan(folder, "tower", "--k", "3", "--out", str(folder / "plan"), "--json") == 0
    texts = [(folder / f"plan.{number}").read_text() for number in (1, 2, 3)]
    assert len(set(texts)) == 3
    assert texts[0].endswith("; cost = 8 (unit cost)\n")
    assert json.loads(capsys.readouterr().out)["n_plans"] == 3


def test_plan_k_unsolvable_exits_1(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(folder, "b-unsolvable", "--k", "3") == 1
    assert "unsolvable: proven" in capsys.readouterr().err


@pytest.mark.parametrize("steps", [("(pick-up b)",), ("(fly a)",), ("pick-up ((",)], ids=["goal", "unknown", "garbage"])
def test_judged_result_plan_that_is_not_valid_is_a_crash(task: PlanningTask, steps: tuple[str, ...]) -> None:
    result = judged_result(task, PlannerResult(PlannerStatus.SOLVED, steps, 1.0, 0.1, is_optimal=True))
    assert (result.status, result.plan, result.cost, result.is_optimal) == (PlannerStatus.CRASHED, None, None, False)
    assert "not valid" in result.message


# batches


@pytest.mark.parametrize("n_workers", ["1", "2"])
def test_batch_of_a_folder_gives_every_problem_its_row(
    folder: Path, capsys: pytest.CaptureFixture[str], n_workers: str
) -> None:
    out = folder / "results.jsonl"
    assert main(["plan", "--batch", str(folder), "--out", str(out), "--workers", n_workers]) == 0
    rows = rows_of(out)
    assert {name: row["status"] for name, row in rows.items()} == {
        "a-sussman": "solved",
        "b-unsolvable": "unsolvable",
        "c-broken": BAD_INPUT,
    }
    assert (rows["a-sussman"]["plan"], rows["a-sussman"]["cost"]) == (SUSSMAN_STEPS, 6.0)
    assert "missing ')'" in str(rows["c-broken"]["message"])
    table = capsys.readouterr().out
    assert "1  of 3 solved" in table
    assert "6  steps a plan (median; 6 to 6)" in table
    assert "problems a second" in table


def test_batch_keeps_going_after_a_problem_that_the_planner_cannot_read_and_we_can(folder: Path) -> None:
    text = (folder / "a-sussman.pddl").read_text().rstrip()
    (folder / "a-serial.pddl").write_text(f"{text[:-1]} (:length (:serial 5)))\n")
    out = folder / "results.jsonl"
    assert main(["plan", "--batch", str(folder), "--out", str(out)]) == 0
    rows = rows_of(out)
    assert (rows["a-serial"]["status"], rows["b-unsolvable"]["status"]) == ("unsupported", "unsolvable")


def test_batch_of_lines_keeps_going_after_lines_that_are_none(folder: Path) -> None:
    lines = [
        json.dumps({"id": 7, "domain_path": "domain.pddl", "problem_path": "a-sussman.pddl"}),
        "{no json",
        "[]",
        json.dumps({"id": "pathless", "domain_path": "domain.pddl"}),
        json.dumps({"id": "missing", "domain_path": "domain.pddl", "problem_path": "nowhere.pddl"}),
    ]
    (folder / "cases.jsonl").write_text("\n".join(lines) + "\n")
    assert main(["plan", "--batch", str(folder / "cases.jsonl"), "--out", str(folder / "results.jsonl")]) == 0
    rows = rows_of(folder / "results.jsonl")
    assert {name: row["status"] for name, row in rows.items()} == {
        "7": "solved", "line 2": BAD_INPUT, "line 3": BAD_INPUT, "pathless": BAD_INPUT, "missing": BAD_INPUT,
    }  # fmt: skip


def test_batch_continues_where_it_stopped_and_drops_a_half_written_line(folder: Path) -> None:
    out = folder / "results.jsonl"
    case = PlanningCase("b-unsolvable", folder / "domain.pddl", folder / "b-unsolvable.pddl")
    asked = asked_of(case, PlannerConfig())
    step = "(kept as it is)"
    kept = SolvedCase(case.id, "fast-downward optimal", "solved", (step,), 1.0, 0.5, True, asked=asked)
    out.write_text(kept.to_json() + '\n{"id": "a-suss')
    assert main(["plan", "--batch", str(folder), "--out", str(out)]) == 0
    lines = out.read_text().splitlines()
    assert lines[0] == kept.to_json()
    assert sorted(rows_of(out)) == ["a-sussman", "b-unsolvable", "c-broken"]
    assert len(lines) == 3
    assert rows_of(out)["a-sussman"]["status"] == "solved"
    assert main(["plan", "--batch", str(folder), "--out", str(out)]) == 0
    assert out.read_text().splitlines() == lines  # nothing is left to be done


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a shopping list\n", "not a result"),
        ("my notes without an end", "not a result"),
        (SolvedCase("x", "fast-downward first", "gave_up", None, None, 0.1, False).to_json() + "\n", "another planner"),
    ],
)
def test_batch_refuses_to_continue_another_file(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    out = folder / "results.jsonl"
    out.write_text(text)
    assert main(["plan", "--batch", str(folder), "--out", str(out)]) == 2
    assert said in capsys.readouterr().err
    assert out.read_text() == text


def test_batch_solves_again_what_has_other_texts_or_limits_and_keeps_rows_of_other_problems(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, other = folder / "results.jsonl", SolvedCase("z", "fast-downward optimal", "crashed", None, None, 0.1, False)
    out.write_text(other.to_json() + "\n")
    command = ["plan", "--batch", str(folder), "--out", str(out)]
    assert main(command) == 0
    assert rows_of(out)["b-unsolvable"]["status"] == "unsolvable"
    (folder / "b-unsolvable.pddl").write_text(SUSSMAN)
    assert main(command) == 0
    assert rows_of(out)["b-unsolvable"]["status"] == "solved"
    assert "2 of 3 problems have their row already\n1 have a row of other texts" in capsys.readouterr().err
    assert sorted(json.loads(line)["id"] for line in out.read_text().splitlines()) == sorted([*rows_of(out)])
    assert main([*command, "--time-limit", "20"]) == 0
    assert "3 have a row of other texts or limits" in capsys.readouterr().err
    assert rows_of(out)["z"]["status"] == "crashed"


def test_batch_line_with_a_text_in_the_place_of_a_path_is_a_row(folder: Path) -> None:
    rows = [{"id": "text", "domain_path": BLOCKSWORLD * 9, "problem_path": "a-sussman.pddl"},
            {"id": "zero", "domain_path": "\0", "problem_path": "a-sussman.pddl"}]  # fmt: skip
    cases = cases_of_lines("\n".join([*map(json.dumps, rows), "[" * 100_000]), folder=folder)
    with contextlib.closing(solve_cases(cases, FastDownward)) as solved:
        assert [row.status for row in solved] == [BAD_INPUT] * 3


def test_plan_that_could_not_be_written_is_not_looked_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(folder, "c-broken", "--out", str(folder / "nowhere" / "plan.txt")) == 2
    assert "cannot write the plan" in capsys.readouterr().err
    assert plan(folder, "a-sussman", "--time-limit", "1e9") == 2
    assert "time_limit_s" in capsys.readouterr().err


def test_batch_interrupted_keeps_its_rows_and_leaves_no_process(folder: Path) -> None:
    (folder / "d-hard.pddl").write_text(HARD)
    out = folder / "results.jsonl"
    root = str(Path(__file__).parents[1])
    command = [sys.executable, "-m", "plansmith.cli", "plan", "--batch", str(folder), "--out", str(out)]
    options = ["--search", "astar(blind())", "--time-limit", "500"]
    batch = subprocess.Popen(
        [*command, *options],
        env={**os.environ, "PYTHONPATH": root},
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )
    while batch.poll() is None and (not out.exists() or out.read_text().count("\n") < 3):
        time.sleep(0.05)
    family = [pid for worker in child_pids(batch.pid) for pid in (worker, *child_pids(worker))]
    batch.send_signal(signal.SIGINT)
    batch.communicate()
    assert batch.returncode == 130
    assert family and wait_until_dead(family)
    assert len(rows_of(out)) == 3


def test_cases_of_lines_same_id_twice_raises_bad_input() -> None:
    line = json.dumps({"id": "x", "domain_path": "d", "problem_path": "p"})
    with pytest.raises(BadInputError, match="same id"):
        cases_of_lines(f"{line}\n{line}\n", folder=Path())


def test_batch_of_a_folder_without_domain_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.pddl").write_text(blocks_problem("(on a b)"))
    assert main(["plan", "--batch", str(tmp_path), "--out", str(tmp_path / "r")]) == 2
    assert "no domain" in capsys.readouterr().err


def test_solve_cases_planner_that_crashes_over_one_problem_leaves_a_row(folder: Path, tmp_path: Path) -> None:
    binary = tmp_path / "downward"
    binary.write_text("#!/bin/sh\necho famous last words\nexit 77\n")
    binary.chmod(0o755)
    cases = [
        PlanningCase(name, folder / "domain.pddl", folder / f"{name}.pddl") for name in ("a-sussman", "b-unsolvable")
    ]
    settings = PlannerConfig()
    with contextlib.closing(solve_cases(cases, lambda: FastDownward(settings, search_binary=binary))) as solved:
        rows = list(solved)
    assert [row.status for row in rows] == ["crashed", "crashed"]
    assert "famous last words" in rows[0].message
