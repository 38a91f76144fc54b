"""Which code decides what a stage makes, as a digest by module: part of the stage's key (`plansmith.stages`).

Counted are the definitions (functions, classes, constants) that a body reaches by name, from definition to definition,
within the rooms that decide content. Comments, docstrings and layout do not count, nor does what moves rows and files
about. What a body reaches only through its run's resources, such as the optimisation loop, a stage names
(`Stage.code_roots`); what is found by a name at run time belongs to a setting, as a domain's digest holds its sampler.

Read from the source with `ast`; nothing is imported.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

COUNTED = (
    "plansmith.pddl", "plansmith.planners", "plansmith.problems", "plansmith.text", "plansmith.data",
    "plansmith.judging", "plansmith.modelling", "plansmith.learning", "plansmith.invented", "actors", "pipelines",
)  # fmt: skip
"""Rooms whose code decides content; the values of settings are in the key themselves."""

PLUMBING = (
    "plansmith.data.artifacts", "plansmith.data.parts", "plansmith.data.storage", "plansmith.data.tables",
    "plansmith.learning.checkpoints", "actors.failures", "actors.mapping", "actors.telemetry",
)  # fmt: skip
"""What in them moves rows and files about."""

Definition = tuple[str, str]
"""A module and a name that it defines at its top."""


def code_of(*roots: Callable[..., Any] | str) -> dict[str, str]:
    """Return the digest of the code that some definitions reach, by module; nothing of modules that do not count.

    Args:
        roots: functions, classes, partial applications of them, or dotted names such as
            ``plansmith.learning.optimisation.run_optimisation``; of something nested, what it is nested in.

    Raises:
        ValueError: a dotted name that stands for nothing.
    """
    reached: dict[Definition, str] = {}
    todo = [_definition_of(root) for root in roots]
    while todo:
        definition = todo.pop()
        if definition in reached or not _is_counted(definition[0]):
            continue
        reached[definition] = _digest(definition)
        todo += _references(definition)
    modules = sorted({module for module, _ in reached})
    return {
        module: _joined(digest for (of, _), digest in sorted(reached.items()) if of == module) for module in modules
    }


def _definition_of(root: Callable[..., Any] | str) -> Definition:
    if isinstance(root, str):
        module, _, name = root.rpartition(".")
        found = _module(module)
        if found is None or name not in {*found.definitions, *found.imports}:
            raise ValueError(f"no code is named {root!r}")
        return module, name
    if isinstance(root, functools.partial):
        return _definition_of(root.func)
    kind = root if hasattr(root, "__qualname__") else type(root)
    return str(kind.__module__), str(kind.__qualname__).partition(".")[0]


def _is_counted(module: str) -> bool:
    return _is_within(module, COUNTED) and not _is_within(module, PLUMBING)


def _is_within(module: str, packages: Iterable[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


@dataclass
class _Module:
    """The top of a module: what each name is defined by, and what each imported name stands for."""

    definitions: dict[str, list[ast.stmt]] = field(default_factory=dict)
    imports: dict[str, Definition] = field(default_factory=dict)


@functools.cache
def _module(name: str) -> _Module | None:
    """Return a module of ours, or None where there is none of that name."""
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        return None
    found = _Module()
    for statement in _statements(ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body):
        if isinstance(statement, ast.Import | ast.ImportFrom):
            found.imports |= _imported(statement)
        for defined in _names_defined(statement):
            found.definitions.setdefault(defined, []).append(statement)
    return found


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module's top, those under conditions too."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try):
            yield from _statements([*statement.body, *statement.orelse])


def _names_defined(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return [node.id for target in targets if target for node in ast.walk(target) if isinstance(node, ast.Name)]


def _imported(statement: ast.Import | ast.ImportFrom) -> dict[str, Definition]:
    """Return what imported names stand for; a module has no second part."""
    if isinstance(statement, ast.Import):
        return {alias.asname: (alias.name, "") for alias in statement.names if alias.asname}
    base = statement.module or ""
    return {alias.asname or alias.name: (base, alias.name) for alias in statement.names}


@functools.cache
def _digest(definition: Definition) -> str:
    module, name = definition
    found = _module(module)
    statements = found.definitions.get(name, []) if found else []
    return _joined([name, *(ast.dump(_without_docstrings(statement)) for statement in statements)])


def _joined(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _without_docstrings(statement: ast.stmt) -> ast.stmt:
    """Return the statement with every text that is only said and not used taken out."""
    for node in ast.walk(statement):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [item for item in body if not _is_text(item)]  # type: ignore[attr-defined]
    return statement


def _is_text(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


@functools.cache
def _references(definition: Definition) -> tuple[Definition, ...]:
    """Return the definitions of ours that one names: those of its module, and what it or its module imports."""
    module, name = definition
    found = _module(module)
    if found is None:
        return ()
    if name in found.imports and name not in found.definitions:  # handed on from another module
        return tuple(_resolved(*found.imports[name]))
    nodes = [node for statement in found.definitions.get(name, []) for node in ast.walk(statement)]
    inner = [_imported(node) for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    imports = functools.reduce(lambda known, more: known | more, inner, found.imports)
    named: list[Definition] = []
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in imports:
            named += _resolved(*imports[node.value.id], attribute=node.attr)
        elif isinstance(node, ast.Name) and node.id in imports:
            named += _resolved(*imports[node.id])
        elif isinstance(node, ast.Name) and node.id in found.definitions:
            named.append((module, node.id))
    return tuple(named)


def _resolved(module: str, name: str, *, attribute: str | None = None) -> list[Definition]:
    """Return the definition that an imported name stands for, or of a module the one that is asked of it."""
    if not _is_within(module, COUNTED) and not _is_within(f"{module}.{name}", COUNTED):
        return []
    inner = f"{module}.{name}" if name else module
    found = _module(module)
    if name and found is not None and (name in found.definitions or name in found.imports):
        return [(module, name)]
    return [(inner, attribute)] if attribute else []
