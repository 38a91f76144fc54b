"""What a judged completion is worth to a policy gradient: a number, or None where nobody could judge.

None is never a number: a completion that could not be judged takes no part in a baseline or an advantage, it is counted
instead. Not here: baselines and advantages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from plansmith.config.reinforcement import RewardConfig
from plansmith.data.rows import FinishReason, VerdictRow
from plansmith.pddl.validation import Verdict

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reward:
    """The worth of one completion; ``reason`` says why it is this, or why there is none."""

    value: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class VerdictRewards:
    """A reward for each verdict, by a table."""

    table: RewardConfig = field(default_factory=RewardConfig)

    def reward(self, row: VerdictRow, finish_reason: str) -> Reward:
        """Return the reward of a judged rollout; None where the policy had no room to answer or the input is at fault.

        A rollout that its limit ended has the reward of that, whatever plan can be read in what there is of it.

        Raises:
            ValueError: no such verdict.
        """
        if finish_reason == FinishReason.NO_ROOM:
            return Reward(None, "the prompt left no room for an answer")
        if Verdict(row.verdict) is Verdict.BAD_INPUT:
            return Reward(None, row.reason)
        if finish_reason == FinishReason.REPETITION:
            return Reward(self.table.cut, "went in circles")
        if finish_reason == FinishReason.LENGTH:
            return Reward(self.table.cut, "cut at the limit of tokens")
        return Reward(getattr(self.table, row.verdict), row.reason)


def rewarded(items: Sequence[T], rewards: Sequence[Reward]) -> tuple[list[tuple[T, float]], Mapping[str, int]]:
    """Return the items that have a reward, with it, and how many have none, by reason.

    Raises:
        ValueError: there are more of the one than of the other.
    """
    kept = []
    left_out: dict[str, int] = {}
    for item, reward in zip(items, rewards, strict=True):
        if reward.value is None:
            left_out[reward.reason] = left_out.get(reward.reason, 0) + 1
        else:
            kept.append((item, reward.value))
    return kept, left_out
