"""The collector of cycles is paused and goes on as it was."""

from __future__ import annotations

import gc

import pytest

from plansmith.garbage import no_garbage


def test_no_garbage_pauses_the_collector_and_its_inner_end_does_not_wake_it() -> None:
    assert gc.isenabled()
    with no_garbage():
        with no_garbage():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_no_garbage_goes_on_collecting_after_an_error() -> None:
    with pytest.raises(KeyError), no_garbage():
        raise KeyError
    assert gc.isenabled()


def test_no_garbage_leaves_a_collector_off_that_was_off() -> None:
    gc.disable()
    try:
        with no_garbage():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
