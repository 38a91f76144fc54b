"""PDDL text to `Domain` and `Problem`, with the place of the first mistake.

Reads STRIPS with typing (hierarchies, ``either``), equality, negative conditions and constants. Every other feature of
PDDL is refused by name and line. Not here: reporting every mistake of a file at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from plansmith.errors import PddlParseError
from plansmith.pddl.model import (
    EQUALITY,
    OBJECT,
    ActionSchema,
    Atom,
    Condition,
    Conjunction,
    Domain,
    Literal,
    PlanStep,
    PredicateSchema,
    Problem,
    TypedName,
    literals_of,
)
from plansmith.pddl.sexpr import Group, Node, Word, describe, read_group, read_root

_UNSUPPORTED = frozenset(
    {"or", "imply", "exists", "forall", "when", "increase", "decrease", "assign", "scale-up", "scale-down"}
    | {"at", "over", "<", ">", "<=", ">=", "preference", "oneof", "probabilistic"}
)
_UNSUPPORTED_SECTIONS = frozenset(
    {":functions", ":derived", ":durative-action", ":process", ":event", ":constraints", ":axiom"}
)
_PROBLEM_EXTRAS = frozenset({":metric", ":length", ":requirements"})


def parse_domain(text: str, *, source: str = "<domain>") -> Domain:
    """Return the domain that `text` defines; `source` names it in errors.

    Raises:
        PddlParseError: the first mistake, with file, line, column, what was got and what was expected.
    """
    define = _definition(read_group(text, source), "domain")
    sections = [_group(item) for item in define[1:]]
    for section in sections:
        _check_section(section, {":requirements", ":types", ":constants", ":predicates", ":action"})
    single = _single_sections(section for section in sections if section.head() != ":action")
    domain = Domain(
        name=_define_name(define[0]),
        requirements=tuple(_word(item).text for item in _tail(single, ":requirements")),
        types=_typed_names(_tail(single, ":types")),
        constants=_typed_names(_tail(single, ":constants")),
        predicates=tuple(_predicate(_group(item)) for item in _tail(single, ":predicates")),
        actions=(),
    )
    _check_types(domain, single)
    _check_declared_once(domain, single)
    reader = _ConditionReader(domain, {constant.name: constant for constant in domain.constants})
    actions = tuple(_action(section, reader) for section in sections if section.head() == ":action")
    _check_unique(
        [
            (action.name, section)
            for action, section in zip(
                actions, [section for section in sections if section.head() == ":action"], strict=True
            )
        ],
        "action",
    )
    return Domain(domain.name, domain.requirements, domain.types, domain.constants, domain.predicates, actions)


def parse_problem(text: str, domain: Domain, *, source: str = "<problem>") -> Problem:
    """Return the problem that `text` defines, checked against `domain`.

    Raises:
        PddlParseError: the first mistake, including an undeclared object or predicate, a wrong arity or type.
    """
    define = _definition(read_group(text, source), "problem")
    sections = [_group(item) for item in define[1:]]
    for section in sections:
        _check_section(section, {":domain", ":objects", ":init", ":goal"} | _PROBLEM_EXTRAS)
    single = _single_sections(sections)
    for required in (":domain", ":init", ":goal"):
        if required not in single:
            raise PddlParseError(
                f"the problem has no {required}", where=str(define[0].place), expected=f"({required} ...)"
            )
    objects = _typed_names(_tail(single, ":objects"))
    _check_object_types(objects, domain, single.get(":objects"))
    known = {typed.name: typed for typed in (*domain.constants, *objects)}
    reader = _ConditionReader(domain, known)
    goal_items = _tail(single, ":goal")
    if len(goal_items) != 1:
        raise PddlParseError(
            "a goal is one condition",
            where=str(single[":goal"].place),
            got=f"{len(goal_items)} items",
            expected="(:goal (and ...))",
        )
    return Problem(
        name=_define_name(define[0]),
        domain_name=_word(_tail(single, ":domain")[0]).text if _tail(single, ":domain") else "",
        objects=objects,
        init=_init_atoms(_tail(single, ":init"), reader),
        goal=reader.condition(goal_items[0], {}),
    )


def parse_step(text: str) -> PlanStep:
    """Return the step that ``(name arg ...)`` names.

    Raises:
        PddlParseError: not one flat bracketed list of words.
    """
    group = read_group(text, "<step>")
    words = [_word(item) for item in group.items]
    if not words:
        raise PddlParseError("an empty step", where=str(group.place), got="()", expected="(action argument ...)")
    return PlanStep(words[0].text, tuple(word.text for word in words[1:]))


def parse_plan(text: str, *, source: str = "<plan>") -> tuple[PlanStep, ...]:
    """Return the steps of a plan text: one ``(action argument ...)`` after another; ``;`` starts a comment."""
    steps = []
    for item in read_root(text, source).items:
        words = [_word(part) for part in _group(item).items]
        if not words:
            raise PddlParseError("an empty step", where=str(item.place), got="()", expected="(action argument ...)")
        steps.append(PlanStep(words[0].text, tuple(word.text for word in words[1:])))
    return tuple(steps)


def _definition(group: Group, kind: str) -> list[Group]:
    items = group.items
    name = items[1] if len(items) > 1 else None
    if group.head() != "define" or not isinstance(name, Group) or name.head() != kind or len(name.items) != 2:
        raise PddlParseError(
            f"not a {kind}", where=str(group.place), got=describe(name or group), expected=f"(define ({kind} NAME) ...)"
        )
    return [_group(item) for item in items[1:]]


def _define_name(group: Group) -> str:
    return _word(group.items[1]).text


def _tail(sections: dict[str, Group], key: str) -> list[Node]:
    return sections[key].items[1:] if key in sections else []


def _group(node: Node) -> Group:
    if isinstance(node, Word):
        raise PddlParseError("unexpected word", where=str(node.place), got=describe(node), expected="'('")
    return node


def _word(node: Node) -> Word:
    if isinstance(node, Group):
        raise PddlParseError("unexpected list", where=str(node.place), got=describe(node), expected="a name")
    return node


def _check_section(section: Group, known: set[str]) -> None:
    head = section.head()
    if head in _UNSUPPORTED_SECTIONS:
        raise PddlParseError(
            f"{head} is not supported",
            where=str(section.place),
            got=head,
            expected="STRIPS with typing, equality, negative preconditions and constants",
        )
    if head not in known:
        raise PddlParseError(
            "unknown section",
            where=str(section.place),
            got=describe(section),
            expected="one of " + ", ".join(sorted(known)),
        )


def _single_sections(sections: Iterable[Group]) -> dict[str, Group]:
    found: dict[str, Group] = {}
    for section in sections:
        if section.head() in found:
            raise PddlParseError(
                f"section {section.head()} stands twice",
                where=str(section.place),
                expected=f"it once; the first is at {found[section.head()].place}",
                cure="join the two",
            )
        found[section.head()] = section
    return found


def _check_declared_once(domain: Domain, sections: dict[str, Group]) -> None:
    declared: tuple[tuple[str, str, Sequence[TypedName | PredicateSchema]], ...] = (
        ("type", ":types", domain.types),
        ("constant", ":constants", domain.constants),
        ("predicate", ":predicates", domain.predicates),
    )
    for kind, section, items in declared:
        _check_unique([(item.name, sections[section]) for item in items], kind)


def _check_unique(names: Iterable[tuple[str, Group]], kind: str) -> None:
    seen: set[str] = set()
    for name, node in names:
        if name in seen:
            raise PddlParseError(f"{kind} '{name}' is defined twice", where=str(node.place), cure="rename one of them")
        seen.add(name)


def _typed_names(nodes: Sequence[Node]) -> tuple[TypedName, ...]:
    """Read ``a b - t c - (either t u) d``; names without a type belong to `object`."""
    found: list[TypedName] = []
    pending: list[str] = []
    position = 0
    while position < len(nodes):
        word = _word(nodes[position])
        if word.text != "-":
            pending.append(word.text)
        else:
            position += 1
            if position == len(nodes):
                raise PddlParseError(
                    "'-' without a type", where=str(word.place), got="the end of the list", expected="a type"
                )
            types = _types(nodes[position])
            found.extend(TypedName(name, types) for name in pending)
            pending = []
        position += 1
    return (*found, *(TypedName(name) for name in pending))


def _types(node: Node) -> tuple[str, ...]:
    if isinstance(node, Word):
        return (node.text,)
    if node.head() != "either" or len(node.items) < 2:
        raise PddlParseError("not a type", where=str(node.place), got=describe(node), expected="a type or (either ...)")
    return tuple(_word(item).text for item in node.items[1:])


def _predicate(group: Group) -> PredicateSchema:
    if not group.items:
        raise PddlParseError("a predicate without a name", where=str(group.place), got="()", expected="(name ?x ...)")
    return PredicateSchema(_word(group.items[0]).text, _typed_names(group.items[1:]))


def _check_types(domain: Domain, sections: dict[str, Group]) -> None:
    known = {OBJECT, *(typed.name for typed in domain.types)}
    used = [(":types", domain.types), (":constants", domain.constants)]
    used += [(":predicates", predicate.parameters) for predicate in domain.predicates]
    for section, names in used:
        _check_known_types(names, known, sections.get(section))


def _check_known_types(names: Iterable[TypedName], known: set[str], section: Group | None) -> None:
    for typed in names:
        for name in typed.types:
            if name not in known:
                raise PddlParseError(
                    f"undeclared type of '{typed.name}'",
                    where=str(section.place) if section else None,
                    got=f"'{name}'",
                    expected="one of " + ", ".join(sorted(known)),
                )


def _check_object_types(objects: Sequence[TypedName], domain: Domain, section: Group | None) -> None:
    _check_known_types(objects, {OBJECT, *(typed.name for typed in domain.types)}, section)
    seen: set[str] = set()
    for typed in objects:
        if typed.name in seen:
            raise PddlParseError(
                f"object '{typed.name}' is declared twice",
                where=str(section.place) if section else None,
                cure="remove one of them",
            )
        seen.add(typed.name)


def _init_atoms(nodes: Sequence[Node], reader: _ConditionReader) -> tuple[Atom, ...]:
    atoms: dict[Atom, None] = {}
    for node in nodes:
        condition = reader.condition(node, {})
        for literal in literals_of(condition):
            if literal.atom.predicate == EQUALITY:
                raise PddlParseError(
                    "'=' in the initial state",
                    where=str(_group(node).place),
                    got=describe(node),
                    expected="an atom of a declared predicate",
                )
            if literal.is_positive:
                atoms[literal.atom] = None
    return tuple(atoms)


def _action(section: Group, reader: _ConditionReader) -> ActionSchema:
    if len(section.items) < 2:
        raise PddlParseError("an action without a name", where=str(section.place), expected="(:action NAME ...)")
    name, parts = _word(section.items[1]).text, _action_parts(section)
    parameter_list = parts.get(":parameters")
    parameters = _typed_names(_group(parameter_list).items) if parameter_list else ()
    _check_known_types(parameters, reader.known_types, section)
    for typed in parameters:
        if not typed.name.startswith("?"):
            raise PddlParseError(
                f"parameter of action '{name}' is no variable",
                where=str(section.place),
                got=f"'{typed.name}'",
                expected="a name that begins with '?'",
            )
    _check_unique([(typed.name, section) for typed in parameters], f"parameter of action '{name}'")
    variables = {typed.name: typed for typed in parameters}
    precondition, effect = parts.get(":precondition"), parts.get(":effect")
    return ActionSchema(
        name,
        parameters,
        reader.condition(precondition, variables) if precondition else Conjunction(),
        literals_of(reader.condition(effect, variables, is_effect=True)) if effect else (),
    )


def _action_parts(section: Group) -> dict[str, Node]:
    items, parts = section.items[2:], dict[str, Node]()
    for position in range(0, len(items), 2):
        key = _word(items[position])
        if key.text not in (":parameters", ":precondition", ":effect"):
            raise PddlParseError(
                "unknown part of an action",
                where=str(key.place),
                got=describe(key),
                expected=":parameters, :precondition or :effect",
            )
        if key.text in parts:
            raise PddlParseError(f"{key.text} stands twice", where=str(key.place), expected="it once")
        if position + 1 == len(items):
            raise PddlParseError(f"{key.text} without a value", where=str(key.place), expected="a list")
        parts[key.text] = items[position + 1]
    return parts


class _ConditionReader:
    """Reads conditions and effects against the declared predicates, objects and types."""

    def __init__(self, domain: Domain, objects: dict[str, TypedName]) -> None:
        self.domain, self.objects = domain, objects
        self.known_types = {OBJECT, *(typed.name for typed in domain.types)}

    def condition(self, node: Node, variables: dict[str, TypedName], *, is_effect: bool = False) -> Condition:
        """Return the condition at `node`; an empty list is true."""
        group = _group(node)
        head = group.head()
        if head in _UNSUPPORTED and self.domain.predicate(head) is None:
            raise PddlParseError(
                f"'{head}' is not supported",
                where=str(group.place),
                got=describe(group),
                expected="and, not, = or a predicate",
            )
        if not group.items:
            return Conjunction()
        if head == "and":
            return Conjunction(tuple(self.condition(item, variables, is_effect=is_effect) for item in group.items[1:]))
        if head == "not":
            return self._negation(group, variables, is_effect=is_effect)
        return Literal(self._atom(group, variables, is_effect=is_effect))

    def _negation(self, group: Group, variables: dict[str, TypedName], *, is_effect: bool) -> Literal:
        inner = self.condition(group.items[1], variables, is_effect=is_effect) if len(group.items) == 2 else None
        if not isinstance(inner, Literal):
            raise PddlParseError(
                "'not' takes one literal", where=str(group.place), got=describe(group), expected="(not (predicate ...))"
            )
        return Literal(inner.atom, not inner.is_positive)

    def _atom(self, group: Group, variables: dict[str, TypedName], *, is_effect: bool) -> Atom:
        if group.head() == EQUALITY and any(isinstance(item, Group) for item in group.items):
            raise PddlParseError(
                "numeric '=' is not supported",
                where=str(group.place),
                got=describe(group),
                expected="two objects or variables",
            )
        words = [_word(item) for item in group.items]
        name, arguments = words[0].text, words[1:]
        if name == EQUALITY:
            parameters: tuple[TypedName, ...] = (TypedName("?1"), TypedName("?2"))
            if is_effect:
                raise PddlParseError("'=' cannot be an effect", where=str(group.place), expected="a predicate")
        else:
            schema = self.domain.predicate(name)
            if schema is None:
                known = ", ".join(sorted(predicate.name for predicate in self.domain.predicates))
                raise PddlParseError(
                    "undeclared predicate", where=str(words[0].place), got=f"'{name}'", expected=f"one of {known}"
                )
            parameters = schema.parameters
        if len(arguments) != len(parameters):
            raise PddlParseError(
                f"wrong number of arguments of '{name}'",
                where=str(group.place),
                got=str(len(arguments)),
                expected=str(len(parameters)),
            )
        for argument, parameter in zip(arguments, parameters, strict=True):
            self._check_term(argument, parameter, variables)
        return Atom(name, tuple(argument.text for argument in arguments))

    def _check_term(self, word: Word, parameter: TypedName, variables: dict[str, TypedName]) -> None:
        term = variables.get(word.text) or self.objects.get(word.text)
        if term is None:
            kind = "unbound variable" if word.text.startswith("?") else "undeclared object"
            raise PddlParseError(
                kind,
                where=str(word.place),
                got=f"'{word.text}'",
                expected=f"one of {', '.join(sorted({*variables, *self.objects})) or 'none'}",
            )
        if not any(is_subtype(self.domain, own, parameter) for own in term.types):
            raise PddlParseError(
                f"wrong type of '{word.text}'",
                where=str(word.place),
                got=" or ".join(term.types),
                expected=" or ".join(parameter.types),
            )


def is_subtype(domain: Domain, type_name: str, parameter: TypedName) -> bool:
    """Return whether an object of `type_name` may stand where `parameter` is declared."""
    return not domain.supertypes(type_name).isdisjoint(parameter.types)
