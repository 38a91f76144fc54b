"""A person's advice, waited for until the page brings it."""

from __future__ import annotations

import threading

from plansmith.errors import PlansmithError
from plansmith.modelling.dialogue import Question

NO_CHANGES = "No changes."
"""What accepts an answer as it is."""


class StoppedError(PlansmithError):
    """A person has ended what was going on."""


class AdviceDesk:
    """Holds the question that waits for a person; who asks waits until it is answered, or all is stopped."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._question: Question | None = None
        self._answers: list[str] = []
        self._number, self._is_stopped = 0, False

    @property
    def waiting(self) -> tuple[int, Question] | None:
        """Return the question with its number; None while nothing is asked."""
        with self._changed:
            return None if self._question is None or self._answers else (self._number, self._question)

    def open(self) -> None:
        """Take questions again, after a stop."""
        with self._changed:
            self._is_stopped = False

    def ask(self, question: Question) -> str:
        """Return what a person says to a question.

        Raises:
            StoppedError: it was stopped meanwhile.
        """
        with self._changed:
            self._question, self._answers = question, []
            self._number += 1
            self._changed.wait_for(lambda: self._answers or self._is_stopped)
            self._question = None
            self.check()
            return self._answers[0]

    def answer(self, number: int, text: str) -> bool:
        """Give the answer to a question; return whether it still waits."""
        with self._changed:
            if self._question is None or number != self._number or self._answers:
                return False
            self._answers.append(text.strip() or NO_CHANGES)
            self._changed.notify_all()
            return True

    def stop(self) -> None:
        """End what is going on, at its next question or step."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def check(self) -> None:
        """Raise if it was stopped.

        Raises:
            StoppedError: it was.
        """
        if self._is_stopped:
            raise StoppedError("stopped")
