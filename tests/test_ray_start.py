"""A Ray that is slow to start is started once more, and then the command says so in one message."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from pipelines.run.ray_start import START_WAIT_S, WAITS, start_ray
from plansmith.console import exit_code_of
from plansmith.errors import PlansmithError

TOO_SLOW = "The current node timed out during startup. This could happen because some of the raylet failed to startup."
NO_STORE = "Failed to start GCS.  Last 0 lines of error files:\n\n.Please check gcs_server.out for details."


class StandInRay:
    """Starts as Ray does: a node of processes that Ray forgets when the start fails."""

    def __init__(self, *errors: Exception | None) -> None:
        self.errors: Iterator[Exception | None] = iter(errors)
        self.given: list[dict[str, Any]] = []
        self.nodes: list[StandInNode] = []

    def init(self, **options: Any) -> None:
        self.given.append(options)
        StandInNode(self, next(self.errors))


class StandInNode:
    """Its processes are there before its start fails."""

    def __init__(self, ray: StandInRay, error: Exception | None) -> None:
        self.is_running = True
        ray.nodes.append(self)
        if error is not None:
            raise error

    def kill_all_processes(self, *, check_alive: bool, allow_graceful: bool) -> None:
        assert not check_alive, "one that is gone is no error"
        assert not allow_graceful, "a slow machine would let it run on"
        self.is_running = False


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in WAITS:
        monkeypatch.delenv(variable, raising=False)


def test_start_ray_in_time_starts_it_once_with_its_options(caplog: pytest.LogCaptureFixture) -> None:
    ray = StandInRay(None)
    start_ray(ray, num_cpus=2)
    assert ray.given == [{"address": "local", "num_cpus": 2}]
    assert caplog.messages == []


def test_start_ray_gives_it_longer_than_ray_does_unless_the_user_says_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WAITS[1], "7")
    start_ray(StandInRay(None))
    assert START_WAIT_S > 30, "what Ray 2.60 waits"
    assert [os.environ[variable] for variable in WAITS] == [str(START_WAIT_S), "7"]


@pytest.mark.parametrize("error", [Exception(TOO_SLOW), RuntimeError(NO_STORE)])
def test_start_ray_too_slow_once_starts_it_again_alike_after_ending_what_was_left(error: Exception) -> None:
    ray = StandInRay(error, None)
    start_ray(ray, num_cpus=2)
    assert ray.given == [{"address": "local", "num_cpus": 2}] * 2
    assert [node.is_running for node in ray.nodes] == [False, True]


def test_start_ray_too_slow_twice_ends_the_command_with_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    ray = StandInRay(Exception(TOO_SLOW), Exception(TOO_SLOW))

    def command() -> int:
        start_ray(ray)
        return 0

    assert exit_code_of(command) == PlansmithError.exit_code == 1
    assert [node.is_running for node in ray.nodes] == [False, False]
    assert capsys.readouterr().err.splitlines()[-4:] == [  # before it perhaps the warning of the first start
        "failed: this machine: Ray did not start, twice",
        f"  got: {TOO_SLOW}",
        f"  expected: its processes up within {START_WAIT_S} s",
        "  to mend it: give the same command again when less runs here; the log is under /tmp/ray/session_latest/logs",
    ]


def test_start_ray_error_of_another_kind_is_raised_at_once() -> None:
    ray = StandInRay(ValueError("no such option"))
    with pytest.raises(ValueError, match="no such option"):
        start_ray(ray)
    assert len(ray.given) == 1
