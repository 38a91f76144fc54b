"""The `plansmith` command. Pipelines and `evaluate` are entry points, so that the library knows none of them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from plansmith import __version__
from plansmith.commands import diagnose, plan, problems, validate, watch
from plansmith.console import exit_code_of, set_up_logging
from plansmith.errors import BadInputError
from plansmith.garbage import no_garbage

PIPELINES, COMMANDS = "plansmith.pipelines", "plansmith.commands"

DELEGATED = {
    "evaluate": "let the policy of a run try problems, and judge its plans",
    "ablate": "run every arm of a paper's ablation, and print its tables",
    "serve": "answer planning problems over HTTP with a policy, the validator and a planner",
    "dataset": "build problems, plans and training examples as Parquet",
}
"""Commands that work on Ray, with what they do; they are entry points and parse their own arguments."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return 0 when done, 1 when it failed, 2 for bad input."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = _parser()
    known, rest = parser.parse_known_args(arguments)
    if known.command in ("run", *DELEGATED):
        return exit_code_of(lambda: _delegate(known, rest))
    if rest:
        parser.error(f"unrecognised arguments: {' '.join(rest)}")
    if known.command is None:
        parser.print_help()
        return 0
    set_up_logging()
    return exit_code_of(lambda: int(known.work(known)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="plansmith", description="Teach language models to plan in PDDL, and prove that they learned."
    )
    parser.add_argument("--version", action="version", version=f"plansmith {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    names = ", ".join(sorted(entry.name for entry in entry_points(group=PIPELINES)))
    run = commands.add_parser("run", help=f"run a pipeline ({names}) with a preset", add_help=False)
    run.add_argument("pipeline", nargs="?", help=f"one of {names}")
    for name, help_text in DELEGATED.items():
        commands.add_parser(name, help=help_text, add_help=False)
    report = commands.add_parser("report", help="print the table of a finished run and write its report anew")
    report.add_argument("run", type=Path, metavar="RUN", help="a run folder, such as runs/demo")
    report.set_defaults(work=lambda known: _report(known.run))
    validate.add_parser(commands)
    plan.add_parser(commands)
    diagnose.add_parser(commands)
    problems.add_parser(commands)
    watch.add_parser(commands)
    return parser


def _delegate(known: argparse.Namespace, rest: list[str]) -> int:
    if known.command in DELEGATED:
        return _entry(COMMANDS, known.command)(rest)
    if known.pipeline is None:
        names = ", ".join(sorted(entry.name for entry in entry_points(group=PIPELINES)))
        print(f"usage: plansmith run PIPELINE [--preset NAME] [--seed N] [--set KEY=VALUE] [--resume] [--dry-run]\n\n"
              f"PIPELINE is one of: {names}\n`plansmith run PIPELINE --help` says more.")  # fmt: skip
        return 0 if {"-h", "--help"} & set(rest) else 2
    return _entry(PIPELINES, known.pipeline)(rest)


def _entry(group: str, name: str) -> Callable[[Sequence[str]], int]:
    found: dict[str, EntryPoint] = {entry.name: entry for entry in entry_points(group=group)}
    if name not in found:
        raise BadInputError("no such pipeline", got=repr(name), expected=f"one of {', '.join(sorted(found))}")
    with no_garbage():
        command: Callable[[Sequence[str]], int] = found[name].load()
    return command


def _report(run: Path) -> int:
    from plansmith.evaluation.report import format_table, write_report
    from plansmith.evaluation.results import read_results

    path = run / "report" / "results.json"
    if not path.is_file():
        raise BadInputError("no finished run here", where=str(run), expected="report/results.json",
                            cure="finish the run first: plansmith run PIPELINE --name ... --resume")  # fmt: skip
    results = read_results(path)
    print(format_table(results))
    print(f"\nreport: {write_report(results, run / 'report')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
