"""The compact rendering: PDDL without brackets, for word-level models such as `tiny`.

An atom is its predicate followed by its arguments; the arity in the domain says where it ends. Markers end in ``:`` so
that no PDDL name can be one. What is wanted (goals, aims, needs) has its predicate marked with ``?``: who looks up
where a block stands is not to find where it should stand. After the marks of all goals, each of which one look-up
decides, open goals are told again with what they should wait for, and those that hold and will have to be undone:
``goals: on? a b unmet: on? b c unmet: order: on? a b after: on? b c later: on? b c ready:``. A step reads::

    goals: on? a b unmet: order: on? a b ready: aim: on? a b since: clear b need: holding? a since: on a c clear a
    handempty do: unstack a c check: on a c clear a handempty ok: add: holding a clear c now: holding a clear b
    ontable b clear c ontable c

or, where the action cannot be applied, ``check: clear a ontable a fails: handempty``: preconditions are told one by one
as they are found to hold, up to the first that does not; ``fails:`` names it and whatever else is missing. So each next
word of a check is a look-up. Such a step is withdrawn, and the next is taken from the same state. ``since:`` tells what
is there already of what an aim or a need takes: to put `a` on `b` takes that `b` is clear, which it is, and that `a` is
held, which is the next need. ``now:`` is the resulting state; what the action deletes is what that state no longer
lists.

Where a chain tells them (`branches`), what else could have been done and what would have failed come before ``do:``::

    other: put-down a returns: other: unstack b c undoes: on? b c other: pick-up d longer: other: pick-up e dead:
    try: pick-up d then: unstack b c blocked: handempty by: pick-up d back: stack a b

``back:`` names the action after which the branch began, none at the start; all of the branch is taken back.

A chain that begins with ``now:`` tells the state that it starts from.

The plan of a chain is the actions of its steps without those withdrawn. It is listed at the end, after ``final:``, only
where it is another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile

from plansmith.errors import BadInputError
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Atom, Condition, Domain, Literal, PlanStep
from plansmith.pddl.validation import StepJudgement
from plansmith.text.chains import Alternative, Backtrack, Chain, ChainStep, GoalMark, ReadChain, in_order
from plansmith.text.compact_reader import DRAWBACKS, NOT, WANTED, read_chain
from plansmith.text.explanations import Attempt, ClaimedPlan, Explanation, FeedbackKind


def domain_words(domain: Domain) -> list[str]:
    """Return the words that texts about a domain use beside markers and objects' names, each once."""
    predicates = ["=", *(predicate.name for predicate in domain.predicates)]
    names = (item.name for items in (domain.actions, domain.constants) for item in items)
    return list(dict.fromkeys([domain.name, *predicates, *(name + WANTED for name in predicates), *names]))


def write_literals(literals: Iterable[object]) -> str:
    """Return atoms, literals or steps as words without brackets.

    Raises:
        BadInputError: another condition, which cannot be told without brackets.
    """
    words = []
    for item in literals:
        if isinstance(item, Literal) and not item.is_positive:
            words += [NOT, item.atom.predicate, *item.atom.arguments]
        elif isinstance(item, Literal | Atom | PlanStep):
            words += str(item).strip("()").split()
        else:
            raise BadInputError("the compact rendering needs conjunctive preconditions and goals", got=str(item),
                                expected="a conjunction of literals", cure="use the full rendering")  # fmt: skip
    return " ".join(words)


def write_wanted(conditions: Iterable[Condition]) -> str:
    """Return literals as `write_literals` does, marked as wanted.

    Raises:
        BadInputError: another condition, which cannot be told without brackets.
    """
    return write_literals(map(_wanted, conditions))


def _wanted(condition: Condition) -> Condition:
    if not isinstance(condition, Literal):
        return condition
    return Literal(Atom(condition.atom.predicate + WANTED, condition.atom.arguments), condition.is_positive)


def write_step(step: ChainStep, *, is_told: bool = False) -> str:
    """Return one step of a chain; ``is_told``: with what the action deletes, as `plansmith.text.told` has it."""
    parts = []
    if step.goal_check is not None:
        parts.append(write_goal_check(step.goal_check))
    for index, (condition, settled) in enumerate(step.reasons):
        parts += ["need:" if index else "aim:", write_wanted([condition])]
        if settled:
            parts += ["since:", write_literals(settled)]
    parts += [*map(_alternative_words, step.alternatives), *map(_backtrack_words, step.backtracks)]
    parts += ["do:", write_literals([step.action]), write_outcome(step, is_told=is_told)]
    return " ".join(filter(None, parts))


def _alternative_words(told: Alternative) -> str:
    marker = next(word for word, drawback in DRAWBACKS.items() if drawback is told.drawback)
    return " ".join(filter(None, ["other:", write_literals([told.action]), marker, write_wanted(told.undone)]))


def _backtrack_words(told: Backtrack) -> str:
    first, *then = told.branch
    parts = ["try:", write_literals([first])]
    parts += [f"then: {write_literals([action])}" for action in then]
    parts += ["blocked:", write_literals(told.unsatisfied), "by:", write_literals([told.culprit]), "back:"]
    return " ".join([*parts, write_literals([told.back_to])] if told.back_to else parts)


def write_goal_check(goal_check: Sequence[GoalMark]) -> str:
    """Return every goal with its mark, then the order of what is open."""
    return " ".join(filter(None, ["goals:", write_goals(goal_check)]))


def write_goals(marks: Sequence[GoalMark], n_told: int = 0) -> str:
    """Return what stands in a goal check after the marks of the first goals."""
    words = []
    for mark in marks[n_told:]:
        words += [write_wanted([mark.condition]), "met:" if mark.is_met else "unmet:"]
    if waiting := [mark for mark in marks if mark.after or not mark.is_met]:
        words.append("order:")
    for mark in waiting:
        words.append(write_wanted([mark.condition]))
        words += ["after:", write_wanted(mark.after), "later:"] if mark.after else ["ready:"]
    return " ".join(words)


def write_outcome(step: ChainStep, *, is_told: bool = False) -> str:
    """Return what follows the action: precondition check and resulting state; see `write_step`."""
    found = takewhile(lambda condition: condition not in step.unsatisfied, step.preconditions)
    parts = ["check:", write_literals(found)]
    if step.next_state is None:
        parts += ["fails:", write_literals(step.unsatisfied)]
    else:
        parts += ["ok:", "add:", write_literals(step.added)]
        parts += ["delete:", write_literals(step.deleted)] if is_told else []
        parts += ["now:", write_literals(step.next_state)]
    return " ".join(filter(None, parts))


def write_chain(chain: Chain, *, is_told: bool = False) -> str:
    """Return a whole chain with goal check, verdict, its plan where that is not what its steps do (`write_step`)."""
    parts = _beginning(chain, len(chain.steps), is_told=is_told)
    if chain.goal_check is not None:
        parts.append(write_goal_check(chain.goal_check))
    if chain.final_plan is not None and chain.final_plan != chain.plan_of_steps:
        parts += ["final:", write_literals(chain.final_plan)]
    parts += ["verdict:", chain.verdict or ""]
    return " ".join(filter(None, parts))


def _beginning(chain: Chain, n_steps: int, *, is_told: bool = False) -> list[str]:
    start = [] if chain.start is None else ["now:", write_literals(chain.start)]
    return [*start, *(write_step(step, is_told=is_told) for step in chain.steps[:n_steps])]


def problem_words(task: PlanningTask) -> str:
    """Return goal and initial state; a word-level model learns the domain itself, so only its name is told.

    The state stands last and under the marker of all states, so that it is looked up as they are. Before the goal and
    under a name of its own, it was the one state that `tiny` misread (docs/log.md).
    """
    init, goal = write_literals(in_order(task.problem.init)), write_wanted(task.goal)
    return f"domain: {task.domain.name} goal: {goal} now: {init}"


class CompactRendering:
    """Prompts and chains in the compact rendering; see the module."""

    name = "compact"
    separator = " "

    def plan_prompt(self, task: PlanningTask) -> str:
        """Return the prompt that asks for a chain of thought with a plan."""
        return f"{problem_words(task)} plan:"

    def explain_prompt(self, task: PlanningTask, shown: ClaimedPlan) -> str:
        """Return the prompt that asks to explain a given plan."""
        parts = [problem_words(task), "given:"]
        for index, step in enumerate(shown.plan):
            parts += ["do:", write_literals([step])]
            if index < len(shown.claims):
                parts += ["now:", write_literals(in_order(shown.claims[index]))]
        return " ".join([*parts, "explain:"])

    def write_attempt(self, attempt: Attempt, feedback: FeedbackKind) -> str:
        """Return an attempt with the validator's feedback, as it is handed back."""
        parts = ["tried:"]
        for step, is_valid in zip(attempt.plan, attempt.marks, strict=False):
            parts += [write_literals([step]), "good:" if is_valid else "bad:"]
        if feedback is FeedbackKind.DETAILED:
            parts += ["feedback:", *_feedback_words(attempt)]
        return " ".join(filter(None, parts))

    def correct_prompt(self, task: PlanningTask, attempt: str) -> str:
        """Return the prompt that hands an attempt back, as `write_attempt` tells it."""
        return f"{problem_words(task)} {attempt} plan:"

    def write_chain(self, chain: Chain) -> str:
        """Return the text of a chain of thought."""
        return write_chain(chain)

    def write_beginning(self, chain: Chain, n_steps: int) -> str:
        """Return the text with which a chain begins, up to the end of so many steps."""
        return " ".join(_beginning(chain, n_steps))

    def write_explanation(self, explanation: Explanation) -> str:
        """Return the text that explains a plan: its steps, the fault if any, the verdict."""
        if explanation.fault is None:
            return write_chain(explanation.chain)
        steps = " ".join(write_step(step) for step in explanation.chain.steps)
        return f"{steps} {' '.join(_fault_words(explanation.fault))} verdict: {explanation.chain.verdict}"

    def write_outcome(self, step: ChainStep) -> str:
        """Return the part of a step that follows its action."""
        return write_outcome(step)

    def write_goals(self, marks: Sequence[GoalMark], n_told: int) -> str:
        """Return what stands in a goal check after the marks of the first goals."""
        return write_goals(marks, n_told)

    def write_literals(self, literals: Sequence[Literal]) -> str:
        """Return what stands in a list of literals."""
        return write_literals(literals)

    def read(self, completion: str, domain: Domain) -> ReadChain:
        """Return the claims of a completion."""
        return read_chain(completion, domain)


def _fault_words(fault: StepJudgement) -> list[str]:
    """Return what is wrong with a claimed transition, each class of atoms after its marker."""
    classes: tuple[tuple[str, tuple[object, ...]], ...] = (
        ("fails:", fault.unsatisfied),
        ("unadded:", fault.missing_effects),
        ("undeleted:", fault.kept_deletes),
        ("lost:", fault.lost_atoms),
        ("invented:", fault.invented_atoms),
    )
    return [word for marker, atoms in classes if atoms for word in (marker, write_literals(atoms))]


def _feedback_words(attempt: Attempt) -> list[str]:
    if attempt.fault is not None:
        return _fault_words(attempt.fault)
    return ["unmet:", write_wanted(attempt.unmet_goals)] if attempt.unmet_goals else []


MARKERS = [
    "domain:",
    "goal:",
    "plan:",
    "given:",
    "explain:",
    "tried:",
    "feedback:",
    "now:",
    "goals:",
    "met:",
    "unmet:",
    "order:",
    "after:",
    "later:",
    "ready:",
    "aim:",
    "need:",
    "since:",
    "do:",
    "check:",
    "ok:",
    "add:",
    "fails:",
    "final:",
    "verdict:",
    "good:",
    "bad:",
    "unadded:",
    "undeleted:",
    "lost:",
    "invented:",
    "not:",
]
"""Every marker of the rendering but those of branches, for a vocabulary."""

BRANCH_MARKERS = ["other:", *DRAWBACKS, "try:", "then:", "blocked:", "by:", "back:"]
"""The markers of what else could have been done, and of what would have failed: words of a vocabulary only where chains
tell them."""
