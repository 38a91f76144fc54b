"""Plan texts: one ``(action argument ...)`` after another, with what planners and VAL allow around them.

Allowed as in VAL: comments, any white space, a time before each step (``0.5: (a b)``, then sorted by time), a duration
after it (``[1]``), commas and quotes between words, code fences, and words after the last step, such as a cost. A
backslash that ends a line says nothing either. Where VAL would silently drop steps (text before or between them, a
bracket too many), the plan is refused instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from plansmith.errors import PddlParseError
from plansmith.garbage import no_garbage
from plansmith.pddl.brackets import read_root
from plansmith.pddl.diagnostics import Notebook, Source
from plansmith.pddl.model import PlanStep
from plansmith.pddl.sexpr import Group, Node, Word, describe

_DECORATION = re.compile(r"[,\"'`]|\\(?=\\*[ \t]*(?:[\r\n]|\Z))")
_TIME = re.compile(r"(\d+(?:\.\d*)?|\.\d+):")
_DURATION = re.compile(r"\[\d+(\.\d*)?\]")


def parse_step(text: str) -> PlanStep:
    """Return the step that ``(name arg ...)`` names.

    Raises:
        PddlParseError: not one flat bracketed list of words.
    """
    items = _items(text, "<step>").items
    if len(items) != 1:
        raise PddlParseError(
            "not one step", where="<step>:1:1", got=f"{len(items)} items", expected="(action argument ...)"
        )
    return _step(items[0], Source(text, "<step>"))


def parse_plan(text: str, *, source: str = "<plan>") -> tuple[PlanStep, ...]:
    """Return the steps of a plan text in the order of their times, or of the text where no times are given.

    Raises:
        PddlParseError: a bracket without partner, a list within a step, words before or between steps, or times for
            some steps only or twice the same.
    """
    plain = _DECORATION.sub(" ", text)
    place = Source(plain, source)
    with no_garbage():
        timed = list(_timed_steps(_items(plain, source), place))
    times = {time for time, _ in timed if time is not None}
    if not times:
        return tuple([step for _, step in timed])
    if len(times) < len(timed):
        raise PddlParseError(
            "times that give no order", where=source, got=f"{len(times)} times for {len(timed)} steps",
            expected="no times, or another one for each step: a sequential plan",
        )  # fmt: skip
    return tuple([step for _, step in sorted(timed, key=lambda item: item[0] or 0.0)])


def _timed_steps(root: Group, source: Source) -> Iterator[tuple[float | None, PlanStep]]:
    """Yield each step with the time before it, if there is one."""
    time: float | None = None
    last = max((i for i, item in enumerate(root.items) if isinstance(item, Group)), default=-1)
    for position, item in enumerate(root.items):
        if isinstance(item, Group):
            yield time, _step(item, source)
            time = None
        elif position > last >= 0:
            return
        elif (match := _TIME.fullmatch(item.text)) and time is None:
            time = float(match[1])
        elif not position or not _DURATION.fullmatch(item.text):
            raise PddlParseError(
                "a word outside the steps", where=str(source.place(item.offset)), got=describe(item), expected="'('",
                cure="write one (action argument ...) after another and nothing else",
            )  # fmt: skip


def _items(text: str, name: str) -> Group:
    notebook = Notebook(Source(text, name))
    root = read_root(notebook)
    notebook.raise_first_error()
    return root


def _step(node: Node, source: Source) -> PlanStep:
    words = [item.text for item in node.items if isinstance(item, Word)] if isinstance(node, Group) else []
    if not words or not isinstance(node, Group) or len(words) < len(node.items):
        raise _not_a_step(node, source)
    return PlanStep(words[0], tuple(words[1:]))


def _not_a_step(node: Node, source: Source) -> PddlParseError:
    inner = [item for item in node.items if isinstance(item, Group)] if isinstance(node, Group) else []
    wrong = inner[0] if inner else node
    return PddlParseError(
        "an empty step" if isinstance(wrong, Group) and not wrong.items else "not a step",
        where=str(source.place(wrong.offset)), got=describe(wrong), expected="(action argument ...)",
    )  # fmt: skip
