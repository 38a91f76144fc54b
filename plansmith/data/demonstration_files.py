"""Files of demonstrations: JSON lines, as a user's robot records them.

The first line says ``{"name", "task", "skills", "predicates"}``, each further one is a trajectory ``{"objects",
"attempts"}`` whose attempts are ``{"state", "action", "next"}``, or ``{"state", "action", "refused": true}``. Atoms and
actions are written as in PDDL.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plansmith.data.storage import atomic_file
from plansmith.errors import BadInputError
from plansmith.pddl.cases import read_text
from plansmith.pddl.model import Atom, PlanStep, PredicateSchema, TypedName
from plansmith.problems.demonstrations import Attempt, Demonstrations, Skill, State, Trajectory

ATTEMPT_FORM = '{"state": ["(p a)"], "action": "(skill a)", "next": ["(q a)"]}, or "refused": true instead of next'


def write_demonstrations(demonstrations: Demonstrations, path: Path) -> None:
    """Write a file that `read_demonstrations` reads as the same."""
    head = {
        "name": demonstrations.name,
        "task": demonstrations.task,
        "skills": [{"name": skill.name, "arguments": list(skill.arguments)} for skill in demonstrations.skills],
        "predicates": [
            {"name": schema.name, "arguments": [typed.name.removeprefix("?") for typed in schema.parameters]}
            for schema in demonstrations.predicates
        ],
    }
    lines = [head, *map(_trajectory_json, demonstrations.trajectories)]
    with atomic_file(path) as file:
        file.write("".join(f"{json.dumps(line)}\n" for line in lines).encode())


def _trajectory_json(trajectory: Trajectory) -> dict[str, Any]:
    attempts = []
    for attempt in trajectory.attempts:
        end: dict[str, Any] = {"refused": True} if attempt.after is None else {"next": _texts(attempt.after)}
        attempts.append({"state": _texts(attempt.state), "action": str(attempt.action), **end})
    return {"objects": list(trajectory.objects), "attempts": attempts}


def _texts(state: State) -> list[str]:
    return sorted(map(str, state))


def read_demonstrations(path: Path) -> Demonstrations:
    """Return the demonstrations in a file.

    Raises:
        BadInputError: no JSON, no demonstration, an unknown skill or predicate, another number of arguments, an object
            that the trajectory does not list, states that do not join.
    """
    lines = [(number, line) for number, line in enumerate(read_text(path).split("\n"), 1) if line.strip()]
    values = [(f"{path}:{number}", _json(line, f"{path}:{number}")) for number, line in lines]
    if len(values) < 2:
        raise BadInputError("no demonstrations", where=str(path), got=f"{len(values)} lines",
                            expected="a line about skills and predicates, then a trajectory a line",
                            cure="record a walk of the robot at least")  # fmt: skip
    where, head = values[0]
    skills = tuple(Skill(*_schema(item, where, "skills")) for item in _list(head, "skills", where))
    predicates = tuple(
        PredicateSchema(name, tuple(TypedName(f"?{argument}") for argument in arguments))
        for name, arguments in (_schema(item, where, "predicates") for item in _list(head, "predicates", where))
    )
    reader = _Reader(
        {skill.name: len(skill.arguments) for skill in skills},
        {schema.name: len(schema.parameters) for schema in predicates},
    )
    trajectories = tuple(reader.trajectory(value, where) for where, value in values[1:])
    name, task = _text(head, "name", where), _text(head, "task", where)
    found = Demonstrations(name, task, skills, predicates, trajectories)
    if all(attempt.after is None for _, attempt in found.attempts):
        raise BadInputError("no demonstrations", where=str(path), got="no attempt that succeeded",
                            expected="one at least", cure="record what the robot can do, too")  # fmt: skip
    return found


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads trajectories; knows the arities of skills and predicates."""

    skills: dict[str, int]
    predicates: dict[str, int]

    def trajectory(self, value: dict[str, Any], where: str) -> Trajectory:
        objects = tuple(str(name).lower() for name in _list(value, "objects", where))
        attempts: list[Attempt] = []
        for number, item in enumerate(_list(value, "attempts", where), 1):
            attempt = self._attempt(item, objects, f"{where}, attempt {number}")
            before = _state_after(attempts[-1]) if attempts else attempt.state
            if attempt.state != before:
                raise BadInputError(
                    "states that do not join", where=f"{where}, attempt {number}",
                    got=f"differs in {' '.join(_texts(attempt.state ^ before))}",
                    expected="the state that the attempt before led to, or left as it was when it was refused",
                    cure="record attempts in their order, a trajectory a line",
                )  # fmt: skip
            attempts.append(attempt)
        return Trajectory(objects, tuple(attempts))

    def _attempt(self, item: Any, objects: Sequence[str], where: str) -> Attempt:
        if not isinstance(item, dict) or not isinstance(item.get("action"), str) or (
            (item.get("refused") is True) == ("next" in item)
        ):  # fmt: skip
            raise BadInputError("not an attempt", where=where, got=json.dumps(item)[:80], expected=ATTEMPT_FORM,
                                cure="write each attempt so")  # fmt: skip
        name, *arguments = _words(item["action"], where)
        _check_use("skill", name, arguments, self.skills, where)
        self._check_objects(arguments, objects, where)
        after = self._state(item, "next", objects, where) if "next" in item else None
        return Attempt(self._state(item, "state", objects, where), PlanStep(name, tuple(arguments)), after)

    def _state(self, item: dict[str, Any], key: str, objects: Sequence[str], where: str) -> State:
        atoms = []
        for text in _list(item, key, where):
            name, *arguments = _words(text, where)
            _check_use("predicate", name, arguments, self.predicates, where)
            self._check_objects(arguments, objects, where)
            atoms.append(Atom(name, tuple(arguments)))
        return frozenset(atoms)

    @staticmethod
    def _check_objects(arguments: Sequence[str], objects: Sequence[str], where: str) -> None:
        for name in arguments:
            if name not in objects:
                raise BadInputError("an object that the trajectory does not list", where=where, got=name,
                                    expected=", ".join(objects), cure="list it among its objects")  # fmt: skip


def _state_after(attempt: Attempt) -> State:
    return attempt.state if attempt.after is None else attempt.after


def _check_use(what: str, name: str, arguments: Sequence[str], known: dict[str, int], where: str) -> None:
    if name not in known:
        raise BadInputError(f"an unknown {what}", where=where, got=name, expected=", ".join(known),
                            cure=f"list it among the {what}s of the first line")  # fmt: skip
    if len(arguments) != known[name]:
        raise BadInputError(f"a {what} with another number of arguments", where=where,
                            got=f"{name} with {len(arguments)}", expected=str(known[name]),
                            cure="write as many as the first line has")  # fmt: skip


def _words(text: Any, where: str) -> list[str]:
    words = str(text).lower().strip()
    inner = words[1:-1].split()
    if not (words.startswith("(") and words.endswith(")")) or not inner or "(" in words[1:]:
        raise BadInputError("not an atom or action", where=where, got=str(text)[:60], expected="(name object ...)",
                            cure="write it as in PDDL, without variables")  # fmt: skip
    return inner


def _json(line: str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadInputError("not JSON", where=where, got=str(error), expected="a JSON object a line",
                            cure="write each trajectory on a line of its own") from error  # fmt: skip
    if not isinstance(value, dict):
        raise BadInputError("not a JSON object", where=where, got=line[:60], expected='{"objects": ...}',
                            cure="write each trajectory as an object")  # fmt: skip
    return value


def _list(value: dict[str, Any], key: str, where: str) -> list[Any]:
    if not isinstance(value.get(key), list):
        raise BadInputError(f"no list of {key}", where=where, got=repr(value.get(key))[:60],
                            expected=f'"{key}": [...]', cure="add it to the line")  # fmt: skip
    found: list[Any] = value[key]
    return found


def _text(value: dict[str, Any], key: str, where: str) -> str:
    found = value.get(key)
    if not isinstance(found, str) or not found.strip():
        raise BadInputError(f"no {key}", where=where, got=repr(found)[:60], expected=f'"{key}": "..."',
                            cure="add it to the first line")  # fmt: skip
    return found.strip()


def _schema(item: Any, where: str, key: str) -> tuple[str, tuple[str, ...]]:
    if not isinstance(item, dict) or not isinstance(item.get("name"), str):
        raise BadInputError(f"not an entry of {key}", where=where, got=json.dumps(item)[:60],
                            expected='{"name": "pick-up", "arguments": ["b", "t", "r"]}',
                            cure="write each entry of the first line so")  # fmt: skip
    return item["name"].lower(), tuple(str(name).lower().removeprefix("?") for name in item.get("arguments", []))
