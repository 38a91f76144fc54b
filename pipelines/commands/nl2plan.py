"""The command `nl2plan`: from a paragraph of text to a domain, a problem and a plan, each a file to read and to mend.

The steps are `plansmith.modelling.steps`; who answers is a model folder or a server, as for `evaluate`. Every answer is
written before it is used, so that the same command again asks nothing twice; a product that was mended under ``edits``
is read by the steps after it, and only what it changes is asked for again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.commands import nl2plan_edit, nl2plan_script
from pipelines.trials.modelling_policy import add_modelling_options, check_who, modelling_config, speaking
from pipelines.trials.options import is_address, planner_of
from pipelines.trials.own_texts import read_own_text
from pipelines.trials.text_policy import text_policy
from plansmith.config.modelling import ModellingConfig
from plansmith.console import exit_code_of, set_up_logging
from plansmith.data.rows import ModellingStepRow
from plansmith.data.storage import run_lock
from plansmith.errors import BadInputError, ConfigError
from plansmith.judging.modelled import PlannedTask, plan_task, write_plan
from plansmith.judging.obstacles import obstacles_of
from plansmith.layout import printable
from plansmith.modelling import folder as files
from plansmith.modelling.budget import cost_of, estimate, most_calls, steps_of
from plansmith.modelling.calls import Call, CallLog
from plansmith.modelling.cassette import is_played
from plansmith.modelling.dialogue import Exercise, Question, task_exercise
from plansmith.modelling.folder import TaskFolder, digest
from plansmith.modelling.growing import grow_domain, lacks_of
from plansmith.modelling.products import DialogueStep, DomainSketch, ProblemSketch
from plansmith.modelling.references import LEVELS, read_references
from plansmith.modelling.script import SCRIPT
from plansmith.modelling.speaking import Speaker
from plansmith.modelling.steps import (
    look_again_at_actions,
    look_again_at_problem,
    make_actions,
    make_domain,
    make_hierarchy,
    make_problem,
    make_schemas,
    make_types,
    read_made_domain,
)
from plansmith.pddl.parser import parse_domain
from plansmith.planners import FastDownward

SIZES = ("isr", "blocksworld", "tyreworld", "household")
"""The paper's domains for which `--dry-run` estimates, by number of actions."""
PERSON_FEEDBACK = "your advice (an empty line, or the end of input, ends it; none accepts the answer):"
EPILOG = """exit code: 0 there is a plan; 1 there is none, or it failed; 2 bad input.

examples:
  plansmith nl2plan task.txt --policy http://localhost:8000/v1 --out task
      a model behind an OpenAI-compatible server; task/ holds every product, the plan and every call
  plansmith nl2plan task2.txt --domain-from task --policy http://localhost:8000/v1
      another task of the same domain: steps 5 and 6 only
  plansmith nl2plan task3.txt --domain-from task --grow --policy http://localhost:8000/v1
      one that the domain lacks words for: they are added first; task3/ then has the larger domain
  plansmith nl2plan task.txt --policy my-model --feedback person
      a model folder, run by the engine built in; you are asked for advice on each answer
  plansmith nl2plan task.txt --policy http://localhost:8000/v1 --record task.cassette
  plansmith nl2plan task.txt --replay task.cassette --out again
      the same answers without asking anybody
  plansmith nl2plan task.txt --dry-run
      how many calls and tokens it may take; --max-calls and --max-tokens end it there
  plansmith nl2plan edit task
      every product in a browser; plansmith nl2plan edit --help says more
  plansmith nl2plan serve-script --port 8001
      a server without a model, which answers from references; its --help says more

docs/nl2plan.md says what each file is, how to mend one, and what is checked."""


def main(argv: Sequence[str] | None = None) -> int:
    """Take one text through all steps; return 0 with a plan, 1 without or when it failed, 2 for bad input.

    With ``edit`` as its first word it is the workbench (`pipelines.commands.nl2plan_edit`), with ``serve-script`` a
    server of scripted answers (`pipelines.commands.nl2plan_script`).
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["edit"]:
        return nl2plan_edit.main(words[1:])
    if words[:1] == ["serve-script"]:
        return nl2plan_script.main(words[1:])
    arguments = _parser().parse_args(words)
    set_up_logging()
    return exit_code_of(lambda: _nl2plan(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="plansmith nl2plan",
        description="Let a policy make types, a hierarchy, actions, a PDDL domain and a PDDL problem of a text in your "
        "own words, and plan it.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("text", type=Path, metavar="TEXT", help="a file that describes a domain and a task in it")
    add("--policy", metavar="FOLDER_OR_URL", help="a Hugging Face model folder, or the address of an "
        "OpenAI-compatible server, such as http://localhost:8000/v1")  # fmt: skip
    add("--out", type=Path, metavar="DIR", help="where every product goes (default: the text's name without its "
        "ending)")  # fmt: skip
    add("--domain-from", type=Path, metavar="DIR", help="take the domain of another task's folder: only the problem is "
        "asked for")  # fmt: skip
    add("--grow", action="store_true", help="let the problem use words that the domain lacks, which are then added to "
        "it; with --domain-from, to the domain in this task's folder")  # fmt: skip
    add("--record", type=Path, metavar="FILE", help="keep every answer on a cassette, which --replay gives again; one "
        "that is there is gone on with")  # fmt: skip
    add("--replay", type=Path, metavar="FILE", help="take the answers from a cassette; nobody is asked")
    add("--dry-run", action="store_true", help="say what it would cost, in calls and tokens, and ask nobody")
    add_modelling_options(parser)
    parser.set_defaults(concurrency=1, planner_search="lama-first")
    return parser


def _nl2plan(arguments: argparse.Namespace) -> int:
    if not arguments.dry_run:
        check_who(arguments)
    config = modelling_config(arguments)
    text = read_own_text(arguments.text)
    source = None if arguments.domain_from is None else _finished_domain(arguments.domain_from)
    folder = TaskFolder(
        arguments.out or arguments.text.with_suffix(""), has_versions=config.grows or config.planner_feedback > 0
    )
    if folder.path.resolve() == arguments.text.resolve():
        raise ConfigError("no name for the folder of this text", got=str(folder.path), cure="give one with --out")
    if arguments.dry_run:
        _say_estimate(text, config, CallLog.open(folder.path / files.CALLS), is_problem_alone=source is not None)
        return 0
    _check_own(folder, text)
    with run_lock(folder.path):
        return _made_and_planned(arguments, text, folder, config, source)


def _check_own(folder: TaskFolder, text: str) -> None:
    """Raise unless a folder is free, or of this command: it writes files that others have as well.

    Raises:
        BadInputError: it holds files of these names that were made of no text, or of another one by somebody else.
    """
    if folder.has(files.CALLS) or (folder.has(files.TEXT) and digest(folder.read(files.TEXT)) == digest(text)):
        return
    names = (files.TEXT, files.DOMAIN, files.PROBLEM, files.PLAN, files.PLAN_IN_WORDS, files.PROBLEM_SKETCH)
    if found := [name for name in (*names, *folder.of_steps()) if folder.has(name)]:
        raise BadInputError("a folder of something else", where=str(folder.path), got=found[0],
                            expected=f"a new one, or one with {files.CALLS}", cure="give another --out")  # fmt: skip


def _made_and_planned(
    arguments: argparse.Namespace, text: str, folder: TaskFolder, config: ModellingConfig, source: TaskFolder | None
) -> int:
    """Leave every product of a text in its folder, which nobody else changes, and say what came of it."""
    who = None if arguments.policy is None or is_address(arguments.policy) else text_policy(arguments.policy)
    folder.write(files.TEXT, text)
    (folder.path / files.CALLS).touch()  # the folder is of this command, though nothing may ever be answered
    log = CallLog.open(folder.path / files.CALLS)
    with (
        speaking(arguments, who, text, log, _ask_person) as speaker,
        FastDownward(planner_of(arguments)) as planner,
    ):
        work = _Work(text, folder, config, speaker, str(arguments.text))
        sketch = _model(work, source)
        planned = _planned(work, planner, has_domain=source is not None)
    if folder.has_versions:
        folder.check_edits()
    said = write_plan(folder, planned, sketch.actions)
    _say_cost(log.calls)
    print(printable(said))
    return 0 if planned.is_solved else 1


def _finished_domain(path: Path) -> TaskFolder:
    """Return the folder of a task whose domain is written.

    Raises:
        BadInputError: it has none.
    """
    folder = TaskFolder(path)
    if not folder.has(files.DOMAIN):
        expected, cure = f"a folder with {files.DOMAIN}", "finish it first: plansmith nl2plan TEXT --out DIR"
        raise BadInputError("a task without a finished domain", where=str(path), expected=expected, cure=cure)
    return folder


def _ask_person(question: Question) -> str:
    """Return what the person at the terminal advises."""
    what = f"{question.step} {question.subject}".strip()
    print(printable(f"\n--- {what}\n{question.shown}\n\n{PERSON_FEEDBACK}"), flush=True)
    lines = []
    for line in sys.stdin:
        if not line.strip():
            break
        lines.append(line.rstrip())
    return "\n".join(lines)


# --- the steps


@dataclass(frozen=True)
class _Work:
    """One text with its folder, and who is asked about it."""

    text: str
    folder: TaskFolder
    config: ModellingConfig
    speaker: Speaker
    source: str

    def ask(
        self, dialogue: Generator[Question, str, ModellingStepRow | tuple[ModellingStepRow, ...]]
    ) -> tuple[ModellingStepRow, ...]:
        """Return what a step leaves, after its dialogue; see `Speaker.converse`."""
        [(_, made)] = self.speaker.converse({self.source: dialogue})
        records = (made,) if isinstance(made, ModellingStepRow) else made
        for record in records:
            print(printable(_step_line(record)), flush=True)
        return records

    def first_answer(self, exercise: Exercise[ProblemSketch]) -> str:
        """Return what was answered at first to an exercise that is done."""
        asked = self.speaker.key(next(exercise.run(self.config)))
        return {call.key: call.answer for call in self.speaker.log(self.source).calls}[asked]


def _model(work: _Work, source: TaskFolder | None) -> DomainSketch:
    """Return the domain, after all steps that are asked for have left their products."""
    text, folder, config = work.text, work.folder, work.config
    if source is None:
        for make in (make_types, make_hierarchy, make_actions):
            work.ask(make(text, folder, config))
        for number in range(1, config.passes + 1):
            work.ask(make_schemas(text, folder, config, number=number))
        sketch = make_domain(folder, config)
    else:
        sketch = _taken_domain(source, folder, config)
    work.ask(make_problem(text, sketch, folder, config))
    if config.grows:
        exercise = task_exercise(text, sketch, config)
        if lacks := lacks_of(exercise.product(work.first_answer(exercise)), sketch):
            of_domain = text if source is None else source.current(files.TEXT)
            work.ask(grow_domain(of_domain, folder, config, task=text, lacks=lacks))
            sketch = read_made_domain(folder, config)
            work.ask(make_problem(text, sketch, folder, config))
    return sketch


def _taken_domain(source: TaskFolder, folder: TaskFolder, config: ModellingConfig) -> DomainSketch:
    """Return the domain of another task, once a folder has what it is made of, as it stands there and mended here."""
    steps = _steps_of_domain(source, config)
    if source.path.resolve() != folder.path.resolve():
        for name in set(folder.of_steps()) - set(steps):
            folder.remove(name)
        for name in (*steps, files.DOMAIN):
            folder.settle(name, source.current(name))
    is_mended = files.TYPES in steps and any(map(folder.is_mended, steps))
    return make_domain(folder, config) if is_mended else read_made_domain(folder, config)


def _steps_of_domain(source: TaskFolder, config: ModellingConfig) -> list[str]:
    """Return the products of steps 1 to 4 that a domain is made of; of one that was mended itself, the actions' words.

    Raises:
        BadInputError: it is to grow and is made of none, such as one that came as PDDL.
    """
    is_mended = source.is_mended(files.DOMAIN)
    steps = [name for name in source.of_steps() if name == files.ACTIONS or not is_mended]
    if config.grows and files.TYPES not in steps:
        got = f"{files.DOMAIN} mended in PDDL" if is_mended else f"no {files.TYPES}"
        raise BadInputError("a domain that cannot grow", where=str(source.path), got=got,
                            expected="the products of steps 1 to 4", cure="leave out --grow")  # fmt: skip
    return steps


def _planned(work: _Work, planner: FastDownward, *, has_domain: bool) -> PlannedTask:
    """Return what came of planning; as often as may be, a model without a plan goes back with what stands in its way.

    A domain that was given stays.
    """
    text, folder, config = work.text, work.folder, work.config
    planned = plan_task(planner, folder.current(files.DOMAIN), folder.current(files.PROBLEM))
    for _ in range(config.planner_feedback):
        texts = folder.current(files.DOMAIN), folder.current(files.PROBLEM)
        obstacles = () if planned.is_solved else obstacles_of(planner, *texts)
        if not obstacles:
            break
        for obstacle in obstacles:
            print(printable(f"no plan: {obstacle.text}"), flush=True)
        if not has_domain:
            work.ask(look_again_at_actions(text, folder, config, obstacles))
        work.ask(look_again_at_problem(text, folder, config, obstacles))
        planned = plan_task(planner, folder.current(files.DOMAIN), folder.current(files.PROBLEM))
    return planned


# --- what is said


def _step_line(record: ModellingStepRow) -> str:
    what = f"{record.step} {record.subject}".strip()
    said = [f"{record.n_messages} error messages" if record.n_messages else "", "advised" if record.advice else ""]
    flaws = f"accepted with its flaws: {', '.join(record.faults)}" if record.faults else ""
    return ", ".join(filter(None, [f"{what}: done", *said, flaws]))


def _say_estimate(text: str, config: ModellingConfig, log: CallLog, *, is_problem_alone: bool) -> None:
    """Say what a text would cost if its domain were as large as one of the paper's, and what it has cost by now."""
    print("An estimate, if nothing had to be mended; a token is taken for 4 characters.\n")
    print(f"{'with a domain like':20}{'actions':>9}{'calls':>7}{'tokens':>9}{'calls at most':>15}")
    for name in SIZES:
        own = next(one for one in read_references(domains=[name]) if one.level == LEVELS[0])
        n_actions = len(parse_domain(own.domain_pddl).actions)
        costs = estimate(text, config, own)
        cost = costs[DialogueStep.TASK] if is_problem_alone else steps_of(costs)
        most = most_calls(config, n_actions, has_domain=is_problem_alone)
        print(f"{name:20}{n_actions:9}{cost.calls:7}{cost.tokens:9}{most:15}")
    spent = cost_of(log.calls)
    print(f"\nanswered by now: {spent.calls} calls, {spent.tokens} tokens")


def _say_cost(calls: Sequence[Call]) -> None:
    """Say what was asked, by step, and which answers are none of a model; what nobody counted is left out."""
    for step in dict.fromkeys(call.step for call in calls):
        own = [call for call in calls if call.step == step]
        tokens = sum(call.tokens for call in own)
        print(f"{step}: {len(own)} calls{f', {tokens} tokens' if tokens else ''}")
    for model in sorted({call.model for call in calls if is_played(call.model)}):
        print(f"nobody was asked: {model}")
    if any(call.model == SCRIPT for call in calls):
        print(f"no model was asked: {SCRIPT}")
