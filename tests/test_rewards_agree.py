"""Rewards beside `plansmith validate`, on 2,000 completions in ten domains, half of them with every name hidden."""

from __future__ import annotations

import random
from collections import Counter

from conftest import random_walk

from plansmith.config.reinforcement import RewardConfig
from plansmith.data.rows import CompletionRow, FinishReason, JudgingRow
from plansmith.judging.judge import PlanJudge
from plansmith.judging.rewards import VerdictRewards
from plansmith.pddl.cases import judge_texts
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import PlanStep
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.pddl.simulation import random_walk_to_goal
from plansmith.problems.library import load_domain
from plansmith.text.anonymisation import anonymise
from plansmith.text.plans import compact_plan, numbered_plan

DOMAINS = ("ferry", "floor-tile", "blocksworld", "childsnack", "spanner", "satellite", "maintenance", "parking",
           "transport", "miconic")  # fmt: skip
N_PROBLEMS, N_PLANS = 10, 20
REWARDS = RewardConfig(valid=1.0, goal_not_reached=0.1, precondition_unsatisfied=-0.1, malformed_plan=-0.5, cut=-0.7)
"""Every one another, so that no two verdicts are taken for each other."""


def completions(task: PlanningTask, rng: random.Random) -> list[tuple[PlanStep, ...]]:
    """Return plans of all kinds: walks, some to the goal, walks with a step left out, swapped, or of another domain."""
    found: list[tuple[PlanStep, ...]] = []
    for number in range(N_PLANS):
        walk, _ = random_walk_to_goal(task, 12, rng) if number % 2 else (random_walk(task, 6, rng), False)
        steps = list(walk)
        if number % 4 >= 2 and steps:
            place = rng.randrange(len(steps))
            steps[place : place + 1] = [PlanStep("fly", steps[place].arguments)] if number % 8 == 6 else []
        if number % 5 == 4:
            rng.shuffle(steps)
        found.append(tuple(steps))
    return found


def test_rewards_agree_with_validate_on_2000_completions_names_hidden_or_not() -> None:
    seen: Counter[float | None] = Counter()
    for name in DOMAINS:
        loaded = load_domain(name)
        for number in range(N_PROBLEMS):
            rng = random.Random(f"{name} {number}")
            task, is_numbered = PlanningTask(loaded.domain, loaded.sample(loaded.levels[0], rng)), number % 2 == 0
            plans = completions(task, rng)
            if number % 4 >= 2:
                every_step = tuple(step for plan in plans for step in plan)
                hidden = anonymise(task.domain, task.problem, every_step, rng)
                task, plans = PlanningTask(hidden.domain, hidden.problem), list(map(hidden.names.rename_plan, plans))
            texts = print_domain(task.domain), print_problem(task.problem)
            write = numbered_plan if is_numbered else compact_plan
            rows = tuple(CompletionRow(str(place), 0, "v", write(plan)) for place, plan in enumerate(plans))
            judge = PlanJudge("plan_numbered" if is_numbered else "plan_compact")
            for plan, verdict in zip(plans, judge.judge(JudgingRow("p", *texts, rows)).verdicts, strict=True):
                reward = VerdictRewards(REWARDS).reward(verdict, FinishReason.STOP).value
                said = judge_texts(*texts, "\n".join(map(str, plan))).verdict
                assert reward == getattr(REWARDS, said.verdict), (name, number, plan, said.reason)
                seen[reward] += 1
    assert seen.total() == 2000
    assert min(seen[value] for value in (1.0, 0.1, -0.1, -0.5)) >= 20
