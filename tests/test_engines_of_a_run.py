"""How prompts are shared out among the engines of a run, which are stand-ins, and their answers put together."""

from __future__ import annotations
