"""Equations 4 to 9 of PDDL-INSTRUCT (arXiv:2509.13351, appendix A.2) exactly as printed, on plain numbers.

They are functions of decoded states and verdicts and have no gradient; they are what is logged for every iteration.
What is differentiated instead is in `losses`. No torch here.
"""

from __future__ import annotations

import math

from plansmith.config.training import LossConfig
from plansmith.pddl.validation import FeedbackCode

SMALLEST_PROBABILITY = 1e-7


def feedback_penalty(code: FeedbackCode, weights: LossConfig, *, is_binary: bool = False) -> float:
    """Return L_feedback (equation 7).

    Where we add to the paper: under binary feedback the class of a fault is not known, so every fault costs
    ``alpha_any``. A step that names no ground action, and one whose transition is right and which says something false
    of the state before it, cost what an unsatisfied precondition does; one that is withdrawn costs nothing.
    """
    if not code.is_fault:
        return 0.0
    if is_binary:
        return weights.alpha_any
    return {
        FeedbackCode.PRECONDITION: weights.alpha_precond,
        FeedbackCode.MALFORMED: weights.alpha_precond,
        FeedbackCode.CLAIM: weights.alpha_precond,
        FeedbackCode.EFFECT: weights.alpha_effect,
        FeedbackCode.GOAL: weights.alpha_goal,
    }[code]


def step_loss(state_distance: int, code: FeedbackCode, weights: LossConfig, *, is_binary: bool = False) -> float:
    """Return L_step = d_state + lambda_feedback * L_feedback (equation 5); the validator gives d_state (equation 6)."""
    return state_distance + weights.lambda_feedback * feedback_penalty(code, weights, is_binary=is_binary)


def binary_cross_entropy(v: int, v_hat: float) -> float:
    """Return BCE(v, v_hat); v_hat is kept 1e-7 away from 0 and 1 so that the result is finite."""
    if v not in (0, 1):
        raise ValueError(f"v must be 0 or 1, got {v}")
    if not 0.0 <= v_hat <= 1.0:
        raise ValueError(f"v_hat must be a probability, got {v_hat}")
    probability = min(max(v_hat, SMALLEST_PROBABILITY), 1.0 - SMALLEST_PROBABILITY)
    return -math.log(probability if v == 1 else 1.0 - probability)


def plan_loss(v: int, v_hat: float | None, weights: LossConfig) -> float:
    """Return L_plan = 1[v=0] * beta + alpha * BCE(v, v_hat) (equation 9).

    Where the paper is silent: a policy that states no verdict has no v_hat, and the BCE term is left out; such plans
    are to be counted beside the mean.
    """
    penalty = weights.beta if v == 0 else 0.0
    return penalty if v_hat is None else penalty + weights.alpha * binary_cross_entropy(v, v_hat)
