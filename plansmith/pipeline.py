"""What a pipeline is, as one value: all that the commands need to know of it, so that they know no paper.

A pipeline is found by its name among the installed entry points; a run folder names its own. Not here: what the stages
do (`pipelines`), how they are run (`plansmith.stages`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError

from plansmith.config.loading import ModelT, build_model, load_settings, preset_names, read_yaml
from plansmith.config.run import RunConfig
from plansmith.console import from_here
from plansmith.data.artifacts import Artifact
from plansmith.errors import BadInputError
from plansmith.garbage import no_garbage
from plansmith.report.finished_stages import RunSoFar
from plansmith.report.render import format_report, write_report
from plansmith.report.sections import Report
from plansmith.stages import Observer, Stage

if TYPE_CHECKING:
    from plansmith.learning.export import ModelCard

GROUP = "plansmith.pipelines"
RUN_RECORD = "run.json"

ConfigT = TypeVar("ConfigT", bound=RunConfig)
ResultsT = TypeVar("ResultsT")


class Session(Protocol):
    """What the stages of a run share, such as processes that hold models; it runs them."""

    def run(
        self,
        stages: Sequence[Stage[Any]],
        *,
        root: Path,
        observers: Sequence[Observer] = (),
        keep_weights: int | None = None,
    ) -> dict[str, Artifact]:
        """Return the artifacts of stages; see `plansmith.stages.run_stages`."""


@dataclass(frozen=True)
class Reporting(Generic[ResultsT]):
    """What is said about a run, an ablation, or several seeds: from results, which a file keeps.

    Args:
        kind: of results, a dataclass that JSON can hold.
        report: what they say.
        name: of their file, without its ending.
    """

    kind: type[ResultsT]
    report: Callable[[ResultsT], Report]
    name: str = "results"

    def write(self, results: ResultsT, run_folder: Path) -> str:
        """Return what a terminal shows, after writing the page and its files into the run's folder ``report``."""
        report = self.report(results)
        text = self._json.dump_json(results, indent=2).decode() + "\n"
        page = write_report(report, run_folder / "report", self.name, text)
        return f"{format_report(report)}\n\nreport: {from_here(page)}"

    def is_in(self, run_folder: Path) -> bool:
        """Return whether a run's folder has these results."""
        return self._path(run_folder).is_file()

    def read(self, run_folder: Path) -> ResultsT:
        """Return the results of a finished run.

        Raises:
            BadInputError: there are none, or the file holds something else.
        """
        if not self.is_in(run_folder):
            raise BadInputError("no finished run here", where=str(run_folder), expected=f"report/{self.name}.json",
                                cure="finish the run first: give its command again")  # fmt: skip
        try:
            return self._json.validate_json(self._path(run_folder).read_bytes())
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"]) or "the file"
            raise BadInputError(
                "these are not the results of a run of this pipeline", where=str(self._path(run_folder)),
                got=f"{place}: {first['msg']}", expected="the file that a finished run writes",
                cure="give the command of the run again; what is finished is reused",
            ) from error  # fmt: skip

    def _path(self, run_folder: Path) -> Path:
        return run_folder / "report" / f"{self.name}.json"

    @cached_property
    def _json(self) -> TypeAdapter[ResultsT]:
        """Return the reader and writer, built at first use."""
        return TypeAdapter(self.kind)


@dataclass(frozen=True)
class Variant(Generic[ConfigT]):
    """One way of running a pipeline, by name; the variants of an ablation share what is equal in them."""

    name: str
    config: ConfigT


@dataclass(frozen=True)
class Ablation(Generic[ConfigT, ResultsT]):
    """How a pipeline is compared with parts of itself.

    Args:
        about: what is compared, for the command's help.
        variants: of one seed; raises ConfigError for settings under which they could not be compared.
        results: of all runs so far, each with the name of its variant.
        reporting: of these.
        preset: where none is named.
    """

    about: str
    variants: Callable[[ConfigT], Sequence[Variant[ConfigT]]]
    results: Callable[[ConfigT, Sequence[tuple[str, RunSoFar[ConfigT]]], str], ResultsT]
    reporting: Reporting[ResultsT]
    preset: str = "demo"


@dataclass(frozen=True)
class OverSeeds(Generic[ConfigT, ResultsT]):
    """How the runs of a pipeline that differ in their seeds alone are summarised.

    Args:
        results: of finished runs, under a name, and with the command that made them.
        reporting: of these.
    """

    results: Callable[[str, Sequence[RunSoFar[ConfigT]], str], ResultsT]
    reporting: Reporting[ResultsT]


@dataclass(frozen=True, slots=True)
class PublishedPolicy:
    """The weights that a run gives to the world, with what is told of them."""

    policy: Artifact
    card: ModelCard


def _accept(config: Any, *, is_dry_run: bool) -> None:
    """Find nothing wrong."""


@dataclass(frozen=True, kw_only=True)
class Pipeline(Generic[ConfigT, ResultsT]):
    """One pipeline.

    Args:
        name: of its entry point.
        config: its settings.
        presets: folder of its presets; a folder beside it is another pipeline's.
        preset: where none is named.
        stages: of a run, in order; which arms it has is told by the labels of the stages that judge.
        session: opens what the stages share, for settings and a run folder.
        results: what is known of a run by now, None before there is anything; the live page asks this as well.
        reporting: of these.
        check: raises BadInputError for what must be there before anything starts; a dry run downloads nothing.
        estimate: what a run would cost beside time, told by a dry run; None where nothing is paid for.
        published: the policy that a finished run gives to the world, and what the world is told of it; None where it
            gives none.
        ablation: if it has one.
        studies: further ones, each of a single question, by name.
        over_seeds: how several seeds are summarised; None where each has its own report and no more.
    """

    name: str
    config: type[ConfigT]
    presets: Path
    stages: Callable[[ConfigT], Sequence[Stage[Any]]]
    session: Callable[[ConfigT, Path], AbstractContextManager[Session]]
    results: Callable[[RunSoFar[ConfigT]], ResultsT | None]
    reporting: Reporting[ResultsT]
    preset: str = "demo"
    check: Callable[..., None] = _accept
    estimate: Callable[[ConfigT], str] | None = None
    published: Callable[[RunSoFar[ConfigT], ResultsT], PublishedPolicy] | None = None
    ablation: Ablation[ConfigT, Any] | None = None
    studies: Mapping[str, Ablation[ConfigT, Any]] = field(default_factory=dict)
    over_seeds: OverSeeds[ConfigT, Any] | None = None

    def settings(self, preset: str, *, overrides: Sequence[str] = ()) -> ConfigT:
        """Return the settings of a preset with ``key.path=value`` overrides.

        Raises:
            ConfigError: no such preset, an unknown key, a value out of bounds, or an override that no stage reads.
        """
        config = load_settings(self.config, preset, self.presets, overrides=overrides)
        config.check_read(override.partition("=")[0] for override in overrides)
        return config

    @property
    def preset_names(self) -> list[str]:
        """Return its presets by name."""
        return preset_names(self.presets)


def pipeline_names() -> list[str]:
    """Return the installed pipelines."""
    return sorted(entry.name for entry in entry_points(group=GROUP))


def find_pipeline(name: str) -> Pipeline[Any, Any]:
    """Return an installed pipeline.

    Raises:
        BadInputError: none of that name.
    """
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in found:
        raise BadInputError("no such pipeline", got=repr(name), expected=f"one of {', '.join(sorted(found))}")
    with no_garbage():
        pipeline: Pipeline[Any, Any] = found[name].load()
    return pipeline


@dataclass(frozen=True)
class RunRecord:
    """What a run folder says of its run."""

    pipeline: str
    preset: str
    config: Mapping[str, Any]

    @classmethod
    def read(cls, run_folder: Path) -> RunRecord:
        """Return the record of a run.

        Raises:
            BadInputError: the folder holds no run.
        """
        path = run_folder / RUN_RECORD
        if not path.is_file():
            raise BadInputError("no run here", where=str(run_folder), expected=f"a folder with {RUN_RECORD}",
                                cure="name the folder of a run, which its command prints as it begins")  # fmt: skip
        record = read_yaml(path)  # JSON is YAML
        if not isinstance(record.get("config"), dict) or not record.get("pipeline"):
            raise BadInputError("a run that names no pipeline, or no settings", where=str(path),
                                cure="start it again under its name; what has not changed is reused")  # fmt: skip
        return cls(str(record["pipeline"]), str(record.get("preset", "")), record["config"])

    def settings(self, model: type[ModelT]) -> ModelT:
        """Return the settings, checked."""
        return build_model(model, self.config, where=RUN_RECORD)

    def text(self, commit: str) -> str:
        """Return what ``run.json`` holds."""
        record = {"pipeline": self.pipeline, "preset": self.preset, "commit": commit, "config": self.config}
        return json.dumps(record, indent=2) + "\n"
