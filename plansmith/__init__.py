"""Plansmith's library: PDDL, planners, problems, text, tables, learning and evaluation.

Not here: Ray actors (`actors`), the papers' algorithms (`pipelines`), and anything that imports Ray, vLLM or DeepSpeed.
"""

__version__ = "0.1.0"
