"""The files beside a domain: how its problems are drawn (``settings.yaml``) and said in words (``phrases.yaml``)."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from plansmith.config.basics import PositiveRange, Range, StrictModel
from plansmith.errors import BadInputError


def _is_quoted(name: object) -> object:
    if isinstance(name, bool):
        raise ValueError("YAML reads on, off, yes and no as truth values; write such a name in quotes")
    return name


Name = Annotated[str, BeforeValidator(_is_quoted)]
"""A name of PDDL."""


def _split(variables: object) -> object:
    return variables.lower().split() if isinstance(variables, str) else variables


class InitRule(StrictModel):
    """Which ground instances of one atom hold at the start."""

    atom: str
    """Such as ``(at ?b - ball ?r - room)``; constants stand without a question mark.

    A variable without a type has that of its place. Different variables stand for different objects.
    """
    each: Annotated[tuple[str, ...], BeforeValidator(_split)] = ()
    """Variables, such as ``?a ?b``: for every choice of these one random choice of the others.

    None: one instance of the atom.
    """
    chance: float = Field(1.0, gt=0, le=1)
    """Probability of each instance."""
    alternatives: tuple[str, ...] = ()
    """Other atoms, which name the variables of `each` too: every time, one of them all is chosen.

    So an object begins with one of several values: ``(open ?d)`` or else ``(shut ?d)``.
    """
    is_distinct: bool = False
    """No object is chosen twice for the variables that are not in `each`."""

    @model_validator(mode="after")
    def _names_each_once(self) -> Self:
        if len(set(self.each)) < len(self.each):
            raise ValueError(f"each names a variable twice: {list(self.each)}")
        return self


class WalkSettings(StrictModel):
    """Problems by random walk: an initial state, random actions, and some of what they changed as the goal."""

    objects: dict[Name, str] = Field(default_factory=dict)
    """The size that counts the objects of each type, such as ``ball: balls``."""
    init: tuple[InitRule, ...] = ()
    """What holds at the start."""
    problems: str | None = None
    """Instead of `objects` and `init`: a folder of problems to start from; their goals are ignored."""
    density: float = Field(0.2, gt=0, lt=1)
    """Without `init` and `problems`: probability of every well-typed ground atom."""
    steps: PositiveRange = (5, 20)
    """Actions of the walk."""
    goal_predicates: tuple[Name, ...] = ()
    """Predicates that a goal may name; none: all that actions add."""
    goal_size: PositiveRange = (1, 4)
    """Atoms of the goal."""

    @model_validator(mode="after")
    def _has_one_start(self) -> Self:
        if self.problems and (self.init or self.objects):
            raise ValueError("objects and initial states come from problems, or from objects and init, not from both")
        if not self.problems and not self.objects:
            raise ValueError("objects is missing: the size that counts the objects of each type")
        return self


class DomainSettings(StrictModel):
    """``settings.yaml``: the sampler of a domain and the sizes of each level."""

    domain_file: str = "domain.pddl"
    """The PDDL domain, relative to this file."""
    sampler: str = "walk"
    """A module of `plansmith.problems.samplers`, or ``walk``."""
    walk: WalkSettings | None = None
    """How ``walk`` draws."""
    levels: dict[str, dict[str, Range]]
    """Sizes of each level; L1 to L4 are the paper's, of 1-10, 11-20, 21-30 and 31-40 objects."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.sampler == "walk") != (self.walk is not None):
            raise ValueError(f"sampler={self.sampler} and walk do not fit: the sampler `walk`, and no other, needs it")
        if not self.levels:
            raise ValueError("levels is empty")
        return self


class Phrases(StrictModel):
    """``phrases.yaml``: how a domain is said in words; every entry lists phrasings of the same meaning.

    A phrasing names the arguments by position: ``{0} is at {1}``. It must tell facts apart: two different facts may
    never give the same sentence, whichever phrasings they are said in.
    """

    topic: str
    """One sentence on what the domain is about."""
    types: dict[Name, tuple[str, str]] = Field(default_factory=dict)
    """Singular and plural of each type, ``object`` for untyped domains."""
    predicates: dict[Name, tuple[str, ...]]
    """Phrasings of each predicate; every predicate has as many."""
    functions: dict[Name, tuple[str, ...]] = Field(default_factory=dict)
    """Phrasings of the value of each function that problems give; the value is the last position."""
    actions: dict[Name, tuple[str, ...]] = Field(default_factory=dict)
    """Phrasings of each action, as an instruction."""

    def divided(self, *, is_last: bool) -> Phrases:
        """Return the last phrasing of every entry alone, or all but the last.

        Raises:
            BadInputError: there is one only.
        """
        if (n_phrasings := len(next(iter(self.predicates.values()), ()))) < 2:
            raise BadInputError("no phrasing can be kept apart", got=f"{n_phrasings} of each predicate",
                                expected="two or more", cure="add phrasings to phrases.yaml")  # fmt: skip
        part = slice(-1, None) if is_last else slice(None, -1)
        entries = {"predicates": self.predicates, "functions": self.functions, "actions": self.actions}
        kept = {kind: {name: texts[part] for name, texts in found.items()} for kind, found in entries.items()}
        return self.model_copy(update=kept)

    @model_validator(mode="after")
    def _as_many_phrasings(self) -> Self:
        counts = {name: len(texts) for name, texts in (self.predicates | self.functions | self.actions).items()}
        if len(set(counts.values())) > 1 or 0 in counts.values():
            raise ValueError(f"every entry needs as many phrasings, got {counts}")
        return self
