"""How good a policy is: figures of an arm, paired tests, what a stage measured, and the report about a run.

Nothing is imported here on purpose: `render` pulls in matplotlib and jinja2, which the rest does not need.
"""
