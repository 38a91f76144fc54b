"""Which drawn problems a dataset takes: counts met exactly, forms once, splits by form, replacements in order."""

from __future__ import annotations

from collections import Counter

import pytest

from plansmith.config.dataset import Cell
from plansmith.data.quotas import Quota, first_that_fit, next_to_solve, split_of

SHARES = {"train": 80, "test": 20}


def quota(wanted: dict[str, int], *, reserve: float = 0.0, max_draws: int = 40) -> Quota:
    return Quota(
        Cell(domain="ferry", level="L1", shares=SHARES, wanted=wanted), reserve=reserve, max_draws=max_draws, seed=0
    )


def test_split_of_follows_the_shares_and_the_form_alone() -> None:
    splits = Counter(split_of(f"form {number}", SHARES, 0) for number in range(5000))
    assert set(splits) == set(SHARES)
    assert splits["test"] / 5000 == pytest.approx(0.2, abs=0.03)
    assert split_of("form 1", SHARES, 0) == split_of("form 1", {"train": 8, "test": 2}, 0)
    other_seed = [split_of(f"form {number}", SHARES, 1) for number in range(100)]
    assert other_seed != [split_of(f"form {number}", SHARES, 0) for number in range(100)]


def test_take_fills_each_split_with_new_forms_only() -> None:
    taking, seen = quota({"train": 3, "test": 1}), set[str]()
    taken = [taking.take(f"form {number}", seen, {}) for number in range(40)]
    assert Counter(split for split in taken if split) == {"train": 3, "test": 1}
    assert taking.missing == {}
    assert taking.surplus == 36
    assert taking.take("form 0", seen, {}) is None
    assert taking.duplicates == (1 if "form 0" in seen else 0)


def test_take_refuses_a_form_that_another_level_has() -> None:
    seen: set[str] = set()
    assert quota({"train": 5, "test": 5}).take("shared", seen, {}) is not None
    assert quota({"train": 5, "test": 5}).take("shared", seen, {}) is None


def test_next_draws_goes_on_until_the_rarest_split_is_full() -> None:
    taking, seen, number = quota({"train": 40, "test": 10}), set[str](), 0
    while draws := taking.next_draws():
        for _ in range(draws):
            taking.take(f"form {number}", seen, {})
            number += 1
    assert taking.taken == {"train": 40, "test": 10}


def test_next_draws_ends_where_no_new_form_turns_up() -> None:
    taking, seen, waves = quota({"train": 40, "test": 10}), set[str](), 0
    while draws := taking.next_draws():
        waves += 1
        for number in range(draws):
            taking.take(f"form {number % 7}", seen, {})
    assert waves < 5
    assert sum(taking.missing.values()) == 50 - 7


def test_next_draws_never_passes_the_limit() -> None:
    taking, seen, number = quota({"train": 10, "test": 10}, max_draws=3), set[str](), 0
    while draws := taking.next_draws():
        for _ in range(draws):
            taking.take("train form" if number % 50 else f"form {number}", seen, {})
            number += 1
    assert taking.drawn == number <= 60


def test_reserve_is_drawn_beside_what_is_wanted() -> None:
    assert quota({"train": 100, "test": 3}, reserve=0.05).wanted == {"train": 105, "test": 4}


def test_next_to_solve_takes_the_first_untried_of_each_split() -> None:
    splits = ["train", "train", "test", "train", "test", "train"]
    wanted = {"train": 2, "test": 1}
    assert next_to_solve(splits, [None] * 6, wanted) == [0, 1, 2]
    assert next_to_solve(splits, [True, False, False, None, None, None], wanted) == [3, 4]
    assert next_to_solve(splits, [True, True, True, None, None, None], wanted) == []
    assert next_to_solve(splits, [True, False, True, False, None, False], wanted) == []


def test_first_that_fit_keeps_the_order_and_stops_at_what_is_wanted() -> None:
    splits = ["train", "train", "test", "train", "test"]
    assert first_that_fit(splits, [True, False, True, True, True], {"train": 1, "test": 5}) == [0, 2, 4]
    assert first_that_fit(splits, [None] * 5, {"train": 1, "test": 1}) == []


def test_a_form_is_in_one_split_of_all_domains_whatever_their_shares() -> None:
    splits: dict[str, str] = {}
    for shares in ({"train": 60, "test": 40}, {"train": 30, "test": 70}):
        cell = Cell(domain="ferry", level="L1", shares=shares, wanted={"train": 200, "test": 200})
        taking, seen = Quota(cell, reserve=0.0, max_draws=40, seed=0), set[str]()
        for number in range(200):
            form = f"form {number}"
            before, split = splits.get(form), taking.take(form, seen, splits)
            assert split is None or before in (None, split)
    assert {*splits.values()} == {"train", "test"}
