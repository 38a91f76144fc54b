"""What Self-CriTeach reports, copied from its tables, to be put beside our own figures.

Source: tables 1 to 3 and 5 to 9; Qwen3-4B-Instruct-2507 and Llama-3.1-8B, one run, tests of its own. "Overall" is
the paper's: for SCT-4B and the base it is the mean over the seven sets; for the vote and CPO alone it is neither that
(0.30, 0.33) nor the mean of the six columns (0.34, 0.36).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TASKS = (
    "blocks-classic", "blocks-hard", "blocks-align", "prepare-experiment", "reorganize-room", "machine-parts-assembly"
)  # fmt: skip
"""The columns of tables 5 to 9 as our domains are named."""
CLASSIC, SEVEN_SETS = "blocks-classic", "the seven sets"
"""The column that "Overall" leaves out, and what it is over: 1,400 problems."""
HARD, OF_HARD = "blocks-hard", ("blocks-stack", "blocks-unstack", "blocks-reorder")
"""The column of which the paper has three test sets (section A.2.1), and these; `HARD` itself draws all three."""


@dataclass(frozen=True, slots=True)
class Paper:
    """What the paper has for policies of one backbone.

    Attributes:
        backbone: the model that they began as.
        names: what it calls our arms; SFT followed by DPO is ours.
        success, progress, tokens: of an arm, by `TASKS`: shares of valid plans, progress scores, tokens of a plan.
        overall: the three of an arm over the seven sets.
    """

    backbone: str
    names: Mapping[str, str]
    success: Mapping[str, Sequence[float]]
    progress: Mapping[str, Sequence[float]]
    tokens: Mapping[str, Sequence[float]]
    overall: Mapping[str, tuple[float, float, int]]


QWEN = Paper(
    "Qwen3-4B-Instruct-2507",
    names={
        "base": "Qwen3-4B",
        "vote": "Majority Vote",
        "prompt_cot": "Prompt-CoT",
        "self_distilled": "Self-Distill",
        "distilled": "30B-Distill",
        "symbol": "SCT Symbol",
        "sft": "SCT SFT",
        "cpo_only": "SCT CPO",
        "dpo_only": "SCT DPO",
        "sft_cpo": "SCT-4B",
    },
    success={
        "sft_cpo": (0.60, 0.45, 0.75, 0.45, 0.18, 0.50),
        "vote": (0.46, 0.26, 0.49, 0.30, 0.15, 0.39),
        "distilled": (0.50, 0.31, 0.74, 0.23, 0.16, 0.49),
        "self_distilled": (0.45, 0.23, 0.44, 0.25, 0.13, 0.35),
        "prompt_cot": (0.43, 0.22, 0.45, 0.24, 0.12, 0.33),
        "sft": (0.58, 0.41, 0.67, 0.42, 0.17, 0.49),
        "cpo_only": (0.52, 0.33, 0.52, 0.29, 0.17, 0.35),
        "dpo_only": (0.47, 0.27, 0.49, 0.27, 0.16, 0.36),
        "symbol": (0.54, 0.34, 0.84, 0.16, 0.14, 0.50),
        "base": (0.41, 0.24, 0.42, 0.24, 0.12, 0.34),
    },
    progress={
        "sft_cpo": (0.94, 0.76, 0.95, 0.70, 0.65, 0.84),
        "vote": (0.75, 0.59, 0.81, 0.62, 0.55, 0.64),
        "distilled": (0.71, 0.46, 0.92, 0.41, 0.40, 0.68),
        "self_distilled": (0.71, 0.55, 0.75, 0.57, 0.52, 0.62),
        "prompt_cot": (0.72, 0.57, 0.78, 0.59, 0.54, 0.64),
        "sft": (0.80, 0.63, 0.91, 0.66, 0.51, 0.74),
        "cpo_only": (0.85, 0.66, 0.88, 0.61, 0.59, 0.74),
        "dpo_only": (0.82, 0.63, 0.86, 0.59, 0.58, 0.72),
        "symbol": (0.79, 0.58, 0.98, 0.44, 0.46, 0.71),
        "base": (0.73, 0.58, 0.72, 0.52, 0.52, 0.63),
    },
    tokens={
        "sft_cpo": (5521, 8437, 5298, 7654, 8312, 6341),
        "vote": (21856, 34192, 20834, 31024, 32576, 25712),
        "distilled": (9101, 10785, 5558, 10624, 10788, 7560),
        "self_distilled": (5895, 8723, 5412, 7891, 8567, 6589),
        "prompt_cot": (7234, 9845, 6123, 9034, 9512, 7856),
        "sft": (5536, 8448, 5391, 7686, 8348, 6316),
        "cpo_only": (5042, 6345, 4650, 5887, 6795, 5610),
        "dpo_only": (5610, 8572, 5413, 7792, 8390, 6203),
        "symbol": (7689, 10328, 4483, 10876, 9908, 7494),
        "base": (8409, 9963, 6657, 8319, 9323, 8316),
    },
    overall={
        "sft_cpo": (0.46, 0.76, 7543),
        "vote": (0.32, 0.66, 29864),
        "self_distilled": (0.28, 0.62, 7698),
        "distilled": (0.36, 0.54, 9555),
        "prompt_cot": (0.27, 0.64, 8694),
        "sft": (0.43, 0.67, 7584),
        "cpo_only": (0.31, 0.69, 6012),
        "dpo_only": (0.29, 0.67, 7621),
        "symbol": (0.38, 0.62, 9107),
        "base": (0.26, 0.59, 8929),
    },
)
"""Tables 5 to 7; of a vote the tokens of all answers count."""

LLAMA = Paper(
    "Llama-3.1-8B",
    names={"base": "Llama-3.1-8B", "sft_cpo": "SCT-Llama-8B"},
    success={
        "sft_cpo": (0.427, 0.351, 0.642, 0.032, 0.048, 0.132),
        "base": (0.005, 0.003, 0.013, 0.000, 0.000, 0.000),
    },
    progress={
        "sft_cpo": (0.837, 0.785, 0.932, 0.463, 0.512, 0.775),
        "base": (0.538, 0.463, 0.800, 0.447, 0.484, 0.462),
    },
    tokens={"sft_cpo": (5912, 8234, 5567, 7823, 8156, 6512), "base": (8234, 9156, 6387, 8412, 8876, 8234)},
    overall={"sft_cpo": (0.277, 0.716, 7534), "base": (0.003, 0.512, 8523)},
)
"""Tables 8 and 9; tokens of table 7."""


def paper_of(folder: str | None) -> Paper:
    """Return what the paper has beside a run whose base model is in a folder, or has a name; None is from nothing."""
    return LLAMA if "llama" in Path(folder or "").name.lower() else QWEN


def paper_figure(table: Mapping[str, Sequence[float]], arm: str, task: str) -> float | None:
    """Return what one of the paper's tables has for an arm in a task; None where it tells nothing."""
    return table[arm][TASKS.index(task)] if arm in table and task in TASKS else None


def paper_percent(table: Mapping[str, Sequence[float]], arm: str, task: str) -> float | None:
    """Return a share of such a table in percent."""
    share = paper_figure(table, arm, task)
    return None if share is None else 100 * share
