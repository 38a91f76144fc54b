"""Constrained policy optimisation: R and C by hand, advantages by step, the price of cost, a loop that is killed."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from stand_in_generator import StandInGenerator
from stand_in_updates import StandInTrainer, StandInUpdates, begin

from pipelines.run.workers import MODEL
from pipelines.stages.constrained import ConstrainedSettings, FromSteps, constrained_settings
from pipelines.stages.update_loop import UPDATES, Tried, run_updates
from plansmith.config.constrained import CpoConfig, CriticConfig
from plansmith.config.training import EngineNumerics, Numerics
from plansmith.data.held_out import HeldOut
from plansmith.data.rows import CompletionRow, JudgingRow, MetricRow, ProblemRow, RolloutRow
from plansmith.errors import BadInputError
from plansmith.generation import FinishReason
from plansmith.judging.judge import PlanJudge
from plansmith.judging.progress_score import printed_progress, progress_score
from plansmith.judging.rewards import Reward
from plansmith.judging.step_critic import Criticism, criticise
from plansmith.learning.constrained import next_penalty, penalised, step_advantages, to_go, token_advantages
from plansmith.learning.feedback import SampledTokens
from plansmith.learning.optimisation import OptimisationReport
from plansmith.learning.sequences import ADVANTAGE
from plansmith.learning.tokenizer import encode, word_tokenizer
from plansmith.pddl.canonical import canonical_form
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import parse_domain, parse_step
from plansmith.pddl.validation import Verdict, validate_plan
from plansmith.problems.library import DOMAINS_FOLDER
from plansmith.stages import Stage, StageContext, run_stages
from plansmith.text.baselines import FINAL_PLAN
from plansmith.text.chains import Span
from plansmith.text.compact import CompactRendering
from plansmith.text.narration import narration_of_steps

DOMAIN_TEXT = (DOMAINS_FOLDER / "blocks-classic" / "domain.pddl").read_text(encoding="utf-8")
PROBLEM = """(define (problem p) (:domain blocks-classic) (:objects a b c t r)
 (:init (obj a) (obj b) (obj c) (table t) (robot r) (hand_free r)
   (on-table a t) (on-table b t) (above c a) (top c) (top b))
 (:goal (and (above a b) (above b c) (on-table c t) (hand_free r))))"""
TASK = PlanningTask.from_text(DOMAIN_TEXT, PROBLEM)
PLAN = ("(unstack c a r)", "(put-down c t r)", "(pick-up b t r)", "(stack b c r)", "(pick-up a t r)", "(stack a b r)")
RENDERING = CompactRendering()
CRITIC = CriticConfig()


def chain_text(*, false_state: int | None = None, plan: Sequence[str] = PLAN) -> str:
    """Return a plan as a chain without reasons; one of its states, from 0, may lack its first atom."""
    words, task = [], PlanningTask.from_text(DOMAIN_TEXT, PROBLEM)
    state = task.initial_state
    for number, text in enumerate(plan):
        action = task.ground(parse_step(text))
        needed = " ".join(str(part).strip("()") for part in action.preconditions)
        added = " ".join(str(atom).strip("()") for atom in action.add_effects)
        state = action.apply(state)
        atoms = [str(atom).strip("()") for atom in sorted(task.atoms_of(state))]
        now = " ".join(atoms[1:] if number == false_state else atoms)
        words.append(f"do: {text.strip('()')} check: {needed} ok: add: {added} now: {now}")
    return " ".join([*words, "verdict: VALID"])


def judged(completion: str, problem_id: str = "p", rollout_id: str = "r", prompting: str = "compact") -> Tried:
    row = CompletionRow(rollout_id, 1, "v", completion)
    found = PlanJudge(prompting).judge(JudgingRow(problem_id, DOMAIN_TEXT, PROBLEM, (row,)))
    tokens = tuple(encode(TOKENIZER, completion))
    rollout = RolloutRow(rollout_id, problem_id, 1, "v", "", completion, (1, 2), tokens, (), "stop", 0)
    return Tried(rollout, found.verdicts[0], found.steps, Reward(0.0, ""))


TOKENIZER = word_tokenizer([parse_domain(DOMAIN_TEXT)], ["a", "b", "c", "t", "r"])


def scores(item: Tried, config: CriticConfig = CRITIC) -> Criticism:
    found = criticise(TASK, item.verdict, item.steps, config)
    assert found is not None
    return found


# --- R and C


def test_r_and_c_of_six_right_steps_are_worked_by_hand() -> None:
    # goals: a on b, b on c, c on the table, hand free; holds: 1, 0, 2, 1, 3, 2, 4 of 4
    item = judged(chain_text())
    found = scores(item)
    assert item.verdict.is_valid and found.start == 0.25
    assert [step.reward for step in found.steps] == pytest.approx([-0.25, 0.5, -0.25, 0.5, -0.25, 0.5])
    assert [step.cost for step in found.steps] == [0.0] * 6
    assert found.reward == 1.0 and [step.place for step in found.steps] == [0, 1, 2, 3, 4, 5]
    printed = scores(item, CriticConfig(step_reward="printed_sum"))
    assert [step.reward for step in printed.steps] == pytest.approx([0.0, 0.5, 0.25, 0.75, 0.5, 1.0])
    assert printed.reward == pytest.approx(3.25)


def test_a_false_state_costs_lambda_and_goes_on() -> None:
    found = scores(judged(chain_text(false_state=1)))
    assert [step.cost for step in found.steps][:2] == [0.0, 0.5]
    assert len(found.steps) == 6


def test_a_narrated_answer_is_criticised_step_by_step_as_any_chain() -> None:
    plan = tuple(map(parse_step, PLAN))
    told = narration_of_steps(TASK, plan, [f"reason {number}" for number in range(len(plan))])
    answer = "\n".join([told, FINAL_PLAN, *PLAN])
    whole = judged(answer, prompting="narrated")
    assert whole.verdict.is_valid and [step.feedback_code for step in whole.steps] == ["ok"] * 6
    assert [step.place for step in scores(whole).steps] == [0, 1, 2, 3, 4, 5]
    for number, step in enumerate(whole.steps):
        assert answer[step.choice.start : step.choice.end].endswith(PLAN[number])
        assert answer[: step.outcome.end].count("State:") == number + 1
    false = judged(answer.replace("(holding c r)", "(holding c t)", 1), prompting="narrated")
    assert false.verdict.is_valid and scores(false).steps[0].cost == 0.5
    first = false.steps[0].fault_span
    assert first is not None and answer[first.start : first.end] == "(holding c r)"


@pytest.mark.parametrize("spoilt", ["State: (top a)\nStep 2:", "Step 2:"], ids=["two states", "none"])
def test_a_narrated_answer_whose_states_cannot_be_told_claims_nothing(spoilt: str) -> None:
    plan = tuple(map(parse_step, PLAN))
    told = narration_of_steps(TASK, plan, ["reason"] * len(plan))
    if spoilt == "Step 2:":
        told = told.replace("State: ", "After it ", 1)
    answer = "\n".join([told.replace("Step 2:", spoilt), FINAL_PLAN, *PLAN])
    item = judged(answer, prompting="narrated")
    assert item.verdict.is_valid and not item.steps and [step.place for step in scores(item).steps] == [None] * 6


def test_a_narrated_answer_without_a_step_is_its_plan_alone() -> None:
    item = judged("\n".join(["I move the blocks about.", FINAL_PLAN, *PLAN]), prompting="narrated")
    assert item.verdict.is_valid and not item.steps
    assert judged("nothing of the kind", prompting="narrated").verdict.verdict == "malformed_plan"


def test_a_violated_precondition_costs_one_and_lambda_and_ends_the_count() -> None:
    text = chain_text(plan=PLAN[:2]).replace(" verdict: VALID", "")
    text += (
        " do: stack b c r check: obj b ok: add: above b c now: obj a do: pick-up a t r check: obj a ok: add: now: obj a"
    )
    found = scores(judged(f"{text} verdict: VALID"))
    assert [(step.reward, step.cost) for step in found.steps] == [(-0.25, 0.0), (0.5, 0.0), (0.0, 1.5)]


def test_an_unreadable_plan_earns_the_start_and_costs_one_and_lambda() -> None:
    found = scores(judged("nothing of the kind"))
    assert (found.reward, found.cost) == (0.25, 1.5)


def test_what_nobody_could_judge_is_none_and_never_a_number() -> None:
    item = judged(chain_text())
    assert criticise(TASK, replace(item.verdict, verdict="bad_input"), item.steps, CRITIC) is None
    assert criticise(TASK, item.verdict, item.steps, CRITIC, finish_reason="no_room") is None


def test_printed_sum_prefers_the_plan_that_idles_and_potential_does_not() -> None:
    idle = judged(chain_text(plan=(*PLAN, "(unstack a b r)", "(stack a b r)")))
    direct, printed = judged(chain_text()), CriticConfig(step_reward="printed_sum")
    assert scores(idle, printed).reward > scores(direct, printed).reward
    assert scores(idle).reward == scores(direct).reward


def test_printed_progress_of_a_valid_plan_is_below_one_where_goals_are_partial() -> None:
    verdict = validate_plan(TASK, [parse_step(step) for step in PLAN])
    # 4 goal atoms among obj x3, table, robot, hand_free, on-table c, above x2, top a
    assert progress_score(TASK, verdict) == 1.0
    assert printed_progress(TASK, verdict) == pytest.approx(4 / 10)


# --- advantages


def test_step_advantages_of_two_rollouts_are_worked_by_hand() -> None:
    assert to_go([1.0, 2.0, 3.0]) == [6.0, 5.0, 3.0]
    assert step_advantages([[1.0, 2.0], [4.0]]) == [[-1.0, 2.0], [1.0]]
    assert step_advantages([[1.0, 2.0]]) == [[3.0, 2.0]]
    assert penalised([1.0, 0.0], [0.5, -1.0], 1.0) == [0.25, 0.5]


def test_penalty_grows_above_the_budget_and_never_falls_below_zero() -> None:
    assert next_penalty(0.5, 1.25, budget=0.25, rate=0.5) == 1.0
    assert next_penalty(0.1, 0.0, budget=0.25, rate=1.0) == 0.0


def test_token_advantages_follow_the_steps_and_stop_where_the_count_does() -> None:
    spans = tuple(Span(3 * k, 3 * k + 2) for k in range(6))
    tokens = SampledTokens((1,), (2, 3, 4, 5, 6, 7), spans)
    assert token_advantages(tokens, [1.0, -2.0], [5, 11], is_stopped=True) == [1.0, 1.0, -2.0, -2.0, 0.0, 0.0]
    assert token_advantages(tokens, [1.0, -2.0], [5, 11], is_stopped=False) == [1.0, 1.0, -2.0, -2.0, -2.0, -2.0]
    assert token_advantages(tokens, [0.5], [], is_stopped=True) == [0.5] * 6


def test_constrained_bandit_settles_at_its_budget() -> None:
    """The better arm earns 1 and costs 1, the other nothing: the best policy within d = 0.25 takes it at 0.25."""
    rng, logit, penalty, costs, d = random.Random(0), 2.0, 0.0, [], 0.25
    for update in range(4000):
        share = 1 / (1 + math.exp(-logit))
        pulls = [float(rng.random() < share) for _ in range(16)]
        rewards = step_advantages([[pull] for pull in pulls])
        prices = step_advantages([[pull] for pull in pulls])
        advantages = [penalised(r, c, penalty)[0] for r, c in zip(rewards, prices, strict=True)]
        logit += 0.1 * sum(a * (pull - share) for a, pull in zip(advantages, pulls, strict=True))
        cost = sum(pulls) / len(pulls)
        penalty = next_penalty(penalty, cost, budget=d, rate=0.02)
        costs.append(cost if update >= 2000 else math.nan)
    assert np.nanmean(costs) == pytest.approx(d, rel=0.1)


# --- as an update rule


def settings_of(**changes: Any) -> ConstrainedSettings:
    values: dict[str, Any] = {
        "learning_rate": 0.01, "batch_sequences": 100, "updates": 3, "problems_per_update": 2,
        "rollouts_per_problem": 3, "max_new_tokens": 400, "beta": 0.0, "penalty": 1.0,
    }  # fmt: skip
    return constrained_settings(
        CpoConfig(**{**values, **changes}), engine=EngineNumerics(), numerics=Numerics(row_length_tokens=2048),
        prompting="compact",
    )  # fmt: skip


PROBLEMS = tuple(
    ProblemRow(f"p{k}", f"form {k}", "blocks-classic", "", "d2", 5, DOMAIN_TEXT, PROBLEM, "") for k in range(3)
)


def rule_of(settings: ConstrainedSettings) -> FromSteps:
    references = {row.problem_id: row for row in PROBLEMS}
    return FromSteps(PROBLEMS, PlanJudge("compact"), settings, references, HeldOut(), TOKENIZER)


def test_lesson_gives_each_token_the_advantage_of_its_step_and_raises_the_penalty() -> None:
    right, wrong = judged(chain_text(), "p0", "r1"), judged("no plan", "p0", "r2")
    lesson = rule_of(settings_of()).lesson([right, wrong], None)
    # reward to go 0.75, 1, 0.5, ...; the other brings 0 reward and 1.5 cost, at its one step
    first, second = (sequence.columns[ADVANTAGE][2:] for sequence in lesson.sequences)
    assert first[0] == pytest.approx((0.75 + 1.5) / 2) and first[-1] == pytest.approx(0.25)
    assert second.tolist() == pytest.approx([(-0.75 - 1.5) / 2] * len(second))
    assert lesson.figures["cpo/cost"] == 0.75 and lesson.figures["cpo/penalty"] == 1.0
    assert lesson.state == {"asked": 1, "penalty": 1.25}
    assert lesson.figures["cpo/disagreement"] == 0.0


def test_rollouts_of_which_none_had_room_are_bad_input_that_says_so() -> None:
    rule, item = rule_of(settings_of(max_unjudged_share=1.0)), judged("", "p0", "r1")
    rollout = replace(item.rollout, finish_reason=FinishReason.NO_ROOM)
    unjudged = replace(item, rollout=rollout, reward=rule.reward(rollout, item.verdict))
    with pytest.raises(BadInputError, match="1 of 1; the last: the prompt left no room for an answer"):
        rule.lesson([unjudged], None)


def test_disagreement_counts_plans_that_the_reference_judges_otherwise() -> None:
    rule = rule_of(settings_of())
    harder = PROBLEM.replace("(hand_free r)))", "(hand_free r) (top b)))")
    rule = replace(rule, references={row.problem_id: replace(row, problem_pddl=harder) for row in PROBLEMS})
    lesson = rule.lesson([judged(chain_text(), "p0", "r1"), judged("no plan", "p0", "r2")], None)
    assert lesson.figures["cpo/disagreement"] == 0.5


def test_answers_that_cannot_be_read_are_no_disagreement_though_their_plans_are_right() -> None:
    unread = judged(f"{chain_text()} block", "p0", "r1")
    assert unread.verdict.verdict == Verdict.MALFORMED_PLAN and unread.verdict.plan
    lesson = rule_of(settings_of()).lesson([unread, judged("no plan", "p0", "r2")], None)
    assert lesson.figures["cpo/disagreement"] == 0.0


def test_rollout_that_passes_a_held_out_problem_teaches_nothing() -> None:
    held_out = HeldOut(frozenset({canonical_form(TASK.domain, TASK.problem)}), frozenset({5}))
    rule = replace(rule_of(settings_of()), held_out=held_out)
    assert rule.lesson([judged(chain_text(), "p0", "r1"), judged("no plan", "p0", "r2")], None).sequences == []


@pytest.mark.parametrize("name", ["budget", "state_cost", "beta", "penalty_rate"])
def test_negative_settings_are_refused(name: str) -> None:
    with pytest.raises(ValidationError, match=name):
        settings_of(**{name: -0.1})


@dataclass
class Writing(StandInUpdates):
    """Answers with a right chain, or with a wrong one, by chance."""

    def generator(self, policy: Any, engine: EngineNumerics) -> StandInGenerator:
        found = super().generator(policy, engine)
        texts = (chain_text(), chain_text(false_state=2), "no plan", chain_text(plan=PLAN[:2]))
        write = lambda turns, seed: texts[seed % len(texts)]  # noqa: E731
        return replace(found, write=write, window=4000)


class Killed(BaseException):
    """As a process that is gone."""


@dataclass
class Dying(StandInTrainer):
    dies_at: str = ""

    def optimise(self, objective: Any, sequences: Any, settings: Any, **options: Any) -> Any:
        if self.dies_at and options["description"].startswith(self.dies_at):
            raise Killed
        self.steps.append(options["description"])
        self.weight += sum(float(s.columns[ADVANTAGE].sum()) for s in sequences)
        return OptimisationReport("x", {"loss": (0.0,)}, (0.1,), (0.1,), 1, 0, 0, 1, 1.0, 1, 1.0)


def learn(context: StageContext[ConstrainedSettings]) -> None:
    run_updates(context, rule_of(context.settings))


def run(root: Path, trainer: StandInTrainer) -> Any:
    start = Stage(name="start", run=begin, seed=3)
    loop = Stage(name="cpo", run=learn, settings=settings_of(), inputs={"policy": start}, seed=3)
    return run_stages([start, loop], root=root, resources=Writing(held=trainer))["cpo"]


def test_loop_killed_in_an_update_ends_with_the_tables_of_one_that_was_not(tmp_path: Path) -> None:
    calm = run(tmp_path / "calm", Dying())
    with pytest.raises(Killed):
        run(tmp_path / "killed", Dying(dies_at="update 2,"))
    again = run(tmp_path / "killed", Dying())
    rows = [made.rows(MetricRow, UPDATES) for made in (calm, again)]
    assert rows[0] == rows[1]
    found = {(row.iteration, row.name): row.value for row in rows[0]}
    for update in (1, 2):
        after = next_penalty(found[update, "cpo/penalty"], found[update, "cpo/cost"], budget=0.25, rate=0.5)
        assert found[update + 1, "cpo/penalty"] == pytest.approx(after)
    assert (again.path(MODEL) / "weight.json").read_text() == (calm.path(MODEL) / "weight.json").read_text()
