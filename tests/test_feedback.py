"""Weights of the training sequences of phase 2 land on the tokens they are meant for; numbers by hand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import BLOCKS, BLOCKS_TEXT, NAMES, blocks_task
from hypothesis import given
from hypothesis import strategies as st
from test_tokenizer import byte_tokenizer
from tokenizers import pre_tokenizers
from transformers import PreTrainedTokenizerFast

from actors.feedback_writer import FeedbackWriter
from pipelines.run.workers import MODEL, policy_version
from pipelines.stages import few_rows
from pipelines.stages.feedback_data import (
    DatasetSettings,
    ReplanSettings,
    build_datasets,
    replan,
    step_loss_scale,
)
from pipelines.stages.judging import STEPS, JudgingSettings, judge_plans
from plansmith.config.pddl_instruct import CorrectionConfig
from plansmith.config.planner import PlannerConfig
from plansmith.config.training import LossConfig, Numerics
from plansmith.data.artifacts import Artifact, ArtifactWriter, Provenance
from plansmith.data.rows import (
    CompletionRow,
    ExampleRow,
    FalseWords,
    FinalPlanRow,
    JudgedStepRow,
    JudgingRow,
    LearningRow,
    MetricRow,
    PlanRow,
    ProblemRow,
    RolloutRow,
    SequenceRow,
    SolvedProblemRow,
    Split,
    StepLossRow,
    VerdictRow,
)
from plansmith.errors import PlansmithError, StalePolicyError
from plansmith.judging.judge import PlanJudge
from plansmith.learning.feedback import (
    SampledTokens,
    expected_words_sequence,
    final_sequence,
    leave_one_out,
    reasoning_sequence,
)
from plansmith.learning.sequence_files import StoredSequences, lengths_of
from plansmith.learning.sequences import JUDGED, NLL_WEIGHT, SCORE_WEIGHT, VERDICT_LABEL, TrainingSequence
from plansmith.learning.tokenizer import encode, token_spans, word_tokenizer
from plansmith.pddl.canonical import canonical_form
from plansmith.pddl.parser import parse_plan
from plansmith.pddl.printer import print_problem
from plansmith.pddl.validation import FeedbackCode
from plansmith.resources import Resources
from plansmith.stages import Stage, StageContext
from plansmith.text.chains import ReadChain, Span, chain_of_plan
from plansmith.text.compact import CompactRendering
from plansmith.text.rendering import rendering_of

COMPACT = CompactRendering()
TOKENIZER = word_tokenizer([BLOCKS], NAMES)
PROMPT = COMPACT.plan_prompt(blocks_task("(ontable a) (clear a) (handempty)", "(holding a)", "a"))

CHOICE_1, OUTCOME_1 = "goals: holding? a unmet: do: pick-up a", "check: clear a ok: add: holding a now: holding a"
CHOICE_2, OUTCOME_2 = "do: put-down a", "check: holding a ok: add: ontable a now: clear a"
END = "goals: holding? a unmet:"
PLAN, VERDICT = "final: pick-up a put-down a", "verdict: INVALID"
COMPLETION = " ".join((CHOICE_1, OUTCOME_1, CHOICE_2, OUTCOME_2, END, PLAN, VERDICT))


PLACES = st.integers(0, 12)


@given(st.lists(PLACES, min_size=2, max_size=9), st.lists(st.tuples(PLACES, PLACES)))
def test_inside_marks_exactly_the_tokens_that_reach_into_a_range(
    cuts: list[int], ranges: list[tuple[int, int]]
) -> None:
    spans = tuple(Span(*pair) for pair in pairwise(sorted(cuts)))
    wanted = [Span(*sorted(pair)) for pair in ranges]
    tokens = SampledTokens((1,), tuple(range(len(spans))), spans)
    slow = [any(span.start < outer.end and span.end > outer.start for outer in wanted) for span in spans]
    assert tokens.inside(*wanted) == slow


def sampled(completion: str = COMPLETION) -> tuple[SampledTokens, ReadChain]:
    """Return the tokens of a completion, with the end mark, and what is read from them."""
    ids = [*encode(TOKENIZER, completion), TOKENIZER.eos_token_id]
    text, spans = token_spans(TOKENIZER, ids)
    return SampledTokens(tuple(encode(TOKENIZER, PROMPT)), tuple(ids), tuple(spans)), COMPACT.read(text, BLOCKS)


def judged_steps(read: ReadChain, *faults: tuple[FeedbackCode, str]) -> list[JudgedStepRow]:
    """Return the steps of a chain as they were judged, each with the words at fault, which it holds once."""
    rows = []
    for number, (spans, (code, words)) in enumerate(zip(read.spans, faults, strict=False), 1):
        start = COMPLETION.index(words, spans.choice.start)
        span = Span(start, start + len(words)) if words else None
        false = (FalseWords(span, "false"),) if span and code is FeedbackCode.CLAIM else ()
        rows.append(JudgedStepRow("r", "p", 1, "v", number, "", code, 0, "", false, span, (), (), (), spans.choice,
                                  spans.outcome))  # fmt: skip
    return rows


RIGHT_STEP = (FeedbackCode.OK, "")


def weighted(sequence: TrainingSequence, column: str) -> list[tuple[str, float]]:
    """Return the words that carry a weight, run by run: ``("do: pick-up a", 0.5)``."""
    weights = sequence.columns[column].tolist()
    runs: list[tuple[list[str], float]] = []
    previous = 0.0
    for token, weight in zip(sequence.token_ids.tolist(), weights, strict=True):
        if weight != previous:
            runs.append(([], weight))
        if weight:
            runs[-1][0].append(TOKENIZER.convert_ids_to_tokens(token))
        previous = weight
    return [(" ".join(words), weight) for words, weight in runs if weight]


@pytest.mark.parametrize(
    ("code", "words", "taught"),
    [
        (FeedbackCode.PRECONDITION, "put-down a", []),
        (FeedbackCode.MALFORMED, "put-down a", []),
        (FeedbackCode.EFFECT, "clear a", []),
        (FeedbackCode.GOAL, "unmet:", [OUTCOME_2]),
        (FeedbackCode.GOAL, "", [OUTCOME_2]),
        (FeedbackCode.CLAIM, "ontable a", ["check: holding a ok: add:", "now: clear a"]),
    ],
)
def test_reasoning_sequence_scores_the_false_words_and_teaches_true_outcomes(
    code: FeedbackCode, words: str, taught: list[str]
) -> None:
    tokens, read = sampled()
    sequence = reasoning_sequence(tokens, judged_steps(read, RIGHT_STEP, (code, words)), [0.0, 2.0])
    assert TOKENIZER.decode(sequence.token_ids) == f"{PROMPT} {COMPLETION} <end>"
    assert weighted(sequence, SCORE_WEIGHT) == ([(words, 2.0)] if words else [])
    assert weighted(sequence, NLL_WEIGHT) == [(part, 1.0) for part in (OUTCOME_1, *taught)]
    judged = " ".join((CHOICE_1, OUTCOME_1, CHOICE_2, OUTCOME_2))
    closing = [("unmet:", 1.0)] if words == "unmet:" else []
    assert weighted(sequence, JUDGED) == [(judged, 1.0), *closing]
    assert VERDICT_LABEL not in sequence.columns


def test_reasoning_sequence_exemplary_rollout_is_kept_likely_word_by_word() -> None:
    tokens, read = sampled()
    sequence = reasoning_sequence(tokens, judged_steps(read, RIGHT_STEP, RIGHT_STEP), [0.0, 0.0], is_exemplary=True)
    assert weighted(sequence, NLL_WEIGHT) == [(f"{COMPLETION} <end>", 1.0)]
    assert not weighted(sequence, SCORE_WEIGHT)
    assert weighted(sequence, JUDGED) == [(" ".join((CHOICE_1, OUTCOME_1, CHOICE_2, OUTCOME_2)), 1.0)]


def test_reasoning_sequence_of_fewer_losses_than_steps_must_not_pass() -> None:
    tokens, read = sampled()
    with pytest.raises(ValueError, match="zip"):
        reasoning_sequence(tokens, judged_steps(read, RIGHT_STEP, RIGHT_STEP), [0.0])


@pytest.mark.parametrize(
    ("place", "kept"),
    [(len(CHOICE_1) + 1, CHOICE_1), (COMPLETION.index(OUTCOME_2), f"{CHOICE_1} {OUTCOME_1} {CHOICE_2}"), (0, "")],
    ids=["first step", "second step", "first word"],
)
def test_expected_words_sequence_keeps_the_rollout_up_to_the_false_word(place: int, kept: str) -> None:
    tokens, _ = sampled()
    expected = "check: holding a ok: add: clear a handempty ontable a now: handempty clear a ontable a"
    sequence = expected_words_sequence(tokens, tokens.before(place), encode(TOKENIZER, expected))
    assert TOKENIZER.decode(sequence.token_ids) == " ".join(filter(None, (PROMPT, kept, expected)))
    assert weighted(sequence, NLL_WEIGHT) == [(expected, 1.0)]
    assert set(sequence.columns) == {NLL_WEIGHT}


@pytest.mark.parametrize(("v", "baseline", "expected"), [(0, 0.25, 2 * 0.75), (1, 0.25, -2 * 0.25), (0, 0.0, 2.0)])
def test_final_sequence_scores_the_plan_and_places_the_verdict(v: int, baseline: float, expected: float) -> None:
    tokens, read = sampled()
    assert read.final_plan_span is not None
    spans = [*(step.choice for step in read.spans), read.final_plan_span]
    sequence = final_sequence(tokens, spans, read.verdict_span, v=v, baseline=baseline, weights=LossConfig(beta=2.0))
    assert weighted(sequence, SCORE_WEIGHT) == [(CHOICE_1, expected), (CHOICE_2, expected), (PLAN, expected)]
    assert weighted(sequence, JUDGED) == [(CHOICE_1, 1.0), (CHOICE_2, 1.0), (PLAN, 1.0)]
    assert not weighted(sequence, NLL_WEIGHT)
    assert weighted(sequence, VERDICT_LABEL) == [("INVALID", 1.0 if v else -1.0)]


def test_final_sequence_of_a_flawless_rollout_anchors_all_that_the_policy_wrote() -> None:
    tokens, read = sampled()
    sequence = final_sequence(tokens, [], read.verdict_span, v=1, baseline=1.0, weights=LossConfig(), is_flawless=True)
    assert sequence.columns[NLL_WEIGHT].tolist() == [0.0] * len(tokens.prompt_ids) + [1.0] * len(tokens.completion_ids)


def test_final_sequence_without_a_verdict_has_no_label() -> None:
    tokens, read = sampled(COMPLETION.removesuffix(VERDICT).strip())
    assert read.final_plan_span is not None and read.verdict_span is None
    sequence = final_sequence(tokens, [read.final_plan_span], None, v=0, baseline=0.0, weights=LossConfig())
    assert not weighted(sequence, VERDICT_LABEL)
    assert weighted(sequence, SCORE_WEIGHT) == [(PLAN, 2.0)]


def test_inside_takes_every_token_that_overlaps_a_range() -> None:
    tokens = SampledTokens((1,), (5, 6, 7, 8), (Span(0, 2), Span(2, 5), Span(5, 5), Span(5, 9)))
    assert tokens.inside(Span(1, 3)) == [True, True, False, False]
    assert tokens.inside(Span(2, 5)) == [False, True, False, False]
    assert tokens.inside(Span(0, 1), Span(8, 20)) == [True, False, False, True]
    assert tokens.inside() == [False] * 4


def test_expected_words_sequence_special_token_on_the_way_stays_in_the_prefix() -> None:
    pad = TOKENIZER.pad_token_id
    ids = [*encode(TOKENIZER, "goals: holding? a unmet: do:"), pad, *encode(TOKENIZER, "pick-up a"),
           *encode(TOKENIZER, f"{OUTCOME_1} {END} {PLAN} {VERDICT}")]  # fmt: skip
    text, spans = token_spans(TOKENIZER, ids)
    tokens, read = SampledTokens((1, 2), tuple(ids), tuple(spans)), COMPACT.read(text, BLOCKS)
    n_kept = tokens.before(read.spans[0].outcome.start)
    assert expected_words_sequence(tokens, n_kept, [9]).token_ids.tolist() == [1, 2, *ids[:8], 9]


@pytest.mark.parametrize(
    ("values", "expected"),
    [([], []), ([3.0], [0.0]), ([1.0, 0.0], [0.0, 1.0]), ([1.0, 0.0, 0.0, 1.0], [1 / 3, 2 / 3, 2 / 3, 1 / 3])],
    ids=["empty", "one", "two", "four"],
)
def test_leave_one_out_is_the_mean_of_the_others(values: list[float], expected: list[float]) -> None:
    assert leave_one_out(values) == pytest.approx(expected)


def test_step_loss_scale_is_the_standard_deviation_and_never_zero() -> None:
    assert step_loss_scale([0.0, 4.0]) == 2.0  # both are 2 from the mean
    assert step_loss_scale([3.0, 3.0]) == step_loss_scale([]) == 1.0


# --- the stages of an iteration


class StandIns(Resources):
    """Workers that are here and take the batches from the last to the first, and a trainer that is sure of nothing."""

    def __init__(self) -> None:
        self.mapped: list[Any] = []

    def map_rows(self, rows: Sequence[Any], row_type_in: type, worker: Any, **options: Any) -> None:
        """Apply a worker to rows; problems are left unsolved."""
        self.mapped += rows
        if row_type_in is ProblemRow:
            found = [PlanRow(row.problem_id, "none", "gave_up", (), None, 0.0, is_optimal=False) for row in rows]
            options["shards"].append(found)
            return
        for row in reversed(rows):
            options["shards"].append(worker(**options["worker_settings"])([row]))

    def trainer(self, model_folder: Path, numerics: Numerics) -> Any:
        """Return what knows no verdict."""
        return SimpleNamespace(predict=lambda _, sequences: [np.full(n, 0.5) for n in lengths_of(sequences)])


TASK = blocks_task("(on c a) (clear c) (ontable a) (ontable b) (clear b) (handempty)", "(on a b)")
ON_THE_TABLE = "(ontable a) (clear a) (ontable b) (clear b) (ontable c) (clear c) (handempty)"
PLAN_STEPS = ("(unstack c a)", "(put-down c)", "(pick-up a)", "(stack a b)")
RIGHT = COMPACT.write_chain(chain_of_plan(TASK, parse_plan(" ".join(PLAN_STEPS))))
USELESS = " ".join(
    (
        "do: unstack c a check: on c a clear c handempty ok: add: holding c clear a",
        "now: clear a ontable a clear b ontable b holding c",
        "do: put-down c check: holding c ok: add: clear c handempty ontable c",
        "now: handempty clear a ontable a clear b ontable b clear c ontable c",
        "do: stack b b check: holding b clear b fails: holding b",
        "final: unstack c a put-down c stack b b verdict: INVALID",
    )
)
"""Puts c away and then picks up b, which is no use: it cannot be put on itself."""


def make_folder(folder: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    """Make what looks like the folder of a model."""
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
    (folder / "model.safetensors").touch()


def artifact(root: Path, name: str, *tables: tuple[str, type[Any], Sequence[Any]], key: str | None = None) -> Artifact:
    """Return an artifact that was written by hand."""
    key = key or f"{name:x<40}"
    writer = ArtifactWriter(root, name, key)
    for table, row_type, rows in tables:
        writer.write_rows(rows, row_type, table=table)
    if name == "policy":
        make_folder(writer.path(MODEL), TOKENIZER)
    return writer.finish(Provenance(name, key, {}, {}, 0), wall_time_s=0.0)


def run(root: Path, name: str, body: Any, settings: Any, resources: Resources, **inputs: Artifact) -> Artifact:
    """Return the artifact of a stage that is run by itself."""
    stage = Stage(name=name, run=body, settings=settings, seed=5)
    output = ArtifactWriter(root, name, stage.key)
    body(StageContext(stage, inputs, output, resources))
    return output.finish(Provenance(name, stage.key, stage.settings_json, {}, 5), wall_time_s=0.0)


def iteration(root: Path, *completions: str, version: str | None = None, form: str = "other") -> dict[str, Artifact]:
    """Return what an iteration reads: two rollouts of each of two equal problems, and the verdicts on them."""
    policy = artifact(root, "policy")
    text = print_problem(TASK.problem)
    problems = [
        ProblemRow(name, f"form of {name}", "blocksworld", "3 blocks", Split.PHASE2, 3, BLOCKS_TEXT, text, "sampler")
        for name in ("p", "q")
    ]
    problems.append(ProblemRow("t", form, "blocksworld", "3 blocks", Split.TEST, 3, BLOCKS_TEXT, text, "sampler"))
    plans = [PlanRow(name, "fd", "solved", PLAN_STEPS, 4.0, 0.1, is_optimal=True) for name in ("p", "q", "t")]
    ids = [(name, f"{name}-01-{k}") for name in ("p", "q") for k in range(len(completions))]
    prompt, rows = tuple(encode(TOKENIZER, COMPACT.plan_prompt(TASK))), []
    for (name, rollout_id), completion in zip(ids, completions * 2, strict=True):
        tokens = (*encode(TOKENIZER, completion), TOKENIZER.eos_token_id)
        version = version or policy_version(policy)
        rows.append(RolloutRow(rollout_id, name, 1, version, "", completion, prompt, tokens, (), "stop", 0))
    given = {
        "policy": policy,
        "problems": artifact(root, "problems", ("rows", ProblemRow, problems)),
        "plans": artifact(root, "plans", ("rows", PlanRow, plans)),
        "rollouts": artifact(root, "rollouts", ("rows", RolloutRow, rows)),
    }
    settings, inputs = JudgingSettings(prompting="compact"), {name: given[name] for name in ("rollouts", "problems")}
    return given | {"verdicts": run(root, "judge_1", judge_plans, settings, StandIns(), **inputs)}


BUILDING = DatasetSettings(
    corrections=CorrectionConfig(corrections_per_problem=1, correction_renamings=1, continuation_renamings=1),
    rendering="compact",
    object_names=tuple(NAMES),
    numerics=Numerics(),
    max_unjudged_share=0.5,
)


def built(root: Path, given: dict[str, Artifact], resources: Resources) -> Artifact:
    """Return the data sets of an iteration, its failed attempts planned on by hand."""
    replans = [
        PlanRow(name, "fd", "solved", ("(pick-up a)", "(stack a b)"), 2.0, 0.1, is_optimal=True)
        for name in ("p-01-1", "q-01-1")
    ]
    given = given | {"replans": artifact(root, "replans", ("rows", PlanRow, replans))}
    return run(root, "build_datasets_1", build_datasets, BUILDING, resources, **given)


def tables_of(made: Artifact) -> dict[str, list[Any]]:
    """Return the tables of data sets."""
    types = {"stage1": SequenceRow, "stage2": SequenceRow, "corrections": ExampleRow, "final_plans": FinalPlanRow,
             "reasoning_steps": StepLossRow, "metrics": MetricRow}  # fmt: skip
    return {name: made.rows(row_type, name) for name, row_type in types.items()}


def test_build_datasets_holds_what_each_rollout_teaches_in_their_order(tmp_path: Path) -> None:
    found = tables_of(built(tmp_path, iteration(tmp_path, RIGHT, USELESS), StandIns()))
    assert [row.sequence_id for row in found["stage1"]] == [
        "p-01-0-steps", "p-01-1-steps", "p-01-1-expected", "q-01-0-steps", "q-01-1-steps", "q-01-1-expected",
    ]  # fmt: skip
    assert [row.sequence_id for row in found["stage2"]] == [f"{name}-01-{k}" for name in "pq" for k in (0, 1)]
    assert [(row.v, row.plan_loss) for row in found["final_plans"][:2]] == [
        (1, pytest.approx(0.5 * 0.693147, rel=1e-5)), (0, pytest.approx(2 + 0.5 * 0.693147, rel=1e-5)),
    ]  # fmt: skip
    # the seventh step of each problem stacks b on itself: the state stays, the precondition costs lambda * 1
    assert [row.step_loss for row in found["reasoning_steps"]] == [0.0] * 6 + [0.1] + [0.0] * 6 + [0.1]
    kinds = [(row.kind, row.example_id) for row in found["corrections"]]
    assert kinds == [
        ("plan_chain", "p-000"), ("correct_with_feedback", "p-01-1-corrected"),
        ("plan_chain", "q-000"), ("correct_with_feedback", "q-01-1-corrected"),
        ("continue_plan", "p-01-1-continued-000"), ("continue_plan", "q-01-1-continued-000"),
    ]  # fmt: skip


def test_build_datasets_baseline_is_the_failure_of_the_other_rollout(tmp_path: Path) -> None:
    made = built(tmp_path, iteration(tmp_path, RIGHT, USELESS), StandIns())
    stored = StoredSequences([made.path("stage2.parquet")])
    columns = [stored[position].columns for position in range(4)]
    # the valid one against a failed one is pushed up by beta = 2, the failed one against a valid one down
    assert [set(found[SCORE_WEIGHT].tolist()) - {0} for found in columns] == [{-2.0}, {2.0}] * 2
    assert [found[VERDICT_LABEL].sum() for found in columns] == [1, -1] * 2


def test_build_datasets_blames_the_step_at_fault_and_teaches_what_was_expected(tmp_path: Path) -> None:
    made = built(tmp_path, iteration(tmp_path, RIGHT, USELESS), StandIns())
    stored = StoredSequences([made.path("stage1.parquet")])
    exemplary, faulty, expected = (stored[position] for position in range(3))
    assert weighted(exemplary, SCORE_WEIGHT) == []
    assert weighted(exemplary, NLL_WEIGHT) == [(f"{RIGHT} <end>", 1.0)]
    # two losses of 0.1 among fourteen: their standard deviation is 0.1 * sqrt(6) / 7
    assert weighted(faulty, SCORE_WEIGHT) == [("stack b b", pytest.approx(7 / 6**0.5))]
    outcome = "check: holding b clear b fails: holding b"
    assert weighted(expected, NLL_WEIGHT) == [(outcome, 1.0)]
    assert TOKENIZER.decode(expected.token_ids).endswith(f"{USELESS.partition(outcome)[0]}{outcome}")


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ("- Next state: ", "- Next state: (on b c) ", "- Action: (unstack c a)\n"),
        ("since (on c a) (clear c) (handempty)\n", "since (on b a) (clear c) (handempty)\n", "needs (clear a) since "),
        ("(on a b): FALSE", "(on a b): TRUE", "[STEP 1]\n- Goals:\n  - "),
    ],
    ids=["outcome", "support", "goal mark"],
)
def test_expected_words_in_the_full_rendering_stand_where_a_faithful_writer_has_them(
    tmp_path: Path, before: str, after: str, kept: str
) -> None:
    full, problem = rendering_of("full"), print_problem(TASK.problem)
    right = full.write_chain(chain_of_plan(TASK, parse_plan(" ".join(PLAN_STEPS))))
    false = right.replace(before, after, 1)
    assert false != right
    tokenizer = byte_tokenizer((")\u010a", "\u0120(on"))  # a bracket with its line break, a word with its space
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    make_folder(tmp_path, tokenizer)
    ids = (*encode(tokenizer, false), tokenizer.eos_token_id)
    assert {")\u010a", "\u0120(on"} <= set(tokenizer.convert_ids_to_tokens(ids))
    rollout = RolloutRow("r", "p", 1, "v", "", false, (5,), ids, (), "stop", 0)
    judged = PlanJudge("full").judge(JudgingRow("p", BLOCKS_TEXT, problem, (CompletionRow("r", 1, "v", false),)))
    writer = FeedbackWriter(
        model=str(tmp_path), rendering="full", corrections=CorrectionConfig(), names=(), seed=0, stage="build"
    )
    solved = SolvedProblemRow("p", "", BLOCKS_TEXT, problem, PLAN_STEPS)
    row = LearningRow("p", solved, (rollout,), judged.verdicts, judged.steps, (0.0,) * len(judged.steps), (0.0,), ())
    sequences = {row.sequence_id: row for row in writer.lesson(row).reasoning}
    text = tokenizer.decode(sequences["r-expected"].token_ids[1:])
    assert right.startswith(text) and kept in text.removesuffix(kept)


def test_judging_and_data_sets_are_the_same_here_and_in_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = iteration(tmp_path / "here", RIGHT, USELESS)
    datasets, workers = tables_of(built(tmp_path / "here", here, StandIns())), StandIns()
    monkeypatch.setattr(few_rows, "FEW_ROLLOUTS", 3)
    there = iteration(tmp_path / "there", RIGHT, USELESS)
    assert tables_of(built(tmp_path / "there", there, workers)) == datasets
    assert [row.problem_id for row in workers.mapped] == ["p", "q"]
    for row_type, table in ((VerdictRow, "rows"), (JudgedStepRow, STEPS)):
        assert there["verdicts"].rows(row_type, table) == here["verdicts"].rows(row_type, table)
    assert {path.name for path in there["verdicts"].folder.iterdir()} == {
        "manifest.json",
        "rows.parquet",
        "steps.parquet",
    }


def test_build_datasets_ends_where_too_many_rollouts_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(PlansmithError, match="cannot be read") as caught:
        built(tmp_path, iteration(tmp_path, "nothing"), StandIns())
    assert caught.value.got.startswith("2 of 2, the first because of: word 1: got 'nothing'")


def test_build_datasets_of_rollouts_of_another_policy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StalePolicyError, match="another policy") as caught:
        built(tmp_path, iteration(tmp_path, RIGHT, USELESS, version="0123456789ab"), StandIns())
    assert (caught.value.got, caught.value.where) == ("0123456789ab", "p-01-0")


@pytest.mark.parametrize("is_test_form", [False, True], ids=["training", "test"])
def test_replan_starts_after_the_last_sound_step_and_leaves_out_test_problems(
    tmp_path: Path, is_test_form: bool
) -> None:
    ahead = blocks_task(ON_THE_TABLE, "(on a b)")
    form = canonical_form(BLOCKS, ahead.problem)
    given = iteration(tmp_path, RIGHT, USELESS, form=form if is_test_form else "another")
    settings, resources = ReplanSettings(planner=PlannerConfig(), is_on=True), StandIns()
    inputs = {name: given[name] for name in ("policy", "problems", "verdicts")}
    run(tmp_path, "replan_1", replan, settings, resources, **inputs)
    found = [(row.problem_id, row.canonical_form, row.source) for row in resources.mapped]
    assert found == ([] if is_test_form else [("p-01-1", form, "rollout"), ("q-01-1", form, "rollout")])


def test_replan_of_a_chain_without_a_sound_step_starts_from_the_problem_itself(tmp_path: Path) -> None:
    given = iteration(tmp_path, "nothing")
    settings, resources = ReplanSettings(planner=PlannerConfig(), is_on=True), StandIns()
    inputs = {name: given[name] for name in ("policy", "problems", "verdicts")}
    run(tmp_path, "replan_1", replan, settings, resources, **inputs)
    assert {row.canonical_form for row in resources.mapped} == {canonical_form(BLOCKS, TASK.problem)}
