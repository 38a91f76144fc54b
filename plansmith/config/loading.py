"""Presets and overrides to a checked config; every mistake is one clear message."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from plansmith.config.basics import SettingError
from plansmith.errors import ConfigError

ModelT = TypeVar("ModelT", bound=BaseModel)


def load_settings(model: type[ModelT], preset: str, folder: Path, *, overrides: Sequence[str] = ()) -> ModelT:
    """Return the settings of a preset with overrides applied.

    Args:
        model: what the preset describes.
        preset: name of a file in `folder` without its ending, or the path of a YAML file; its key ``base`` may name
            another preset that it changes.
        folder: where presets are kept.
        overrides: ``key.path=value`` each, the value read as YAML.

    Raises:
        ConfigError: no such preset, not YAML, an unknown key, a value out of bounds.
    """
    path = _preset_path(preset, folder)
    settings = _with_base(path, folder)
    for override in overrides:
        _apply_override(settings, override)
    return build_model(model, settings, where=str(path))


MAX_VALUES = 100_000
"""Values that settings may hold, counted as often as aliases repeat them: ten lines of YAML can stand for billions."""


def preset_names(folder: Path) -> list[str]:
    """Return the presets in a folder, by name."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file."""
    try:
        settings = _parsed(path.read_text(encoding="utf-8"), where=str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("cannot be read", where=str(path), got=str(error)) from error
    if not isinstance(settings, dict):
        raise ConfigError("not a mapping", where=str(path), got=type(settings).__name__, expected="key: value lines")
    return settings


def _parsed(text: str, *, where: str) -> Any:
    """Return what a YAML text holds, if its size, depth and numbers are those of settings."""
    try:
        settings = yaml.safe_load(text)
        n_values = _count_values(settings, {})
    except (yaml.YAMLError, ValueError) as error:  # of a number with thousands of digits
        raise ConfigError("not YAML", where=where, got=" ".join(str(error).split())[:300]) from error
    except RecursionError as error:
        raise ConfigError("nested too deeply, or within itself", where=where, expected="settings") from error
    if n_values > MAX_VALUES:
        raise ConfigError("too many values", where=where, got=f"{n_values:.3g}, aliases counted as they repeat",
                          expected=f"{MAX_VALUES} at most")  # fmt: skip
    return settings


def _count_values(value: Any, known: dict[int, int]) -> int:
    """Return how many values a value holds, itself included; each object is walked once."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        inner = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_count_values(part, known) for part in inner)
    return known[id(value)]


def build_model(model: type[ModelT], settings: Mapping[str, Any], *, where: str) -> ModelT:
    """Return checked settings of any kind; `where` names their source in errors.

    Raises:
        ConfigError: an unknown key, a missing one, a value out of bounds.
    """
    try:
        return model.model_validate(settings)
    except ValidationError as error:
        first, count = error.errors()[0], error.error_count()
        if first["type"] == "extra_forbidden":
            raise _unknown_key(model, first["loc"], where) from None
        raise _refused(model, first, where, more=f"; {count - 1} more mistakes after it" * (count > 1)) from None


def _refused(model: type[BaseModel], error: Any, where: str, *, more: str) -> ConfigError:
    """Return one of pydantic's errors as ours: of a value by its schema, of several by what their validator says."""
    names, schema = _schema_at(model.model_json_schema(), error["loc"])
    cause, is_missing = error.get("ctx", {}).get("error"), error["type"] == "missing"
    message = error["msg"].removeprefix("Value error, ")
    got, expected, cure = repr(error["input"])[:120], _expected(schema), "give such a value"
    if "default" in schema and not isinstance(schema["default"], dict | list):
        cure += f"; the default is {json.dumps(schema['default'])}"
    if isinstance(cause, SettingError):
        names = [*names, cause.setting] if cause.setting else names
        message, got, expected, cure = cause.message, cause.got, cause.expected or "", cause.cure or ""
    elif isinstance(cause, ValueError) and isinstance(error["input"], dict):
        got = expected = cure = ""  # of several settings, which the message names
    place = ": ".join([where, ".".join(names)] if names else [where])
    return ConfigError(message + more, where=place, got="nothing" if is_missing else got, expected=expected, cure=cure)


Schema = dict[str, Any]
KINDS = {"integer": "a whole number", "number": "a number", "string": "text", "boolean": "true or false",
         "array": "a list", "object": "a mapping", "null": "null"}  # fmt: skip
BOUNDS = {"minimum": "{} at least", "exclusiveMinimum": "above {}", "maximum": "{} at most",
          "exclusiveMaximum": "below {}", "minLength": "{} signs at least", "maxLength": "{} signs at most",
          "minItems": "{} items at least", "maxItems": "{} items at most", "pattern": "of the form {}"}  # fmt: skip
"""What a JSON schema calls kinds of values and their bounds, in words."""


def _schema_at(whole: Schema, location: Sequence[int | str]) -> tuple[list[str], Schema]:
    """Return the names that lead to a place, and what its schema says; pydantic also names members of unions there."""
    names, schema = list[str](), whole
    for part in location:
        inner = next(filter(None, (_inner(whole, kind, part) for kind in _members(whole, schema))), None)
        if inner is not None:
            names, schema = [*names, str(part)], inner
    return names, {**schema, "anyOf": list(_members(whole, schema))}


def _members(whole: Schema, schema: Schema) -> Iterator[Schema]:
    """Yield the members of a union, or the one schema, references resolved."""
    if "$ref" in schema:
        schema = whole["$defs"][schema["$ref"].rpartition("/")[2]]
    for member in schema.get("anyOf", ()):
        yield from _members(whole, member)
    if "anyOf" not in schema:
        yield schema


def _inner(whole: Schema, schema: Schema, part: int | str) -> Schema | None:
    items = schema.get("prefixItems", ())
    if isinstance(part, int):
        inner = items[part] if part < len(items) else schema.get("items")
    else:
        inner = schema.get("properties", {}).get(part) or schema.get("additionalProperties")
    return inner if isinstance(inner, dict) else None


def _expected(schema: Schema) -> str:
    """Return in words what a schema, of which `_members` are resolved, accepts."""
    return " or ".join(_one_expected(member) for member in schema["anyOf"])


def _one_expected(schema: Schema) -> str:
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if values:
        return " or ".join(str(value) for value in values)
    bounds = [words.format(schema[name]) for name, words in BOUNDS.items() if name in schema]
    return ", ".join([KINDS.get(schema.get("type", ""), "another value"), *bounds])


def _with_base(path: Path, folder: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Return the settings of a preset laid over those of the preset that its key ``base`` names, if it has one.

    Mappings are laid over each other key by key; anything else, lists too, replaces what is below.
    """
    settings = read_yaml(path)
    base = settings.pop("base", None)
    if base is None:
        return settings
    below = _preset_path(str(base), folder)
    if below in (path, *above):
        raise ConfigError("presets are based on each other in a circle", where=str(path), got=f"base: {base}")
    return _laid_over(_with_base(below, folder, (path, *above)), settings)


def _laid_over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        known = below.get(key)
        merged[key] = _laid_over(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return merged


def _preset_path(preset: str, folder: Path) -> Path:
    path = Path(preset) if preset.endswith((".yaml", ".yml")) else folder / f"{preset}.yaml"
    beside = path.resolve().parent
    if path.is_file() and (beside == folder.resolve() or beside.parent != folder.resolve().parent):
        return path
    known = preset_names(folder)
    owners = sorted(other.parent.name for other in folder.parent.glob(f"*/{path.name}") if other.parent != folder)
    close = difflib.get_close_matches(preset, known, n=1)
    raise ConfigError(
        f"a preset of {', '.join(owners)}, not of {folder.name}" if owners else "no such preset",
        got=repr(preset), expected=f"one of {', '.join(known)}, or a path ending in .yaml",
        cure=f"did you mean {close[0]}?" if close else None,
    )  # fmt: skip


def _unknown_key(model: Any, location: Sequence[int | str], where: str) -> ConfigError:
    for part in location[:-1]:
        if isinstance(part, str):
            model = _inner_model(model.model_fields[part].annotation)
    known = sorted(model.model_fields)
    close = difflib.get_close_matches(str(location[-1]), known, n=1)
    return ConfigError(
        "unknown key", where=where, got=".".join(map(str, location)), expected=f"one of {', '.join(known)}",
        cure=f"did you mean {close[0]}?" if close else None,
    )  # fmt: skip


def _inner_model(annotation: Any) -> Any:
    """Return the model within an annotation such as ``tuple[Model, ...]``."""
    inner = [part for part in getattr(annotation, "__args__", ()) if hasattr(part, "model_fields")]
    return inner[0] if inner else annotation


def _apply_override(settings: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    if not separator or not key:
        raise ConfigError("not an override", got=repr(override), expected="key.path=value, such as phase2.eta=5")
    *path, last = key.split(".")
    inner = settings
    for part in path:
        inner = inner.setdefault(part, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"'{part}' holds no settings", where=key, got=repr(inner)[:80], expected="a mapping")
    inner[last] = _parsed(text, where=key)
