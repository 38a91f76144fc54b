"""The loop in which a model writes a domain and mends it: what is asked next, and which answer counts.

Source: Self-CriTeach, section A.1.2. The loop itself is stages in a run and a command elsewhere; both ask and choose
here. No code adds a literal: what counts is an answer as it was written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from plansmith.generation import Conversation, asking
from plansmith.judging.domain_checks import CheckedDomain, DomainChecks
from plansmith.problems.demonstrations import Demonstrations
from plansmith.text.domain_writing import domain_prompt, read_domain, repair_prompt


@dataclass(frozen=True, slots=True)
class WrittenDomain:
    """An answer, with the domain found in it, and what the checks say of that."""

    completion: str
    text: str
    checked: CheckedDomain

    @property
    def worth(self) -> tuple[bool, float, int]:
        """Return what answers are compared by: they can be read, the sum of their scores, few faults."""
        return self.checked.domain is not None, self.checked.scores.total, -len(self.checked.faults)


def next_question(
    demonstrations: Demonstrations, best: WrittenDomain | None, *, most_attempts: int, most_faults: int
) -> Conversation:
    """Return what is asked: for a domain, or to mend the best so far."""
    if best is None or not best.text:
        return asking(domain_prompt(demonstrations, most_attempts=most_attempts))
    faults = [fault.words for fault in best.checked.faults[:most_faults]]
    return asking(repair_prompt(demonstrations, best.text, faults))


def judged_answers(completions: Iterable[str], checks: DomainChecks) -> list[WrittenDomain]:
    """Return every answer with its domain checked."""
    found = []
    for completion in completions:
        text = read_domain(completion)
        found.append(WrittenDomain(completion, text or "", checks.check(text)))
    return found


def best_domain(answers: Iterable[WrittenDomain]) -> WrittenDomain | None:
    """Return the answer that counts, the first of equal ones."""
    return max(answers, key=lambda answer: answer.worth, default=None)
