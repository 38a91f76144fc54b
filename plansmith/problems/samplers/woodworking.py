"""Woodworking problems: parts to be cut from boards or there already, machines, and how each part should end.

The proportions are those of the public problems: a part costs by its size, most parts are yet to be cut, a goal names
some of wood, surface, colour and treatment.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from plansmith.pddl.model import TOTAL_COST, Atom, Number, Problem
from plansmith.problems.building import atom, build_problem, numbered

SAWS = ("highspeed-saw", "saw")
COATERS = ("glazer", "immersion-varnisher", "spray-varnisher")
KINDS = (*SAWS, *COATERS, "grinder", "planer")
COLOURS = ("red", "blue", "green", "mauve", "white", "black")
WOODS = ("oak", "beech", "cherry", "teak", "walnut", "pine", "mahogany")

PART_SIZES = {"small": 1, "medium": 2, "large": 3}
"""How many sizes smaller a board is after a part was cut from it."""

COSTS = {
    "small": {"spray-varnish-cost": 5, "glaze-cost": 10, "grind-cost": 15, "plane-cost": 10},
    "medium": {"spray-varnish-cost": 10, "glaze-cost": 15, "grind-cost": 30, "plane-cost": 20},
    "large": {"spray-varnish-cost": 15, "glaze-cost": 20, "grind-cost": 45, "plane-cost": 30},
}
GROUND = {
    "varnished": "colourfragments",
    "glazed": "untreated",
    "untreated": "untreated",
    "colourfragments": "untreated",
}
"""What grinding makes of a treatment."""

UNUSED_SHARE = 0.7
"""Probability that a part is yet to be cut; one part always is."""


@dataclass(frozen=True, slots=True)
class Finish:
    """What machines change of a part."""

    surface: str
    treatment: str = "untreated"
    colour: str = "natural"


@dataclass(frozen=True, slots=True)
class Board:
    """A board, and how many sizes it has above the smallest."""

    name: str
    wood: str
    surface: str
    size: int


@dataclass(frozen=True, slots=True)
class Part:
    """A part as it is, or as it comes from the board it is meant for."""

    name: str
    size: str
    wood: str
    finish: Finish
    is_unused: bool


Palettes = Mapping[str, tuple[str, ...]]
"""The colours of each kind of machine that the workshop has; none where it has no use for colours."""


def sample(rng: random.Random, *, parts: int, boards: int, colours: int, woods: int, machines: int) -> Problem:
    """Return a problem; boards are large enough and goals are what the machines can do, so it is solvable.

    Each part that is yet to be cut has a board in mind which holds it together with the other parts it is meant for.
    A goal names some features of a finish that was found by trying out all machines.

    Args:
        rng: the source of all choices.
        parts: parts, each with a goal.
        boards: boards.
        colours: colours besides the natural one, at most 6.
        woods: kinds of wood, at most 7.
        machines: machines, at least 2: always a saw and one that colours; with 7 and more every kind is there.
    """
    hues, timber = rng.sample(COLOURS, colours), rng.sample(WOODS, woods)
    by_kind = _machines(machines, rng)
    has_colour = {name: _palette(hues, rng) for kind in COATERS for name in by_kind.get(kind, ())}
    palettes = {
        kind: tuple(hue for name in names for hue in has_colour.get(name, ())) for kind, names in by_kind.items()
    }
    stock, pieces = _wood(
        numbered("b", boards, start=0), numbered("p", parts, start=0), [*hues, "natural"], timber, rng
    )
    sizes = numbered("s", 1 + max(board.size for board in stock), start=0)
    init = _fixed_facts(sizes) + [atom("empty", name) for name in by_kind.get("highspeed-saw", ())]
    init += [atom("has-colour", name, hue) for name, palette in has_colour.items() for hue in palette]
    init += [fact for board in stock for fact in _board_facts(board, sizes)]
    init += [fact for part in pieces for fact in _part_facts(part)]
    goal = [wanted for part in pieces for wanted in _goal(part, palettes, rng)]
    objects = {kind: by_kind[kind] for kind in KINDS if kind in by_kind}
    objects |= {"acolour": hues, "awood": timber, "part": [part.name for part in pieces]}
    objects |= {"board": [board.name for board in stock], "aboardsize": sizes}
    return build_problem("woodworking", objects, init, goal, values=_costs(pieces), metric=TOTAL_COST)


def _machines(count: int, rng: random.Random) -> dict[str, list[str]]:
    """Return the names of the machines of each kind that there is."""
    kinds = [rng.choice(SAWS), rng.choice(COATERS)]
    others = [kind for kind in KINDS if kind not in kinds]
    kinds += rng.sample(others, min(count - 2, len(others)))
    kinds += rng.choices(KINDS, k=count - len(kinds))
    return {kind: numbered(kind, kinds.count(kind), start=0) for kind in dict.fromkeys(kinds)}


def _palette(hues: list[str], rng: random.Random) -> tuple[str, ...]:
    available = ["natural", *hues]
    return tuple(rng.sample(available, rng.randint(1, len(available))))


def _wood(
    board_names: list[str], part_names: list[str], hues: list[str], woods: list[str], rng: random.Random
) -> tuple[list[Board], list[Part]]:
    """Return boards, each as large as the parts meant for it or a size larger, and the parts."""
    kinds = {name: (rng.choice(woods), rng.choice(("rough", "smooth"))) for name in board_names}
    used, parts, surely_unused = dict.fromkeys(board_names, 0), [], rng.choice(part_names)
    for name in part_names:
        size = rng.choice(list(PART_SIZES))
        if name == surely_unused or rng.random() < UNUSED_SHARE:
            source = rng.choice(board_names)
            used[source] += PART_SIZES[size]
            wood, surface = kinds[source]
            parts.append(Part(name, size, wood, Finish(surface), is_unused=True))
        else:
            parts.append(Part(name, size, rng.choice(woods), _old_finish(hues, rng), is_unused=False))
    boards = [Board(name, *kinds[name], max(1, used[name] + rng.randint(0, 1))) for name in board_names]
    return boards, parts


def _old_finish(hues: list[str], rng: random.Random) -> Finish:
    treatment = rng.choice(list(GROUND))
    colour = rng.choice(hues) if treatment in ("varnished", "glazed") else "natural"
    return Finish(rng.choice(("rough", "smooth", "verysmooth")), treatment, colour)


def _goal(part: Part, palettes: Palettes, rng: random.Random) -> list[Atom]:
    """Return that the part is available and some features of a finish it can get, a coated one if there is any."""
    possible = _reachable(part.finish, palettes)
    coated = [finish for finish in possible if finish.treatment in ("varnished", "glazed")]
    finish = rng.choice(coated or possible)
    features = [atom("wood", part.name, part.wood), atom("surface-condition", part.name, finish.surface)]
    if coated:
        features += [atom("colour", part.name, finish.colour), atom("treatment", part.name, finish.treatment)]
    return [atom("available", part.name), *rng.sample(features, rng.randint(2, len(features)))]


def _reachable(start: Finish, palettes: Palettes) -> list[Finish]:
    """Return the finishes that a part can get; the one it has only if there is no other."""
    found = [start]
    for finish in found:
        found += [after for after in _after_one_action(finish, palettes) if after not in found]
    return found[1:] or found


def _after_one_action(finish: Finish, palettes: Palettes) -> Sequence[Finish]:
    is_smooth, results = finish.surface != "rough", []
    if finish.treatment == "untreated":
        results += [replace(finish, treatment="glazed", colour=hue) for hue in palettes.get("glazer", ())]
        varnishes = palettes.get("immersion-varnisher", ()) + palettes.get("spray-varnisher", ())
        results += [replace(finish, treatment="varnished", colour=hue) for hue in varnishes if is_smooth]
    if "grinder" in palettes and is_smooth:
        results.append(Finish("verysmooth", GROUND[finish.treatment]))
    if "planer" in palettes:
        results.append(Finish("smooth"))
    return list(dict.fromkeys(results))


def _fixed_facts(sizes: list[str]) -> list[Atom]:
    facts = [atom("grind-treatment-change", old, new) for old, new in GROUND.items()]
    facts += [atom("is-smooth", "smooth"), atom("is-smooth", "verysmooth")]
    return facts + [atom("boardsize-successor", *pair) for pair in pairwise(sizes)]


def _board_facts(board: Board, sizes: list[str]) -> list[Atom]:
    facts = [atom("available", board.name), atom("boardsize", board.name, sizes[board.size])]
    return [*facts, atom("wood", board.name, board.wood), atom("surface-condition", board.name, board.surface)]


def _part_facts(part: Part) -> list[Atom]:
    goalsize = atom("goalsize", part.name, part.size)
    if part.is_unused:
        return [goalsize, atom("unused", part.name)]
    finish = part.finish
    facts = [goalsize, atom("available", part.name), atom("wood", part.name, part.wood)]
    facts += [atom("surface-condition", part.name, finish.surface), atom("treatment", part.name, finish.treatment)]
    return [*facts, atom("colour", part.name, finish.colour)]


def _costs(parts: list[Part]) -> dict[Atom, Number]:
    values: dict[Atom, Number] = {atom(TOTAL_COST): 0}
    for part in parts:
        values |= {atom(function, part.name): cost for function, cost in COSTS[part.size].items()}
    return values
