"""The summary of several seeds: figures worked out by hand from stand-in runs, and sentences that follow from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from plansmith.ablation.order import Outcome
from plansmith.ablation.seeds import SeedsResults, summarise_seeds
from plansmith.ablation.seeds_report import draw_seeds, headline, level_table, seeds_report
from plansmith.ablation.summary import ArmRun
from plansmith.judging.taxonomy import ErrorClass
from plansmith.pipeline import Reporting
from plansmith.report.metrics import ALL_LEVELS, EvaluatedProblem
from plansmith.report.render import format_report, render_markdown, render_page

REPORTING = Reporting(SeedsResults, seeds_report, "seeds")


def tried(marks: str, level: str, forms: str | None = None) -> list[EvaluatedProblem]:
    """Return one problem a mark, 1 is solved; its form is the letter below it, or its own where none are given."""
    return [
        EvaluatedProblem(
            problem_id=f"{level} {number}",
            domain="blocksworld",
            level=level,
            form=f"{level} {forms[number] if forms else number}",
            is_valid=mark == "1",
            error_class=None if mark == "1" else ErrorClass.GOAL_NOT_ACHIEVED,
            plan_length=4,
            planner_plan_length=4,
            completion_tokens=10,
        )
        for number, mark in enumerate(marks)
    ]


def run(arm: str, seed: int, four: str, five: str = "", forms: str | None = None) -> ArmRun:
    return ArmRun(arm, seed, (*tried(five, "5 blocks"), *tried(four, "4 blocks", forms)))


def summary(*runs: ArmRun) -> SeedsResults:
    """Return three seeds of two levels, four and two problems each, unless other runs are given."""
    default = [
        item
        for seed, phase1, final in ((100, "1000", "1110"), (101, "1100", "1111"), (102, "0000", "1100"))
        for item in (
            run("untrained", seed, "0000", "00"),
            run("phase1", seed, phase1, "00"),
            run("final", seed, final, "10"),
        )
    ]
    return summarise_seeds("demo-seeds", runs or default, preset="demo", primary_level="4 blocks")


def test_summarise_seeds_has_every_arm_on_every_level_and_on_all() -> None:
    results = summary()
    assert (results.seeds, results.arms) == ((100, 101, 102), ("untrained", "phase1", "final"))
    assert results.levels == (ALL_LEVELS, "4 blocks", "5 blocks")  # the primary one first among the single ones
    four, every = results.of_level("4 blocks")[-1], results.of_level(ALL_LEVELS)[-1]
    assert [figures.accuracy for figures in four.seeds] == [0.75, 1.0, 0.5]
    assert (four.mean, four.sd) == (pytest.approx(0.75), pytest.approx(0.25))
    assert [figures.n_valid for figures in every.seeds] == [4, 5, 3]
    assert [figures.n for figures in every.seeds] == [6, 6, 6]


def test_summarise_seeds_first_test_is_final_against_phase1_over_all_levels() -> None:
    first, *others = summary().tests
    assert (first.before, first.after, first.scope) == ("phase1", "final", ALL_LEVELS)
    assert (first.test.n, first.test.n_forms, first.test.only_before, first.test.only_after) == (18, 18, 0, 9)
    assert first.test.p_value == pytest.approx(2 / 2**9)
    assert [(one.seed, one.test.only_after) for one in first.by_seed] == [(100, 3), (101, 3), (102, 3)]
    assert [one.test.p_value for one in first.by_seed] == pytest.approx([2 / 8] * 3)
    assert (first.difference, first.outcome) == (pytest.approx(0.5), Outcome.CONFIRMED)
    assert [(test.before, test.scope) for test in others] == [
        ("phase1", "4 blocks"),
        ("phase1", "5 blocks"),
        ("untrained", ALL_LEVELS),
        ("untrained", "4 blocks"),
        ("untrained", "5 blocks"),
    ]


def test_summarise_seeds_pools_by_form_and_forms_of_different_seeds_differ() -> None:
    runs = [
        item
        for seed in (100, 101)
        for item in (run("phase1", seed, "0000", forms="aabb"), run("final", seed, "1100", forms="aabb"))
    ]
    [first] = summary(*runs).tests
    assert (first.scope, first.test.n, first.test.n_forms) == ("4 blocks", 8, 4)
    assert first.test.p_value == pytest.approx(2 / 4)  # one form gains under each seed
    assert [one.test.p_value for one in first.by_seed] == [1.0, 1.0]


def test_summarise_seeds_arm_of_some_seeds_only_has_their_figures_and_stands_before_the_final_one() -> None:
    results = summary(
        run("phase1", 100, "0011"),
        run("final", 100, "0111"),
        run("phase1", 101, "0001"),
        run("iteration_2", 101, "0011"),
        run("final", 101, "0111"),
    )
    assert results.arms == ("phase1", "iteration_2", "final")
    table = level_table(results, "4 blocks")
    assert table.header[-2:] == ("seed 100", "seed 101")
    assert [row[-2:] for row in table.rows] == [("50%", "25%"), ("-", "50%"), ("75%", "75%")]


def test_summarise_seeds_without_a_final_policy_raises() -> None:
    with pytest.raises(ValueError, match="without a final policy"):
        summary(run("phase1", 100, "01"))


def test_level_table_has_mean_deviation_worst_seed_and_every_seed() -> None:
    *_, final = level_table(summary(), "4 blocks").rows
    assert final[:3] == ("final", "75%", "25.0")
    assert final[4:] == ("50% (seed 102)", "75%", "100%", "50%")


def test_headline_gains_beyond_chance_and_seeds_are_an_improvement() -> None:
    result, evidence = headline(summary())
    assert result == (
        "Plan accuracy improved from 16.7% (phase 1) to 66.7% (final) on test problems (4 blocks, 5 blocks), mean of 3 "
        "seeds."
    )
    assert "all seeds pooled, exact McNemar test: p = 0.0039 (two-sided)" in evidence
    assert "Of 3 seeds alone 0 are significantly better and 0 significantly worse" in evidence
    assert "the worst ends with 50% (seed 102)" in evidence
    assert evidence.endswith("Seeds 100 to 102: settings are chosen on seeds below 100 only.")


def test_headline_gain_of_one_seed_alone_is_not_beyond_the_spread() -> None:
    result, evidence = headline(
        summary(
            run("phase1", 100, "0" * 20), run("final", 100, "1" * 20),
            run("phase1", 101, "0" * 20), run("final", 101, "0" * 20),
        )
    )  # fmt: skip
    assert result.startswith("No change in plan accuracy beyond the spread of the seeds: from 0% (phase 1) to 50%")
    assert "Of 2 seeds alone 1 are significantly better" in evidence


def test_headline_no_gain_is_not_significant_and_a_loss_is_a_fall() -> None:
    same = [item for seed in (1, 2) for item in (run("phase1", seed, "0011"), run("final", seed, "0011"))]
    assert headline(summary(*same))[0].startswith("No significant change in plan accuracy: from 50%")
    loss = [item for seed in (1, 2) for item in (run("phase1", seed, "1" * 9), run("final", seed, "0" * 9))]
    assert headline(summary(*loss))[0].startswith("Plan accuracy fell from 100% (phase 1) to 0% (final)")


def test_headline_development_seeds_support_no_claim() -> None:
    runs = [item for seed in (99, 100) for item in (run("phase1", seed, "00"), run("final", seed, "11"))]
    _, evidence = headline(summary(*runs))
    assert evidence.endswith("settings are chosen on seeds below 100, such as 99; this supports no claim.")


def test_draw_seeds_has_a_line_for_each_seed() -> None:
    plot = draw_seeds(summary(), 1, ALL_LEVELS)
    assert all(f"seed {seed}" in plot.svg for seed in (100, 101, 102))
    assert "the mean goes from 0% to 66.7%" in plot.caption
    control = [run("supervised_1", seed, "1111", "11") for seed in (100, 101, 102)]
    runs = [run(arm, seed, "1000", "00") for arm in ("phase1", "final") for seed in (100, 101, 102)]
    assert "supervised" not in draw_seeds(summary(*runs[:3], *control, *runs[3:]), 1, ALL_LEVELS).svg


def test_seeds_report_is_shown_in_terminal_markdown_and_page_and_read_back(tmp_path: Path) -> None:
    results = summary()
    said = REPORTING.write(results, tmp_path)
    assert REPORTING.read(tmp_path) == results
    assert sorted(path.name for path in (tmp_path / "report").iterdir()) == ["index.html", "seeds.json", "seeds.md"]
    titles = [block.splitlines()[0] for block in format_report(seeds_report(results)).split("\n\n")]
    assert titles[:3] == ["5 blocks", "4 blocks", "all levels"]
    assert titles[-1].startswith("Plan accuracy improved") and titles[-1] in said
    report = seeds_report(results)
    for text in (render_markdown(report), render_page(report)):
        assert "50% (seed 102)" in text
        assert "chosen before any run" in text
