"""The file ``ablation.json``: the results of an ablation as text, and read back to an equal value."""

from __future__ import annotations

from pathlib import Path

from plansmith.evaluation.ablation import AblationResults
from plansmith.evaluation.json_files import JsonFile

_FILE = JsonFile(
    AblationResults, "ablation.json", "an ablation", "run the ablation again; finished arms are not trained again"
)


def ablation_to_json(results: AblationResults) -> str:
    """Return the text of ``ablation.json``; `ablation_from_json` reads it back to an equal value."""
    return _FILE.write(results)


def ablation_from_json(text: str) -> AblationResults:
    """Return the results in an ``ablation.json``.

    Raises:
        BadInputError: not JSON, or not the results of an ablation.
    """
    return _FILE.read(text)


def read_ablation(path: Path) -> AblationResults:
    """Return the results in the file at ``path``; raises like `ablation_from_json`, and OSError when unreadable."""
    return ablation_from_json(path.read_text(encoding="utf-8"))
