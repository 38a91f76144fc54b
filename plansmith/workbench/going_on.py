"""Going on from a product: the steps after it are made again, and what does not change is asked nobody twice.

Not here: who answers, which the command knows (`Speaking`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from plansmith.config.modelling import ModellingConfig
from plansmith.config.planner import PlannerConfig
from plansmith.data.rows import ModellingStepRow
from plansmith.errors import BadInputError, PlansmithError
from plansmith.judging.modelled import plan_task, write_plan
from plansmith.modelling import folder as files
from plansmith.modelling.dialogue import Question
from plansmith.modelling.folder import TaskFolder
from plansmith.modelling.speaking import Person, Speaker
from plansmith.modelling.steps import (
    make_actions,
    make_domain,
    make_hierarchy,
    make_problem,
    make_schemas,
    make_types,
    put_together,
    read_made_domain,
)
from plansmith.planners import FastDownward
from plansmith.workbench.advice import AdviceDesk
from plansmith.workbench.checking import action_of

logger = logging.getLogger(__name__)

Speaking = Callable[[Person], AbstractContextManager[Speaker]]
"""Starts who answers; a person is asked where feedback is a person's."""
Dialogue = Generator[Question, str, Any]

PLANNING = "planning"


@dataclass(frozen=True)
class Work:
    """The steps of one folder.

    Attributes:
        folder: of the task.
        config: of the dialogue.
        planner: of the plan.
        speaking: who answers; None where nobody does, and only what is there can be put together and planned.
    """

    folder: TaskFolder
    config: ModellingConfig
    planner: PlannerConfig
    speaking: Speaking | None

    def go_on(self, after: str | None, person: Person, say: Callable[[str], None]) -> None:
        """Make everything after a product again, and plan.

        Args:
            after: the product; None for what nobody need be asked for.
            person: asked where feedback is a person's.
            say: gets a line as each step is done, and may end all by raising.

        Raises:
            PlansmithError: nobody answers, an edit cannot be used, or a request failed.
        """
        dialogues = [] if after is None else list(self._dialogues(after))
        if dialogues:
            if self.speaking is None:
                raise BadInputError("nobody is there to ask", cure="give the command a --policy FOLDER_OR_URL, or plan "
                                    "with what is there")  # fmt: skip
            with self.speaking(person) as speaker:
                for label, start in dialogues:
                    say(f"{label} ...")
                    for line in self._asked(speaker, start()):
                        say(line)
        else:
            put_together(self.folder, self.config)
        say(f"{PLANNING} ...")
        say(self.plan())

    def plan(self) -> str:
        """Leave the plan of the domain and the problem as they stand, and return what came of it."""
        with FastDownward(self.planner) as planner:
            planned = plan_task(planner, self.folder.current(files.DOMAIN), self.folder.current(files.PROBLEM))
        return write_plan(self.folder, planned).splitlines()[-1 if planned.is_solved else 0]

    def _dialogues(self, after: str) -> Iterator[tuple[str, Callable[[], Dialogue]]]:
        """Yield the steps after a product that somebody is asked for; the domain is put together on the way."""
        text, folder, config = self.folder.read(files.TEXT), self.folder, self.config
        own, order = action_of(after), (files.TEXT, files.TYPES, files.HIERARCHY, files.ACTIONS)
        position = order.index(after) if after in order else len(order)
        simple = (("types", make_types), ("hierarchy", make_hierarchy), ("actions", make_actions))
        for number, (label, make) in enumerate(simple):
            if position <= number:
                yield label, lambda make=make: make(text, folder, config)  # type: ignore[misc]
        if own or after in order:
            for number in range(own.number if own else 1, config.passes + 1):
                yield (
                    f"pass {number} of the actions",
                    lambda number=number: make_schemas(  # type: ignore[misc]
                        text, folder, config, number=number
                    ),
                )
        if own or after in order or after == files.DOMAIN:
            yield "the problem", self._problem(after)

    def _problem(self, after: str) -> Callable[[], Dialogue]:
        def start() -> Dialogue:
            is_whole = after != files.DOMAIN and self.folder.has(files.TYPES)
            make = make_domain if is_whole else read_made_domain
            sketch = make(self.folder, self.config)
            return make_problem(self.folder.read(files.TEXT), sketch, self.folder, self.config)

        return start

    def _asked(self, speaker: Speaker, dialogue: Dialogue) -> Iterator[str]:
        [(_, made)] = speaker.converse({str(self.folder.path): dialogue})
        for record in (made,) if isinstance(made, ModellingStepRow) else made:
            flaws = f", accepted with its flaws: {', '.join(record.faults)}" if record.faults else ""
            advised = ", advised" if record.advice else ""
            yield f"{record.step} {record.subject}".strip() + f": done{advised}{flaws}"


@dataclass
class Progress:
    """What is going on: one thing at a time, in a thread of its own."""

    work: Work
    desk: AdviceDesk = field(default_factory=AdviceDesk)
    label: str = ""
    lines: list[str] = field(default_factory=list)
    failure: str = ""
    _thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        """Return whether something is going on."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, label: str, after: str | None) -> None:
        """Go on from a product.

        Raises:
            BadInputError: something is going on already.
        """
        if self.is_running:
            raise BadInputError("something is going on already", got=self.label, cure="wait for it, or stop it")
        self.label, self.lines, self.failure = label, [], ""
        self.desk.open()
        self._thread = threading.Thread(target=self._run, args=(after,), name="going on", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End what is going on at its next step or question."""
        self.desk.stop()

    def wait(self) -> None:
        """Wait until nothing is going on."""
        if self._thread is not None:
            self._thread.join()

    def state(self) -> dict[str, Any]:
        """Return what a page is told of it, and renews itself by."""
        waiting = self.desk.waiting
        return {
            "is_running": self.is_running,
            "lines": list(self.lines),
            "failure": self.failure,
            "question": waiting[0] if waiting else None,
        }

    def _run(self, after: str | None) -> None:
        try:
            self.work.go_on(after, self.desk.ask, self._say)
        except PlansmithError as error:
            self.failure = str(error)
        except BaseException:
            self.failure = "a mistake of the program; its traceback is in the terminal"
            raise

    def _say(self, line: str) -> None:
        self.lines.append(line)
        self.desk.check()
