"""The report of a run that writes PDDL for texts: artifacts written by hand, its page, its file, the other windows."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hand_made import write_artifact
from test_formalisation_metrics import answer

from plansmith.config.nl_pddl_bench import NlPddlBenchConfig
from plansmith.data.artifacts import Artifact, StageKind
from plansmith.data.rows import (
    FormalisedRow,
    MetricRow,
    ObjectiveFigureRow,
    OptimisationStepRow,
    PairReadingRow,
    PairRow,
    ProblemRow,
    RolloutRow,
    TextRow,
    VerdictRow,
)
from plansmith.pddl.parser import parse_domain
from plansmith.pddl.validation import Verdict
from plansmith.pipeline import Reporting
from plansmith.report.answers import Flaw, problem_diff
from plansmith.report.finished_stages import FinishedStage, RunSoFar
from plansmith.report.formalisation_arms import novelties_of
from plansmith.report.formalisation_metrics import Novelty
from plansmith.report.formalisation_plots import drawings
from plansmith.report.formalisation_report import formalisation_report
from plansmith.report.formalisation_results import FormalisationResults, compared_arms, formalisation_results
from plansmith.report.formalisation_tables import direct_table
from plansmith.report.measurements import measurements_of
from plansmith.report.render import format_report, render_markdown, render_page
from plansmith.report.sections import Answers
from plansmith.report.statistics import wilson_interval

REPORTING = Reporting(FormalisationResults, formalisation_report)
LAMPS_TEXT = """(define (domain lamps) (:predicates (on ?x) (wired ?x))
  (:action switch :parameters (?x) :precondition (wired ?x) :effect (on ?x)))"""
REFERENCE = (
    "(define (problem p) (:domain lamps) (:objects a b) (:init (wired a) (wired b)) (:goal (and (on a) (on b))))"
)
LOST = "(define (problem p) (:domain lamps) (:objects a b) (:init (wired b) (wired a)) (:goal (and (on b))))"
ATTACK = "<script>alert('x')</script>"
TESTS = {"t1": "L1", "t2": "L1", "t3": "L2", "t4": "L2"}

CONFIG = NlPddlBenchConfig.model_validate(
    {
        "name": "by-hand",
        "seed": 3,
        "problems": {
            "domains": [{"domain": "rovers", "level": level, "phase1": 1, "test": 2} for level in ("L1", "L2")]
        },
        "sft": {"learning_rate": 1e-3, "batch_tokens": 100},
        "dpo": {"learning_rate": 1e-4, "batch_tokens": 100, "beta": 0.5},
        "repair": {"turns": 2},
        "evaluation": {"n_failures_shown": 2},
    }
)


class Run:
    """A run that is written stage by stage."""

    def __init__(self, folder: Path) -> None:
        self.root, self.artifacts = folder / "artifacts", dict[str, Artifact]()
        self.tests = tuple(TESTS)

    def add(self, stage: str, tables: Mapping[str, Any], inputs: Iterable[tuple[str, str]] = (), **said: Any) -> None:
        keys = {name: self.artifacts[given].key for name, given in inputs}
        self.artifacts[stage] = write_artifact(self.root, stage, tables, inputs=keys, **said)

    def add_data(self, others: Mapping[str, tuple[str, str]] | None = None) -> None:
        """Write the problems and texts: those of the tests, one of each level to learn from, and other tests."""
        places = {name: ("rovers", level) for name, level in (TESTS | {"d1": "L1", "d2": "L2"}).items()}
        places |= others or {}
        self.tests = (*TESTS, *(others or ()))
        problems = [
            ProblemRow(name, f"form {name}", domain, f"{domain} {level}", "test" if name in self.tests else "d1", 2,
                       LAMPS_TEXT, REFERENCE, "sampler")
            for name, (domain, level) in places.items()
        ]  # fmt: skip
        self.add("sample_problems", {"rows": (ProblemRow, problems)}, kind=StageKind.DRAWS)
        plans = {"t1": 1, "t2": 2, "t3": 3, "t4": 4, "d1": 6, "d2": 5}
        said = f"Two lamps. {ATTACK}"
        texts = [
            TextRow(name, domain, f"{domain} {level}", "test", said, REFERENCE, ("(switch a)",) * plans.get(name, 1),
                    "Two lamps.")
            for name, (domain, level) in places.items()
        ]  # fmt: skip
        self.add("write_texts", {"rows": (TextRow, texts)}, [("problems", "sample_problems")])
        self.add("initial_policy", {})

    def add_training(self, stage: str) -> None:
        curve = [OptimisationStepRow(step, 1.0 / step, 0.001, 2.0) for step in (1, 2, 3)]
        curve.append(OptimisationStepRow(4, float("nan"), 0.001, 2.0))
        metrics = [MetricRow(stage, 0, "", "", "training/n_dropped", 5.0),
                   MetricRow(stage, 0, "", "", "training/n_tokens", 70.0)]  # fmt: skip
        tables: dict[str, Any] = {"curve": (OptimisationStepRow, curve), "metrics": (MetricRow, metrics)}
        if stage == "dpo":
            named = {"margin": 0.5, "accuracy": 0.25, "chosen_logprob": -2.0, "rejected_logprob": -3.0}
            figures = [ObjectiveFigureRow(step, name, x * step) for name, x in named.items() for step in (1, 2, 3, 4)]
            tables["figures"] = (ObjectiveFigureRow, figures)
        self.add(stage, tables, kind=StageKind.OPTIMISES, labels={"objective": "supervised"})

    def add_arm(self, arm: str, policy: str, *kinds: str) -> None:
        """Write the first answers to the test texts."""
        rows = [answer(name, kind, problem_pddl=problem_of(kind)) for name, kind in zip(self.tests, kinds, strict=True)]
        tried = [("policy", policy), ("texts", "write_texts")]
        self.add(f"try_{arm}", {"rows": (RolloutRow, rollouts(rows))}, tried, kind=StageKind.GENERATES)
        inputs = [("rollouts", f"try_{arm}"), ("texts", "write_texts"), ("problems", "sample_problems")]
        told = {"kind": StageKind.JUDGES_TEXTS, "labels": {"arm": arm}}
        self.add(f"judge_{arm}", {"rows": (FormalisedRow, rows)}, inputs, **told)

    def add_direct(self, *verdicts: Verdict) -> None:
        """Write the plans that were answered to the test texts, as far as figures need them."""
        self.add("try_direct", {"rows": (RolloutRow, [])}, [("policy", "sft")], kind=StageKind.GENERATES)
        rows = [VerdictRow(f"{name}-0", name, 0, "v", verdict, "", None, None, (), (), "")
                for name, verdict in zip(self.tests, verdicts, strict=True)]  # fmt: skip
        told = {"kind": StageKind.JUDGES_PLANS, "labels": {"arm": "direct"}}
        inputs = [("rollouts", "try_direct"), ("problems", "sample_problems"), ("texts", "write_texts")]
        self.add("judge_direct", {"rows": (VerdictRow, rows)}, inputs, **told)

    def add_loop(self, stage: str, arm: str, policy: str, feedback: str, rows: list[FormalisedRow]) -> None:
        inputs = [("policy", policy), ("judged", f"judge_{arm}"), ("texts", "write_texts"),
                  ("problems", "sample_problems")]  # fmt: skip
        tables = {"rows": (RolloutRow, rollouts(rows)), "verdicts": (FormalisedRow, rows)}
        told = {"kind": StageKind.REPAIRS, "labels": {"arm": arm, "feedback": feedback}}
        self.add(stage, tables, inputs, **told)

    def add_pairs(self) -> None:
        """Write the held-out pairs, and what the policy after preference optimisation gives to them."""
        pairs = [PairRow(row.pair_id, f"d{row.pair_id}", row.fault, "", "", "") for row in READINGS]
        self.add("write_pairs", {"rows": (PairRow, []), "held_out": (PairRow, pairs)})
        told = {"kind": StageKind.READS_PAIRS, "labels": {"arm": "dpo"}}
        self.add("read_held_out_pairs", {"rows": (PairReadingRow, READINGS)}, [("pairs", "write_pairs")], **told)

    @property
    def so_far(self) -> RunSoFar[NlPddlBenchConfig]:
        return RunSoFar("nl_pddl_bench", CONFIG, "demo", self.artifacts)

    def measured(self, stage: str) -> dict[tuple[str, ...], float]:
        """Return what a stage measured by name and values of labels."""
        by_key = {artifact.key: artifact for artifact in self.artifacts.values()}
        found = measurements_of(FinishedStage(self.artifacts[stage], by_key))
        return {(item.name, *item.labels.values()): item.value for item in found}


def problem_of(kind: str) -> str:
    return LOST if kind == "flattered" else REFERENCE


def rollouts(rows: list[FormalisedRow]) -> list[RolloutRow]:
    return [
        RolloutRow(row.rollout_id, row.problem_id, row.iteration, "v", "p", f"Here: {row.problem_pddl} {ATTACK}", (1,),
                   (1, 2), (0.0, 0.0), "stop", 0)
        for row in rows
    ]  # fmt: skip


REPAIRED = [
    answer("t2", "unsolved", 1, problem_pddl=REFERENCE),
    answer("t2", "flattered", 2, problem_pddl=LOST),  # a plan for a goal
    answer("t3", "right", 1, problem_pddl=REFERENCE),
]
RESAMPLED = [answer("t2", "unread", 1), answer("t2", "unread", 2), answer("t3", "unread", 1), answer("t3", "unread", 2)]
READINGS = [
    PairReadingRow("1", "unsolvable", -2.0, -6.0, -3.0, -5.0),
    PairReadingRow("2", "worse", -4.0, -4.0, -3.0, -3.5),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    made = Run(tmp_path_factory.mktemp("run"))
    made.add_data()
    made.add_arm("untrained", "initial_policy", "empty", "empty", "unread", "empty")
    made.add_training("sft")
    made.add_training("dpo")
    made.add_arm("dpo", "dpo", "right", "unsolved", "unread", "flattered")
    made.add_arm("sft", "sft", "right", "unread", "unread", "flattered")  # stages may end in any order
    made.add_loop("repair_dpo", "dpo", "dpo", "validator", REPAIRED)
    made.add_loop("resample_dpo", "dpo", "dpo", "none", RESAMPLED)
    made.add_pairs()
    return made


@pytest.fixture(scope="module")
def results(run: Run) -> FormalisationResults:
    found = formalisation_results(run.so_far)
    assert found is not None
    return found


# --- results


def test_results_before_anything_was_judged_are_none(tmp_path: Path) -> None:
    made = Run(tmp_path)
    made.add_data()
    assert formalisation_results(made.so_far) is None


def test_results_of_the_first_arm_alone_make_a_report(tmp_path: Path) -> None:
    made = Run(tmp_path)
    made.add_data()
    made.add_arm("untrained", "initial_policy", "empty", "empty", "unread", "empty")
    found = formalisation_results(made.so_far)
    assert found is not None
    report = formalisation_report(found)
    assert report.result.startswith("0% of 4 test texts end as a problem of the right meaning (untrained), 0% as")
    assert "Preference pairs" not in render_page(report)


def test_results_have_the_arms_in_the_order_of_training_with_their_loops(results: FormalisationResults) -> None:
    assert list(results.arms) == ["untrained", "sft", "dpo", "dpo_repaired", "dpo_resampled"]
    assert {name: arm.equivalent for name, arm in results.arms.items()} == {
        "untrained": 0.0, "sft": 0.25, "dpo": 0.25, "dpo_repaired": 0.5, "dpo_resampled": 0.25,
    }  # fmt: skip
    assert (results.first.name, results.main.name) == ("untrained", "dpo_repaired")
    repaired = results.main
    assert (repaired.psr_of_all, repaired.flattered) == (1.0, 0.5)
    assert [figures.psr_of_all for figures in repaired.by_turn] == [0.5, 0.75, 1.0]
    assert {level: figures.equivalent for level, figures in repaired.by_level.items()} == {"L1": 0.5, "L2": 0.5}
    assert results.arms["dpo_resampled"].psr == pytest.approx(2 / 3)  # of three that parse, one only at first


def test_results_have_what_repair_and_preferences_did(results: FormalisationResults) -> None:
    first, second = results.repair["dpo_repaired"]
    assert (first.n_handed_back, first.n_mended, first.n_compared, first.mean_atoms_changed) == (2, 1, 1, 0.0)
    assert (second.n_handed_back, second.n_mended) == (1, 1)
    assert (second.mean_atoms_changed, second.n_goals_lost, second.n_solved_by_losing) == (1.0, 1, 1)
    assert results.preference["dpo"].accuracy == 0.5
    assert results.preference["dpo"].mean_margin == pytest.approx(0.5 * (2 - 0.5) / 2)


def test_results_have_the_course_and_the_texts(results: FormalisationResults) -> None:
    assert [(curve.stage, curve.steps, curve.gradient_norms) for curve in results.curves] == [
        ("sft", (1, 2, 3), (2.0,) * 3), ("dpo", (1, 2, 3), (2.0,) * 3),
    ]  # fmt: skip
    assert results.curves[0].figures == {}
    assert results.curves[1].figures["margin"] == (0.5, 1.0, 1.5)  # of the steps that the curve has
    assert (results.n_not_finite, results.n_dropped) == (2, {"sft": 5, "dpo": 5})
    assert (results.tokens["sft"], results.tokens["try_dpo"], results.tokens["repair_dpo"]) == (70, 8, 6)
    assert [(item.domain, item.level, item.n) for item in results.texts] == [
        ("", "L1", 3), ("", "L2", 3), ("rovers", "L1", 3), ("rovers", "L2", 3),
    ]  # fmt: skip
    assert results.texts[0].plan_length == (1.5, 2.0, 4.0)  # of 1, 2, 6
    assert set(results.policy_versions) == {"untrained", "sft", "dpo"}
    assert results.command == "plansmith run nl_pddl_bench --preset demo --seed 3"


def test_compared_arms_has_the_main_policys_repair_first() -> None:
    names = dict.fromkeys(f"{policy}{loop}" for policy in ("untrained", "sft", "sft_longer", "dpo")
                          for loop in ("", "_repaired", "_resampled"))  # fmt: skip
    found = compared_arms(names, "dpo_repaired")
    assert found[0] == ("dpo", "dpo_repaired", "psr_of_all")
    assert ("dpo_resampled", "dpo_repaired", "equivalent") in found
    assert found[-3:] == [("sft_longer", "dpo", "equivalent"), ("sft", "dpo", "equivalent"),
                          ("untrained", "sft", "equivalent")]  # fmt: skip
    assert compared_arms(["untrained"], "untrained") == []


def test_paired_tests_are_of_matched_texts(results: FormalisationResults) -> None:
    found = {(test.before, test.after): (test.outcome, test.test.only_before, test.test.only_after)
             for test in results.paired_tests}  # fmt: skip
    assert found == {
        ("dpo", "dpo_repaired"): ("psr_of_all", 0, 2),
        ("dpo_resampled", "dpo_repaired"): ("equivalent", 0, 1),
        ("sft", "dpo"): ("equivalent", 0, 0),
        ("untrained", "sft"): ("equivalent", 0, 1),
    }


def test_failures_are_of_each_level_and_flaw_with_text_answer_and_diff(results: FormalisationResults) -> None:
    first, second = results.failures
    assert (first.problem_id, first.turn, first.flaw) == ("t2", 2, Flaw.UNFAITHFUL)
    assert (second.problem_id, second.turn, second.arm) == ("t4", 0, "dpo_repaired")
    assert first.answer == f"Here: {LOST} {ATTACK}"
    assert first.text.startswith("Two lamps.")
    changed = [line for line in first.diff.splitlines() if line[0] in "+-" and line[:3] not in ("+++", "---")]
    assert changed
    assert all("on" in line for line in changed)  # the order of facts is no difference


def test_problem_diff_of_what_cannot_be_read_is_of_the_words() -> None:
    assert problem_diff("(define\n(problem p))", "(define", None).splitlines()[2:] == [
        "@@ -1,2 +1 @@",
        " (define",
        "-(problem p))",
    ]
    domain = parse_domain(LAMPS_TEXT)
    assert problem_diff(REFERENCE, REFERENCE.replace("(wired a) (wired b)", "(wired b)\n(wired a)"), domain) == ""


def test_results_json_read_back_is_equal_and_has_the_promised_keys(
    results: FormalisationResults, tmp_path: Path
) -> None:
    REPORTING.write(results, tmp_path)
    assert REPORTING.read(tmp_path) == results
    content = json.loads((tmp_path / "report" / "results.json").read_text())
    arm = content["arms"]["dpo_repaired"]
    assert {"n", "svr", "psr", "psr_of_all", "tsr", "cr", "identical", "equivalent", "flattered", "undecided",
            "task_success", "ci95", "by_domain", "by_level", "by_turn"} <= arm.keys()  # fmt: skip
    assert arm["ci95"]["equivalent"] == pytest.approx(wilson_interval(2, 4))
    assert {"preference", "repair", "paired_tests", "time_s"} <= content.keys()


def test_results_that_cannot_be_true_raise(results: FormalisationResults) -> None:
    with pytest.raises(ValueError, match="without an arm"):
        dataclasses.replace(results, arms={})
    with pytest.raises(ValueError, match=r"not judged: \['dpo'"):
        dataclasses.replace(results, arms={"sft": results.arms["sft"]})
    with pytest.raises(ValueError, match="filed under"):
        dataclasses.replace(results, arms={"dpo": results.arms["sft"]}, paired_tests=())


# --- what is said


def test_report_headline_sets_the_right_meaning_beside_solvability(results: FormalisationResults) -> None:
    report = formalisation_report(results)
    assert report.result == (
        "50% of 4 test texts end as a problem of the right meaning (dpo repaired), 100% as one with a plan. "
        "Solvability flatters: 50% have a plan and another meaning, or an undecided one."
    )
    assert "Dpo to dpo repaired: the share with a plan rose from 50% to 100% of 4 problems" in report.evidence
    assert "2 with a plan only after, 0 only before; exact McNemar test p = 0.5 (two-sided)" in report.evidence


def test_report_tables_have_our_figures_and_the_papers(results: FormalisationResults) -> None:
    text = render_markdown(formalisation_report(results))
    assert "| dpo repaired | 4 | 100% | 100% | 100% |" in text
    assert "| paper: Qwen3-8B, in the loop | 1000 | 82.7% | - | 78.9% | 80.8% | 79.7% | - |" in text
    assert "| rovers | untrained | 4 | 0.0 (97.0) | 0.0 (20.0) |" in text
    assert "| L1 | untrained | 2 | 0.0 (97.0) |" in text
    assert "| all domains, L1 | 2 to 2 (1 to 10) | 3 (154,219) | 2.0 [1.5, 4.0] (15.0 [12.8, 17.5]) |" in text
    assert "| domains | 1 | 13 | 2 |" in text
    assert "| texts | 6, all with a plan | 1.7 million, 460,000 with a plan | 26,300 |" in text
    assert "| dpo repaired, turn 2 | 1 | 1 | 0 | 0 | 0 | 1 | 1.0 | 1 | 1 |" in text
    assert "| dpo | 2 | 50% |" in text
    assert "| dpo, worse | 1 | 0% |" in text
    assert "sft: 5 sequences were too long" in text
    assert format_report(formalisation_report(results)).endswith(formalisation_report(results).result)


def test_report_page_shows_failures_escaped_also_while_the_run_goes_on(results: FormalisationResults) -> None:
    report = formalisation_report(results)
    page = render_page(report)
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 4
    assert "has a plan, means another thing" in page
    assert 'id="plot-training-dpo"' in page
    assert any(isinstance(block, Answers) for section in report.course for block in section.blocks)


def test_report_page_takes_the_brackets_from_the_model_of_the_run(results: FormalisationResults) -> None:
    llama = dataclasses.replace(results, config={"model": {"folder": "meta-llama/Llama-3.1-8B-Instruct"}})
    assert "| rovers | untrained | 4 | 0.0 (69.0) | 0.0 (21.0) |" in render_markdown(formalisation_report(llama))


def test_plots_are_drawn_in_reading_order(results: FormalisationResults) -> None:
    plots = [drawing.draw() for drawing in drawings(results)]
    assert [plot.slug for plot in plots] == ["meaning", "turns", "gains", "levels", "training-sft", "training-dpo",
                                             "times"]  # fmt: skip
    for plot in plots:
        ElementTree.fromstring(plot.svg)
    svgs = {plot.slug: plot.svg for plot in plots}
    assert "gradient norm" in svgs["training-sft"]
    assert "learning rate" in svgs["training-sft"]
    assert "pair accuracy" not in svgs["training-sft"]
    assert all(words in svgs["training-dpo"] for words in ("margin", "pair accuracy", "chosen", "rejected"))
    assert "dpo repaired: equivalent" in svgs["levels"]


# --- the other windows


def test_measurements_are_those_of_the_report(run: Run, results: FormalisationResults) -> None:
    judged = run.measured("judge_dpo")
    for name in ("svr", "psr_of_all", "equivalent", "task_success"):
        assert judged["formalisation/" + name, "dpo"] == getattr(results.arms["dpo"], name)
        assert judged["formalisation/" + name, "dpo", "rovers"] == getattr(results.arms["dpo"], name)
    turns = run.measured("repair_dpo")
    assert [turns["formalisation/psr_of_all", "dpo_repaired", str(turn)] for turn in range(3)] == [
        figures.psr_of_all for figures in results.main.by_turn
    ]
    assert turns["generation/tokens", "repair_dpo"] == 6
    read = run.measured("read_held_out_pairs")
    assert read["preference/accuracy", "dpo"] == results.preference["dpo"].accuracy
    assert 0.5 * read["preference/margin", "dpo"] == pytest.approx(results.preference["dpo"].mean_margin)


# --- direct plans, and what was never trained on

OTHERS = {"n1": ("rovers", "L3"), "n2": ("mystery-blocksworld", "L1")}


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a run with direct plans, the grammar, and tests of a level and a domain that were never trained on."""
    made = Run(tmp_path_factory.mktemp("compared"))
    made.add_data(OTHERS)
    made.add("try_read", {"rows": (RolloutRow, [])}, [("texts", "write_texts")])
    right = [answer(name, problem_pddl=REFERENCE) for name in made.tests]
    inputs = [("rollouts", "try_read"), ("texts", "write_texts"), ("problems", "sample_problems")]
    told = {"kind": StageKind.JUDGES_TEXTS, "labels": {"arm": "read"}}
    made.add("judge_read", {"rows": (FormalisedRow, right)}, inputs, **told)
    made.add_training("sft")
    made.add_arm("sft", "sft", "right", "right", "flattered", "unread", "right", "unread")
    rows = [answer("t4", "right", 1, problem_pddl=REFERENCE), answer("n2", "unread", 1), answer("n2", "unread", 2)]
    made.add_loop("repair_sft", "sft", "sft", "validator", rows)
    made.add_direct(Verdict.VALID, *[Verdict.GOAL_NOT_REACHED] * 4, Verdict.VALID)
    return made


@pytest.fixture(scope="module")
def transfer(compared: Run) -> FormalisationResults:
    found = formalisation_results(compared.so_far)
    assert found is not None
    return found


def test_results_are_about_levels_that_were_trained_on_and_no_control(transfer: FormalisationResults) -> None:
    assert list(transfer.arms) == ["sft", "sft_repaired", "read"] and transfer.main.name == "sft_repaired"
    assert (transfer.main.n, transfer.main.equivalent, transfer.main.task_success) == (4, 0.75, 0.75)
    assert set(transfer.policy_versions) == {"sft"}  # the grammar has no weights
    assert transfer.repair["sft_repaired"][0].n_handed_back == 1  # t4; n2 is of a domain never trained on
    assert {failure.problem_id for failure in transfer.failures} == {"t3"}
    by_novelty = {name: (one.n, one.task_success) for name, one in transfer.main.by_novelty.items()}
    assert by_novelty == {"level never trained on": (1, 1.0), "domain never trained on": (1, 0.0)}


def test_results_have_the_direct_plans_and_their_tests_against_problems(transfer: FormalisationResults) -> None:
    direct = transfer.direct
    assert direct is not None and (direct.n, direct.task_success, direct.ci95) == (4, 0.25, wilson_interval(1, 4))
    assert {name: one.task_success for name, one in direct.by_domain.items()} == {"rovers": 0.25}
    assert {name: one.task_success for name, one in direct.by_new_place.items()} == {
        "rovers L3": 0.0, "mystery-blocksworld L1": 1.0,
    }  # fmt: skip
    found = [(x.before, x.after, x.outcome, x.test.only_before, x.test.only_after) for x in transfer.paired_tests]
    assert found == [
        ("sft", "sft_repaired", "psr_of_all", 0, 1),
        ("direct", "sft_repaired", "task_success", 0, 2),  # t2 and t4; t1 both, t3 neither
        ("direct", "sft", "task_success", 0, 1),
    ]


def test_results_with_direct_plans_read_back_are_equal(transfer: FormalisationResults, tmp_path: Path) -> None:
    REPORTING.write(transfer, tmp_path)
    assert REPORTING.read(tmp_path) == transfer
    content = json.loads((tmp_path / "report" / "results.json").read_text())
    assert content["direct"]["task_success"] == 0.25 and "direct" not in content["arms"]


def test_results_of_nothing_trained_on_set_nothing_apart(tmp_path: Path) -> None:
    made = Run(tmp_path)
    made.tests = ("n1", "n2")
    problems = [ProblemRow(name, name, domain, f"{domain} {level}", "test", 2, LAMPS_TEXT, REFERENCE, "files")
                for name, (domain, level) in OTHERS.items()]  # fmt: skip
    made.add("sample_problems", {"rows": (ProblemRow, problems)}, kind=StageKind.DRAWS)
    assert set(novelties_of(made.artifacts["sample_problems"]).values()) == {Novelty.TRAINED}


def test_report_has_the_tables_of_direct_plans_and_of_transfer(transfer: FormalisationResults) -> None:
    text = render_markdown(formalisation_report(transfer))
    assert "| plans for | n | all | 95% interval | rovers |" in text
    assert "| direct | 4 | 25% | 4.6% to 69.9% | 25% |" in text
    assert "| sft repaired | 4 | 75% | 30.1% to 95.4% | 75% |" in text
    assert "Direct to sft repaired: the share whose plan solves the task rose from 25% to 75% of 4 problems" in text
    assert "| paper: GPT-4o, direct" not in text  # none of its domains is among ours
    assert (
        "| level never trained on | sft repaired | 1 | 100.0 | 100.0 | 100.0 | 100.0 | 100.0, 21 to 100 | 100% |"
        in text
    )
    assert "| domain never trained on | direct | 1 | - | - | - | - | - | 100% |" in text
    assert "| domain never trained on | read | 1 | 100.0 |" in text
    assert "| paper: PlanBench | Llama3.1-8B, in the loop | - | 100.0 | 49.2 | 0.0 | 49.3 | - | - |" in text


def test_report_sets_the_papers_direct_plans_below_ours_where_domains_are_shared(
    transfer: FormalisationResults,
) -> None:
    direct = transfer.direct
    assert direct is not None
    ours = {"logistics": direct.by_domain["rovers"], "ferry": direct.by_domain["rovers"]}
    figures = transfer.main.by_domain["rovers"]
    arms = {
        name: dataclasses.replace(arm, by_domain=dict.fromkeys(ours, figures)) for name, arm in transfer.arms.items()
    }
    table = direct_table(dataclasses.replace(transfer, direct=dataclasses.replace(direct, by_domain=ours), arms=arms))
    assert table.rows[-4:] == (
        ("paper: GPT-4o, direct", "-", "-", "-", "22.4%", "-"),
        ("paper: Claude 3.5, direct", "-", "-", "-", "22.6%", "-"),
        ("paper: DeepSeek-R1, direct", "-", "-", "-", "56.8%", "-"),
        ("paper: Llama 3.1-8B, in the loop", "-", "-", "-", "78.0%", "-"),
    )


def test_report_without_direct_plans_and_other_tests_has_no_such_sections(results: FormalisationResults) -> None:
    text = render_markdown(formalisation_report(results))
    assert "Problem or plan" not in text and "Never trained on" not in text


def test_measurements_of_direct_plans_are_their_task_success(compared: Run) -> None:
    judged = compared.measured("judge_direct")
    shares = {key: value for key, value in judged.items() if key[0].startswith("formalisation/")}
    assert shares == {("formalisation/task_success", "direct"): 0.25,
                      ("formalisation/task_success", "direct", "rovers"): 0.25}  # fmt: skip
    assert compared.measured("judge_sft")["formalisation/equivalent", "sft"] == 0.5  # of the four
