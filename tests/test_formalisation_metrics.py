"""Figures of answers to texts, of their repair and of preference pairs, worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest

from plansmith.data.rows import FormalisedRow, PairReadingRow
from plansmith.judging.agreement import tagged_atoms
from plansmith.pddl.model import Problem
from plansmith.pddl.parser import parse_domain, parse_problem
from plansmith.report.formalisation_metrics import (
    AnsweredText,
    Novelty,
    chosen_answer,
    compare_outcome,
    summarise_answers,
    summarise_text_arm,
    tried_texts,
)
from plansmith.report.preference_metrics import summarise_preference
from plansmith.report.repair_metrics import CodeCounts, codes_of_all_turns, repair_turns
from plansmith.report.statistics import TriedProblem, accuracy_interval, paired_test, wilson_interval

LAMPS = parse_domain("""(define (domain lamps) (:predicates (on ?x) (wired ?x))
  (:action switch :parameters (?x) :precondition (wired ?x) :effect (on ?x)))""")


def answer(problem_id: str, what: str = "right", turn: int = 0, **changes: Any) -> FormalisedRow:
    """Return a judged answer of one of the kinds that the tests know."""
    row = FormalisedRow(
        f"{problem_id}-{turn}", problem_id, turn, "v", "parsed", True, "(define (problem p))", (), "", "solved",
        ("(switch a)",), ("(switch a)",), 1.0, True, "identical", "", (), True, None,
    )  # fmt: skip
    unsolved = {"status": "unsolvable", "plan": (), "is_consistent": False, "has_task_success": False}
    unread = unsolved | {"readability": "unparseable", "status": None, "outcome": None, "atom_similarity": 0.0}
    kinds: dict[str, dict[str, Any]] = {
        "right": {},
        "renamed": {"outcome": "equivalent", "atom_similarity": 0.5, "is_consistent": False},
        "flattered": {"outcome": "different", "atom_similarity": 0.75, "has_task_success": False},
        "undecided": {"outcome": "undecided", "atom_similarity": 0.25, "is_consistent": False},
        "unsolved": unsolved | {"outcome": "different", "atom_similarity": 0.5},
        "unread": unread | {"codes": ("syntax",), "feedback": "a bracket is missing"},
        "empty": unread | {"readability": "no_problem", "problem_pddl": "", "keeps_contract": False},
    }
    return replace(row, **kinds[what] | changes)


def text(problem_id: str, *answers: FormalisedRow, domain: str = "lamps", level: str = "L1") -> AnsweredText:
    return AnsweredText(problem_id, domain, level, f"form of {problem_id}", answers)


TEN = ["right", "right", "right", "renamed", "flattered", "flattered", "undecided", "unsolved", "unread", "empty"]


def ten(*kinds: str) -> list[AnsweredText]:
    return [text(f"p{i}", answer(f"p{i}", kind)) for i, kind in enumerate(kinds or TEN)]


# --- which answer counts


@pytest.mark.parametrize(
    ("kinds", "chosen"),
    [
        (["unread"], 0),
        (["unread", "unsolved", "flattered", "right"], 2),  # the first with a plan; nobody asks whether it is right
        (["unsolved", "unread", "unsolved", "empty"], 2),
        (["unread", "empty", "unread"], 2),
    ],
    ids=["one", "first-with-a-plan", "last-that-parses", "last"],
)
def test_chosen_answer_is_the_first_with_a_plan_else_the_last_that_parses(kinds: list[str], chosen: int) -> None:
    turns = [answer("p", kind, turn) for turn, kind in enumerate(kinds)]
    assert chosen_answer(turns).iteration == chosen


@pytest.mark.parametrize(
    "turns",
    [[], [answer("p"), answer("q", turn=1)], [answer("p", turn=1), answer("p")], [answer("p"), answer("p")]],
    ids=["none", "two-texts", "backwards", "twice"],
)
def test_chosen_answer_of_what_are_no_turns_raises(turns: list[FormalisedRow]) -> None:
    with pytest.raises(ValueError, match="turn by turn"):
        chosen_answer(turns)


# --- the figures of ten answers


def test_summarise_answers_of_ten_by_hand() -> None:
    figures = summarise_answers(ten())
    assert (figures.n, figures.n_forms) == (10, 10)
    assert figures.svr == 0.8  # all but the unread and the empty one
    assert figures.psr == pytest.approx(7 / 8)  # of the eight that parse, one has no plan
    assert figures.psr_of_all == 0.7
    assert figures.tsr == pytest.approx((1 + 1 + 1 + 0.5 + 0.75 + 0.75 + 0.25 + 0.5 + 0 + 0) / 10)
    assert figures.cr == 0.5  # three right ones and two that flatter
    assert (figures.identical, figures.equivalent) == (0.3, 0.4)
    assert (figures.flattered, figures.undecided) == (pytest.approx(0.3), 0.1)
    assert figures.task_success == 0.5  # the undecided one's plan solves the reference, too
    assert figures.keeps_contract == 0.9


def test_summarise_answers_intervals_are_those_of_statistics() -> None:
    figures = summarise_answers(ten())
    assert set(figures.ci95) == {"svr", "psr_of_all", "cr", "identical", "equivalent", "flattered", "undecided",
                                 "task_success", "keeps_contract"}  # fmt: skip
    assert figures.ci95["equivalent"] == pytest.approx(wilson_interval(4, 10))
    assert figures.ci95["svr"] == pytest.approx(wilson_interval(8, 10))


def test_summarise_answers_copies_of_a_form_widen_the_interval() -> None:
    copies = [replace(item, form=str(number // 2)) for number, item in enumerate(ten())]
    tried = [TriedProblem(kind in ("right", "renamed"), str(number // 2)) for number, kind in enumerate(TEN)]
    figures = summarise_answers(copies)
    assert figures.n_forms == 5
    assert figures.ci95["equivalent"] == pytest.approx(accuracy_interval(tried))
    assert figures.ci95["equivalent"] != pytest.approx(wilson_interval(4, 10))


def test_summarise_answers_none_parsed_has_no_psr() -> None:
    figures = summarise_answers(ten("unread", "empty"))
    assert (figures.svr, figures.psr, figures.psr_of_all) == (0.0, None, 0.0)


@pytest.mark.parametrize("texts", [[], ten("right") * 2], ids=["none", "one-twice"])
def test_summarise_answers_of_no_texts_or_one_twice_raises(texts: list[AnsweredText]) -> None:
    with pytest.raises(ValueError, match="each once"):
        summarise_answers(texts)


def test_summarise_text_arm_has_every_domain_level_place_and_turn() -> None:
    texts = [
        text("p1", answer("p1", "unread"), answer("p1", "flattered", 1), domain="a", level="L1"),
        text(
            "p2", answer("p2", "unsolved"), answer("p2", "unread", 1), answer("p2", "right", 2), domain="a", level="L2"
        ),
        text("p3", answer("p3"), domain="b", level="L1"),
    ]
    arm = summarise_text_arm("dpo_repaired", texts, n_turns=3)
    assert arm.psr_of_all == 1.0
    assert {name: figures.equivalent for name, figures in arm.by_domain.items()} == {"a": 0.5, "b": 1.0}
    assert {name: figures.equivalent for name, figures in arm.by_level.items()} == {"L1": 0.5, "L2": 1.0}
    assert {domain: list(levels) for domain, levels in arm.by_place.items()} == {"a": ["L1", "L2"], "b": ["L1"]}
    third = pytest.approx(1 / 3)
    assert [figures.psr_of_all for figures in arm.by_turn] == [third, pytest.approx(2 / 3), 1.0, 1.0]
    assert [figures.svr for figures in arm.by_turn] == [pytest.approx(2 / 3), 1.0, 1.0, 1.0]  # p2: turn 0 still parses
    assert [figures.equivalent for figures in arm.by_turn] == [third, third, pytest.approx(2 / 3), pytest.approx(2 / 3)]
    assert summarise_text_arm("dpo", texts).by_turn == ()


def test_summarise_text_arm_counts_what_was_never_trained_on_apart() -> None:
    new_level, new_domain = (
        replace(text(name, answer(name, kind), domain=domain, level=level), novelty=novelty)
        for name, kind, domain, level, novelty in (
            ("p4", "unread", "a", "L3", Novelty.NEW_LEVEL), ("p5", "right", "c", "L1", Novelty.NEW_DOMAIN),
        )
    )  # fmt: skip
    arm = summarise_text_arm("sft", [new_level, *ten("right", "flattered"), new_domain], n_turns=0)
    assert (arm.n, arm.equivalent, arm.by_turn[0].n) == (2, 0.5, 2)
    assert list(arm.by_domain) == ["lamps"] and list(arm.by_level) == ["L1"]
    assert {name: (one.n, one.equivalent) for name, one in arm.by_novelty.items()} == {
        "level never trained on": (1, 0.0), "domain never trained on": (1, 1.0),
    }  # fmt: skip
    assert {name: one.svr for name, one in arm.by_new_place.items()} == {"a L3": 0.0, "c L1": 1.0}


def test_compare_outcome_is_the_paired_test_of_matched_texts() -> None:
    before, after = ten("unread", "flattered", "right"), ten("right", "right", "right")
    texts = {"sft": before, "dpo": after[::-1]}
    found = compare_outcome("sft", "dpo", "equivalent", lambda arm, outcome: tried_texts(texts[arm], outcome))
    tried = [[TriedProblem(solved, f"form of p{i}") for i, solved in enumerate(row)] for row in ([0, 0, 1], [1, 1, 1])]
    assert (found.before, found.after, found.outcome) == ("sft", "dpo", "equivalent")
    assert found.test == paired_test(*tried)
    assert (found.test.only_before, found.test.only_after) == (0, 2)
    plans = compare_outcome("sft", "dpo", "psr_of_all", lambda arm, outcome: tried_texts(texts[arm], outcome))
    assert plans.test.only_after == 1


def test_compare_outcome_of_other_texts_raises() -> None:
    texts = {"sft": ten("right"), "dpo": ten("right", "right")}
    with pytest.raises(ValueError, match="sft and dpo differ in 1 problems"):
        compare_outcome("sft", "dpo", "equivalent", lambda arm, outcome: tried_texts(texts[arm], outcome))


# --- repair


def lamps(init: str, goal: str) -> str:
    return f"(define (problem p) (:domain lamps) (:objects a b) (:init {init}) (:goal (and {goal})))"


def read(row: FormalisedRow) -> Problem:
    return parse_problem(row.problem_pddl, LAMPS)


BOTH = lamps("(wired a)", "(on a) (on b)")
LOST = lamps("(wired a)", "(on a)")
WIRED = lamps("(wired a) (wired b)", "(on a) (on b)")
REPAIRED = [
    [  # gives up a goal and has a plan for it
        answer("p1", "unsolved", problem_pddl=BOTH),
        answer("p1", "flattered", 1, problem_pddl=LOST),
    ],
    [  # adds the fact that is missing
        answer("p2", "unsolved", problem_pddl=BOTH),
        answer("p2", "right", 1, problem_pddl=WIRED),
    ],
    [  # mends one error, makes another, then can be read
        answer("p3", "unread", codes=("syntax", "arity")),
        answer("p3", "unread", 1, codes=("arity", "undeclared-object")),
        answer("p3", "unsolved", 2, problem_pddl=LOST),
    ],
    [answer("p4", "unread", codes=("arity",)), answer("p4", "empty", 1, codes=())],
    [answer("p5", "right", problem_pddl=WIRED)],  # never handed back
]


def test_tagged_atoms_tell_a_goal_from_a_fact() -> None:
    assert tagged_atoms(read(REPAIRED[0][1])) == {("init", "(wired a)"), ("goal", "(on a)")}


def test_repair_turns_by_hand() -> None:
    first, second = repair_turns(REPAIRED, read)
    assert (first.turn, first.n_handed_back, first.n_mended) == (1, 4, 2)
    assert first.codes == {
        "arity": CodeCounts(2, 0, 0),  # an empty answer has mended nothing
        "syntax": CodeCounts(1, 1, 0),
        "undeclared-object": CodeCounts(0, 0, 1),
    }
    assert (first.n_compared, first.mean_atoms_changed) == (2, 1.0)  # one goal less; one fact more
    assert (first.n_goals_lost, first.n_solved_by_losing) == (1, 1)
    assert (second.turn, second.n_handed_back, second.n_mended) == (2, 1, 0)
    assert second.codes == {"arity": CodeCounts(1, 1, 0), "undeclared-object": CodeCounts(1, 1, 0)}
    assert (second.n_compared, second.mean_atoms_changed, second.n_goals_lost) == (0, None, 0)
    assert list(codes_of_all_turns([first, second]).items()) == [
        ("arity", CodeCounts(3, 1, 0)),
        ("syntax", CodeCounts(1, 1, 0)),
        ("undeclared-object", CodeCounts(1, 1, 1)),
    ]


def test_repair_turns_a_goal_lost_without_a_plan_is_no_plan_for_a_goal() -> None:
    rows = [answer("p", "unsolved", problem_pddl=BOTH), answer("p", "unsolved", 1, problem_pddl=LOST)]
    [turn] = repair_turns([rows], read)
    assert (turn.n_goals_lost, turn.n_solved_by_losing) == (1, 0)
    solved = [answer("p", problem_pddl=BOTH), answer("p", turn=1, problem_pddl=LOST)]
    [turn] = repair_turns([solved], read)  # handed back for a name that the text has
    assert (turn.n_goals_lost, turn.n_solved_by_losing) == (1, 0)


def test_repair_turns_of_answers_that_had_plans_are_none() -> None:
    assert repair_turns([[answer("p")]], read) == ()


# --- preference


READINGS = [
    PairReadingRow("1", "unsolvable", -2.0, -6.0, -3.0, -5.0),  # Delta 1 - -1 = 2
    PairReadingRow("2", "unsolvable", -4.0, -4.0, -3.0, -3.5),  # -1 - -0.5 = -0.5
    PairReadingRow("3", "worse", -3.0, -3.0, -3.0, -3.0),  # 0: no preference
    PairReadingRow("4", "worse", -5.0, -9.0, -4.0, -4.0),  # -1 - -5 = 4
]


PROBLEM_OF = {row.pair_id: f"p{row.pair_id}" for row in READINGS}


def test_summarise_preference_by_hand() -> None:
    figures = summarise_preference(READINGS, PROBLEM_OF, beta=0.1)
    assert (figures.n, figures.accuracy) == (4, 0.5)
    assert figures.ci95 == pytest.approx(wilson_interval(2, 4))
    assert figures.mean_margin == pytest.approx(0.1 * (2 - 0.5 + 0 + 4) / 4)
    assert (figures.mean_chosen, figures.mean_rejected) == (-3.5, -5.5)
    assert (figures.mean_reference_chosen, figures.mean_reference_rejected) == (-3.25, fmean([-5, -3.5, -3, -4]))
    assert {fault: (one.n, one.accuracy) for fault, one in figures.by_fault.items()} == {
        "unsolvable": (2, 0.5),
        "worse": (2, 0.5),
    }
    assert figures.by_fault["worse"].mean_margin == pytest.approx(0.2)


def test_summarise_preference_pairs_of_one_problem_count_together() -> None:
    figures = summarise_preference(READINGS, {"1": "p", "2": "q", "3": "q", "4": "p"}, beta=0.1)
    assert figures.ci95 == pytest.approx(wilson_interval(1, 2))  # they always agree: two problems


def test_summarise_preference_of_no_pairs_raises() -> None:
    with pytest.raises(ValueError, match="no held-out pairs"):
        summarise_preference([], {}, beta=0.1)
