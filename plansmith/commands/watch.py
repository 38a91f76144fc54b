"""``plansmith watch``: a page in the browser that shows a run while it goes on, and afterwards.

Not here: the server (`plansmith.evaluation.watch_server`), which is imported when it is needed: it draws plots.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from pathlib import Path

from plansmith.errors import BadInputError

NICENESS = 5
"""Less in a hurry than the run, which may need every core."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "watch",
        help="show a run in the browser while it goes on, and afterwards",
        description="Serve a page that shows what a run is doing, its figures so far, and its worst failures. The page "
        "renews itself. It changes nothing in the run, and ending it does not end the run.",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder, such as runs/demo, or a folder of runs")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; the default is this machine alone")
    parser.add_argument("--port", type=int, default=0, help="port to listen on (default: a free one)")
    parser.add_argument("--once", type=Path, metavar="FILE.html", help="write the page as one file instead")
    parser.set_defaults(work=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve the page until interrupted, or write it once; return the exit code."""
    from plansmith.evaluation.watch_server import Site, server_of, write_page

    folder: Path = arguments.run
    if not folder.is_dir():
        raise BadInputError("no such folder", where=str(folder), expected="a run folder, or a folder of runs")
    os.nice(NICENESS)
    if arguments.once:
        write_page(folder, arguments.once)
        print(f"page: {arguments.once}")
        return 0
    with server_of(Site(folder), arguments.host, arguments.port) as server:
        host, port = server.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        print(f"watching {folder}: http://{shown}:{port}/ (Ctrl-C ends the page, not the run)", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
    return 0
