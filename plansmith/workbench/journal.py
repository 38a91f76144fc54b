"""What was changed, so that it can be undone: each entry holds the files that one change touched, before and after."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from plansmith.data.storage import atomic_file, make_folder, storage_errors
from plansmith.errors import BadInputError
from plansmith.modelling.folder import EDITS, TaskFolder

JOURNAL = f"{EDITS}/.changes.json"
MAX_ENTRIES = 200


@dataclass(frozen=True)
class Foreseen(TaskFolder):
    """A folder as a change will leave it; nothing is written.

    Attributes:
        changed: by file its text, None where it will be gone.
    """

    changed: dict[str, str | None] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        """Return whether a file will be there."""
        return self.changed[name] is not None if name in self.changed else super().has(name)

    def read(self, name: str) -> str:
        """Return a file as it will be."""
        return self.changed.get(name) or super().read(name)

    def write(self, name: str, text: str) -> None:
        """Foresee a file."""
        self.changed[name] = f"{text.rstrip()}\n"

    def remove(self, name: str) -> None:
        """Foresee that a file is gone."""
        self.changed[name] = None


@dataclass(frozen=True, slots=True)
class Change:
    """One change: by file its text, None where there is none."""

    label: str
    before: Mapping[str, str | None]
    after: Mapping[str, str | None]


def changes(folder: TaskFolder) -> list[Change]:
    """Return what can be undone, the last change last."""
    if not folder.has(JOURNAL):
        return []
    return [Change(**entry) for entry in json.loads(folder.read(JOURNAL))]


def make(folder: TaskFolder, label: str, foreseen: Foreseen) -> None:
    """Note a change, then make it: what a kill leaves half made can be undone. What changes nothing touches nothing."""
    change = Change(label, {file: _text(folder, file) for file in foreseen.changed}, foreseen.changed)
    if change.before != change.after:
        _write(folder, [*changes(folder), change][-MAX_ENTRIES:])
        _leave(folder, change.after)


def undo(folder: TaskFolder) -> Change:
    """Take the last change back, and return it; a product that was made anew since stays.

    Raises:
        BadInputError: there is none, or one of its edits has been changed in another way since.
    """
    known = changes(folder)
    if not known:
        raise BadInputError("nothing to undo")
    last = known[-1]
    touched = [file for file in last.after if _text(folder, file) not in (last.before[file], last.after[file])]
    if edits := list(filter(_is_edit, touched)):
        raise BadInputError("an edit that was changed by something else since", where=edits[0], cure="mend it by hand")
    in_order = sorted(last.before, key=_is_edit)  # edits last: what follows them is older
    _leave(folder, {file: last.before[file] for file in in_order if file not in touched})
    _write(folder, known[:-1])
    return last


def _is_edit(file: str) -> bool:
    return file.startswith(f"{EDITS}/")


def _text(folder: TaskFolder, file: str) -> str | None:
    return folder.read(file) if folder.has(file) else None


def _leave(folder: TaskFolder, texts: Mapping[str, str | None]) -> None:
    for file, text in texts.items():
        if text is None:
            folder.remove(file)
        else:
            folder.write(file, text)


def _write(folder: TaskFolder, kept: list[Change]) -> None:
    make_folder(folder.path / EDITS)
    with storage_errors(folder.path), atomic_file(folder.path / JOURNAL) as file:
        file.write(json.dumps([asdict(change) for change in kept]).encode())
