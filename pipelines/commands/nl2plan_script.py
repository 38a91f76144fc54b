"""The command `nl2plan serve-script`: a server that answers NL2Plan's questions from references, with planned mistakes.

Not here: the answers (`plansmith.modelling.script`) and how they are served (`plansmith.modelling.script_server`).
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from pathlib import Path

from plansmith.console import exit_code_of, set_up_logging
from plansmith.hosts import cannot_listen
from plansmith.layout import printable
from plansmith.modelling.references import TASKS_FOLDER, read_references
from plansmith.modelling.script import ADVISING, ALWAYS, FAULTS, SCRIPT
from plansmith.modelling.script_server import HOST, STATUSES, ServedScript, read_plans, serving

EPILOG = f"""The file of --faults has, by step, or step and action, what one request after the other meets:

  types: [429, 500, ""]
      two that fail, then a right answer
  construction/stack: [param_types, hang]
      an answer with a mistake, then a request that nobody answers, then a right answer
  task: [pred_nargs, {ALWAYS}]
      a mistake that is never mended
  construction{ADVISING}/stack: [harmful]
      advice that makes the answer worse

mistakes: {", ".join(FAULTS[:13])};
{", ".join(FAULTS[13:])}
failures: {", ".join(STATUSES)}

exit code: 0 at Ctrl-C; 2 bad input.

examples:
  plansmith nl2plan serve-script --port 8001
      the paper's tasks, without a mistake; it is asked by plansmith nl2plan TEXT --policy http://127.0.0.1:8001/v1
  plansmith nl2plan serve-script tasks --faults faults.yaml
      tasks of your own: DOMAIN/domain.md, domain.pddl, easy.md, easy.pddl and the like

docs/nl2plan.md says what each mistake is."""


def main(argv: Sequence[str] | None = None) -> int:
    """Serve the script until interrupted; return 0, or 2 for bad input."""
    arguments = _parser().parse_args(argv)
    set_up_logging()
    return exit_code_of(lambda: _serve(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="plansmith nl2plan serve-script",
        description="Answer the questions of plansmith nl2plan on this machine, as an OpenAI-compatible server. No "
        "model answers, but a script that reads the references: to try the steps, checks, limits and failures.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("tasks", type=Path, nargs="?", default=TASKS_FOLDER, metavar="TASKS", help="a folder of texts with references "
        "(default: the paper's)")  # fmt: skip
    add("--faults", type=Path, metavar="FILE", help="YAML: the mistakes and failures, by step (default: none)")
    add("--port", type=int, default=0, help="port of this machine to listen on (default: a free one)")
    return parser


def _serve(arguments: argparse.Namespace) -> int:
    references = read_references(arguments.tasks)
    plans = {} if arguments.faults is None else read_plans(arguments.faults)
    script = ServedScript(references, plans, say=lambda said: print(printable(said), flush=True))
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(serving(script, port=arguments.port))
        except (OSError, OverflowError) as error:
            raise cannot_listen(HOST, arguments.port, error) from error
        print(
            f"the {SCRIPT}: {server.url} answers for {len(references)} tasks (Ctrl-C ends it)\n"
            "Answers are scripted from the references, and say nothing about any model.",
            flush=True,
        )
        with contextlib.suppress(KeyboardInterrupt):
            server.is_over.wait()
    return 0
