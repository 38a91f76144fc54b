"""What "On the Generalization Gap in LLM Planning" reports, copied from its tables, to be put beside our own figures.

Source: arXiv 2601.14456, tables 1 to 3 and section 6. Qwen3-1.7B, one run; percentages of valid plans.
"""

from __future__ import annotations

LIMIT_TOKENS = 4096
"""The longest tuple that the paper trains on."""

TABLE_1 = {
    "ferry": (0, 2085),
    "floor-tile": (0, 3772),
    "blocksworld": (0, 2085),
    "childsnack": (0, 2573),
    "spanner": (0, 1198),
    "satellite": (0, 2708),
    "maintenance": (0, 1058),
    "parking": (12, 5319),
    "transport": (6, 4214),
    "miconic": (0, 2907),
}
"""Tuples of 4,000 that are longer, and the longest, in tokens of Qwen3."""

TABLE_2: dict[str, dict[str, float | str]] = {
    "sft": {"learning_rate": 1e-5, "schedule": "cosine", "batch_sequences": 16, "epochs": 3},
    "grpo": {"learning_rate": 5e-6, "schedule": "cosine", "problems_per_update": 8, "rollouts_per_problem": 3,
             "temperature": 0.5, "top_p": 0.95, "top_k": 1},
}  # fmt: skip
"""Settings of B, v1 and v2, and of v3, under our names; batches of 1 times accumulation: 16 sequences, and as we read
it 8 problems. The epochs are in section 4; the temperature of 0.01 is that of its tests."""

TABLE_3_ARMS = ("numbered_1", "numbered_2", "numbered_3", "anonymised", "compact_3", "grpo")
"""The columns of table 3 as we name them: B after one to three epochs, v1, v2, v3."""

TABLE_3 = {
    "ferry": (84, 95, 99, 96, 95, 92),
    "floor-tile": (99, 95, 100, 93, 73, 80),
    "blocksworld": (96, 50, 90, 100, 4, 92),
    "childsnack": (80, 89, 91, 90, 95, 88),
    "spanner": (58, 100, 100, 98, 100, 99),
    "satellite": (6, 10, 16, 13, 16, 34),
    "maintenance": (86, 94, 98, 0, 99, 98),
    "parking": (10, 50, 56, 45, 62, 14),
    "transport": (27, 79, 84, 86, 88, 91),
    "miconic": (74, 90, 95, 93, 90, 93),
}

AVERAGES = {
    "numbered_1": 62.0, "numbered_2": 75.2, "numbered_3": 82.9, "anonymised": 71.4, "compact_1": 51.9,
    "compact_3": 72.2, "grpo_1_of_2": 80.1, "grpo": 78.1,
}  # fmt: skip
"""Over all ten domains: the last row of table 3, and v2 after one epoch and v3 after half a one (section 6.3)."""

PAPER_UNSEEN = 0.0
"""Of every arm, in each of the two domains that were never trained on (section 6.2)."""


def paper_share(arm: str, domain: str) -> float | None:
    """Return what the paper has for an arm in a domain that it trained on; None where it tells nothing."""
    if arm not in TABLE_3_ARMS or domain not in TABLE_3:
        return None
    return TABLE_3[domain][TABLE_3_ARMS.index(arm)]
