"""Models by name or folder: a folder as it is, a repository from the hub's cache, one clear error for anything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from plansmith.errors import BadInputError
from plansmith.learning.hub import is_repository, resolve_model

COMMIT = "a" * 40


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Qwen/Qwen3-1.7B", True),
        ("./Qwen/Qwen3-1.7B", False),
        ("models", False),
        ("a/b/c", False),
        ("/x/y", False),
        ("a b/c", False),
    ],
)
def test_is_repository_is_owner_and_name_and_nothing_else(name: str, expected: bool) -> None:
    assert is_repository(name) is expected


def test_is_repository_of_a_folder_of_that_name_is_false(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner" / "name").mkdir(parents=True)
    assert is_repository("owner/name") is False


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache of a hub that cannot be reached."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def test_resolve_model_of_a_folder_is_that_folder(tmp_path: Path) -> None:
    assert resolve_model(str(tmp_path)) == tmp_path


def test_resolve_model_of_a_missing_path_is_left_to_the_check_of_the_folder() -> None:
    assert resolve_model("./models/none") == Path("./models/none")


def test_resolve_model_of_a_cached_repository_is_its_snapshot(cache: Path) -> None:
    repository = cache / "models--someone--some-model"
    snapshot = repository / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}", encoding="utf-8")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT, encoding="utf-8")
    assert resolve_model("someone/some-model") == snapshot


def test_resolve_model_that_cannot_be_fetched_says_how_to_mend_it(cache: Path) -> None:
    with pytest.raises(BadInputError, match="no such model") as caught:
        resolve_model("someone/other-model")
    message = str(caught.value)
    assert "someone/other-model" in message
    assert "hf auth login" in message
    assert caught.value.exit_code == 2
