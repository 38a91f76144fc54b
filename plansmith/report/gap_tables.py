"""The tables about one run of `generalization_gap`, in the shapes of the paper's, its figures beside ours in brackets.

Not here: the sentences beside them (`gap_report`).
"""

from __future__ import annotations

from plansmith.judging.taxonomy import ErrorClass
from plansmith.report.gap_paper import AVERAGES, UNSEEN, paper_share
from plansmith.report.gap_results import GapArm, GapResults
from plansmith.report.metrics import LevelFigures
from plansmith.report.sections import Table
from plansmith.report.tables import ERROR_COLUMNS
from plansmith.report.wording import interval, number_or_dash, percent, spoken

PAPER_NAMES = {"numbered": "B", "anonymised": "v1", "compact": "v2", "grpo": "v3"}
"""What the paper calls our arms, by how their names begin."""
OTHERS = "In brackets the paper's, of Qwen3-1.7B on test problems of its own."


def arm_name(name: str) -> str:
    """Return an arm's name with the paper's: ``compact_1`` is "compact 1 (v2)"."""
    paper = PAPER_NAMES.get(name.partition("_")[0])
    return f"{spoken(name)} ({paper})" if paper else spoken(name)


def arm_table(results: GapResults) -> Table:
    """Return every arm on the domains that were trained on, and on those that were not."""
    rows = [(arm_name(name), *_seen_cells(arm), *_unseen_cells(arm)) for name, arm in results.arms.items()]
    header = ("policy", "n", "valid plans", "95% interval", "n, never trained on", "valid plans", "95% interval")
    return Table("All test problems", header, tuple(rows), OTHERS, is_last_strong=True)


def _seen_cells(arm: GapArm) -> tuple[str, ...]:
    return str(arm.seen.n), _beside(arm.seen.accuracy, AVERAGES.get(arm.name)), interval(arm.seen.ci95)


def _unseen_cells(arm: GapArm) -> tuple[str, ...]:
    if arm.unseen is None:
        return ("-",) * 3
    told = UNSEEN if arm.name in AVERAGES else None
    return str(arm.unseen.n), _beside(arm.unseen.accuracy, told), interval(arm.unseen.ci95)


def domain_table(results: GapResults) -> Table:
    """Return valid plans by domain and arm (table 3); the domains never trained on stand below the others."""
    rows = []
    for domain in results.domains:
        is_seen = domain in results.trained_domains
        cells = [
            _beside(arm.by_domain[domain].accuracy, paper_share(name, domain)) for name, arm in results.arms.items()
        ]
        n = str(results.last.by_domain[domain].n)
        rows.append((domain if is_seen else f"{domain}, never trained on", n, *cells))
    note = f"Valid plans, in percent, all levels of a domain together: the paper's table 3. {OTHERS}"
    return Table("By domain", ("domain", "n", *map(arm_name, results.arms)), tuple(rows), note)


def unseen_table(results: GapResults) -> Table:
    """Return what becomes of attempts in domains never trained on: valid by plan length, and failures by kind."""
    arms = {name: arm for name, arm in results.arms.items() if arm.unseen is not None}
    lengths = sorted({length for arm in arms.values() for length in arm.by_length})
    rows = [(arm_name(name), *_failure_cells(arm), *_length_cells(arm, lengths)) for name, arm in arms.items()]
    header = ("policy", *ERROR_COLUMNS, "progress", *(f"{length} steps" for length in lengths))
    note = (
        "Failed attempts by root cause; progress: share of the goal that holds before the first wrong action, mean of "
        "all attempts; then valid of tried, by the steps of the planner's plan."
    )
    return Table("In domains never trained on", header, tuple(rows), note)


def _failure_cells(arm: GapArm) -> tuple[str, ...]:
    assert arm.unseen is not None, "only arms that tried unseen domains are shown"
    return (*(str(arm.unseen.errors[kind]) for kind in ErrorClass), number_or_dash(arm.unseen.mean_progress, 2))


def _length_cells(arm: GapArm, lengths: list[int]) -> tuple[str, ...]:
    def cell(found: LevelFigures | None) -> str:
        return "-" if found is None else f"{found.n_valid}/{found.n}"

    return tuple(cell(arm.by_length.get(length)) for length in lengths)


def training_table(results: GapResults) -> Table:
    """Return how each variant was trained (table 2)."""
    config = results.config
    sft, grpo = config["sft"], config["grpo"]
    shown = {
        "learning rate": "learning_rate", "schedule": "schedule", "sequences a batch": "batch_sequences",
        "tokens a batch": "batch_tokens", "epochs": "epochs", "rollouts a problem": "rollouts_per_problem",
        "problems an update": "problems_per_update", "updates": "updates", "temperature": "temperature",
        "top-p": "top_p", "top-k": "top_k",
    }  # fmt: skip

    def cells(settings: dict[str, object]) -> tuple[str, ...]:
        return tuple("-" if settings.get(name) is None else str(settings[name]) for name in shown.values())

    rows = [("B, v1, v2 (by likelihood)", *cells(sft))] + ([("v3 (GRPO)", *cells(grpo))] if grpo else [])
    length = config["trainer"]["row_length_tokens"]
    note = f"The paper's table 2. Longest sequence: {length} tokens."
    return Table("Training", ("variant", *shown), tuple(rows), note)


def cost_table(results: GapResults) -> Table:
    """Return what the run cost, by kind of work."""
    total = sum(results.cost_s.values())
    rows = [(name, f"{seconds:.1f}", percent(seconds / total)) for name, seconds in results.cost_s.items()]
    note = "Wall time of the stages of each kind; trying and judging in reinforcement learning are part of training."
    return Table("Cost", ("work", "seconds", "share"), tuple(rows), note)


def _beside(share: float, paper: float | None) -> str:
    return percent(share) if paper is None else f"{percent(share)} ({paper:g})"
