"""The arms of table 1 of PDDL-INSTRUCT, and ours, as runs of its pipeline, and the figures of the ablation from them.

Each variant is one run a seed; those of a seed share every artifact up to the first setting in which they differ. A
smaller eta is the same run at an earlier iteration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from plansmith.ablation.summary import (
    AblationArm,
    AblationResults,
    ArmRun,
    made_with,
    standard_arms,
    summarise_ablation,
)
from plansmith.config.pddl_instruct import PddlInstructConfig
from plansmith.errors import ConfigError
from plansmith.pipeline import Variant
from plansmith.report.arms import AFTER_TURNS, CONTROL, FINAL, after_turns, arms_of, evaluated_problems
from plansmith.report.finished_stages import RunSoFar

SCORE = 0.002
"""Weight of the score term in the variant that has one; more of it makes a policy write nonsense (docs/log.md)."""


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
    prompted = {f"untrained_{name}": f"baseline_{name}" for name in config.evaluation.baseline_prompts}
    untrained = {"untrained": "baseline"} | prompted
    start = untrained | {"phase1": "phase1"}
    last, losses = f"iteration_{high}", config.phase2.losses
    evaluation = config.evaluation.model_copy(update={"feedback_turns": 0})
    without_turns = config.model_copy(update={"evaluation": evaluation})

    def both(feedback: str, **more: Any) -> ArmVariant:
        loop = f"{feedback}_eta{high}"
        turns = {AFTER_TURNS: f"{loop}_turns"} if config.evaluation.feedback_turns else {}
        arm_of = start | {f"iteration_{low}": f"{feedback}_eta{low}", last: loop} | turns
        return ArmVariant(feedback, _with(config, feedback=feedback, **more), arm_of, loop)

    def other(name: str, loop: str, *, phases: str = "both", **phase2: Any) -> ArmVariant:
        arm_of = (start if phases == "both" else untrained) | {last: loop}
        return ArmVariant(name, _with(without_turns, phases=phases, **phase2), arm_of, loop)

    detailed = both("detailed", has_control=True)
    found = [
        replace(detailed, arm_of={**detailed.arm_of, f"{CONTROL}_{high}": CONTROL}),
        both("binary"),
        other("phase2_only", f"phase2_detailed_eta{high}", phases="phase2"),
    ]
    if config.phase2.continuation_renamings:
        found.append(other("no_continuations", "no_continuations", continuation_renamings=0))
    if not losses.score:
        found.append(other("score", "score", losses=losses.model_copy(update={"score": SCORE})))
    return found


def _with(config: PddlInstructConfig, *, phases: str = "both", **phase2: Any) -> PddlInstructConfig:
    """Return settings with others of phase 2, which has detailed feedback and no control unless they say so."""
    changed = config.phase2.model_copy(update={"feedback": "detailed", "has_control": False} | phase2)
    return config.model_copy(update={"phase2": changed, "phases": phases})


def ablation_arms(config: PddlInstructConfig) -> list[AblationArm]:
    """Return the arms of table 1, the untrained model's other prompts after its first, then those of our own."""
    baseline, *others = standard_arms(config.ablation.eta_low, config.phase2.eta)
    prompts = {
        "zero_shot": "Baseline, asked for the plan alone",
        "chain_of_thought": "Baseline, asked to reason freely",
    }
    prompted = [
        AblationArm(f"baseline_{name}", prompts[name], (), None, None, None)
        for name in config.evaluation.baseline_prompts
    ]
    eta, n = config.phase2.eta, config.evaluation.feedback_turns
    own = [
        AblationArm(CONTROL, f"Phase 1 + as much supervision without rollouts, {eta} times", (1,), None, None, None),
        AblationArm("no_continuations", f"Detailed, eta = {eta}, no attempt continued", (1, 2), "detailed", eta, None),
        AblationArm("score", f"Detailed, eta = {eta}, with the score term", (1, 2), "detailed", eta, None),
    ]
    with_turns = [
        replace(
            arm,
            id=f"{arm.id}_turns",
            label=f"{arm.column}, {n} feedback turn{'s' * (n > 1)} at the test",
            paper_label=None,
            turns=n,
        )
        for arm in others
        if n and arm.phases == (1, 2) and arm.eta == eta
    ]
    return [baseline, *prompted, *others, *own, *with_turns]


def contrasts(config: PddlInstructConfig) -> list[tuple[str, str]]:
    """Return the pairs of arms that tell which part of the loop teaches; the second has what the first lacks."""
    eta = config.phase2.eta
    return [
        ("phase1", CONTROL),
        (CONTROL, f"detailed_eta{eta}"),
        ("no_continuations", f"detailed_eta{eta}"),
        (f"detailed_eta{eta}", "score"),
        (f"detailed_eta{eta}", f"detailed_eta{eta}_turns"),
        (f"binary_eta{eta}_turns", f"detailed_eta{eta}_turns"),
    ]


def ablation_results(
    config: PddlInstructConfig, runs: Sequence[tuple[str, RunSoFar[PddlInstructConfig]]], command: str
) -> AblationResults:
    """Return the figures of all runs so far, each given with the name of its variant, and of the arms that they have.

    An arm before the first difference is one and the same in several variants; it counts once.
    """
    named = {variant.name: variant for variant in variants(config)}
    found: dict[tuple[str, int, int | None], ArmRun] = {}
    for name, run in runs:
        for arm in _arm_runs(named[name], run):
            found.setdefault((arm.arm, arm.seed, arm.iteration), arm)
    tried = {arm.arm for arm in found.values()}
    return summarise_ablation(
        config.name,
        [arm for arm in ablation_arms(config) if arm.id in tried],
        list(found.values()),
        model=config.model.folder or f"a model from nothing, {config.model.n_layers} x {config.model.hidden_size}",
        contrasts=contrasts(config),
        **made_with(config, command),
    )


def _arm_runs(variant: ArmVariant, run: RunSoFar[PddlInstructConfig]) -> Iterator[ArmRun]:
    """Yield what the arms of one run reached: those that are arms of the ablation, and every iteration."""
    seed = run.config.seed
    for arm in (*arms_of(run), after_turns(run)):
        if arm is None or arm.name == FINAL:
            continue
        evaluated = tuple(evaluated_problems(arm))
        if arm.name in variant.arm_of:
            yield ArmRun(variant.arm_of[arm.name], seed, evaluated)
        iteration = arm.verdicts.manifest.provenance.iteration
        if iteration and arm.turns is None:
            loop = CONTROL if arm.name.startswith(CONTROL) else variant.loop
            yield ArmRun(loop, seed, evaluated, iteration=iteration)
