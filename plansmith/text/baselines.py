"""Prompts for instruct models that were never tuned here: the plan alone, or free reasoning and then the plan.

The baselines of table 1 of arXiv 2509.13351 are untrained models; the paper does not print their prompts. These are in
our own words. What such models answer is read by `loose_plans`; tuned policies have the renderings instead.
"""

from __future__ import annotations

from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.printer import print_domain, print_problem

FINAL_PLAN = "[FINAL PLAN]"

_TASK = (
    "Find a plan for the PDDL problem below: a sequence of actions of the domain that leads from the initial state to "
    "the goal."
)
PLAN_FORM = "one ground action a line in parentheses, such as (action-name object1 object2)"
ZERO_SHOT_INSTRUCTION = f"{_TASK} Answer with the plan alone, {PLAN_FORM}, and nothing else."
CHAIN_OF_THOUGHT_INSTRUCTION = (
    f"{_TASK} Think step by step: for each action, check its preconditions in the current state and work out the state "
    f"it leads to. End with the line {FINAL_PLAN} and below it the whole plan, {PLAN_FORM}, and nothing after it."
)
NARRATED_INSTRUCTION = (
    f"{_TASK} You may reason first, in words of your own. End with the line {FINAL_PLAN} and below it the whole plan, "
    f"{PLAN_FORM}, and nothing after it."
)


def zero_shot_prompt(task: PlanningTask) -> str:
    """Return the prompt that asks for the plan alone."""
    return _prompt(ZERO_SHOT_INSTRUCTION, task)


def chain_of_thought_prompt(task: PlanningTask) -> str:
    """Return the prompt that asks to think step by step and to end with the plan."""
    return _prompt(CHAIN_OF_THOUGHT_INSTRUCTION, task)


def narrated_prompt(task: PlanningTask) -> str:
    """Return the prompt that asks for the plan, after whatever its writer likes to say before."""
    return _prompt(NARRATED_INSTRUCTION, task)


def _prompt(instruction: str, task: PlanningTask) -> str:
    domain, problem = print_domain(task.domain).rstrip(), print_problem(task.problem).rstrip()
    return f"{instruction}\n\nDomain:\n{domain}\n\nProblem:\n{problem}\n"
