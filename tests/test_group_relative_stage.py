"""Reinforcement learning as an update rule: which problems are asked, what is learnt and refused, what survives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import BLOCKS_TEXT, random_problem
from stand_in_updates import CountingJudge, StandInTrainer, StandInUpdates, begin

from pipelines.stages.group_relative import (
    FromGroups,
    GroupRelativeSettings,
    group_relative_settings,
    learn_from_groups,
)
from pipelines.stages.update_loop import ROLLOUTS, UPDATES, Tried, in_random_order, run_updates
from plansmith.config.reinforcement import ReinforcementConfig
from plansmith.config.training import EngineNumerics, Numerics, OptimiserConfig
from plansmith.data.rows import MetricRow, RolloutRow, SolvedProblemRow, VerdictRow
from plansmith.data.tables import read_table
from plansmith.errors import BadInputError, ConfigError
from plansmith.judging.rewards import Reward
from plansmith.learning.optimisation import OptimisationReport
from plansmith.learning.sequences import (
    ADVANTAGE,
    OLD_LOGPROBS,
    REFERENCE_LOGPROBS,
    RESPONSE_MASK,
    ROLLOUT_END,
    ROLLOUT_LOGPROBS,
    TrainingSequence,
)
from plansmith.pddl.printer import print_problem
from plansmith.stages import Stage, StageContext, run_stages

PROBLEMS = tuple(SolvedProblemRow(f"p{i}", "", BLOCKS_TEXT, print_problem(random_problem(3, i)), ()) for i in range(7))


def settings_of(**changes: Any) -> GroupRelativeSettings:
    values: dict[str, Any] = {
        "learning_rate": 0.01, "batch_sequences": 100, "updates": 3, "problems_per_update": 2,
        "rollouts_per_problem": 3, "max_new_tokens": 60, "max_unjudged_share": 1.0,
    }  # fmt: skip
    engine = EngineNumerics(logprobs=changes.pop("logprobs", "processed"))
    loop = ReinforcementConfig(**{**values, **changes})
    return group_relative_settings(loop, engine=engine, numerics=Numerics(row_length_tokens=512), prompting="compact")


def rule_of(**changes: Any) -> FromGroups:
    return FromGroups(PROBLEMS, CountingJudge(), settings_of(**changes))


def tried(
    problem_id: str, verdict: str, reward: float | None, *, finish: str = "stop", plan: tuple[str, ...] = ("(a)",)
) -> Tried:
    place = ("r", problem_id, 1, "v")
    rollout = RolloutRow(*place, "", "", (1, 2), (5, 6), (-0.5, -0.25), finish, 0)
    return Tried(rollout, VerdictRow(*place, verdict, "why", None, None, (), plan, ""), (), Reward(reward, "why"))


def group(problem_id: str, *rewards: float | None) -> list[Tried]:
    return [tried(problem_id, "valid" if reward == 1 else "malformed_plan", reward) for reward in rewards]


# --- which problems


def asked(rule: FromGroups, update: int, state: Any, found: Sequence[Tried] = ()) -> list[str]:
    return [item.problem.problem_id for item in rule.questions(update, state, found)]


def test_updates_ask_the_problems_in_turn_from_where_the_last_one_ended() -> None:
    rule, order, state = rule_of(), [], None
    for update in range(1, 8):
        now = asked(rule, update, state)
        order += now
        found = [item for name in now for item in group(name, 1.0, 0.0)]
        assert asked(rule, update, state, found) == []
        state = rule.lesson(found, state).state
    assert order == 2 * [row.problem_id for row in PROBLEMS]


def test_problems_come_in_an_order_that_hangs_on_the_seed_of_the_run_alone() -> None:
    def order(problems: Sequence[SolvedProblemRow], seed: int) -> list[str]:
        return [row.problem_id for row in in_random_order(problems, seed, "x")]

    names = [row.problem_id for row in PROBLEMS]
    assert order(PROBLEMS, 1) == order(PROBLEMS[::-1], 1) != order(PROBLEMS, 2)
    assert sorted(order(PROBLEMS, 1)) == sorted(names) and order(PROBLEMS, 1) != names


def test_groups_of_equal_rewards_are_replaced_by_other_problems_until_there_are_enough() -> None:
    rule = rule_of(spare_problems=3)
    first = asked(rule, 1, None)
    found = [*group(first[0], 0.1, 0.1, 0.1), *group(first[1], 1.0, 0.0, 0.0)]
    [second] = asked(rule, 1, None, found)
    found += group(second, 0.0, None, 0.0)
    [third] = asked(rule, 1, None, found)
    found += group(third, 1.0, 1.0, 0.0)
    assert asked(rule, 1, None, found) == []
    assert len({*first, second, third}) == 4
    lesson = rule.lesson(found, None)
    assert lesson.state == {"asked": 4}
    assert len(lesson.sequences) == 6  # of the two groups that teach something
    assert (lesson.figures["group/asked"], lesson.figures["group/equal"]) == (4, 2)
    assert not {first[0], first[1], second, third} & set(asked(rule, 2, lesson.state))


def test_replacing_ends_with_the_budget() -> None:
    rule = rule_of(spare_problems=1)
    found = [item for name in asked(rule, 1, None) for item in group(name, 1.0, 1.0, 1.0)]
    [spare] = asked(rule, 1, None, found)
    found += group(spare, 1.0, 0.0, 0.0)
    assert asked(rule, 1, None, found) == []
    assert len(rule.lesson(found, None).sequences) == 3


def test_no_update_asks_a_problem_twice() -> None:
    rule = rule_of(problems_per_update=20, spare_problems=20)
    now = asked(rule, 1, None)
    assert sorted(now) == [row.problem_id for row in PROBLEMS]
    assert asked(rule, 1, None, [item for name in now for item in group(name, 0.0, 0.0)]) == []


# --- what is learnt


def test_lesson_of_a_group_has_the_advantages_and_what_the_engine_said() -> None:
    lesson = rule_of(weight_limit=2.0).lesson([*group("p0", 1.0, None, 0.0), *group("p1", 0.1, 0.1, 0.1)], None)
    sd = math.sqrt(0.5)
    first, second, *equal = lesson.sequences
    assert [s.columns[ADVANTAGE].tolist() for s in (first, second)] == [
        pytest.approx([0, 0, sign * 0.5 / (sd + 1e-4), sign * 0.5 / (sd + 1e-4)]) for sign in (1, -1)
    ]
    assert first.token_ids.tolist() == [1, 2, 5, 6]
    assert first.columns[ROLLOUT_LOGPROBS].tolist() == [0, 0, -0.5, -0.25]
    assert [s.columns[ADVANTAGE].tolist() for s in equal] == [[0.0] * 4] * 3  # they count in Z
    assert lesson.objective.columns == (RESPONSE_MASK, ROLLOUT_END, ADVANTAGE, ROLLOUT_LOGPROBS)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ("", "", False)),
        ({"beta": 0.04}, (REFERENCE_LOGPROBS, "", False)),
        ({"batch_sequences": 5}, ("", OLD_LOGPROBS, True)),
        ({"epochs": 2}, ("", OLD_LOGPROBS, True)),
        ({"batch_sequences": None, "batch_tokens": 1000}, ("", OLD_LOGPROBS, True)),
    ],
    ids=str,
)
def test_lesson_asks_for_those_log_probabilities_that_its_update_needs(changes: Any, expected: Any) -> None:
    rule = rule_of(temperature=0.5, top_p=0.9, **changes)
    lesson = rule.lesson(group("p0", 1.0, 0.0), None)
    objective: Any = lesson.objective
    assert (lesson.reference_column, lesson.old_column, objective.reads_old) == expected
    assert lesson.sampling == objective.sampling == rule.settings.sampling


@pytest.mark.parametrize("weight", [0.0, 0.25])
def test_failures_teach_as_much_as_they_are_to_and_successes_all_the_same(weight: float) -> None:
    rule = rule_of(advantage_scale="none", negative_weight=weight)
    lesson = rule.lesson(group("p0", 1.0, 0.0), None)
    assert [s.columns[ADVANTAGE].tolist()[2:] for s in lesson.sequences] == [[0.5] * 2, [-0.5 * weight] * 2]


def test_group_of_equal_rewards_teaches_by_the_mean_of_the_batch() -> None:
    rule = rule_of(advantage_scale="none", baseline="batch")
    lesson = rule.lesson([*group("p0", 1.0, 1.0), *group("p1", 0.0, 0.0)], None)
    assert [s.columns[ADVANTAGE].tolist()[-1] for s in lesson.sequences] == [0.5, 0.5, -0.5, -0.5]


@pytest.mark.parametrize("finish", ["length", "repetition"])
def test_cut_rollouts_count_in_their_group_and_teach_nothing_if_asked_for(finish: str) -> None:
    found = [tried("p0", "valid", 1.0), tried("p0", "valid", 0.0, finish=finish)]
    assert len(rule_of().lesson(found, None).sequences) == 2
    [kept] = rule_of(trains_cut=False, advantage_scale="none").lesson(found, None).sequences
    assert kept.columns[ADVANTAGE].tolist() == [0, 0, 0.5, 0.5]


def test_figures_tell_the_classes_of_rollouts_and_what_is_learnt_from_failures_alone() -> None:
    found = [
        tried("p0", "valid", 1.0), tried("p0", "goal_not_reached", 0.1, plan=()),
        tried("p1", "precondition_unsatisfied", -0.1), tried("p1", "valid", 0.0, finish="length"),
        tried("p2", "bad_input", None), tried("p2", "goal_not_reached", 0.1), tried("p2", "malformed_plan", 0.1),
        tried("p2", "malformed_plan", 0.1),
    ]  # fmt: skip
    found[3] = tried("p1", "malformed_plan", 0.0, finish="length")
    figures = rule_of(advantage_scale="none").lesson(found, None).figures
    shares = {name.removeprefix("rollout/share "): 8 * x for name, x in figures.items() if "share" in name}
    assert shares == {
        "valid": 1, "goal_not_reached": 2, "precondition_unsatisfied": 1, "malformed_plan": 2, "cut": 1, "unjudged": 1,
        "empty_plan": 1,
    }  # fmt: skip
    assert figures["group/advantage with a valid plan"] == pytest.approx(0.9)
    assert figures["group/advantage without a valid plan"] == pytest.approx(0.1)
    assert (figures["group/asked"], figures["group/equal"]) == (3, 1)


def test_rewards_are_those_of_the_table() -> None:
    rule = rule_of(rewards={"goal_not_reached": 0.0, "precondition_unsatisfied": 0.0})
    item = tried("p0", "goal_not_reached", None)
    assert rule.reward(item.rollout, item.verdict) == Reward(0.0, "why")


# --- what is refused


def test_start_that_solves_nothing_is_refused_and_later_bad_luck_is_not() -> None:
    with pytest.raises(BadInputError, match=r"solves nothing\n  got: no valid plan among 2 rollouts of 1 problems"):
        rule_of().lesson(group("p0", 0.1, 0.0), None)
    assert len(rule_of().lesson(group("p0", 0.1, 0.0), {"asked": 2}).sequences) == 2


def test_no_group_with_two_rewards_within_the_budget_is_an_error_of_dynamic_sampling_only() -> None:
    with pytest.raises(BadInputError, match="no group has two rewards"):
        rule_of(spare_problems=2).lesson(group("p0", 1.0, 1.0, None), None)
    assert len(rule_of().lesson(group("p0", 1.0, 1.0, None), None).sequences) == 2


def test_equal_rewards_within_the_budget_teach_nothing_where_a_start_may_be_cold_and_in_later_updates() -> None:
    for rule, state in (
        (rule_of(spare_problems=2), {"asked": 2}),
        (rule_of(spare_problems=2, may_start_cold=True), None),
    ):
        lesson = rule.lesson(group("p0", 0.0, 0.0, None), state)
        assert (lesson.sequences, lesson.figures["group/equal"]) == ([], 1)


def test_more_rollouts_without_a_reward_than_may_be_are_bad_input() -> None:
    found = group("p0", 1.0, 0.0, None, None)
    with pytest.raises(BadInputError, match="2 of 4; the last: why") as caught:
        rule_of(max_unjudged_share=0.4).lesson(found, None)
    assert caught.value.cure and "raise policy.max_model_len" in caught.value.cure
    assert len(rule_of(max_unjudged_share=0.5).lesson(found, None).sequences) == 2
    with pytest.raises(BadInputError, match="2 of 2; the last: why"):
        rule_of(max_unjudged_share=1.0).lesson(group("p0", None, None), {"asked": 2})


def test_weights_of_another_distribution_than_was_drawn_from_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"policy\.logprobs=raw with temperature=0\.5, top_p=1, top_k=0"):
        settings_of(weight_limit=2.0, temperature=0.5, logprobs="raw")
    for changes in ({"temperature": 1.0}, {"temperature": 0.5, "weight_limit": None}):
        settings_of(**{"weight_limit": 2.0, "logprobs": "raw", **changes})


# --- in the loop


class Killed(Exception):
    pass


@dataclass
class Recording(StandInTrainer):
    """Keeps what it was trained on, and dies when told."""

    taught: list[list[TrainingSequence]] = field(default_factory=list)
    began_with: list[float] = field(default_factory=list)
    dies_at: int = 0

    def optimise(self, objective: Any, sequences: Any, settings: OptimiserConfig, **options: Any) -> OptimisationReport:
        if len(self.taught) + 1 == self.dies_at:
            raise Killed
        self.taught.append(list(sequences))
        self.began_with.append(self.weight)
        self.weight += settings.learning_rate * float(sequences[0].columns[ADVANTAGE].sum())
        n, figures = len(sequences), {"loss": (1.0, 3.0), "ratio": (1.0, 1.5)}
        return OptimisationReport("group_relative", figures, (0.1, 0.1), (1.0, 1.0), n, 0, 0, 9 * n, 1.0, 9 * n, 1.0)

    def token_logprobs(
        self, sequences: Any, *, temperature: float = 1.0, top_p: float = 1.0, top_k: int = 0, as_trained: bool = False,
        weights: str | None = None,
    ) -> list[Any]:  # fmt: skip
        scale = np.float32(top_p * (1 + top_k) / temperature)
        return [scale * numbers for numbers in super().token_logprobs(sequences, weights=weights)]


def update(context: StageContext[GroupRelativeSettings]) -> None:
    run_updates(context, FromGroups(PROBLEMS, CountingJudge(), context.settings))


def run(root: Path, resources: StandInUpdates, settings: GroupRelativeSettings) -> Any:
    start = Stage(name="start", run=begin, seed=3)
    loop = Stage(name="loop", run=update, settings=settings, inputs={"policy": start}, seed=3)
    return run_stages([start, loop], root=root, resources=resources)["loop"]


def test_loop_asks_in_turns_reads_old_and_reference_and_records_what_the_objective_measures(tmp_path: Path) -> None:
    drawn: Any = {"temperature": 0.5, "top_p": 0.9, "top_k": 7}
    settings = settings_of(spare_problems=4, batch_sequences=2, beta=0.04, weight_limit=2.0, **drawn)
    trainer = Recording()
    made = run(tmp_path, StandInUpdates(held=trainer), settings)
    names = [path.stem for path in made.parts(ROLLOUTS)]
    assert {"update-000001", "update-000002", "update-000003"} < set(names), "a second turn somewhere"
    rows = [row for path in made.parts(ROLLOUTS) for row in read_table(path, RolloutRow)]
    assert len({row.seed for row in rows}) == len({row.rollout_id for row in rows}) == len(rows)
    assert [len(update) > 0 for update in trainer.taught] == [True] * 3
    for weight, sequences in zip(trainer.began_with, trainer.taught, strict=True):
        for sequence in sequences:
            assert set(sequence.columns) == {
                RESPONSE_MASK, ROLLOUT_END, ADVANTAGE, ROLLOUT_LOGPROBS, OLD_LOGPROBS, REFERENCE_LOGPROBS,
            }  # fmt: skip
            distance = len(sequence) - 1
            assert sequence.columns[OLD_LOGPROBS][-1] == pytest.approx((weight - distance) * 0.9 * 8 / 0.5)
            assert sequence.columns[REFERENCE_LOGPROBS][-1] == pytest.approx((1.0 - distance) / 0.5)
    assert len(set(trainer.began_with)) == 3, "the policy moved"
    found = {(row.iteration, row.name): row.value for row in made.rows(MetricRow, UPDATES)}
    assert [found[number, "group_relative/ratio"] for number in (1, 2, 3)] == [1.25] * 3
    assert found[2, "group/asked"] >= 2


def test_loop_that_dies_after_its_turns_asks_none_of_them_again(tmp_path: Path) -> None:
    settings = settings_of(spare_problems=4)
    calm = Recording()
    run(tmp_path / "calm", StandInUpdates(held=calm), settings)
    with pytest.raises(Killed):
        run(tmp_path / "killed", StandInUpdates(held=Recording(dies_at=1)), settings)
    again = Recording()
    resources = StandInUpdates(held=again)
    run(tmp_path / "killed", resources, settings)
    whole = StandInUpdates(held=Recording())
    run(tmp_path / "whole", whole, settings)
    assert len(resources.asked) < len(whole.asked)
    assert [[s.token_ids.tolist() for s in update] for update in again.taught] == [
        [s.token_ids.tolist() for s in update] for update in calm.taught
    ]
    assert again.weight == calm.weight


def test_key_of_the_stage_holds_the_code_of_its_rule_and_rewards() -> None:
    code = Stage(name="grpo", run=learn_from_groups).code
    assert {"pipelines.stages.group_relative", "plansmith.judging.rewards"} <= code.keys()
    assert {"plansmith.learning.group_relative", "plansmith.learning.objectives.group_relative"} <= code.keys()
