"""Numbers and names as a person reads them: shares, p-values, durations, names of arms and stages.

Not here: which numbers are shown (`tables`, `ablation_report`) and the sentences around them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plansmith.report.statistics import PairedTest

SIGNIFICANCE = 0.05
MAX_TEXT = 20_000
"""Characters of a prompt, completion or problem that a page shows."""
INTERVALS = (
    "Forms: how many of the n problems differ in more than the names of their objects. Intervals are 95%: Wilson's "
    "where every form occurs once; where some occur more often, Wilson's for as many problems as the forms are worth."
)
"""What a reader must know of the intervals in a table (`plansmith.report.statistics.accuracy_interval`)."""


def percent(share: float) -> str:
    """Return a share as a percentage with at most one decimal, none when it would be zero."""
    return f"{100 * share:.1f}".removesuffix(".0") + "%"


def percent_or_dash(share: float | None) -> str:
    """Return a share as a percentage, a dash where there is none."""
    return "-" if share is None else percent(share)


def interval(ci95: tuple[float, float]) -> str:
    """Return an interval of shares, such as "61% to 91%"."""
    return f"{percent(ci95[0])} to {percent(ci95[1])}"


def gain_text(gain: float, ci95: tuple[float, float] | None) -> str:
    """Return a difference of shares in percentage points, with its interval, such as "+4.0 (-1.5 to +9.5)"."""
    points = f"{100 * gain:+.1f}"
    return points if ci95 is None else f"{points} ({100 * ci95[0]:+.1f} to {100 * ci95[1]:+.1f})"


def p_text(p_value: float) -> str:
    """Return a p-value with two significant digits, small ones as a bound."""
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.2g}"


def p_cell(p_value: float) -> str:
    """Return a p-value under a heading that says so."""
    return p_text(p_value).removeprefix("p ").removeprefix("= ")


def number_or_dash(value: float | None, digits: int) -> str:
    """Return a number with so many decimals, a dash where there is none."""
    return "-" if value is None else f"{value:.{digits}f}"


def beside(own: str, paper: str | float | None) -> str:
    """Return a cell with the paper's in brackets, where it has one that is not empty."""
    if paper is None or paper == "":
        return own
    return f"{own} ({paper})" if isinstance(paper, str) else f"{own} ({paper:g})"


def spoken(name: str) -> str:
    """Return a name as words: ``iteration_1`` is "iteration 1", ``phase1`` is "phase 1", ``nl2plan`` stays."""
    return re.sub(r"(?<=[a-z])(?=\d+(?![a-z\d]))", " ", name.replace("_", " ")).replace("  ", " ")


def clock(seconds: float) -> str:
    """Return a duration in at most two units."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def comparison_text(what: str, shares: tuple[float, float], test: PairedTest, *, counted: str = "solved") -> str:
    """Return a paired test in plain words, saying so when the difference may be chance.

    Args:
        what: was compared, the beginning of the sentence.
        shares: before and after.
        test: of them.
        counted: what became of the problems that make up the shares.
    """
    before, after = shares
    verb = "rose" if after > before else "fell" if after < before else "stayed"
    change = f"at {percent(after)}" if verb == "stayed" else f"from {percent(before)} to {percent(after)}"
    judgement = "more than chance" if test.p_value < SIGNIFICANCE else "not significant, it may be chance"
    return (
        f"{what[0].upper()}{what[1:]} {verb} {change} of {test.n} problems, in points "
        f"{gain_text(after - before, test.gain_ci95)}; "
        f"{test.only_after} {counted} only after, {test.only_before} only before; "
        f"{test.name} {p_text(test.p_value)} (two-sided): {judgement}."
    )


def shortened(text: str) -> str:
    """Return a text that a page can hold."""
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}\n[{len(text) - MAX_TEXT} more characters]"
