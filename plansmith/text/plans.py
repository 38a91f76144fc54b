"""Plans as a model writes them: the numbered format and the compact one, each with its reader.

Variant v2 of "On the Generalization Gap in LLM Planning" (arXiv 2601.14456, sec. 4.2, "Compact Plan Encoding"): the
same steps without time stamps, brackets and the closing END. Both are read strictly, line by line, so that the same
text always gives the same steps; the plans of planners, and VAL's tolerance, are in `plansmith.pddl.plan_text`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from plansmith.errors import PddlParseError
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import PlanStep
from plansmith.pddl.printer import print_domain, print_problem

PLAN_REQUEST = "Give a plan that solves this planning problem."

STEP_TIME = 100
"""Time between two steps of a numbered plan."""
END = "END"

_NUMBERED = re.compile(r"(\d{1,100}):\s*\(([^()]*)\)", re.ASCII)
"""Python refuses to read numbers of thousands of digits."""
_NO_WORD = re.compile(r"[()?:;,]")


def plan_prompt(task: PlanningTask) -> str:
    """Return the prompt that both formats answer; the paper shows what is in it, and no words."""
    return f"{PLAN_REQUEST}\n\n{print_domain(task.domain)}\n{print_problem(task.problem)}"


def plan_writer(plan_format: str) -> Callable[[Iterable[PlanStep]], str]:
    """Return what writes plans as `numbered` or `compact`."""
    return {"numbered": numbered_plan, "compact": compact_plan}[plan_format]


def numbered_plan(plan: Iterable[PlanStep]) -> str:
    """Return the numbered format: ``00100: (move truck1 depot1 depot2)`` and so on, then ``END``.

    The paper shows a plan of one step only, stamped 00100. We read the stamp as a time in hundredths with five digits,
    so that step k has 100 k; from the thousandth step on it needs a sixth.
    """
    lines = [f"{number * STEP_TIME:05d}: {step}\n" for number, step in enumerate(plan, 1)]
    return "".join([*lines, f"{END}\n"])


def compact_plan(plan: Iterable[PlanStep]) -> str:
    """Return the compact format: one step a line, ``move truck1 depot1 depot2``, and nothing else (sec. 4.2)."""
    return "".join(f"{' '.join((step.name, *step.arguments))}\n" for step in plan)


def decode_compact_plan(text: str) -> tuple[PlanStep, ...]:
    """Return the steps of a compact plan; the inverse of `compact_plan`. Empty lines are no steps.

    Names are made lower case, as everywhere in PDDL.

    Raises:
        PddlParseError: what the compact format leaves out: brackets, stamps, END, or other signs that no name has.
    """
    return tuple(_compact_step(number, line) for number, line in _lines(text))


def read_plan_text(text: str) -> tuple[PlanStep, ...]:
    """Return the steps of a numbered plan; the inverse of `numbered_plan`. Empty lines are no steps.

    Stamps need not be multiples of 100 but must grow, as for steps that follow one another.

    Raises:
        PddlParseError: a line that is no stamped step, a stamp that does not grow, no END as the last line.
    """
    lines = list(_lines(text))
    if not lines or lines[-1][1] != END:
        raise _error("the plan does not end", lines[-1] if lines else (1, ""), f"'{END}' as the last line")
    steps, latest = [], -1
    for number, line in lines[:-1]:
        match = _NUMBERED.fullmatch(line)
        if match is None:
            raise _error("not a stamped step", (number, line), "00100: (action argument ...)")
        if int(match[1]) <= latest:
            raise _error("a stamp that does not grow", (number, line), f"a number above {latest}")
        latest = int(match[1])
        steps.append(_compact_step(number, match[2].strip()))
    return tuple(steps)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not empty, with their numbers from 1."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, line.strip()


def _compact_step(number: int, line: str) -> PlanStep:
    words = line.lower().split()
    if not words or _NO_WORD.search(line) or line == END:
        raise _error("not a step", (number, line), "action argument ..., without brackets, stamps and END")
    return PlanStep(words[0], tuple(words[1:]))


def _error(message: str, line: tuple[int, str], expected: str) -> PddlParseError:
    return PddlParseError(message, where=f"line {line[0]}", got=repr(line[1]), expected=expected)
