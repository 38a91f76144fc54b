"""What was changed, so that it can be undone: each entry holds the edits of one change, before and after."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from plansmith.data.storage import atomic_file, storage_errors
from plansmith.errors import BadInputError
from plansmith.modelling.folder import EDITS, TaskFolder

JOURNAL = f"{EDITS}/.journal.json"
MAX_ENTRIES = 200


@dataclass(frozen=True, slots=True)
class Change:
    """One change: by product the file of its edit, None where there is none."""

    label: str
    before: Mapping[str, str | None]
    after: Mapping[str, str | None]


def edit_file(folder: TaskFolder, name: str) -> str | None:
    """Return the file of a product's edit as it is; None where there is none."""
    return folder.read(f"{EDITS}/{name}") if folder.has(f"{EDITS}/{name}") else None


def changes(folder: TaskFolder) -> list[Change]:
    """Return what can be undone, the last change last."""
    if not folder.has(JOURNAL):
        return []
    return [Change(**entry) for entry in json.loads(folder.read(JOURNAL))]


def note(folder: TaskFolder, change: Change) -> None:
    """Keep a change."""
    _write(folder, [*changes(folder), change][-MAX_ENTRIES:])


def undo(folder: TaskFolder) -> Change:
    """Take the last change back, and return it.

    Raises:
        BadInputError: there is none, or one of its edits has been changed in another way since.
    """
    known = changes(folder)
    if not known:
        raise BadInputError("nothing to undo")
    last = known[-1]
    touched = [name for name, after in last.after.items() if edit_file(folder, name) != after]
    if touched:
        raise BadInputError("an edit that was changed by something else since", where=f"{EDITS}/{touched[0]}",
                            cure="mend it by hand")  # fmt: skip
    for name, before in last.before.items():
        if before is None:
            folder.remove_edit(name)
        else:
            folder.write(f"{EDITS}/{name}", before)
    _write(folder, known[:-1])
    return last


def _write(folder: TaskFolder, kept: list[Change]) -> None:
    with storage_errors(folder.path), atomic_file(folder.path / JOURNAL) as file:
        file.write(json.dumps([asdict(change) for change in kept]).encode())
