"""Spider problems: cards face up on piles, deals still to come; in the end every suit is complete and discarded.

The game is played backwards: from the empty table, suits come back, cards move, deals are taken up again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise

from plansmith.pddl.model import TOTAL_COST, Atom, Problem
from plansmith.problems.building import atom, build_problem, numbered

ATTEMPTS = 30
"""Games played backwards, for one without an empty pile, before one deal less is tried."""

MIXING_MOVES = 3
"""Moves for each card after all cards are back."""


@dataclass(frozen=True, slots=True)
class Card:
    """A card of one of the decks; value 0 is the ace."""

    deck: int
    suit: int
    value: int

    @property
    def name(self) -> str:
        """Return the card's name in problems."""
        return f"card-d{self.deck}-s{self.suit}-v{self.value}"

    def continues(self, below: Card) -> bool:
        """Return whether the card, lying on the other, can be moved together with it."""
        return self.suit == below.suit and self.fits(below)

    def fits(self, below: Card) -> bool:
        """Return whether the card can be put on the other."""
        return self.value + 1 == below.value


@dataclass(slots=True)
class Table:
    """Piles, from the tableau upwards, and deals, the first to come last; a deal has one card for each pile."""

    piles: list[list[Card]]
    deals: list[list[Card]] = field(default_factory=list)

    def shorter_pile(self, rng: random.Random, *, without: int | None = None) -> list[Card]:
        """Return the shorter of two random piles, so that piles grow alike."""
        others = [pile for number, pile in enumerate(self.piles) if number != without]
        return min(rng.choice(others), rng.choice(others), key=len)

    def take_up_deal(self) -> None:
        """Undo a deal, which needs a card on every pile to put its own on."""
        self.deals.append([pile.pop() for pile in self.piles])

    def moves_back(self) -> list[tuple[int, int]]:
        """Return the piles, with the numbers of cards, that a move may have brought to where they are."""
        return [(number, count) for number, pile in enumerate(self.piles) for count in _movable_counts(pile)]


def sample(rng: random.Random, *, decks: int, suits: int, values: int, piles: int, deals: int) -> Problem:
    """Return a problem; the actions that led to it, undone in turn, are a plan, so it is solvable.

    Args:
        rng: the source of all choices.
        decks: decks of cards.
        suits: suits of a deck.
        values: cards of a suit, at least 2.
        piles: piles, at least 2.
        deals: deals to come, at most; each pile keeps a card for the first.
    """
    cards = [Card(deck, suit, value) for deck in range(decks) for suit in range(suits) for value in range(values)]
    wanted = min(deals, len(cards) // piles - 1)
    for n_deals in range(max(wanted, 0), -1, -1):
        for _ in range(ATTEMPTS):
            table = _play_back(cards, piles, n_deals, rng)
            if len(table.deals) == n_deals and all(table.piles):
                return _problem(cards, table)
    return _problem(cards, _play_back(cards, piles, 0, rng))


def _play_back(cards: list[Card], n_piles: int, n_deals: int, rng: random.Random) -> Table:
    """Return the table after a random game backwards; fewer deals than wanted if the piles are never high enough."""
    table, runs = Table([[] for _ in range(n_piles)]), _runs(cards, rng)
    mixing = MIXING_MOVES * len(cards)
    while runs or mixing:
        moves = table.moves_back()
        if runs and (not moves or rng.random() < 1 / len(cards)):
            table.shorter_pile(rng).extend(runs.pop())
        elif len(table.deals) < n_deals and min(map(len, table.piles)) > 1 and rng.random() < 0.5:
            table.take_up_deal()
        elif moves:
            _move_back(table, rng.choice(moves), rng)
        mixing -= 0 if runs else 1
    while len(table.deals) < n_deals and min(map(len, table.piles)) > 1:
        table.take_up_deal()
    return table


def _runs(cards: list[Card], rng: random.Random) -> list[list[Card]]:
    """Return the cards as complete suits, king first, in random order; decks of one suit are mixed."""
    by_rank: dict[tuple[int, int], list[Card]] = {}
    for card in cards:
        by_rank.setdefault((card.suit, -card.value), []).append(card)
    ranks = {rank: rng.sample(equal, len(equal)) for rank, equal in sorted(by_rank.items())}
    n_decks = len(next(iter(ranks.values())))
    suits = list(dict.fromkeys(suit for suit, _ in ranks))
    runs = [[same[deck] for (of, _), same in ranks.items() if of == suit] for suit in suits for deck in range(n_decks)]
    return rng.sample(runs, len(runs))


def _movable_counts(pile: list[Card]) -> list[int]:
    """Return how many cards of the top may have been put on what is below them, a fitting card or the tableau."""
    counts = []
    for count in range(1, len(pile) + 1):
        base = len(pile) - count
        if base == 0 or pile[base].fits(pile[base - 1]):
            counts.append(count)
        if base and not pile[base].continues(pile[base - 1]):
            break
    return counts


def _move_back(table: Table, move: tuple[int, int], rng: random.Random) -> None:
    number, count = move
    pile = table.piles[number]
    target = table.shorter_pile(rng, without=number)
    target += pile[-count:]
    del pile[-count:]


def _problem(cards: list[Card], table: Table) -> Problem:
    piles, deals = numbered("pile-", len(table.piles), start=0), numbered("deal-", len(table.deals) + 1, start=0)
    init = [atom("current-deal", deals[0]), *(atom("next-deal", *pair) for pair in pairwise(deals)), *_ranks(cards)]
    for pile, stack in zip(piles, table.piles, strict=True):
        init += [atom("part-of-tableau", pile, pile), *_stack(pile, stack), *_in_play(pile, stack)]
    for deal, dealt in zip(deals, reversed(table.deals), strict=False):
        stack = dealt[::-1]
        init += _stack(deal, stack)
        init += [
            atom("to-deal", card.name, pile, deal, below)
            for card, pile, below in zip(dealt, piles, [*(card.name for card in dealt[1:]), deal], strict=True)
        ]
    goal = [atom("clear", place) for place in [*piles, *deals[:-1]]]
    goal += [atom("on", card.name, "discard") for card in cards]
    objects = {"card": [card.name for card in cards], "tableau": piles, "deal": deals}
    return build_problem("spider", objects, init, goal, values={atom(TOTAL_COST): 0}, metric=TOTAL_COST)


def _stack(place: str, cards: list[Card]) -> list[Atom]:
    """Return what lies on what, from the place upwards, and what is clear."""
    names = [place, *(card.name for card in cards)]
    return [*(atom("on", upper, lower) for lower, upper in pairwise(names)), atom("clear", names[-1])]


def _in_play(pile: str, cards: list[Card]) -> list[Atom]:
    facts = [atom("in-play", card.name) for card in cards]
    facts += [atom("part-of-tableau", card.name, pile) for card in cards]
    for number in range(len(cards) - 1, -1, -1):
        facts.append(atom("movable", cards[number].name))
        if number and not cards[number].continues(cards[number - 1]):
            break
    return facts


def _ranks(cards: list[Card]) -> list[Atom]:
    pairs = [(card, below) for card in cards for below in cards if card.fits(below)]
    facts = [atom("can-be-placed-on", card.name, below.name) for card, below in pairs]
    facts += [atom("can-continue-group", card.name, below.name) for card, below in pairs if card.continues(below)]
    king = max(card.value for card in cards)
    facts += [atom("is-ace", card.name) for card in cards if card.value == 0]
    return facts + [atom("is-king", card.name) for card in cards if card.value == king]
