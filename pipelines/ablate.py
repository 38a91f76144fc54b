#!/usr/bin/env python3
"""The command `ablate`: every arm of table 1 of PDDL-INSTRUCT over several seeds, common stages made once.

Three runs of the pipeline a seed have them all: detailed and binary feedback after phase 1, and detailed feedback on
the untrained policy. A smaller eta is the same run at an earlier iteration. The runs of a seed share one folder of
artifacts, so what is equal, up to phase 1, is reused. The same command continues a killed ablation.
"""

from __future__ import annotations

import argparse
import json
import logging
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":  # found from any folder
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pipelines.parts.command import check_model, report_run, save_record
from pipelines.parts.evaluation_stages import Arm, arms_of, evaluated_problems
from pipelines.parts.places import PRESETS, default_runs
from pipelines.parts.telemetry import Telemetry
from pipelines.parts.workers import Workers
from pipelines.pddl_instruct import arms, pddl_instruct
from plansmith.config.loading import load_preset, preset_names
from plansmith.config.models import PddlInstructConfig
from plansmith.console import exit_code_of, set_up_logging
from plansmith.data.artifacts import Artifact, installed_tool_versions
from plansmith.errors import ConfigError
from plansmith.evaluation.ablation import AblationArm, ArmRun, standard_arms, summarise_ablation
from plansmith.evaluation.ablation_report import format_ablation, write_ablation
from plansmith.stages import preview_stages

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Variant:
    """One run of the pipeline, and which arms of the ablation its own arms are.

    ``loop`` is the arm of its last iteration, under which the earlier ones are shown too.
    """

    name: str
    config: PddlInstructConfig
    arm_of: Mapping[str, str]
    loop: str


def variants(config: PddlInstructConfig) -> list[Variant]:
    """Return the runs that have all arms.

    Raises:
        ConfigError: settings under which the arms would not be comparable.
    """
    low, high = config.ablation.eta_low, config.phase2.eta
    if low >= high:
        raise ConfigError("ablation.eta_low must be smaller than phase2.eta", got=f"{low} and {high}")
    if config.phase2.patience:
        raise ConfigError(
            "arms of a fixed number of iterations need phase2.patience=0", got=f"patience={config.phase2.patience}"
        )
    start = {"untrained": "baseline", "phase1": "phase1"}
    prompted = {f"untrained_{name}": f"baseline_{name}" for name in config.evaluation.baseline_prompts}

    def iterations(prefix: str, *etas: int) -> dict[str, str]:
        return {f"iteration_{eta}": f"{prefix}_eta{eta}" for eta in etas}

    detailed, binary = (_with(config, feedback=feedback) for feedback in ("detailed", "binary"))
    alone = _with(config, phases="phase2")
    return [
        Variant("detailed", detailed, start | prompted | iterations("detailed", low, high), f"detailed_eta{high}"),
        Variant("binary", binary, iterations("binary", low, high), f"binary_eta{high}"),
        Variant("phase2_only", alone, iterations("phase2_detailed", high), f"phase2_detailed_eta{high}"),
    ]


def _with(config: PddlInstructConfig, *, feedback: str = "detailed", phases: str = "both") -> PddlInstructConfig:
    phase2 = config.phase2.model_copy(update={"feedback": feedback})
    return config.model_copy(update={"phase2": phase2, "phases": phases})


def ablation_arms(config: PddlInstructConfig) -> list[AblationArm]:
    """Return the arms of table 1, the untrained model's other prompts after its first."""
    baseline, *others = standard_arms(config.ablation.eta_low, config.phase2.eta)
    prompts = {
        "zero_shot": "Baseline, asked for the plan alone",
        "chain_of_thought": "Baseline, asked to reason freely",
    }
    prompted = [
        AblationArm(f"baseline_{name}", prompts[name], (), None, None, None)
        for name in config.evaluation.baseline_prompts
    ]
    return [baseline, *prompted, *others]


def run_seed(config: PddlInstructConfig, preset: str, folder: Path) -> Iterator[ArmRun]:
    """Yield the arms of one seed, after running what is not there yet."""
    found = variants(config)
    with Workers(config, folder) as workers:
        for variant in found:
            logger.info("seed %d, %s", config.seed, variant.name)
            stages = pddl_instruct(variant.config)
            with Telemetry(variant.config, folder / variant.name) as telemetry:
                artifacts = workers.run(stages, root=folder / "artifacts", observers=[telemetry])
            found_arms = arms(variant.config, artifacts["final_policy"])
            report_run(variant.config, preset, found_arms, artifacts, folder / variant.name)
            yield from _arm_runs(variant, arms_of(found_arms, artifacts), artifacts)


def _arm_runs(variant: Variant, found: Sequence[Arm], artifacts: Mapping[str, Artifact]) -> Iterator[ArmRun]:
    problems, plans = artifacts["sample_problems"], artifacts["synthesize_plans"]
    for arm in found:
        evaluated = tuple(evaluated_problems(arm, problems, plans))
        if arm.name in variant.arm_of:
            yield ArmRun(variant.arm_of[arm.name], variant.config.seed, evaluated)
        if arm.name.startswith("iteration_"):
            number = int(arm.name.removeprefix("iteration_"))
            yield ArmRun(variant.loop, variant.config.seed, evaluated, iteration=number)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the ablation; return 0 when done, 1 when it failed, 2 for bad input."""
    arguments = _parser().parse_args(argv)
    arguments.given = list(sys.argv[1:] if argv is None else argv)
    set_up_logging()
    return exit_code_of(lambda: _ablate(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="plansmith ablate",
        description="Run every arm of table 1: baseline, phase 1 only, phase 2 only, binary and detailed feedback, two "
        "numbers of iterations; print tables 1, 4 and 5 with the paper's figures beside ours.",
        epilog="example:\n  plansmith ablate pddl_instruct --preset laptop --seeds 3\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pipeline", choices=["pddl_instruct"], help="the pipeline: pddl_instruct")
    parser.add_argument("--preset", default="laptop", help=f"{', '.join(preset_names(PRESETS))}, or a YAML file")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="run with the seeds 0 to N-1 (default: 3)")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE",
                        help="change one setting, such as phase2.eta=5; may be repeated")  # fmt: skip
    parser.add_argument("--name", help="name of the folder of the ablation; default: ablation-PRESET")
    parser.add_argument("--runs", type=Path, default=default_runs(), help="folder of all runs (default: runs)")
    parser.add_argument("--dry-run", action="store_true", help="print what would run; do nothing")
    return parser


def _ablate(arguments: argparse.Namespace) -> int:
    if arguments.seeds < 1:
        raise ConfigError("--seeds must be at least 1", got=str(arguments.seeds))
    name = arguments.name or f"ablation-{Path(arguments.preset).stem}"
    config = load_preset(arguments.preset, PRESETS, overrides=[f"name={name}", *arguments.overrides])
    folder = (arguments.runs / config.name).resolve()
    variants(config)  # arms that cannot be compared are refused before anything starts
    check_model(config, is_dry_run=arguments.dry_run)
    configs = [config.model_copy(update={"seed": seed}) for seed in range(arguments.seeds)]
    if arguments.dry_run:
        for seeded in configs:
            _print_preview(seeded, folder / f"seed{seeded.seed}")
        return 0
    save_record(folder, config, arguments.preset)
    runs: list[ArmRun] = []
    for seeded in configs:
        runs += run_seed(seeded, arguments.preset, folder / f"seed{seeded.seed}")
        results = summarise_ablation(
            config.name,
            ablation_arms(config),
            runs,
            model=config.model.folder or f"a model from nothing, {config.model.n_layers} x {config.model.hidden_size}",
            config=config.model_dump(mode="json"),
            versions=installed_tool_versions(),
            command=shlex.join(["plansmith", "ablate", *arguments.given]),
        )
        page = write_ablation(results, folder / "report")
        print(format_ablation(results))
    print(f"\nreport: {page}")
    return 0


def _print_preview(config: PddlInstructConfig, folder: Path) -> None:
    for variant in variants(config):
        previews = preview_stages(pddl_instruct(variant.config), folder / "artifacts")
        counts = {status: sum(preview.status == status for preview in previews) for status in ("reused", "to run")}
        print(f"seed {config.seed}  {variant.name:12}  {len(previews)} stages: {json.dumps(counts)}")


if __name__ == "__main__":
    sys.exit(main())
