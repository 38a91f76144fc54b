"""The command line of a pipeline: preset to config, config to stages, stages to a report; the same for all of them."""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.parts.places import PRESETS, default_runs
from pipelines.parts.problem_stages import PROJECT_ROOT
from pipelines.parts.publishing import publish_policy
from pipelines.parts.telemetry import Telemetry
from pipelines.parts.workers import Workers
from plansmith.config.loading import build_config, load_preset, preset_names, read_yaml
from plansmith.config.models import PddlInstructConfig
from plansmith.console import exit_code_of, set_up_logging
from plansmith.data.artifacts import Artifact
from plansmith.data.storage import atomic_file, make_folder, storage_errors
from plansmith.errors import BadInputError
from plansmith.evaluation.results import Results
from plansmith.learning.hub import is_repository, resolve_model
from plansmith.learning.models import check_model_folder
from plansmith.stages import Stage, preview_stages

logger = logging.getLogger(__name__)

RUN_RECORD = "run.json"
COMMIT_VARIABLE = "PLANSMITH_COMMIT"

StagesOf = Callable[[PddlInstructConfig], list[Stage[Any]]]
ArmsOf = Callable[[PddlInstructConfig, Artifact], Mapping[str, tuple[str, str]]]


def run_command(pipeline: str, stages_of: StagesOf, arms_of: ArmsOf, argv: Sequence[str] | None) -> int:
    """Parse the command line and run; return the exit code."""
    arguments = _parser(pipeline).parse_args(argv)
    set_up_logging()
    return exit_code_of(lambda: _run(arguments, stages_of, arms_of))


def _parser(pipeline: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"plansmith run {pipeline}", description=f"Run the pipeline {pipeline}.")
    parser.add_argument("--preset", default="demo", help=f"{', '.join(preset_names(PRESETS))}, or a YAML file")
    parser.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change one setting, such as phase2.eta=5; may be repeated",
    )
    parser.add_argument("--seed", type=int, help="seed of the run; also part of its default name")
    parser.add_argument("--name", help="name of the run and its folder; default: the preset's, with the seed if given")
    parser.add_argument(
        "--runs",
        type=Path,
        default=default_runs(),
        help="folder of all runs (default: PLANSMITH_RUNS if set; in a submitted job ~/plansmith-runs, because a job's "
        "own folder is a copy; otherwise runs)",
    )
    parser.add_argument(
        "--resume", action="store_true", help="continue a run with the settings it was started with; it must exist"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the resolved config and what would run; do nothing"
    )
    return parser


def config_of(arguments: argparse.Namespace) -> PddlInstructConfig:
    """Return the config that a command line asks for; a resumed run has the one it was started with."""
    path = Path(arguments.preset)
    default_name = path.stem if arguments.seed is None else f"{path.stem}-seed{arguments.seed}"
    name = arguments.name or default_name
    overrides = [f"name={name}", *arguments.overrides]
    if arguments.seed is not None:
        overrides.append(f"seed={arguments.seed}")
    if not arguments.resume:
        return load_preset(arguments.preset, PRESETS, overrides=overrides)
    if arguments.overrides:
        raise BadInputError(
            "--resume takes the settings of the run",
            got=f"--set {arguments.overrides[0]}",
            cure="leave out --resume; finished stages that a change does not touch are reused",
        )
    return read_run(arguments.runs / name)[0]


def read_run(run_folder: Path) -> tuple[PddlInstructConfig, str]:
    """Return config and preset of an existing run.

    Raises:
        BadInputError: the folder holds no run.
    """
    path = run_folder / RUN_RECORD
    if not path.is_file():
        raise BadInputError(
            "no run here",
            where=str(run_folder),
            expected=f"a folder with {RUN_RECORD}",
            cure="check --name and --runs, or start the run without --resume",
        )
    record = read_yaml(path)  # JSON is YAML
    return build_config(record.get("config", {}), where=str(path)), str(record.get("preset", ""))


def _run(arguments: argparse.Namespace, stages_of: StagesOf, arms_of: ArmsOf) -> int:
    config = config_of(arguments)
    run_folder = (arguments.runs / config.name).resolve()
    stages = stages_of(config)
    check_model(config, is_dry_run=arguments.dry_run)
    if arguments.dry_run:
        _print_preview(config, stages, run_folder)
        return 0
    save_record(run_folder, config, arguments.preset)
    logger.info("run folder: %s", _short(run_folder))
    with Workers(config, run_folder) as workers, Telemetry(config, run_folder) as telemetry:
        artifacts = workers.run(stages, root=run_folder / "artifacts", observers=[telemetry])
    results = report_run(config, arguments.preset, arms_of(config, artifacts["final_policy"]), artifacts, run_folder)
    publish_policy(config, results, artifacts, run_folder / "model")
    return 0


def check_model(config: PddlInstructConfig, *, is_dry_run: bool = False) -> None:
    """Raise unless the model of a run is there, before anything starts; a dry run downloads none.

    Raises:
        BadInputError: no such model, or a folder without one.
    """
    folder = config.model.folder
    if folder is not None and not (is_dry_run and is_repository(folder)):
        check_model_folder(str(resolve_model(folder)))


def save_record(run_folder: Path, config: PddlInstructConfig, preset: str) -> None:
    """Write what the run is before anything starts: resolved config, preset, commit."""
    record = {"preset": preset, "commit": _commit(), "config": config.model_dump(mode="json")}
    make_folder(run_folder)
    with storage_errors(run_folder), atomic_file(run_folder / RUN_RECORD) as file:
        file.write((json.dumps(record, indent=2) + "\n").encode())


def report_run(
    config: PddlInstructConfig,
    preset: str,
    arm_stages: Mapping[str, tuple[str, str]],
    artifacts: Mapping[str, Artifact],
    run_folder: Path,
) -> Results:
    """Return the results of a finished run, after writing its report and printing its table."""
    from pipelines.parts.evaluation_stages import arms_of, results_of_run
    from plansmith.evaluation.report import format_table, write_report

    results = results_of_run(config, preset, arms_of(arm_stages, artifacts), artifacts)
    page = write_report(results, run_folder / "report")
    print(format_table(results))
    print(f"\nreport: {_short(page)}")
    return results


def _short(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _print_preview(config: PddlInstructConfig, stages: Sequence[Stage[Any]], run_folder: Path) -> None:
    print(json.dumps(config.model_dump(mode="json"), indent=2))
    print(f"\nrun folder: {_short(run_folder)}\n")
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
