"""Which policy a run keeps: the last, or the best on a probe set, on which the loop can also end early."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from statistics import fmean

from pipelines.run.workers import MODEL, PROBE
from plansmith.config.basics import StrictModel
from plansmith.data.artifacts import Artifact
from plansmith.data.rows import VerdictRow
from plansmith.data.storage import link_folder
from plansmith.report.arms import CHOSEN
from plansmith.stages import StageContext


def is_still_gaining(done: Mapping[str, Artifact], *, iteration: int, patience: int) -> bool:
    """Return whether iteration t is worth its while: one of the last ``patience`` iterations was the best so far."""
    accuracies = probe_accuracies(done, range(iteration))
    return iteration - 1 - best_iteration(accuracies) < patience


def probe_accuracies(judged: Mapping[str, Artifact], iterations: Iterable[int]) -> dict[int, float]:
    """Return the share of the probe set that the policy of each iteration solved."""
    return {t: fmean(row.is_valid for row in judged[f"judge_probe_{t}"].rows(VerdictRow)) for t in iterations}


def best_iteration(accuracies: Mapping[int, float]) -> int:
    """Return the first iteration of the greatest accuracy."""
    return max(accuracies, key=lambda t: (accuracies[t], -t))


class KeepingSettings(StrictModel):
    """What decides how many iterations there are to choose from."""

    patience: int
    """The run's own; 0 keeps the last."""


def keep_policy(context: StageContext[KeepingSettings]) -> None:
    """Keep the last policy, or with a probe set the best; its weights are linked, not copied."""
    policies = {int(name.removeprefix("policy_")): name for name in context.inputs if name.startswith("policy_")}
    probes = {f"judge_{name}": artifact for name, artifact in context.inputs.items() if name.startswith("probe_")}
    accuracies = probe_accuracies(probes, [int(name.removeprefix("judge_probe_")) for name in probes])
    chosen = best_iteration(accuracies) if accuracies else max(policies)
    source = context.inputs[policies[chosen]]
    link_folder(source.path(MODEL), context.output.path(MODEL))
    shutil.copy(source.path(PROBE), context.output.path(PROBE))
    record = {"iteration": chosen, "probe_accuracy": accuracies}
    context.output.path(CHOSEN).write_text(json.dumps(record), encoding="utf-8")
