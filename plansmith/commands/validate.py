"""``plansmith validate``: judge a plan as VAL's ``Validate`` does, or many plans at once."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

from plansmith.data.storage import atomic_file
from plansmith.errors import BadInputError
from plansmith.layout import printable
from plansmith.pddl.cases import JudgedCase, judge_cases, judge_texts, read_text
from plansmith.pddl.val_report import val_output
from plansmith.pddl.validation import Verdict
from plansmith.progress import progress_bar

EXIT_CODES = {Verdict.VALID: 0, Verdict.BAD_INPUT: 255}
"""As VAL's; every other verdict is 1."""

EPILOG = """\
exit code: 0 the plan is valid; 1 it is not (or is malformed); 255 domain or problem cannot be used;
2 wrong usage, or a file that cannot be read. A batch ends with 0 when every row has got its verdict.

examples:
  plansmith validate domain.pddl problem.pddl plan.txt -v
  some-planner | plansmith validate domain.pddl problem.pddl - --json
  plansmith validate --batch cases.jsonl --out verdicts.jsonl --workers 4
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "validate",
        help="judge a plan, as VAL's Validate does, or many at once",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("domain", nargs="?", type=Path, metavar="DOMAIN")
    parser.add_argument("problem", nargs="?", type=Path, metavar="PROBLEM")
    parser.add_argument("plan", nargs="?", metavar="PLAN", help="a file with one (action argument ...) a line, or -")
    parser.add_argument("-v", "--verbose", action="store_true", help="every change of state, and repair advice")
    parser.add_argument("--json", action="store_true", help="the verdict as one JSON object")
    parser.add_argument("--trace", action="store_true", help="with --json: every state met, as state_trace")
    parser.add_argument("--batch", type=Path, metavar="CASES", help="JSON lines: {id, domain_path, problem_path, plan}")
    parser.add_argument("--out", type=Path, metavar="VERDICTS", help="where the verdicts of a batch go")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes of a batch (1)")
    parser.set_defaults(work=run)


def run(arguments: argparse.Namespace) -> int:
    """Judge what the command line names; return the exit code."""
    single = [arguments.domain, arguments.problem, arguments.plan]
    if arguments.batch is not None:
        is_other = any(single) or arguments.json or arguments.trace or arguments.verbose
        if is_other or arguments.out is None or arguments.workers < 1:
            raise BadInputError("a batch needs --batch and --out, at least one worker, and neither DOMAIN PROBLEM PLAN "
                                "nor --json, --trace, --verbose", cure="plansmith validate --help")  # fmt: skip
        if arguments.out.resolve() == arguments.batch.resolve():
            raise BadInputError("verdicts would replace their cases", where=str(arguments.out),
                                cure="give another --out")  # fmt: skip
        return _run_batch(arguments.batch, arguments.out, arguments.workers)
    if not all(single):
        raise BadInputError("a plan needs its domain and problem", expected="DOMAIN PROBLEM PLAN, or --batch and --out",
                            cure="plansmith validate --help")  # fmt: skip
    if arguments.out is not None or arguments.workers != 1:
        raise BadInputError("--out and --workers are of a batch", cure="take --json, or --batch CASES")
    plan_text = _stdin() if arguments.plan == "-" else read_text(arguments.plan)
    judged = judge_texts(
        read_text(arguments.domain),
        read_text(arguments.problem),
        plan_text,
        domain_source=str(arguments.domain),
        problem_source=str(arguments.problem),
        plan_source=arguments.plan,
    )
    _print(judged, arguments)
    return EXIT_CODES.get(judged.verdict.verdict, 1)


def _stdin() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise BadInputError("cannot be read", where="stdin", got=str(error), expected="text in UTF-8") from error


def _print(judged: JudgedCase, arguments: argparse.Namespace) -> None:
    if arguments.json:
        print(json.dumps(judged.to_row(with_states=arguments.trace), indent=2))
    elif judged.task is None:
        for text in map(str, judged.diagnostics or [judged.verdict.reason]):
            print(printable(text), file=sys.stderr)
    else:
        output = val_output(judged.task, judged.verdict, arguments.plan, is_verbose=arguments.verbose)
        print(printable(output), end="")
        if judged.verdict.verdict in (Verdict.MALFORMED_PLAN, Verdict.BAD_INPUT):
            print(printable(judged.verdict.reason), file=sys.stderr)


def _run_batch(cases: Path, out: Path, n_workers: int) -> int:
    """Judge every row of a file; the file of verdicts is complete or not there."""
    lines = read_text(cases).split("\n")
    counts: Counter[str] = Counter()
    try:
        with (
            atomic_file(out) as file,
            progress_bar(sum(map(bool, map(str.strip, lines))), "validating", unit="plan") as bar,
        ):
            for rows in judge_cases(lines, folder=cases.parent, n_workers=n_workers):
                file.writelines((json.dumps(row) + "\n").encode() for row in rows)
                counts.update(row["verdict"] for row in rows)
                bar.update(len(rows))
    except OSError as error:
        raise BadInputError("cannot write the verdicts", where=str(out), got=error.strerror) from error
    for verdict, count in counts.most_common():
        print(f"{count:8d}  {verdict}")
    print(f"verdicts: {out}")
    return 0
