"""What the steps of NL2Plan make: types, their tree, action sketches, schemas, a problem; and all of it, a draft.

A formula stays the text that the model wrote: a schema that was accepted with its flaws must be kept, shown and mended,
whether it can be read or not. Not here: reading answers (`reading`), finding flaws (`checks`), PDDL (`assembly`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from plansmith.pddl.model import OBJECT

LEGAL_NAME = re.compile(r"[a-z][a-z0-9_-]*")
"""Names of types, actions and objects, in lower case: what every planner reads."""
RESERVED = frozenset({"and", "or", "not", "imply", "exists", "forall", "when", "either", "define", "if"})
"""Words of PDDL that name nothing else."""


class DialogueStep(StrEnum):
    """The steps in which a model is asked; the sixth is the planner's. The last two here are none of them."""

    TYPES = "types"
    HIERARCHY = "hierarchy"
    ACTIONS = "actions"
    CONSTRUCTION = "construction"
    TASK = "task"
    ZERO_SHOT = "zero_shot"
    """A plan straight from the text, beside the steps."""
    ONE_CALL = "one_call"
    """Domain and problem in one answer, beside the steps."""


NL2PLAN, ZERO_SHOT, ONE_CALL = "nl2plan", "zero_shot", "one_call"
UNCHECKED, UNADVISED, RULES = "unchecked", "unadvised", "rules"
"""Arms: the steps; a plan straight from the text; domain and problem in one answer; the steps without checks, and
without advice; no model, but a reader that knows the templates."""
LACKING = (UNCHECKED, UNADVISED)
"""Those that take the same steps with something left out."""
AT_ONCE = frozenset({ZERO_SHOT, ONE_CALL})
"""Those of one question."""
DRAFT = "draft_"
"""Before the number of a draft, in the name of a further one on the pages."""
OF_DRAFT = f"_{DRAFT}"
"""Between the name of a stage and the number of its draft, in all but the first."""
MODELLING_STEPS = tuple(step for step in DialogueStep if step not in AT_ONCE)


@dataclass(frozen=True, slots=True)
class TypeSketch:
    """A type that the text needs, and what it is."""

    name: str
    comment: str = ""


@dataclass(frozen=True, slots=True)
class TypeNode:
    """A type below its parent."""

    name: str
    parent: str = OBJECT
    comment: str = ""


@dataclass(frozen=True, slots=True)
class TypeTree:
    """The types in the order in which they were written, each parent before its children.

    Raises:
        ValueError: a type stands twice, or before its parent.
    """

    nodes: tuple[TypeNode, ...] = ()

    def __post_init__(self) -> None:
        known = {OBJECT}
        for node in self.nodes:
            if node.name in known or node.parent not in known:
                raise ValueError(f"a tree holds each type once, its parent first; got {node} after {sorted(known)}")
            known.add(node.name)

    @property
    def names(self) -> frozenset[str]:
        """Return every type, `object` among them."""
        return frozenset({OBJECT, *(node.name for node in self.nodes)})

    def depths(self) -> Iterator[tuple[TypeNode, int]]:
        """Yield each type with how far it is below `object`, from 1."""
        depth = {OBJECT: 0}
        for node in self.in_order():
            depth[node.name] = depth[node.parent] + 1
            yield node, depth[node.name]

    def in_order(self, parent: str = OBJECT) -> Iterator[TypeNode]:
        """Yield each type, followed by all that is below it."""
        waiting = [node for node in reversed(self.nodes) if node.parent == parent]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += [below for below in reversed(self.nodes) if below.parent == node.name]

    def with_types(self, sketches: Iterable[TypeSketch]) -> TypeTree:
        """Return the tree with each type that it has not, directly below `object`."""
        lost = [TypeNode(one.name, comment=one.comment) for one in sketches if one.name not in self.names]
        return TypeTree((*self.nodes, *lost))

    def with_ancestors(self, names: frozenset[str]) -> TypeTree:
        """Return the tree of some types and of all above them."""
        parents, kept = {node.name: node.parent for node in self.nodes}, set(names)
        for name in names:
            while name in parents:
                kept.add(name)
                name = parents[name]
        return TypeTree(tuple(node for node in self.nodes if node.name in kept))


@dataclass(frozen=True, slots=True)
class ActionSketch:
    """An action in words."""

    name: str
    description: str
    example: str = ""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of an action, or an object of a problem; `type` is empty where none was written."""

    name: str
    type: str
    comment: str = ""

    @property
    def pddl(self) -> str:
        """Return it as PDDL declares it."""
        return f"{self.name} - {self.type}" if self.type else self.name


@dataclass(frozen=True, slots=True)
class Predicate:
    """A predicate with its declaration, ``(at ?p - parcel ?l - place)``."""

    name: str
    declaration: str
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Schema:
    """An action in PDDL as a model wrote it, with the predicates that it needed anew."""

    name: str
    parameters: tuple[Parameter, ...]
    precondition: str
    effect: str
    predicates: tuple[Predicate, ...] = ()

    def with_declarations(self, before: Schema) -> Schema:
        """Return it with what it declared before it was asked for again, which it need not have named a second time."""
        own = {predicate.name for predicate in self.predicates}
        kept = (predicate for predicate in before.predicates if predicate.name not in own)
        return replace(self, predicates=(*kept, *self.predicates))


@dataclass(frozen=True, slots=True)
class ProblemSketch:
    """Objects, initial state and goal as a model wrote them; the state is a list of atoms, the goal one condition."""

    objects: tuple[Parameter, ...]
    init: str
    goal: str


@dataclass(frozen=True, slots=True)
class DomainSketch:
    """What steps 1 to 4 have made by now."""

    types: tuple[TypeSketch, ...] = ()
    tree: TypeTree = TypeTree()
    actions: tuple[ActionSketch, ...] = ()
    predicates: tuple[Predicate, ...] = ()
    schemas: tuple[Schema, ...] = ()


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What stands in the way of a plan, and the actions that are to be looked at again for it, beside the problem."""

    text: str
    actions: tuple[str, ...] = ()
