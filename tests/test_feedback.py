"""Weights of the training sequences of phase 2 land on the tokens they are meant for; numbers by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

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
    CONTINUATIONS,
    DatasetSettings,
    ReplanSettings,
    build_datasets,
    replan,
    step_loss_scale,
)
from pipelines.stages.judging import STEPS, JudgingSettings, judge_plans
from plansmith.config.chains import ChainConfig
from plansmith.config.pddl_instruct import CorrectionConfig
from plansmith.config.planner import PlannerConfig
from plansmith.config.training import LossConfig, Numerics
from plansmith.data.artifacts import Artifact, ArtifactWriter, Provenance
from plansmith.data.held_out import MEASURING, HeldOut
from plansmith.data.rows import (
    CompletionRow,
    ContinuationRow,
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
from plansmith.judging.chains import judge_completion
from plansmith.judging.detours import steps_before_detour
from plansmith.judging.judge import PlanJudge
from plansmith.learning.feedback import (
    SampledTokens,
    expected_words_sequence,
    final_sequence,
    leave_one_out,
    reasoning_sequence,
    weigh_verdicts,
    with_true_verdict,
)
from plansmith.learning.sequence_files import StoredSequences, lengths_of
from plansmith.learning.sequences import JUDGED, NLL_WEIGHT, SCORE_WEIGHT, VERDICT_LABEL, TrainingSequence
from plansmith.learning.tokenizer import encode, token_spans, word_tokenizer
from plansmith.pddl.canonical import canonical_form
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import parse_plan
from plansmith.pddl.printer import print_problem
from plansmith.pddl.validation import FeedbackCode
from plansmith.planners import PlannerResult, PlannerStatus
from plansmith.planners.tie_breaking import plan_with_late_goals
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
    steps, n_tokens = judged_steps(read, RIGHT_STEP, RIGHT_STEP), len(tokens.completion_ids)
    sequence = reasoning_sequence(tokens, steps, [0.0, 0.0], n_exemplary=n_tokens)
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


@pytest.mark.parametrize("true", ["INVALID", "VALID"], ids=["stated", "another"])
@pytest.mark.parametrize("after", ["", " check: holding a"], ids=["ended", "went on"])
def test_with_true_verdict_ends_with_the_word_that_should_stand_there_and_the_end(true: str, after: str) -> None:
    tokens, read = sampled(COMPLETION + after)
    assert read.verdict_span is not None
    plain = reasoning_sequence(
        tokens, judged_steps(read, RIGHT_STEP, (FeedbackCode.PRECONDITION, "put-down a")), [0.0, 2.0]
    )
    ending = encode(TOKENIZER, f"{true} <end>")
    found = with_true_verdict(plain, tokens, read.verdict_span, ending, v=int(true == "VALID"))
    assert TOKENIZER.decode(found.token_ids) == f"{PROMPT} {COMPLETION.removesuffix('INVALID')}{true} <end>"
    assert weighted(found, VERDICT_LABEL) == [(true, 1.0 if true == "VALID" else -1.0)]
    assert weighted(found, NLL_WEIGHT) == [*weighted(plain, NLL_WEIGHT), ("<end>", 1.0)]
    assert weighted(found, SCORE_WEIGHT) == weighted(plain, SCORE_WEIGHT)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([1, 1, 1, -1], [2 / 3, 2 / 3, 2 / 3, 2.0]),
        ([1, 0, -1], [1.0, 0.5, 1.0]),
        ([1, 1], [0.0, 0.0]),
        ([0], [0.5]),
        ([], []),
    ],
    ids=["three to one", "one without", "one word only", "none", "no sequence"],
)
@pytest.mark.parametrize("mean", [1.0, 3.0])
def test_weigh_verdicts_gives_both_words_the_same_in_all(labels: list[int], expected: list[float], mean: float) -> None:
    given = []
    for label in labels:
        columns = {SCORE_WEIGHT: [0.0, 7.0, 0.0], NLL_WEIGHT: [0.0, 1.0, 0.5]}
        if label:
            columns[VERDICT_LABEL] = [0.0, 0.0, label]
        given.append(TrainingSequence.of([4, 5, 6], columns).row("r"))
    found = list(weigh_verdicts(given, mean))
    told = [weight * mean if label else weight for weight, label in zip(expected, labels, strict=True)]
    assert [row.numbers[:6] for row in found] == [pytest.approx((0, 7, 0, 0, 1, weight)) for weight in told]


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


def test_final_sequence_of_an_exemplary_rollout_anchors_all_that_the_policy_wrote() -> None:
    tokens, read = sampled()
    sequence = final_sequence(tokens, [], read.verdict_span, v=1, baseline=1.0, weights=LossConfig(), is_exemplary=True)
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
        """Apply a worker to rows."""
        self.mapped += rows
        for row in reversed(rows):
            options["shards"].append(worker(**options["worker_settings"])([row]))

    def trainer(self, model_folder: Path, numerics: Numerics) -> Any:
        """Return what knows no verdict."""
        return SimpleNamespace(predict=lambda _, sequences: [np.full(n, 0.5) for n in lengths_of(sequences)])


TASK = blocks_task("(on c a) (clear c) (ontable a) (ontable b) (clear b) (handempty)", "(on a b)")
ON_THE_TABLE = "(ontable a) (clear a) (ontable b) (clear b) (ontable c) (clear c) (handempty)"
ON_THE_TABLE_FORM = canonical_form(BLOCKS, blocks_task(ON_THE_TABLE, "(on a b)").problem)
PLAN_STEPS = ("(unstack c a)", "(put-down c)", "(pick-up a)", "(stack a b)")
RIGHT = COMPACT.write_chain(chain_of_plan(TASK, parse_plan(" ".join(PLAN_STEPS))))
USELESS = " ".join(
    (
        "do: unstack c a check: on c a clear c handempty ok: add: holding c clear a",
        "now: clear a ontable a clear b ontable b holding c",
        "do: put-down c check: holding c ok: add: clear c handempty ontable c",
        "now: handempty clear a ontable a clear b ontable b clear c ontable c",
        "do: stack b b check: fails: holding b",
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


def iteration(
    root: Path, *completions: str, version: str | None = None, form: str = "other", split: Split = Split.TEST
) -> dict[str, Artifact]:
    """Return what an iteration reads: two rollouts of each of two equal problems, and the verdicts on them."""
    policy = artifact(root, "policy")
    text = print_problem(TASK.problem)
    problems = [
        ProblemRow(name, f"form of {name}", "blocksworld", "3 blocks", Split.PHASE2, 3, BLOCKS_TEXT, text, "sampler")
        for name in ("p", "q")
    ]
    problems.append(ProblemRow("t", form, "blocksworld", "3 blocks", split, 3, BLOCKS_TEXT, text, "sampler"))
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
    chains=ChainConfig(),
    rendering="compact",
    object_names=tuple(NAMES),
    numerics=Numerics(),
    verdict_weight=None,
    max_unjudged_share=0.5,
)


def built(
    root: Path,
    given: dict[str, Artifact],
    resources: Resources,
    *,
    verdict_weight: float | None = None,
    **corrections: Any,
) -> Artifact:
    """Return the data sets of an iteration, its failed attempts planned on by hand."""
    changed = {"corrections": BUILDING.corrections.model_copy(update=corrections), "verdict_weight": verdict_weight}
    building = BUILDING.model_copy(update=changed)
    found = [ContinuationRow(f"{name}-01-1", name, 2, 0, ("(pick-up a)", "(stack a b)")) for name in ("p", "q")]
    given = given | {"replans": artifact(root, "replans", (CONTINUATIONS, ContinuationRow, found))}
    return run(root, "build_datasets_1", build_datasets, building, resources, **given)


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
        ("continue_plan", "p-01-1-continued-002-000"), ("correct_with_feedback", "p-01-1-mended"),
        ("continue_plan", "q-01-1-continued-002-000"), ("correct_with_feedback", "q-01-1-mended"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("feedback", "words"), [("binary", "stack b b bad: plan:"), ("detailed", "bad: feedback: fails: holding b plan:")]
)
def test_build_datasets_mends_an_attempt_from_its_sound_steps_on_feedback(
    tmp_path: Path, feedback: Literal["binary", "detailed"], words: str
) -> None:
    found = tables_of(built(tmp_path, iteration(tmp_path, RIGHT, USELESS), StandIns(), feedback=feedback))
    [mended] = [row for row in found["corrections"] if row.example_id == "p-01-1-mended"]
    assert mended.prompt.endswith(words)
    assert (mended.beginning.count("do:"), mended.response.count("do:")) == (2, 2)
    assert mended.beginning == USELESS.partition(" do: stack b b")[0]
    assert judge_completion(TASK, mended.beginning + mended.response, COMPACT).plan.is_valid


@pytest.mark.parametrize("n", [0, 1])
def test_build_datasets_hands_back_no_more_attempts_than_are_asked_for(tmp_path: Path, n: int) -> None:
    given = iteration(tmp_path, USELESS, USELESS)
    found = tables_of(built(tmp_path, given, StandIns(), corrections_per_problem=n))
    handed_back = [row.problem_id for row in found["corrections"] if row.kind == "correct_with_feedback"]
    assert sorted(handed_back) == ["p", "q"] * n  # rollout 0 has no plan from its sound steps, only from the start
    assert sum(row.kind == "continue_plan" for row in found["corrections"]) == 2


def test_build_datasets_attempt_without_a_sound_step_is_handed_back_once(tmp_path: Path) -> None:
    found = tables_of(built(tmp_path, iteration(tmp_path, RIGHT, "nothing"), StandIns()))
    assert [row.example_id for row in found["corrections"] if row.problem_id == "p"] == [
        "p-000", "p-01-1-corrected", "p-01-1-continued-000-000",
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
    outcome = "check: fails: holding b"
    assert weighted(expected, NLL_WEIGHT) == [(outcome, 1.0)]
    assert TOKENIZER.decode(expected.token_ids).endswith(f"{USELESS.partition(outcome)[0]}{outcome}")


FALSE_REASON = RIGHT.replace("since: clear b", "since: clear a", 1)
"""The first step is right, but one of its reasons is not."""
FIRST_STEP = FALSE_REASON[: FALSE_REASON.index(" aim:", FALSE_REASON.index("now:"))]


@pytest.mark.parametrize(
    ("feedback", "blamed", "n_outcomes", "expected"),
    [("detailed", "clear a", 4, [("clear b", 1.0)]), ("binary", FIRST_STEP, 3, None)],
)
def test_build_datasets_tells_the_false_words_of_a_step_only_with_detailed_feedback(
    tmp_path: Path, feedback: str, blamed: str, n_outcomes: int, expected: list[Any] | None
) -> None:
    made = built(tmp_path, iteration(tmp_path, RIGHT, FALSE_REASON), StandIns(), feedback=feedback)
    stored = StoredSequences([made.path("stage1.parquet")])
    of_rollout = {name: stored[place] for place, name in enumerate(stored.ids)}
    assert [words for words, _ in weighted(of_rollout["p-01-1-steps"], SCORE_WEIGHT)] == [blamed]
    assert len(weighted(of_rollout["p-01-1-steps"], NLL_WEIGHT)) == n_outcomes
    told = of_rollout.get("p-01-1-expected")
    assert (told and weighted(told, NLL_WEIGHT)) == expected


def test_build_datasets_tells_an_expected_outcome_with_binary_feedback_too(tmp_path: Path) -> None:
    made = built(tmp_path, iteration(tmp_path, RIGHT, USELESS), StandIns(), feedback="binary")
    stored = StoredSequences([made.path("stage1.parquet")])
    faulty, expected = stored[stored.ids.index("p-01-1-steps")], stored[stored.ids.index("p-01-1-expected")]
    assert [words for words, _ in weighted(faulty, SCORE_WEIGHT)] == ["do: stack b b check: fails: holding b"]
    assert weighted(expected, NLL_WEIGHT) == [("check: fails: holding b", 1.0)]


def test_build_datasets_without_a_stage_2_weighs_both_true_verdicts_of_what_can_be_read_alike(tmp_path: Path) -> None:
    claimed = USELESS.removesuffix("INVALID") + "VALID"
    completions = (RIGHT, RIGHT.removesuffix("VALID") + "INVALID", claimed, f"{claimed} check: holding b")
    made = built(tmp_path, iteration(tmp_path, *completions), StandIns(), verdict_weight=4.0)
    ends, weights = {}, {"VALID": 0.0, "INVALID": 0.0}
    for row in made.rows(SequenceRow, "stage1"):
        if row.sequence_id.endswith("-steps"):
            sequence = TrainingSequence.of(row.token_ids, {NLL_WEIGHT: row.numbers[: len(row.token_ids)]})
            assert row.columns[0] == NLL_WEIGHT
            ends[row.sequence_id] = TOKENIZER.decode(sequence.token_ids[-2:])
            if ends[row.sequence_id] != "b <end>":
                weights[TOKENIZER.decode([sequence.token_ids[-2]])] += sequence.columns[NLL_WEIGHT][-2]
    assert [ends[f"p-01-{k}-steps"] for k in range(4)] == ["VALID <end>", "VALID <end>", "INVALID <end>", "b <end>"]
    labelled = sum(end != "b <end>" for end in ends.values())
    assert weights == pytest.approx(dict.fromkeys(weights, 4.0 * labelled / 2))


def test_build_datasets_hands_a_valid_attempt_back_to_be_explained(tmp_path: Path) -> None:
    made = built(tmp_path, iteration(tmp_path, RIGHT, RIGHT), StandIns(), confirmations_per_problem=1)
    rows = [row for row in made.rows(ExampleRow, "corrections") if row.kind == "confirm_with_feedback"]
    assert [row.example_id for row in rows] == ["p-01-0-confirmed", "q-01-0-confirmed"]
    tried = " ".join(f"{step.strip('()')} good:" for step in PLAN_STEPS)
    assert rows[0].prompt.endswith(f"tried: {tried} feedback: plan:")
    assert COMPACT.read(rows[0].response, BLOCKS).chain.verdict == "VALID"


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
        model=str(tmp_path), rendering="full", corrections=CorrectionConfig(), chains=ChainConfig(), names=(),
        held_out=HeldOut(), has_verdicts=False, seed=0, stage="build",
    )  # fmt: skip
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


def test_replan_starts_after_the_last_sound_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, found = replanned(tmp_path, monkeypatch, Shortest(is_optimal=False), RIGHT, USELESS)
    assert found == [ContinuationRow(f"{name}-01-1", name, 2, 0, ("(pick-up a)", "(stack a b)")) for name in ("p", "q")]
    assert [row.problem_id for row in given["replans"].rows(PlanRow)] == [f"{name}-01-1-after-002" for name in "pq"]


@pytest.mark.parametrize("split", MEASURING)
def test_build_datasets_learns_nothing_after_a_rollout_has_come_to_a_held_out_problem(
    tmp_path: Path, split: Split
) -> None:
    """Both rollouts clear the table first; that is where the held-out problem begins."""
    made = built(tmp_path, iteration(tmp_path, RIGHT, USELESS, form=ON_THE_TABLE_FORM, split=split), StandIns())
    found = tables_of(made)
    assert [row.sequence_id for row in found["stage1"]] == [f"{name}-01-{k}-steps" for name in "pq" for k in (0, 1)]
    assert "continue_plan" not in {row.kind for row in found["corrections"]}
    stored = {name: StoredSequences([made.path(f"{name}.parquet")]) for name in ("stage1", "stage2")}
    for position, whole in enumerate((RIGHT, USELESS)):
        before = read_of(whole).spans[1].outcome.end
        reasoning, final = stored["stage1"][position], stored["stage2"][position]
        assert weighted(reasoning, NLL_WEIGHT) and not final.columns[VERDICT_LABEL].any()
        for sequence, column in ((reasoning, NLL_WEIGHT), (reasoning, SCORE_WEIGHT), (final, NLL_WEIGHT),
                                 (final, SCORE_WEIGHT)):  # fmt: skip
            learnt = [text for text, _ in weighted(sequence, column)]
            assert all(whole.find(text) + len(text) <= before for text in learnt), column


def read_of(completion: str) -> ReadChain:
    return COMPACT.read(completion, BLOCKS)


def test_replan_of_a_chain_without_a_sound_step_starts_from_the_problem_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, found = replanned(tmp_path, monkeypatch, Shortest(), "nothing")
    assert found == [ContinuationRow(f"{name}-01-0", name, 0, 0, PLAN_STEPS) for name in ("p", "q")]


DETOUR = ("(unstack c a)", "(put-down c)", "(pick-up c)", "(put-down c)", "(pick-up a)", "(stack a b)")
"""Optimal for two steps, then takes c up and puts it down again."""


@dataclass(frozen=True)
class Shortest:
    """A planner that searches by itself, and knows or does not know that its plans are optimal."""

    is_optimal: bool = True
    name = "shortest"

    def solve(self, domain_pddl: str, problem_pddl: str) -> PlannerResult:
        task = PlanningTask.from_text(domain_pddl, problem_pddl)
        plan = tuple(map(str, plan_with_late_goals(task, (), max_states=20_000)))
        return PlannerResult(PlannerStatus.SOLVED, plan, float(len(plan)), 0.0, is_optimal=self.is_optimal)


def replanned(
    root: Path, monkeypatch: pytest.MonkeyPatch, planner: Shortest, *completions: str, form: str = "other"
) -> tuple[dict[str, Artifact], list[ContinuationRow]]:
    """Return what an iteration reads, and how its attempts go on better."""
    monkeypatch.setattr("actors.planner.make_planner", lambda config: planner)
    given, settings = iteration(root, *completions, form=form), ReplanSettings(planner=PlannerConfig(), is_on=True)
    inputs = {name: given[name] for name in ("policy", "problems", "plans", "verdicts")}
    made = run(root, "replan_1", replan, settings, StandIns(), **inputs)
    return given | {"replans": made}, made.rows(ContinuationRow, CONTINUATIONS)


def test_replan_of_a_valid_attempt_with_a_detour_goes_on_before_its_first_needless_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    detour = COMPACT.write_chain(chain_of_plan(TASK, parse_plan(" ".join(DETOUR))))
    given, found = replanned(tmp_path, monkeypatch, Shortest(), RIGHT, detour, USELESS)
    expected = [ContinuationRow(f"p-01-{k}", "p", 2, 2, ("(pick-up a)", "(stack a b)")) for k in (1, 2)]
    assert [row for row in found if row.problem_id == "p"] == expected
    made = run(tmp_path, "build_datasets_1", build_datasets, BUILDING, StandIns(), **given)
    continued = [row for row in tables_of(made)["corrections"] if row.kind == "continue_plan"]
    assert [row.example_id for row in continued if row.problem_id == "p"] == [
        "p-01-1-continued-002-000", "p-01-2-continued-002-000",
    ]  # fmt: skip
    stored = {name: StoredSequences([made.path(f"{name}.parquet")]) for name in ("stage1", "stage2")}
    whole = [f"{RIGHT} <end>"]
    assert [text for text, _ in weighted(stored["stage2"][0], NLL_WEIGHT)] == whole
    assert not weighted(stored["stage2"][1], NLL_WEIGHT)  # the detour is no anchor
    learnt = weighted(stored["stage1"][1], NLL_WEIGHT)
    needed = COMPACT.write_beginning(read_of(detour).chain, 2)
    assert learnt[0] == (needed, 1.0)  # up to the first needless step every word
    assert not any("do:" in text for text, _ in learnt[1:])  # no choices behind it


def test_replan_of_a_failed_attempt_goes_on_from_its_end_and_before_its_first_needless_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It puts c on b, where a belongs, and breaks off as it takes c up again."""
    taken = ("(unstack c a)", "(stack c b)", "(unstack c b)")
    failed = COMPACT.write_beginning(chain_of_plan(TASK, parse_plan(" ".join(taken))), len(taken))
    given, found = replanned(tmp_path, monkeypatch, Shortest(), failed, RIGHT)
    assert [row for row in found if row.problem_id == "p"] == [
        ContinuationRow("p-01-0", "p", 2, 1, ("(unstack c b)", *PLAN_STEPS[1:])),
        ContinuationRow("p-01-0", "p", 1, 1, PLAN_STEPS[1:]),
    ]
    made = run(tmp_path, "build_datasets_1", build_datasets, BUILDING, StandIns(), **given)
    kinds = [(row.example_id, row.kind) for row in tables_of(made)["corrections"] if row.problem_id == "p"]
    assert [name for name, kind in kinds if kind == "continue_plan"] == [
        "p-01-0-continued-002-000", "p-01-0-continued-001-000",
    ]  # fmt: skip
    assert sum(name == "p-01-0-mended" for name, _ in kinds) == 1  # the feedback is about the fault alone


def test_replan_of_a_valid_attempt_that_says_something_false_goes_on_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = RIGHT.replace("unmet:", "met:", 1)
    _, found = replanned(tmp_path, monkeypatch, Shortest(), RIGHT, wrong)
    assert [row for row in found if row.problem_id == "p"] == [ContinuationRow("p-01-1", "p", 0, 0, PLAN_STEPS)]


def test_replan_of_a_detour_without_a_proved_optimum_leaves_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    detour = COMPACT.write_chain(chain_of_plan(TASK, parse_plan(" ".join(DETOUR))))
    assert replanned(tmp_path, monkeypatch, Shortest(is_optimal=False), detour)[1] == []


def test_replan_of_an_attempt_whose_rest_is_held_out_gives_no_continuation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    detour = COMPACT.write_chain(chain_of_plan(TASK, parse_plan(" ".join(DETOUR))))
    assert replanned(tmp_path, monkeypatch, Shortest(), detour, USELESS, form=ON_THE_TABLE_FORM)[1] == []


@pytest.mark.parametrize(
    ("plan", "costs", "expected"),
    [
        (PLAN_STEPS, [4, 3, 2, 1], None),
        (DETOUR, [4, 3, 2, 3, 2, 1], 2),
        (("(pick-up b)", "(put-down b)", *PLAN_STEPS), [4, 5, 4, 3, 2, 1], 0),
    ],
    ids=["optimal", "in the middle", "at once"],
)
def test_steps_before_detour_are_those_that_each_lower_the_cost_to_go(
    plan: tuple[str, ...], costs: list[float], expected: int | None
) -> None:
    asked: list[int] = []

    def ahead(kept: int) -> float:
        asked.append(kept)
        return [*costs, 0.0][kept]

    steps = parse_plan(" ".join(plan))
    assert steps_before_detour(TASK, steps, 4.0, ahead) == expected
    assert len(asked) <= 1 + len(plan).bit_length()
    assert steps_before_detour(TASK, steps[:2], 4.0, ahead) == (0 if expected == 0 else None)  # a beginning
