"""What the planning service is asked and what it answers, and the course of one request from the one to the other.

A part of `cluster.service.planning`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from plansmith.errors import BadInputError, PlansmithError
from plansmith.pddl.cases import JudgedCase
from plansmith.pddl.diagnostics import Diagnostic
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.validation import PlanVerdict

TIMINGS = ("reading_s", "policy_s", "validation_s", "planner_s")


class PlanStatus(StrEnum):
    """What a request came to."""

    SOLVED = "solved"
    UNSOLVABLE = "unsolvable"
    """Proven by the planner: there is no plan."""
    OUT_OF_TIME = "out_of_time"
    OUT_OF_MEMORY = "out_of_memory"
    NOT_SOLVED = "not_solved"
    """No plan and no proof: the planner was not to be asked, or gave up; ``reason`` says which."""


class PlanSource(StrEnum):
    """Who wrote the plan."""

    POLICY = "policy"
    PLANNER = "planner"


class ServiceUnavailableError(PlansmithError):
    """Policy or planner cannot be reached; the same request may succeed later."""


class PddlRejectedError(BadInputError):
    """Domain or problem cannot be used; ``diagnostics`` lists every mistake in both, as far as they could be read."""

    def __init__(self, message: str, *, diagnostics: Sequence[Diagnostic] = (), **details: str | None) -> None:
        super().__init__(message, **details)
        self.diagnostics = tuple(diagnostics)


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A problem with its limits.

    Attributes:
        time_limit_s: wall-clock seconds for everything.
        max_feedback_turns: how often a failed plan may go back to the policy.
        fallback: whether the planner is asked when the policy found no plan.
    """

    domain: str
    problem: str
    time_limit_s: float
    max_feedback_turns: int
    fallback: bool


@dataclass(frozen=True, slots=True)
class PlanAnswer:
    """What a request came to; the plan is there exactly when ``SOLVED``, and the validator has accepted it.

    Attributes:
        plan: ground actions under the names of the request.
        cost: by the problem's metric.
        source: None also where the goal holds from the start, so that nobody was asked.
        chain: the policy's chain of thought, under the names of the request; None for a planner's plan.
        chain_first_fault: the first step, from 1, that the chain tells wrongly, which a valid plan allows.
        turns: the verdict on each answer of the policy.
        verdict: on the plan, or on the policy's last attempt, as ``plansmith validate --json`` writes it.
        reason: why there is no plan, or why the policy did not find it.
        timings: seconds of each kind of work (`TIMINGS`), ``total_s``, and in a reply ``queued_s`` before it began.
    """

    problem_id: str
    status: PlanStatus
    plan: tuple[str, ...] | None
    cost: float | None
    source: PlanSource | None
    chain: str | None
    chain_first_fault: int | None
    turns: tuple[str, ...]
    verdict: Mapping[str, Any] | None
    reason: str | None
    timings: Mapping[str, float]
    policy_version: str | None

    def __post_init__(self) -> None:
        if (self.status is PlanStatus.SOLVED) != (self.plan is not None):
            raise ValueError(f"status {self.status.name} does not fit plan={self.plan!r}")


@dataclass
class Course:
    """A request on its way: how much time is left, and what the policy made of it so far."""

    request: PlanRequest
    start_s: float = field(default_factory=time.perf_counter)
    timings: dict[str, float] = field(default_factory=lambda: dict.fromkeys(TIMINGS, 0.0))
    problem_id: str = ""
    turns: list[str] = field(default_factory=list)
    last: JudgedCase | None = None
    reason: str | None = None
    is_late: bool = False
    policy_version: str | None = None

    @property
    def left_s(self) -> float:
        """Return the seconds until the request's limit, 0 at least."""
        return max(0.0, self.request.time_limit_s - (time.perf_counter() - self.start_s))

    @contextmanager
    def measuring(self, name: str) -> Iterator[None]:
        """Add the time of a block to a timing."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.timings[name] += time.perf_counter() - start

    def judged(self, task: PlanningTask, verdict: PlanVerdict) -> None:
        """Note the verdict on an answer of the policy."""
        self.turns.append(verdict.verdict.value)
        self.last, self.reason = JudgedCase(verdict, task), f"the policy's last plan: {verdict.reason}"

    def solved(
        self, task: PlanningTask, verdict: PlanVerdict, source: PlanSource | None = None, **more: Any
    ) -> PlanAnswer:
        """Return the answer with the plan of a verdict, the only way in which one gets out.

        Raises:
            RuntimeError: the verdict is not that the plan is valid; a bug of the caller.
        """
        if not verdict.is_valid:
            raise RuntimeError(f"an invalid plan was about to be returned: {verdict.reason}")
        self.last = JudgedCase(verdict, task)
        plan, cost = tuple(map(str, verdict.plan)), None if verdict.cost is None else float(verdict.cost)
        return self.answer(PlanStatus.SOLVED, plan=plan, cost=cost, source=source, **more)

    def answer(self, status: PlanStatus, **more: Any) -> PlanAnswer:
        """Return the answer with everything that is known whatever the outcome."""
        values: dict[str, Any] = dict.fromkeys(("plan", "cost", "source", "chain", "chain_first_fault"))
        values |= {
            "problem_id": self.problem_id,
            "turns": tuple(self.turns),
            "verdict": None if self.last is None else self.last.to_row(),
            "reason": self.reason,
            "timings": {**self.timings, "total_s": time.perf_counter() - self.start_s},
            "policy_version": self.policy_version,
        }
        return PlanAnswer(status=status, **(values | more))
