"""PDDL text to `Domain` and `Problem`.

Reads PDDL 2.1 level 1 with ADL, action costs and derived predicates; every other feature is refused by name and line.
`read_domain` and `read_problem` note every mistake and return what could be read; `parse_domain` and `parse_problem`
raise the first mistake. Below it: `sexpr` (nested lists), `formula_reader`, `effect_reader`, `sections` and one reader
of each text. Plans are read by `plan_text`.
"""

from __future__ import annotations

from functools import lru_cache

from plansmith.garbage import no_garbage
from plansmith.pddl.diagnostics import Notebook, Source
from plansmith.pddl.domain_reader import DomainReader
from plansmith.pddl.model import Domain, Problem
from plansmith.pddl.plan_text import parse_plan as parse_plan
from plansmith.pddl.plan_text import parse_step as parse_step
from plansmith.pddl.problem_reader import ProblemReader
from plansmith.pddl.sections import Reading, read_definition

LONGEST_REMEMBERED = 64 * 1024
"""Characters of texts that are remembered; what is read of them weighs many times as much."""


def parse_domain(text: str, *, source: str = "<domain>") -> Domain:
    """Return the domain that `text` defines; `source` names it in errors.

    Raises:
        PddlParseError: the first mistake, with file, line, column, what was got and what was expected.
    """
    reading = read_domain(text, source=source)
    reading.notebook.raise_first_error()
    return reading.value


def parse_problem(text: str, domain: Domain, *, source: str = "<problem>") -> Problem:
    """Return the problem that `text` defines, checked against `domain`.

    Raises:
        PddlParseError: the first mistake, including an undeclared object or predicate, a wrong arity or type.
    """
    reading = read_problem(text, domain, source=source)
    reading.notebook.raise_first_error()
    return reading.value


def read_domain(text: str, *, source: str = "<domain>") -> Reading[Domain]:
    """Return the domain as far as `text` can be read, with every mistake in it."""
    notebook = Notebook(Source(text, source))
    with no_garbage():
        return DomainReader(notebook).read(read_definition(notebook, "domain"))


def shared_domain(text: str, *, source: str = "<domain>") -> Reading[Domain]:
    """Return what `read_domain` does, read once for many problems of one domain: nobody may note anything in it."""
    return _read_domain(text, source) if len(text) <= LONGEST_REMEMBERED else read_domain(text, source=source)


@lru_cache(maxsize=64)
def _read_domain(text: str, source: str) -> Reading[Domain]:
    return read_domain(text, source=source)


def read_problem(text: str, domain: Domain, *, source: str = "<problem>") -> Reading[Problem]:
    """Return the problem as far as `text` can be read, with every mistake in it."""
    notebook = Notebook(Source(text, source))
    with no_garbage():
        return ProblemReader(notebook, domain).read(read_definition(notebook, "problem"))
