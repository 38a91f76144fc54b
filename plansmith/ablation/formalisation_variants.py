"""Every arm of NL-PDDL-Bench as runs of its pipeline: one with all controls, and one for each other kind of negatives.

The runs of a seed share every artifact up to supervised fine-tuning, and the perturbed problems that `paper` and
`faithful` choose their pairs from. Not here: what becomes of their answers (`formalisation_summary`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import get_args

from plansmith.ablation.formalisation_summary import (
    ArmRun,
    FormalisationSummary,
    PlanArmRun,
    TextArmRun,
    summarise_text_runs,
)
from plansmith.ablation.summary import made_with
from plansmith.config.nl_pddl_bench import DpoConfig, Negatives, NlPddlBenchConfig
from plansmith.errors import ConfigError
from plansmith.pipeline import Variant
from plansmith.report.direct_plans import learnt_levels, planned_texts
from plansmith.report.finished_stages import RunSoFar
from plansmith.report.formalisation_arms import DIRECT, PREFERRING, text_arms
from plansmith.report.formalisation_metrics import Novelty, trained_on
from plansmith.report.formalisation_results import pair_readings
from plansmith.report.preference_metrics import preferred

Run = RunSoFar[NlPddlBenchConfig]


def text_variants(config: NlPddlBenchConfig) -> list[Variant[NlPddlBenchConfig]]:
    """Return the runs that have all arms, each named after its negatives; the settings' own come first.

    That one has the controls, too: the untrained policy, `sft_longer`, answers without feedback, and where the settings
    ask for them direct plans and the grammar. The others leave out what it has.

    Raises:
        ConfigError: `dpo` or its control is not set.
    """
    if config.dpo is None or config.sft_longer is None:
        missing = [name for name in ("dpo", "sft_longer") if getattr(config, name) is None]
        raise ConfigError("the ablation compares preference optimisation with as much more fine-tuning",
                          where=" and ".join(missing), got="not set", expected="the settings of an optimiser",
                          cure="take the preset laptop, which has both, or set them as it does")  # fmt: skip
    own = config.dpo.pairs.negatives
    others = [kind for kind in get_args(Negatives) if kind != own]
    alone = _with_controls(config.model_copy(update={"sft_longer": None, "has_direct_plans": False}), is_on=False)
    return [
        Variant(own, _with_controls(config, is_on=True)),
        *(Variant(kind, alone.model_copy(update={"dpo": _with_negatives(config.dpo, kind)})) for kind in others),
    ]


def _with_controls(config: NlPddlBenchConfig, *, is_on: bool) -> NlPddlBenchConfig:
    """Return settings with or without the untrained policy and the answers without feedback; without, no grammar."""
    repair = config.repair.model_copy(update={"has_resampling": is_on})
    tries_grammar = is_on and config.evaluation.tries_grammar
    evaluation = config.evaluation.model_copy(update={"tries_untrained": is_on, "tries_grammar": tries_grammar})
    return config.model_copy(update={"repair": repair, "evaluation": evaluation})


def _with_negatives(dpo: DpoConfig, kind: Negatives) -> DpoConfig:
    return dpo.model_copy(update={"pairs": dpo.pairs.model_copy(update={"negatives": kind})})


def text_ablation_results(
    config: NlPddlBenchConfig, runs: Sequence[tuple[str, Run]], command: str
) -> FormalisationSummary:
    """Return the figures of all runs so far, each given with the name of its variant: ``dpo_paper`` is its `dpo`."""
    return _summary(config.name, [(f"{PREFERRING}_{variant}", run) for variant, run in runs], command)


def text_seeds_results(name: str, runs: Sequence[Run], command: str) -> FormalisationSummary:
    """Return the figures of finished runs that differ in their seeds."""
    return _summary(name, [(PREFERRING, run) for run in runs], command)


def _summary(name: str, runs: Sequence[tuple[str, Run]], command: str) -> FormalisationSummary:
    return summarise_text_runs(name, read_arms(runs), **made_with(runs[0][1].config, command))


def read_arms(runs: Iterable[tuple[str, Run]]) -> list[ArmRun]:
    """Return the arms of runs, each run given with what its policy after preference optimisation is called.

    An arm before that is one and the same in several variants; it counts once. Texts of levels that were not trained on
    stand apart.
    """
    found: dict[tuple[str, int], ArmRun] = {}
    for tuned, run in runs:
        level_names = {level.name: level.level for level in run.config.problems.domains}
        pairs = {arm: preferred(rows, problem_of) for arm, rows, problem_of in pair_readings(run)}
        for arm in text_arms(run):
            is_tuned = arm.name.startswith(PREFERRING)
            name = f"{tuned}{arm.name.removeprefix(PREFERRING)}" if is_tuned else arm.name
            if (name, run.config.seed) not in found:
                answered, told = arm.answered(level_names), tuple(pairs.get(arm.name, ()))
                texts = tuple(trained_on(answered))
                others = tuple(text for text in answered if text.novelty is not Novelty.TRAINED)
                found[name, run.config.seed] = TextArmRun(name, run.config.seed, texts, told, others)
        if planned := learnt_levels(planned_texts(run)):
            solved = {text.problem_id: text.tried for text in planned}
            found.setdefault((DIRECT, run.config.seed), PlanArmRun(DIRECT, run.config.seed, solved))
    return list(found.values())
