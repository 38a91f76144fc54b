"""The command `formalise`: from a text in the user's own words to a PDDL problem that can be read and has a plan.

The loop is `plansmith.judging.repair`; who answers is a model folder or a server, as for `evaluate`. Nothing is kept
but what is written at the end.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pipelines.trials.command_generator import command_generator
from pipelines.trials.options import (
    LEAST,
    TEXT_RENDERINGS,
    add_endpoint_options,
    add_policy_options,
    add_repair_options,
    answer_room,
    check_least,
    check_target,
    is_address,
    planner_of,
    repair_turns_of,
    sampling_of,
)
from pipelines.trials.own_texts import read_own_text
from pipelines.trials.text_policy import prompts_of, text_policy
from plansmith.console import exit_code_of, set_up_logging
from plansmith.data.storage import atomic_file, storage_errors
from plansmith.errors import BadInputError
from plansmith.generation import FinishReason, asking
from plansmith.judging.formalisation import FormalisationJudge, Readability
from plansmith.judging.repair import RepairLoop, Turn, best_answer
from plansmith.layout import printable
from plansmith.pddl.cases import read_text
from plansmith.pddl.model import Domain
from plansmith.pddl.parser import parse_domain, parse_problem
from plansmith.pddl.printer import print_problem
from plansmith.planners import FastDownward
from plansmith.planners.batch import proving
from plansmith.text.coverage import undeclared_names, unnamed_objects
from plansmith.text.formalisation import formalisation_prompt

EPILOG = """exit code: 0 the problem has a plan; 1 it has none, and is written all the same, or it failed; 2 bad input.

examples:
  plansmith formalise --policy my-model --domain domain.pddl task.txt --out problem.pddl --plan plan.txt
      a model folder, run by the engine built in
  plansmith formalise --policy http://localhost:8000/v1 --domain domain.pddl task.txt --detail pddl --repair-turns 3
      a model behind an OpenAI-compatible server, which is told all of the domain; the problem goes to the terminal

docs/formalisation.md says what is checked, and what nobody can check."""


def main(argv: Sequence[str] | None = None) -> int:
    """Write the problem of one text; return 0 when it has a plan, 1 when not or failed, 2 for bad input."""
    arguments = _parser().parse_args(argv)
    set_up_logging()
    return exit_code_of(lambda: _formalise(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="plansmith formalise",
        description="Let a policy write the PDDL problem of a text in your own words, and hand it back with what is "
        "wrong until it has a plan.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("text", type=Path, metavar="TEXT", help="a file that describes one problem")
    add("--policy", required=True, metavar="FOLDER_OR_URL", help="a Hugging Face model folder, or the address of an "
        "OpenAI-compatible server, such as http://localhost:8000/v1")  # fmt: skip
    add("--domain", required=True, type=Path, metavar="D.pddl", help="the domain of the problem")
    add("--out", type=Path, metavar="FILE", help="where the problem goes (default: the terminal)")
    add("--plan", type=Path, metavar="FILE", help="where its plan goes")
    add_repair_options(parser)
    add("--rendering", choices=TEXT_RENDERINGS, help="of the prompt: marks or sentences; default: compact for a "
        "model trained from nothing, else full")  # fmt: skip
    add_policy_options(parser.add_argument_group("answers, planner and engine"))
    add_endpoint_options(parser.add_argument_group("with --policy URL"))
    parser.set_defaults(concurrency=1, checks="planner")
    return parser


def _formalise(arguments: argparse.Namespace) -> int:
    check_least(arguments, {**LEAST, "repair_turns": 0})
    check_target(arguments, "out", "the problem")
    check_target(arguments, "plan", "the plan")
    first, again = sampling_of(arguments), sampling_of(arguments, is_repair=True)
    domain = parse_domain(read_text(arguments.domain), source=str(arguments.domain))
    text = read_own_text(arguments.text)
    folder = None if is_address(arguments.policy) else text_policy(arguments.policy)
    texts = prompts_of(arguments, folder)
    prompt = formalisation_prompt(domain, text, texts)
    say = _say if arguments.out else _say_aside
    asked = {str(arguments.text): asking(prompt)}
    with (  # a folder's engine has room for the prompt, an answer, feedback on it and the next answer
        command_generator(arguments, folder, asked, room=answer_room(arguments)) as (generator, *_),
        FastDownward(planner_of(arguments)) as planner,
    ):
        say(f"policy: {arguments.policy} (prompts: {texts.rendering}, of the domain: {texts.detail})\n")
        judge = FormalisationJudge(domain, proving(planner), checks=arguments.checks)
        turns_wanted = repair_turns_of(arguments)
        loop = RepairLoop(generator, judge, texts, first, turns_wanted, arguments.seed, again.temperature)
        turns = list(_told(loop.run(prompt, text), arguments, say))
    best = best_answer(turns)
    _write(best, domain, arguments)
    say("\n" + "\n".join(_outcome(best, len(turns) - 1, domain, text)))
    return 0 if best.is_solved else 1


def _say(text: str) -> None:
    print(printable(text), flush=True)


def _say_aside(text: str) -> None:
    print(printable(text), file=sys.stderr, flush=True)


# --- what is said


def _told(turns: Iterator[Turn], arguments: argparse.Namespace, say: Callable[[str], None]) -> Iterator[Turn]:
    """Yield the turns, after telling of each.

    Raises:
        BadInputError: the text leaves no room for an answer.
    """
    for turn in turns:
        if turn.number == 0 and turn.completion.finish_reason == FinishReason.NO_ROOM:
            raise BadInputError(
                "a text too long for the model", where=str(arguments.text), got="no room for an answer",
                expected="a prompt that does not fill the model's window",
                cure="shorten it, say less of the domain (--detail), or take a model that reads more",
            )  # fmt: skip
        say("\n".join(_turn_lines(turn, arguments.max_new_tokens)))
        yield turn


def _turn_lines(turn: Turn, max_new_tokens: int) -> Iterator[str]:
    """Yield what came of an answer, and what the policy is told of it."""
    judgement, reason = turn.judgement, turn.completion.finish_reason
    name = f"repair {turn.number}" if turn.number else "answer"
    said = {
        Readability.NO_PROBLEM: "no PDDL problem in it",
        Readability.UNPARSEABLE: "cannot be read",
        Readability.PARSED: f"can be read, a plan of {len(judgement.plan)} steps" if turn.is_solved
        else "can be read, no plan",
    }[judgement.readability]  # fmt: skip
    if reason == FinishReason.NO_ROOM:
        said = "none: text, last answer and feedback fill the model's window"
    cut = f" (cut off after {max_new_tokens} tokens: --max-new-tokens)" if reason == FinishReason.LENGTH else ""
    cut = " (cut off: it went in circles)" if reason == FinishReason.REPETITION else cut
    yield f"{name}: {said}{cut}"
    yield from (f"  {line}" for line in judgement.feedback.splitlines())


def _outcome(best: Turn, n_repairs: int, domain: Domain, text: str) -> Iterator[str]:
    """Yield what was checked of the answer that counts, and what was not."""
    if not best.is_parsed:
        yield f"not a problem of the domain after {n_repairs} repairs; the last answer is written as it is"
        return
    problem = parse_problem(best.answer, domain)
    found = f"{len(problem.objects)} objects, {len(problem.init)} initial facts"
    yield f"checked: it is a problem of the domain {domain.name} ({found})"
    if best.is_solved:
        yield f"checked: a plan of {len(best.judgement.plan)} steps, accepted by the validator"
    else:
        yield f"no plan after {n_repairs} repairs; the last problem that can be read is written"
    yield "not checked: whether it means what the text says; nobody can without a reference, so read it"
    unnamed, undeclared = unnamed_objects(problem, text), undeclared_names(problem, domain, text)
    if undeclared:
        yield f"names of the text that are no object: {', '.join(undeclared)}"
    yield f"objects that the text does not name: {', '.join(unnamed)}" if unnamed else "the text names every object"


def _write(best: Turn, domain: Domain, arguments: argparse.Namespace) -> None:
    """Write the answer that counts, and its plan if it has one and it is wanted.

    One that calls the domain otherwise, which planners refuse, is written with the name that it was checked under.
    """
    answer = best.answer.rstrip()
    if best.is_parsed and (problem := parse_problem(answer, domain)).domain_name != domain.name:
        answer = print_problem(replace(problem, domain_name=domain.name)).rstrip()
    if arguments.out is None:
        _say(answer)
    else:
        _write_file(arguments.out, answer)
    if arguments.plan is not None and best.is_solved:
        _write_file(arguments.plan, "\n".join(best.judgement.plan))


def _write_file(path: Path, text: str) -> None:
    with storage_errors(path.parent), atomic_file(path) as file:
        file.write(f"{text}\n".encode())
