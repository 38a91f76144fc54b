"""The paper's 15 tasks: a text each, a reference domain and a reference problem; and any folder laid out like them.

A folder holds a folder for each domain, with ``domain.md`` and ``domain.pddl``, and for each task ``NAME.md`` and
``NAME.pddl`` beside them. The texts are in our own words; where the problems differ from the paper's `docs/nl2plan.md`
says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from plansmith.errors import BadInputError

TASKS_FOLDER = Path(__file__).resolve().parents[2] / "datasets" / "nl2plan"
LEVELS = ("easy", "medium", "hard")


@dataclass(frozen=True, slots=True)
class Reference:
    """One task.

    Attributes:
        domain: name of its domain.
        level: name of the task in its domain.
        domain_text, task_text: of the two, what a user would write is both, one after the other.
        domain_pddl, problem_pddl: the reference.
    """

    domain: str
    level: str
    domain_text: str
    task_text: str
    domain_pddl: str
    problem_pddl: str

    @property
    def name(self) -> str:
        """Return what the task is called."""
        return f"{self.domain}-{self.level}"

    @property
    def text(self) -> str:
        """Return the text from which everything is made."""
        return f"{self.domain_text.strip()}\n\n{self.task_text.strip()}".strip()


def read_references(folder: Path = TASKS_FOLDER, *, domains: Sequence[str] = ()) -> tuple[Reference, ...]:
    """Return the tasks of a folder by domain, easy ones first.

    Raises:
        BadInputError: none there, or a file of one is missing.
    """
    found: list[Reference] = []
    for home in sorted(path.parent for path in folder.glob("*/domain.pddl")):
        if domains and home.name not in domains:
            continue
        texts = [path for path in home.glob("*.md") if path.stem not in ("domain", "README")]
        texts.sort(key=lambda path: (LEVELS.index(path.stem) if path.stem in LEVELS else len(LEVELS), path.stem))
        for path in texts:
            parts = (home / "domain.md", path, home / "domain.pddl", path.with_suffix(".pddl"))
            found.append(Reference(home.name, path.stem, *map(_text, parts)))
    unknown = set(domains) - {reference.domain for reference in found}
    if not found or unknown:
        layout = "DOMAIN/domain.pddl, DOMAIN/domain.md, DOMAIN/TASK.md and DOMAIN/TASK.pddl"
        got = ", ".join(sorted(unknown)) or "nothing"
        raise BadInputError("no tasks here", where=str(folder), got=got, expected=layout)
    return tuple(found)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, UnicodeDecodeError) as error:
        raise BadInputError("a task without one of its files", where=str(path), got=str(error)) from error
