"""Several seeds of `generalization_gap`: every arm in domains trained on, in others, and in invented ones held out.

Not here: tables, plot and sentences (`seeds_report`), the figures of one run (`plansmith.report.gap_results`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from plansmith.ablation.seeds import SeedsResults, over_seeds, tried_in
from plansmith.ablation.summary import made_with, tests_in_scopes
from plansmith.config.generalization_gap import GeneralizationGapConfig
from plansmith.report.finished_stages import RunSoFar
from plansmith.report.gap_results import HELD_OUT, SEEN, UNSEEN, compared_arms, scope_of
from plansmith.report.metrics import EvaluatedProblem


def gap_seeds_results(name: str, runs: Sequence[RunSoFar[GeneralizationGapConfig]], command: str) -> SeedsResults:
    """Return the figures of finished runs that differ in their seeds; the tests are those of each run, pooled.

    What a run is about comes first among the tests: domains never trained on where policies read them.
    """
    tried = tried_in(runs)
    config = runs[0].config
    arms = list(dict.fromkeys(run.arm for run in tried))
    order = (UNSEEN, HELD_OUT, SEEN) if config.reading is not None else (SEEN, UNSEEN)
    scopes = {
        scope: partial(_is_in, config, scope)
        for scope in order
        if any(scope_of(item, config) == scope for run in tried for item in run.evaluated)
    }
    tests = tests_in_scopes(tried, compared_arms(arms, config.start_of_grpo), scopes)
    return over_seeds(name, tried, arms, scopes, tests, preset=runs[0].preset, **made_with(config, command))


def _is_in(config: GeneralizationGapConfig, scope: str, item: EvaluatedProblem) -> bool:
    return scope_of(item, config) == scope
