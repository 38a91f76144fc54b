"""The planning service with hand-written policies and planners: what comes out, and what never does."""

from __future__ import annotations

import asyncio
import pickle
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from conftest import BLOCKS, BLOCKS_TEXT, NAMES, SUSSMAN_PLAN, random_problem, random_walk, sussman
from hypothesis import given
from hypothesis import strategies as st

from cluster.service.answer import Course, PddlRejectedError, PlanAnswer, PlanRequest, PlanSource, PlanStatus
from cluster.service.planning import PlanningService, ServiceSettings, ServiceUnavailableError
from cluster.service.view import PolicyCard, view_of
from plansmith.config.generation import SamplingConfig
from plansmith.data.drawing import problem_id_of
from plansmith.generation import Completion, Conversation
from plansmith.judging.chains import attempt_of, judge_completion
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import parse_plan
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.pddl.validation import validate_plan
from plansmith.planners import PlannerResult, PlannerStatus
from plansmith.problems.renaming import rename_plan
from plansmith.text.chains import chain_of_plan
from plansmith.text.compact import MARKERS, CompactRendering, write_literals
from plansmith.text.explanations import FeedbackKind

SUSSMAN = print_problem(sussman().problem)
PLAN = tuple(map(str, SUSSMAN_PLAN))
COMPACT = CompactRendering()
CHAIN = COMPACT.write_chain(chain_of_plan(sussman(), SUSSMAN_PLAN))
WRONG = "final: pick-up b stack b c verdict: VALID"
"""Reaches half of the goal."""
PREDICATES = {"on", "ontable", "clear", "handempty", "holding"}
DOMAIN_WORDS = {"blocksworld", "pick-up", "put-down", "stack", "unstack"} | PREDICATES | {f"{p}?" for p in PREDICATES}
WORDS = frozenset({*MARKERS, "VALID", "INVALID", "=", "=?", "<pad>", "<end>", "<unknown>", *DOMAIN_WORDS, *NAMES})
CARD = PolicyCard("v1", "compact", 1536, SamplingConfig(max_new_tokens=900), words=WORDS)
SOLVED = PlannerResult(PlannerStatus.SOLVED, PLAN, 6.0, 0.01)


@dataclass
class ScriptedPolicy:
    """Says one text after the other; without any left it never answers."""

    texts: Sequence[str]
    card: PolicyCard = CARD
    finish_reason: str = "stop"
    prompts: list[str] = field(default_factory=list)

    async def complete(self, messages: Conversation, *, seed: int) -> Completion:
        """Return the next text."""
        [message] = messages
        self.prompts.append(message.text)
        if len(self.prompts) > len(self.texts):
            await asyncio.Event().wait()
        return Completion(self.texts[len(self.prompts) - 1], self.finish_reason, self.card.policy_version, seed)


@dataclass
class LostPolicy:
    """Cannot be reached."""

    card: PolicyCard = CARD

    async def complete(self, messages: Conversation, *, seed: int) -> Completion:
        """Raise."""
        raise ServiceUnavailableError("gone")


@dataclass
class ScriptedPlanner:
    """Gives one result to every problem; without one it never answers."""

    result: PlannerResult | None = SOLVED
    limits_s: list[float] = field(default_factory=list)

    async def solve(self, domain_pddl: str, problem_pddl: str, *, time_limit_s: float) -> PlannerResult:
        """Return the result."""
        self.limits_s.append(time_limit_s)
        if self.result is None:
            await asyncio.Event().wait()
        assert self.result is not None
        return self.result


class LostPlanner:
    """Cannot be reached."""

    async def solve(self, domain_pddl: str, problem_pddl: str, *, time_limit_s: float) -> PlannerResult:
        """Raise."""
        raise ServiceUnavailableError("gone")


def ask(
    policy: ScriptedPolicy | LostPolicy | None,
    planner: ScriptedPlanner | LostPlanner,
    problem: str = SUSSMAN,
    *,
    domain: str = BLOCKS_TEXT,
    turns: int = 1,
    fallback: bool = True,
    time_limit_s: float = 60.0,
    settings: ServiceSettings | None = None,
) -> PlanAnswer:
    """Return what one request comes to."""
    service = PlanningService(planner, policy, settings=settings)
    return asyncio.run(service.plan(PlanRequest(domain, problem, time_limit_s, turns, fallback)))


def renamed(text: str, **names: str) -> str:
    """Return a PDDL problem with other names for its objects."""
    words = text.replace("(", " ( ").replace(")", " ) ").split()
    return " ".join(names.get(word, word) for word in words)


def test_plan_policy_right_at_once_returns_its_plan_and_chain_and_asks_no_planner() -> None:
    planner = ScriptedPlanner()
    answer = ask(ScriptedPolicy([CHAIN]), planner)
    assert (answer.status, answer.source, answer.plan, answer.cost) == (PlanStatus.SOLVED, PlanSource.POLICY, PLAN, 6.0)
    assert (answer.chain, answer.chain_first_fault, answer.turns) == (CHAIN, None, ("valid",))
    assert (answer.reason, answer.policy_version, planner.limits_s) == (None, "v1", [])
    assert answer.verdict is not None
    assert (answer.verdict["verdict"], answer.verdict["plan_length"]) == ("valid", 6)
    assert set(answer.timings) == {"reading_s", "policy_s", "validation_s", "planner_s", "total_s"}


def test_plan_policy_wrong_then_right_hands_the_attempt_back_with_feedback() -> None:
    policy = ScriptedPolicy([WRONG, CHAIN])
    answer = ask(policy, ScriptedPlanner())
    attempt = attempt_of(sussman(), judge_completion(sussman(), WRONG, COMPACT))
    assert policy.prompts[0] == COMPACT.plan_prompt(sussman())
    assert policy.prompts[1] == COMPACT.correct_prompt(sussman(), COMPACT.write_attempt(attempt, FeedbackKind.DETAILED))
    assert (answer.source, answer.turns) == (PlanSource.POLICY, ("goal_not_reached", "valid"))


@pytest.mark.parametrize("garbage", ["", "no plan at all", "final: fly a b verdict: VALID", "final: verdict: VALID",
                                     "import os\x00; ../../etc/passwd"])  # fmt: skip
def test_plan_policy_writes_garbage_until_the_limit_then_the_planner_solves(garbage: str) -> None:
    policy = ScriptedPolicy([garbage] * 3)
    answer = ask(policy, ScriptedPlanner(), turns=2)
    assert (answer.source, answer.plan, answer.chain, len(answer.turns)) == (PlanSource.PLANNER, PLAN, None, 3)
    assert "valid" not in answer.turns
    assert answer.reason is not None
    assert answer.reason.startswith("the policy's last plan: ")


def test_plan_policy_wrong_without_fallback_is_not_solved_and_shows_the_verdict() -> None:
    planner = ScriptedPlanner()
    answer = ask(ScriptedPolicy([WRONG]), planner, turns=0, fallback=False)
    assert (answer.status, answer.plan, answer.source, answer.cost) == (PlanStatus.NOT_SOLVED, None, None, None)
    assert answer.verdict is not None
    assert (answer.verdict["verdict"], answer.verdict["unsatisfied"]) == ("goal_not_reached", ["(on a b)"])
    assert planner.limits_s == []


def test_plan_valid_plan_under_a_wrong_chain_says_where_the_chain_is_wrong() -> None:
    chain = CHAIN.replace("now: ", "now: handempty ", 1)  # the hand holds c then
    answer = ask(ScriptedPolicy([chain]), ScriptedPlanner())
    assert (answer.source, answer.chain_first_fault) == (PlanSource.POLICY, 1)


@pytest.mark.parametrize("plan", [PLAN[:-1], (*PLAN[1:], PLAN[0]), ("(fly a)",), ("not a step",)],
                         ids=["short", "disordered", "unknown", "unreadable"])  # fmt: skip
def test_plan_of_the_planner_that_the_validator_refuses_is_never_returned(plan: tuple[str, ...]) -> None:
    planner = ScriptedPlanner(PlannerResult(PlannerStatus.SOLVED, plan, 6.0, 0.01))
    answer = ask(None, planner)
    assert (answer.status, answer.plan) == (PlanStatus.NOT_SOLVED, None)
    assert answer.reason == "the validator refused the planner's plan"


@pytest.mark.parametrize(
    ("found", "expected"),
    [(PlannerStatus.UNSOLVABLE, "unsolvable"), (PlannerStatus.OUT_OF_TIME, "out_of_time"),
     (PlannerStatus.OUT_OF_MEMORY, "out_of_memory"), (PlannerStatus.GAVE_UP, "not_solved"),
     (PlannerStatus.UNSUPPORTED, "not_solved"), (PlannerStatus.CRASHED, "not_solved")],
)  # fmt: skip
def test_plan_planner_without_a_plan_says_how_it_ended(found: PlannerStatus, expected: str) -> None:
    answer = ask(ScriptedPolicy([WRONG]), ScriptedPlanner(PlannerResult(found, None, None, 0.01)), turns=0)
    assert (answer.status, answer.plan, answer.source) == (expected, None, None)
    assert answer.reason is not None
    assert answer.reason.startswith("the planner ")


def test_plan_goal_that_holds_at_the_start_is_the_empty_plan_and_nobody_is_asked() -> None:
    policy, planner = ScriptedPolicy([]), ScriptedPlanner()
    problem = "(define (problem p) (:domain blocksworld) (:objects a) (:init (ontable a)) (:goal (ontable a)))"
    answer = ask(policy, planner, problem)
    assert (answer.status, answer.plan, answer.source) == (PlanStatus.SOLVED, (), None)
    assert (policy.prompts, planner.limits_s) == ([], [])


def test_plan_domain_with_an_unknown_word_goes_straight_to_the_planner() -> None:
    policy = ScriptedPolicy([])
    domain = BLOCKS_TEXT.replace("put-down", "lay-down")
    plan = tuple(step.replace("put-down", "lay-down") for step in PLAN)
    answer = ask(policy, ScriptedPlanner(PlannerResult(PlannerStatus.SOLVED, plan, 6.0, 0.01)), domain=domain)
    assert (policy.prompts, answer.source, answer.turns) == ([], PlanSource.PLANNER, ())
    assert answer.reason == "the policy does not know the word 'lay-down' of the domain"


def test_plan_unknown_object_names_are_renamed_for_the_policy_and_back_for_the_user() -> None:
    problem = renamed(SUSSMAN, a="truck-1", c="crate_9")
    task = PlanningTask.from_text(BLOCKS_TEXT, problem)
    problem_id = problem_id_of(print_domain(task.domain), print_problem(task.problem))
    view = view_of(task, CARD, seed=0, problem_id=problem_id)
    assert not isinstance(view, str)
    own = {"truck-1": "a", "b": "b", "crate_9": "c"}
    name_of = {own[owner]: name for name, owner in view.object_of.items()}
    policy = ScriptedPolicy([f"final: {write_literals(rename_plan(SUSSMAN_PLAN, name_of))} verdict: VALID"])
    answer = ask(policy, ScriptedPlanner(None), problem)
    expected = rename_plan(SUSSMAN_PLAN, {"a": "truck-1", "c": "crate_9"})
    assert answer.plan == tuple(map(str, expected))
    assert answer.chain == f"final: {write_literals(expected)} verdict: VALID"
    assert set(policy.prompts[0].split()) <= WORDS
    assert len(set(name_of.values()) & set(NAMES)) == 3


def test_plan_object_names_that_are_given_are_the_only_ones_used() -> None:
    card = PolicyCard("v1", "compact", 1536, SamplingConfig(), words=WORDS, object_names=("f", "g", "h", "strange"))
    policy = ScriptedPolicy([WRONG], card)
    ask(policy, ScriptedPlanner(), renamed(SUSSMAN, a="x", b="y", c="z"), turns=0)
    assert {word for word in policy.prompts[0].split() if len(word) == 1} == {"f", "g", "h"}


def test_plan_more_objects_than_the_policy_has_names_for_goes_to_the_planner() -> None:
    objects = " ".join(f"block{number}" for number in range(len(NAMES) + 1))
    problem = f"(define (problem p) (:domain blocksworld) (:objects {objects}) (:init (ontable block0) (clear block0) "
    problem += "(handempty)) (:goal (holding block0)))"
    policy, plan = ScriptedPolicy([]), ("(pick-up block0)",)
    answer = ask(policy, ScriptedPlanner(PlannerResult(PlannerStatus.SOLVED, plan, 1.0, 0.01)), problem)
    assert (answer.plan, policy.prompts) == (plan, [])
    assert answer.reason == f"the policy knows names for {len(NAMES)} objects, the problem has {len(NAMES) + 1}"


def test_plan_goal_that_the_compact_rendering_cannot_tell_goes_to_the_planner() -> None:
    problem = SUSSMAN.replace("(:goal (and", "(:goal (and (or (on a b) (on b a))")
    answer = ask(ScriptedPolicy([]), ScriptedPlanner(), problem)
    assert (answer.source, answer.turns) == (PlanSource.PLANNER, ())
    assert answer.reason is not None
    assert "conjunctive" in answer.reason


def test_plan_full_rendering_reads_every_domain_and_keeps_the_names() -> None:
    card = PolicyCard("v1", "full", 8192, SamplingConfig())
    policy = ScriptedPolicy(["[FINAL PLAN]\n" + "\n".join(PLAN) + "\n[VERDICT] VALID"], card)
    answer = ask(policy, ScriptedPlanner(None))
    assert (answer.plan, answer.source) == (PLAN, PlanSource.POLICY)
    assert "[DOMAIN]" in policy.prompts[0]


def test_plan_policy_asked_plainly_gets_one_turn_only() -> None:
    policy = ScriptedPolicy(["no idea", "no idea"], PolicyCard("v1", "zero_shot", 8192, SamplingConfig()))
    answer = ask(policy, ScriptedPlanner(), turns=3)
    assert (len(policy.prompts), answer.source) == (1, PlanSource.PLANNER)
    assert answer.reason is not None
    assert answer.reason.startswith("the policy's last plan: ")


def test_plan_prompt_without_room_is_not_repeated() -> None:
    policy = ScriptedPolicy([""] * 3, finish_reason="no_room")
    answer = ask(policy, ScriptedPlanner(), turns=2)
    assert (len(policy.prompts), answer.source) == (1, PlanSource.PLANNER)
    assert answer.reason == "the prompt does not fit into the policy's 1536 tokens"
    assert answer.turns == ()


def test_plan_policy_too_slow_leaves_the_planner_the_rest_of_the_time() -> None:
    planner = ScriptedPlanner()
    answer = ask(ScriptedPolicy([]), planner, time_limit_s=60.0, settings=ServiceSettings(policy_time_share=0.005))
    assert (answer.status, answer.source) == (PlanStatus.SOLVED, PlanSource.PLANNER)
    [limit_s] = planner.limits_s
    assert 0 < limit_s <= 60.0 - answer.timings["policy_s"]
    assert answer.timings["policy_s"] > 0


def test_plan_policy_too_slow_without_fallback_is_out_of_time() -> None:
    answer = ask(ScriptedPolicy([]), ScriptedPlanner(), time_limit_s=0.2, fallback=False)
    assert (answer.status, answer.plan) == (PlanStatus.OUT_OF_TIME, None)


def test_plan_planner_that_never_answers_is_out_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.service.planning.PLANNER_GRACE_S", -59.8)
    answer = ask(None, ScriptedPlanner(None), time_limit_s=60.0)
    assert (answer.status, answer.reason) == (PlanStatus.OUT_OF_TIME, "the planner had no time left")


def test_plan_time_used_up_before_the_planner_does_not_start_it() -> None:
    planner = ScriptedPlanner()
    assert ask(None, planner, time_limit_s=1e-9).status is PlanStatus.OUT_OF_TIME
    assert planner.limits_s == []


def test_plan_policy_out_of_reach_is_replaced_by_the_planner() -> None:
    answer = ask(LostPolicy(), ScriptedPlanner())
    assert (answer.source, answer.reason) == (PlanSource.PLANNER, "the policy cannot be reached")


def test_plan_policy_out_of_reach_without_fallback_is_no_answer() -> None:
    with pytest.raises(ServiceUnavailableError, match="gone"):
        ask(LostPolicy(), ScriptedPlanner(), fallback=False)


def test_plan_planner_out_of_reach_is_no_answer() -> None:
    with pytest.raises(ServiceUnavailableError, match="gone"):
        ask(None, LostPlanner())


def test_plan_without_policy_and_fallback_is_not_solved() -> None:
    answer = ask(None, ScriptedPlanner(), fallback=False)
    assert (answer.status, answer.reason) == (PlanStatus.NOT_SOLVED, "this service has no policy")


def test_plan_mistakes_in_both_files_are_all_told_with_their_places() -> None:
    domain = "(define (domain d)\n (:predicates (p ?x))\n (:action a :parameters (?x) :effect (q ?x)))"
    problem = "(define (problem x) (:domain d) (:objects o)\n (:init (p o o)) (:goal (p nobody)))"
    with pytest.raises(PddlRejectedError) as caught:
        ask(None, ScriptedPlanner(), problem, domain=domain)
    found = {(d.code.value, d.place.source, d.place.line) for d in caught.value.diagnostics if d.is_error}
    assert found == {
        ("undefined-predicate", "domain", 3),
        ("wrong-arity", "problem", 2),
        ("undeclared-object", "problem", 2),
    }
    assert pickle.loads(pickle.dumps(caught.value)).diagnostics == caught.value.diagnostics


def test_plan_goal_with_too_many_instances_is_refused_with_the_reason() -> None:
    objects = " ".join(f"o{number}" for number in range(60))
    domain = "(define (domain d) (:predicates (p ?a ?b ?c ?d)) (:action x :parameters (?a) :effect (p ?a ?a ?a ?a)))"
    problem = f"(define (problem x) (:domain d) (:objects {objects}) (:init) "
    problem += "(:goal (forall (?a ?b ?c ?d) (p ?a ?b ?c ?d))))"
    with pytest.raises(PddlRejectedError) as caught:
        ask(None, ScriptedPlanner(), problem, domain=domain)
    assert caught.value.diagnostics == ()
    assert caught.value.message


def test_answer_with_a_plan_that_was_not_found_valid_is_a_bug() -> None:
    verdict = validate_plan(sussman(), SUSSMAN_PLAN[:-1])
    with pytest.raises(RuntimeError, match="an invalid plan was about to be returned"):
        Course(PlanRequest(BLOCKS_TEXT, SUSSMAN, 1.0, 0, True)).solved(sussman(), verdict, PlanSource.POLICY)


@given(n_blocks=st.integers(2, 4), seed=st.integers(0, 10**6), length=st.integers(0, 6))
def test_plan_whatever_policy_and_planner_say_only_valid_plans_come_out(n_blocks: int, seed: int, length: int) -> None:
    task = PlanningTask(BLOCKS, random_problem(n_blocks, seed))
    rng = random.Random(seed)
    guesses = [random_walk(task, length, rng) for _ in range(3)]
    if seed % 2:  # steps that cannot be applied as well
        guesses = [tuple(rng.sample(guess, len(guess))) for guess in guesses]
    policy = ScriptedPolicy([f"final: {write_literals(guess)} verdict: VALID" for guess in guesses[:2]])
    planner = ScriptedPlanner(PlannerResult(PlannerStatus.SOLVED, tuple(map(str, guesses[2])), float(length), 0.01))
    answer = ask(policy, planner, print_problem(task.problem))
    is_any_right = any(validate_plan(task, guess).is_valid for guess in (*guesses, ()))
    assert (answer.status is PlanStatus.SOLVED) == is_any_right
    if answer.plan is not None:
        assert validate_plan(task, parse_plan(" ".join(answer.plan)) if answer.plan else ()).is_valid
