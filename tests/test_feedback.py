"""Weights of the training sequences of phase 2 land on the tokens they are meant for; numbers by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest
from conftest import BLOCKS, NAMES, blocks_task
from hypothesis import given
from hypothesis import strategies as st

from pipelines.parts import feedback_stages
from pipelines.parts.feedback_stages import ReplanSettings, problem_ahead, replan, step_loss_scale
from plansmith.config.planner import PlannerConfig
from plansmith.data.rows import ProblemRow, Split
from plansmith.judging.chains import judge_completion
from plansmith.learning.feedback import (
    SampledTokens,
    expected_outcome_sequence,
    final_sequence,
    leave_one_out,
    reasoning_sequence,
)
from plansmith.learning.printed_losses import LossWeights
from plansmith.learning.sequences import NO_VERDICT, TrainingSequence
from plansmith.learning.tokenizer import encode, token_spans, word_tokenizer
from plansmith.pddl.canonical import canonical_form
from plansmith.pddl.validation import FeedbackCode
from plansmith.text.chains import ReadChain, Span
from plansmith.text.compact import CompactRendering

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


def weighted(sequence: TrainingSequence, weights: tuple[float, ...]) -> list[tuple[str, float]]:
    """Return the words that carry a weight, run by run: ``("do: pick-up a", 0.5)``."""
    runs: list[tuple[list[str], float]] = []
    previous = 0.0
    for token, weight in zip(sequence.token_ids, weights, strict=True):
        if weight != previous:
            runs.append(([], weight))
        if weight:
            runs[-1][0].append(TOKENIZER.convert_ids_to_tokens(token))
        previous = weight
    return [(" ".join(words), weight) for words, weight in runs if weight]


@pytest.mark.parametrize(
    ("code", "blamed"),
    [
        (FeedbackCode.PRECONDITION, CHOICE_2),
        (FeedbackCode.MALFORMED, CHOICE_2),
        (FeedbackCode.GOAL, CHOICE_2),
        (FeedbackCode.EFFECT, OUTCOME_2),
    ],
)
def test_reasoning_sequence_scores_the_part_at_fault_and_teaches_right_outcomes(
    code: FeedbackCode, blamed: str
) -> None:
    tokens, read = sampled()
    sequence = reasoning_sequence(tokens, read.spans, [0.0, 2.0], [FeedbackCode.OK, code])
    assert TOKENIZER.decode(sequence.token_ids) == f"{PROMPT} {COMPLETION} <end>"
    assert weighted(sequence, sequence.score_weights) == [(blamed, 2.0)]
    taught = [(OUTCOME_1, 1.0), (OUTCOME_2, 1.0)] if code is FeedbackCode.GOAL else [(OUTCOME_1, 1.0)]
    assert weighted(sequence, sequence.nll_weights) == taught
    assert sequence.verdict_position == NO_VERDICT


def test_reasoning_sequence_exemplary_rollout_is_kept_likely_word_by_word() -> None:
    tokens, read = sampled()
    sequence = reasoning_sequence(tokens, read.spans, [0.0, 0.0], [FeedbackCode.OK] * 2, is_exemplary=True)
    assert weighted(sequence, sequence.nll_weights) == [(f"{COMPLETION} <end>", 1.0)]
    assert sequence.n_score_tokens == 0


def test_reasoning_sequence_of_fewer_steps_than_read_must_not_pass() -> None:
    tokens, read = sampled()
    with pytest.raises(ValueError, match="zip"):
        reasoning_sequence(tokens, read.spans, [0.0], [FeedbackCode.OK])


def test_reasoning_sequence_step_without_a_loss_carries_no_score() -> None:
    tokens, read = sampled()
    sequence = reasoning_sequence(tokens, read.spans, [0.0, 0.0], [FeedbackCode.EFFECT] * 2)
    assert sequence.n_score_tokens == sequence.n_nll_tokens == 0


@pytest.mark.parametrize(
    ("index", "kept"), [(0, CHOICE_1), (1, f"{CHOICE_1} {OUTCOME_1} {CHOICE_2}")], ids=["first step", "second step"]
)
def test_expected_outcome_sequence_keeps_the_rollout_up_to_the_action(index: int, kept: str) -> None:
    tokens, read = sampled()
    expected = "check: holding a ok: add: clear a handempty ontable a now: handempty clear a ontable a"
    sequence = expected_outcome_sequence(tokens, read.spans[index], encode(TOKENIZER, expected))
    assert TOKENIZER.decode(sequence.token_ids) == f"{PROMPT} {kept} {expected}"
    assert weighted(sequence, sequence.nll_weights) == [(expected, 1.0)]
    assert sequence.n_score_tokens == 0


@pytest.mark.parametrize(("v", "baseline", "expected"), [(0, 0.25, 2 * 0.75), (1, 0.25, -2 * 0.25), (0, 0.0, 2.0)])
def test_final_sequence_scores_the_plan_and_places_the_verdict(v: int, baseline: float, expected: float) -> None:
    tokens, read = sampled()
    assert read.final_plan_span is not None
    spans = [*(step.choice for step in read.spans), read.final_plan_span]
    sequence = final_sequence(tokens, spans, read.verdict_span, v=v, baseline=baseline, weights=LossWeights(beta=2.0))
    assert weighted(sequence, sequence.score_weights) == [(CHOICE_1, expected), (CHOICE_2, expected), (PLAN, expected)]
    assert sequence.n_nll_tokens == 0
    assert TOKENIZER.convert_ids_to_tokens(sequence.token_ids[sequence.verdict_position]) == "INVALID"
    assert sequence.verdict_position == len(sequence.token_ids) - 2 and sequence.verdict_label == v


def test_final_sequence_of_a_flawless_rollout_anchors_all_that_the_policy_wrote() -> None:
    tokens, read = sampled()
    sequence = final_sequence(tokens, [], read.verdict_span, v=1, baseline=1.0, weights=LossWeights(), is_flawless=True)
    assert sequence.nll_weights == (0.0,) * len(tokens.prompt_ids) + (1.0,) * len(tokens.completion_ids)


def test_final_sequence_without_a_verdict_has_neither_position_nor_label() -> None:
    tokens, read = sampled(COMPLETION.removesuffix(VERDICT).strip())
    assert read.final_plan_span is not None and read.verdict_span is None
    sequence = final_sequence(tokens, [read.final_plan_span], None, v=0, baseline=0.0, weights=LossWeights())
    assert (sequence.verdict_position, sequence.verdict_label) == (NO_VERDICT, NO_VERDICT)
    assert weighted(sequence, sequence.score_weights) == [(PLAN, 2.0)]


def test_inside_takes_every_token_that_overlaps_a_range() -> None:
    tokens = SampledTokens((1,), (5, 6, 7, 8), (Span(0, 2), Span(2, 5), Span(5, 5), Span(5, 9)))
    assert tokens.inside(Span(1, 3)) == [True, True, False, False]
    assert tokens.inside(Span(2, 5)) == [False, True, False, False]
    assert tokens.inside(Span(0, 1), Span(8, 20)) == [True, False, False, True]
    assert tokens.inside() == [False] * 4


def test_expected_outcome_sequence_special_token_on_the_way_stays_in_the_prefix() -> None:
    pad = TOKENIZER.pad_token_id
    ids = [*encode(TOKENIZER, "goals: holding? a unmet: do:"), pad, *encode(TOKENIZER, "pick-up a"),
           *encode(TOKENIZER, f"{OUTCOME_1} {END} {PLAN} {VERDICT}")]  # fmt: skip
    text, spans = token_spans(TOKENIZER, ids)
    tokens, read = SampledTokens((1, 2), tuple(ids), tuple(spans)), COMPACT.read(text, BLOCKS)
    sequence = expected_outcome_sequence(tokens, read.spans[0], [9])
    assert sequence.token_ids == (1, 2, *ids[:8], 9)


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


@pytest.mark.parametrize(("is_test_form", "n_solved"), [(False, 1), (True, 0)], ids=["training", "test"])
def test_replan_leaves_out_what_has_become_a_test_problem(
    monkeypatch: pytest.MonkeyPatch, is_test_form: bool, n_solved: int
) -> None:
    # wanted: a on b. The attempt puts c away and then picks up b, which is no use: it cannot be put on itself.
    task = blocks_task("(on c a) (clear c) (ontable a) (ontable b) (clear b) (handempty)", "(on a b)")
    completion = " ".join(
        (
            "do: unstack c a check: on c a clear c handempty ok: add: holding c clear a",
            "now: clear a ontable a clear b ontable b holding c",
            "do: put-down c check: holding c ok: add: clear c handempty ontable c",
            "now: handempty clear a ontable a clear b ontable b clear c ontable c",
            "do: stack b b check: holding b clear b fails: holding b",
            "final: unstack c a put-down c stack b b verdict: INVALID",
        )
    )
    item = SimpleNamespace(
        task=task,
        chain=judge_completion(task, completion, COMPACT),
        rollout=SimpleNamespace(rollout_id="r", problem_id="p"),
        v=0,
    )
    tried = ProblemRow("p", "form of p", "blocksworld", "3 blocks", Split.PHASE2, 3, "", "", "sampler")
    ahead = problem_ahead(tried, item)
    on_the_table = blocks_task(
        "(ontable a) (clear a) (ontable b) (clear b) (ontable c) (clear c) (handempty)", "(on a b)"
    )
    form = canonical_form(BLOCKS, on_the_table.problem)
    assert (ahead.problem_id, ahead.canonical_form) == ("r", form)
    other = replace(tried, problem_id="t", split=Split.TEST, canonical_form=form if is_test_form else "another")
    solved: list[ProblemRow] = []
    monkeypatch.setattr(feedback_stages, "judged_rollouts", lambda *_: [item])
    monkeypatch.setattr(feedback_stages, "solve_problems", lambda _, rows, *__, **___: solved.extend(rows))
    settings = ReplanSettings(planner=PlannerConfig(), rendering="compact", is_on=True)
    problems = SimpleNamespace(rows=lambda _: [tried, other])
    replan(SimpleNamespace(settings=settings, inputs={"problems": problems}))
    assert [row.problem_id for row in solved] == ["r"] * n_solved
