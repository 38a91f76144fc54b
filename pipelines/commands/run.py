"""The command line of a pipeline, the same for all: preset to settings, settings to stages, stages to a report."""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipelines.run.paths import default_runs
from pipelines.run.publishing import publish_policy
from pipelines.run.telemetry import Telemetry
from pipelines.stages.phase1_data import PROJECT_ROOT
from plansmith.config.loading import read_yaml
from plansmith.config.run import RunConfig
from plansmith.console import exit_code_of, from_here, set_up_logging
from plansmith.data.storage import atomic_file, check_free, make_folder, storage_errors
from plansmith.errors import BadInputError
from plansmith.learning.hub import is_repository, resolve_model
from plansmith.learning.models import check_model_folder
from plansmith.pipeline import RUN_RECORD, Pipeline, RunRecord, Session
from plansmith.report.finished_stages import RunSoFar
from plansmith.stages import Stage, preview_stages

logger = logging.getLogger(__name__)

COMMIT_VARIABLE = "PLANSMITH_COMMIT"


def run_command(pipeline: Pipeline[Any, Any], argv: Sequence[str] | None) -> int:
    """Parse the command line and run; return 0 when done, 1 when it failed, 2 for bad input."""
    given = sys.argv[1:] if argv is None else argv
    arguments = run_parser(pipeline).parse_args(given)
    set_up_logging()
    command = shlex.join(["plansmith", "run", pipeline.name, *given])
    return exit_code_of(lambda: _run(pipeline, arguments, command))


def run_parser(pipeline: Pipeline[Any, Any]) -> argparse.ArgumentParser:
    """Return the reader of the command line that runs a pipeline."""
    parser = argparse.ArgumentParser(
        prog=f"plansmith run {pipeline.name}", description=f"Run the pipeline {pipeline.name}."
    )
    add_run_options(parser, pipeline, preset=pipeline.preset)
    seeds = parser.add_mutually_exclusive_group()
    seeds.add_argument("--seed", type=int, help="seed of the run; also part of its default name")
    seeds.add_argument("--seeds", type=several_seeds, metavar="SEEDS",
                       help="a run for each of these seeds, one after the other, and a summary of all, as in 100-104, "
                       "or 3 for 0-2; the same command continues")  # fmt: skip
    parser.add_argument(
        "--name", help="name of the run and its folder; default: PIPELINE-PRESET, and the seed if given"
    )
    parser.add_argument(
        "--resume", action="store_true", help="continue a run with the settings it was started with; it must exist"
    )
    return parser


def seed_range(text: str, *, least: int = 1) -> range:
    """Return the seeds that ``FIRST-LAST`` names, both with them, or as many as a number says, from 0.

    Raises:
        ArgumentTypeError: something else, or less than the ``least`` number of seeds.
    """
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)", text)
    first, last = (int(found[1] or 0), int(found[2]) - (found[1] is None)) if found else (0, -1)
    if last - first + 1 < least:
        raise argparse.ArgumentTypeError(
            f"got {text!r}, expected {least} or more: FIRST-LAST, such as 100-104, or a number of seeds from 0"
        )
    return range(first, last + 1)


def several_seeds(text: str) -> range:
    """Return `seed_range`, of two seeds at least."""
    return seed_range(text, least=2)


def add_run_options(parser: argparse.ArgumentParser, pipeline: Pipeline[Any, Any], *, preset: str) -> None:
    """Add the options that every command has which runs a pipeline."""
    parser.add_argument("--preset", default=preset,
                        help=f"{', '.join(pipeline.preset_names)}, or a YAML file (default: {preset})")  # fmt: skip
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE",
                        help="change one setting, such as phase2.eta=5; may be repeated")  # fmt: skip
    parser.add_argument(
        "--runs",
        type=Path,
        default=default_runs(),
        help="folder of all runs (default: PLANSMITH_RUNS if set; in a submitted job ~/plansmith-runs, because a job's "
        "own folder is a copy; otherwise runs)",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the settings and what would run; do nothing")


def config_of(pipeline: Pipeline[Any, Any], arguments: argparse.Namespace) -> tuple[RunConfig, str]:
    """Return settings and preset that a command line asks for; a resumed run has those it was started with.

    Raises:
        BadInputError: they cannot be used, or the folder holds a run of another pipeline.
    """
    with_seed = "" if arguments.seed is None else f"-seed{arguments.seed}"
    name = arguments.name or f"{_base_name(pipeline, arguments)}{with_seed}"
    if not arguments.resume:
        seed = [] if arguments.seed is None else [f"seed={arguments.seed}"]
        overrides = [f"name={name}", *arguments.overrides, *seed]
        return pipeline.settings(arguments.preset, overrides=overrides), arguments.preset
    if arguments.overrides:
        raise BadInputError(
            "--resume takes the settings of the run",
            got=f"--set {arguments.overrides[0]}",
            cure="leave out --resume; finished stages that a change does not touch are reused",
        )
    record = RunRecord.read(arguments.runs / name)
    check_owner(pipeline, arguments.runs / name)
    config = record.settings(pipeline.config)
    if arguments.seed not in (None, config.seed):
        raise BadInputError("--resume takes the settings of the run", where=name, got=f"--seed {arguments.seed}",
                            expected=f"seed {config.seed}", cure="leave out --seed, or --resume")  # fmt: skip
    return config, record.preset


def check_owner(pipeline: Pipeline[Any, Any], run_folder: Path) -> None:
    """Raise if a folder holds a run of another pipeline.

    Raises:
        BadInputError: it does.
    """
    path = run_folder / RUN_RECORD
    owner = read_yaml(path).get("pipeline", pipeline.name) if path.is_file() else pipeline.name
    if owner != pipeline.name:
        raise BadInputError("a run of another pipeline", where=str(run_folder), got=owner, expected=pipeline.name,
                            cure=f"take another --name, or plansmith run {owner}")  # fmt: skip


def _run(pipeline: Pipeline[Any, Any], arguments: argparse.Namespace, command: str) -> int:
    asked = [config_of(pipeline, each) for each in _each_seed(pipeline, arguments)]
    folders = [(arguments.runs / config.name).resolve() for config, _ in asked]
    if len(set(folders)) < len(folders):
        raise BadInputError("every seed has a run folder of its own", got=f"--seeds and --set name={folders[0].name}",
                            cure="give the name with --name")  # fmt: skip
    for (config, _), run_folder in zip(asked, folders, strict=True):  # what is wrong is refused before anything starts
        stages = pipeline.stages(config)
        check_owner(pipeline, run_folder)
        pipeline.check(config, is_dry_run=arguments.dry_run)
        if arguments.dry_run:
            _print_preview(config, stages, run_folder)
            if pipeline.estimate is not None:
                print(f"\n{pipeline.estimate(config)}")
    if arguments.dry_run:
        return 0
    runs = [_finish_run(pipeline, *settings, folder) for settings, folder in zip(asked, folders, strict=True)]
    if arguments.seeds is not None and pipeline.over_seeds is not None:
        name = f"{_base_name(pipeline, arguments)}-seeds{arguments.seeds[0]}-{arguments.seeds[-1]}"
        results = pipeline.over_seeds.results(name, runs, command)
        print(f"\n{pipeline.over_seeds.reporting.write(results, (arguments.runs / name).resolve())}")
    return 0


def _each_seed(pipeline: Pipeline[Any, Any], arguments: argparse.Namespace) -> list[argparse.Namespace]:
    """Return what is asked for as one command line a seed.

    Raises:
        BadInputError: several seeds are to be resumed.
    """
    if arguments.seeds is None:
        return [arguments]
    if arguments.resume:
        raise BadInputError("--seeds is continued by its own command", got="--resume with --seeds",
                            cure="leave out --resume; finished stages are reused")  # fmt: skip
    name = _base_name(pipeline, arguments)
    return [
        argparse.Namespace(**{**vars(arguments), "seed": seed, "name": f"{name}-seed{seed}"})
        for seed in arguments.seeds
    ]


def _base_name(pipeline: Pipeline[Any, Any], arguments: argparse.Namespace) -> str:
    """Return the name of a run without its seed."""
    return arguments.name or f"{pipeline.name}-{Path(arguments.preset).stem}"


def _finish_run(pipeline: Pipeline[Any, Any], config: RunConfig, preset: str, run_folder: Path) -> RunSoFar[Any]:
    """Return a run after running what is not there yet, with its report and its published policy."""
    check_free(run_folder / "artifacts")
    save_record(pipeline, config, preset, run_folder)
    logger.info("run folder: %s", from_here(run_folder))
    with pipeline.session(config, run_folder) as session:
        run = run_stages_of(pipeline, config, preset, session, run_folder, run_folder / "artifacts")
    results = report_run(pipeline, run, run_folder)
    if pipeline.published is not None:
        publish_policy(pipeline.published(run, results), config.name, run_folder / "model")
    return run


def run_stages_of(
    pipeline: Pipeline[Any, Any], config: RunConfig, preset: str, session: Session, folder: Path, root: Path
) -> RunSoFar[Any]:
    """Return a run with all its artifacts, after running what is not there yet under its telemetry.

    Args:
        pipeline, config, preset: what is run.
        session: runs it.
        folder: of its windows and its report.
        root: of its artifacts.
    """
    with Telemetry(config, folder) as telemetry:
        artifacts = session.run(
            pipeline.stages(config), root=root, observers=[telemetry], keep_weights=config.keep_weights
        )
    return RunSoFar(pipeline.name, config, preset, artifacts, folder)


def report_run(pipeline: Pipeline[Any, Any], run: RunSoFar[Any], folder: Path) -> Any:
    """Return the results of a finished run, after writing its report and printing its tables."""
    results = pipeline.results(run)
    print(pipeline.reporting.write(results, folder))
    return results


def check_model(config: Any, *, is_dry_run: bool = False) -> None:
    """Raise unless the model of a run is there, before anything starts; a dry run downloads none.

    Raises:
        BadInputError: no such model, or a folder without one.
    """
    folder = config.model.folder
    if folder is not None and not (is_dry_run and is_repository(folder)):
        check_model_folder(str(resolve_model(folder)))


def save_record(pipeline: Pipeline[Any, Any], config: RunConfig, preset: str, run_folder: Path) -> None:
    """Write what the run is before anything starts: pipeline, preset, commit, resolved settings."""
    record = RunRecord(pipeline.name, preset, config.model_dump(mode="json"))
    make_folder(run_folder)
    with storage_errors(run_folder), atomic_file(run_folder / RUN_RECORD) as file:
        file.write(record.text(_commit()).encode())


def _print_preview(config: RunConfig, stages: Sequence[Stage[Any]], run_folder: Path) -> None:
    print(json.dumps(config.model_dump(mode="json"), indent=2))
    print(f"\nrun folder: {from_here(run_folder)}\n")
    for preview in preview_stages(stages, run_folder / "artifacts"):
        print(
            f"{preview.status:8}  {preview.name:20}  {preview.key[:12]}  from {', '.join(preview.inputs) or 'nothing'}"
            f"{f'  ({preview.reason})' if preview.reason else ''}"
        )


def _commit() -> str:
    """Return the git commit of the code, an image's from PLANSMITH_COMMIT, or an empty text where nobody knows."""
    if COMMIT_VARIABLE in os.environ:
        return os.environ[COMMIT_VARIABLE]
    try:
        answer = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=PROJECT_ROOT, capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""
