"""Appendix E's checks (NL2Plan, figure A13) under the paper's names: what is wrong with an answer of step 4 or 5.

A fragment is put into a whole text that is sound but for it, the readers of `plansmith.pddl` note every mistake, and
each is told by the line that the model wrote. What they let pass and the paper does not is looked for here: parameters
and predicates without types, predicates or objects called like something else, words that may not stand in effects.
What the paper's list does not name, such as brackets, counts with the check of the section in which it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from plansmith.config.modelling import Checks
from plansmith.modelling.assembly import Assembly, predicate_lines, type_lines, unwrapped
from plansmith.modelling.products import LEGAL_NAME, RESERVED, ActionSketch, Predicate, TypeSketch, TypeTree
from plansmith.modelling.reading import (
    COMMENT,
    PROBLEM_TITLES,
    SCHEMA_TITLES,
    Fault,
    Fragment,
    Line,
    Section,
    Written,
    read_predicates,
    read_written,
    sections_of,
)
from plansmith.pddl.diagnostics import Code, Diagnostic, suggestion
from plansmith.pddl.model import OBJECT
from plansmith.pddl.parser import read_domain, read_problem

SCHEMA_CHECKS = (
    "header_inclusion", "keyword_usage", "param_types", "predicate_names", "predicate_format", "predicate_usage",
)  # fmt: skip
"""Of step 4, in the order in which they are made; the first that finds something is the only one that speaks."""
OBJECT_CHECKS = ("obj_type", "obj_type_name", "obj_pred_name")
FACT_CHECKS = ("pred_exists", "pred_nargs", "pred_objs", "pred_types")
PAPER_CHECKS = (*SCHEMA_CHECKS, *OBJECT_CHECKS, *FACT_CHECKS)

FORBIDDEN_IN_EFFECTS: Mapping[Checks, frozenset[str]] = {
    "paper": frozenset({"forall", "exists", "if"}),
    "ours": frozenset({"exists", "if", "or", "imply"}),
}
"""The paper forbids `forall`, yet its text boasts of actions on every object of a type."""

_OF_FACTS = {
    Code.WRONG_ARITY: "pred_nargs",
    Code.UNDECLARED_OBJECT: "pred_objs",
    Code.UNBOUND_VARIABLE: "pred_objs",
    Code.WRONG_ARGUMENT_TYPE: "pred_types",
}


# --- steps 1 to 3: what the paper leaves to feedback, and no later stage could read


def check_types(types: Iterable[TypeSketch]) -> tuple[Fault, ...]:
    """Return the types whose names cannot be names."""
    return tuple(_bad_name(sketch.name, "type") for sketch in types if not is_legal(sketch.name))


def check_tree(tree: TypeTree, types: Iterable[TypeSketch]) -> tuple[Fault, ...]:
    """Return names that cannot be names, and types of step 1 that got lost."""
    lost = [sketch.name for sketch in types if sketch.name not in tree.names]
    faults = [_bad_name(node.name, "type") for node in tree.nodes if not is_legal(node.name)]
    return (*faults, *(Fault("hierarchy", f"type '{name}' is missing; give it a place in the tree") for name in lost))


def check_actions(actions: Iterable[ActionSketch]) -> tuple[Fault, ...]:
    """Return the actions whose names cannot be names."""
    return tuple(_bad_name(sketch.name, "action") for sketch in actions if not is_legal(sketch.name))


def is_legal(name: str) -> bool:
    """Return whether something may have a name."""
    return bool(LEGAL_NAME.fullmatch(name)) and name not in RESERVED


def _bad_name(name: str, kind: str) -> Fault:
    return Fault("names", f"'{name[:60]}' cannot be the name of a {kind}; use letters, digits, '-' and '_'")


# --- step 4


def check_schema(
    answer: str, *, name: str, tree: TypeTree, predicates: Sequence[Predicate], checks: Checks
) -> tuple[Fault, ...]:
    """Return what the first check that finds something finds in the answer that writes an action.

    Args:
        answer: of step 4.
        name: of the action.
        tree: the types.
        predicates: known by now.
        checks: the paper's, or ours.
    """
    written = read_written(answer, SCHEMA_TITLES)
    section = _first(answer, SCHEMA_TITLES, "predicate")
    noted = _noted_in_action(name, written, tree, predicates, section)
    found: dict[str, list[Fault]] = {check: [] for check in SCHEMA_CHECKS}
    found["header_inclusion"] = list(written.faults)
    found["keyword_usage"] = list(_keywords(written.fragments["effect"], checks))
    found["param_types"] = list(_untyped_parameters(written.fragments["parameter"]))
    found["predicate_names"] = list(_predicate_names(section.body, tree, predicates))
    found["predicate_format"] = list(_untyped_arguments(section.body))
    for check, fault in noted:
        found[check].append(fault)
    return next((_once(found[check]) for check in SCHEMA_CHECKS if found[check]), ())


def _first(answer: str, titles: Sequence[str], title: str) -> Section:
    sections = sections_of(answer, titles)[1][title]
    return sections[0] if sections else Section(title, ())


def _once(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    return tuple(sorted(dict.fromkeys(faults), key=lambda fault: fault.line))


def _keywords(effect: Fragment, checks: Checks) -> Iterator[Fault]:
    """Yield a fault for each forbidden word; in the condition of a ``when`` the paper alone forbids any."""
    opened = list[tuple[bool, list[str]]]()  # of each bracket: whether it is in a condition, what stands in it by now
    for offset, text in enumerate(effect.text.lower().split("\n")):
        for piece in re.findall(r"[()]|[^\s()]+", text.partition(COMMENT)[0]):
            if piece == ")":
                del opened[-1:]
                continue
            is_condition, before = opened[-1] if opened else (False, [])
            before.append(piece)
            if piece == "(":
                opened.append((is_condition or before == ["when", "("], []))
            elif len(before) == 1 and piece in FORBIDDEN_IN_EFFECTS[checks] and (checks == "paper" or not is_condition):
                message = f"'{piece}' may not be used in effects; say each effect by itself, or use 'when'"
                yield Fault("keyword_usage", message, effect.line + offset)


def _untyped_parameters(parameters: Fragment) -> Iterator[Fault]:
    for offset, text in enumerate(parameters.text.split("\n")):
        if text and " - " not in text:
            message = f"parameter '{text}' has no type; write '{text} - type'"
            yield Fault("param_types", message, parameters.line + offset)


def _predicate_names(lines: Sequence[Line], tree: TypeTree, known: Sequence[Predicate]) -> Iterator[Fault]:
    by_name = {predicate.name: predicate for predicate in known}
    for line, predicate in read_predicates(lines):
        if predicate.name in tree.names:
            message = f"predicate '{predicate.name}' has the name of a type; choose another name"
            yield Fault("predicate_names", message, line.number)
        same = by_name.get(predicate.name)
        if same is not None and argument_types(same) != argument_types(predicate):
            message = f"predicate '{predicate.name}' is declared already, as {same.declaration}; use that, or " \
                "choose another name"  # fmt: skip
            yield Fault("predicate_names", message, line.number)
        by_name.setdefault(predicate.name, predicate)


def argument_types(predicate: Predicate) -> tuple[str, ...]:
    """Return the type of each argument of a predicate, `object` where none is written."""
    return tuple(kind or OBJECT for _, kind in _arguments(predicate))


def _arguments(predicate: Predicate) -> Iterator[tuple[str, str]]:
    """Yield each argument of a predicate with its type, empty where none is written."""
    words = re.findall(r"\(either[^)]*\)|[^\s()]+", predicate.declaration)[1:]
    waiting: list[str] = []
    position = 0
    while position < len(words):
        if words[position] == "-" and position + 1 < len(words):
            yield from ((name, words[position + 1]) for name in waiting)
            waiting, position = [], position + 1
        else:
            waiting.append(words[position])
        position += 1
    yield from ((name, "") for name in waiting)


def _untyped_arguments(lines: Sequence[Line]) -> Iterator[Fault]:
    for line, predicate in read_predicates(lines):
        for name, kind in _arguments(predicate):
            if not kind:
                message = f"argument '{name}' of predicate '{predicate.name}' has no type; write '{name} - type'"
                yield Fault("predicate_format", message, line.number)


def _noted_in_action(
    name: str, written: Written, tree: TypeTree, known: Sequence[Predicate], section: Section
) -> Iterator[tuple[str, Fault]]:
    """Yield what the reader of PDDL notes in a domain with this action, with the check that it counts to."""
    text, names = Assembly(), {predicate.name for predicate in known}
    text.add("\n".join(["(define (domain d)", "(:types", *type_lines(tree), ")", "(:predicates"]))
    if known:
        text.add("\n".join(predicate_lines(known)))
    for line, predicate in read_predicates(section.body):
        if predicate.name not in names:
            names.add(predicate.name)
            text.add(predicate.declaration, "predicate", line.number)
    text.add(f")\n(:action {name}\n:parameters (")
    text.add_fragment(written.fragments["parameter"], "parameter")
    text.add(")")
    for part, keyword in (("precondition", ":precondition"), ("effect", ":effect")):
        if not written.fragments[part].is_empty:
            text.add(keyword)
            text.add_fragment(written.fragments[part], part)
    text.add("))")
    told = [_told(text, diagnostic) for diagnostic in read_domain(text.text).notebook.errors()]
    noted = [(part, Fault(_check_in_action(part), said, number)) for part, number, said in told]
    for _, fault in _with_brackets(noted, written, ("precondition", "effect"), "predicate_usage"):
        yield fault.check, fault


def _check_in_action(part: str) -> str:
    return {"parameter": "param_types", "predicate": "predicate_format"}.get(part, "predicate_usage")


def _told(text: Assembly, found: Diagnostic) -> tuple[str, int, str]:
    """Return the part of a text in which something is noted, the line of the answer, and what, by lines of the answer.

    A declaration of the frame is never misspelt: what is used for it is.
    """
    (part, line), use = text.origin(found.place), _USE.match(found.expected or "")
    if not part and use and found.got:
        part, line = text.origins[int(use[2]) - 1]
        said = [f"what is declared is {found.got}: got '{use[1]}', as in {use[3]}", f"to mend it, write {found.got}"]
    else:
        said = [found.message if found.got is None else f"{found.message}: got {found.got}"]
        said += [f"expected {found.expected}"] if found.expected else []
        said += [f"to mend it, {found.repair}"] if found.repair else []
    return part, line, text.in_answer("; ".join(said))


def _with_brackets(
    noted: list[tuple[str, Fault]], written: Written, parts: Sequence[str], check: str
) -> list[tuple[str, Fault]]:
    """Return what is noted, by part; where that is of the frame, the bracket of the answer that breaks it instead."""
    if all(part for part, _ in noted):
        return noted
    unfit = ((part, _unfit_bracket(written.fragments[part], check)) for part in parts)
    return next(([(part, fault)] for part, fault in unfit if fault), noted)


def _unfit_bracket(fragment: Fragment, check: str) -> Fault | None:
    """Return the first bracket that closes nothing, else the end of a fragment with an open one; None for neither."""
    depth, line = 0, fragment.line
    for line, text in enumerate(fragment.text.split("\n"), fragment.line):
        for bracket in re.findall(r"[()]", text):
            depth += 1 if bracket == "(" else -1
            if depth < 0:
                message = "')' without '('; remove this ')', or one before it that ends a list too early"
                return Fault(check, message, line)
    message = f"missing ')': {depth} more '(' than ')' from line {fragment.line} to here"
    return Fault(check, message, line) if depth else None


_USE = re.compile(r"'(.+)', as in (?=lines? (\d+))(.+)")
"""What a reader expects in the place of a declaration that is nowhere used: the name, and the lines where it stands."""


# --- step 5


def check_problem(answer: str, *, tree: TypeTree, predicates: Sequence[Predicate], checks: Checks) -> tuple[Fault, ...]:
    """Return what is wrong with the first faulty section of the answer that writes a problem: objects, state, goal."""
    written = read_written(answer, PROBLEM_TITLES)
    if written.faults:
        return _once(written.faults)
    faults = _object_faults(answer, written.fragments["object"], tree, predicates)
    if faults:
        return _once(faults)
    noted = list(_noted_in_problem(written, tree, predicates))
    for part in ("state", "goal"):
        own = [fault for place, fault in noted if place == part]
        own += _negations(written.fragments["state"]) if part == "state" and checks == "paper" else []
        if own:
            return _once(own)
    return _once(fault for _, fault in noted)


def _object_faults(answer: str, fragment: Fragment, tree: TypeTree, predicates: Sequence[Predicate]) -> list[Fault]:
    found, seen = list[Fault](), set[str]()
    names, known = tree.names, {predicate.name for predicate in predicates}
    for offset, text in enumerate(fragment.text.split("\n")):
        if not text:
            continue
        line, (name, _, kind) = fragment.line + offset, text.partition(" - ")
        kinds = re.findall(r"[\w-]+", kind.replace("(either", ""))
        if not kinds:
            found.append(Fault("obj_type", f"object '{name}' has no type; write '{name} - type'", line))
        for unknown in (one for one in kinds if one not in names):
            repair = suggestion(unknown, names, f"use one of {', '.join(sorted(names))}")
            found.append(Fault("obj_type", f"object '{name}' has the undefined type '{unknown}'; {repair}", line))
        if name in names:
            found.append(Fault("obj_type_name", f"object '{name}' has the name of a type; rename it", line))
        if name in known:
            found.append(Fault("obj_pred_name", f"object '{name}' has the name of a predicate; rename it", line))
        if name in seen or not re.fullmatch(r"[\w-]+", name):
            what = "stands twice; remove one" if name in seen else "cannot be the name of an object; rename it"
            found.append(Fault("obj_type", f"'{name}' {what}", line))
        seen.add(name)
    return found


def _negations(state: Fragment) -> list[Fault]:
    lines = enumerate(state.text.split("\n"), state.line)
    message = "'not' may not stand in the initial state; leave out what does not hold"
    return [
        Fault("pred_exists", message, number) for number, text in lines if re.search(r"\(\s*not(?![^\s()])", text, re.I)
    ]


def _noted_in_problem(written: Written, tree: TypeTree, predicates: Sequence[Predicate]) -> Iterator[tuple[str, Fault]]:
    """Yield what the reader of PDDL notes in a problem with these sections, with the section."""
    frame = "\n".join(["(define (domain d)", "(:types", *type_lines(tree), ")", "(:predicates",
                       *predicate_lines(predicates), "))"])  # fmt: skip
    text = Assembly()
    text.add("(define (problem p)\n(:domain d)\n(:objects")
    text.add_fragment(written.fragments["object"], "object")
    text.add(")\n(:init")
    text.add_fragment(unwrapped(written.fragments["state"]), "state")
    text.add(")\n(:goal")
    text.add_fragment(unwrapped(written.fragments["goal"], keywords=(":goal",)), "goal")
    text.add("))")
    noted = list[tuple[str, Fault]]()
    for found in read_problem(text.text, read_domain(frame).value).notebook.errors():
        part, line, said = _told(text, found)
        noted.append((part, Fault(_OF_FACTS.get(found.code, "pred_exists"), said, line)))
    for part, fault in _with_brackets(noted, written, ("state", "goal"), "pred_exists"):
        yield part or "goal", fault
