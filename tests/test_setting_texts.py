"""Every setting that a user can give says what it is, where it stands."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import plansmith.config
from plansmith.config.basics import StrictModel

MODULES = (
    *(f"plansmith.config.{module.name}" for module in pkgutil.iter_modules(plansmith.config.__path__)),
    "cluster.service.args",
    "cluster.service.http",
)
"""Where settings of runs, datasets and domain folders stand, those of the service, and the fields of its requests."""


def settings_classes(kind: type[StrictModel] = StrictModel) -> Iterator[type[StrictModel]]:
    """Yield every class of settings in those modules."""
    for module in MODULES:
        importlib.import_module(module)
    for below in kind.__subclasses__():
        if below.__module__ in MODULES:
            yield below
        yield from settings_classes(below)


def fields() -> list[tuple[str, str | None]]:
    """Return every field with its text, a class that inherits it left out."""
    return [
        (f"{kind.__module__}.{kind.__name__}.{name}", field.description)
        for kind in sorted(set(settings_classes()), key=lambda kind: (kind.__module__, kind.__name__))
        for name, field in kind.model_fields.items()
        if name in kind.__annotations__
    ]


def test_settings_are_found_in_every_module_that_has_some() -> None:
    found = {name.rpartition(".")[0].rpartition(".")[2] for name, _ in fields()}
    assert {"PddlInstructConfig", "OptimiserConfig", "DatasetConfig", "InitRule", "LimitArgs", "PlanBody"} <= found
    assert len(fields()) > 200


def test_every_setting_has_a_text_that_says_what_it_is() -> None:
    assert [name for name, text in fields() if not text] == [], "a docstring under the field: what, unit, 0 or None"
