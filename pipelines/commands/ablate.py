"""The command `ablate`: every variant of a pipeline's ablation over several seeds, common stages made once.

The runs of a seed share one folder of artifacts, so what is equal is reused. The same command continues a killed
ablation. What is compared, and what its figures are, is the pipeline's (`plansmith.pipeline.Ablation`).
"""

from __future__ import annotations

import argparse
import json
import logging
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipelines.commands.run import add_run_options, check_owner, report_run, run_stages_of, save_record, seed_range
from plansmith.config.run import RunConfig
from plansmith.console import exit_code_of, set_up_logging
from plansmith.data.storage import check_free
from plansmith.errors import BadInputError, ConfigError
from plansmith.pipeline import Ablation, Pipeline, Variant, find_pipeline, pipeline_names
from plansmith.report.finished_stages import RunSoFar
from plansmith.stages import preview_stages

logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the ablation; return 0 when done, 1 when it failed, 2 for bad input."""
    given = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="plansmith ablate",
        description="Run every variant of a pipeline over several seeds, and print the tables that compare them.",
        epilog="example:\n  plansmith ablate pddl_instruct --preset laptop --seeds 3\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    parser.add_argument("pipeline", nargs="?", help=f"one of {', '.join(pipeline_names())}")
    known, rest = parser.parse_known_args(given)
    if known.pipeline is None:
        parser.print_help()
        return 0 if {"-h", "--help"} & set(rest) else 2
    set_up_logging()
    return exit_code_of(lambda: ablate_command(find_pipeline(known.pipeline), rest))


def ablate_command(pipeline: Pipeline[Any, Any], argv: Sequence[str]) -> int:
    """Run the ablation of one pipeline; return 0 when done.

    Raises:
        PlansmithError: it has none, or it cannot be run.
    """
    own = [pipeline.ablation] if pipeline.ablation is not None else []
    told = [f"--study {name}: {study.about}" for name, study in pipeline.studies.items()]
    about = "\n".join([*(one.about for one in own), *told])
    parser = argparse.ArgumentParser(prog=f"plansmith ablate {pipeline.name}", description=about)
    known = ", ".join(pipeline.studies) or "none here"
    parser.add_argument("--study", metavar="NAME", help=f"a single question instead of the ablation: {known}")
    add_run_options(parser, pipeline, preset=own[0].preset if own else pipeline.preset)
    parser.add_argument("--seeds", type=seed_range, default=range(3), metavar="SEEDS",
                        help="run with each of these, as in 100-104, or 3 for 0-2 (default: 3)")  # fmt: skip
    parser.add_argument("--variants", metavar="NAMES", help="run and report only these, as in detailed,binary")
    parser.add_argument("--name", help="name of the folder; default: ablation-PIPELINE-PRESET or STUDY-PIPELINE-PRESET")
    parser.set_defaults(preset=None)  # a study has its own
    arguments = parser.parse_args(argv)
    command = shlex.join(["plansmith", "ablate", pipeline.name, *argv])
    return _ablate(pipeline, study_of(pipeline, arguments.study), arguments, command)


def study_of(pipeline: Pipeline[Any, Any], study: str | None) -> Ablation[Any, Any]:
    """Return the ablation of a pipeline, or one of its studies.

    Raises:
        BadInputError: it has none, or none of that name.
    """
    if study is not None and study not in pipeline.studies:
        known = ", ".join(pipeline.studies) or "none: leave --study out"
        raise BadInputError("no such study", where=f"--study of {pipeline.name}", got=study, expected=known)
    found = pipeline.ablation if study is None else pipeline.studies[study]
    if found is None:
        cure = f"ask for a study: --study {next(iter(pipeline.studies))}" if pipeline.studies else None
        raise BadInputError("a pipeline without an ablation", got=pipeline.name, cure=cure)
    return found


def _ablate(
    pipeline: Pipeline[Any, Any], ablation: Ablation[Any, Any], arguments: argparse.Namespace, command: str
) -> int:
    preset = arguments.preset or ablation.preset
    name = arguments.name or f"{arguments.study or 'ablation'}-{pipeline.name}-{Path(preset).stem}"
    config = pipeline.settings(preset, overrides=[f"name={name}", *arguments.overrides])
    folder = (arguments.runs / config.name).resolve()
    if arguments.variants is not None:
        ablation = only(ablation, arguments.variants.split(","))
    ablation.variants(config)  # what cannot be compared is refused before anything starts
    check_owner(pipeline, folder)
    pipeline.check(config, is_dry_run=arguments.dry_run)
    configs = [config.model_copy(update={"seed": seed}) for seed in arguments.seeds]
    if arguments.dry_run:
        for seeded in configs:
            _print_preview(pipeline, ablation, seeded, folder / f"seed{seeded.seed}")
        return 0
    save_record(pipeline, config, preset, folder)
    runs: list[tuple[str, RunSoFar[Any]]] = []
    for seeded in configs:
        runs += run_seed(pipeline, ablation, seeded, preset, folder / f"seed{seeded.seed}")
        print(ablation.reporting.write(ablation.results(config, runs, command), folder))
    return 0


def only(ablation: Ablation[Any, Any], names: Sequence[str]) -> Ablation[Any, Any]:
    """Return an ablation that has some of its variants, in its own order.

    Raises:
        ConfigError: (when they are asked for) it has none of that name.
    """

    def variants(config: Any) -> list[Variant[Any]]:
        found = {variant.name: variant for variant in ablation.variants(config)}
        if unknown := [name for name in names if name not in found]:
            raise ConfigError("no such variant", got=", ".join(unknown), expected=f"some of {', '.join(found)}")
        return [variant for name, variant in found.items() if name in names]

    return replace(ablation, variants=variants)


def run_seed(
    pipeline: Pipeline[Any, Any], ablation: Ablation[Any, Any], config: RunConfig, preset: str, folder: Path
) -> Iterator[tuple[str, RunSoFar[Any]]]:
    """Yield the run of each variant under one seed, after running what is not there yet."""
    check_free(folder / "artifacts")
    save_record(pipeline, config, preset, folder)
    with pipeline.session(config, folder) as session:
        for variant in ablation.variants(config):
            logger.info("seed %d, %s", config.seed, variant.name)
            own, root = folder / variant.name, folder / "artifacts"
            run = run_stages_of(pipeline, variant.config, preset, session, own, root)
            report_run(pipeline, run, own)
            yield variant.name, run


def _print_preview(pipeline: Pipeline[Any, Any], ablation: Ablation[Any, Any], config: RunConfig, folder: Path) -> None:
    for variant in ablation.variants(config):
        previews = preview_stages(pipeline.stages(variant.config), folder / "artifacts")
        counts = {status: sum(preview.status == status for preview in previews) for status in ("reused", "to run")}
        print(f"seed {config.seed}  {variant.name:12}  {len(previews)} stages: {json.dumps(counts)}")
