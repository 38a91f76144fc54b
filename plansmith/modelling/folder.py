"""The folder of one task: every product a file to read, to mend, and to go on from.

``text.md``, ``1-types.md``, ``2-hierarchy.md``, ``3-actions.md``, ``4-actions/PASS/NAME.md``, ``5-problem.md``,
``domain.pddl``, ``problem.pddl``, ``plan.txt``, ``plan.md``, ``calls.jsonl``. A mended product is a file of the same
name below ``edits/`` whose first line says of which product it is an edit; whoever goes on reads it in its place.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from plansmith.data.storage import atomic_file, make_folder, storage_errors
from plansmith.errors import BadInputError

TEXT = "text.md"
TYPES = "1-types.md"
HIERARCHY = "2-hierarchy.md"
ACTIONS = "3-actions.md"
PROBLEM_SKETCH = "5-problem.md"
DOMAIN = "domain.pddl"
PROBLEM = "problem.pddl"
PLAN = "plan.txt"
PLAN_IN_WORDS = "plan.md"
CALLS = "calls.jsonl"
INTERPRETATION = "interpretation.json"
"""What the plan means in a reference; a person says so in the workbench."""
EDITS = "edits"
EDITABLE = (TYPES, HIERARCHY, ACTIONS, PROBLEM_SKETCH, DOMAIN, PROBLEM)
"""Products that may be mended, beside the actions of step 4."""

_MARK = re.compile(r"\A(?:<!-- edit of ([0-9a-f]{16}) -->|; edit of ([0-9a-f]{16}))\r?\n")


def action_folder(number: int) -> str:
    """Return where the actions of a pass are, from 1."""
    return f"4-actions/{number}/"


def action_file(number: int, name: str) -> str:
    """Return the file of an action, of a pass from 1."""
    return f"{action_folder(number)}{name}.md"


def digest(text: str) -> str:
    """Return what tells a product from another one."""
    return hashlib.sha256(text.strip().encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Edit:
    """A mended product.

    Attributes:
        name: of the product's file.
        text: that stands in its place.
        base: digest of the product that was mended.
    """

    name: str
    text: str
    base: str

    def instead_of(self, product: str, *, where: str) -> str:
        """Return the text that stands in the place of a product.

        Raises:
            BadInputError: it is an edit of another one.
        """
        if self.base != digest(product):
            raise BadInputError(
                "an edit of a product that has changed since", where=where, got=f"an edit of {self.base}",
                expected=f"one of {digest(product)}", cure="mend the product again, or remove the edit",
            )  # fmt: skip
        return self.text


def read_edit(name: str, text: str, *, where: str) -> Edit:
    """Return the edit that a file holds.

    Raises:
        BadInputError: it does not say of which product it is one.
    """
    mark = _MARK.match(text)
    if mark is None:
        raise BadInputError("an edit that does not say what it is an edit of", where=where,
                            expected=f"'{_mark(name, '0' * 16)}' as its first line, with the digest of the product",
                            cure="make it in the workbench, or copy the first line of another edit")  # fmt: skip
    return Edit(name, text[mark.end() :], mark[1] or mark[2])


@dataclass(frozen=True, slots=True)
class TaskFolder:
    """The files of one task.

    Attributes:
        path: of the folder.
        has_versions: a product may be made again later on, so that an edit of another version waits for its own.
    """

    path: Path
    has_versions: bool = False

    def has(self, name: str) -> bool:
        """Return whether a product is there."""
        return (self.path / name).is_file()

    def read(self, name: str) -> str:
        """Return a product as the steps made it.

        Raises:
            BadInputError: it is not there, or not UTF-8.
        """
        try:
            with storage_errors(self.path):
                return (self.path / name).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise BadInputError("not a text in UTF-8", where=str(self.path / name), got=str(error)) from error
        except FileNotFoundError as error:
            raise BadInputError("no such product", where=str(self.path / name), expected=f"a folder with {name}",
                                cure="run plansmith nl2plan first") from error  # fmt: skip

    def of_steps(self) -> list[str]:
        """Return the products of steps 1 to 4 that are there."""
        actions = sorted(path.relative_to(self.path).as_posix() for path in self.path.glob("4-actions/*/*.md"))
        return [*filter(self.has, (TYPES, HIERARCHY, ACTIONS)), *actions]

    def passes(self) -> set[int]:
        """Return the numbers of the passes of step 4 that are there."""
        return {int(path.name) for path in self.path.glob("4-actions/*") if path.name.isdecimal()}

    def write(self, name: str, text: str) -> None:
        """Write a product, whole or not at all."""
        make_folder((self.path / name).parent)
        with storage_errors(self.path), atomic_file(self.path / name) as file:
            file.write(f"{text.rstrip()}\n".encode())

    def remove(self, name: str) -> None:
        """Take away a product that no longer follows from those before it."""
        with storage_errors(self.path):
            (self.path / name).unlink(missing_ok=True)

    def edit(self, name: str) -> Edit | None:
        """Return how a product was mended, None where it was not.

        Raises:
            BadInputError: the file does not say of which product it is an edit.
        """
        if not self.has(f"{EDITS}/{name}"):
            return None
        return read_edit(name, self.read(f"{EDITS}/{name}"), where=str(self.path / EDITS / name))

    def is_mended(self, name: str) -> bool:
        """Return whether a product, as it is now, was mended."""
        edit = self.edit(name)
        return edit is not None and edit.base == digest(self.read(name))

    def check_edits(self) -> None:
        """Raise for an edit that is of no product as it is now; see `current`."""
        for path in sorted((self.path / EDITS).rglob("*.*")):
            name = path.relative_to(self.path / EDITS).as_posix()
            if self.has(name):
                TaskFolder(self.path).current(name)

    def write_edit(self, name: str, text: str) -> None:
        """Put a text in the place of a product, as it is now."""
        self.write(f"{EDITS}/{name}", f"{_mark(name, digest(self.read(name)))}\n{text.rstrip()}")

    def remove_edit(self, name: str) -> None:
        """Take a product as the steps made it again."""
        self.remove(f"{EDITS}/{name}")

    def current(self, name: str) -> str:
        """Return a product as whoever goes on reads it: mended, or as it is.

        Raises:
            BadInputError: it was mended, and has changed since.
        """
        product, edit = self.read(name), self.edit(name)
        if edit is None:
            return product
        if self.has_versions and edit.base != digest(product):
            return product
        return edit.instead_of(product, where=str(self.path / EDITS / name))

    def settle(self, name: str, text: str) -> str:
        """Write a product, and return it as whoever goes on reads it."""
        self.write(name, text)
        return self.current(name)


def _mark(name: str, base: str) -> str:
    return f"; edit of {base}" if name.endswith(".pddl") else f"<!-- edit of {base} -->"
