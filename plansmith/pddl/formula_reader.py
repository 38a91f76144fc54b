"""Conditions: from nested lists to the model, checked against what the domain declares.

Every mistake is noted and stepped over, so that the rest of the formula is read too. Effects are read by
`effect_reader`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from plansmith.pddl.diagnostics import Code, Notebook, one_of, suggestion
from plansmith.pddl.model import (
    EQUALITY,
    OBJECT,
    Atom,
    Condition,
    Conjunction,
    Disjunction,
    FunctionSchema,
    Implication,
    Literal,
    Negation,
    Number,
    PredicateSchema,
    Quantification,
    TypedName,
)
from plansmith.pddl.sexpr import Group, Node, Word, describe

CONNECTIVES = frozenset({"and", "or", "not", "imply", "exists", "forall", "when"})
UNSUPPORTED = frozenset(
    {"<", ">", "<=", ">=", "decrease", "assign", "scale-up", "scale-down", "preference", "oneof", "probabilistic"}
    | {"at", "over", "always", "sometime", "within", "at-most-once", "sometime-after", "sometime-before"}
)
"""Heads of formulas that other versions of PDDL have; refused unless the domain has a predicate of the name."""

LARGEST_NUMBER = 2**53
MAX_ALTERNATIVES = 100
"""Types of one ``either``; more are no PDDL anybody writes."""

_NUMBER = re.compile(r"-?(\d+(\.\d*)?|\.\d+)", re.ASCII)

Variables = dict[str, TypedName]


@dataclass(frozen=True, slots=True)
class Declaration:
    """A typed name with the offsets of the name and of its type."""

    typed: TypedName
    offset: int
    type_offset: int


@dataclass(slots=True)
class Names:
    """What a formula may name. `ancestors` maps each type to itself and the types above it."""

    ancestors: dict[str, frozenset[str]] = field(default_factory=lambda: {OBJECT: frozenset({OBJECT})})
    predicates: dict[str, PredicateSchema] = field(default_factory=dict)
    functions: dict[str, FunctionSchema] = field(default_factory=dict)
    objects: dict[str, TypedName] = field(default_factory=dict)
    derived: set[str] = field(default_factory=set)

    def fits(self, types: Sequence[str], parameter: TypedName) -> bool:
        """Return whether a term of one of `types` may stand where `parameter` is declared.

        A type that is not declared fits everywhere: it has been noted where it stands.
        """
        allowed = parameter.types
        if allowed[0] == OBJECT or types == allowed or not self.ancestors.keys() >= {*types, *allowed}:
            return True
        return any(not self.ancestors[own].isdisjoint(allowed) for own in types)


def read_number(text: str) -> Number | None:
    """Return the number a word writes, or None: none, or beyond what a float tells apart."""
    if not _NUMBER.fullmatch(text) or abs(value := float(text)) > LARGEST_NUMBER:
        return None
    return int(value) if value.is_integer() else value


def typed_list(notebook: Notebook, nodes: Sequence[Node]) -> Iterator[Declaration]:
    """Yield what ``a b - t c - (either t u) d`` declares; names without a type belong to `object`."""
    pending: list[Word] = []
    position = 0
    while position < len(nodes):
        node = nodes[position]
        position += 1
        if isinstance(node, Group):
            notebook.note(Code.MALFORMED_SECTION, node.offset, "unexpected list", got=describe(node), expected="a name")
        elif node.text != "-":
            pending.append(node)
        elif position == len(nodes):
            notebook.note(
                Code.MALFORMED_SECTION, node.offset, "'-' without a type", got="the end of the list", expected="a type"
            )
        else:
            types, type_offset = _types(notebook, nodes[position]), nodes[position].offset
            position += 1
            yield from (Declaration(TypedName(word.text, types), word.offset, type_offset) for word in pending)
            pending = []
    yield from (Declaration(TypedName(word.text), word.offset, word.offset) for word in pending)


def _types(notebook: Notebook, node: Node) -> tuple[str, ...]:
    if isinstance(node, Word):
        return (node.text,)
    names = tuple(item.text for item in node.items[1:] if isinstance(item, Word))
    if node.head() != "either" or not 0 < len(names) <= MAX_ALTERNATIVES or len(names) + 1 < len(node.items):
        notebook.note(
            Code.MALFORMED_SECTION,
            node.offset,
            "not a type",
            got=describe(node),
            expected=f"a type or (either ...) of at most {MAX_ALTERNATIVES}",
        )
        return (OBJECT,)
    return names


class FormulaReader:
    """Reads the formulas of one text."""

    def __init__(self, notebook: Notebook, names: Names) -> None:
        self.notebook, self.names = notebook, names
        self._conditions: dict[str, Callable[[Group, Variables], Condition]] = {
            "and": lambda group, variables: Conjunction(self._parts(group, variables)),
            "or": lambda group, variables: Disjunction(self._parts(group, variables)),
            "not": self._negation,
            "imply": self._implication,
            "exists": self._quantification,
            "forall": self._quantification,
        }

    def condition(self, node: Node, variables: Variables) -> Condition:
        """Return the condition at `node`; an empty list is true."""
        if isinstance(node, Word) or (node.items and isinstance(node.items[0], Group)):
            self._note_malformed(node, "a condition is a list", "(predicate ...), (and ...), (not ...), ...")
            return Conjunction()
        if not node.items:
            return Conjunction()
        head = node.head()
        if head in self._conditions:
            return self._conditions[head](node, variables)
        if head == "when":
            self._note_malformed(node, "'when' is no condition", "imply, or 'when' in an effect")
            return Conjunction()
        if self.is_unsupported(node):
            return Conjunction()
        return Literal(self.atom(node, variables))

    def _parts(self, group: Group, variables: Variables) -> tuple[Condition, ...]:
        return tuple([self.condition(item, variables) for item in group.items[1:]])

    def _negation(self, group: Group, variables: Variables) -> Condition:
        if len(group.items) != 2:
            self._note_malformed(group, "'not' takes one condition", "(not (predicate ...))")
            return Conjunction()
        part = self.condition(group.items[1], variables)
        if isinstance(part, Literal) and part.is_positive:
            return Literal(part.atom, is_positive=False)
        return Negation(part)

    def _implication(self, group: Group, variables: Variables) -> Condition:
        if len(group.items) != 3:
            self._note_malformed(group, "'imply' takes two conditions", "(imply (premise ...) (conclusion ...))")
            return Conjunction()
        return Implication(*self._parts(group, variables))

    def _quantification(self, group: Group, variables: Variables) -> Condition:
        inner = self.quantified(group, variables)
        if inner is None:
            return Conjunction()
        parameters, scope = inner
        return Quantification(group.head() == "forall", parameters, self.condition(group.items[2], scope))

    def quantified(self, group: Group, variables: Variables) -> tuple[tuple[TypedName, ...], Variables] | None:
        """Return the parameters of a quantifier and the variables known within it; None where it has another shape."""
        items = group.items
        if len(items) != 3 or not isinstance(items[1], Group):
            head = group.head()
            self._note_malformed(group, f"'{head}' takes variables and one formula", f"({head} (?x - type) (...))")
            return None
        parameters = self.parameters(items[1].items, f"'{group.head()}'")
        return parameters, {**variables, **{typed.name: typed for typed in parameters}}

    def parameters(self, nodes: Sequence[Node], owner: str) -> tuple[TypedName, ...]:
        """Return declared variables; note wrong names, types that do not exist, and repeated variables."""
        found: dict[str, TypedName] = {}
        for declaration in typed_list(self.notebook, nodes):
            name = declaration.typed.name
            if not name.startswith("?") or name == "?":
                self.notebook.note(
                    Code.INVALID_NAME, declaration.offset, f"parameter of {owner} is no variable", got=f"'{name}'",
                    expected="a name that begins with '?'", repair=f"write '?{name.lstrip('?') or 'x'}'",
                )  # fmt: skip
            elif name in found:
                self.notebook.note(
                    Code.DUPLICATE_NAME, declaration.offset, f"parameter '{name}' of {owner} is defined twice",
                    repair="rename one of them",
                )  # fmt: skip
            self.check_types(declaration)
            found.setdefault(name, declaration.typed)
        return tuple(found.values())

    def check_types(self, declaration: Declaration) -> None:
        """Note types that are not declared."""
        for name in declaration.typed.types:
            if name not in self.names.ancestors:
                self.notebook.note(
                    Code.UNDEFINED_TYPE, declaration.type_offset, f"undeclared type of '{declaration.typed.name}'",
                    got=f"'{name}'", expected=one_of(self.names.ancestors),
                    repair=suggestion(name, self.names.ancestors, "declare it under :types"),
                )  # fmt: skip

    def atom(self, group: Group, variables: Variables) -> Atom:
        """Return the atom at `group`, whose first item is a word."""
        words = [item for item in group.items if isinstance(item, Word)]
        name, arguments = words[0].text, words[1:]
        if len(words) < len(group.items):
            self._note_nested(group, variables)
        elif name == EQUALITY:
            self._check_arity(group, name, arguments, 2)
            for argument in arguments:
                self._check_term(argument, TypedName("?"), variables)
        elif (schema := self.names.predicates.get(name)) is None:
            self._note_unknown_predicate(words[0])
        elif self._check_arity(group, name, arguments, len(schema.parameters)):
            for argument, parameter in zip(arguments, schema.parameters, strict=True):
                self._check_term(argument, parameter, variables)
        return Atom(name, tuple([argument.text for argument in arguments]))

    def _note_nested(self, group: Group, variables: Variables) -> None:
        inner = next(item for item in group.items if isinstance(item, Group))
        if group.head() == EQUALITY:
            self.notebook.note(
                Code.UNSUPPORTED_FEATURE, group.offset, "numeric '=' is not supported", got=describe(inner),
                expected="two objects or variables",
            )  # fmt: skip
        else:
            self.notebook.note(
                Code.MALFORMED_CONDITION, inner.offset, f"an argument of '{group.head()}' is a list",
                got=describe(inner), expected="an object or a variable", repair="add a ')' before it, or 'and' around",
            )  # fmt: skip
            for item in group.items:
                if isinstance(item, Group):
                    self.condition(item, variables)

    def _note_unknown_predicate(self, word: Word) -> None:
        if self.notebook.is_full:
            return
        known = self.names.predicates
        self.notebook.note(
            Code.UNDEFINED_PREDICATE, word.offset, "undeclared predicate", got=f"'{word.text[:60]}'",
            expected=one_of(known), repair=suggestion(word.text, known, "declare it under :predicates"),
        )  # fmt: skip

    def _check_arity(self, group: Group, name: str, arguments: Sequence[Word], expected: int) -> bool:
        if len(arguments) != expected and not self.notebook.is_full:
            self.notebook.note(
                Code.WRONG_ARITY, group.offset, f"wrong number of arguments of '{name}'", got=str(len(arguments)),
                expected=str(expected), repair="give as many as its declaration has",
            )  # fmt: skip
        return len(arguments) == expected

    def _check_term(self, word: Word, parameter: TypedName, variables: Variables) -> None:
        name = word.text
        term = variables.get(name) or self.names.objects.get(name)
        if term is None:
            self._note_unknown_term(word, variables)
        elif not self.names.fits(term.types, parameter):
            self.notebook.note(
                Code.WRONG_ARGUMENT_TYPE, word.offset, f"wrong type of '{name}'", got=" or ".join(term.types),
                expected=" or ".join(parameter.types), repair="use another object, or declare it with that type",
            )  # fmt: skip

    def _note_unknown_term(self, word: Word, variables: Variables) -> None:
        if self.notebook.is_full:
            return
        is_variable = word.text.startswith("?")
        known = variables if is_variable else {**variables, **self.names.objects}
        place = "a parameter of the action or a quantifier" if is_variable else "an object or a constant"
        self.notebook.note(
            Code.UNBOUND_VARIABLE if is_variable else Code.UNDECLARED_OBJECT, word.offset,
            "unbound variable" if is_variable else "undeclared object", got=f"'{word.text[:60]}'",
            expected=one_of(known), repair=suggestion(word.text, known, f"declare it as {place}"),
        )  # fmt: skip

    def is_unsupported(self, group: Group) -> bool:
        """Return whether a formula begins with a word of other versions of PDDL; note it if so."""
        head = group.head()
        if head not in UNSUPPORTED or head in self.names.predicates:
            return False
        self.notebook.note(
            Code.UNSUPPORTED_FEATURE, group.offset, f"'{head}' is not supported", got=describe(group),
            expected="PDDL 2.1 level 1: and, or, not, imply, exists, forall, when, = or a predicate",
        )  # fmt: skip
        return True

    def _note_malformed(self, node: Node, message: str, expected: str) -> None:
        self.notebook.note(Code.MALFORMED_CONDITION, node.offset, message, got=describe(node), expected=expected)

    def function_term(self, group: Group, variables: Variables) -> Atom:
        """Return the function applied to terms at `group`, whose first item is a word."""
        words = [item for item in group.items if isinstance(item, Word)]
        schema = self.names.functions.get(words[0].text)
        if schema is None or len(words) < len(group.items):
            self.note_unknown_function(group)
        elif self._check_arity(group, schema.name, words[1:], len(schema.parameters)):
            for argument, parameter in zip(words[1:], schema.parameters, strict=True):
                self._check_term(argument, parameter, variables)
        return Atom(words[0].text, tuple([word.text for word in words[1:]]))

    def note_unknown_function(self, group: Group) -> None:
        """Note a function that is not declared."""
        known = self.names.functions
        self.notebook.note(
            Code.UNDEFINED_FUNCTION, group.offset, "undeclared function", got=f"'{group.head()[:60]}'",
            expected=one_of(known), repair=suggestion(group.head(), known, "declare it under :functions"),
        )  # fmt: skip
