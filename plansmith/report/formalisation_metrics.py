"""From judged answers to the figures of an arm that writes PDDL for texts: SVR, PSR, TSR, CR, and whether it is right.

Source: NL-PDDL-Bench, section 3.4, equations 6 to 9, and appendix C.3, equations 10 to 18. An *arm* is a policy with
what it did with its failed answers: nothing, repair them with feedback, or answer again. Not here: judging
(`plansmith.judging.formalisation`), what repair changes (`repair_metrics`), preference pairs (`preference_metrics`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import fmean

from plansmith.data.rows import FormalisedRow
from plansmith.groups import grouped
from plansmith.judging.repair import best_answer
from plansmith.pddl.equivalence import Outcome
from plansmith.report.statistics import (
    PairedTest,
    TriedById,
    TriedProblem,
    accuracy_interval,
    paired_test,
    solved_by_both,
)

OUTCOMES: Mapping[str, Callable[[FormalisedRow], bool]] = {
    "svr": lambda row: row.is_parsed,
    "psr_of_all": lambda row: row.is_solved,
    "cr": lambda row: row.is_consistent,
    "identical": lambda row: row.outcome == Outcome.IDENTICAL,
    "equivalent": lambda row: row.is_same,
    "flattered": lambda row: row.is_flattered,
    "undecided": lambda row: row.outcome == Outcome.UNDECIDED,
    "task_success": lambda row: row.has_task_success,
    "keeps_contract": lambda row: row.keeps_contract,
}
"""What an answer may come to, by the name of its share of all answers in `FormalisationFigures`."""


class Novelty(StrEnum):
    """What of a test text was trained on: nothing of the text itself, ever."""

    TRAINED = "trained on"
    """Other problems of its level of its domain."""
    NEW_LEVEL = "level never trained on"
    """Problems of other levels of its domain."""
    NEW_DOMAIN = "domain never trained on"
    """None of its domain."""


def chosen_answer(turns: Sequence[FormalisedRow]) -> FormalisedRow:
    """Return the answer that counts, by `plansmith.judging.repair.best_answer`.

    Args:
        turns: the answers to one text, in the order of the turns.

    Raises:
        ValueError: no answers, answers to several texts, or turns that do not ascend.
    """
    numbers = [row.iteration for row in turns]
    if not turns or len({row.problem_id for row in turns}) > 1 or numbers != sorted(set(numbers)):
        raise ValueError(f"the answers to one text, turn by turn; got turns {numbers}")
    return best_answer(turns)


@dataclass(frozen=True, slots=True)
class AnsweredText:
    """A test text with an arm's answers to it, turn by turn.

    ``level`` is the level of difficulty, such as ``L1``, which several domains have; ``form`` is the canonical form of
    the reference, which its copies share.
    """

    problem_id: str
    domain: str
    level: str
    form: str
    answers: tuple[FormalisedRow, ...]
    novelty: Novelty = Novelty.TRAINED

    def answer(self, turn: int | None = None) -> FormalisedRow:
        """Return the answer that counts, as if the loop had stopped after a turn where one is given."""
        return chosen_answer([row for row in self.answers if turn is None or row.iteration <= turn])


@dataclass(frozen=True, slots=True)
class FormalisationFigures:
    """What the answers to ``n`` texts came to, in shares of all of them unless said otherwise.

    svr: can be read (equation 6).
    psr: have a plan, of those that can be read (equation 7); None where none can. The paper's tables divide by all.
    psr_of_all: have a plan.
    tsr: mean agreement of atoms (equation 8).
    cr: have a plan much like the reference's (equations 9 to 18). Every reference has a plan, so that no failure
        agrees with a failure, as in the paper's Assembly.
    identical, equivalent: mean what the reference does, under the same names; under any, those included.
    flattered: have a plan and are not known to mean what the reference does.
    undecided: of a meaning that could not be compared within the budget; with a plan they are flattered, too.
    task_success: have a plan that solves the reference, with objects renamed where a map is known.
    keeps_contract: are one problem and nothing else.
    ci95: `accuracy_interval` of every share of all, by its name.
    """

    n: int
    n_forms: int
    svr: float
    psr: float | None
    psr_of_all: float
    tsr: float
    cr: float
    identical: float
    equivalent: float
    flattered: float
    undecided: float
    task_success: float
    keeps_contract: float
    ci95: dict[str, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class FormalisationArm(FormalisationFigures):
    """The figures of an arm over the test texts of levels that were trained on, with those of domains, levels, turns.

    ``by_place`` has those of each level of each domain. ``by_turn`` has those that the arm would have had if its loop
    had stopped after turn 0, 1, ...; without a loop it is empty. ``by_novelty`` has those of the other texts, by
    `Novelty`, and ``by_new_place`` by domain and level.
    """

    name: str
    by_domain: dict[str, FormalisationFigures]
    by_level: dict[str, FormalisationFigures]
    by_place: dict[str, dict[str, FormalisationFigures]]
    by_turn: tuple[FormalisationFigures, ...] = ()
    by_novelty: dict[str, FormalisationFigures] = field(default_factory=dict)
    by_new_place: dict[str, FormalisationFigures] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OutcomeComparison:
    """Two arms on the same texts, compared by one of `OUTCOMES`."""

    before: str
    after: str
    outcome: str
    test: PairedTest


def summarise_answers(texts: Iterable[AnsweredText], turn: int | None = None) -> FormalisationFigures:
    """Return the figures of some texts, as if the loop had stopped after a turn where one is given.

    Raises:
        ValueError: no texts, or one that occurs twice.
    """
    answers = [(text.answer(turn), text.form) for text in texts]
    if not answers or len({row.problem_id for row, _ in answers}) < len(answers):
        raise ValueError(f"answers to one text or more, each once; got {len(answers)}")
    tried = {name: _tried(answers, name) for name in OUTCOMES}
    shares = {name: fmean(item.is_solved for item in items) for name, items in tried.items()}
    return FormalisationFigures(
        n=len(answers),
        n_forms=len({form for _, form in answers}),
        psr=shares["psr_of_all"] / shares["svr"] if shares["svr"] else None,
        tsr=fmean(row.atom_similarity for row, _ in answers),
        ci95={name: accuracy_interval(items) for name, items in tried.items()},
        **shares,
    )


def never_trained_on(answered: Iterable[AnsweredText]) -> tuple[dict[str, list[AnsweredText]], ...]:
    """Return the texts of levels that were not trained on, by `Novelty`, and by domain and level."""
    others = [text for text in answered if text.novelty is not Novelty.TRAINED]
    return grouped(others, _novelty_of), grouped(others, _place_of)


def summarise_text_arm(name: str, answered: Sequence[AnsweredText], n_turns: int | None = None) -> FormalisationArm:
    """Return the figures of an arm; domains and levels keep the order in which they first occur.

    Args:
        name: of the arm.
        answered: texts with its answers, some of a level that was trained on.
        n_turns: T_max of its loop; None of an arm without one.
    """
    texts, (by_novelty, by_place) = trained_on(answered), never_trained_on(answered)
    shared, by_level = summarise_answers(texts), _summarise_by(texts, _level_of)
    by_domain = grouped(texts, lambda text: text.domain)
    return FormalisationArm(
        **{key: getattr(shared, key) for key in FormalisationFigures.__dataclass_fields__},
        name=name,
        by_domain={domain: summarise_answers(found) for domain, found in by_domain.items()},
        by_level=by_level,
        by_place={domain: _in_order(_summarise_by(found, _level_of), by_level) for domain, found in by_domain.items()},
        by_turn=() if n_turns is None else tuple(summarise_answers(texts, turn) for turn in range(n_turns + 1)),
        by_novelty={key: summarise_answers(found) for key, found in by_novelty.items()},
        by_new_place={key: summarise_answers(found) for key, found in by_place.items()},
    )


def trained_on(texts: Iterable[AnsweredText]) -> list[AnsweredText]:
    """Return the texts of levels that were trained on, of which an arm's figures are."""
    return [text for text in texts if text.novelty is Novelty.TRAINED]


def _summarise_by(
    texts: Iterable[AnsweredText], key_of: Callable[[AnsweredText], str]
) -> dict[str, FormalisationFigures]:
    return {key: summarise_answers(found) for key, found in grouped(texts, key_of).items()}


def compare_outcome(before: str, after: str, outcome: str, tried: Callable[[str, str], TriedById]) -> OutcomeComparison:
    """Return the paired test of two arms on an outcome, texts matched by their problem's id.

    Args:
        before: the first arm.
        after: the second.
        outcome: one of `OUTCOMES`.
        tried: gives what became of the texts of an arm by an outcome.

    Raises:
        ValueError: the arms answered other texts.
    """
    first, second = (tried(arm, outcome) for arm in (before, after))
    matched = solved_by_both(first, second, names=f"{before} and {after}", where="answered")
    return OutcomeComparison(before, after, outcome, paired_test(*matched))


def tried_texts(texts: Iterable[AnsweredText], outcome: str) -> dict[str, TriedProblem]:
    """Return whether the answer that counts came to one of `OUTCOMES`, by the id of the problem."""
    return {text.problem_id: TriedProblem(OUTCOMES[outcome](text.answer()), text.form) for text in texts}


def _tried(answers: Sequence[tuple[FormalisedRow, str]], outcome: str) -> list[TriedProblem]:
    return [TriedProblem(OUTCOMES[outcome](row), form) for row, form in answers]


def _in_order(figures: Mapping[str, FormalisationFigures], keys: Iterable[str]) -> dict[str, FormalisationFigures]:
    return {key: figures[key] for key in keys if key in figures}


def _level_of(text: AnsweredText) -> str:
    return text.level


def _place_of(text: AnsweredText) -> str:
    return f"{text.domain} {text.level}"


def _novelty_of(text: AnsweredText) -> str:
    return text.novelty.value
