"""The products of one folder as the workbench shows and changes them: edits, drafts, undo. One process holds a folder.

Whoever saves says which version the change was made on; a version that is no longer there is a `ConflictError`. Not
here: pages (`pages`), HTTP (`server`), asking a model (`going_on`).
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from plansmith.config.modelling import ModellingConfig
from plansmith.errors import BadInputError
from plansmith.modelling import folder as files
from plansmith.modelling.folder import EDITABLE, EDITS, TaskFolder, digest
from plansmith.modelling.products import ActionSketch
from plansmith.modelling.reading import Fault, read_actions
from plansmith.modelling.steps import put_together
from plansmith.workbench import journal
from plansmith.workbench.checking import ActionName, action_of, faults_of
from plansmith.workbench.meaning import Reference
from plansmith.workbench.renaming import Kind, renamed

DRAFTS = f"{EDITS}/.drafts"
MAX_TEXT_BYTES = 512 * 1024


class ConflictError(BadInputError):
    """Somebody else saved in the meantime; `text` is what stands there now, `version` its version."""

    def __init__(self, message: str, *, text: str = "", version: str = "") -> None:
        super().__init__(message)
        self.text, self.version = text, version


class FaultyError(BadInputError):
    """A text that no later step could use."""

    def __init__(self, message: str, *, faults: tuple[Fault, ...] = ()) -> None:
        super().__init__(message)
        self.faults = faults


@dataclass(frozen=True, slots=True)
class Draft:
    """What was typed and not saved.

    Attributes:
        text: that was typed.
        version: of the product that it was made on.
        form: that it was typed into: two tabs have two.
    """

    text: str
    version: str
    form: str = ""


@dataclass(frozen=True, slots=True)
class Product:
    """One product as it stands.

    Attributes:
        name: of its file.
        made: as the steps made it.
        text: mended, or as it was made.
        is_edited: whether it was mended.
        is_outdated: whether it was mended, and has been made anew since.
        is_older: whether something before it was mended after it was made.
    """

    name: str
    made: str
    text: str
    is_edited: bool
    is_outdated: bool
    is_older: bool

    @property
    def version(self) -> str:
        """Return what tells the text from another one."""
        return digest(self.text)

    @property
    def action(self) -> ActionName | None:
        """Return the pass and the action, of a product of step 4."""
        return action_of(self.name)


class Bench:
    """Reads and changes the folder of one task; changes wait for each other."""

    def __init__(self, folder: TaskFolder, config: ModellingConfig, reference: Reference | None = None) -> None:
        if not folder.has(files.TEXT):
            cure = "make one first: plansmith nl2plan TEXT --policy FOLDER_OR_URL --out DIR"
            raise BadInputError(
                "no task here", where=str(folder.path), expected=f"a folder with {files.TEXT}", cure=cure
            )
        self.folder, self.config, self.reference = folder, config, reference
        self.lock = threading.RLock()

    @property
    def text(self) -> str:
        """Return the text from which everything is made."""
        return self.folder.read(files.TEXT)

    def names(self) -> list[str]:
        """Return the products that are there, in the order of the steps; actions that are no longer named are none."""
        actions = [str(path.relative_to(self.folder.path)) for path in self.folder.path.glob("4-actions/*/*.md")]
        position = {action.name: number for number, action in enumerate(self.actions())}
        is_named = position.__contains__ if self.folder.has(files.ACTIONS) else lambda _: True
        found = [(own, name) for name in actions if (own := action_of(name)) and is_named(own.action)]
        found.sort(key=lambda pair: (pair[0].number, position.get(pair[0].action, len(position)), pair[0].action))
        before = (files.TYPES, files.HIERARCHY, files.ACTIONS)
        rest = [name for name in (files.DOMAIN, files.PROBLEM_SKETCH, files.PROBLEM) if name in EDITABLE]
        order = [*before, *(name for _, name in found), *rest]
        return [name for name in order if self.folder.has(name)]

    def actions(self) -> tuple[ActionSketch, ...]:
        """Return the actions in words."""
        if not self.folder.has(files.ACTIONS):
            return ()
        return read_actions(self._shown(files.ACTIONS)[1])[0]

    def product(self, name: str) -> Product:
        """Return a product.

        Raises:
            BadInputError: there is none of this name.
        """
        names = self.names()
        if name not in names:
            raise BadInputError("no such product", got=repr(name[:80]), expected=f"one of {', '.join(names)}")
        made, text, is_edited, is_outdated = self._shown(name)
        before = names[: names.index(name)]
        is_older = any(self._edited_at(other) > self._changed_at(name) for other in before)
        return Product(name, made, text, is_edited, is_outdated, is_older)

    def products(self) -> list[Product]:
        """Return every product."""
        return [self.product(name) for name in self.names()]

    def faults(self, name: str, text: str) -> tuple[Fault, ...]:
        """Return what is wrong with a text in the place of a product."""
        if len(text.encode()) > MAX_TEXT_BYTES:
            return (Fault("size", f"too long: {MAX_TEXT_BYTES} bytes at most"),)
        return faults_of(self.folder, self.config, name, text)

    def as_it_stands(self) -> TaskFolder:
        """Return the folder with domain and problem put together of what is there now; nothing is written.

        Raises:
            BadInputError: one of them was mended, and what it was put together of has changed since.
        """
        foreseen = journal.Foreseen(self.folder.path)
        put_together(foreseen, self.config)
        return foreseen

    def save(self, name: str, text: str, version: str, *, form: str = "") -> None:
        """Put a text in the place of a product; one that is what the steps made is no edit.

        What is not taken stays a draft. What was typed into another form does, too.

        Raises:
            ConflictError: the product is not the version that the text was made of.
            FaultyError: it has faults that a later step would stumble over.
        """
        text = text.replace("\r\n", "\n")
        with self.lock:
            product = self.product(name)
            if product.version != version and digest(text) != product.version:
                self.keep_draft(name, text, version, form=form)
                raise ConflictError("saved in another tab in the meantime", text=product.text, version=product.version)
            if faults := self.faults(name, text):
                self.keep_draft(name, text, version, form=form)
                raise FaultyError("not saved: a later step could not use it", faults=faults)
            self._change(f"mended {name}", {name: text})
            draft = self.draft(name)
            if draft and (draft.form == form or digest(draft.text) == digest(text)):
                self.drop_draft(name)

    def take_made(self, name: str, version: str) -> None:
        """Take a product as the steps made it again; a draft stays.

        Raises:
            ConflictError: the product is not the version that was looked at.
        """
        with self.lock:
            product = self.product(name)
            if product.version != version:
                raise ConflictError("saved in another tab in the meantime", text=product.text, version=product.version)
            self._change(f"took {name} as it was made", {name: product.made})

    def rename(self, kind: Kind, old: str, new: str) -> list[str]:
        """Rename a type or a predicate wherever it is named, and return the products that changed.

        Raises:
            BadInputError: no such name, or the new one cannot be used.
        """
        with self.lock:
            products = self.products()
            texts = {each.name: each.text for each in products if each.is_edited or each.name in _WRITTEN
                     or each.action}  # fmt: skip
            older = {each.name: self._changed_at(each.name) for each in products if each.is_older}
            after = renamed(texts, kind, old, new)
            self._change(f"renamed the {kind} {old} to {new.strip().lower()}", after)
            for name in texts.keys() - after.keys() - older.keys():  # untouched by the new name, and no older for it
                (self.folder.path / name).touch()
            for name, changed in older.items():  # a new name makes nothing younger, nor does putting together
                for path in (self.folder.path / name, self.folder.path / EDITS / name):
                    if path.is_file():
                        os.utime(path, ns=(changed, changed))
            return list(after)

    def undo(self) -> str:
        """Take the last change back, and return what it was.

        Raises:
            BadInputError: there is none, or it cannot be taken back.
        """
        with self.lock:
            return journal.undo(self.folder).label

    def last_change(self) -> str | None:
        """Return what `undo` would take back."""
        known = journal.changes(self.folder)
        return known[-1].label if known else None

    def draft(self, name: str) -> Draft | None:
        """Return what was typed in a product and not saved."""
        path = f"{DRAFTS}/{name}.json"
        return Draft(**json.loads(self.folder.read(path))) if self.folder.has(path) else None

    def keep_draft(self, name: str, text: str, version: str, *, form: str = "") -> None:
        """Keep what is being typed; what stands there already is no draft."""
        with self.lock:
            if digest(text) == self.product(name).version or len(text.encode()) > MAX_TEXT_BYTES:
                self.drop_draft(name)
            else:
                self.folder.write(f"{DRAFTS}/{name}.json", json.dumps(asdict(Draft(text, version, form))))

    def drop_draft(self, name: str) -> None:
        """Forget what was typed."""
        self.folder.remove(f"{DRAFTS}/{name}.json")

    def _shown(self, name: str) -> tuple[str, str, bool, bool]:
        """Return a product as it was made and as it stands, whether it was mended, and made anew since."""
        made, edit = self.folder.read(name), self.folder.edit(name)
        if edit is None:
            return made, made, False, False
        return made, edit.text, True, edit.base != digest(made)

    def _change(self, label: str, texts: Mapping[str, str]) -> None:
        """Write edits, and what takes them back; what stands in the way is met before anything is written."""
        foreseen = journal.Foreseen(self.folder.path)
        pddl = {name: text for name, text in texts.items() if name not in _WRITTEN and not action_of(name)}
        _mend(foreseen, {name: text for name, text in texts.items() if name not in pddl})
        if len(texts) > len(pddl) > 0:  # mended PDDL is an edit of what is put together now
            self._mend_anew(foreseen, pddl)
        else:
            _mend(foreseen, pddl)
        journal.make(self.folder, label, foreseen)

    def _mend_anew(self, foreseen: journal.Foreseen, pddl: Mapping[str, str]) -> None:
        """Put PDDL together and mend it, the domain first: the problem has the name that it has as it stands."""
        for name in pddl:
            foreseen.remove_edit(name)
        for name, text in pddl.items():
            put_together(foreseen, self.config)
            _mend(foreseen, {name: text})
        put_together(foreseen, self.config)

    def is_planned_before(self) -> bool:
        """Return whether something was changed after what came of planning was written."""
        planned = _time_of(self.folder.path / files.PLAN_IN_WORDS)
        return any(self._changed_at(name) > planned for name in self.names())

    def _edited_at(self, name: str) -> int:
        return _time_of(self.folder.path / EDITS / name)

    def _changed_at(self, name: str) -> int:
        return max(_time_of(self.folder.path / name), self._edited_at(name))


_WRITTEN = frozenset({files.TYPES, files.HIERARCHY, files.ACTIONS, files.PROBLEM_SKETCH})
"""Products that are written; PDDL that was put together of them follows them by itself, unless it was mended."""


def _mend(foreseen: journal.Foreseen, texts: Mapping[str, str]) -> None:
    """Put texts in the place of products; one that is what the steps made is no edit."""
    for name, text in texts.items():
        if digest(text) == digest(foreseen.read(name)):
            foreseen.remove_edit(name)
        else:
            foreseen.write_edit(name, text)


def _time_of(path: Path) -> int:
    """Return when a file was changed, 0 where there is none."""
    return path.stat().st_mtime_ns if path.is_file() else 0
