"""The report: its files, its schema, its words, and that nothing in it leaves the page or runs."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from plansmith.errors import BadInputError
from plansmith.judging.taxonomy import ErrorClass
from plansmith.pipeline import Reporting
from plansmith.report import render as report_module
from plansmith.report.attempts import AttemptExample, StepMark, StepView
from plansmith.report.course_plots import group_times
from plansmith.report.feedback_turns import accuracy_by_turn
from plansmith.report.metrics import ALL_LEVELS, EvaluatedProblem, compare_arms, summarise_arm
from plansmith.report.plots import drawings
from plansmith.report.render import format_report
from plansmith.report.results import IterationRollouts, Losses, Results, TrainingCurve
from plansmith.report.run_report import headline, report_of
from plansmith.report.sections import Plot
from plansmith.report.statistics import wilson_interval
from plansmith.report.svg import series
from plansmith.report.wording import clock, p_text, percent, spoken

ATTACK = "<script>alert('x')</script>"
REPORTING = Reporting(Results, report_of)
VOID_TAGS = {"meta", "link", "br", "hr", "img", "input"}


def render_page(results: Results) -> str:
    return report_module.render_page(report_of(results))


def render_markdown(results: Results) -> str:
    return report_module.render_markdown(report_of(results))


def format_table(results: Results) -> str:
    return format_report(report_of(results))


def draw_plots(results: Results) -> tuple[Plot, ...]:
    return tuple(drawing.draw() for drawing in drawings(results))


def read_back(results: Results, folder: Path) -> Results:
    """Return the results that their own file holds."""
    REPORTING.write(results, folder)
    return REPORTING.read(folder)


def evaluated(level: str, solved: int, n: int) -> list[EvaluatedProblem]:
    kinds = list(ErrorClass)
    return [
        EvaluatedProblem(
            problem_id=f"{level} {i}",
            domain="blocksworld",
            level=level,
            form=f"{level} {i}",
            is_valid=i < solved,
            error_class=None if i < solved else kinds[i % 4],
            plan_length=8,
            planner_plan_length=6,
            completion_tokens=50,
        )
        for i in range(n)
    ]


def attempt(error_class: ErrorClass | None, marks: str, text: str = "state (clear a)") -> AttemptExample:
    kinds = {"o": StepMark.OK, "w": StepMark.WRONG_STATE, "f": StepMark.FAILED, "u": StepMark.UNREACHED}
    steps = [StepView(i, f"(act {i})", text, kinds[mark]) for i, mark in enumerate(marks, 1)]
    return AttemptExample(
        problem_id="p1",
        level="4 blocks",
        arm="final",
        initial_state="(on a b)",
        goal="(on b a)",
        steps=tuple(steps),
        error_class=error_class,
        validator_text="Plan failed",
        planner_plan=("(unstack a b)", "(stack b a)"),
        completion="" if marks else text,
    )


def make_results(valid: dict[str, int] | None = None, **changes: Any) -> Results:
    valid = valid or {"untrained": 0, "phase1": 12, "iteration_1": 15, "final": 20}
    attempts = {arm: evaluated("4 blocks", k, 25) + evaluated("5 blocks", k // 2, 25) for arm, k in valid.items()}
    arms = {arm: summarise_arm(arm, a, primary_level="4 blocks") for arm, a in attempts.items()}
    tests = [
        compare_arms("phase1", "final", level, evaluated_before=attempts["phase1"], evaluated_after=attempts["final"])
        for level in (ALL_LEVELS, "4 blocks", "5 blocks")
        if "phase1" in attempts
    ]
    curves = (
        TrainingCurve("phase1", 0, tuple(range(400)), tuple(4.0 / (1 + step) for step in range(400))),
        TrainingCurve("stage1", 1, (0, 10), (0.5, -0.25)),
    )
    results = Results(
        run_name="demo",
        preset="demo",
        seed=7,
        primary_level="4 blocks",
        arms=arms,
        paired_tests=tuple(tests),
        losses=Losses((2.5, 1.5), (0.9, 0.4)),
        curves=curves,
        rollout_valid_rate=(0.4, 0.6),
        time_s={"sample_problems": 4.0, "roll_out/1": 30.0, "roll_out/2": 45.0, "phase1": 300.0},
        tokens={"phase1": 1000},
        policy_versions={"final": "v3"},
        config={"phase1": {"steps": 400}, "name": "demo"},
        versions={"python": "3.11.9"},
        command="plansmith run pddl_instruct --preset demo",
        failures=(attempt(ErrorClass.INCORRECT_EFFECT, "owfu"), attempt(ErrorClass.GOAL_NOT_ACHIEVED, "oo")),
        solved=attempt(None, "oo"),
    )
    return dataclasses.replace(results, **changes)


def make_full_results() -> Results:
    """Return a run of two domains with costs, progress, own verdicts, v_hat and feedback turns."""
    arms = {}
    for name, solved in (("untrained", 1), ("final", 3)):
        items = [*evaluated("4 blocks", solved, 4), *evaluated("logistics small", solved - 1, 4)]
        arms[name] = summarise_arm(name, [judged(item) for item in items], primary_level="4 blocks")
    turns = accuracy_by_turn([0, 0, 1, None], list("abcd"), [0, 1, 5])
    return make_results(arms=arms, paired_tests=(), feedback_turns=turns)


def judged(item: EvaluatedProblem) -> EvaluatedProblem:
    return dataclasses.replace(
        item,
        domain="logistics" if "logistics" in item.level else "blocksworld",
        plan_cost=8.0 if item.is_valid else None,
        planner_cost=6.4,
        is_planner_optimal=True,
        progress=1.0 if item.is_valid else 0.5,
        stated_verdict=True,
        v_hat=0.9 if item.is_valid else 0.3,
    )


class PageReader(HTMLParser):
    """Collect tags and check that they nest; text of ``<title>`` and scripts would show up as tags."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an opening tag."""
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID_TAGS:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag that closes itself."""
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        """Check that the innermost open tag closes."""
        assert self.open.pop() == tag, f"</{tag}> closes another element"


def read_page(page: str) -> PageReader:
    reader = PageReader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def test_write_report_writes_three_files_and_leaves_nothing_else(tmp_path: Path) -> None:
    said = REPORTING.write(make_results(), tmp_path / "deep")
    page = tmp_path / "deep" / "report" / "index.html"
    assert said.endswith(f"report: {page}")
    assert sorted(p.name for p in page.parent.iterdir()) == ["index.html", "results.json", "results.md"]


def test_results_json_has_the_promised_keys(tmp_path: Path) -> None:
    REPORTING.write(make_results(), tmp_path)
    content = json.loads((tmp_path / "report" / "results.json").read_text())
    assert {"arms", "paired_tests", "losses", "time_s", "seed", "config", "versions"} <= content.keys()
    assert list(content["arms"]) == ["untrained", "phase1", "iteration_1", "final"]
    final = content["arms"]["final"]
    assert (final["n"], final["accuracy"], final["tokens"]) == (25, 0.8, 1250)
    assert final["ci95"] == pytest.approx([0.60869, 0.91139], abs=5e-6)
    assert final["errors"] == {
        "precondition_violation": 2,
        "incorrect_effect": 1,
        "goal_not_achieved": 1,
        "invalid_action_sequence": 1,
    }
    assert (final["mean_plan_length"], final["mean_planner_plan_length"]) == (8.0, 6.0)
    assert content["arms"]["untrained"]["mean_plan_length"] is None
    assert final["by_level"]["5 blocks"]["accuracy"] == 0.4
    assert final["by_level"]["4 blocks"]["n"] == 25
    assert content["time_s"]["phase1"] == 300.0
    assert [(test["level"], test["test"]["only_after"]) for test in content["paired_tests"]] == [
        ("all levels", 12),
        ("4 blocks", 8),
        ("5 blocks", 4),
    ]
    assert content["losses"]["reasoning"] == [2.5, 1.5]


def test_results_json_read_back_is_equal(tmp_path: Path) -> None:
    results = make_results()
    assert read_back(results, tmp_path) == results


@pytest.mark.parametrize("text", ["", "[]", '{"arms": {}}'], ids=["empty", "other-json", "keys-missing"])
def test_results_file_that_holds_something_else_is_bad_input(text: str, tmp_path: Path) -> None:
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "results.json").write_text(text)
    with pytest.raises(BadInputError, match="not the results of a run"):
        REPORTING.read(tmp_path)


def test_write_report_same_results_same_bytes(tmp_path: Path) -> None:
    REPORTING.write(read_back(make_results(), tmp_path / "one"), tmp_path / "two")
    for name in ("index.html", "results.json", "results.md"):
        one, two = (tmp_path / folder / "report" / name for folder in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()


def test_page_nests_properly_and_asks_nothing_of_the_network() -> None:
    page = render_page(make_results())
    reader = read_page(page)
    assert not {"script", "link", "img", "iframe", "object"} & set(reader.tags)
    assert re.findall(r"https?:|@import|url\((?!#)", page) == []
    loads = [value for name, value in reader.attributes if name in {"src", "href", "xlink:href"}]
    assert loads
    assert all(value is not None and value.startswith("#") for value in loads)
    assert "default-src 'none'" in page


def test_page_escapes_every_text_of_the_run() -> None:
    hostile = attempt(ErrorClass.INVALID_ACTION_SEQUENCE, "", ATTACK)
    results = make_results(
        run_name=ATTACK,
        preset=ATTACK,
        command=ATTACK,
        config={ATTACK: ATTACK},
        versions={ATTACK: ATTACK},
        policy_versions={ATTACK: ATTACK},
        time_s={ATTACK: 1.0},
        failures=(
            dataclasses.replace(hostile, initial_state=ATTACK, goal=ATTACK, validator_text=ATTACK, problem_id=ATTACK),
            attempt(ErrorClass.INCORRECT_EFFECT, "of", ATTACK),
        ),
    )
    page = render_page(results)
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 12
    read_page(page)


def test_page_highlights_the_first_step_that_is_not_correct() -> None:
    page = render_page(make_results(failures=(attempt(ErrorClass.INCORRECT_EFFECT, "owfu"),), solved=None))
    assert re.findall(r'<li class="([^"]+)">', page) == ["ok", "wrong_state first-wrong", "failed", "unreached"]
    assert "incorrect effect, step 2" in page


def test_page_goal_missed_after_correct_steps_highlights_the_end() -> None:
    page = render_page(make_results(failures=(attempt(ErrorClass.GOAL_NOT_ACHIEVED, "oo"),), solved=None))
    assert re.findall(r'<li class="([^"]+)">', page) == ["ok", "ok", "first-wrong"]
    assert "end of plan" in page


def test_page_solved_example_highlights_nothing() -> None:
    page = render_page(make_results(failures=(), solved=attempt(None, "oo")))
    assert re.findall(r'<li class="([^"]+)">', page) == ["ok", "ok"]
    assert "What it got wrong" not in page


def test_page_unreadable_completion_is_shown_as_it_is() -> None:
    page = render_page(make_results(failures=(attempt(ErrorClass.INVALID_ACTION_SEQUENCE, "", "step 1 ( unst"),)))
    assert "no step can be read in it" in page
    assert "step 1 ( unst" in page


def test_render_page_smallest_results_is_still_a_page() -> None:
    arms = {"untrained": summarise_arm("untrained", evaluated("4 blocks", 0, 1))}
    page = render_page(Results(run_name="r", preset="p", seed=0, primary_level="4 blocks", arms=arms))
    read_page(page)
    assert "The untrained policy solves 0% of 1 test problems (4 blocks)." in page


@pytest.mark.parametrize(
    ("phase1", "final", "result", "evidence"),
    [
        (
            12,
            20,
            "Plan accuracy improved from 36% (phase 1) to 60% (final)",
            "12 problems solved only by final, 0 only by phase 1; exact McNemar test, p < 0.001 (two-sided): more than",
        ),
        (20, 12, "Plan accuracy fell from 60% (phase 1) to 36% (final)", "more than chance"),
        (12, 14, "No significant change in plan accuracy: from 36% (phase 1) to 42%", "p = 0.25 (two-sided), not sig"),
        (12, 12, "No significant change in plan accuracy: from 36%", "p = 1 (two-sided), not significant"),
    ],
    ids=["better", "worse", "better-by-chance", "same"],
)
def test_headline_says_what_the_paired_test_allows(phase1: int, final: int, result: str, evidence: str) -> None:
    sentence, proof = headline(make_results({"untrained": 0, "phase1": phase1, "final": final}))
    assert result in sentence
    assert evidence in proof


def test_headline_of_one_level_is_about_that_level() -> None:
    before, after = (evaluated("4 blocks", solved, 25) for solved in (12, 20))
    arms = {name: summarise_arm(name, items) for name, items in (("phase1", before), ("final", after))}
    test = compare_arms("phase1", "final", "4 blocks", evaluated_before=before, evaluated_after=after)
    sentence, _ = headline(make_results(arms=arms, paired_tests=(test,)))
    assert sentence == "Plan accuracy improved from 48% (phase 1) to 80% (final) on 25 test problems (4 blocks)."


def test_copies_of_a_form_widen_the_intervals_and_are_tested_together() -> None:
    before, after = (
        [dataclasses.replace(item, form=str(number // 4)) for number, item in enumerate(evaluated("s", solved, 24))]
        for solved in (8, 20)
    )
    arms = {name: summarise_arm(name, items) for name, items in (("phase1", before), ("final", after))}
    test = compare_arms("phase1", "final", "s", evaluated_before=before, evaluated_after=after)
    results = make_results(arms=arms, paired_tests=(test,), primary_level="s")
    assert (arms["final"].n, arms["final"].n_forms) == (24, 6)
    assert arms["final"].ci95 == pytest.approx(wilson_interval(5, 6))  # copies always agree: six problems
    sentence, proof = headline(results)
    assert sentence.startswith("No significant change")  # three forms gained: 2 of 8 signs, against p = 0.0005
    assert "exact sign-flip test over 6 forms, p = 0.25 (two-sided)" in proof
    assert "| final | 24 | 6 | 83.3% | 43.6% to 97% |" in render_markdown(results)


def test_format_table_shows_every_arm_at_both_levels_and_all_together() -> None:
    table = format_table(make_results())
    four, five, every, tests, result = table.split("\n\n")
    assert (
        result == "Plan accuracy improved from 36% (phase 1) to 60% (final) on 50 test problems (4 blocks, 5 blocks)."
    )
    assert four.splitlines()[0] == "4 blocks"
    assert five.splitlines()[0] == "5 blocks"
    assert every.splitlines()[0] == "all levels"
    assert " ".join(every.splitlines()[-1].split()[:4]) == "final 50 50 60%"
    assert [line.split("  ")[0] for line in four.splitlines()[3:]] == ["untrained", "phase 1", "iteration 1", "final"]
    assert " ".join(four.splitlines()[-1].split()) == "final 25 25 80% 60.9% to 91.1% 2 1 1 1 8.0 6.0 50"
    assert four.splitlines()[3].split()[-3:] == ["-", "-", "50"]
    first, four_only, *_, last = tests.splitlines()
    assert first.startswith(
        "All levels, phase 1 to final: accuracy rose from 36% to 60% of 50 problems, in points +24.0"
    )
    assert "rose from 48% to 80% of 25 problems" in four_only
    assert "8 solved only after, 0 only before; exact McNemar test p = 0.0078 (two-sided): more than" in four_only
    assert last.startswith("Which tests are made, and in what order, was fixed before any run, and the first is the")
    assert len({len(line) for line in four.splitlines()[1:]}) == 1


def test_markdown_holds_the_same_figures(tmp_path: Path) -> None:
    REPORTING.write(make_results(), tmp_path)
    text = (tmp_path / "report" / "results.md").read_text()
    assert "| final | 25 | 25 | 80% | 60.9% to 91.1% | 2 | 1 | 1 | 1 | 8.0 | 6.0 | 50 |" in text
    assert "| roll_out/1 | 30.0 | - |" in text
    assert "Preset demo, seed 7." in text


def test_format_table_full_run_adds_a_block_for_everything_known() -> None:
    blocks = {
        block.splitlines()[0]: block.splitlines()[3:] for block in format_table(make_full_results()).split("\n\n")[:-1]
    }
    assert list(blocks) == [
        "4 blocks",
        "logistics small",
        "all levels",
        "Accuracy by domain",
        "Plan quality",
        "The policy's own verdict",
        "Calibration of v_hat",
        "Feedback turns",
    ]
    assert " ".join(blocks["Accuracy by domain"][0].split()) == "blocksworld 4 25.0 (5 to 70) 75.0 (30 to 95)"
    assert " ".join(blocks["Plan quality"][1].split()) == "blocksworld, final 4 3 0% 0% 1.250 0.88"
    assert " ".join(blocks["The policy's own verdict"][1].split()) == "blocksworld, final 4 4 3 75% 30.1% to 95.4%"
    assert " ".join(blocks["Calibration of v_hat"][1].split()) == "final 8 62.5% 0.040 0.175 100% 1.000"
    assert [" ".join(line.split()[:4]) for line in blocks["Feedback turns"]] == ["0 4 2 50%", "1 4 3 75%", "5 4 3 75%"]


def test_page_and_markdown_show_what_is_known_and_leave_out_the_rest() -> None:
    full, bare = make_full_results(), make_results()
    full_page, bare_page = render_page(full), render_page(bare)
    for title in ("Accuracy by domain", "Plan quality", "own verdict", "Calibration of v_hat", "Feedback turns"):
        assert title in full_page and title in render_markdown(full)
        assert title not in bare_page and title not in render_markdown(bare)
    reader = read_page(full_page)
    ids = [value for name, value in reader.attributes if name == "id"]
    assert {"plan-quality", "the-policys-own-verdict", "plot-calibration", "plot-feedback-turns"} <= set(ids)


def test_results_json_of_a_full_run_read_back_is_equal(tmp_path: Path) -> None:
    results = make_full_results()
    assert read_back(results, tmp_path) == results


def test_results_json_without_the_later_keys_is_still_read(tmp_path: Path) -> None:
    REPORTING.write(make_results(), tmp_path)
    path = tmp_path / "report" / "results.json"
    content = json.loads(path.read_text())
    del content["feedback_turns"]
    for arm in content["arms"].values():
        for key in ("by_domain", "calibration", "quality", "mean_progress", "self_verification"):
            del arm[key]
    path.write_text(json.dumps(content))
    results = REPORTING.read(tmp_path)
    assert (results.domains, results.arms["final"].quality) == ((), None)
    read_page(render_page(results))


def test_draw_plots_full_run_adds_domains_feedback_and_calibration() -> None:
    plots = {plot.slug: plot for plot in draw_plots(make_full_results())}
    assert {"domains", "feedback-turns", "calibration"} <= plots.keys()
    assert "Brier score 0.040" in plots["calibration"].caption
    assert re.findall(r">(\d+)</text>", plots["calibration"].svg)[-2:] == ["3", "5"]  # plans in the two bins
    for plot in plots.values():
        ElementTree.fromstring(plot.svg)
        assert re.findall(r"#[0-9a-fA-F]{6}\b", plot.svg) == [], plot.slug


def test_series_twenty_lines_differ_in_colour_or_marker() -> None:
    assert len({(series(number)["color"], series(number)["marker"]) for number in range(20)}) == 20
    assert len({(series(number)["color"], series(number)["linestyle"]) for number in range(16)}) == 16


def test_results_arms_with_different_domains_raise() -> None:
    one, other = make_full_results().arms["final"], make_results().arms["final"]
    with pytest.raises(ValueError, match="domains"):
        make_results(
            arms={"final": one, "x": dataclasses.replace(other, name="x", by_level=one.by_level)}, paired_tests=()
        )


@pytest.fixture(scope="module")
def plots() -> tuple[Plot, ...]:
    """Return the plots of a run."""
    return draw_plots(make_results())


def test_draw_plots_covers_the_run_in_reading_order(plots: tuple[Plot, ...]) -> None:
    slugs = [plot.slug for plot in plots]
    assert slugs == [
        "accuracy",
        "errors-1",
        "errors-2",
        "losses",
        "rollouts",
        "training-phase1",
        "training-stage1",
        "times",
    ]


def test_report_of_a_loop_shows_what_became_of_its_rollouts() -> None:
    rollouts = tuple(IterationRollouts.of(t, [None, None, "goal_not_achieved", None]) for t in (1, 2, 3))
    results = make_results(rollouts=rollouts, n_not_finite=2)
    text, page = render_markdown(results), render_page(results)
    assert "| 1 | 4 | 75% | 2.5000 | 0.9000 | 0 | 0 | 1 | 0 |" in text
    assert "| 3 | 4 | 75% | - | - | 0 | 0 | 1 | 0 |" in text  # its losses are not known yet
    assert 'id="plot-rollout-verdicts"' in page
    assert "2 optimiser steps had a loss that is NaN or infinite" in page
    assert "Feedback iterations" not in format_table(results)


def test_draw_plots_svg_parses_and_takes_its_colours_from_the_page(plots: tuple[Plot, ...]) -> None:
    for plot in plots:
        ElementTree.fromstring(plot.svg)
        assert "var(--ink)" in plot.svg
        assert re.findall(r"#[0-9a-fA-F]{6}\b", plot.svg) == [], plot.slug


def test_draw_plots_axes_carry_labels_with_units(plots: tuple[Plot, ...]) -> None:
    svgs = {plot.slug: plot.svg for plot in plots}
    assert "plan accuracy (%)" in svgs["accuracy"]
    assert "failed problems, of 25" in svgs["errors-1"]
    assert "feedback iteration" in svgs["losses"]
    assert "wall time (min)" in svgs["times"]


def test_draw_plots_dollar_signs_in_a_level_stay_text() -> None:
    attempts = evaluated("$x_1$", 1, 2)
    arms = {"final": summarise_arm("final", attempts)}
    plots = draw_plots(Results(run_name="r", preset="p", seed=0, primary_level="$x_1$", arms=arms))
    assert ">$x_1$ (n = 2)</text>" in plots[0].svg


def test_group_times_adds_up_iterations_but_not_numbered_stages() -> None:
    times = {"roll_out/1": 1.0, "roll_out/2": 2.0, "stage1_1": 4.0, "stage1_2": 8.0, "stage2_1": 16.0, "phase1": 32.0}
    assert group_times(times) == [
        ("roll out (2 runs)", 3.0),
        ("stage 1 (2 runs)", 12.0),
        ("stage 2", 16.0),
        ("phase 1", 32.0),
    ]


def test_group_times_many_stages_keeps_the_long_ones_in_order() -> None:
    times = {f"stage {chr(97 + i)}": float(i) for i in range(20)}
    bars = group_times(times)
    assert len(bars) == 14
    assert bars[0] == ("stage h", 7.0)
    assert bars[-1] == ("7 shorter stages", 21.0)
    assert math.isclose(sum(t for _, t in bars), sum(times.values()))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arms": {}}, "without an arm"),
        ({"time_s": {"phase1": float("nan")}}, "time_s"),
        ({"losses": Losses(reasoning=(float("inf"),))}, "losses"),
        ({"curves": (TrainingCurve("phase1", 0, (0,), (float("nan"),)),)}, "losses of phase1"),
        ({"curves": (TrainingCurve("phase1", 0, (0, 1), (1.0,)),)}, "2 steps and 1 losses"),
        ({"rollout_valid_rate": (float("nan"),)}, "rollout_valid_rate"),
        ({"primary_level": "5 blocks"}, "primary level"),
    ],
    ids=["no-arm", "nan-time", "infinite-loss", "nan-curve", "ragged-curve", "nan-rate", "other-primary-level"],
)
def test_results_that_cannot_be_true_raise(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_results(**changes)


def test_results_misfiled_arm_raises() -> None:
    arm = make_results().arms["final"]
    with pytest.raises(ValueError, match="filed under"):
        make_results(arms={"phase1": arm}, paired_tests=())


def test_results_paired_test_of_an_unknown_arm_raises() -> None:
    results = make_results()
    with pytest.raises(ValueError, match=r"not judged: \['phase1'\]"):
        dataclasses.replace(results, arms={"final": results.arms["final"]})


@pytest.mark.parametrize(
    ("function", "value", "expected"),
    [
        (percent, 0.81, "81%"),
        (percent, 37 / 45, "82.2%"),
        (percent, 0.0, "0%"),
        (percent, 1.0, "100%"),
        (p_text, 0.04321, "p = 0.043"),
        (p_text, 0.0001, "p < 0.001"),
        (p_text, 1.0, "p = 1"),
        (clock, 4.24, "4.2 s"),
        (clock, 9.96, "10 s"),
        (clock, 59.6, "1 min 0 s"),
        (clock, 7290.0, "2 h 1 min"),
    ],
)
def test_numbers_are_written_for_people(function: object, value: float, expected: str) -> None:
    assert callable(function)
    assert function(value) == expected


def test_spoken_turns_names_into_words() -> None:
    assert [spoken(n) for n in ("iteration_12", "phase1", "untrained", "roll_out", "nl2plan")] == [
        "iteration 12",
        "phase 1",
        "untrained",
        "roll out",
        "nl2plan",
    ]


def test_report_import_brings_no_training_package_and_no_display() -> None:
    code = (
        "import sys, plansmith.report.render; "
        "print([m for m in ('torch', 'ray', 'vllm', 'deepspeed', 'matplotlib.pyplot', 'tkinter') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
