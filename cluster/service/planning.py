"""The planning service without HTTP and without Ray: a problem comes in, a plan that our validator accepted goes out.

The policy is asked first. A plan of its that is not valid goes back to it with the validator's feedback, up to a limit
(LLM-Modulo, arXiv 2402.01817); then a planner is asked. Both are reached through protocols, so that this file knows
neither vLLM nor Fast Downward nor the other actors; `cluster.service.app` wires them. Not here: limits on size and on
concurrent requests, which are the business of whoever lets requests in.

An outcome (unsolvable, out of time) is a value. What a policy writes is only ever read as a chain of thought.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from cluster.service.answer import Course, PddlRejectedError, PlanAnswer, PlanRequest, PlanSource, PlanStatus
from cluster.service.answer import ServiceUnavailableError as ServiceUnavailableError
from cluster.service.view import PolicyCard, PolicyView, view_of
from plansmith.data.drawing import problem_id_of
from plansmith.errors import BadInputError, PddlParseError
from plansmith.generation import Completion, Conversation, FinishReason, asking
from plansmith.judging.chains import JudgedChain, attempt_of, judge_completion
from plansmith.pddl.cases import read_task
from plansmith.pddl.diagnosis import diagnose
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import parse_step
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.pddl.validation import PlanVerdict, validate_plan
from plansmith.planners import PlannerResult, PlannerStatus
from plansmith.problems.renaming import rename_plan
from plansmith.stages import row_seed
from plansmith.text.explanations import FeedbackKind
from plansmith.text.rendering import Prompting, is_rendering, prompting_of, rendering_of

logger = logging.getLogger(__name__)

DOMAIN_SOURCE, PROBLEM_SOURCE = "domain", "problem"
"""What diagnostics call the two texts of a request."""

PLANNER_GRACE_S = 2.0
"""How long an answer of the planner may be late before the call is given up; the planner keeps the limit itself."""

OUTCOMES = {
    PlannerStatus.UNSOLVABLE: (PlanStatus.UNSOLVABLE, "the planner proved that there is no plan"),
    PlannerStatus.OUT_OF_TIME: (PlanStatus.OUT_OF_TIME, "the planner ran out of time"),
    PlannerStatus.OUT_OF_MEMORY: (PlanStatus.OUT_OF_MEMORY, "the planner ran out of memory"),
    PlannerStatus.GAVE_UP: (PlanStatus.NOT_SOLVED, "the planner found neither a plan nor a proof that there is none"),
    PlannerStatus.UNSUPPORTED: (PlanStatus.NOT_SOLVED, "the planner does not support this problem"),
    PlannerStatus.CRASHED: (PlanStatus.NOT_SOLVED, "the planner crashed"),
}


class PolicyPort(Protocol):
    """Reaches the policy."""

    @property
    def card(self) -> PolicyCard:
        """Return what is known of it."""
        ...

    async def complete(self, messages: Conversation, *, seed: int) -> Completion:
        """Return its answer to a conversation.

        Raises:
            ServiceUnavailableError: it cannot be reached.
        """
        ...


class PlannerPort(Protocol):
    """Reaches the planner."""

    async def solve(self, domain_pddl: str, problem_pddl: str, *, time_limit_s: float) -> PlannerResult:
        """Return the outcome of one problem; a cancelled call ends the search.

        Raises:
            ServiceUnavailableError: it cannot be reached.
        """
        ...


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """How the service divides its work.

    Attributes:
        policy_time_share: of a request's time limit, where the planner may still have to be asked.
        feedback: what a failed plan goes back with.
    """

    policy_time_share: float = 0.5
    feedback: FeedbackKind = FeedbackKind.DETAILED
    seed: int = 0


class PlanningService:
    """Plans; holds nothing between requests. Reading and judging run in threads, so that the event loop stays free.

    Args:
        planner: asked where the policy has no plan.
        policy: None for a service that has a planner only.
        settings: how the work is divided.
    """

    def __init__(
        self, planner: PlannerPort, policy: PolicyPort | None = None, *, settings: ServiceSettings | None = None
    ) -> None:
        self._planner, self._policy = planner, policy
        self._settings = settings or ServiceSettings()

    async def plan(self, request: PlanRequest) -> PlanAnswer:
        """Return what a request came to.

        Raises:
            PddlRejectedError: domain or problem cannot be used.
            BadInputError: an action that the plan names has more instances of quantifiers than can be expanded.
            ServiceUnavailableError: there is no plan, and policy or planner could not be reached.
        """
        course = Course(request)
        with course.measuring("reading_s"):
            task = await asyncio.to_thread(_read, request)
            course.problem_id = problem_id_of(print_domain(task.domain), print_problem(task.problem))
        if task.is_goal(task.initial_state):
            return course.solved(task, validate_plan(task, ()), reason="the goal holds from the start")
        if self._policy is None:
            course.reason = "this service has no policy"
        elif answer := await self._ask_policy(course, task, self._policy):
            return answer
        if not request.fallback:
            return course.answer(PlanStatus.OUT_OF_TIME if course.is_late else PlanStatus.NOT_SOLVED)
        return await self._ask_planner(course, task)

    async def _ask_policy(self, course: Course, task: PlanningTask, policy: PolicyPort) -> PlanAnswer | None:
        """Return an answer with a plan of the policy; None, with the reason in the course, where it found none."""
        course.policy_version = policy.card.policy_version
        view = view_of(task, policy.card, seed=self._settings.seed, problem_id=course.problem_id)
        if isinstance(view, str):
            course.reason = view
            return None
        share = self._settings.policy_time_share if course.request.fallback else 1.0
        try:
            async with asyncio.timeout(course.left_s * share):
                return await self._turns(course, task, view, policy)
        except TimeoutError:
            course.is_late, course.reason = True, f"the policy had no plan after {course.timings['policy_s']:.1f} s"
        except ServiceUnavailableError as error:
            if not course.request.fallback:
                raise
            logger.warning("the policy cannot be reached: %s", error)
            course.reason = "the policy cannot be reached"
        except BadInputError as error:  # the compact rendering tells conjunctions only
            course.reason = f"the policy could not be asked: {error.message}"
        return None

    async def _turns(
        self, course: Course, task: PlanningTask, view: PolicyView, policy: PolicyPort
    ) -> PlanAnswer | None:
        """Ask until a plan is valid; each further prompt hands the last attempt back."""
        prompting = prompting_of(policy.card.prompting)
        n_turns = 1 + course.request.max_feedback_turns if is_rendering(prompting) else 1
        prompt = prompting.plan_prompt(view.task)
        for turn in range(n_turns):
            seed = row_seed(self._settings.seed, "serve", course.problem_id, turn) % 2**31
            with course.measuring("policy_s"):
                completion = await policy.complete(asking(prompt), seed=seed)
            if completion.text is None:
                raise ServiceUnavailableError("the policy gave no answer", got=completion.fault)
            course.policy_version = completion.policy_version
            if completion.finish_reason == FinishReason.NO_ROOM:
                course.reason = f"the prompt does not fit into the policy's {policy.card.max_model_len} tokens"
                break
            with course.measuring("validation_s"):
                judged, verdict = await asyncio.to_thread(_judge, completion.text, task, view, prompting)
            course.judged(task, verdict)
            if verdict.is_valid:
                return course.solved(
                    task, verdict, PlanSource.POLICY, reason=None, **_chain(completion.text, judged, view)
                )
            if turn + 1 < n_turns:
                rendering = rendering_of(prompting.name)
                attempt = rendering.write_attempt(attempt_of(view.task, judged), self._settings.feedback)
                prompt = rendering.correct_prompt(view.task, attempt)
        return None

    async def _ask_planner(self, course: Course, task: PlanningTask) -> PlanAnswer:
        left_s, texts = course.left_s, (print_domain(task.domain), print_problem(task.problem))
        if left_s == 0:
            return course.answer(PlanStatus.OUT_OF_TIME)
        try:
            with course.measuring("planner_s"):
                async with asyncio.timeout(left_s + PLANNER_GRACE_S):
                    result = await self._planner.solve(*texts, time_limit_s=left_s)
        except TimeoutError:
            return course.answer(PlanStatus.OUT_OF_TIME, reason="the planner had no time left")
        if result.plan is None:
            status, reason = OUTCOMES[result.status]
            if result.message and status is PlanStatus.NOT_SOLVED:
                logger.warning("problem %s: the planner: %s: %s", course.problem_id, result.status, result.message)
            return course.answer(status, reason=reason)
        with course.measuring("validation_s"):
            verdict = await asyncio.to_thread(_verdict_on, task, result.plan)
        if not isinstance(verdict, str) and verdict.is_valid:
            return course.solved(task, verdict, PlanSource.PLANNER)
        # one of planner and validator is wrong
        logger.error("problem %s: the planner's plan: %s", course.problem_id, getattr(verdict, "reason", verdict))
        return course.answer(PlanStatus.NOT_SOLVED, reason="the validator refused the planner's plan")


def _read(request: PlanRequest) -> PlanningTask:
    """Return the task of a request.

    Raises:
        PddlRejectedError: with every mistake in both texts, or with the one thing that cannot be grounded.
    """
    domain, problem = request.domain, request.problem
    task = read_task(domain, problem, domain_source=DOMAIN_SOURCE, problem_source=PROBLEM_SOURCE)
    if not isinstance(task, PlanningTask):
        found = diagnose(domain, problem, domain_source=DOMAIN_SOURCE, problem_source=PROBLEM_SOURCE)
        raise PddlRejectedError("domain or problem cannot be used", diagnostics=found)
    try:
        task.is_goal(task.initial_state)
    except BadInputError as error:  # quantifiers with more instances than can be expanded
        raise PddlRejectedError(
            error.message, where=error.where, got=error.got, expected=error.expected, cure=error.cure
        ) from error
    return task


def _judge(text: str, task: PlanningTask, view: PolicyView, prompting: Prompting) -> tuple[JudgedChain, PlanVerdict]:
    """Return the judgement of a completion, and the verdict on its plan under the names of the request."""
    judged = judge_completion(view.task, text, prompting)
    if judged.read.fault is not None or judged.read.chain.final_plan is None:
        return judged, replace(judged.plan, plan=())
    return judged, validate_plan(task, rename_plan(judged.plan.plan, view.object_of))


def _chain(text: str, judged: JudgedChain, view: PolicyView) -> dict[str, Any]:
    fault = judged.first_fault
    return {"chain": view.in_own_names(text), "chain_first_fault": None if fault is None else fault + 1}


def _verdict_on(task: PlanningTask, plan: Sequence[str]) -> PlanVerdict | str:
    """Return the verdict on a planner's plan, or why it cannot be read."""
    try:
        return validate_plan(task, [parse_step(step) for step in plan])
    except PddlParseError as error:
        return str(error)
