"""The file ``ablation.json``: the results of an ablation as text, and read back to an equal value."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from plansmith.errors import BadInputError
from plansmith.evaluation.ablation import AblationResults


def ablation_to_json(results: AblationResults) -> str:
    """Return the text of ``ablation.json``; `ablation_from_json` reads it back to an equal value."""
    return _adapter().dump_json(results, indent=2).decode() + "\n"


def ablation_from_json(text: str) -> AblationResults:
    """Return the results in an ``ablation.json``.

    Raises:
        BadInputError: not JSON, or not the results of an ablation.
    """
    try:
        return _adapter().validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        raise BadInputError(
            "these are not the results of an ablation",
            where="ablation.json",
            got=f"{place}: {first['msg']}",
            expected="the ablation.json that a finished ablation writes",
            cure="run the ablation again; finished arms are not trained again",
        ) from error


def read_ablation(path: Path) -> AblationResults:
    """Return the results in the file at ``path``; raises like `ablation_from_json`, and OSError when unreadable."""
    return ablation_from_json(path.read_text(encoding="utf-8"))


@cache
def _adapter() -> TypeAdapter[AblationResults]:
    """Return the reader and writer, built at first use."""
    return TypeAdapter(AblationResults)
