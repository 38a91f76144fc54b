"""The report of `generalization_gap` on a run written by hand, every figure worked out by hand."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hand_made import write_artifact

from pipelines.generalization_gap import PIPELINE
from pipelines.stages.plan_trials import WALK
from plansmith.ablation.gap_seeds import gap_seeds_results
from plansmith.ablation.seeds_report import seeds_report
from plansmith.data.artifacts import Artifact, StageKind
from plansmith.data.rows import (
    FailureRow,
    InventedDomainRow,
    JudgedStepRow,
    LeakRow,
    LengthRow,
    MetricRow,
    OptimisationStepRow,
    PlanRow,
    ProblemRow,
    RolloutRow,
    Split,
    VerdictRow,
)
from plansmith.data.update_times import BESIDE
from plansmith.judging.failure_kinds import FailureKind
from plansmith.judging.taxonomy import ErrorClass
from plansmith.pddl.printer import print_domain
from plansmith.problems.invention.folders import INVENTED
from plansmith.problems.library import load_domain
from plansmith.report.finished_stages import RunSoFar
from plansmith.report.gap_effort import costs
from plansmith.report.gap_labels import LABELLED, LabelShare
from plansmith.report.gap_report import effort_lines, gap_report
from plansmith.report.gap_results import HELD_OUT, SEEN, UNSEEN, GapResults, compared_arms, gap_results
from plansmith.report.gap_tables import (
    arm_table,
    break_even_text,
    effort_table,
    failure_table,
    invented_table,
    label_table,
    leak_table,
    length_table,
    level_table,
    loop_table,
    planning_table,
    price_table,
    training_table,
    unseen_table,
)
from plansmith.report.render import format_report, write_report
from plansmith.report.sections import Sentences

CONFIG = PIPELINE.settings("smoke")
PROBLEMS = (
    ("a", "ferry", Split.PHASE1),
    ("b", "miconic", Split.PHASE1),
    ("s", "miconic", Split.TEST),
    ("u", "briefcase", Split.TEST),
    ("w", "briefcase", Split.TEST),
)
FAILED = list(ErrorClass)[-1]
PLANS = {"a": (3, 0.2), "b": (1, 0.4), "s": (2, 0.1), "u": (1, 0.1), "w": (4, 0.1)}
"""Steps of the planner's plan, and its seconds."""


def key_of(stage: str) -> str:
    return hashlib.sha256(stage.encode()).hexdigest()


def problem(name: str, domain: str, split: str) -> ProblemRow:
    text = print_domain(load_domain(domain).domain)
    goal = "(define (problem p) (:domain d) (:init) (:goal (and)))"
    return ProblemRow(name, name, domain, f"{domain} smallest", split, 2, text, goal, "sampler")


def metrics(stage: str, **values: float) -> list[MetricRow]:
    return [MetricRow(stage, 0, "", "", f"training/{name}", value) for name, value in values.items()]


TESTED = tuple(row[0] for row in PROBLEMS if row[2] == Split.TEST)


def arm(
    root: Path, name: str, policy: str | None, solved: set[str], tested: tuple[str, ...] = TESTED
) -> list[Artifact]:
    """Write the attempts of an arm, of which some are valid; a random walk has no policy."""
    rollouts = [RolloutRow(f"{p}-0", p, 0, "v", "", "", (), (1, 2), (0.0, 0.0), "stop", 0) for p in tested]
    verdicts = [
        VerdictRow(f"{p}-0", p, 0, "v", "valid" if p in solved else "goal_not_reached", "", None
                   if p in solved else FAILED, None, (), ("(x)",), "", plan_cost=1.0)
        for p in tested
    ]  # fmt: skip
    failures = [FailureRow(p, FailureKind.IN_CIRCLES) for p in tested if p not in solved]
    given = {"problems": key_of("sample_problems"), "plans": key_of("synthesize_plans")}
    given |= {"policy": key_of(policy)} if policy else {}
    read = {"rollouts": key_of(f"try_{name}"), "problems": key_of("sample_problems")}
    labels = {"arm": name, "prompting": "plan_compact"}
    return [
        write_artifact(root, f"try_{name}", {"rows": (RolloutRow, rollouts)}, inputs=given, kind=StageKind.GENERATES),
        write_artifact(root, f"judge_{name}", {"rows": (VerdictRow, verdicts), "steps": (JudgedStepRow, [])},
                       inputs=read, kind=StageKind.JUDGES, labels=labels),
        write_artifact(root, f"failures_{name}", {"rows": (FailureRow, failures)}, kind=StageKind.SORTS_FAILURES,
                       labels=labels),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunSoFar[object]:
    root = tmp_path_factory.mktemp("artifacts")
    rows = [problem(*row) for row in PROBLEMS]
    leaks = [LeakRow("miconic smallest", "miconic", 50, 10, 20, 15)]
    plans = [
        PlanRow(name, "fd", "solved", ("(x)",) * steps, 1.0, seconds, is_optimal=False)
        for name, (steps, seconds) in PLANS.items()
    ]
    step = [OptimisationStepRow(1, 0.5, 0.1, 1.0)]
    tuned = metrics("compact_1", n_sequences=2, n_dropped=0, n_tokens=100, tokens_per_s=50)
    updates = [
        MetricRow("grpo", 1, "", "", "group/asked", 2.0),
        MetricRow("grpo", 1, "", "", "rollout/reward", 0.25),
        MetricRow("grpo", 1, "", "", "rollout/n_tokens", 90.0),
    ]
    times = [
        MetricRow("grpo", 1, "", "", f"time/{work}_s", seconds)
        for work, seconds in (("generating", 6.0), ("judging", 1.0), ("training", 3.0))
    ]
    learnt = metrics("grpo", n_sequences=8, n_dropped=0, n_tokens=40)
    optimises = {"kind": StageKind.OPTIMISES}
    made = [
        write_artifact(root, "sample_problems", {"rows": (ProblemRow, rows), "leaks": (LeakRow, leaks)},
                       kind=StageKind.DRAWS, cpu_time_s=1.2),
        write_artifact(root, "synthesize_plans", {"rows": (PlanRow, plans)}, kind=StageKind.PLANS, cpu_time_s=0.5,
                       inputs={"problems": key_of("sample_problems")}),
        write_artifact(root, "compact_1", {"curve": (OptimisationStepRow, step), "metrics": (MetricRow, tuned)},
                       inputs={"policy": key_of("start")}, labels={"objective": "supervised"}, **optimises),
        write_artifact(root, "count_tokens", {"rows": (LengthRow, [LengthRow("ferry", 1, 1, 3000)])},
                       kind=StageKind.COUNTS_TOKENS),
        write_artifact(root, "grpo", {"curve": (OptimisationStepRow, step), "metrics": (MetricRow, learnt),
                                      "updates": (MetricRow, updates), "times": (MetricRow, times)},
                       inputs={"policy": key_of("compact_1")}, settings={"sampling": {"n": 4}},
                       labels={"objective": "group_relative", "loop": "grpo"}, **optimises),
        *arm(root, "compact_1", "compact_1", {"u"}),
        *arm(root, "grpo", "grpo", {"s", "u"}),
    ]  # fmt: skip
    by_stage = {artifact.manifest.provenance.stage: artifact for artifact in made}
    return RunSoFar("generalization_gap", CONFIG, "smoke", by_stage)


@pytest.fixture(scope="module")
def results(run: RunSoFar[object]) -> GapResults:
    found = gap_results(run)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_note_says_what_v2_learnt_from_where_that_is_not_every_plan(results: GapResults) -> None:
    def note(share: float) -> str:
        shared = replace(results, config={**results.config, "plan_share": share})
        return next(section.note for section in gap_report(shared).sections if "Every policy" in section.title)

    said = "v2 (compact) learnt from 30% of the plans"
    assert said in note(0.3) and said not in note(1.0) and "v2" not in note(1.0)


def test_arms_are_counted_where_they_were_trained_and_where_not(results: GapResults) -> None:
    first, last = results.arms.values()
    assert (first.seen.n_valid, first.seen.n, last.seen.n_valid) == (0, 1, 1)
    assert first.unseen is not None and (first.unseen.n_valid, first.unseen.n) == (1, 2)
    assert first.held_out is None and set(first.by_domain) == {"miconic", "briefcase"}
    headline = results.paired_tests[0]
    assert (headline.before, headline.after, headline.level) == ("compact_1", "grpo", "domains trained on")


def test_tests_of_policies_that_solve_nothing_are_counted_in_one_sentence(results: GapResults) -> None:
    def told(found: GapResults) -> list[str]:
        [tests] = [
            block.lines
            for section in gap_report(found).sections
            for block in section.blocks
            if isinstance(block, Sentences) and block.title == "Paired tests"
        ]
        return [line for line in tests if "never trained on" in line]

    nothing = {
        name: replace(arm, unseen=arm.unseen and replace(arm.unseen, n_valid=0, accuracy=0.0))
        for name, arm in results.arms.items()
    }
    [line] = told(results)
    assert line.startswith("Domains never trained on, compact 1 (v2) to grpo (v3): the share of valid plans stayed at")
    assert told(replace(results, arms=nothing)) == [
        "Domains never trained on, pairs of which neither solves anything, so that nothing is compared: 1."
    ]


def test_attempts_in_unseen_domains_are_told_by_level_length_and_kind_of_failure(results: GapResults) -> None:
    table = level_table(results)
    assert table.header == ("level", "n", "compact 1 (v2)", "grpo (v3)")
    assert table.rows == (("briefcase smallest", "2", "50% (9.5% to 90.5%)", "50% (9.5% to 90.5%)"),)
    assert unseen_table(results).rows[0] == ("compact 1 (v2)", "1/1", "0/1")
    assert results.unseen["grpo"].failures[FailureKind.IN_CIRCLES] == 1
    header = failure_table(results).header
    assert failure_table(results).rows[1][header.index("in circles")] == "1"


def test_effort_adds_up_along_the_policies_that_another_goes_on_from(results: GapResults) -> None:
    first, last = results.effort["compact_1"], results.effort["grpo"]
    assert (first.epochs, first.rollouts, first.seconds) == (1.0, 0, 2.0)  # 2 sequences of 2 problems, 2 s
    assert (last.epochs, last.rollouts, last.seconds) == (2.0, 8, 12.0)  # 2 problems asked, 4 rollouts each, 10 s more
    assert effort_table(results).rows[1][1:4] == ("2.00", "8", "12")


def test_costs_of_a_problem_and_the_break_even_are_as_worked_out_by_hand(results: GapResults) -> None:
    cost = results.cost
    assert cost is not None and cost.n_problems == 2
    assert cost.planning_s == pytest.approx(0.3)  # 0.2 s and 0.4 s
    assert cost.imitation_s == 1.0  # 2 s for two passes
    assert cost.reinforcement_s == 5.0  # 10 s for two visits
    assert cost.break_even_s == 3.0  # less two epochs of imitation
    assert (cost.generated_per_s, cost.trained_per_s) == (15.0, 50.0)  # 90 tokens in 6 s
    assert "where planning takes 3.00 s a problem; here it takes 0.300 s" in break_even_text(cost)
    prices = {row[0]: row[-1] for row in price_table(cost).rows}
    assert prices["one pass over its plan"] == f"{2 * 1.0 / 3600:.4g}"  # two problems, 1 an hour
    assert prices["one visit: judging"] == f"{2 * 0.5 * 0.05 / 3600:.4g}"
    assert planning_table(cost).rows == (
        ("ferry", "3", "1", "0.20", "0.2000", f"{0.05 * 0.2 / 3600:.4g}"),
        ("miconic", "1", "1", "0.40", "0.4000", f"{0.05 * 0.4 / 3600:.4g}"),
    )


def test_invented_domains_and_random_walks_are_told_beside_the_policies_that_read(tmp_path: Path) -> None:
    held_out = replace(problem("h", "ferry", Split.TEST), domain="invented-0-2", level=INVENTED, source=INVENTED)
    rows = [problem("s", "miconic", Split.TEST), problem("u", "briefcase", Split.TEST), held_out]
    plans = [PlanRow(row.problem_id, "fd", "solved", ("(x)",), 1.0, 0.1, is_optimal=False) for row in rows]
    sizes = ((3, 5, 2, 1), (3, 6, 2, 1), (9, 23, 6, 4))
    invented = [
        InventedDomainRow(f"invented-0-{n}", f"invented-0-{n}", Split.TEST if n == 2 else Split.PHASE1, f"form {n}",
                          *size, nearest="briefcase", n_shared=2 if n == 1 else 0)
        for n, size in enumerate(sizes)
    ]  # fmt: skip
    tuned = metrics("mixed", n_sequences=2, n_dropped=0, n_tokens=100, tokens_per_s=50)
    made = [
        write_artifact(tmp_path, "sample_problems", {"rows": (ProblemRow, rows), "leaks": (LeakRow, [])},
                       kind=StageKind.DRAWS),
        write_artifact(tmp_path, "synthesize_plans", {"rows": (PlanRow, plans)}, kind=StageKind.PLANS,
                       inputs={"problems": key_of("sample_problems")}),
        write_artifact(tmp_path, "invent_domains", {"rows": (InventedDomainRow, invented)}, kind=StageKind.INVENTS),
        write_artifact(tmp_path, "mixed", {"curve": (OptimisationStepRow, []), "metrics": (MetricRow, tuned)},
                       kind=StageKind.OPTIMISES, inputs={"policy": key_of("start")},
                       labels={"objective": "supervised"}),
        *arm(tmp_path, WALK, None, {"u"}, ("s", "u", "h")),
        *arm(tmp_path, "mixed", "mixed", {"u", "h"}, ("s", "u", "h")),
    ]  # fmt: skip
    artifacts = {artifact.manifest.provenance.stage: artifact for artifact in made}
    found = gap_results(RunSoFar("generalization_gap", PIPELINE.settings("unseen-smoke"), "unseen", artifacts))
    assert found is not None and found.domains is not None
    assert (found.domains.n, found.domains.n_held_out, found.domains.n_near) == (3, 1, 1)
    table = invented_table(found)
    assert table.rows == (
        ("actions", "3", "2"), ("actions", "9", "1"), ("predicates", "5", "1"), ("predicates", "6", "1"),
        ("predicates", "23", "1"), ("parameters", "2", "2"), ("parameters", "6", "1"), ("types", "1", "2"),
        ("types", "4", "1"),
    )  # fmt: skip
    assert table.note and table.note.startswith("3 domains, 1 of them held out. 1 share an action schema")
    assert [row[:3] + row[4:6] + row[7:9] for row in arm_table(found).rows] == [
        ("walk", "1", "0%", "1", "100%", "1", "0%"), ("mixed", "1", "0%", "1", "100%", "1", "100%"),
    ]  # fmt: skip
    assert found.effort.keys() == {"mixed"}, "nobody trained the walk"
    assert set(found.arms["mixed"].by_domain) == {"miconic", "briefcase"}
    tests = [(one.before, one.after, one.level) for one in found.paired_tests]
    assert tests == [(WALK, "mixed", scope) for scope in (UNSEEN, HELD_OUT, SEEN)]
    assert "Invented domains" in format_report(gap_report(found))
    PIPELINE.reporting.write(found, tmp_path / "run")
    assert PIPELINE.reporting.read(tmp_path / "run") == found


def with_loop(run: RunSoFar[object], root: Path, *, wall_time_s: float = 20.0) -> RunSoFar[object]:
    """Return the run with another `grpo`, of an update that took turns and one with rollouts written beside it."""
    alone = {"generating": 6.0, "judging": 1.0, "handing over": 0.5, "training": 3.0, "saving": 0.5}
    beside = {f"generating{BESIDE}": 4.0, f"judging{BESIDE}": 1.0, "waiting for rollouts": 2.0,
              "training": 3.0, "saving": 1.0}  # fmt: skip
    times = [
        MetricRow("grpo", update, "", "", f"time/{work}_s", seconds)
        for update, taken in enumerate((alone, beside), 1)
        for work, seconds in taken.items()
    ]
    updates = [
        MetricRow("grpo", update, "", "", name, value)
        for update in (1, 2)
        for name, value in (("group/asked", 2.0), ("rollout/n_tokens", 75.0))
    ]
    provenance = run.artifacts["grpo"].manifest.provenance
    tables = {"curve": (OptimisationStepRow, []), "metrics": (MetricRow, metrics("grpo", n_sequences=8)),
              "updates": (MetricRow, updates), "times": (MetricRow, times)}  # fmt: skip
    made = write_artifact(root, "grpo", tables, inputs=provenance.inputs, settings=provenance.settings,
                          labels=provenance.labels, kind=StageKind.OPTIMISES, wall_time_s=wall_time_s)  # fmt: skip
    return replace(run, artifacts={**run.artifacts, "grpo": made})


def test_what_is_done_beside_training_is_work_and_what_passes_is_what_was_waited_for(
    run: RunSoFar[object], tmp_path: Path
) -> None:
    found = costs(with_loop(run, tmp_path))  # type: ignore[arg-type]
    assert found is not None
    assert (found.generating_s, found.judging_s, found.updating_s) == (2.5, 0.5, 1.5)  # 10, 2 and 6 s for 4 visits
    assert found.generated_per_s == 15.0  # 150 tokens in 10 s
    assert found.reinforcement_s == 5.0  # 20 s of the stage
    assert found.break_even_s == 3.0


def test_seconds_of_a_loop_that_are_neither_generating_judging_nor_training_are_told(
    run: RunSoFar[object], tmp_path: Path
) -> None:
    found = gap_results(with_loop(run, tmp_path))  # type: ignore[arg-type]
    assert found is not None and found.loops["grpo"].other_s == 5.0  # 20 s less 6, 2, 1, and twice 3
    table = loop_table(found)
    assert table.rows == (("grpo (v3)", "20", "30%", "10%", "5%", "30%", "25%", "2.5%", "7.5%"),)
    assert "Seconds of reinforcement learning" in format_report(gap_report(found))


@pytest.mark.parametrize(("wall_time_s", "seconds"), [(20.0, 22.0), (9.0, 19.0)], ids=["one session", "resumed"])
def test_effort_of_a_loop_is_in_wall_time_as_that_of_a_tuning(
    run: RunSoFar[object], tmp_path: Path, wall_time_s: float, seconds: float
) -> None:
    found = gap_results(with_loop(run, tmp_path, wall_time_s=wall_time_s))  # type: ignore[arg-type]
    assert found is not None
    assert found.effort["grpo"].seconds == seconds  # after 2 s of tuning; the updates alone took 17


def test_break_even_counts_the_copies_that_an_epoch_has_of_a_plan(run: RunSoFar[object]) -> None:
    config = PIPELINE.settings("smoke", overrides=["copies=7"])
    found = costs(replace(run, config=config))  # type: ignore[arg-type]
    assert found is not None and found.n_passes == 14  # seven copies in two epochs
    assert found.break_even_s == 5.0 - 14 * 1.0
    assert "less than 14 passes over a plan" in break_even_text(found)


def test_break_even_of_policies_that_read_counts_the_rounds_that_their_tokens_made(run: RunSoFar[object]) -> None:
    config = PIPELINE.settings("unseen-smoke", overrides=["reading.sft.epochs=3"])
    found = costs(replace(run, config=config))  # type: ignore[arg-type]
    assert found is not None and found.n_passes == 3  # the start of the loop read 2 sequences of 2 problems thrice
    assert found.imitation_s == pytest.approx(1 / 3)  # 2 s for six


def test_price_of_drawing_is_that_of_all_that_was_drawn(results: GapResults) -> None:
    assert results.cost is not None
    [drawing] = [row for row in price_table(results.cost).rows if row[0] == "drawing it"]
    assert drawing[-1] == f"{1.2 * 0.05 / 3600:.4g}"  # the 1.2 s of the stage


def test_problems_of_a_dataset_are_as_many_drawn_as_were_taken(run: RunSoFar[object]) -> None:
    problems = CONFIG.problems.model_copy(update={"dataset": "somewhere"})
    found = costs(replace(run, config=CONFIG.model_copy(update={"problems": problems})))  # type: ignore[arg-type]
    assert found is not None and found.n_drawn == len(PROBLEMS)


def test_planning_of_invented_domains_is_one_row_a_plan_length(tmp_path: Path) -> None:
    drawn = [replace(problem(f"p{n}", "ferry", Split.PHASE1), domain=f"invented-0-{n}", source=INVENTED) for n in "123"]
    plans = [PlanRow(row.problem_id, "fd", "solved", ("(x)",) * 2, 1.0, 0.5, is_optimal=False) for row in drawn]
    rows = [*drawn, problem("own", "ferry", Split.PHASE1)]
    plans.append(PlanRow("own", "fd", "solved", ("(x)",), 1.0, 0.1, is_optimal=False))
    made = {
        "sample_problems": write_artifact(
            tmp_path, "sample_problems", {"rows": (ProblemRow, rows), "leaks": (LeakRow, [])}, kind=StageKind.DRAWS
        ),
        "synthesize_plans": write_artifact(
            tmp_path, "synthesize_plans", {"rows": (PlanRow, plans)}, kind=StageKind.PLANS,
            inputs={"problems": key_of("sample_problems")},
        ),
    }  # fmt: skip
    cost = costs(RunSoFar("generalization_gap", CONFIG, "smoke", made))
    assert cost is not None
    assert planning_table(cost).rows == (
        ("ferry", "1", "1", "0.10", "0.1000", f"{0.05 * 0.1 / 3600:.4g}"),
        (INVENTED, "2", "3", "1.50", "0.5000", f"{0.05 * 1.5 / 3600:.4g}"),
    )


def test_cpu_seconds_are_of_one_problem_and_priced_where_they_were_measured(results: GapResults) -> None:
    cost = results.cost
    assert cost is not None
    n_drawn = sum(level.n_draws for level in CONFIG.problems.domains)
    assert cost.cpu_s == {"drawing it": 1.2 / n_drawn, "planning it": 0.1}  # 5 plans; nobody measured the judging
    table = price_table(cost)
    rows = {row[0]: dict(zip(table.header, row, strict=True)) for row in table.rows}
    assert (rows["planning it"]["seconds"], rows["planning it"]["CPU seconds"]) == ("0.3000", "0.1000")
    assert rows["planning it"]["price of all"] == f"{2 * 0.1 * 0.05 / 3600:.4g}"
    assert rows["one visit: judging"]["CPU seconds"] == "-" and "judging a test attempt" not in rows


def test_leaks_and_lengths_are_told_with_the_papers_beside_them(results: GapResults) -> None:
    assert leak_table(results).rows == (("miconic smallest", "50", "10", "20", "75%"),)
    assert length_table(results).rows == (("ferry", "1", "1 (0)", "3000 (2085)"),)


def test_training_settings_are_told_with_table_2_beside_them(results: GapResults) -> None:
    table = training_table(results)
    tuned, learnt = (dict(zip(table.header, row, strict=True)) for row in table.rows)
    assert (tuned["learning rate"], tuned["schedule"], tuned["epochs"]) == ("0.003 (1e-05)", "cosine (cosine)", "2 (3)")
    assert (tuned["sequences a batch"], tuned["tokens a batch"], tuned["top-k"]) == ("- (16)", "4096", "-")
    assert (learnt["problems an update"], learnt["rollouts a problem"]) == ("4 (8)", "4 (3)")
    assert (learnt["temperature"], learnt["top-p"], learnt["top-k"]) == ("1.0 (0.5)", "1.0 (0.95)", "0 (1)")
    assert "Longest sequence: 2048 (4096) tokens" in (table.note or "")
    reading = replace(results, config=PIPELINE.settings("unseen-smoke").model_dump(mode="json"))
    assert not any("(" in cell for row in training_table(reading).rows for cell in row)


def test_updates_are_told_by_loop_with_their_seconds(results: GapResults) -> None:
    assert results.rl["grpo"]["rollout/reward"] == (0.25,) and results.rl["grpo"]["time/generating_s"] == (6.0,)


def test_the_report_is_written_with_every_table_and_plot_and_its_results_are_read_back(
    results: GapResults, tmp_path: Path
) -> None:
    assert "valid plans" in format_report(gap_report(results)).lower()
    page = write_report(gap_report(results), tmp_path / "report", "results", "{}")
    text = page.read_text(encoding="utf-8")
    for title in ("Valid plans by effort", "Leaks of a split by text", "A training problem", "Lengths"):
        assert title in text
    PIPELINE.reporting.write(results, tmp_path / "run")
    assert PIPELINE.reporting.read(tmp_path / "run") == results
    written = json.loads((tmp_path / "run" / "report" / "results.json").read_text())
    assert {"arms", "unseen", "rl", "cost", "leak", "domains", "effort"} <= set(written)


def test_every_loop_and_every_control_is_a_line_of_its_own() -> None:
    arms = ["numbered_1", "numbered_2", "compact_1", "grpo_binary", "grpo_2026", "labels10", "labels10_grpo",
            "more_sft", "own_plans", "grpo_2026_1_of_2", "grpo_1_of_2", "grpo"]  # fmt: skip
    lines = effort_lines(arms, loops=("grpo_binary", "grpo_2026", "labels10_grpo", "grpo"))
    assert lines == {
        "numbered": ["numbered_1", "numbered_2"],
        "compact": ["compact_1"],
        "grpo_binary": ["grpo_binary"],
        "grpo_2026": ["grpo_2026", "grpo_2026_1_of_2"],
        "labels10": ["labels10"],
        "labels10_grpo": ["labels10_grpo"],
        "more_sft": ["more_sft"],
        "own_plans": ["own_plans"],
        "grpo": ["grpo_1_of_2", "grpo"],
    }


@pytest.mark.parametrize("start", ["compact_1", "compact_2"])
def test_every_loop_is_compared_with_its_start_and_with_both_controls(start: str) -> None:
    arms = ["compact_1", "compact_2", "compact_3", "more_sft", "own_plans", "grpo_binary", "grpo_since2026",
            "grpo_1_of_2", "grpo"]  # fmt: skip
    pairs = compared_arms(arms, start)
    assert pairs[0] == (start, "grpo")
    for loop in ("grpo", "grpo_binary", "grpo_since2026"):
        assert {before for before, after in pairs if after == loop} >= {start, "more_sft", "own_plans"}
    assert ("grpo_since2026", "grpo") in pairs and len(set(pairs)) == len(pairs)
    assert not [after for _, after in pairs if "_of_" in after]


def test_seeds_are_summarised_in_both_scopes(run: RunSoFar[object]) -> None:
    found = gap_seeds_results("two", [run, run], "plansmith ablate generalization_gap")  # type: ignore[list-item]
    assert found.levels == ("domains trained on", "domains never trained on")
    assert found.arms == ("compact_1", "grpo")
    assert found.tests[0].before == "compact_1" and found.tests[0].scope == "domains trained on"
    assert "compact 1" in format_report(seeds_report(found))


@pytest.fixture(scope="module")
def with_labels(run: RunSoFar[object], tmp_path_factory: pytest.TempPathFactory) -> GapResults:
    """Return the results of the run with a label budget of a half, reinforced, and of all plans, tuned only."""
    root = tmp_path_factory.mktemp("labels")
    rows = {name: problem(name, domain, split) for name, domain, split in PROBLEMS}
    made: list[Artifact] = []
    for share, name, labelled in ((0.5, "labels50", "a"), (1.0, "labels100", "ab")):
        tables = {"rows": (ProblemRow, [rows[other] for other in "ab" if other not in labelled]),
                  LABELLED: (ProblemRow, [rows[other] for other in labelled])}  # fmt: skip
        made.append(write_artifact(root, f"share_{name}", tables, settings={"share": share},
                                   kind=StageKind.SHARES_LABELS))  # fmt: skip
        tuned = metrics(name, n_sequences=2, n_dropped=0, n_tokens=100, tokens_per_s=50)
        made.append(
            write_artifact(root, name, {"curve": (OptimisationStepRow, []), "metrics": (MetricRow, tuned)},
                           inputs={"policy": key_of("start"), "labels": key_of(f"share_{name}")},
                           kind=StageKind.OPTIMISES, labels={"objective": "supervised"})
        )  # fmt: skip
    times = [MetricRow("labels50_grpo", 1, "", "", f"time/{work}_s", 3.5) for work in ("generating", "training")]
    asked = [MetricRow("labels50_grpo", 1, "", "", "group/asked", 1.0)]
    learnt = metrics("labels50_grpo", n_sequences=4, n_dropped=0, n_tokens=40)
    made.append(
        write_artifact(root, "labels50_grpo", {"curve": (OptimisationStepRow, []), "metrics": (MetricRow, learnt),
                                               "updates": (MetricRow, asked), "times": (MetricRow, times)},
                       inputs={"policy": key_of("labels50"), "problems": key_of("share_labels50")},
                       settings={"sampling": {"n": 4}}, kind=StageKind.OPTIMISES,
                       labels={"objective": "group_relative", "loop": "labels50_grpo"})
    )  # fmt: skip
    for name, solved in (("labels50", set[str]()), ("labels100", {"s"}), ("labels50_grpo", {"s"})):
        made += arm(root, name, name, solved)
    of_labels = {artifact.manifest.provenance.stage: artifact for artifact in made}
    found = gap_results(RunSoFar("generalization_gap", CONFIG, "labels", {**run.artifacts, **of_labels}))
    assert found is not None
    return found


def test_a_label_budget_is_told_by_share_with_what_its_plans_and_its_reinforcement_cost(
    results: GapResults, with_labels: GapResults, tmp_path: Path
) -> None:
    assert results.labels == ()
    half, whole = with_labels.labels
    assert half == LabelShare(0.5, n_plans=1, n_rest=1, tuned="labels50", reinforced="labels50_grpo")
    assert whole == LabelShare(1.0, n_plans=2, n_rest=0, tuned="labels100")
    nothing, one = "0% to 79.3%", "20.7% to 100%"  # Wilson's of 0 and of 1 of 1
    assert label_table(with_labels).rows == (
        ("50%", "1", "0.3", "0%", nothing, "1", "100%", one, "7"),  # 0.3 s a plan; 3.5 s twice
        ("100%", "2", "0.6", "100%", one, "-", "-", "-", "-"),
    )
    assert "What a label is worth" in format_report(gap_report(with_labels))
    PIPELINE.reporting.write(with_labels, tmp_path)
    assert PIPELINE.reporting.read(tmp_path) == with_labels


def test_a_label_budget_is_tested_before_and_after_and_against_all_plans(with_labels: GapResults) -> None:
    tests = [(one.before, one.after) for one in with_labels.paired_tests if one.level == "domains trained on"]
    assert tests == [("compact_1", "grpo"), ("labels50", "labels50_grpo"), ("labels50_grpo", "labels100")]
