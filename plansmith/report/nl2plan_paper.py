"""What NL2Plan reports, copied from its tables, to be put beside our own figures.

Source: arXiv 2405.04215, tables 1 and 2, and the sections "Automatic Feedback" and "Automatic Validation"; GPT-4, one
run of each task.
"""

from __future__ import annotations

TABLE_1 = {
    "blocksworld-easy": ("✓", "✓"), "blocksworld-medium": ("✗", "✓"), "blocksworld-hard": ("✗", "✓"),
    "tyreworld-easy": ("~", "✓"), "tyreworld-medium": ("✓", "✓"), "tyreworld-hard": ("✗", "✗"),
    "household-easy": ("~", "✓"), "household-medium": ("✗", "✗"), "household-hard": ("✗", "✗"),
    "isr-easy": ("✗", "✓"), "isr-medium": ("✗", "✗"), "isr-hard": ("✗", "✗"),
    "isr-assisted-easy": ("✗", "✓"), "isr-assisted-medium": ("✗", "✓"), "isr-assisted-hard": ("✗", "✓"),
}  # fmt: skip
"""Zero-shot chain of thought and NL2Plan by task; ~ is a questionable plan."""
STEPS = ("zero_shot", "types", "hierarchy", "actions", "construction", "task")
TABLE_2 = {
    "blocksworld": (314, 5669, 2640, 5261, 50866, 7409),
    "tyreworld": (612, 3475, 3012, 5549, 88738, 12315),
    "household": (841, 4424, 4012, 7089, 160205, 23334),
    "isr": (647, 5657, 4638, 8412, 29793, 11676),
    "isr-assisted": (735, 6160, 4884, 5411, 30567, 17443),
}
"""Tokens, input and output together, by domain and step, as the mean over the tasks for which the step was taken."""
SHARES = {
    "actions with an error (step 4)": 77.8,
    "tasks with an error (step 5)": 13.3,
    "actions with advice (step 4)": 52.8,
    "advice that is harmful (step 4)": 21.1,
    "tasks with advice (step 5)": 53.3,
    "advice that is harmful (step 5)": 25.0,
    "failures that end with no plan found": 40.0,
    "invalid types that advice removes (step 1)": 88.2,
}
"""Percent; an action counts once in each pass."""
COMMON_FAULTS = {"construction": "invalid arguments of predicates", "task": "objects called like a type"}
"""What most error messages are about, by step."""
