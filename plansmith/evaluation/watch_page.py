"""The live page of a run, and the list of several: parts of HTML that a browser renews when they have changed.

A part has a name and a digest, so that a browser asks only for what changed. What the run does is read at every look;
figures, plots and failures are made in a thread of their own when an artifact has appeared, and the page shows the
former ones meanwhile. Not here: the server (`plansmith.commands.watch`).
"""

from __future__ import annotations

import base64
import hashlib
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from jinja2 import Environment
from markupsafe import Markup

from plansmith.evaluation.report import MARK_WORDS, page_environment, trusted_svg
from plansmith.evaluation.watched_failures import FailureShelf
from plansmith.evaluation.watched_figures import Figures, Measuring, Plotting, figures_of, tables_of
from plansmith.evaluation.watching import RunView, RunWatch, report_of, run_folders
from plansmith.evaluation.wording import clock, spoken
from plansmith.live import LiveWork

STALE_S = 180.0
"""A running run in which nothing has moved for so long is shown in the colour of a warning."""
GROUPS = ("status", "figures", "failures", "stages")
FILTERS = (("policy", "policy"), ("domain", "domain"), ("level", "level"), ("class", "error class"))
_DRAWING = threading.Lock()
"""Matplotlib draws for one thread at a time."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a page; ``group`` is the place on the page where it stands."""

    name: str
    group: str
    html: Markup

    @property
    def digest(self) -> str:
        """Return what changes with the part."""
        return hashlib.sha256(self.html.encode()).hexdigest()[:16]


class Page(Protocol):
    """What a browser can look at, from one folder."""

    @property
    def folder(self) -> Path:
        """Return the folder."""

    def parts(self) -> tuple[Part, ...]:
        """Return the parts as they are now."""

    def html(self) -> str:
        """Return the whole page."""


class RunPage:
    """The page of one run.

    Args:
        folder: of the run.
        name: what to call it; by default what the run calls itself.
        home: address of the list that the run is in, if it is in one.
    """

    def __init__(self, folder: Path, name: str = "", home: str = "") -> None:
        self.folder, self.watch, self._home = folder, RunWatch(folder, name), home
        self._measuring, self._plotting, self._failures = Measuring(), Plotting(), FailureShelf()
        self._lock = threading.Lock()
        self._worker: threading.Thread | None = None
        self._seen: tuple[Path, ...] = ()
        self._figures: Figures | None = None
        self._slow: tuple[Part, ...] = ()

    def parts(self) -> tuple[Part, ...]:
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

    def _parts(self, view: RunView, *, now: float | None, report_link: str | None = "report") -> tuple[Part, ...]:
        status = _part(
            "status",
            "status",
            "watch_status.html.j2",
            view=view,
            works=[_WorkLine.of(work) for work in sorted(view.works, key=lambda work: (_is_done(work), work.source))],
            time_s=sum(stage.wall_time_s or 0.0 for stage in view.stages),
            has_report=report_link is not None and report_of(self.folder) is not None,
            report_link=report_link,
            stale_s=STALE_S,
            now=now,
        )
        speeds = self._figures.tokens_per_s if self._figures else {}
        stages = _part("stages", "stages", "watch_stages.html.j2", view=view, tokens_per_s=speeds)
        return (status, *self._slow, stages)

    def _work(self, view: RunView) -> None:
        """Make the parts that take long; artifacts that appear meanwhile have their turn at the next look."""
        figures = figures_of(self._measuring.measured(view.artifacts), name=view.name)
        with _DRAWING:
            plots = self._plotting.plots(figures)
        failures = self._failures.failures(view.artifacts)
        self._figures = figures
        self._slow = (
            _figures_part(figures, [(plot, trusted_svg(plot)) for plot in plots]),
            *(
                _part(f"failures {stage}", "failures", "watch_failures.html.j2", stage=stage, failures=found,
                      mark_words=MARK_WORDS)
                for stage, found in failures.items()
            ),
        )  # fmt: skip
        self._seen = _folders(view)


class RunsPage:
    """The list of the runs in a folder, each with a page of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._pages: dict[str, RunPage] = {}
        self._lock = threading.Lock()

    def pages(self) -> dict[str, RunPage]:
        """Return the pages of the runs that are there now, by the path of each in the folder."""
        with self._lock:
            found = run_folders(self.folder)
            self._pages = {
                name: self._pages.get(name) or RunPage(path, name, home="../" * (2 + name.count("/")))
                for name, path in found.items()
            }
            return dict(self._pages)

    def parts(self) -> tuple[Part, ...]:
        """Return the list."""
        now = time.time()
        runs = [(f"run/{quote(name)}/", page.watch.view(now)) for name, page in self.pages().items()]
        return (
            _part(
                "runs",
                "status",
                "watch_runs.html.j2",
                runs=runs,
                has_report=report_of(self.folder) is not None,
                now=None,
            ),
        )

    def html(self) -> str:
        """Return the page of the list."""
        return _page(self.folder.resolve().name, self.parts())


@dataclass(frozen=True, slots=True)
class _WorkLine:
    """What a process does, in words."""

    source: str
    doing: str
    done: float
    total: float | None
    moved: float
    is_done: bool
    words: tuple[str, ...]

    @classmethod
    def of(cls, work: LiveWork) -> _WorkLine:
        total = work.total if work.total and work.total > 0 else None
        count = f"{figure(work.done)} of {figure(total)} {work.unit}" if total else f"{figure(work.done)} {work.unit}"
        words = [count.strip()] if total or work.done else []
        if work.rate and not _is_done(work):
            words.append(
                f"{figure(work.rate)} {work.unit}/s" if work.rate >= 1 else f"{figure(60 * work.rate)} {work.unit}/min"
            )
            if total:
                words.append(f"{clock((total - work.done) / work.rate)} left")
        words += [f"{name.rpartition('/')[2].replace('_', ' ')} {figure(value)}" for name, value in work.values.items()]
        return cls(work.source, work.doing, work.done, total, work.moved, _is_done(work), tuple(words))


def figure(value: float) -> str:
    """Return a number with about three digits."""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def stage_words(stage: str) -> str:
    """Return a stage's name as words, its iteration told apart: ``stage1_2`` is "stage 1, iteration 2"."""
    family, _, iteration = stage.rpartition("_")
    is_numbered = iteration.isdecimal() and family and not family.endswith("iteration")
    return f"{spoken(family)}, iteration {iteration}" if is_numbered else spoken(stage)


def utc(moment: float) -> str:
    """Return a time for people."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _is_done(work: LiveWork) -> bool:
    return work.total is not None and work.done >= work.total


def _folders(view: RunView) -> tuple[Path, ...]:
    return tuple(artifact.folder for artifact in view.artifacts.values())


def _figures_part(figures: Figures, plots: Sequence[tuple[Any, Markup]]) -> Part:
    titles = {"training": ("phase1", "stage1", "stage2"), "generation": ("roll_out", "try_", "probe")}
    speeds = []
    for title, prefixes in titles.items():
        stages = [stage for stage in figures.tokens_per_s if stage.startswith(prefixes)]
        speeds += [(title, stages[-1], figures.tokens_per_s[stages[-1]])] if stages else []
    return _part("figures", "figures", "watch_figures.html.j2", figures=figures, plots=plots, speeds=speeds,
                 tables=tables_of(figures))  # fmt: skip


def _part(name: str, group: str, template: str, **values: Any) -> Part:
    return Part(name, group, Markup(_environment().get_template(template).render(**values)))


def _page(title: str, parts: Sequence[Part], *, home: str = "", now: float | None = None) -> str:
    script = _script()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _environment().get_template("watch.html.j2").render(
        title=title, parts=parts, groups=GROUPS, filters=FILTERS, home=home, is_within=bool(home), now=now,
        script=script, script_hash=f"sha256-{digest}",
    )  # fmt: skip


@cache
def _environment() -> Environment:
    environment = page_environment()
    environment.filters.update(figure=figure, utc=utc, stage_words=stage_words)
    return environment


@cache
def _script() -> Markup:
    """Return the script of the page: ours, the same for every run, and the only one that its policy lets run."""
    environment = _environment()
    assert environment.loader is not None, "page_environment has a loader"
    return Markup(environment.loader.get_source(environment, "watch.js.j2")[0])
