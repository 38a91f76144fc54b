"""How good a policy is: figures of an arm, error classes, paired tests, and the report about a run.

Nothing is imported here on purpose: `report` pulls in matplotlib and jinja2, which the rest does not need.
"""
