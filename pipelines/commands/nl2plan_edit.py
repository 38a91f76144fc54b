"""The command `nl2plan edit`: the products of one task in a browser, to be mended and gone on from.

Not here: the pages and what a change does (`plansmith.workbench`), who answers (`pipelines.trials.modelling_policy`).
"""

from __future__ import annotations

import argparse
import contextlib
import secrets
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from pipelines.trials.modelling_policy import add_modelling_options, modelling_config, speaking
from pipelines.trials.options import is_address, planner_of
from pipelines.trials.text_policy import text_policy
from plansmith.console import exit_code_of, set_up_logging
from plansmith.data.storage import run_lock
from plansmith.hosts import address_of, answered_names, listening_socket
from plansmith.modelling import folder as files
from plansmith.modelling.calls import CallLog
from plansmith.modelling.folder import TaskFolder
from plansmith.modelling.speaking import Person, Speaker
from plansmith.workbench.bench import Bench
from plansmith.workbench.going_on import Progress, Speaking, Work
from plansmith.workbench.meaning import Reference

TOKEN_BYTES = 18
EPILOG = """Whoever has the address can read and change the folder; it is answered on this machine alone. Nothing is
asked of a model until you press a button, and never what was answered before.

exit code: 0 at Ctrl-C; 2 bad input.

examples:
  plansmith nl2plan edit task
      look, mend, plan
  plansmith nl2plan edit task --policy http://localhost:8000/v1
      the same, and have what comes after your change made again
  plansmith nl2plan edit task --policy my-model --feedback person
      you are asked for advice on each new answer, on the page

docs/workbench.md says what each page shows."""


def main(argv: Sequence[str] | None = None) -> int:
    """Serve the workbench until interrupted; return 0, or 2 for bad input."""
    arguments = _parser().parse_args(argv)
    set_up_logging()
    return exit_code_of(lambda: _edit(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="plansmith nl2plan edit",
        description="Show every product of a task in a browser: read it beside the text, mend it, go on from it.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("folder", type=Path, metavar="DIR", help="that plansmith nl2plan has written")
    add("--policy", metavar="FOLDER_OR_URL", help="who answers when you go on: a Hugging Face model folder, or the "
        "address of an OpenAI-compatible server; without it only what is there is planned")  # fmt: skip
    add("--port", type=int, default=0, help="port of this machine to listen on (default: a free one)")
    add("--reference", type=Path, nargs=2, metavar=("DOMAIN", "PROBLEM"), help="PDDL that says what is right: you "
        "confirm what the plan means in it, and the validator judges")  # fmt: skip
    add_modelling_options(parser)
    parser.set_defaults(concurrency=1, planner_search="lama-first", record=None, replay=None)
    return parser


def _edit(arguments: argparse.Namespace) -> int:
    folder = TaskFolder(arguments.folder)
    arguments.passes = max([arguments.passes, *folder.passes()])
    reference = None if arguments.reference is None else Reference.read(*arguments.reference)
    bench = Bench(folder, modelling_config(arguments), reference)
    bench.products()  # what cannot be read is said before anything is served
    work = Work(folder, bench.config, planner_of(arguments), _speaking(arguments, bench))
    with run_lock(folder.path), listening_socket("127.0.0.1", arguments.port) as listener:
        import uvicorn

        from plansmith.workbench.server import make_app

        token, (host, port) = secrets.token_urlsafe(TOKEN_BYTES), listener.getsockname()[:2]
        progress = Progress(work)
        app = make_app(bench, progress, token=token, names=answered_names(host))
        print(
            f"the workbench: {address_of((host, port))}/{token}/ (Ctrl-C ends it; what was typed is kept)", flush=True
        )
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listener])
        progress.stop()
    return 0


def _speaking(arguments: argparse.Namespace, bench: Bench) -> Speaking | None:
    """Return what starts who answers, each time that the workbench goes on; None without a policy."""
    if arguments.policy is None:
        return None
    who = None if is_address(arguments.policy) else text_policy(arguments.policy)

    def start(person: Person) -> AbstractContextManager[Speaker]:
        return speaking(arguments, who, bench.text, CallLog.open(bench.folder.path / files.CALLS), person)

    return start
