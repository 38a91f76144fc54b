"""Satellite problems: images of directions in several modes, and directions that satellites point to in the end."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product

from plansmith.pddl.model import Atom, Problem
from plansmith.problems.building import atom, build_problem, numbered, random_partition

SHARE_OF_SUPPORTED_MODES = 0.3
"""Probability that an instrument supports a mode that it was not given so that somebody supports it."""
SHARE_OF_POINTING_GOALS = 0.3
"""Probability that the goal says where a satellite points."""


def sample(
    rng: random.Random, *, satellites: int, instruments: int, modes: int, directions: int, images: int
) -> Problem:
    """Return a problem; instruments are dealt out so that every satellite has one, and every mode has an instrument.

    All problems are solvable: a satellite can always turn, switch on one of its instruments, calibrate it at its target
    and take any image in a mode that this instrument supports; it turns to where it has to point after that.

    Args:
        rng: source of all choices.
        satellites: satellites, each pointing somewhere, with all instruments off.
        instruments: instruments; raised to `satellites` where there are fewer.
        modes: modes of images.
        directions: directions, which are also calibration targets.
        images: wanted images; reduced to as many as directions and modes allow.
    """
    crafts, devices = numbered("sat", satellites), numbered("ins", max(instruments, satellites))
    kinds, places = numbered("mod", modes), numbered("dir", directions)
    aboard = random_partition(devices, satellites, rng)
    init = [atom("on_board", device, craft) for craft, own in zip(crafts, aboard, strict=True) for device in own]
    init += [atom("power_avail", craft) for craft in crafts]
    init += [atom("pointing", craft, rng.choice(places)) for craft in crafts]
    init += [atom("calibration_target", device, rng.choice(places)) for device in devices]
    init += _supported(rng, devices, kinds)
    pairs = list(product(places, kinds))
    goal = [atom("have_image", *pair) for pair in rng.sample(pairs, min(images, len(pairs)))]
    goal += [atom("pointing", craft, rng.choice(places)) for craft in crafts if rng.random() < SHARE_OF_POINTING_GOALS]
    objects = {"satellite": crafts, "instrument": devices, "mode": kinds, "direction": places}
    return build_problem("satellite", objects, init, goal)


def _supported(rng: random.Random, devices: Sequence[str], modes: Sequence[str]) -> list[Atom]:
    """Return which instrument supports which mode: each mode has an instrument and each instrument a mode."""
    atoms = [atom("supports", rng.choice(devices), mode) for mode in modes]
    atoms += [atom("supports", device, rng.choice(modes)) for device in devices]
    pairs = product(devices, modes)
    return atoms + [atom("supports", *pair) for pair in pairs if rng.random() < SHARE_OF_SUPPORTED_MODES]
