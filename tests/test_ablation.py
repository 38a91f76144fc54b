"""The ablation: means and intervals over seeds, the paper's figures beside ours, the tests of its order, the files."""

from __future__ import annotations

import dataclasses
import math
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from plansmith.ablation.order import OrderTest, Outcome, compare_over_seeds
from plansmith.ablation.paper_figures import PAPER_DOMAINS, TABLE_1, TABLE_4, TABLE_5, TABLE_5_TOTAL, PaperColumn
from plansmith.ablation.plots import ablation_drawings
from plansmith.ablation.report import ablation_report, describe_order, headline
from plansmith.ablation.summary import (
    ALL_DOMAINS,
    NEIGHBOURS,
    AblationArm,
    AblationResults,
    ArmRun,
    standard_arms,
    summarise_ablation,
)
from plansmith.ablation.tables import (
    accuracy_table,
    configuration_table,
    contrast_table,
    error_table,
    interval_table,
    order_table,
    run_table,
)
from plansmith.judging.taxonomy import ErrorClass
from plansmith.pipeline import Reporting
from plansmith.report.metrics import EvaluatedProblem
from plansmith.report.render import format_report, render_page
from plansmith.report.sections import Plot, Table
from plansmith.report.statistics import TriedProblem, wilson_interval

T_1 = 12.706204736432095  # the 97.5% quantile of Student's t with one degree of freedom
ARMS = standard_arms(2, 3)
REPORTING = Reporting(AblationResults, ablation_report, "ablation")
ATTACK = "<script>alert('x')</script>"


def tried(marks: str, domain: str = "blocksworld") -> tuple[EvaluatedProblem, ...]:
    """Return one problem a mark: 1 is solved, p, e, g and s fail by the class of that letter."""
    classes = {"p": 0, "e": 1, "g": 2, "s": 3}
    return tuple(
        EvaluatedProblem(
            problem_id=f"{domain} {number}",
            domain=domain,
            level=domain,
            form=f"{domain} {number}",
            is_valid=mark == "1",
            error_class=None if mark == "1" else list(ErrorClass)[classes[mark]],
            plan_length=4,
            planner_plan_length=4,
            completion_tokens=10,
        )
        for number, mark in enumerate(marks)
    )


def run(arm: str, seed: int, marks: str, **more: str) -> ArmRun:
    others = [item for domain, other in more.items() for item in tried(other, domain)]
    return ArmRun(arm, seed, (*tried(marks), *others))


def make_ablation(*runs: ArmRun, **changes: Any) -> AblationResults:
    """Return an ablation of two seeds with ten problems of Blocksworld and four of a domain the paper has not."""
    default = (
        run("baseline", 7, "pppppppppp", gripper="gggg"),
        run("baseline", 8, "pppppppppp", gripper="gggg"),
        run("phase1", 7, "1111ppeggs", gripper="1ggg"),
        run("phase1", 8, "1111111pes", gripper="gggg"),
        run("binary_eta3", 8, "11111111eg", gripper="11gg"),
        run("binary_eta3", 7, "111111ppee", gripper="11gg"),
        run("detailed_eta3", 7, "11111111pe", gripper="1ggs"),
        run("detailed_eta3", 8, "1111111111", gripper="11gg"),
    )
    return dataclasses.replace(summarise_ablation("demo", ARMS, runs or default, model="tiny"), **changes)


def row_of(table: Table, start: str) -> dict[str, str]:
    [row] = [row for row in table.rows if row[0].startswith(start)]
    return dict(zip(table.header, row, strict=True))


def test_paper_figures_neighbours_ascend_in_every_domain() -> None:
    for before, after in NEIGHBOURS:
        assert all(TABLE_1[before][domain] < TABLE_1[after][domain] for domain in PAPER_DOMAINS)


def test_paper_figures_tables_agree_with_each_other() -> None:
    for column, figures in TABLE_4.items():
        assert {domain: mean for domain, (mean, _) in figures.items()} == TABLE_1[column]
    for domain in PAPER_DOMAINS:
        assert math.isclose(sum(TABLE_5[kind][domain] for kind in ErrorClass), TABLE_5_TOTAL[domain])
        assert TABLE_5_TOTAL[domain] == 100 - TABLE_1[PaperColumn.DETAILED_HIGH][domain]


def test_standard_arms_are_the_columns_of_table_1() -> None:
    assert [arm.id for arm in ARMS] == [
        "baseline",
        "phase1",
        "phase2_detailed_eta3",
        "binary_eta2",
        "binary_eta3",
        "detailed_eta2",
        "detailed_eta3",
    ]
    assert [arm.paper_label for arm in ARMS] == list(PaperColumn)
    assert [arm.column for arm in ARMS] == [
        "Baseline",
        "Only P1",
        "Only P2, detailed, eta = 3",
        "Binary, eta = 2",
        "Binary, eta = 3",
        "Detailed, eta = 2",
        "Detailed, eta = 3",
    ]


@pytest.mark.parametrize(("low", "high"), [(3, 3), (3, 2), (0, 2)])
def test_standard_arms_eta_that_does_not_ascend_raises(low: int, high: int) -> None:
    with pytest.raises(ValueError, match="ascend from 1"):
        standard_arms(low, high)


@pytest.mark.parametrize(
    ("phases", "feedback", "eta"), [((1,), "binary", None), ((1, 2), None, 3), ((2,), "binary", None)]
)
def test_ablation_arm_feedback_without_phase_2_or_the_reverse_raises(
    phases: tuple[int, ...], feedback: Any, eta: int | None
) -> None:
    with pytest.raises(ValueError, match="belong to phase 2"):
        AblationArm("x", "x", phases, feedback, eta, None)


def test_summarise_ablation_cell_by_hand() -> None:
    cell = make_ablation().cell("phase1", "blocksworld")
    assert cell is not None
    assert [(s.seed, s.n, s.n_valid, s.accuracy) for s in cell.seeds] == [(7, 10, 4, 0.4), (8, 10, 7, 0.7)]
    assert cell.seeds[0].ci95 == pytest.approx(wilson_interval(4, 10))
    assert cell.mean == pytest.approx(0.55)
    assert cell.sd == pytest.approx(0.3 / math.sqrt(2))
    assert cell.ci95 == (0.0, 1.0)  # 0.55 +- 0.15 * 12.7
    assert [cell.error_rates[kind] for kind in ErrorClass] == pytest.approx([0.15, 0.1, 0.1, 0.1])


def test_summarise_ablation_seeds_and_domains_keep_their_order_whatever_the_order_of_runs() -> None:
    results = make_ablation()
    cell = results.cell("binary_eta3", "gripper")
    assert cell is not None and [figures.seed for figures in cell.seeds] == [7, 8]
    assert (results.domains, results.seeds) == (("blocksworld", "gripper"), (7, 8))
    assert results.cell("detailed_eta2", "blocksworld") is None


def test_summarise_ablation_one_seed_has_the_wilson_interval_and_no_deviation() -> None:
    cell = make_ablation(run("phase1", 7, "11pp")).cell("phase1", "blocksworld")
    assert cell is not None and cell.sd is None
    assert cell.ci95 == pytest.approx(wilson_interval(2, 4))


def test_best_arm_has_the_greatest_mean_over_domains_and_the_later_of_equals() -> None:
    assert make_ablation().best_arm.id == "detailed_eta3"  # 0.9 and 0.375, against 0.7 and 0.5
    assert make_ablation(run("phase1", 7, "1p"), run("binary_eta2", 7, "p1")).best_arm.id == "binary_eta2"


def test_summarise_ablation_iterations_are_kept_apart_from_results() -> None:
    after_one = dataclasses.replace(run("binary_eta3", 7, "1ppp"), iteration=1)
    after_two = dataclasses.replace(run("binary_eta3", 7, "11pp"), iteration=2)
    results = make_ablation(run("binary_eta3", 7, "111p"), after_two, after_one)
    assert [(c.iteration, c.mean) for c in results.iterations] == [(1, 0.25), (2, 0.5)]
    assert [(c.iteration, c.mean) for c in results.cells] == [(None, 0.75)]


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([run("phase9", 7, "1")], "not in the ablation"),
        ([run("phase1", 7, "1"), run("phase1", 7, "p")], "occurs twice"),
        ([ArmRun("phase1", 7, ())], "no problems"),
        ([ArmRun("phase1", 7, tried("1") * 2)], "occurs twice"),
        ([dataclasses.replace(run("binary_eta2", 7, "1"), iteration=1)], "without a result"),
        ([run("baseline", 7, "1p"), run("phase1", 7, "1")], "differ in 1 problems under seed 7"),
    ],
    ids=["unknown-arm", "run-twice", "empty", "problem-twice", "iterations-only", "other-problems"],
)
def test_summarise_ablation_unusable_runs_raise(runs: list[ArmRun], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        summarise_ablation("x", ARMS, runs, model="tiny")


def test_summarise_ablation_two_arms_for_one_column_raise() -> None:
    twin = dataclasses.replace(ARMS[1], id="twin")
    with pytest.raises(ValueError, match="share an id or a column"):
        summarise_ablation("x", [*ARMS, twin], [run("phase1", 7, "1")], model="tiny")


def solved(marks: str) -> dict[str, TriedProblem]:
    return {f"p{number}": TriedProblem(mark == "1", f"form {number}") for number, mark in enumerate(marks)}


def test_compare_over_seeds_problems_of_different_seeds_are_different_pairs() -> None:
    test = compare_over_seeds(
        "a", "b", "d", before={7: solved("0000"), 8: solved("1000")}, after={8: solved("0111"), 7: solved("1100")}
    )
    assert (test.test.n, test.test.only_before, test.test.only_after) == (8, 1, 5)
    assert test.test.p_value == pytest.approx(14 / 64)
    assert [(one.seed, one.test.only_before, one.test.only_after) for one in test.by_seed] == [(7, 0, 2), (8, 1, 3)]
    assert [one.test.p_value for one in test.by_seed] == pytest.approx([2 / 4, 10 / 16])
    assert (test.accuracy_before, test.accuracy_after, test.difference) == (0.125, 0.625, 0.5)
    reach = 1.959964 * math.sqrt(1 + 5 + 1 - 4**2 / 10) / 10  # both seeds gain two of four: t alone has no width
    assert test.difference_ci95 == pytest.approx((0.4 - reach, 0.4 + reach))
    assert test.outcome is Outcome.NOT_SIGNIFICANT


def test_compare_over_seeds_difference_interval_by_hand() -> None:
    test = compare_over_seeds(
        "a", "b", "d", before={7: solved("0000"), 8: solved("0000")}, after={7: solved("1000"), 8: solved("1110")}
    )
    assert test.difference_ci95 == (-1.0, 1.0)  # 0.5 +- 0.25 * 12.7
    assert not test.is_beyond_seeds


def test_compare_over_seeds_difference_interval_follows_the_spread_of_many_problems() -> None:
    before = {seed: solved("0" * 1000) for seed in (7, 8)}
    after = {7: solved("1" * 500 + "0" * 500), 8: solved("1" * 510 + "0" * 490)}
    test = compare_over_seeds("a", "b", "d", before=before, after=after)
    assert test.difference_ci95 == pytest.approx((0.505 - 0.005 * T_1, 0.505 + 0.005 * T_1))
    assert test.is_beyond_seeds


@pytest.mark.parametrize(
    ("before", "after", "outcome", "is_beyond_seeds"),
    [
        ("0" * 6, "1" * 6, Outcome.CONFIRMED, True),
        ("1" * 6, "0" * 6, Outcome.REVERSED, True),
        ("0" * 6, "000000", Outcome.NOT_SIGNIFICANT, False),
    ],
    ids=["better", "worse", "same"],
)
def test_order_test_outcome_follows_direction_and_chance(
    before: str, after: str, outcome: Outcome, is_beyond_seeds: bool
) -> None:
    test = compare_over_seeds(
        "a", "b", "d", before={1: solved(before), 2: solved(before)}, after={1: solved(after), 2: solved(after)}
    )
    assert (test.outcome, test.is_beyond_seeds) == (outcome, is_beyond_seeds)


def test_compare_over_seeds_only_seeds_in_common_are_paired() -> None:
    test = compare_over_seeds(
        "a", "b", "d", before={7: solved("01"), 9: solved("11")}, after={7: solved("11"), 8: solved("00")}
    )
    assert (test.test.n, [one.seed for one in test.by_seed], test.difference_ci95) == (2, [7], None)
    with pytest.raises(ValueError, match="no seed in common"):
        compare_over_seeds("a", "b", "d", before={1: solved("1")}, after={2: solved("1")})


def test_summarise_ablation_tests_the_pairs_it_has_in_each_domain_and_in_all() -> None:
    tests = make_ablation().tests
    pairs = dict.fromkeys((test.before, test.after) for test in tests)
    assert list(pairs) == [("baseline", "phase1"), ("phase1", "binary_eta3"), ("binary_eta3", "detailed_eta3")]
    assert [test.scope for test in tests[:3]] == ["blocksworld", "gripper", ALL_DOMAINS]
    assert [test.test.n for test in tests[:3]] == [20, 8, 28]
    assert (tests[0].test.only_after, tests[2].test.only_after) == (11, 12)


OWN = (
    AblationArm("supervised", "As much supervision", (1,), None, None, None),
    AblationArm(
        "detailed_eta3_turns", "Detailed, eta = 3, 1 feedback turn at the test", (1, 2), "detailed", 3, None, 1
    ),
)
CONTRASTS = (
    ("supervised", "detailed_eta3"),
    ("detailed_eta3", "detailed_eta3_turns"),
    ("binary_eta3", "detailed_eta3_turns"),
    ("detailed_eta3", "score"),
)


def make_contrasts() -> AblationResults:
    """Return an ablation of one seed with a control, which is worse, and an arm with a turn, which is as good."""
    runs = (
        run("detailed_eta3", 7, "11111111pp"),
        run("supervised", 7, "1111pppppp"),
        run("detailed_eta3_turns", 7, "111111111p"),
    )
    return summarise_ablation("demo", [*ARMS, *OWN], runs, model="tiny", contrasts=CONTRASTS)


def test_contrasts_are_the_pairs_that_are_both_there_and_stand_apart_from_the_papers_order() -> None:
    results = make_contrasts()
    found = [(test.before, test.after, test.test.only_before, test.test.only_after) for test in results.contrasts]
    assert found == [("supervised", "detailed_eta3", 0, 4), ("detailed_eta3", "detailed_eta3_turns", 0, 1)]
    assert results.tests == ()


def test_contrast_table_and_sentences_name_the_better_arm() -> None:
    runs = [run("supervised", 7, "p" * 10), run("detailed_eta3", 7, "1" * 10)]
    better, worse = (
        summarise_ablation("demo", [*ARMS, *OWN], runs, model="tiny", contrasts=[pair])
        for pair in (("supervised", "detailed_eta3"), ("detailed_eta3", "supervised"))
    )
    assert row_of(contrast_table(better), "As much supervision to Detailed, eta = 3")["result"].startswith(
        "second better"
    )
    assert row_of(contrast_table(worse), "Detailed, eta = 3 to As much")["result"].startswith("first better")
    assert "more than chance, the second is better" in format_report(ablation_report(better))
    assert row_of(contrast_table(make_contrasts()), "As much")["result"] == "not significant"


def test_best_arm_is_none_that_tries_again() -> None:
    assert make_contrasts().best_arm.id == "detailed_eta3"


def test_tables_in_the_papers_shape_hold_arms_of_our_own_but_for_table_1() -> None:
    results = make_contrasts()
    assert accuracy_table(results).header == ("model, domain", *(arm.column for arm in ARMS))
    row = row_of(configuration_table(results), "Detailed, eta = 3, 1 feedback turn at the test")
    assert row["blocksworld"] == "90.0 (one seed)"


def test_accuracy_table_has_the_papers_figure_in_brackets_where_it_has_the_domain() -> None:
    table = accuracy_table(make_ablation())
    blocksworld, gripper = row_of(table, "tiny, blocksworld"), row_of(table, "tiny, gripper")
    assert table.header == ("model, domain", *(arm.column for arm in ARMS))
    assert blocksworld["Only P1"] == "55.0 (paper 78)"
    assert blocksworld["Detailed, eta = 3"] == "90.0 (paper 94)"
    assert blocksworld["Binary, eta = 2"] == "- (paper 84)"
    assert gripper["Detailed, eta = 3"] == "37.5"
    assert "seeds 7, 8" in table.note and "Llama-3-8B with eta = 10 and 15" in table.note


def test_configuration_table_has_deviations_over_seeds_and_the_papers() -> None:
    table = configuration_table(make_ablation())
    assert row_of(table, "Phase 1 only")["blocksworld"] == "55.0 ± 21.2 (paper 78.0 ± 3.1)"
    assert row_of(table, "Phase 1 only")["gripper"] == "12.5 ± 17.7"
    single = configuration_table(make_ablation(run("phase1", 7, "11pp")))
    assert row_of(single, "Phase 1 only")["blocksworld"] == "50.0 (one seed) (paper 78.0 ± 3.1)"


def test_error_table_is_of_the_best_arm_in_percent_of_all_problems() -> None:
    table = error_table(make_ablation(run("detailed_eta3", 7, "11111111pe"), run("detailed_eta3", 8, "11111111ps")))
    cells = [row[1] for row in table.rows]
    assert cells == [
        "10.0 (paper 2.1)",
        "5.0 (paper 1.4)",
        "0.0 (paper 1.8)",
        "5.0 (paper 0.7)",
        "20.0 (paper 6.0)",
    ]
    assert "Phase 1 + detailed feedback, eta = 3" in table.note


def test_order_table_says_not_significant_and_not_over_seeds() -> None:
    table = order_table(make_ablation())
    first = row_of(table, "Baseline to Only P1; blocksworld")
    assert first["second"].startswith("55% (0% to 100%)")
    assert (first["pairs"], first["only first"], first["only second"], first["p"]) == ("20", "0", "11", "< 0.001")
    assert first["p by seed"] == "0.12, 0.016"  # 2 / 16 and 2 / 128
    assert first["difference over seeds"] == "+55.0 (-100.0 to +100.0)"
    assert first["result"] == "confirmed, not over seeds"
    assert row_of(table, "Binary, eta = 3 to Detailed, eta = 3; gripper")["result"] == "not significant"


def test_interval_and_run_tables_leave_no_seed_out() -> None:
    results = make_ablation()
    assert row_of(interval_table(results), "Baseline")["gripper"] == "0% (0% to 32.4%)"  # Wilson, 0 of 8
    table = run_table(results)
    assert len(table.rows) == 16
    assert table.rows[2][:6] == ("Baseline, no training; gripper", "7", "4", "4", "0", "0%")
    assert (
        "Phase 1 only; blocksworld",
        "7",
        "10",
        "10",
        "4",
        "40%",
        "16.8% to 68.7%",
        "2",
        "1",
        "2",
        "1",
    ) in table.rows


def sentence(change: Callable[[OrderTest], bool], results: AblationResults) -> str:
    return describe_order(results, next(test for test in results.tests if change(test)))


def test_describe_order_gives_accuracies_intervals_p_and_the_papers_pair() -> None:
    results = make_ablation()
    text = sentence(lambda test: test.scope == "blocksworld", results)
    assert "Baseline, no training to Phase 1 only: accuracy rises from 0% (0% to 16.1%) to 55% (0% to 100%)" in text
    assert "of 20 pairs 11 solved only after, 0 only before; exact McNemar test p < 0.001 (two-sided)" in text
    assert "By seed: seed 7 p = 0.12; seed 8 p = 0.016." in text
    assert text.endswith("training again may not show it. The paper: 28% to 78%.")
    gripper = sentence(lambda test: (test.after, test.scope) == ("detailed_eta3", "gripper"), results)
    assert "not significant, it may be chance" in gripper and "The paper" not in gripper


def test_describe_order_equal_accuracies_and_one_seed_say_so() -> None:
    same = make_ablation(run("baseline", 7, "1p"), run("phase1", 7, "p1"))
    assert "accuracy stays, 50% (9.5% to 90.5%) and 50% (9.5% to 90.5%)" in describe_order(same, same.tests[0])
    single = make_ablation(run("baseline", 7, "pppppp"), run("phase1", 7, "111111"))
    assert "one seed cannot tell of another training" in describe_order(single, single.tests[0])


def test_headline_counts_what_the_tests_say() -> None:
    text = headline(make_ablation())
    assert text.startswith("It reaches 90% in blocksworld")
    assert "Of 9 comparisons in the paper's order 3 are confirmed (1 also by the spread over seeds)" in text
    assert text.endswith("6 not significant, 0 reversed.")


def test_write_ablation_writes_three_files_that_read_back_equal(tmp_path: Path) -> None:
    results = make_ablation(config={"eta": [2, 3]}, versions={"python": "3.11"}, command="plansmith ablation")
    said = REPORTING.write(results, tmp_path / "deep")
    assert "Highest mean accuracy: Phase 1 + detailed feedback, eta = 3, over 2 seeds." in said
    report, again = (tmp_path / folder / "report" for folder in ("deep", "again"))
    assert sorted(path.name for path in report.iterdir()) == ["ablation.json", "ablation.md", "index.html"]
    assert REPORTING.read(tmp_path / "deep") == results
    REPORTING.write(REPORTING.read(tmp_path / "deep"), tmp_path / "again")
    for name in ("ablation.json", "ablation.md", "index.html"):
        assert (again / name).read_bytes() == (report / name).read_bytes()


def test_write_ablation_markdown_holds_every_table(tmp_path: Path) -> None:
    REPORTING.write(make_ablation(), tmp_path)
    text = (tmp_path / "report" / "ablation.md").read_text(encoding="utf-8")
    for number in (1, 4, 5):
        assert f"(the paper's table {number})" in text
    assert "| Phase 1 only | 55.0 ± 21.2 (paper 78.0 ± 3.1) | 12.5 ± 17.7 |" in text
    assert text.count("exact McNemar test p") == 9


def test_format_ablation_shows_the_tables_and_the_order() -> None:
    text = format_report(ablation_report(make_ablation()))
    assert "55.0 (paper 78)" in text and "55.0 ± 21.2" in text and "Total failure rate" in text
    assert text.count("exact McNemar test p") == 9


class PageReader(HTMLParser):
    """Collect tags and what they load."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an opening tag and its references."""
        self.tags.append(tag)
        self.loads += [value for name, value in attrs if name in {"src", "href", "xlink:href"}]


def test_page_asks_nothing_of_the_network_and_escapes_every_text() -> None:
    arm = dataclasses.replace(ARMS[1], label=ATTACK, paper_label=None)
    results = summarise_ablation(ATTACK, [arm], [ArmRun("phase1", 7, tried("1p", ATTACK))], model=ATTACK)
    hostile = dataclasses.replace(results, config={ATTACK: ATTACK}, command=ATTACK, versions={ATTACK: ATTACK})
    page = render_page(ablation_report(hostile))
    reader = PageReader()
    reader.feed(page)
    assert not {"script", "link", "img", "iframe", "object"} & set(reader.tags)
    assert all(value is not None and value.startswith("#") for value in reader.loads)
    assert re.findall(r"https?:|@import|url\((?!#)", page) == []
    assert "<script" not in page and page.count("&lt;script&gt;") >= 10


def draw_ablation(results: AblationResults) -> tuple[Plot, ...]:
    return tuple(drawing.draw() for drawing in ablation_drawings(results))


def test_draw_ablation_every_seed_is_a_dot_and_colours_come_from_the_page() -> None:
    after_one = dataclasses.replace(run("binary_eta3", 7, "1ppppppppp"), iteration=1)
    plots = {
        plot.slug: plot.svg
        for plot in draw_ablation(make_ablation(run("baseline", 7, "1p"), run("baseline", 8, "pp"), after_one))
    }
    assert list(plots) == ["arms-1", "iterations-1"]
    for svg in plots.values():
        ElementTree.fromstring(svg)
        assert re.findall(r"#[0-9a-fA-F]{6}\b", svg) == []
    assert len(re.findall(r"<use [^>]*var\(--series-2\)", plots["arms-1"])) == 2 + 1  # two seeds, one in the legend
    assert "the paper, Llama-3-8B" in plots["arms-1"]
    assert "feedback iteration" in plots["iterations-1"]


def test_draw_ablation_domain_the_paper_has_not_shows_no_paper() -> None:
    [plot] = draw_ablation(make_ablation(ArmRun("baseline", 7, tried("1p", "gripper"))))
    assert "the paper, Llama" not in plot.svg


def test_ablation_results_survive_pickling() -> None:
    results = make_ablation()
    assert pickle.loads(pickle.dumps(results)) == results


def test_ablation_import_brings_no_heavy_package() -> None:
    code = (
        "import sys, plansmith.ablation.summary; "
        "print([m for m in ('torch', 'ray', 'vllm', 'deepspeed', 'matplotlib', 'jinja2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
