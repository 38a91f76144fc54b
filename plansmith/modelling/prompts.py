"""The prompts of NL2Plan's steps, in our own words around Logistics; they stand as Jinja files in `templates/`.

As in the paper (sections "Prompting and Feedback", appendix C) each shows one example with a solution, feedback that is
right in part, and a corrected solution; those for feedback show two flawed answers and one that is accepted, and every
item of the checklists of appendix D fails in one of them. Bare ones, for models that were trained on the steps, give
the text first, its sentences numbered, and say what is wanted at the end, in a word or by the numbers of the paragraph
where it is said: all about a text begin alike.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import get_args

from jinja2 import Environment, PackageLoader, StrictUndefined

from plansmith.config.modelling import Prompts
from plansmith.modelling.reading import Fault
from plansmith.modelling.sentences import numbered, quoted_place

_FOLDER = "templates"
OPENING = 60
"""Characters of its first line by which a prompt differs from the others."""


@functools.cache
def _environment() -> Environment:
    loader = PackageLoader("plansmith.modelling", _FOLDER)
    made = Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True, autoescape=False)  # noqa: S701
    made.filters |= {own.__name__: own for own in (numbered, quoted_place)}
    return made


def prompt(name: str, **values: str) -> str:
    """Return a prompt; what it must be told is what its file names."""
    return _environment().get_template(f"{name}.j2").render(values).strip() + "\n"


def step_prompt(style: Prompts, name: str, **values: str) -> str:
    """Return what asks for a step, or for feedback on it."""
    return prompt(f"{style}/{name}", **values)


def form_prompt(fields: Mapping[str, str]) -> str:
    """Return what asks for JSON with some fields, each with what it holds."""
    return _environment().get_template("form.j2").render(fields=fields).strip() + "\n"


def advice_turn(advice: str) -> str:
    """Return what hands advice back."""
    return prompt("advice", advice=advice.strip())


def faults_turn(faults: Iterable[Fault]) -> str:
    """Return what hands an answer's faults back."""
    return _environment().get_template("faults.j2").render(faults=list(faults)).strip() + "\n"


def planner_turn(obstacles: Iterable[str]) -> str:
    """Return what hands back why there is no plan."""
    return _environment().get_template("planner.j2").render(obstacles=list(obstacles)).strip() + "\n"


def growth_turn(text: str, lacks: Iterable[str]) -> str:
    """Return what asks for what a further task needs and a domain lacks."""
    return _environment().get_template("growth.j2").render(text=text, lacks=list(lacks)).strip() + "\n"


@functools.cache
def prompts_digest() -> str:
    """Return a hash of all prompts: answers to other prompts are other answers."""
    folder = files("plansmith.modelling") / _FOLDER
    folders = (folder, *(folder / style for style in get_args(Prompts)))
    found = (file for each in folders for file in each.iterdir() if file.is_file())
    texts = sorted((str(file).removeprefix(str(folder)), file.read_text(encoding="utf-8")) for file in found)
    return hashlib.sha256(repr(texts).encode()).hexdigest()


@functools.cache
def opening(name: str) -> str:
    """Return how the worked prompt of a step, or for feedback on it, begins, by which it is recognised."""
    text = (files("plansmith.modelling") / _FOLDER / "worked" / f"{name}.j2").read_text(encoding="utf-8")
    return text.partition("\n")[0][:OPENING]
