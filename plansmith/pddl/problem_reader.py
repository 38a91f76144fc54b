"""The sections of a problem: objects, initial state, goal and metric."""

from __future__ import annotations

from collections.abc import Sequence

from plansmith.pddl.diagnostics import Code, Notebook
from plansmith.pddl.formula_reader import CONNECTIVES, Names, Variables
from plansmith.pddl.model import (
    EQUALITY,
    TOTAL_COST,
    Atom,
    Condition,
    Conjunction,
    Domain,
    FunctionValue,
    Problem,
)
from plansmith.pddl.sections import Definition, Reading, TextReader
from plansmith.pddl.sexpr import Group, Node, Word, describe, read_number

PROBLEM_SECTIONS = (":domain", ":requirements", ":objects", ":init", ":goal", ":metric", ":length")
TOTAL_TIME = "total-time"


class ProblemReader(TextReader):
    """Reads a problem against its domain."""

    def __init__(self, notebook: Notebook, domain: Domain) -> None:
        super().__init__(notebook, names_of(domain))
        self.domain = domain
        self.init: dict[Atom, None] = {}
        self.values: dict[Atom, FunctionValue] = {}

    def read(self, definition: Definition) -> Reading[Problem]:
        """Return the problem."""
        self.check_sections(definition, PROBLEM_SECTIONS)
        if definition.offset or definition.sections or definition.name:
            self._check_complete(definition)
        self.requirements(definition)
        objects = self.objects(definition.tail(":objects"), "object")
        self._read_init(definition.tail(":init"))
        problem = Problem(
            name=definition.name,
            domain_name=self._domain_name(definition),
            objects=objects,
            init=tuple(self.init),
            goal=self._goal(definition),
            function_values=tuple(self.values.values()),
            metric=self._metric(definition),
        )
        self.note_lost_section(definition, ":objects", Code.UNDECLARED_OBJECT)
        self.formulas.undeclared.finish_all()
        return Reading(problem, self.notebook, self.places)

    def _check_complete(self, definition: Definition) -> None:
        for key in (":domain", ":init", ":goal"):
            if definition.find(key) is None:
                self.notebook.note(
                    Code.MISSING_SECTION, definition.offset, f"the problem has no {key}", expected=f"({key} ...)",
                    repair="add it",
                )  # fmt: skip

    def _domain_name(self, definition: Definition) -> str:
        section = definition.find(":domain")
        words = definition.tail(":domain")
        if section is not None and (len(words) != 1 or not isinstance(words[0], Word)):
            self.note_section(section, "':domain' takes one name", "(:domain NAME)")
        if not words or not isinstance(words[0], Word):
            return ""
        self.places[("domain",)] = words[0].offset
        return words[0].text

    def _goal(self, definition: Definition) -> Condition:
        section = definition.find(":goal")
        if section is None:
            return Conjunction()
        self.places[("goal",)] = section.offset
        if len(section.items) != 2:
            self.notebook.note(
                Code.MALFORMED_SECTION, section.offset, "a goal is one condition",
                got=f"{len(section.items) - 1} items", expected="(:goal (and ...))", repair="join them with 'and'",
            )  # fmt: skip
        parts = tuple(self.formulas.condition(item, {}) for item in section.items[1:])
        return parts[0] if len(parts) == 1 else Conjunction(parts)

    def _read_init(self, nodes: Sequence[Node]) -> None:
        absent: dict[Atom, int] = {}
        no_variables: Variables = {}
        for node in nodes:
            if self.notebook.is_full:
                return
            if not isinstance(node, Group) or not node.head():
                self._note_init(node, "an initial atom is a list", "(predicate object ...)")
            elif node.head() in self.names.predicates:
                self._add_atom(node, self.formulas.atom(node, no_variables))
            elif node.head() == "not" and len(node.items) == 2:
                self._read_absent(node.items[1], absent)
            elif node.head() == EQUALITY:
                self._read_value(node)
            elif node.head() in CONNECTIVES:
                self._note_init(node, f"'{node.head()}' in the initial state", "atoms, one after another")
            elif node.head() == "at" and len(node.items) == 3 and isinstance(node.items[2], Group):
                self.notebook.note(
                    Code.UNSUPPORTED_FEATURE, node.offset, "timed initial literals are not supported",
                    got=describe(node), expected="atoms that hold at the start",
                )  # fmt: skip
            else:
                self.formulas.atom(node, no_variables)  # notes what is wrong
        for atom, offset in absent.items():
            if atom in self.init:
                self.notebook.warn(
                    Code.CONTRADICTORY_INIT, offset, f"{atom} is said to be both true and false; taken to be true",
                    repair="remove one of the two",
                )  # fmt: skip

    def _add_atom(self, node: Group, atom: Atom) -> None:
        if atom in self.init:
            self.notebook.warn(Code.DUPLICATE_ATOM, node.offset, f"{atom} stands twice", repair="remove one of them")
        elif atom.predicate in self.names.derived:
            self._note_init(node, f"derived predicate '{atom.predicate}' in the initial state", "basic predicates")
        self.init[atom] = None

    def _read_absent(self, node: Node, absent: dict[Atom, int]) -> None:
        if isinstance(node, Group) and node.head() and node.head() not in CONNECTIVES:
            absent.setdefault(self.formulas.atom(node, {}), node.offset)
        else:
            self._note_init(node, "'not' takes one atom", "(not (predicate object ...))")

    def _read_value(self, node: Group) -> None:
        """Read ``(= (function object ...) number)``."""
        items = node.items
        term = items[1] if len(items) == 3 else None
        number = read_number(items[2].text) if len(items) == 3 and isinstance(items[2], Word) else None
        if not isinstance(term, Group) or not term.head() or number is None:
            self._note_init(node, "'=' in the initial state gives a function its value", "(= (function object) number)")
            return
        atom = self.formulas.function_term(term, {})
        if atom in self.values and self.values[atom].value != number:
            self.notebook.note(
                Code.DUPLICATE_NAME, node.offset, f"{atom} gets a second value", got=str(number),
                expected=str(self.values[atom].value), repair="remove one of them",
            )  # fmt: skip
        self.values[atom] = FunctionValue(atom, number)

    def _note_init(self, node: Node, message: str, expected: str) -> None:
        self.notebook.note(Code.MALFORMED_INIT, node.offset, message, got=describe(node), expected=expected)

    def _metric(self, definition: Definition) -> str | None:
        section = definition.find(":metric")
        if section is None:
            return None
        words = section.items[1:]
        function = words[1] if len(words) == 2 else section
        name = function.head() if isinstance(function, Group) else function.text
        is_minimised = isinstance(words[0], Word) and words[0].text == "minimize" if words else False
        if not is_minimised or name not in (TOTAL_COST, TOTAL_TIME):
            self.notebook.note(
                Code.UNSUPPORTED_FEATURE, section.offset, "this metric is not supported", got=describe(function),
                expected=f"(:metric minimize ({TOTAL_COST})) or ({TOTAL_TIME})",
            )  # fmt: skip
        elif name == TOTAL_COST and TOTAL_COST not in self.names.functions:
            self.formulas.function_term(Group([Word(TOTAL_COST, function.offset)], function.offset), {})
        return name


def names_of(domain: Domain) -> Names:
    """Return what formulas may name in problems of a domain."""
    return Names(
        ancestors=domain.ancestors(),
        predicates={schema.name: schema for schema in domain.predicates},
        functions={schema.name: schema for schema in domain.functions},
        objects={typed.name: typed for typed in domain.constants},
        derived={rule.predicate for rule in domain.derived},
    )
