"""Plans in a model's own words are held against a reference: of other names and grain they are taken, corrupted not."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from modelled import reference

from pipelines.stages import modelling
from plansmith.config.planner import PlannerConfig
from plansmith.data.rows import ModelledPlanRow, ModelledTaskRow, ModelledVerdictRow, ModellingTaskRow, ProductRow
from plansmith.errors import BadInputError
from plansmith.judging.interpretation import (
    Interpretation,
    Reading,
    identity,
    interpretation_text,
    match_objects,
    propose,
    reference_plan,
    speaks_as,
)
from plansmith.judging.modelled import plan_task
from plansmith.modelling.references import read_references
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import PlanStep
from plansmith.pddl.parser import parse_step
from plansmith.pddl.validation import validate_plan
from plansmith.planners import FastDownward

NAMES = tuple(own.name for own in read_references())


@cache
def task_of(name: str) -> PlanningTask:
    """Return the reference of one of the paper's tasks."""
    own = reference(name)
    return PlanningTask.from_text(own.domain_pddl, own.problem_pddl)


@pytest.fixture(scope="module")
def plans() -> dict[str, tuple[PlanStep, ...]]:
    """Return a plan of each task."""
    with FastDownward(PlannerConfig(search="first")) as planner:
        found = {name: plan_task(planner, reference(name).domain_pddl, reference(name).problem_pddl) for name in NAMES}
    return {name: tuple(map(parse_step, planned.plan)) for name, planned in found.items()}


def disguised(
    task: PlanningTask, plan: tuple[PlanStep, ...], rng: random.Random, *, has_alternatives: bool = True
) -> tuple[Interpretation, list[PlanStep]]:
    """Return a plan in other names and of other grain, and what it means.

    Up to three of its steps are joined to one, or one is split in two, of which the first stands for nothing. With
    alternatives, actions of equal shape have the same name; without, each name has one meaning.
    """
    objects = {typed.name: f"thing_{number}" for number, typed in enumerate(task.problem.objects)}
    back = {new: old for old, new in objects.items()}
    steps, actions, position = list[PlanStep](), dict[str, list[tuple[Reading, ...]]](), 0
    while position < len(plan):
        taken = plan[position : position + rng.choice((1, 1, 2, 3))]
        position += len(taken)
        given = list(dict.fromkeys(name for step in taken for name in step.arguments))
        rng.shuffle(given)
        meaning = tuple(Reading(step.name, tuple(map(given.index, step.arguments))) for step in taken)
        name = f"do_{len(taken)}_{len(given)}"
        if not has_alternatives:
            name = next((one for one, known in actions.items() if known == [meaning]), f"{name}_{len(actions)}")
        if meaning not in actions.setdefault(name, []):
            actions[name].append(meaning)
        if len(taken) == 1 and rng.random() < 0.5:
            actions["begin"] = [()]
            steps.append(PlanStep("begin", tuple(objects[one] for one in given[:1])))
        steps.append(PlanStep(name, tuple(objects[one] for one in given)))
    return Interpretation(back, {name: tuple(found) for name, found in actions.items()}, is_confirmed=True), steps


def meant(meaning: Interpretation, steps: Iterable[PlanStep]) -> list[PlanStep]:
    """Return the reference steps of a plan, each of whose actions has one meaning."""
    return [
        PlanStep(own.action, tuple(meaning.objects[step.arguments[place]] for place in own.arguments))
        for step in steps
        for own in meaning.actions[step.name][0]
    ]


Told = tuple[Interpretation, list[PlanStep]]


def with_a_step_lost(meaning: Interpretation, steps: list[PlanStep], rng: random.Random) -> Told:
    lost = rng.randrange(len(steps))
    return meaning, steps[:lost] + steps[lost + 1 :]


def with_steps_exchanged(meaning: Interpretation, steps: list[PlanStep], rng: random.Random) -> Told:
    changed = list(steps)
    one, other = rng.sample(range(len(steps)), 2)
    changed[one], changed[other] = steps[other], steps[one]
    return meaning, changed


def with_an_object_swapped(meaning: Interpretation, steps: list[PlanStep], rng: random.Random) -> Told:
    number = rng.choice([number for number, step in enumerate(steps) if step.arguments])
    arguments = list(steps[number].arguments)
    arguments[rng.randrange(len(arguments))] = rng.choice(list(meaning.objects))
    return meaning, [*steps[:number], PlanStep(steps[number].name, tuple(arguments)), *steps[number + 1 :]]


def with_objects_misread(meaning: Interpretation, steps: list[PlanStep], rng: random.Random) -> Told:
    one, other = rng.sample(list(meaning.objects), 2)
    exchanged = {one: meaning.objects[other], other: meaning.objects[one]}
    return replace(meaning, objects={**meaning.objects, **exchanged}), steps


def with_an_action_misread(meaning: Interpretation, steps: list[PlanStep], rng: random.Random) -> Told:
    name = rng.choice([name for name, alternatives in meaning.actions.items() if alternatives != ((),)])
    readings = list(meaning.actions[name][0])
    number = rng.randrange(len(readings))
    turned = readings[number].arguments
    readings[number] = replace(readings[number], arguments=turned[1:] + turned[:1])
    wrong = tuple(readings) if len(turned) > 1 else tuple(readings[:number] + readings[number + 1 :])
    return replace(meaning, actions={**meaning.actions, name: (wrong,)}), steps


CORRUPTIONS = (with_a_step_lost, with_steps_exchanged, with_an_object_swapped, with_objects_misread,
               with_an_action_misread)  # fmt: skip


def test_reference_plan_of_two_hundred_disguised_plans_is_found_and_of_corruptions_where_they_are_plans(
    plans: dict[str, tuple[PlanStep, ...]],
) -> None:
    rng, refused = random.Random(1), Counter[str]()
    for number in range(200):
        name = NAMES[number % len(NAMES)]
        task = task_of(name)
        meaning, steps = disguised(task, plans[name], rng, has_alternatives=False)
        meaning.check(task)
        assert reference_plan(meaning, steps, task) == plans[name]
        for corrupt in CORRUPTIONS:
            said, changed = corrupt(meaning, steps, rng)
            is_plan = validate_plan(task, meant(said, changed)).is_valid
            assert (reference_plan(said, changed, task) is not None) == is_plan, (name, corrupt.__name__)
            refused[corrupt.__name__] += not is_plan
    assert (
        min(refused[corrupt.__name__] for corrupt in CORRUPTIONS) > 100
    )  # of 200; what is left is a plan all the same


def test_reference_plan_of_actions_with_alternatives_is_found_and_of_unknown_words_is_not(
    plans: dict[str, tuple[PlanStep, ...]],
) -> None:
    rng = random.Random(1)
    for name in NAMES * 2:
        meaning, steps = disguised(task_of(name), plans[name], rng)
        meaning.check(task_of(name))
        assert reference_plan(meaning, steps, task_of(name)) is not None
        assert reference_plan(meaning, [*steps[:-1], PlanStep("do_nothing")], task_of(name)) is None
        last = steps[-1]
        strange = PlanStep(last.name, ("nobody", *last.arguments[1:]))
        assert reference_plan(meaning, [*steps[:-1], strange], task_of(name)) is None


def test_identity_of_a_plan_in_the_reference_own_words_needs_nobody(plans: dict[str, tuple[PlanStep, ...]]) -> None:
    task, plan = task_of("blocksworld-easy"), plans["blocksworld-easy"]
    assert speaks_as(task, plan)
    assert reference_plan(identity(task), plan, task) == plan
    assert not speaks_as(task, [PlanStep("pick_block", ("blue", "red"))])


def test_propose_the_papers_easy_blocksworld_plan_finds_both_meanings_of_picking() -> None:
    task = task_of("blocksworld-medium")
    plan = [
        PlanStep("pick_block", ("blue_block", "red_block")),
        PlanStep("place_block_on_table", ("blue_block", "table1")),
        PlanStep("pick_block", ("green_block", "yellow_block")),
        PlanStep("place_block_on_block", ("green_block", "red_block")),
        PlanStep("pick_block", ("blue_block", "table1")),
        PlanStep("place_block_on_block", ("blue_block", "green_block")),
        PlanStep("pick_block", ("yellow_block", "table1")),
        PlanStep("place_block_on_block", ("yellow_block", "blue_block")),
    ]
    objects = ["blue_block", "red_block", "green_block", "yellow_block", "table1"]
    found = propose(plan, objects, task)
    assert found is not None
    assert not found.is_confirmed
    assert set(found.actions["pick_block"]) == {(Reading("unstack", (0, 1)),), (Reading("pick-up", (0,)),)}
    assert reference_plan(found, plan, task) is not None


def test_propose_a_plan_that_does_not_reach_the_goal_finds_nothing() -> None:
    task = task_of("blocksworld-easy")
    assert propose([PlanStep("pick", ("blue", "red"))], ["blue", "red"], task) is None


def test_match_objects_by_letters_and_digits_takes_each_once() -> None:
    known = ["v1", "v11", "red"]
    assert dict(match_objects(["vertex11", "vertex1", "red_block", "table1"], known)) == {
        "vertex11": "v11",
        "vertex1": "v1",
        "red_block": "red",
    }


def test_interpretation_of_an_unknown_action_or_object_is_bad_input() -> None:
    task = task_of("isr-easy")
    with pytest.raises(BadInputError, match="unknown action"):
        Interpretation({}, {"swap": ((Reading("swap", (0, 1)),),)}).check(task)
    with pytest.raises(BadInputError, match="unknown objects"):
        Interpretation({"vertex4": "v44"}, {}).check(task)


# --- what a person says of the plans of a run


def task_row(name: str) -> ModellingTaskRow:
    own = reference(name)
    return ModellingTaskRow(name, own.domain, own.level, own.text, own.domain_pddl, own.problem_pddl, None)


def verdict_on_prose(name: str, told: str | None) -> ModelledVerdictRow:
    answered = ModelledTaskRow(name, (ProductRow("answer", "Just move the blocks about."),), ())
    return modelling._zero_shot_verdict(task_row(name), answered, told)


def test_interpretation_judges_plans_in_its_own_words_and_leaves_others_as_they_are(
    plans: dict[str, tuple[PlanStep, ...]],
) -> None:
    name = "blocksworld-easy"
    meaning, told = disguised(task_of(name), plans[name], random.Random(1))
    confirmed = interpretation_text(replace(meaning, is_confirmed=True))
    said = modelling.VerdictSettings(interpretations={name: confirmed}, told={})
    own = modelling._verdict(task_row(name), ModelledPlanRow(name, "solved", tuple(map(str, told)), ""), said)
    assert (own.is_right, own.confirmed) == (True, "person")
    other = modelling._verdict(task_row(name), ModelledPlanRow(name, "solved", tuple(map(str, plans[name])), ""), said)
    assert (other.is_right, other.confirmed) == (True, "names")
    # the model's actions are called as the reference's, its objects are not; another draft calls both so
    mixed = replace(identity(task_of(name)), objects={f"thing_{own}": own for own in identity(task_of(name)).objects})
    said = modelling.VerdictSettings(interpretations={name: interpretation_text(mixed)}, told={})
    other = modelling._verdict(task_row(name), ModelledPlanRow(name, "solved", tuple(map(str, plans[name])), ""), said)
    assert (other.is_right, other.confirmed) == (True, "names")


@pytest.mark.parametrize(("told", "is_right", "confirmed"), [(None, False, ""), (slice(None), True, "person"),
                                                             (slice(1), False, "person")])  # fmt: skip
def test_prose_means_what_a_person_says(
    told: slice | None, is_right: bool, confirmed: str, plans: dict[str, tuple[PlanStep, ...]]
) -> None:
    name = "blocksworld-easy"
    found = verdict_on_prose(name, None if told is None else "\n".join(map(str, plans[name][told])))
    assert (found.is_right, found.confirmed, found.status) == (is_right, confirmed, "prose")


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("blocksworld-esay.json", "{}", "of no task"),
        ("blocksworld-easy.json", "{", "no interpretation"),
        ("blocksworld-easy.plan", "pick up the block", "blocksworld-easy.plan"),
    ],
    ids=["task", "json", "plan"],
)
def test_what_a_person_says_of_no_task_or_in_no_form_is_bad_input(
    file: str, text: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / file).write_text(text)
    with pytest.raises(BadInputError, match=message):
        modelling.read_verdicts(str(tmp_path), NAMES)


def test_told_plan_of_unknown_words_is_bad_input() -> None:
    with pytest.raises(BadInputError, match="other words"):
        verdict_on_prose("blocksworld-easy", "(fly b1)")
