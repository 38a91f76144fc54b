"""What `plansmith evaluate` says of a policy that writes the problems of texts: figures, failures, JSON."""

from __future__ import annotations

import argparse
import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pipelines.run.workers import MODEL
from pipelines.trials.own_problems import some
from plansmith.config.nl_pddl_bench import NlPddlBenchConfig
from plansmith.data.artifacts import KEY_DIGITS
from plansmith.data.rows import FinishReason, FormalisedRow, RolloutRow, TextRow
from plansmith.data.storage import atomic_file, storage_errors
from plansmith.errors import BadInputError, PlansmithError
from plansmith.layout import printable
from plansmith.report.answers import AnswerExample, read_answers, shown_answers
from plansmith.report.finished_stages import RunSoFar
from plansmith.report.formalisation_arms import READ, TextArm, domains_of, main_arm, text_arms
from plansmith.report.formalisation_metrics import AnsweredText, FormalisationArm, summarise_text_arm
from plansmith.report.formalisation_report import meaning_sentence
from plansmith.report.formalisation_results import FormalisationResults
from plansmith.report.formalisation_tables import own_table, repair_table, turn_table
from plansmith.report.render import format_tables
from plansmith.report.wording import interval, spoken


@dataclass(frozen=True)
class TextEvaluation:
    """A policy's answers to texts, as the stages left them.

    Args:
        arm: the policy with its texts, its answers and what these are worth.
        n_turns: how often an answer was handed back, at most.
        head: what the JSON says of policy and texts.
        default_out: where the JSON goes if no place is named; None writes none.
        level_names: the name that a level shares with those of other domains.
        without_a_plan: problems that were not asked for, since no plan of theirs was found.
        failures: why a text has no answer, where the request failed.
    """

    arm: TextArm
    n_turns: int
    head: Mapping[str, Any]
    default_out: Path | None = None
    level_names: Mapping[str, str] = field(default_factory=dict)
    without_a_plan: Sequence[str] = ()
    failures: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def answered(self) -> list[AnsweredText]:
        """Return the answers, text by text.

        Raises:
            PlansmithError: not one of them could be judged.
        """
        found = self.arm.answered(self.level_names)
        if not found:
            raise PlansmithError("no answer could be judged", got=f"{len(self.failures)} failed requests")
        return found

    @cached_property
    def figures(self) -> FormalisationArm:
        """Return what they came to."""
        return summarise_text_arm(self.arm.name, self.answered, self.n_turns if self.arm.loop else None)

    @cached_property
    def _written(self) -> dict[str, RolloutRow]:
        return {row.rollout_id: row for table in self.arm.written for row in table.rows(RolloutRow)}

    def report(self) -> str:
        """Return the tables, and the result in a sentence."""
        main, name = self.figures, self.arm.name
        results = FormalisationResults(
            str(self.head.get("run", "")), "", int(self.head["seed"]), {name: main}, repair={name: self.arm.repair()}
        )
        tables = [own_table(results), *(table for table in (turn_table(results), repair_table(results)) if table.rows)]
        shares = (main.equivalent, main.psr_of_all, main.flattered)
        sentence = meaning_sentence(f"{main.n} texts", spoken(name), shares)
        evidence = f"95% interval of the right meaning {interval(main.ci95['equivalent'])}."
        return f"{format_tables(tables)}\n\n{sentence} {evidence}"

    def notes(self) -> Iterator[str]:
        """Yield a line for what the figures leave out, or count in spite of what came in between."""
        if names := self.without_a_plan:
            yield f"not asked for: {len(names)} whose reference has no plan within the limits ({some(names)})"
        if self.failures:
            shown = "; ".join(f"{name}: {fault}" for name, fault in list(self.failures.items())[:3])
            yield f"not judged: {len(self.failures)} whose request failed ({shown})"
        yield from self._kept_from_ending(FinishReason.NO_ROOM, "no room", "what was asked fills the model's window")
        yield from self._kept_from_ending(FinishReason.REPETITION, "in circles", "the engine ends what goes in circles")
        yield from self._kept_from_ending(
            FinishReason.LENGTH, "cut off", "--max-new-tokens, or the window, was reached"
        )

    def _kept_from_ending(self, reason: FinishReason, what: str, why: str) -> Iterator[str]:
        """Yield how many of the answers that count did not end by themselves, if any."""
        if names := [row.problem_id for row in self._chosen() if self._finish_reason(row) == reason]:
            yield f"{what}: {len(names)} answers, since {why} ({some(names)}); they count as they are"

    def _chosen(self) -> list[FormalisedRow]:
        """Return of each text the answer that counts."""
        return [text.answer() for text in self.answered]

    def _finish_reason(self, row: FormalisedRow) -> str:
        return self._written[row.rollout_id].finish_reason

    def failed(self, count: int) -> list[str]:
        """Return so many wrong answers as text, of each level and flaw in turn."""
        place_of = {text.problem_id: f"{text.domain} {text.level}" for text in self.answered}
        chosen = shown_answers(self._chosen(), place_of, count)
        shown = read_answers(
            chosen,
            arm=self.arm.name,
            texts=self.arm.texts,
            written=self.arm.written,
            domain_of=domains_of(self.arm.problems),
        )
        return ["\n".join(_answer_lines(example)) for example in shown]

    def write(self, out: Path) -> None:
        """Write figures and answers as JSON, complete or not at all."""
        texts = {row.problem_id: row for row in self.arm.texts.rows(TextRow)}
        content = {
            **self.head,
            **asdict(self.figures),
            "repair": [asdict(turn) for turn in self.arm.repair()],
            "answers": [self._as_json(text, texts[text.problem_id]) for text in self.answered],
            "not_judged": [{"problem": name, "fault": fault} for name, fault in self.failures.items()],
            "without_a_plan": list(self.without_a_plan),
        }
        with storage_errors(out.parent), atomic_file(out) as file:
            file.write((json.dumps(content, indent=2, allow_nan=False) + "\n").encode())

    def _as_json(self, text: AnsweredText, asked: TextRow) -> dict[str, Any]:
        row = text.answer()
        said = ("readability", "keeps_contract", "codes", "feedback", "status", "plan", "reference_plan",
                "atom_similarity", "is_consistent", "outcome", "reason", "differences", "has_task_success")  # fmt: skip
        return {
            "problem": text.problem_id,
            "domain": text.domain,
            "level": text.level,
            "turn": row.iteration,
            "is_equivalent": row.is_same,
            "is_flattered": row.is_flattered,
            **{name: getattr(row, name) for name in said},
            "finish_reason": self._finish_reason(row),
            "prompt": asked.prompt,
            "reference": asked.problem_pddl,
            "answer": row.problem_pddl,
        }


def show_texts(evaluation: TextEvaluation, arguments: argparse.Namespace) -> int:
    """Print and write what is said about an evaluation; return 0."""
    head = evaluation.head
    if "policy" in head:
        print(f"policy: {head['policy']} (prompts: {head['rendering']}, of the domain: {head['detail']})\n")
    print(evaluation.report())
    for note in evaluation.notes():
        print(f"\n{printable(note)}")
    for text in evaluation.failed(arguments.show):
        print(f"\n{printable(text)}")
    out = arguments.out or evaluation.default_out
    if out is not None:
        evaluation.write(out)
        print(f"\nfigures and answers: {out}")
    return 0


def stored_texts(run: RunSoFar[NlPddlBenchConfig], folder: Path, arguments: argparse.Namespace) -> TextEvaluation:
    """Return an arm of a run that writes problems of texts, the one that its results are about if none is named.

    Raises:
        BadInputError: no such arm, or none yet; problems of one's own, which belong to the arm's policy.
    """
    arms = {arm.name: arm for arm in text_arms(run)}
    if arguments.arm not in {None, *arms} or not arms:
        close = difflib.get_close_matches(arguments.arm or "", arms, n=1)
        raise BadInputError(
            "no such arm" if arms else "no arm is finished", where=str(folder), got=repr(arguments.arm or "no arm"),
            expected=f"one of {', '.join(arms)}" if arms else "a run that has judged answers",
            cure=f"did you mean {close[0]}?" if close else None,
        )  # fmt: skip
    arm = arms[arguments.arm or main_arm(arms)]
    if arguments.problems is not None and arm.name == READ:
        raise BadInputError("texts that are read by rules have no policy", where=f"--arm {READ}", got="--problems",
                            cure="name the arm of a policy: --arm")  # fmt: skip
    if arguments.problems is not None:
        raise BadInputError(
            "a run that writes problems of texts has stored figures only", where=str(folder), got="--problems",
            cure=f"evaluate its policy: plansmith evaluate --formalise --policy {arm.policy.folder / MODEL} "
            "--domain D.pddl --problems DIR",
        )  # fmt: skip
    version = "" if arm.name == READ else arm.policy.key[:KEY_DIGITS]
    head = {"run": run.config.name, "preset": run.preset, "seed": run.config.seed,
            "policy_version": version, "problems": "test texts of the run"}  # fmt: skip
    names = {level.name: level.level for level in run.config.problems.domains}
    return TextEvaluation(arm, run.config.repair.turns, head, level_names=names)


def _answer_lines(example: AnswerExample) -> Iterator[str]:
    """Yield a wrong answer: what is wrong, the text, the answer, and how it differs from the reference."""
    yield f"{example.problem_id} ({example.level}, turn {example.turn}): {example.flaw}"
    parts = {"why": example.why, "text": example.text, "answer": example.answer, "difference": example.diff}
    for name, text in parts.items():
        yield f"  {name}:"
        yield from (f"    {line}" for line in text.strip().splitlines())
