"""Cases and the commands on them: every row gets its verdict, whatever it holds; exit codes, text and JSON."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from conftest import BLOCKS_TEXT, SUSSMAN_PLAN, print_plan

from plansmith import cli
from plansmith.pddl import validation
from plansmith.pddl.cases import CHUNK_CASES, CaseRow, judge_cases, judge_texts, read_task
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import LONGEST_REMEMBERED
from plansmith.pddl.validation import Verdict

Capture = pytest.CaptureFixture[str]

SUSSMAN_TEXT = """(define (problem p) (:domain blocksworld) (:objects a b c)
  (:init (on c a) (ontable a) (ontable b) (clear c) (clear b) (handempty))
  (:goal (and (on a b) (on b c))))
"""
GOOD = print_plan(SUSSMAN_PLAN)
PLANS = {
    "good": (GOOD, Verdict.VALID, None),
    "empty": ("", Verdict.GOAL_NOT_REACHED, None),
    "short": ("(unstack c a)\n", Verdict.GOAL_NOT_REACHED, None),
    "early": ("(unstack c a) (pick-up b)", Verdict.PRECONDITION_UNSATISFIED, 2),  # the hand holds c
    "unknown": ("(unstack c a) (fly b)", Verdict.MALFORMED_PLAN, 2),
    "prose": ("first take c off a", Verdict.MALFORMED_PLAN, None),
}
BAD_DOMAIN = BLOCKS_TEXT.replace("(:predicates", "(:predicate", 1)
ROW_KEYS = ["verdict", "failed_step", "unsatisfied", "reason", "plan_length", "cost"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a domain, a broken one, a problem, plans and a file that is no text."""
    (tmp_path / "domain.pddl").write_text(BLOCKS_TEXT, encoding="utf-8")
    (tmp_path / "bad.pddl").write_text(BAD_DOMAIN, encoding="utf-8")
    (tmp_path / "problem.pddl").write_text(SUSSMAN_TEXT, encoding="utf-8")
    (tmp_path / "binary.pddl").write_bytes(b"\x80\x00\xff")
    for name, (plan, _, _) in PLANS.items():
        (tmp_path / f"{name}.plan").write_text(plan, encoding="utf-8")
    return tmp_path


def row(number: int, plan: object = GOOD, **changed: object) -> str:
    """Return a line of a file of cases, its paths relative to it."""
    paths = {"domain_path": "domain.pddl", "problem_path": "problem.pddl"}
    return json.dumps({"id": f"case-{number}", **paths, "plan": plan, **changed})


def judged(lines: list[str], folder: Path, n_workers: int = 1) -> list[CaseRow]:
    """Return the verdicts on lines."""
    return [one for rows in judge_cases(lines, folder=folder, n_workers=n_workers) for one in rows]


# --- read_task


def test_read_task_of_several_problems_reads_their_domain_once() -> None:
    tasks = [read_task(BLOCKS_TEXT, SUSSMAN_TEXT.replace("p)", name, 1)) for name in ("p1)", "p2)")]
    assert isinstance(tasks[0], PlanningTask) and isinstance(tasks[1], PlanningTask)
    assert tasks[0].domain is tasks[1].domain and tasks[0].problem != tasks[1].problem


def test_read_task_of_another_or_a_long_domain_is_read_anew() -> None:
    long = f"{BLOCKS_TEXT};{'x' * LONGEST_REMEMBERED}"
    tasks = [read_task(text, SUSSMAN_TEXT) for text in (BLOCKS_TEXT, f"{BLOCKS_TEXT} ", long, long)]
    assert len({id(task.domain) for task in tasks if isinstance(task, PlanningTask)}) == 4


def test_read_task_of_a_broken_domain_names_its_mistakes_each_time() -> None:
    first, second = (read_task(BAD_DOMAIN, SUSSMAN_TEXT) for _ in range(2))
    assert first == second and not isinstance(first, PlanningTask) and len(first) == 1


# --- judge_texts


@pytest.mark.parametrize(("plan", "verdict", "step"), PLANS.values(), ids=PLANS)
def test_judge_texts_gives_the_verdict_with_its_task(plan: str, verdict: Verdict, step: int | None) -> None:
    case = judge_texts(BLOCKS_TEXT, SUSSMAN_TEXT, plan)
    assert (case.verdict.verdict, case.verdict.failed_step) == (verdict, step)
    assert case.task is not None and case.diagnostics == ()


@pytest.mark.parametrize("plan", [GOOD, "prose"], ids=["good plan", "bad plan"])
def test_judge_texts_broken_domain_is_bad_input_with_every_error(plan: str) -> None:
    case = judge_texts(BAD_DOMAIN, SUSSMAN_TEXT, plan, domain_source="d.pddl")
    assert (case.verdict.verdict, case.task) == (Verdict.BAD_INPUT, None)
    assert case.diagnostics and all(found.is_error and found.place.source == "d.pddl" for found in case.diagnostics)
    assert case.verdict.reason == str(case.diagnostics[0])


def test_judge_texts_broken_problem_is_bad_input_with_every_error() -> None:
    problem = SUSSMAN_TEXT.replace("(on c a)", "(on c zz) (under a)")
    case = judge_texts(BLOCKS_TEXT, problem, GOOD, problem_source="p.pddl")
    assert case.verdict.verdict is Verdict.BAD_INPUT
    assert [(str(found.place), found.code.value) for found in case.diagnostics] == [
        ("p.pddl:2:16", "undeclared-object"),
        ("p.pddl:2:21", "undefined-predicate"),
    ]


def test_judge_texts_quantifiers_beyond_any_expansion_are_bad_input() -> None:
    names = " ".join(f"o{number}" for number in range(1000))
    domain = "(define (domain d) (:predicates (p ?x)) (:action a :effect ()))"
    goal = "(forall (?a ?b ?c ?d ?e ?f) (or (p ?a) (p ?b)))"
    problem = f"(define (problem p) (:domain d) (:objects {names}) (:init) (:goal {goal}))"
    case = judge_texts(domain, problem, "(a)")
    assert case.verdict.verdict is Verdict.BAD_INPUT and "too many instances" in case.verdict.reason


WIDE = """(define (domain d) (:predicates (never) (q ?x) (s ?x) (r ?x ?y))
 (:action a :parameters (?x ?z) :precondition (and FIRST (forall (?u ?v) (or (q ?u) (not (q ?v)) (r ?x ?y))))
  :effect (s ?z))
 (:action b :parameters (?x) :effect (q ?x)))""".replace("?y", "?z")


def test_judge_texts_expands_no_step_before_its_turn_and_not_more_than_it_can_look_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(validation, "PLAN_EXPANSION_LIMIT_BYTES", 2**22)
    names = [f"o{number}" for number in range(50)]
    problem = f"(define (problem p) (:domain d) (:objects {' '.join(names)}) (:init) (:goal (s o0)))"
    plan = "\n".join(f"(a {first} {second})" for first in names[:20] for second in names)
    fails = judge_texts(WIDE.replace("FIRST", "(never)"), problem, plan)
    assert (fails.verdict.verdict, fails.verdict.failed_step) == (Verdict.PRECONDITION_UNSATISFIED, 1)
    assert fails.task is not None
    assert len(fails.task._steps) == 1
    [first, *rest] = (judge_texts(WIDE.replace("FIRST", "(and)"), problem, plan) for _ in range(2))
    assert first.verdict.verdict is Verdict.BAD_INPUT
    assert "more instances of quantifiers than can be expanded" in first.verdict.reason
    assert [other.verdict for other in rest] == [first.verdict]
    malformed = judge_texts(WIDE.replace("FIRST", "(never)"), problem, f"{plan}\n(c)")
    assert malformed.verdict.verdict is Verdict.MALFORMED_PLAN


# --- judge_cases


@pytest.mark.parametrize(("plan", "verdict", "step"), PLANS.values(), ids=PLANS)
def test_judge_cases_row_has_the_verdict_of_the_texts(
    plan: str, verdict: Verdict, step: int | None, folder: Path
) -> None:
    (found,) = judged([row(7, plan)], folder)
    assert list(found) == ["id", *ROW_KEYS]
    assert (found["id"], found["verdict"], found["failed_step"]) == ("case-7", verdict.value, step)
    assert found == {"id": "case-7", **judge_texts(BLOCKS_TEXT, SUSSMAN_TEXT, plan, plan_source="plan").to_row()}


def test_judge_cases_plan_as_list_of_steps_is_the_plan(folder: Path) -> None:
    (found,) = judged([row(0, [str(step) for step in SUSSMAN_PLAN])], folder)
    assert (found["verdict"], found["plan_length"], found["cost"]) == ("valid", 6, 6)


BROKEN_ROWS = {
    "invalid JSON": ("{", None, "line 1"),
    "cut off": (row(0)[:-5], None, "line 1"),
    "a list": ("[1, 2]", None, "not an object"),
    "null": ("null", None, "not an object"),
    "a text": ('"plan"', None, "not an object"),
    "too deep": ("[" * 100_000, None, "line 1"),
    "huge number": ('{"id": ' + "1" * 10_000 + "}", None, "line 1"),
    "nothing in it": ("{}", None, "domain_path"),
    "no domain": (row(0, domain_path=None), "case-0", "domain_path"),
    "no problem": ('{"id": "case-0", "domain_path": "domain.pddl", "plan": ""}', "case-0", "problem_path"),
    "path no text": (row(0, problem_path=["problem.pddl"]), "case-0", "problem_path"),
    "plan missing": (row(0, None), "case-0", "no plan"),
    "plan a number": (row(0, 3), "case-0", "no plan"),
    "step no text": (row(0, ["(unstack c a)", 3]), "case-0", "no plan"),
    "missing file": (row(0, domain_path="nowhere.pddl"), "case-0", "nowhere.pddl"),
    "a folder": (row(0, domain_path="."), "case-0", "read"),
    "binary file": (row(0, problem_path="binary.pddl"), "case-0", "UTF-8"),
    "NUL in a path": (row(0, problem_path="a\0b"), "case-0", "line 1"),
    "path too long": (row(0, problem_path="a" * 5000), "case-0", "line 1"),
    "surrogate in a path": (row(0, problem_path="\ud800"), "case-0", "line 1"),
    "broken domain": (row(0, domain_path="bad.pddl"), "case-0", ":predicate"),
    "problem as domain": (row(0, domain_path="problem.pddl"), "case-0", "not a domain"),
}


@pytest.mark.parametrize(("line", "name", "words"), BROKEN_ROWS.values(), ids=BROKEN_ROWS)
def test_judge_cases_broken_row_is_bad_input_and_the_others_are_judged(
    line: str, name: str | None, words: str, folder: Path
) -> None:
    first, second = judged([line, row(1)], folder)
    assert (first["id"], first["verdict"]) == (name, "bad_input")
    assert words in first["reason"]
    assert (second["id"], second["verdict"]) == ("case-1", "valid")
    json.dumps([first, second])


def test_judge_cases_broken_domain_row_lists_its_diagnostics(folder: Path) -> None:
    (found,) = judged([row(0, domain_path="bad.pddl")], folder)
    first = found["diagnostics"][0]
    assert list(first) == ["code", "severity", "source", "line", "column", "message", "got", "expected", "repair"]
    assert (first["code"], first["severity"], first["source"]) == (
        "unknown-section", "error", str(folder / "bad.pddl"))  # fmt: skip


def test_judge_cases_blank_lines_are_skipped_and_count_as_lines(folder: Path) -> None:
    found = judged(["", row(1), "  ", "{"], folder)
    assert [one["id"] for one in found] == ["case-1", None]
    assert found[1]["reason"].startswith("line 4:")


def test_judge_cases_no_lines_yields_nothing(folder: Path) -> None:
    assert judged([], folder) == judged(["", "\n"], folder) == []


def test_judge_cases_existing_path_is_taken_from_the_working_directory_first(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "domain.pddl").write_text(BAD_DOMAIN, encoding="utf-8")
    monkeypatch.chdir(elsewhere)
    here, absolute = judged([row(0), row(1, domain_path=str(folder / "domain.pddl"))], folder)
    assert (here["verdict"], absolute["verdict"]) == ("bad_input", "valid")


def test_judge_cases_two_workers_give_the_rows_of_one_in_the_same_order(folder: Path) -> None:
    plans = [plan for plan, _, _ in PLANS.values()]
    lines = [row(number, plans[number % len(plans)]) for number in range(2 * CHUNK_CASES + 5)]
    lines[3], lines[CHUNK_CASES] = "{", row(99, domain_path="bad.pddl")
    one, two = judged(lines, folder), judged(lines, folder, n_workers=2)
    assert one == two
    expected = [f"case-{number}" for number in range(len(lines))]
    expected[CHUNK_CASES] = "case-99"
    assert [found["id"] for found in one] == [*expected[:3], None, *expected[4:]]


def test_judge_cases_verdict_does_not_depend_on_the_cases_before_it(folder: Path) -> None:
    """A goal too large to expand stays so when the same task is asked again."""
    names = " ".join(f"o{number}" for number in range(150))
    rule = "(:derived (d) (exists (?a ?b ?c) (and (p ?a) (p ?b) (p ?c))))"
    (folder / "wide.pddl").write_text(
        f"(define (domain w) (:predicates (p ?x) (d)) {rule} (:action a :parameters (?x) :effect (p ?x)))"
    )
    (folder / "wide-1.pddl").write_text(
        f"(define (problem p) (:domain w) (:objects {names}) (:init) (:goal (or (d) (p o1))))"
    )
    lines = [row(number, "", domain_path="wide.pddl", problem_path="wide-1.pddl") for number in range(3)]
    assert [found["verdict"] for found in judged(lines, folder)] == ["bad_input"] * 3


def test_judge_cases_file_changed_between_calls_is_read_again(folder: Path) -> None:
    (before,) = judged([row(0)], folder)
    (folder / "domain.pddl").write_text(BAD_DOMAIN, encoding="utf-8")
    (after,) = judged([row(0)], folder)
    assert (before["verdict"], after["verdict"]) == ("valid", "bad_input")


# --- plansmith validate


def paths(folder: Path, domain: str, problem: str, plan: str) -> list[str]:
    """Return the arguments that name three files of a folder; ``-`` stays."""
    return [str(folder / domain), str(folder / problem), plan if plan == "-" else str(folder / plan)]


@pytest.mark.parametrize(
    ("domain", "problem", "plan", "code"),
    [
        ("domain.pddl", "problem.pddl", "good.plan", 0),
        ("domain.pddl", "problem.pddl", "empty.plan", 1),
        ("domain.pddl", "problem.pddl", "early.plan", 1),
        ("domain.pddl", "problem.pddl", "unknown.plan", 1),
        ("domain.pddl", "problem.pddl", "prose.plan", 1),
        ("bad.pddl", "problem.pddl", "good.plan", 255),
        ("domain.pddl", "domain.pddl", "good.plan", 255),
        ("nowhere.pddl", "problem.pddl", "good.plan", 2),
        ("domain.pddl", "binary.pddl", "good.plan", 2),
        ("domain.pddl", "problem.pddl", "nowhere.plan", 2),
        ("domain.pddl", "problem.pddl", "binary.pddl", 2),
    ],
)
@pytest.mark.parametrize("option", [[], ["-v"], ["--json"]], ids=["plain", "verbose", "json"])
def test_validate_exit_code_is_that_of_val(
    domain: str, problem: str, plan: str, code: int, option: list[str], folder: Path
) -> None:
    assert cli.main(["validate", *paths(folder, domain, problem, plan), *option]) == code


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["domain.pddl"],
        ["domain.pddl", "problem.pddl"],
        ["--batch", "cases.jsonl"],
        ["--batch", "cases.jsonl", "--out", "cases.jsonl"],
        ["--batch", "cases.jsonl", "--out", "out.jsonl", "--json"],
        ["domain.pddl", "problem.pddl", "plan.txt", "--out", "out.jsonl"],
        ["--batch", "cases.jsonl", "--out", "out.jsonl", "domain.pddl"],
        ["--batch", "cases.jsonl", "--out", "out.jsonl", "--workers", "0"],
        ["--out", "out.jsonl"],
        ["--batch", "nowhere.jsonl", "--out", "out.jsonl"],
        ["--batch", "binary.pddl", "--out", "out.jsonl"],
    ],
)
def test_validate_wrong_usage_ends_with_code_2_and_one_message(
    arguments: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(folder)
    Path("cases.jsonl").write_text(row(0))
    before = sorted(folder.iterdir())
    assert cli.main(["validate", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "Traceback" not in err and "error: " in err
    assert sorted(folder.iterdir()) == before


def test_validate_verbose_valid_plan_prints_what_val_prints(folder: Path, capsys: Capture) -> None:
    names = paths(folder, "domain.pddl", "problem.pddl", "good.plan")
    assert cli.main(["validate", *names, "-v"]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert err == ""
    assert lines[:6] == [f"Checking plan: {names[2]}", "Plan to validate:", "", "Plan size: 6", "1:", "(unstack c a)"]
    end = lines.index("Plan executed successfully - checking goal")
    assert lines[end + 1 : end + 3] == ["Plan valid", "Final value: 6 "]
    assert [line for line in lines[-5:] if line] == ["Successful plans:", "Value: 6", f" {names[2]} 6 "]


def test_validate_verbose_failing_plan_ends_with_advice_and_the_failed_plans(folder: Path, capsys: Capture) -> None:
    names = paths(folder, "domain.pddl", "problem.pddl", "early.plan")
    assert cli.main(["validate", *names, "-v"]) == 1
    out = capsys.readouterr().out
    assert out.startswith(f"Checking plan: {names[2]}\nPlan to validate:\n")
    assert "Plan failed because of unsatisfied precondition in:\n(pick-up b)\n\nPlan failed to execute\n" in out
    assert "(pick-up b) has an unsatisfied precondition at time 2\n" in out
    assert "(Set (handempty) to true)\n" in out
    assert [line for line in out.splitlines() if line][-2:] == ["Failed plans:", f" {names[2]} "]


def test_validate_malformed_plan_says_so_as_val_does_and_why_on_stderr(folder: Path, capsys: Capture) -> None:
    assert cli.main(["validate", *paths(folder, "domain.pddl", "problem.pddl", "unknown.plan")]) == 1
    out, err = capsys.readouterr()
    assert "Bad plan description!" in out
    assert "no action is called 'fly'" in err


def test_validate_broken_domain_names_every_error_on_stderr(folder: Path, capsys: Capture) -> None:
    names = paths(folder, "bad.pddl", "problem.pddl", "good.plan")
    assert cli.main(["validate", *names]) == 255
    out, err = capsys.readouterr()
    assert out == ""
    assert f"{names[0]}:" in err and "[unknown-section]" in err


@pytest.mark.parametrize(("name", "expected"), PLANS.items(), ids=PLANS)
def test_validate_json_is_the_row_of_the_case(
    name: str, expected: tuple[str, Verdict, int | None], folder: Path, capsys: Capture
) -> None:
    plan, verdict, step = expected
    cli.main(["validate", *paths(folder, "domain.pddl", "problem.pddl", f"{name}.plan"), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ROW_KEYS
    assert (found["verdict"], found["failed_step"]) == (verdict.value, step)
    plan_source = str(folder / f"{name}.plan")
    assert found == judge_texts(BLOCKS_TEXT, SUSSMAN_TEXT, plan, plan_source=plan_source).to_row()


def test_validate_json_unmet_precondition_lists_the_false_conditions(folder: Path, capsys: Capture) -> None:
    cli.main(["validate", *paths(folder, "domain.pddl", "problem.pddl", "early.plan"), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (found["unsatisfied"], found["plan_length"], found["cost"]) == (["(handempty)"], 2, 1)


def test_validate_json_broken_domain_lists_the_diagnostics(folder: Path, capsys: Capture) -> None:
    assert cli.main(["validate", *paths(folder, "bad.pddl", "problem.pddl", "good.plan"), "--json", "--trace"]) == 255
    found = json.loads(capsys.readouterr().out)
    assert list(found) == [*ROW_KEYS, "diagnostics"]
    assert (found["verdict"], found["diagnostics"][0]["code"]) == ("bad_input", "unknown-section")


def test_validate_trace_lists_every_state_up_to_the_failure(folder: Path, capsys: Capture) -> None:
    cli.main(["validate", *paths(folder, "domain.pddl", "problem.pddl", "early.plan"), "--json", "--trace"])
    found = json.loads(capsys.readouterr().out)
    first, second = map(set, found["state_trace"])  # the failed step leads nowhere
    assert first == {"(on c a)", "(ontable a)", "(ontable b)", "(clear c)", "(clear b)", "(handempty)"}
    # unstack c a: the hand holds c, a is clear
    assert second == {"(holding c)", "(clear a)", "(ontable a)", "(ontable b)", "(clear b)"}


@pytest.mark.parametrize(("text", "code"), [(GOOD, 0), ("", 1), ("(fly a)", 1)], ids=["good", "empty", "malformed"])
def test_validate_dash_reads_the_plan_from_stdin(
    text: str, code: int, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    assert cli.main(["validate", *paths(folder, "domain.pddl", "problem.pddl", "-"), "-v"]) == code
    assert capsys.readouterr().out.startswith("Checking plan: -\n")


def test_validate_stdin_that_is_no_text_ends_with_code_2(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"(a \xff\xfe)"), encoding="utf-8"))
    assert cli.main(["validate", *paths(folder, "domain.pddl", "problem.pddl", "-")]) == 2
    assert "error: " in capsys.readouterr().err


@pytest.mark.parametrize("n_workers", [1, 2])
def test_validate_batch_writes_one_row_for_each_case_in_order(n_workers: int, folder: Path, capsys: Capture) -> None:
    plans = [plan for plan, _, _ in PLANS.values()]
    lines = [row(number, plans[number % len(plans)]) for number in range(36)]
    lines[2] = "{"
    cases, out = folder / "cases.jsonl", folder / "verdicts.jsonl"
    cases.write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    command = ["validate", "--batch", str(cases), "--out", str(out), "--workers", str(n_workers)]
    assert cli.main(command) == 0  # every row has got its verdict
    found = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert found == judged(lines, folder)
    assert [one["id"] for one in found[:4]] == ["case-0", "case-1", None, "case-3"]
    printed = capsys.readouterr().out
    # 36 rows over six plans: six of each; the third, a goal not reached, is the broken row
    assert [line.split() for line in printed.splitlines()] == [
        ["12", "malformed_plan"], ["11", "goal_not_reached"], ["6", "valid"], ["6", "precondition_unsatisfied"],
        ["1", "bad_input"], ["verdicts:", str(out)],
    ]  # fmt: skip
    assert not list(folder.glob(".*"))


def test_validate_batch_without_cases_writes_an_empty_file(folder: Path) -> None:
    cases, out = folder / "cases.jsonl", folder / "verdicts.jsonl"
    cases.write_text("")
    assert cli.main(["validate", "--batch", str(cases), "--out", str(out)]) == 0
    assert out.read_text() == ""


@pytest.mark.parametrize("character", ["\u2028", "\x85", "\x0b", "\x1c"], ids=ascii)
def test_validate_batch_only_a_line_feed_ends_a_row(character: str, folder: Path) -> None:
    """JSON strings may hold U+2028 and U+0085 as they are; the others only escaped, so the row is one bad row."""
    cases, out = folder / "cases.jsonl", folder / "verdicts.jsonl"
    case = {"id": 1, "domain_path": "domain.pddl", "problem_path": "problem.pddl", "plan": GOOD + character}
    cases.write_text(json.dumps(case, ensure_ascii=False) + "\n" + row(2) + "\n", encoding="utf-8")
    assert cli.main(["validate", "--batch", str(cases), "--out", str(out)]) == 0
    assert [json.loads(line)["id"] for line in out.read_text().splitlines()] == [1, "case-2"]


def test_validate_batch_unwritable_out_ends_with_code_2_and_leaves_nothing(folder: Path, capsys: Capture) -> None:
    cases, taken = folder / "cases.jsonl", folder / "taken"
    cases.write_text(row(0))
    taken.mkdir()
    for out in (folder / "nowhere" / "verdicts.jsonl", taken):
        before = sorted(folder.rglob("*"))
        assert cli.main(["validate", "--batch", str(cases), "--out", str(out)]) == 2
        assert "cannot write the verdicts" in capsys.readouterr().err
        assert sorted(folder.rglob("*")) == before


def test_validate_batch_earlier_verdicts_are_replaced(folder: Path) -> None:
    cases, out = folder / "cases.jsonl", folder / "verdicts.jsonl"
    cases.write_text(row(5))
    out.write_text("old\n" * 100)
    assert cli.main(["validate", "--batch", str(cases), "--out", str(out)]) == 0
    assert [json.loads(line)["id"] for line in out.read_text().splitlines()] == ["case-5"]


# --- plansmith diagnose


def test_diagnose_sound_texts_ends_with_code_0(folder: Path, capsys: Capture) -> None:
    assert cli.main(["diagnose", str(folder / "domain.pddl"), str(folder / "problem.pddl")]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("0 errors, 0 warnings\n", "")


def test_diagnose_broken_domain_prints_places_and_codes_and_ends_with_code_1(folder: Path, capsys: Capture) -> None:
    assert cli.main(["diagnose", str(folder / "bad.pddl")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{folder / 'bad.pddl'}:")
    assert lines[0].endswith("[unknown-section]")
    assert lines[-1].endswith("warnings") or lines[-1].endswith("warning")


def test_diagnose_json_is_a_list_of_rows(folder: Path, capsys: Capture) -> None:
    assert cli.main(["diagnose", str(folder / "bad.pddl"), str(folder / "problem.pddl"), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    first = found[0]
    assert list(first) == ["code", "severity", "source", "line", "column", "message", "got", "expected", "repair"]
    assert (first["code"], first["severity"], first["source"]) == (
        "unknown-section", "error", str(folder / "bad.pddl"))  # fmt: skip
    assert cli.main(["diagnose", str(folder / "domain.pddl"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_diagnose_warnings_alone_end_with_code_0(folder: Path, capsys: Capture) -> None:
    repeated = folder / "repeated.pddl"
    repeated.write_text(SUSSMAN_TEXT.replace("(on c a)", "(on c a) (on c a)"))
    assert cli.main(["diagnose", str(folder / "domain.pddl"), str(repeated)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "0 errors, 1 warning"


@pytest.mark.parametrize("name", ["nowhere.pddl", "binary.pddl", "."])
def test_diagnose_unreadable_file_ends_with_code_2(name: str, folder: Path, capsys: Capture) -> None:
    assert cli.main(["diagnose", str(folder / "domain.pddl"), str(folder / name)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ")
