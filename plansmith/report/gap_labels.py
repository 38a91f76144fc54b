"""What a label is worth: policies tuned on shares of the plans, each before and after reinforcement on the rest.

Not here: the figures of these arms (`gap_results`), the table (`gap_tables`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from plansmith.data.artifacts import StageKind
from plansmith.report.arms import Arm
from plansmith.report.finished_stages import RunSoFar

LABELLED = "labelled"
"""Table of the problems whose plans a share has."""


@dataclass(frozen=True, slots=True)
class LabelShare:
    """A share of the plans, and the arms that it leads to: ``tuned`` on these plans, then ``reinforced``.

    ``n_rest`` counts the other problems of D1. ``reinforced`` is None where it was left out, or is yet to come.
    """

    share: float
    n_plans: int
    n_rest: int
    tuned: str
    reinforced: str | None = None


def label_shares(run: RunSoFar[Any], arms: Sequence[Arm]) -> Iterator[LabelShare]:
    """Yield the shares of a run whose tuned policy was judged, in the run's order."""
    for stage in run.stages(StageKind.SHARES_LABELS):
        read_as = {
            name: arm.name
            for arm in arms
            for name, key in arm.policy.manifest.provenance.inputs.items()
            if key == stage.artifact.key
        }
        n_rest, n_plans = (stage.artifact.manifest.files[f"{table}.parquet"].n_rows for table in ("rows", LABELLED))
        if "labels" in read_as:
            yield LabelShare(
                share=stage.provenance.settings["share"],
                n_plans=n_plans or 0,
                n_rest=n_rest or 0,
                tuned=read_as["labels"],
                reinforced=read_as.get("problems"),
            )
