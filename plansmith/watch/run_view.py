"""What a run folder says of its run at this moment: whether it is alive, its stages, and what each process does.

Read only, and from the folder only, so that it works while the run goes on, after it, and on another machine that sees
the folder. Files that are damaged, half written or not there are nothing to show, never an error. Not here: figures
(`run_results`), failures (`watched_failures`), the page (`watch_page`).
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from plansmith.data.artifacts import KEY_DIGITS, MANIFEST, Artifact
from plansmith.data.storage import LOCK_FILE
from plansmith.errors import ArtifactError
from plansmith.live import STAGE, LiveWork, read_live
from plansmith.report.finished_stages import RunSoFar, family_of
from plansmith.report.wording import spoken

RUN_RECORD = "run.json"
STAGES = "stages.json"
"""Key and iteration of every stage of the run by name, in their order, as the run writes it when it begins."""
ARTIFACTS = "artifacts"
STARTING, FINISHED, ENDED = "starting", "finished", "ended: "
"""What `STAGE` says where no stage has its turn."""
SILENT_AFTER_S = 300.0
"""A run on another machine, whose lock cannot be seen, counts as running until it has said nothing for so long."""
_KERNEL_LOCKS = Path("/proc/locks")
_ARTIFACT_FOLDER = re.compile(rf"(?P<stage>.+)-[0-9a-f]{{{KEY_DIGITS}}}")


class RunState(StrEnum):
    """Whether a run goes on, and how it ended."""

    NOT_STARTED = "not started"
    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"
    SILENT = "silent"
    """On another machine, and nothing has moved for `SILENT_AFTER_S`."""


class StageState(StrEnum):
    """What has become of a stage; reused means made before the present session."""

    DONE = "done"
    REUSED = "reused"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    NOT_NEEDED = "not needed"
    TO_COME = "to come"


@dataclass(frozen=True, slots=True)
class StageLine:
    """One stage of a run; ``wall_time_s`` is None until it is done, ``removed`` says when and why its weights went."""

    name: str
    state: StageState
    wall_time_s: float | None = None
    removed: str = ""


@dataclass(frozen=True, slots=True)
class Session:
    """The last time that a process conducted the stages, as its lock tells; ``is_held`` is None where none can see."""

    started: float | None
    is_held: bool | None


@dataclass(frozen=True, slots=True)
class RunView:
    """A run at one moment; times are seconds since 1970.

    ``run`` is what the run says it is, empty where it does not, with what it has finished. ``stage`` is the one whose
    turn it is or was last, the ``number``-th of ``count``; None where nobody said. ``iterations`` has those of the
    stages that are in the loop. ``n_unnamed`` stages are to come whose names are not known. ``n_superseded`` artifacts
    belong to other settings. ``ended_by`` names the error that ended the run.
    """

    name: str
    run: RunSoFar[Mapping[str, Any]]
    seed: int | None
    state: RunState
    ended_by: str
    started: float | None
    moved: float | None
    stage: str
    number: int | None
    count: int | None
    works: tuple[LiveWork, ...]
    stages: tuple[StageLine, ...]
    iterations: Mapping[str, int]
    n_unnamed: int
    n_superseded: int

    def words(self, stage: str) -> str:
        """Return a stage's name as words, its iteration told apart: ``stage1_2`` is "stage 1, iteration 2"."""
        iteration = self.iterations.get(stage, 0)
        family = family_of(stage, iteration)
        is_told = family != stage and not family.endswith("iteration")
        return f"{spoken(family)}, iteration {iteration}" if is_told else spoken(stage)


@dataclass(frozen=True, slots=True)
class _Record:
    """What the run says it is; ``stages`` has key and iteration of every stage, in their order, where that is known."""

    name: str
    pipeline: str
    preset: str
    config: Mapping[str, Any]
    stages: Mapping[str, tuple[str, int]]

    @property
    def keys(self) -> Mapping[str, str] | None:
        """Return the key of every stage, or None where they are not known."""
        return {name: key for name, (key, _) in self.stages.items()} or None

    @property
    def seed(self) -> int | None:
        """Return the seed of the run."""
        seed = self.config.get("seed")
        return seed if isinstance(seed, int) else None


class RunWatch:
    """A run folder that is looked at again and again.

    Args:
        folder: of a run, or of another store of stages, as ``evaluations`` and the folder of a dataset are.
        name: what to call it; by default what the run calls itself.
    """

    def __init__(self, folder: Path, name: str = "") -> None:
        self.folder, self._name = folder, name
        self._known: dict[tuple[Path, int], Artifact | None] = {}

    @property
    def root(self) -> Path:
        """Return the folder of its artifacts: one of their own, or the folder itself."""
        return self.folder if (self.folder / LOCK_FILE).is_file() else self.folder / ARTIFACTS

    def view(self, now: float) -> RunView:
        """Return the run as it is at a time, in seconds since 1970."""
        record, session, found = _read_record(self.folder), read_session(self.root), self._artifacts()
        begun = (session.started or 0.0) - 60  # the clocks of two machines may differ by a little
        works = [work for work in read_live(self.folder) if _is_finite(work) and work.moved >= begun]
        turn = next((work for work in works if work.source == STAGE), None)
        artifacts, unfinished = artifacts_of_run(found, record.keys), _unfinished(self.root)
        moved = max([work.moved for work in works] + [time for _, time in unfinished], default=None)
        is_complete = _has_report(self.folder, found, unfinished)
        state = _state(session, turn, is_complete=is_complete, silent_s=now - (moved or session.started or 0.0))
        current = _current_stage(turn, unfinished)
        stages = _stage_lines(record.keys or artifacts, artifacts, session, current=current, state=state)
        n_finished = int(turn.done) if turn else None
        count = int(turn.total) if turn and turn.total else len(record.keys) if record.keys else None
        return RunView(
            name=self._name or record.name,
            run=RunSoFar(record.pipeline, record.config, record.preset, artifacts),
            seed=record.seed,
            state=state,
            ended_by=turn.doing.removeprefix(ENDED) if turn and turn.doing.startswith(ENDED) else "",
            started=session.started,
            moved=moved if moved is not None else max(map(_created, found), default=session.started),
            stage=current,
            number=None if n_finished is None else min(n_finished + 1, count or n_finished + 1),
            count=count,
            works=tuple(work for work in works if work.source != STAGE),
            stages=stages,
            iterations={name: iteration for name, (_, iteration) in record.stages.items()}
            | {name: artifact.manifest.provenance.iteration for name, artifact in artifacts.items()},
            n_unnamed=max(0, count - len(stages)) if count and not record.keys else 0,
            n_superseded=len(found) - len(artifacts),
        )

    def _artifacts(self) -> list[Artifact]:
        """Return the sound artifacts, oldest first; each is opened and checked once, for an artifact never changes."""
        present = {}
        for path in self.root.glob(f"*/{MANIFEST}"):
            with contextlib.suppress(OSError):
                version = (path.parent, path.stat().st_mtime_ns)
                if _ARTIFACT_FOLDER.fullmatch(path.parent.name):
                    present[version] = self._known[version] if version in self._known else _opened(path.parent)
        self._known = present
        return sorted(filter(None, present.values()), key=_order)


def report_of(folder: Path) -> Path | None:
    """Return the page of the finished report in a run folder, or None while there is none."""
    path = folder / "report" / "index.html"
    return path if path.is_file() else None


def run_folders(folder: Path) -> dict[str, Path]:
    """Return the run folders in a folder by their path in it; of a run folder itself, only that, under ``.``."""
    if is_run(folder):
        return {".": folder}
    children = [path for path in sorted(folder.glob("*/")) if not path.name.startswith(".")]
    found = [(path, *sorted(path.glob("*/"))) for path in children]
    nested = [path for first, *others in found for path in ([first] if is_run(first) else others)]
    return {path.relative_to(folder).as_posix(): path for path in nested if is_run(path)}


def is_run(folder: Path) -> bool:
    """Return whether stages keep their artifacts in this folder, or a run is about to begin in it."""
    if (folder / ARTIFACTS).is_dir() or (folder / LOCK_FILE).is_file():
        return True
    return (folder / RUN_RECORD).is_file() and not any(path.is_dir() for path in folder.glob(f"*/{ARTIFACTS}"))


def read_session(root: Path) -> Session:
    """Return the last session that worked on a folder of artifacts.

    The lock is looked up, not tried: trying it would, for a moment, refuse a run that is just starting.
    """
    try:
        text, status = (root / LOCK_FILE).read_text(encoding="utf-8", errors="replace"), (root / LOCK_FILE).stat()
    except OSError:
        return Session(None, False)
    holder = re.fullmatch(r"process (\d+) on (.+)", text)
    if holder and holder[2] != socket.gethostname():
        return Session(status.st_mtime, None)
    try:
        locks = _KERNEL_LOCKS.read_text(encoding="utf-8")
    except OSError:
        return Session(status.st_mtime, None)
    owner = holder[1] if holder else r"\d+"
    held = re.search(rf"^\d+: FLOCK +ADVISORY +WRITE +{owner} +\S+:{status.st_ino} ", locks, flags=re.MULTILINE)
    return Session(status.st_mtime, held is not None)


def artifacts_of_run(found: Sequence[Artifact], keys: Mapping[str, str] | None) -> dict[str, Artifact]:
    """Return the artifact of each stage, in their order.

    With the keys of the run's stages these are exact. Without, the newest of each name counts, unless it was made from
    an artifact that a newer one has replaced, as after a changed setting.
    """
    if keys is not None:
        by_key = {artifact.key: artifact for artifact in found}
        return {name: by_key[key] for name, key in keys.items() if key in by_key}
    newest = {artifact.manifest.provenance.stage: artifact for artifact in found}
    known = {artifact.key for artifact in found}
    while True:
        replaced = known - {artifact.key for artifact in newest.values()}
        stale = [name for name, a in newest.items() if replaced & set(a.manifest.provenance.inputs.values())]
        if not stale:
            return dict(sorted(newest.items(), key=lambda item: _order(item[1])))
        for name in stale:
            del newest[name]


def _is_finite(work: LiveWork) -> bool:
    """Return whether a page can show the numbers; a loss that is NaN is no number, though its process moves."""
    return all(map(math.isfinite, (work.done, work.started, work.moved, work.total or 0.0, *work.values.values())))


def _state(session: Session, turn: LiveWork | None, *, is_complete: bool, silent_s: float) -> RunState:
    """Return the state; what the run said counts only when its lock is free, for a new session may not have spoken."""
    if session.started is None:
        return RunState.NOT_STARTED
    if session.is_held:
        return RunState.RUNNING
    if turn is not None and turn.doing.startswith(ENDED):
        return RunState.STOPPED if turn.doing == ENDED + KeyboardInterrupt.__name__ else RunState.FAILED
    if is_complete or (turn is not None and turn.doing == FINISHED):
        return RunState.FINISHED
    if session.is_held is None:
        return RunState.RUNNING if silent_s < SILENT_AFTER_S else RunState.SILENT
    return RunState.STOPPED


def _current_stage(turn: LiveWork | None, unfinished: Sequence[tuple[str, float]]) -> str:
    """Return the stage whose turn it is or was last: as the run says, or the last that was written to."""
    if turn is not None and turn.doing not in (STARTING, FINISHED) and not turn.doing.startswith(ENDED):
        return turn.doing
    return unfinished[-1][0] if unfinished else ""


def _has_report(folder: Path, found: Sequence[Artifact], unfinished: Sequence[tuple[str, float]]) -> bool:
    """Return whether results were written after all artifacts, be it the run's or those of an arm of an ablation."""
    times = []
    for path in (*folder.glob("report/results.json"), *folder.glob("*/report/results.json")):
        with contextlib.suppress(OSError):
            times.append(path.stat().st_mtime)
    worked = [*map(_created, found), *(time for _, time in unfinished)]
    return bool(times) and max(times) >= max(worked, default=0.0)


def _stage_lines(
    names: Iterable[str], artifacts: Mapping[str, Artifact], session: Session, *, current: str, state: RunState
) -> tuple[StageLine, ...]:
    """Return a line for each stage that is known; the one whose turn it is comes last where no order is known."""
    known = list(dict.fromkeys([*names, *([current] if current else [])]))
    reached = max((place for place, name in enumerate(known) if name in artifacts or name == current), default=-1)
    is_over = state is RunState.FINISHED
    lines = []
    for place, name in enumerate(known):
        if name in artifacts:
            is_old = session.started is not None and _created(artifacts[name]) < session.started - 1
            done = StageState.REUSED if is_old else StageState.DONE
            manifest = artifacts[name].manifest
            lines.append(StageLine(name, done, manifest.wall_time_s, manifest.removed))
        elif name == current:
            lines.append(StageLine(name, StageState.RUNNING if state is RunState.RUNNING else StageState.INTERRUPTED))
        else:
            lines.append(StageLine(name, StageState.NOT_NEEDED if place < reached or is_over else StageState.TO_COME))
    return tuple(lines)


def _unfinished(root: Path) -> list[tuple[str, float]]:
    """Return the stages with an artifact in the making and when it was last written to, the latest last."""
    found = []
    for path in root.glob("*.partial/"):
        name = _ARTIFACT_FOLDER.fullmatch(path.name.removesuffix(".partial"))
        with contextlib.suppress(OSError):
            if name:
                found.append((name["stage"], max(p.stat().st_mtime for p in (path, *path.glob("*/")))))
    return sorted(found, key=lambda item: item[1])


def _read_record(folder: Path) -> _Record:
    """Return what the run is, as far as it says so."""
    record, stages = _read_object(folder / RUN_RECORD), _read_object(folder / STAGES)
    config = record["config"] if isinstance(record.get("config"), dict) else {}
    return _Record(
        name=str(config.get("name") or folder.resolve().name),
        pipeline=str(record.get("pipeline") or ""),
        preset=str(record.get("preset") or ""),
        config=config,
        stages={name: stage for name, said in stages.items() if (stage := _stage(said))},
    )


def _stage(said: Any) -> tuple[str, int] | None:
    """Return key and iteration of a stage, or None of what is neither."""
    if not isinstance(said, dict):
        return None
    key, iteration = said.get("key"), said.get("iteration")
    return (key, iteration) if isinstance(key, str) and isinstance(iteration, int) else None


def _read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, an empty one where there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _opened(folder: Path) -> Artifact | None:
    """Return an artifact, or None when it is damaged; a run makes a damaged one again."""
    try:
        artifact = Artifact(folder)
        _created(artifact)
        return artifact if artifact.damage() is None else None
    except (ArtifactError, OSError, ValueError, TypeError):
        return None


def _created(artifact: Artifact) -> float:
    return datetime.fromisoformat(artifact.manifest.created).timestamp()


def _order(artifact: Artifact) -> tuple[float, float, str]:
    """Return what sorts artifacts by their end, in whole seconds, and those of one second by their beginning."""
    return _created(artifact), -artifact.manifest.wall_time_s, artifact.folder.name
