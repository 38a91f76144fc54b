"""Conditions: from nested lists to the model, checked against what the domain declares.

Every mistake is noted and stepped over, so that the rest of the formula is read too. Effects are read by
`effect_reader`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from plansmith.pddl.diagnostics import Code, Notebook, nearest, one_of
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
    PredicateSchema,
    Quantification,
    TypedName,
)
from plansmith.pddl.sexpr import Group, Node, Word, describe, shortened
from plansmith.pddl.typed_lists import Declaration, joined_types, typed_list
from plansmith.pddl.undeclared import UndeclaredNames

CONNECTIVES = frozenset({"and", "or", "not", "imply", "exists", "forall", "when"})
UNSUPPORTED = frozenset(
    {"<", ">", "<=", ">=", "decrease", "assign", "scale-up", "scale-down", "preference", "oneof", "probabilistic"}
    | {"at", "over", "always", "sometime", "within", "at-most-once", "sometime-after", "sometime-before"}
)
"""Heads of formulas that other versions of PDDL have; refused unless the domain has a predicate of the name."""

EQUALITY_SCHEMA = PredicateSchema(EQUALITY, (TypedName("?x"), TypedName("?y")))

Variables = dict[str, TypedName]


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


class FormulaReader:
    """Reads the formulas of one text."""

    def __init__(self, notebook: Notebook, names: Names) -> None:
        self.notebook, self.names = notebook, names
        self.undeclared = UndeclaredNames(notebook)
        self.offsets: dict[str, int] = {}
        """Where variables were declared last."""
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
            expected = "(predicate ...), (and ...), (not ...), ..."
            self._note_malformed(node, "a condition is a list", expected, _bracketed(node))
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
        return self.condition(node, variables) if self.is_renamed(node) else Literal(self.atom(node, variables))

    def is_renamed(self, group: Group) -> bool:
        """Return whether a formula began with a misspelt connective, which it then has in the right spelling."""
        head = group.head()
        if head in self.names.predicates or not any(isinstance(item, Group) for item in group.items):
            return False
        meant = nearest(head, CONNECTIVES)
        if meant is None:
            return False
        self.notebook.note(
            Code.MALFORMED_CONDITION, group.offset, "no connective", got=f"'{head}'", expected=one_of(CONNECTIVES),
            repair=f"write '{meant}'",
        )  # fmt: skip
        group.items[0] = Word(meant, group.items[0].offset)
        return True

    def _parts(self, group: Group, variables: Variables) -> tuple[Condition, ...]:
        return tuple([self.condition(item, variables) for item in group.items[1:]])

    def _negation(self, group: Group, variables: Variables) -> Condition:
        if len(group.items) != 2:
            self._note_malformed(group, "'not' takes one condition", "(not (predicate ...))", repair_of_not(group))
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
        for declaration in self._variables(nodes, owner):
            name = declaration.typed.name
            places = (declaration.offset, self.offsets.get(name, 0))
            is_as_written = all(self.notebook.source.text[place] == "?" for place in places)
            if name in found and is_as_written:
                self.notebook.note(
                    Code.DUPLICATE_NAME, declaration.offset, f"parameter '{name}' of {owner} is defined twice",
                    repair="rename one of them",
                )  # fmt: skip
            found.setdefault(name, declaration.typed)
            self.offsets[name] = declaration.offset
        return tuple(found.values())

    def declared_parameters(self, nodes: Sequence[Node], owner: str) -> tuple[TypedName, ...]:
        """Return the argument places that a predicate or function declares, in which names say nothing.

        A name that stands twice is two places, a likely mistake; as in VAL either takes what any of them takes.
        """
        found = list(self._variables(nodes, owner))
        types: dict[str, tuple[str, ...]] = {}
        for declaration in found:
            name = declaration.typed.name
            if name in types:
                self.notebook.warn(
                    Code.DUPLICATE_NAME, declaration.offset,
                    f"parameter '{name}' of {owner} is defined twice; read as two parameters",
                    repair="rename one of them",
                )  # fmt: skip
            joined = joined_types(self.notebook, types.get(name, ()), declaration)
            types[name] = (OBJECT,) if OBJECT in joined else joined
        return tuple(TypedName(declaration.typed.name, types[declaration.typed.name]) for declaration in found)

    def _variables(self, nodes: Sequence[Node], owner: str) -> Iterator[Declaration]:
        """Yield declared variables; a name without its ``?`` is noted and taken to be one."""
        for declaration in typed_list(self.notebook, nodes, self.names.ancestors):
            name = declaration.typed.name
            self.check_types(declaration)
            if not name.startswith("?") or name == "?":
                meant = f"?{name.lstrip('?') or 'x'}"
                self.notebook.note(
                    Code.INVALID_NAME, declaration.offset, f"parameter of {owner} is no variable", got=f"'{name}'",
                    expected="a name that begins with '?'", repair=f"write '{meant}'",
                )  # fmt: skip
                declaration = replace(declaration, typed=replace(declaration.typed, name=meant))
            yield declaration

    def check_types(self, declaration: Declaration) -> None:
        """Note types that are not declared."""
        for name in declaration.typed.types:
            if name not in self.names.ancestors:
                self.undeclared.add(
                    Code.UNDEFINED_TYPE, name, declaration.type_offset,
                    f"undeclared type of '{declaration.typed.name}'",
                    known=self.names.ancestors, declare="declare it under :types",
                )  # fmt: skip

    def atom(self, group: Group, variables: Variables) -> Atom:
        """Return the atom at `group`, whose first item is a word."""
        words = [item for item in group.items if isinstance(item, Word)]
        name, arguments = words[0].text, words[1:]
        if len(words) < len(group.items):
            self._note_nested(group, variables)
        elif name == EQUALITY:
            self._check_arity(group, EQUALITY_SCHEMA, arguments)
            for argument in arguments:
                self._check_term(argument, TypedName("?"), variables)
        elif (schema := self.names.predicates.get(name)) is None:
            self._note_unknown_predicate(words[0])
        elif self._check_arity(group, schema, arguments):
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
        self.undeclared.add(
            Code.UNDEFINED_PREDICATE, word.text, word.offset, "undeclared predicate", known=self.names.predicates,
            declare="declare it under :predicates",
        )  # fmt: skip

    def _check_arity(self, group: Group, schema: PredicateSchema | FunctionSchema, arguments: Sequence[Word]) -> bool:
        expected = len(schema.parameters)
        if len(arguments) != expected and not self.notebook.is_full:
            declared = Atom(schema.name, tuple(typed.name for typed in schema.parameters))
            self.notebook.note(
                Code.WRONG_ARITY, group.offset, f"wrong number of arguments of '{schema.name}'",
                got=str(len(arguments)), expected=str(expected),
                repair=f"give as many as its declaration has: {declared}",
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
        if word.text.startswith("?"):
            self.undeclared.add(
                Code.UNBOUND_VARIABLE, word.text, word.offset, "unbound variable", known=variables,
                declare="declare it as a parameter of the action or a quantifier",
            )  # fmt: skip
        elif f"?{word.text}" in variables:
            self.notebook.note(
                Code.UNDECLARED_OBJECT, word.offset, "an object of this name is not declared, but a variable is",
                got=f"'{word.text[:60]}'", expected=f"'?{word.text[:60]}'", repair=f"write '?{word.text[:60]}'",
            )  # fmt: skip
        else:
            self.undeclared.add(
                Code.UNDECLARED_OBJECT, word.text, word.offset, "undeclared object",
                known={**variables, **self.names.objects}, declare="declare it as an object or a constant",
            )  # fmt: skip

    def is_unsupported(self, group: Group) -> bool:
        """Return whether a formula begins with a word of other versions of PDDL; note it if so."""
        head = group.head()
        if head not in UNSUPPORTED or head in self.names.predicates:
            return False
        if head[0].isalpha() and not any(isinstance(item, Group) for item in group.items):
            return False  # ``(at ?x ?y)`` is a predicate that is not declared; ``(at start (p))`` is PDDL 2.1
        self.notebook.note(
            Code.UNSUPPORTED_FEATURE, group.offset, f"'{head}' is not supported", got=describe(group),
            expected="PDDL 2.1 level 1: and, or, not, imply, exists, forall, when, = or a predicate",
        )  # fmt: skip
        return True

    def _note_malformed(self, node: Node, message: str, expected: str, repair: str | None = None) -> None:
        self.notebook.note(
            Code.MALFORMED_CONDITION, node.offset, message, got=describe(node), expected=expected, repair=repair
        )

    def function_term(self, group: Group, variables: Variables) -> Atom:
        """Return the function applied to terms at `group`, whose first item is a word."""
        words = [item for item in group.items if isinstance(item, Word)]
        schema = self.names.functions.get(words[0].text)
        if schema is None or len(words) < len(group.items):
            self.note_unknown_function(group)
        elif self._check_arity(group, schema, words[1:]):
            for argument, parameter in zip(words[1:], schema.parameters, strict=True):
                self._check_term(argument, parameter, variables)
        return Atom(words[0].text, tuple([word.text for word in words[1:]]))

    def note_unknown_function(self, group: Group) -> None:
        """Note a function that is not declared."""
        self.undeclared.add(
            Code.UNDEFINED_FUNCTION, group.head(), group.offset, "undeclared function", known=self.names.functions,
            declare="declare it under :functions",
        )  # fmt: skip


def repair_of_not(group: Group) -> str:
    """Return how to mend a negation that has not exactly one list."""
    words = [item.text for item in group.items[1:] if isinstance(item, Word)]
    if words and len(words) == len(group.items) - 1:
        return f"write (not ({shortened(' '.join(words))}))"
    return "write one (not ...) for each of them"


def _bracketed(node: Node) -> str:
    if isinstance(node, Word):
        return f"write '({node.text[:60]} ...)', or remove it"
    return "write '(and (...' around them"
