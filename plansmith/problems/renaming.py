"""The same problem under other object names, with its atoms in another order: what a canonical form ignores."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from plansmith.errors import ConfigError
from plansmith.pddl.model import Condition, Conjunction, FunctionValue, PlanStep, Problem, TypedName


def random_renaming(problem: Problem, names: Sequence[str], rng: random.Random) -> dict[str, str]:
    """Return a random one-to-one map from the problem's objects to `names`.

    Raises:
        ConfigError: fewer names than objects.
    """
    objects = [typed.name for typed in problem.objects]
    if len(objects) > len(names):
        raise ConfigError("cannot rename the objects", got=f"{len(objects)} objects and {len(names)} names",
                          expected="a name for each object", cure="add names to problems.object_names")  # fmt: skip
    return dict(zip(objects, rng.sample(list(names), len(objects)), strict=True))


def exchanged_names(problem: Problem, rng: random.Random) -> dict[str, str]:
    """Return a random map of the problem's objects to each other, those of one type among themselves."""
    of_type: dict[tuple[str, ...], list[str]] = {}
    for typed in problem.objects:
        of_type.setdefault(tuple(typed.types), []).append(typed.name)
    return {
        old: new for names in of_type.values() for old, new in zip(names, rng.sample(names, len(names)), strict=True)
    }


def rename_problem(problem: Problem, renaming: Mapping[str, str], rng: random.Random) -> Problem:
    """Return the problem with its objects renamed and its initial atoms and goals shuffled."""
    binding = dict(renaming)
    init = [atom.substitute(binding) for atom in problem.init]
    rng.shuffle(init)
    return Problem(
        name=problem.name,
        domain_name=problem.domain_name,
        objects=tuple(sorted((TypedName(binding.get(o.name, o.name), o.types) for o in problem.objects), key=str)),
        init=tuple(init),
        goal=_rename_condition(problem.goal, binding, rng),
        function_values=tuple(
            FunctionValue(known.term.substitute(binding), known.value) for known in problem.function_values
        ),
        metric=problem.metric,
    )


def rename_plan(plan: Sequence[PlanStep], renaming: Mapping[str, str]) -> tuple[PlanStep, ...]:
    """Return the plan with its objects renamed."""
    return tuple(PlanStep(step.name, tuple(renaming.get(name, name) for name in step.arguments)) for step in plan)


def _rename_condition(condition: Condition, binding: dict[str, str], rng: random.Random) -> Condition:
    """Return the condition renamed; only the parts of outer conjunctions are shuffled."""
    if not isinstance(condition, Conjunction):
        return condition.substitute(binding)
    parts = [_rename_condition(part, binding, rng) for part in condition.parts]
    rng.shuffle(parts)
    return Conjunction(tuple(parts))
