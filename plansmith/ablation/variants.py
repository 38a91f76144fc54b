"""The arms of table 1 of PDDL-INSTRUCT as runs of its pipeline, and the figures of the ablation from these runs.

Three runs a seed have them all: detailed and binary feedback after phase 1, and detailed feedback on the untrained
policy. A smaller eta is the same run at an earlier iteration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from plansmith.ablation.summary import AblationArm, AblationResults, ArmRun, standard_arms, summarise_ablation
from plansmith.config.pddl_instruct import PddlInstructConfig
from plansmith.data.artifacts import installed_tool_versions
from plansmith.errors import ConfigError
from plansmith.pipeline import Variant
from plansmith.report.arms import FINAL, arms_of, evaluated_problems
from plansmith.report.finished_stages import RunSoFar


@dataclass(frozen=True)
class ArmVariant(Variant[PddlInstructConfig]):
    """One run of the pipeline, and which arms of the ablation its own arms are.

    ``loop`` is the arm of its last iteration, under which the earlier ones are shown too.
    """

    arm_of: Mapping[str, str]
    loop: str


def variants(config: PddlInstructConfig) -> list[ArmVariant]:
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
        ArmVariant("detailed", detailed, start | prompted | iterations("detailed", low, high), f"detailed_eta{high}"),
        ArmVariant("binary", binary, iterations("binary", low, high), f"binary_eta{high}"),
        ArmVariant("phase2_only", alone, iterations("phase2_detailed", high), f"phase2_detailed_eta{high}"),
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


def ablation_results(
    config: PddlInstructConfig, runs: Sequence[tuple[str, RunSoFar[PddlInstructConfig]]], command: str
) -> AblationResults:
    """Return the figures of all runs so far, each given with the name of its variant."""
    named = {variant.name: variant for variant in variants(config)}
    return summarise_ablation(
        config.name,
        ablation_arms(config),
        [arm for name, run in runs for arm in _arm_runs(named[name], run)],
        model=config.model.folder or f"a model from nothing, {config.model.n_layers} x {config.model.hidden_size}",
        config=config.model_dump(mode="json"),
        versions=installed_tool_versions(),
        command=command,
    )


def _arm_runs(variant: ArmVariant, run: RunSoFar[PddlInstructConfig]) -> Iterator[ArmRun]:
    """Yield what the arms of one run reached: those that are arms of the ablation, and every iteration."""
    for arm in arms_of(run):
        if arm.name == FINAL:
            continue
        evaluated, seed = tuple(evaluated_problems(arm)), run.config.seed
        if arm.name in variant.arm_of:
            yield ArmRun(variant.arm_of[arm.name], seed, evaluated)
        iteration = arm.verdicts.manifest.provenance.iteration
        if iteration:
            yield ArmRun(variant.loop, seed, evaluated, iteration=iteration)
