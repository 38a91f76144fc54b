"""A task that was modelled by the script, which is no model, and its workbench, for tests of what comes after."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import uvicorn

from plansmith.config.generation import SamplingConfig
from plansmith.config.modelling import ModellingConfig
from plansmith.config.planner import PlannerConfig
from plansmith.hosts import address_of, answered_names, listening_socket
from plansmith.modelling import folder as files
from plansmith.modelling.calls import CallLog
from plansmith.modelling.folder import TaskFolder
from plansmith.modelling.references import read_references
from plansmith.modelling.script import SCRIPT, Script, ScriptedGenerator
from plansmith.modelling.speaking import Person, Speaker
from plansmith.workbench.advice import NO_CHANGES
from plansmith.workbench.bench import Bench
from plansmith.workbench.going_on import Progress, Work
from plansmith.workbench.meaning import Reference
from plansmith.workbench.server import make_app

TOKEN = "a-token"


def work_on(
    path: Path,
    task: str = "blocksworld-easy",
    *,
    feedback: str = "none",
    faults: Mapping[str, Sequence[str]] | None = None,
) -> Work:
    """Return the steps of a task, its text written, answered by the script."""
    (reference,) = [each for each in read_references() if each.name == task]
    path.mkdir(parents=True, exist_ok=True)
    folder, config = TaskFolder(path), ModellingConfig.model_validate({"feedback": feedback})
    if not folder.has(files.TEXT):
        folder.write(files.TEXT, reference.text)

    @contextlib.contextmanager
    def speaking(person: Person) -> Iterator[Speaker]:
        generator, log = ScriptedGenerator(Script((reference,), faults or {})), CallLog.open(path / files.CALLS)
        yield Speaker(generator, SamplingConfig(max_new_tokens=1000), 0, SCRIPT, lambda _: log, feedback, person)

    return Work(folder, config, PlannerConfig(search="lama-first"), speaking)


def modelled(path: Path, task: str = "blocksworld-easy") -> Work:
    """Return the steps of a task after all of them were made."""
    work = work_on(path, task)
    work.go_on(files.TEXT, lambda _: NO_CHANGES, lambda _: None)
    return work


@contextlib.contextmanager
def workbench(work: Work, progress: Progress | None = None, *, reference: Reference | None = None) -> Iterator[str]:
    """Give the address of a workbench that is served, until the block ends."""
    progress = progress or Progress(work)
    with listening_socket("127.0.0.1", 0) as listener:
        bound = listener.getsockname()[:2]
        bench = Bench(work.folder, work.config, reference)
        app = make_app(bench, progress, token=TOKEN, names=answered_names(bound[0]))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"{address_of(bound)}/{TOKEN}/"
        finally:
            progress.stop()
            server.should_exit = True
            thread.join()
