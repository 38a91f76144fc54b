"""The delete relaxation: what can be reached, and what has to come on the way."""

from __future__ import annotations

from conftest import BLOCKS, blocks_problems, blocks_task, shortest_plan, sussman
from hypothesis import given, settings

from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Atom, Problem
from plansmith.pddl.reachability import MAX_ACTIONS, Reachability, atoms_in
from plansmith.pddl.validation import validate_plan


def told(task: PlanningTask, atoms: int) -> set[str]:
    """Return a set of atoms as text."""
    return set(map(str, task.atoms_of(atoms)))


def reachability(task: PlanningTask) -> Reachability:
    """Return that of a small task."""
    found = Reachability.of(task)
    assert found is not None
    return found


def test_reached_is_all_but_what_takes_the_atom_that_is_left_out() -> None:
    task = sussman()
    clear_a = task.bit(Atom("clear", ("a",)))
    whole, within = (told(task, reachability(task).reached(task.initial_state, without=x)) for x in (0, clear_a))
    assert {"(on a b)", "(on b c)", "(holding c)", "(clear a)"} <= whole
    assert whole - within >= {"(clear a)", "(holding a)", "(on a b)"}
    assert "(holding c)" in within


def test_landmarks_of_a_buried_block_lead_to_what_holds() -> None:
    task = blocks_task(
        "(on c d) (on d a) (ontable a) (clear c) (ontable e) (clear e) (handempty)", "(on a e)", "a c d e"
    )
    (goal,) = task.goal
    found = reachability(task).landmarks(task.bit(goal.atom), task.initial_state)
    assert {next(iter(told(task, atom))): told(task, needed) for atom, needed in found.items()} == {
        "(on a e)": {"(holding a)", "(clear e)"},
        "(holding a)": {"(clear a)", "(ontable a)", "(handempty)"},
        "(clear a)": {"(on d a)", "(clear d)", "(handempty)"},
        "(clear d)": {"(on c d)", "(clear c)", "(handempty)"},
    }


@settings(max_examples=30)
@given(blocks_problems(max_blocks=4))
def test_landmarks_are_made_true_by_every_shortest_plan_after_what_they_need(problem: Problem) -> None:
    task = PlanningTask(BLOCKS, problem)
    states = validate_plan(task, shortest_plan(task)).states
    for goal in task.goal:
        for atom, needed in reachability(task).landmarks(task.bit(goal.atom), states[0]).items():
            first = next(n for n, state in enumerate(states) if state & atom)
            assert states[first - 1] & needed == needed


def test_reachability_of_a_task_with_too_many_actions_is_not_asked() -> None:
    names = " ".join(f"b{number}" for number in range(40))
    assert MAX_ACTIONS < 2 * 40**2
    assert Reachability.of(blocks_task("(handempty)", "(clear b0)", names)) is None


def test_reached_without_actions_is_the_state() -> None:
    assert Reachability([]).reached(0b101) == 0b101
    assert Reachability([]).landmarks(0b10, 0b101) == {0b10: 0}


def test_reached_keeps_atoms_that_no_action_knows() -> None:
    task = sussman()
    far = 1 << 500
    assert reachability(task).reached(task.initial_state | far) == reachability(task).reached(task.initial_state) | far
    assert not reachability(task).reached(task.initial_state | far, without=far) & far


def test_atoms_in_a_state_are_its_bits() -> None:
    assert list(atoms_in(0b10110)) == [0b10, 0b100, 0b10000]
