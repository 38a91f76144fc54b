"""The live page of a run, and the list of several: parts of HTML that a browser renews when they have changed.

A part has a name and a digest, so that a browser asks only for what changed. What the run does is read at every look;
its report so far and its failures are made in a thread of their own when an artifact has appeared, and the page shows
the former ones meanwhile. Not here: the server (`plansmith.commands.watch`), and what the report of a run says, which
its pipeline knows.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment
from markupsafe import Markup

from plansmith.data.artifacts import Artifact, StageKind
from plansmith.errors import PlansmithError
from plansmith.live import LiveWork
from plansmith.report.attempts import MARK_WORDS
from plansmith.report.finished_stages import FinishedStage, RunSoFar
from plansmith.report.measurements import policy_version, tokens_per_s
from plansmith.report.render import DrawnOnce, page_environment
from plansmith.report.sections import Report, Tile, Tiles
from plansmith.report.wording import clock
from plansmith.watch.failures import FailureShelf
from plansmith.watch.run_view import RunView, RunWatch, report_of, run_folders

logger = logging.getLogger(__name__)

ReportOfRun = Callable[[RunSoFar[Mapping[str, Any]]], Report | None]
"""Makes the report of a run, finished or not; None where there is nothing to say yet."""

STALE_S = 180.0
"""A running run in which nothing has moved for so long is shown in the colour of a warning."""
GROUPS = ("status", "figures", "failures", "stages")
FILTERS = (("policy", "policy"), ("domain", "domain"), ("level", "level"), ("class", "error class"))
_DRAWING = threading.Lock()
"""Matplotlib draws for one thread at a time."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """A piece of a page; ``group`` is the place on the page where it stands."""

    name: str
    group: str
    html: Markup

    @property
    def digest(self) -> str:
        """Return what changes with the part."""
        return hashlib.sha256(self.html.encode()).hexdigest()[:16]


class RunPage:
    """The page of one run.

    Args:
        folder: of the run.
        name: what to call it; by default what the run calls itself.
        home: address of the list that the run is in, if it is in one.
        report_of_run: makes the report of what is known so far.
    """

    def __init__(self, folder: Path, report_of_run: ReportOfRun, name: str = "", home: str = "") -> None:
        self.folder, self.watch, self._home = folder, RunWatch(folder, name), home
        self._report_of_run, self._drawings, self._failures = report_of_run, DrawnOnce(), FailureShelf()
        self._lock = threading.Lock()
        self._worker: threading.Thread | None = None
        self._seen: tuple[Path, ...] = ()
        self._speeds: dict[Artifact, float | None] = {}
        self._slow: tuple[Fragment, ...] = ()

    def parts(self) -> tuple[Fragment, ...]:
        """Return the parts as they are now; those that take long as they last were, and begin to make them anew."""
        with self._lock:
            view = self.watch.view(time.time())
            if self._seen != _folders(view) and (self._worker is None or not self._worker.is_alive()):
                self._worker = threading.Thread(target=self._work, args=(view,), daemon=True)
                self._worker.start()
            return self._parts(view, now=None)

    def html(self) -> str:
        """Return the page, which renews itself."""
        parts = self.parts()
        return _page(self.watch.view(time.time()).name, parts, home=self._home)

    def snapshot(self, report_link: str | None = None) -> str:
        """Return the page as it is now in one file that stays as it is.

        Args:
            report_link: address of the report from where the file will lie, if there is one.
        """
        now = time.time()
        view = self.watch.view(now)
        self._work(view)
        return _page(view.name, self._parts(view, now=now, report_link=report_link), now=now)

    def _parts(self, view: RunView, *, now: float | None, report_link: str | None = "report") -> tuple[Fragment, ...]:
        status = _part(
            "status",
            "status",
            "watch_status.html.j2",
            view=view,
            works=sorted(view.works, key=lambda work: (_is_done(work), work.source)),
            time_s=sum(stage.wall_time_s or 0.0 for stage in view.stages),
            has_report=report_link is not None and report_of(self.folder) is not None,
            report_link=report_link,
            stale_s=STALE_S,
            now=now,
        )
        speeds = {name: self._speeds.get(artifact) for name, artifact in view.run.artifacts.items()}
        stages = _part("stages", "stages", "watch_stages.html.j2", view=view, tokens_per_s=speeds)
        return (status, *self._slow, stages)

    def _work(self, view: RunView) -> None:
        """Make the parts that take long; artifacts that appear meanwhile have their turn at the next look."""
        self._speeds = {
            stage.artifact: self._speeds[stage.artifact] if stage.artifact in self._speeds else _speed(stage)
            for stage in view.run.stages()
        }
        failures = self._failures.failures(view.run)
        report = self._report(view)
        with _DRAWING:
            figures = _part("figures", "figures", "watch_figures.html.j2", report=report, mark_words=MARK_WORDS,
                            tiles=Tiles(tuple(self._tiles(view))), draw=self._drawings.drawn)  # fmt: skip
        shown = [
            _part(f"failures {stage}", "failures", "watch_failures.html.j2", stage=stage, failures=found,
                  mark_words=MARK_WORDS)
            for stage, found in failures.items()
        ]  # fmt: skip
        self._slow, self._seen = (figures, *shown), _folders(view)

    def _report(self, view: RunView) -> Report | None:
        """Return the report so far; what cannot be said is not, with a warning."""
        try:
            return self._report_of_run(view.run)
        except (PlansmithError, OSError, ValueError, KeyError, TypeError) as error:
            logger.warning("the figures of %s cannot be shown: %s", view.name, error)
            return None

    def _tiles(self, view: RunView) -> Iterator[Tile]:
        """Yield the latest speed of training and of generation, and the newest weights."""
        for kind, title in ((StageKind.OPTIMISES, "training"), (StageKind.GENERATES, "generation")):
            speeds = [(stage, speed) for stage in view.run.stages(kind) if (speed := self._speeds[stage.artifact])]
            if speeds:
                stage, speed = speeds[-1]
                yield Tile(title, figure(speed), f"tokens/s in {view.words(stage.name)}")
        versions = [version for stage in view.run.stages() if (version := policy_version(stage))]
        if versions:
            yield Tile("policy version", versions[-1], is_code=True)


def _speed(stage: FinishedStage) -> float | None:
    """Return how many tokens a stage dealt with in a second, or None; what cannot be read has no speed."""
    try:
        return tokens_per_s(stage)
    except (PlansmithError, OSError, ValueError) as error:
        logger.warning("stage %s has no speed: %s", stage.name, error)
        return None


class RunsPage:
    """The list of the runs in a folder, each with a page of its own."""

    def __init__(self, folder: Path, report_of_run: ReportOfRun) -> None:
        self.folder, self._report_of_run = folder, report_of_run
        self._pages: dict[str, RunPage] = {}
        self._lock = threading.Lock()

    def pages(self) -> dict[str, RunPage]:
        """Return the pages of the runs that are there now, by the path of each in the folder."""
        with self._lock:
            found = run_folders(self.folder)
            self._pages = {
                name: self._pages.get(name) or RunPage(path, self._report_of_run, name, "../" * (2 + name.count("/")))
                for name, path in found.items()
            }
            return dict(self._pages)

    def parts(self) -> tuple[Fragment, ...]:
        """Return the list."""
        now = time.time()
        runs = [(f"run/{quote(name)}/", page.watch.view(now)) for name, page in self.pages().items()]
        has_report = report_of(self.folder) is not None
        return (_part("runs", "status", "watch_runs.html.j2", runs=runs, has_report=has_report, now=None),)

    def html(self) -> str:
        """Return the page of the list."""
        return _page(self.folder.resolve().name, self.parts())


def said(work: LiveWork) -> list[str]:
    """Return how far a process has come, how fast it is, and its latest figures, in words."""
    total = work.total if work.total and work.total > 0 else None
    count = f"{figure(work.done)} of {figure(total)} {work.unit}" if total else f"{figure(work.done)} {work.unit}"
    words = [count.strip()] if total or work.done else []
    if work.rate and not _is_done(work):
        words.append(
            f"{figure(work.rate)} {work.unit}/s" if work.rate >= 1 else f"{figure(60 * work.rate)} {work.unit}/min"
        )
        if total:
            words.append(f"{clock((total - work.done) / work.rate)} left")
    return words + [f"{name.rpartition('/')[2].replace('_', ' ')} {figure(n)}" for name, n in work.values.items()]


def figure(value: float) -> str:
    """Return a number with about three digits."""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def utc(moment: float) -> str:
    """Return a time for people."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _is_done(work: LiveWork) -> bool:
    return work.total is not None and work.done >= work.total


def _folders(view: RunView) -> tuple[Path, ...]:
    return tuple(artifact.folder for artifact in view.run.artifacts.values())


def _part(name: str, group: str, template: str, **values: Any) -> Fragment:
    return Fragment(name, group, Markup(_environment().get_template(template).render(**values)))


def _page(title: str, parts: Sequence[Fragment], *, home: str = "", now: float | None = None) -> str:
    """Return a page; its policy lets no script run but ours, which is the same for every run."""
    environment = _environment()
    assert environment.loader is not None, "page_environment has a loader"
    script = Markup(environment.loader.get_source(environment, "watch.js.j2")[0])
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("watch.html.j2").render(
        title=title, parts=parts, groups=GROUPS, filters=FILTERS, home=home, is_within=bool(home), now=now,
        script=script, script_hash=f"sha256-{digest}",
    )  # fmt: skip


@cache
def _environment() -> Environment:
    environment = page_environment()
    environment.filters.update(figure=figure, utc=utc, said=said, is_done=_is_done)
    return environment
