"""``plansmith watch``: a page in the browser that shows a run while it goes on, and afterwards.

Not here: the server (`plansmith.watch.server`), which is imported when it is needed: it draws plots.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plansmith.errors import BadInputError, ConfigError
from plansmith.hosts import address_of

if TYPE_CHECKING:
    from plansmith.report.finished_stages import RunSoFar
    from plansmith.report.sections import Report

logger = logging.getLogger(__name__)

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
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder, such as runs/NAME, or a folder of runs")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; the default is this machine alone")
    parser.add_argument("--port", type=int, default=0, help="port to listen on (default: a free one)")
    parser.add_argument("--once", type=Path, metavar="FILE.html", help="write the page as one file instead")
    parser.set_defaults(work=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve the page until interrupted, or write it once; return the exit code."""
    from plansmith.watch.server import Site, server_of, write_page

    folder: Path = arguments.run
    if not folder.is_dir():
        raise BadInputError("no such folder", where=str(folder), expected="a run folder, or a folder of runs")
    os.nice(NICENESS)
    if arguments.once:
        write_page(folder, arguments.once, report_so_far)
        print(f"page: {arguments.once}")
        return 0
    with server_of(Site(folder, report_so_far), arguments.host, arguments.port) as server:
        host, port = server.server_address[:2]
        print(f"watching {folder}: {address_of((str(host), port))}/ (Ctrl-C ends the page, not the run)", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
    return 0


def report_so_far(run: RunSoFar[Mapping[str, Any]]) -> Report | None:
    """Return what a run's own pipeline says of it by now; None where nothing is known yet, or nobody knows the run."""
    from plansmith.config.loading import build_model
    from plansmith.pipeline import find_pipeline

    if not run.pipeline:
        return None
    try:
        pipeline = find_pipeline(run.pipeline)
        config = build_model(pipeline.config, run.config, where="run.json")
    except (BadInputError, ConfigError) as error:
        logger.warning("the figures of this run cannot be shown: %s", error)
        return None
    results = pipeline.results(replace(run, config=config))
    return None if results is None else pipeline.reporting.report(results)
