"""The planning language: model, parser, printer, states, grounding, validation. Knows nothing of the other packages."""
