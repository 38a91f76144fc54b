"""The ablation of runs that write PDDL for texts, and several seeds of them: hand-made answers, figures by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from test_formalisation_metrics import answer, text
from test_formalisation_report import READINGS, RESAMPLED, Run

from pipelines.nl_pddl_bench import PIPELINE
from plansmith.ablation.formalisation_report import (
    arm_table,
    describe_test,
    draw_figure,
    formalisation_summary_report,
    transfer_table,
)
from plansmith.ablation.formalisation_summary import (
    FIGURES,
    FormalisationSummary,
    TextArmRun,
    summarise_text_runs,
)
from plansmith.ablation.formalisation_variants import text_ablation_results, text_seeds_results, text_variants
from plansmith.config.nl_pddl_bench import NlPddlBenchConfig
from plansmith.errors import ConfigError
from plansmith.pddl.validation import Verdict
from plansmith.pipeline import Reporting
from plansmith.report.formalisation_arms import main_arm
from plansmith.report.formalisation_metrics import AnsweredText, Novelty
from plansmith.report.formalisation_results import compared_arms
from plansmith.report.render import format_report, render_markdown, render_page
from plansmith.report.statistics import TriedProblem, wilson_interval
from plansmith.stages import Stage

REPORTING = Reporting(FormalisationSummary, formalisation_summary_report, "ablation")
LETTERS = {"r": "right", "f": "flattered", "s": "unsolved", "x": "unread"}
CONTROLS = ("try_untrained", "sft_longer", "resample_sft", "resample_sft_longer", "resample_dpo", "direct", "try_read")


def run(arm: str, seed: int, kinds: str, pairs: str = "") -> TextArmRun:
    """Return one text a letter of `LETTERS`, and one held-out pair a mark, 1 is told apart; two pairs a problem."""
    texts = tuple(text(f"p{i}", answer(f"p{i}", LETTERS[kind])) for i, kind in enumerate(kinds))
    return TextArmRun(arm, seed, texts, tuple(TriedProblem(mark == "1", f"d{i // 2}") for i, mark in enumerate(pairs)))


RUNS = [
    run("untrained", 0, "xxxx"),
    run("sft", 0, "rsxx"),
    run("sft_repaired", 0, "rfxx"),
    run("dpo_faithful", 0, "rrsx", "1111"),
    run("dpo_faithful_repaired", 0, "rrrf"),
    run("dpo_faithful_resampled", 0, "rrfx"),
    run("dpo_paper", 0, "rsxx", "10"),
    run("dpo_faithful", 1, "rsxx", "1100"),  # given before the arms of training that come first
    run("untrained", 1, "xxxx"),
    run("sft", 1, "sxxx"),
    run("sft_repaired", 1, "rxxx"),
    run("dpo_faithful_repaired", 1, "rrfx"),
    run("dpo_faithful_resampled", 1, "rsxx"),
]


@pytest.fixture(scope="module")
def summary() -> FormalisationSummary:
    return summarise_text_runs("by-hand", RUNS)


def config_of(preset: str = "laptop", *overrides: str) -> NlPddlBenchConfig:
    return PIPELINE.settings(preset, overrides=overrides)


def stages_of(config: NlPddlBenchConfig) -> dict[str, Stage[Any]]:
    return {stage.name: stage for stage in PIPELINE.stages(config)}


def elsewhere(novelty: Novelty, level: str, kinds: str) -> tuple[AnsweredText, ...]:
    """Return texts that were not trained on, one a letter of `LETTERS`."""
    named = [(f"{level}-{i}", LETTERS[kind]) for i, kind in enumerate(kinds)]
    return tuple(replace(text(name, answer(name, kind), level=level), novelty=novelty) for name, kind in named)


# --- variants


def test_variants_are_the_settings_own_negatives_with_all_controls_then_the_others() -> None:
    variants = text_variants(config_of("laptop", "repair.has_resampling=false", "evaluation.tries_untrained=false"))
    assert [variant.name for variant in variants] == ["sampled", "paper", "faithful"]
    for variant in variants:
        assert variant.config.dpo is not None
        assert variant.config.dpo.pairs.negatives == variant.name
    first, *others = (stages_of(variant.config) for variant in variants)
    assert first.keys() > set(CONTROLS)
    for stages in others:
        assert not stages.keys() & set(CONTROLS)
        assert {"sft", "judge_sft", "repair_sft", "dpo", "repair_dpo", "read_held_out_pairs"} <= stages.keys()


def test_variants_share_every_stage_up_to_fine_tuning_and_no_other_policy() -> None:
    first, paper, faithful = (stages_of(variant.config) for variant in text_variants(config_of()))
    shared = {"sample_problems", "write_texts", "draw_mistakes", "write_examples", "initial_policy", "encode_examples",
              "sft", "try_sft", "judge_sft", "repair_sft"}  # fmt: skip
    for other in (paper, faithful):
        assert {name for name, stage in other.items() if name in first and stage.key == first[name].key} == shared
    assert paper["perturb_texts"].key == faithful["perturb_texts"].key
    assert len({stages["dpo"].key for stages in (first, paper, faithful)}) == 3


@pytest.mark.parametrize(
    ("preset", "overrides", "missing"),
    [("demo", (), "sft_longer: "), ("demo", ("dpo=null",), "dpo and sft_longer: ")],
    ids=["no-control", "no-dpo"],
)
def test_variants_without_preference_optimisation_or_its_control_raise(
    preset: str, overrides: tuple[str, ...], missing: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{missing}the ablation compares") as error:
        text_variants(config_of(preset, *overrides))
    assert error.value.cure is not None and "laptop" in error.value.cure


# --- figures


def test_main_arm_is_the_first_after_preference_optimisation_with_repair(summary: FormalisationSummary) -> None:
    assert summary.main == "dpo_faithful_repaired"
    assert main_arm(["sft", "sft_longer", "dpo_paper", "dpo_sampled", "dpo_sampled_repaired"]) == "dpo_paper"
    assert main_arm(["untrained", "sft", "sft_repaired", "sft_longer", "sft_longer_repaired"]) == "sft_repaired"
    assert main_arm(["sft_longer"]) == "sft_longer"


def test_summary_has_every_arm_by_every_figure_with_seeds_in_order(summary: FormalisationSummary) -> None:
    assert summary.arms == (
        "untrained", "sft", "sft_repaired", "dpo_faithful", "dpo_faithful_repaired", "dpo_faithful_resampled",
        "dpo_paper",
    )  # fmt: skip
    assert summary.seeds == (0, 1)
    assert len(summary.cells) == 7 * len(FIGURES)
    right = summary.cell("dpo_faithful", "equivalent")
    assert [(one.seed, one.n, one.n_forms, one.accuracy) for one in right.seeds] == [(0, 4, 4, 0.5), (1, 4, 4, 0.25)]


def test_summary_tells_of_texts_that_were_not_trained_on_apart() -> None:
    larger, foreign = (elsewhere(Novelty.NEW_LEVEL, "L2", "rrx"), elsewhere(Novelty.NEW_DOMAIN, "blocks_3", "fx"))
    runs = [
        replace(run("sft", 0, "rs"), others=larger + foreign),
        replace(run("sft", 1, "rs"), others=elsewhere(Novelty.NEW_LEVEL, "L2", "rxxx")),
        run("sft_repaired", 0, "rr"),
        run("sft_repaired", 1, "rr"),
    ]
    found = summarise_text_runs("by-hand", runs)
    reached = {
        (cell.arm, cell.scope): [(one.seed, one.n, one.accuracy) for one in cell.seeds] for cell in found.transfer
    }
    assert reached == {
        ("sft", "level never trained on"): [(0, 3, pytest.approx(2 / 3)), (1, 4, 0.25)],
        ("sft", "domain never trained on"): [(0, 2, 0.0)],
    }
    assert {cell.scope for cell in found.by_new_place} == {"lamps L2", "lamps blocks_3"}
    assert found.cell("sft", "equivalent").mean == 0.5  # of the others
    rows = transfer_table(found).rows
    assert rows[0] == ("level never trained on", "sft", "7", "45.8 ± 29.5 (25.0)")
    assert rows[1] == ("domain never trained on", "sft", "2", "0.0 (one seed)")
    assert len(rows) == 2  # the main arm, with repair, answered none of them
    assert "What was never trained on" in format_report(formalisation_summary_report(found))
    assert not transfer_table(summarise_text_runs("by-hand", RUNS)).rows


def test_summary_of_one_arm_by_hand(summary: FormalisationSummary) -> None:
    means = {figure: summary.cell("dpo_faithful_repaired", figure).mean for figure in FIGURES}
    assert means == {  # rrrf and rrfx
        "svr": 0.875, "psr_of_all": 0.875, "tsr": pytest.approx((3.75 + 2.75) / 8), "cr": 0.875,
        "equivalent": 0.625, "flattered": 0.25, "task_success": 0.625,
    }  # fmt: skip
    right = summary.cell("dpo_faithful_repaired", "equivalent")
    assert right.sd == pytest.approx(0.25 / 2**0.5)
    assert right.ci95 == (0.0, 1.0)  # 0.625 +- 0.125 * 12.7
    never = summary.cell("untrained", "equivalent")
    assert (never.sd, never.ci95) == (0.0, pytest.approx(wilson_interval(0, 8)))


def test_summary_similarity_has_students_interval_and_none_of_one_seed(summary: FormalisationSummary) -> None:
    assert summary.cell("untrained", "tsr").ci95 == (0.0, 0.0)
    single = summary.cell("dpo_paper", "tsr")
    assert (single.mean, single.sd, single.ci95) == (0.375, None, None)  # 1 and 0.5 of four
    assert summary.cell("dpo_paper", "svr").ci95 == pytest.approx(wilson_interval(2, 4))


def test_summary_pair_accuracy_takes_pairs_of_one_problem_together(summary: FormalisationSummary) -> None:
    assert [cell.arm for cell in summary.pairs] == ["dpo_faithful", "dpo_paper"]
    faithful, paper = summary.pairs
    assert [(one.seed, one.n, one.n_forms, one.accuracy) for one in faithful.seeds] == [(0, 4, 2, 1.0), (1, 4, 2, 0.5)]
    assert (faithful.mean, paper.mean, paper.sd) == (0.75, 0.5, None)
    assert paper.ci95 == pytest.approx(wilson_interval(0.5, 1))  # both pairs are of one problem


def test_summary_tests_pool_the_seeds_and_the_headlines_is_first(summary: FormalisationSummary) -> None:
    found = [(test.before, test.after, test.scope, test.test.n, test.test.only_before, test.test.only_after)
             for test in summary.tests]  # fmt: skip
    assert found == [
        ("dpo_faithful", "dpo_faithful_repaired", "psr_of_all", 8, 0, 4),
        ("sft", "sft_repaired", "psr_of_all", 8, 0, 2),
        ("dpo_faithful_resampled", "dpo_faithful_repaired", "equivalent", 8, 0, 2),
        ("sft", "dpo_faithful", "equivalent", 8, 0, 2),
        ("sft", "dpo_paper", "equivalent", 4, 0, 0),
        ("untrained", "sft", "equivalent", 8, 0, 1),
    ]
    first = summary.tests[0]
    assert first.test.p_value == pytest.approx(2 / 2**4)
    assert [(one.seed, one.test.only_after) for one in first.by_seed] == [(0, 2), (1, 2)]
    assert [one.seed for one in summary.tests[4].by_seed] == [0]


def test_compared_arms_has_every_kind_of_negatives_against_the_control() -> None:
    names = dict.fromkeys(["sft", "sft_longer", "dpo_paper", "dpo_paper_repaired", "dpo_sampled"])
    assert compared_arms(names, "dpo_paper_repaired") == [
        ("dpo_paper", "dpo_paper_repaired", "psr_of_all"),
        ("sft_longer", "dpo_paper", "equivalent"),
        ("sft_longer", "dpo_sampled", "equivalent"),
        ("sft", "dpo_paper", "equivalent"),
        ("sft", "dpo_sampled", "equivalent"),
    ]


def test_summary_tests_copies_of_a_form_count_together() -> None:
    def of(arm: str, seed: int, kind: str) -> TextArmRun:
        one, other = (text(name, answer(name, kind)) for name in ("p", "q"))
        same = type(one)("q", one.domain, one.level, one.form, other.answers)
        return TextArmRun(arm, seed, (one, same))

    runs = [of(arm, seed, kind) for seed in (0, 1) for arm, kind in (("untrained", "unread"), ("sft", "right"))]
    [test] = summarise_text_runs("copies", runs).tests
    assert (test.test.n, test.test.n_forms, test.test.only_after) == (4, 2, 4)
    assert test.test.p_value == pytest.approx(2 / 2**2)  # a form of each seed


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([], "each once a seed"),
        ([run("sft", 0, "r"), run("sft", 0, "s")], "each once a seed"),
        ([run("untrained", 0, "r"), run("sft", 0, "rr")], "differ in 1 problems under seed 0"),
    ],
    ids=["none", "twice", "other-texts"],
)
def test_summary_of_unusable_runs_raises(runs: list[TextArmRun], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        summarise_text_runs("x", runs)


# --- from the artifacts of runs


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Run, Run]:
    """Return a run with the controls, and one with other negatives, whose answers after fine-tuning are not read."""
    first, second = Run(tmp_path / "first"), Run(tmp_path / "second")
    for made in (first, second):
        made.add_data()
        made.add_training("sft")
        made.add_training("dpo")
    first.add_arm("sft", "sft", "right", "unread", "unread", "unread")
    first.add_arm("dpo", "dpo", "right", "unread", "unread", "right")
    first.add_loop("resample_dpo", "dpo", "dpo", "none", RESAMPLED)
    second.add_arm("sft", "sft", "empty", "empty", "empty", "empty")
    second.add_arm("dpo", "dpo", "right", "right", "right", "unread")
    second.add_pairs()
    return first, second


def test_ablation_results_name_policies_by_their_negatives_and_count_shared_arms_once(runs: tuple[Run, Run]) -> None:
    first, second = (made.so_far for made in runs)
    found = text_ablation_results(first.config, [("faithful", first), ("paper", second)], "plansmith ablate")
    shares = {arm: found.cell(arm, "equivalent").mean for arm in found.arms}
    assert shares == {"sft": 0.25, "dpo_faithful": 0.5, "dpo_faithful_resampled": 0.5, "dpo_paper": 0.75}
    assert [(cell.arm, cell.mean) for cell in found.pairs] == [("dpo_paper", 0.5)]
    assert [figures.n for figures in found.pairs[0].seeds] == [len(READINGS)]
    assert (found.name, found.seeds, found.command) == ("by-hand", (3,), "plansmith ablate")
    assert found.config["repair"]["turns"] == 2 and "seed" not in found.config


def test_seeds_results_keep_the_names_of_a_single_run(runs: tuple[Run, Run]) -> None:
    found = text_seeds_results("demo-seeds", [runs[1].so_far], "plansmith run")
    assert (found.name, found.arms, found.main) == ("demo-seeds", ("sft", "dpo"), "dpo")
    assert [cell.arm for cell in found.pairs] == ["dpo"]


def test_ablation_tests_the_headline_against_direct_plans_which_have_one_figure(runs: tuple[Run, Run]) -> None:
    first, second = runs
    first.add_direct(Verdict.GOAL_NOT_REACHED, Verdict.VALID, *[Verdict.GOAL_NOT_REACHED] * 2)
    found = text_ablation_results(
        first.so_far.config, [("faithful", first.so_far), ("paper", second.so_far)], "plansmith ablate"
    )
    assert found.main == "dpo_faithful" and "direct" in found.arms
    assert [(cell.scope, cell.mean, cell.seeds[0].n) for cell in found.cells if cell.arm == "direct"] == [
        ("task_success", 0.25, 4),
    ]  # fmt: skip
    told = {(test.before, test.after): test for test in found.tests}
    test = told["direct", "dpo_faithful"]
    assert test.scope == "task_success"
    assert (test.test.only_before, test.test.only_after) == (1, 2)  # t2 against t1 and t4
    assert ("direct", "dpo_paper") not in told
    rows = {name: dict(zip(arm_table(found).header[1:], cells, strict=True)) for name, *cells in arm_table(found).rows}
    assert (rows["direct"]["equivalent"], rows["direct"]["task success"]) == ("-", "25.0 (one seed)")
    printed = render_markdown(formalisation_summary_report(found))
    assert "Direct to dpo faithful: the share whose plan solves the task rises from 25% " in printed


# --- what is said


def test_arm_table_has_mean_deviation_and_worst_seed_of_flattered_the_greatest(summary: FormalisationSummary) -> None:
    table = arm_table(summary)
    rows = {name: dict(zip(table.header[1:], cells, strict=True)) for name, *cells in table.rows}
    assert table.header[1:] == ("SVR", "PSR of all", "TSR", "CR", "equivalent", "flattered", "task success")
    assert rows["dpo faithful"]["equivalent"] == "37.5 ± 17.7 (25.0)"
    assert rows["sft repaired"]["flattered"] == "12.5 ± 17.7 (25.0)"
    assert rows["dpo paper"]["equivalent"] == "25.0 (one seed)"


def test_headline_sets_the_right_meaning_beside_solvability_and_names_worst_and_seeds(
    summary: FormalisationSummary,
) -> None:
    report = formalisation_summary_report(summary)
    assert report.result == (
        "62.5% of the test texts end as a problem of the right meaning (dpo faithful repaired; mean of 2 seeds), 87.5% "
        "as one with a plan. Solvability flatters: 25% have a plan and another meaning, or an undecided one."
    )
    assert report.evidence.startswith(
        "The right meaning has the 95% interval 0% to 100%; the worst seed has 50% (seed 1). Dpo faithful to dpo "
        "faithful repaired: the share with a plan rises from 37.5% "
    )
    assert report.evidence.endswith("Seeds 0, 1: settings are chosen on seeds below 100, such as 0, 1; this supports "
                                    "no claim.")  # fmt: skip


def test_describe_test_names_what_is_compared_chance_and_seeds(summary: FormalisationSummary) -> None:
    said = describe_test(summary.tests[3])
    assert said.startswith("Sft to dpo faithful: the share of the right meaning rises from 12.5% ")
    assert "of 8 pairs 2 right only after, 0 only before; exact McNemar test p = 0.5 (two-sided): not signi" in said
    assert "By seed: seed 0 p = 1; seed 1 p = 1." in said
    assert "one seed" in describe_test(summary.tests[4])


def test_report_is_shown_everywhere_and_read_back(summary: FormalisationSummary, tmp_path: Path) -> None:
    REPORTING.write(summary, tmp_path)
    assert REPORTING.read(tmp_path) == summary
    report = formalisation_summary_report(summary)
    printed = format_report(report)
    assert "37.5 ± 17.7 (25.0)" in printed and "Accuracy on held-out pairs" in printed
    for written in (render_markdown(report), render_page(report)):
        assert "Untrained to sft: the share of the right meaning rises" in written
        assert "50% (seed 1)" in written
        assert "fixed before any run" in written


def test_report_of_one_arm_of_one_seed_has_no_tests() -> None:
    report = formalisation_summary_report(summarise_text_runs("one", [run("sft", 100, "rx")]))
    assert report.result.startswith("50% of the test texts")
    assert "(sft; mean of 1 seed)" in report.result
    assert "Which part helps?" not in render_markdown(report)


def test_draw_figure_has_a_row_for_each_arm_and_a_dot_for_each_seed(summary: FormalisationSummary) -> None:
    plot = draw_figure(summary, "equivalent", "means what the text says")
    ElementTree.fromstring(plot.svg)
    assert (plot.slug, plot.title) == ("arms-equivalent", "Answer means what the text says")
    assert all(name in plot.svg for name in ("untrained", "dpo faithful repaired", "dpo paper"))
