"""A model named in settings: a folder, or the name of a repository of the Hugging Face hub, fetched once."""

from __future__ import annotations

import re
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from plansmith.errors import BadInputError

FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "LICENSE*", "README.md")
"""What a model folder needs: weights in safetensors, configuration, tokenizer, chat template. Never code or pickles."""

REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


def is_repository(name_or_folder: str) -> bool:
    """Return whether a model is named like a repository of the hub, and is no folder here."""
    return not Path(name_or_folder).expanduser().exists() and REPOSITORY.fullmatch(name_or_folder) is not None


def resolve_model(name_or_folder: str) -> Path:
    """Return the folder of a model, downloading it into the hub's cache if it is named like a repository.

    Raises:
        BadInputError: no such folder, and not a repository that can be reached or is in the cache.
    """
    if not is_repository(name_or_folder):
        return Path(name_or_folder).expanduser()
    try:
        return Path(snapshot_download(name_or_folder, allow_patterns=list(FILES)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise BadInputError(
            "no such model",
            where="model.folder",
            got=f"{name_or_folder}: {' '.join(str(error).split())[:200]}",
            expected="the path of a model folder, or a repository of the Hugging Face hub that can be reached",
            cure="download the model and give its path; for one that asks for consent, log in with `hf auth login`",
        ) from error
