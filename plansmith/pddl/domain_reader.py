"""The sections of a domain: types, constants, predicates, functions, rules and actions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from plansmith.pddl.diagnostics import Code, Notebook, Severity, nearest, one_of, suggestion
from plansmith.pddl.effect_reader import EffectReader
from plansmith.pddl.formula_reader import CONNECTIVES, Names
from plansmith.pddl.model import (
    EQUALITY,
    OBJECT,
    ActionSchema,
    Conjunction,
    CostIncrease,
    DerivedPredicate,
    Domain,
    Effect,
    FunctionSchema,
    PredicateSchema,
    TypedName,
    ancestors_of,
)
from plansmith.pddl.sections import Definition, Reading, TextReader
from plansmith.pddl.sexpr import PART_KEYWORDS, Group, Node, Word, describe, shortened
from plansmith.pddl.stratification import strata
from plansmith.pddl.typed_lists import Declaration, joined_types, typed_list

MAX_DECLARED = 1000
"""Types, and derived predicates: what hangs together costs the square of its number."""

DOMAIN_SECTIONS = (":requirements", ":types", ":constants", ":predicates", ":functions", ":derived", ":action")


class DomainReader(TextReader):
    """Reads a domain; what may be named is read before what names it, wherever it stands."""

    def __init__(self, notebook: Notebook) -> None:
        super().__init__(notebook, Names())
        self.formulas = self.effects = EffectReader(notebook, self.names)
        self.type_offsets: dict[str, int] = {}
        """Where types are declared, in `places` where their supertypes are."""

    def read(self, definition: Definition) -> Reading[Domain]:
        """Return the domain."""
        self.check_sections(definition, DOMAIN_SECTIONS)
        requirements = self.requirements(definition)
        types = self._types(definition.tail(":types"))
        constants = self.objects(definition.tail(":constants"), "constant")
        functions = self._functions(definition.tail(":functions"))
        predicates = self._predicates(definition.tail(":predicates"))
        derived = self._rules([section for section in definition.sections if section.head() == ":derived"])
        actions = self._actions([section for section in definition.sections if section.head() == ":action"])
        domain = Domain(definition.name, requirements, types, constants, predicates, actions, functions, derived)
        self._check_stratified(domain)
        self._check_declared(definition)
        return Reading(domain, self.notebook, self.places)

    def _types(self, nodes: Sequence[Node]) -> tuple[TypedName, ...]:
        """Return the types; supertypes that are only named as such are added below `object`."""
        found: dict[str, TypedName] = {}
        names = {OBJECT, *(node.text.strip("-") for node in nodes if isinstance(node, Word))} - {""}
        for declaration in typed_list(self.notebook, nodes, names):
            typed = declaration.typed
            if typed.name in found and found[typed.name].types != typed.types:
                found[typed.name] = self._joined(declaration, found[typed.name])
            elif typed.name != OBJECT:
                found[typed.name] = typed
                self.places[("type", typed.name)] = declaration.type_offset
                self.type_offsets[typed.name] = declaration.offset
        if found and self._is_too_many(len(found), "types", nodes[0].offset):
            return ()
        for typed in tuple(found.values()):
            for parent in typed.types:
                if parent != OBJECT and parent not in found:
                    self._note_implicit_type(typed, parent, found)
                    found[parent] = TypedName(parent)
        self.names.ancestors |= self._ancestors(found)
        return tuple(found.values())

    def _joined(self, declaration: Declaration, known: TypedName) -> TypedName:
        """Return a type that is declared twice, below all supertypes that either declaration names, as in VAL."""
        name, both = declaration.typed.name, joined_types(self.notebook, known.types, declaration)
        types = tuple(parent for parent in both if parent != OBJECT)
        self.notebook.warn(
            Code.DUPLICATE_NAME, declaration.offset,
            f"type '{name}' is defined twice with different supertypes; read as below {' and '.join(types)}",
            repair="remove one of them",
        )  # fmt: skip
        return TypedName(name, types)

    def _note_implicit_type(self, typed: TypedName, parent: str, known: Iterable[str]) -> None:
        self.notebook.warn(
            Code.UNDEFINED_TYPE, self.places[("type", typed.name)],
            f"'{parent}', the supertype of '{typed.name}', is not declared",
            repair=suggestion(parent, known, f"add '{parent}' to :types"),
        )  # fmt: skip

    def _ancestors(self, types: dict[str, TypedName]) -> dict[str, frozenset[str]]:
        found = ancestors_of({name: typed.types for name, typed in types.items()})
        cyclic = [name for name in types if any(name in found.get(parent, ()) for parent in types[name].types)]
        if cyclic:
            self.notebook.note(
                Code.CYCLIC_TYPES, self.places.get(("type", cyclic[0]), 0), "types in a circle",
                got=" - ".join(f"'{name}'" for name in cyclic[:6]), expected="a hierarchy below object",
                repair="remove one of the supertypes",
            )  # fmt: skip
        return found

    def _is_too_many(self, number: int, kind: str, offset: int) -> bool:
        """Return whether there are more than `MAX_DECLARED`; note it if so."""
        if number > MAX_DECLARED:
            self.notebook.note(
                Code.UNSUPPORTED_FEATURE, offset, f"so many {kind} are not supported", got=str(number),
                expected=f"at most {MAX_DECLARED}",
            )  # fmt: skip
        return number > MAX_DECLARED

    def _schemas(self, nodes: Sequence[Node], kind: str) -> dict[str, tuple[TypedName, ...]]:
        found: dict[str, tuple[TypedName, ...]] = {}
        for node in nodes:
            name = node.items[0] if isinstance(node, Group) and node.items else None
            if not isinstance(node, Group) or not isinstance(name, Word):
                self.note_section(node, f"not a {kind}", "(name ?x - type ...)")
                continue
            parameters = self.formulas.declared_parameters(node.items[1:], f"{kind} '{name.text}'")
            if name.text in CONNECTIVES or name.text[0] in "?:" or name.text == EQUALITY:
                self.note_name(name.offset, name.text, kind)
            elif name.text in found:
                is_same = [p.types for p in parameters] == [p.types for p in found[name.text]]
                self.notebook.note(
                    Code.DUPLICATE_NAME, name.offset, f"{kind} '{name.text}' is defined twice",
                    repair="remove one" if is_same else "rename one of them",
                    severity=Severity.WARNING if is_same else Severity.ERROR,
                )  # fmt: skip
            else:
                found[name.text] = parameters
                self.places[(kind, name.text)] = name.offset
        return found

    def _predicates(self, nodes: Sequence[Node]) -> tuple[PredicateSchema, ...]:
        schemas = self._schemas(nodes, "predicate")
        self.names.predicates |= {name: PredicateSchema(name, parameters) for name, parameters in schemas.items()}
        return tuple(self.names.predicates.values())

    def _functions(self, nodes: Sequence[Node]) -> tuple[FunctionSchema, ...]:
        """Return the functions of ``(f ?x) (g) - number``; every one is numeric."""
        kept: list[Node] = []
        position = 0
        while position < len(nodes):
            node = nodes[position]
            position += 1
            if not isinstance(node, Word) or node.text != "-":
                kept.append(node)
                continue
            kind = nodes[position] if position < len(nodes) else node
            position += 1
            if not isinstance(kind, Word) or kind.text != "number":
                self.notebook.note(
                    Code.UNSUPPORTED_FEATURE, kind.offset, "object fluents are not supported", got=describe(kind),
                    expected="- number",
                )  # fmt: skip
        schemas = self._schemas(kept, "function")
        self.names.functions |= {name: FunctionSchema(name, parameters) for name, parameters in schemas.items()}
        return tuple(self.names.functions.values())

    def _rules(self, sections: Sequence[Group]) -> tuple[DerivedPredicate, ...]:
        found: list[tuple[Group, Node]] = []
        for section in sections:
            head = section.items[1] if len(section.items) == 3 else None
            if isinstance(head, Group) and head.head():
                found.append((head, section.items[2]))
                self.names.derived.add(head.head())
            else:
                shape = "(:derived (name ?x) (condition))"
                self.note_section(section, "':derived' takes an atom and a condition", shape)
        if found and self._is_too_many(len(self.names.derived), "derived predicates", found[0][0].offset):
            return ()
        return tuple(self._rule(head, body) for head, body in found)

    def _rule(self, head: Group, body: Node) -> DerivedPredicate:
        name = head.head()
        declared = self.names.predicates.get(name)
        parameters = self.formulas.parameters(head.items[1:], f"derived predicate '{name}'")
        if declared is None or len(declared.parameters) != len(parameters):
            self.formulas.atom(head, {typed.name: typed for typed in parameters})  # notes what is wrong
        else:
            parameters = tuple(
                TypedName(own.name, own.types if own.types != (OBJECT,) else given.types)
                for own, given in zip(parameters, declared.parameters, strict=True)
            )
        self.places.setdefault(("derived", name), head.offset)
        condition = self.formulas.condition(body, {typed.name: typed for typed in parameters})
        self._finish_unbound(parameters, (head, body))
        return DerivedPredicate(name, parameters, condition)

    def _check_stratified(self, domain: Domain) -> None:
        name = strata(domain.derived).circular if domain.derived else None
        if name is not None:
            self.notebook.note(
                Code.NOT_STRATIFIED, self.places.get(("derived", name), 0),
                f"derived predicate '{name}' depends on its own negation", expected="stratified rules",
                repair="state the negative condition over predicates that do not depend on this one",
            )  # fmt: skip

    def _check_declared(self, definition: Definition) -> None:
        """Say of undeclared names what the whole shows: a lost section, or a declaration that is misspelt."""
        undeclared = self.formulas.undeclared
        self.note_lost_section(definition, ":types", Code.UNDEFINED_TYPE)
        self.note_lost_section(definition, ":predicates", Code.UNDEFINED_PREDICATE)
        self.note_lost_section(definition, ":functions", Code.UNDEFINED_FUNCTION)
        predicates = {name: self.places["predicate", name] for name in self.names.predicates}
        undeclared.finish(Code.UNDEFINED_PREDICATE, declared=predicates, within=definition.sections)
        undeclared.finish(Code.UNDEFINED_TYPE, declared=self.type_offsets, within=definition.sections)
        undeclared.finish_all()

    def _actions(self, sections: Sequence[Group]) -> tuple[ActionSchema, ...]:
        found: list[ActionSchema] = []
        for section in sections:
            name = section.items[1] if len(section.items) > 1 else None
            if not isinstance(name, Word) or name.text.startswith(":"):
                self.note_section(section, "an action without a name", "(:action NAME ...)")
                name = Word("", section.offset)
            if ("action", name.text) in self.places:
                self.notebook.note(
                    Code.DUPLICATE_NAME, name.offset, f"action '{name.text}' is defined twice",
                    repair="rename one of them",
                )  # fmt: skip
            found.append(self._action(name.text, section))
            self.places.setdefault(("action", name.text), name.offset)
        return tuple(found)

    def _action(self, name: str, section: Group) -> ActionSchema:
        parts = self._parts(section, 2 if name else 1)
        parameter_list = parts.get(":parameters")
        parameters: tuple[TypedName, ...] = ()
        if isinstance(parameter_list, Group):
            parameters = self.formulas.parameters(parameter_list.items, f"action '{name}'")
            self.places[("parameters", name)] = parameter_list.offset
        elif parameter_list is not None:
            self.note_section(parameter_list, ":parameters takes a list", "(?x - type ...)")
        variables = {typed.name: typed for typed in parameters}
        precondition, effect = parts.get(":precondition"), parts.get(":effect")
        if effect is not None:
            self.places[("effect", name)] = effect.offset
        action = ActionSchema(
            name,
            parameters,
            self.formulas.condition(precondition, variables) if precondition else Conjunction(),
            _without_doubles(self.effects.effects(effect, variables)) if effect else (),
        )
        self._check_bound(action, section, has_parameters=parameter_list is not None)
        return action

    def _check_bound(self, action: ActionSchema, section: Group, *, has_parameters: bool) -> None:
        """Say of unbound variables what the whole action shows: lost parameters, or a parameter that is misspelt."""
        unbound = self.formulas.undeclared.names(Code.UNBOUND_VARIABLE)
        if unbound and not has_parameters:
            self.formulas.undeclared.drop(Code.UNBOUND_VARIABLE)
            self.notebook.note(
                Code.MISSING_SECTION, section.offset, f"action '{action.name}' has no :parameters, but variables",
                got=shortened(", ".join(unbound)), expected=":parameters (?x - type ...)",
                repair=f"add :parameters ({shortened(' '.join(unbound))})",
            )  # fmt: skip
        self._finish_unbound(action.parameters, section.items)

    def _finish_unbound(self, parameters: Sequence[TypedName], within: Sequence[Node]) -> None:
        declared = {parameter.name: self.formulas.offsets[parameter.name] for parameter in parameters}
        self.formulas.undeclared.finish(Code.UNBOUND_VARIABLE, declared=declared, within=within)

    def _part_keyword(self, key: Node) -> Word | None:
        """Return the keyword of a part of an action, a misspelt one as it was meant; None where there is none."""
        if isinstance(key, Word) and key.text in PART_KEYWORDS:
            return key
        meant = nearest(f":{key.text.lstrip(':')}", PART_KEYWORDS) if isinstance(key, Word) else None
        self.notebook.note(
            Code.MALFORMED_SECTION, key.offset, "unknown part of an action", got=describe(key),
            expected=one_of(PART_KEYWORDS), repair=None if meant is None else f"write '{meant}'",
        )  # fmt: skip
        return None if meant is None else Word(meant, key.offset)

    def _parts(self, section: Group, start: int) -> dict[str, Node]:
        items, parts = section.items, dict[str, Node]()
        position = start
        while position < len(items):
            key = self._part_keyword(items[position])
            position += 1
            if key is None:
                continue
            value = items[position] if position < len(items) else None
            if value is None or (isinstance(value, Word) and value.text.startswith(":")):
                self.note_section(key, f"{key.text} without a value", "a list")
                continue
            position += 1
            if key.text in parts:
                self.notebook.note(
                    Code.DUPLICATE_SECTION, key.offset, f"{key.text} stands twice", expected="it once",
                    repair="join the two",
                )  # fmt: skip
            parts.setdefault(key.text, value)
        return parts


def _without_doubles(effects: Iterable[Effect]) -> tuple[Effect, ...]:
    """Return every effect once; increases of the cost add up, be they equal."""
    numbered = ((effect, place if isinstance(effect, CostIncrease) else -1) for place, effect in enumerate(effects))
    return tuple(effect for effect, _ in dict.fromkeys(numbered))
