"""Rewards beside `plansmith validate`, on 2,000 completions in ten domains, half of them with every name hidden."""

from __future__ import annotations

import random
import re
import string
from collections import Counter
from dataclasses import replace

from conftest import random_walk

from plansmith.config.reinforcement import RewardConfig
from plansmith.data.rows import CUT, CompletionRow, FinishReason, JudgingRow
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


def wrong_arity(plan: tuple[PlanStep, ...], rng: random.Random) -> tuple[PlanStep, ...]:
    """Return the plan, its first step with an argument less, or with one twice."""
    if not plan:
        return plan
    names = plan[0].arguments
    return replace(plan[0], arguments=names[1:] if rng.random() < 0.5 else names + names[:1]), *plan[1:]


def no_plan(text: str, number: int, rng: random.Random, *, is_numbered: bool) -> str:
    """Return what is no plan of its form: noise, another end, or stray brackets."""
    if number % 3 == 0:
        return ":" + "".join(rng.choices(string.printable, k=30))
    if number % 3 == 1:
        return text.removesuffix("END\n") if is_numbered else f"{text}END\n"
    return text.replace("(", "", 1) if is_numbered and "(" in text else f"({text}"


def in_words_of_validate(text: str, *, is_numbered: bool) -> str:
    """Return a completion as the file that `plansmith validate` reads: its steps in brackets, a line each."""
    if is_numbered:
        return re.sub(r"(?m)^\d+: ", "", text.removesuffix("END\n"))
    return "".join(f"({line})\n" for line in text.splitlines())


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
            domain, problem = print_domain(task.domain), print_problem(task.problem)
            answers = [answer(plan, place, rng, is_numbered=is_numbered) for place, plan in enumerate(plans)]
            rows = tuple(CompletionRow(str(place), 0, "v", text, is_cut=reason in CUT)
                         for place, (text, reason, _) in enumerate(answers))  # fmt: skip
            judge = PlanJudge("plan_numbered" if is_numbered else "plan_compact")
            found = judge.judge(JudgingRow("p", domain, problem, rows)).verdicts
            for (text, finish_reason, expected), verdict in zip(answers, found, strict=True):
                reward = VerdictRewards(REWARDS).reward(verdict, finish_reason).value
                if expected is None:
                    plan = in_words_of_validate(text, is_numbered=is_numbered)
                    expected = judge_texts(domain, problem, plan).verdict.verdict
                assert reward == getattr(REWARDS, expected), (name, number, text, verdict.reason)
                seen[reward] += 1
    assert seen.total() == 2000
    assert min(seen[value] for value in REWARDS.model_dump().values()) >= 20


def answer(
    plan: tuple[PlanStep, ...], number: int, rng: random.Random, *, is_numbered: bool
) -> tuple[str, FinishReason, str | None]:
    """Return what a policy says, why it ended, and what that is where `validate` is not asked: no plan, or cut."""
    write = numbered_plan if is_numbered else compact_plan
    if number in (6, 13):
        return write(wrong_arity(plan, rng)), FinishReason.STOP, None
    if number in (3, 10, 17):
        return no_plan(write(plan), number // 3, rng, is_numbered=is_numbered), FinishReason.STOP, "malformed_plan"
    if number in (5, 15):
        text = write(plan)
        return text[: rng.randrange(len(text) + 1)], rng.choice((FinishReason.LENGTH, FinishReason.REPETITION)), "cut"
    if number == 8 and not is_numbered:
        return "i would go there first\n", FinishReason.STOP, None
    return write(plan), FinishReason.STOP, None
