"""The tables about one run of `generalization_gap`, in the shapes of the paper's, its figures beside ours in brackets.

Not here: the sentences beside them (`gap_report`).
"""

from __future__ import annotations

from collections.abc import Mapping

from plansmith.data.rows import LengthRow
from plansmith.data.update_times import GENERATING, HANDING_OVER, JUDGING, SAVING, TRAINING, WAITING
from plansmith.judging.failure_kinds import FailureKind
from plansmith.report.gap_effort import DRAWING, PLANNING, TESTING, VISITING, Costs, LoopSeconds
from plansmith.report.gap_labels import LabelShare
from plansmith.report.gap_paper import AVERAGES, LIMIT_TOKENS, PAPER_UNSEEN, TABLE_1, TABLE_2, paper_share
from plansmith.report.gap_results import HELD_OUT, SEEN, UNSEEN, GapArm, GapResults
from plansmith.report.sections import Table
from plansmith.report.tables import by_length_table, trained_table
from plansmith.report.wording import beside, interval, number_or_dash, percent, spoken

PAPER_NAMES = {"numbered": "B", "anonymised": "v1", "compact": "v2", "grpo": "v3"}
"""What the paper calls our arms, by how their names begin."""
OTHERS = "In brackets the paper's, of Qwen3-1.7B on test problems of its own."


def arm_name(name: str) -> str:
    """Return an arm's name with the paper's: ``compact_1`` is "compact 1 (v2)"."""
    return beside(spoken(name), PAPER_NAMES.get(name.partition("_")[0]))


def arm_table(results: GapResults) -> Table:
    """Return every arm on the domains that were trained on, on those that were not, and on invented ones held out."""
    scopes = [SEEN, *(scope for scope in (UNSEEN, HELD_OUT) if _has(results, scope))]
    rows = [(arm_name(name), *(cell for scope in scopes for cell in _cells(results, name, scope)))
            for name in results.arms]  # fmt: skip
    header = ("policy", *(cell for scope in scopes for cell in (f"n, {scope}", "valid plans", "95% interval")))
    return Table("All test problems", header, tuple(rows), OTHERS, is_last_strong=True)


def _has(results: GapResults, scope: str) -> bool:
    try:
        results.figures(results.last.name, scope)
    except KeyError:
        return False
    return True


def _cells(results: GapResults, name: str, scope: str) -> tuple[str, ...]:
    if not _has(results, scope):
        return ("-",) * 3
    found, paper = results.figures(name, scope), AVERAGES.get(name) if scope == SEEN else None
    if scope == UNSEEN and name in AVERAGES:
        paper = PAPER_UNSEEN
    return str(found.n), beside(percent(found.accuracy), paper), interval(found.ci95)


def domain_table(results: GapResults) -> Table:
    """Return valid plans by domain and arm (table 3); the domains never trained on stand below the others."""
    arms = {name: arm.by_domain for name, arm in results.arms.items()}
    note = f"Valid plans, in percent, all levels of a domain together: the paper's table 3. {OTHERS}"
    return trained_table("domain", arms, results.trained_domains, arm_name, paper_share, note)


def level_table(results: GapResults) -> Table:
    """Return valid plans in domains never trained on, by level and arm."""
    arms = {arm_name(name): figures.by_level for name, figures in results.unseen.items()}
    levels = list(arms.values())[-1] if arms else {}
    rows = []
    for level, last in levels.items():
        figures = [found[level] for found in arms.values()]
        cells = (f"{percent(one.accuracy)} ({interval(one.ci95)})" for one in figures)
        rows.append((level, str(last.n), *cells))
    return Table("In domains never trained on, by level", ("level", "n", *arms), tuple(rows))


def unseen_table(results: GapResults) -> Table:
    """Return what becomes of attempts in domains never trained on: valid by plan length."""
    found = {arm_name(name): figures.by_length for name, figures in results.unseen.items()}
    return by_length_table("In domains never trained on, by plan length", found)


def failure_table(results: GapResults) -> Table:
    """Return the failed attempts in domains never trained on, by kind, and how far they came."""
    rows = [
        (arm_name(name), *(str(found.failures[kind]) for kind in FailureKind), _progress(results.arms[name]))
        for name, found in results.unseen.items()
    ]
    note = (
        "A chain's first faulty step decides. In circles: the plan, or a chain that was cut, comes back to a state. No "
        "goal nearer: at its end no more of the goal holds than at the start. Progress: share of the goal that holds "
        "before the first wrong action, mean of all attempts."
    )
    return Table("Failures in domains never trained on", ("policy", *FailureKind, "progress"), tuple(rows), note)


def _progress(arm: GapArm) -> str:
    return number_or_dash(None if arm.unseen is None else arm.unseen.mean_progress, 2)


def invented_table(results: GapResults) -> Table:
    """Return the invented domains of the run by size."""
    domains = results.domains
    assert domains is not None, "only runs with invented domains have this table"
    rows = [(name, str(size), str(count)) for name, sizes in domains.sizes.items() for size, count in sizes.items()]
    note = (
        f"{domains.n} domains, {domains.n_held_out} of them held out. {domains.n_near} share an action schema, names "
        "apart, with a domain that is only tested; none is one."
    )
    return Table("Invented domains", ("size", "value", "domains"), tuple(rows), note)


def training_table(results: GapResults) -> Table:
    """Return how each variant was trained (table 2)."""
    config = results.config["reading"] or results.config
    sft, grpo = config["sft"], config["grpo"]
    shown = {
        "learning rate": "learning_rate", "schedule": "schedule", "sequences a batch": "batch_sequences",
        "tokens a batch": "batch_tokens", "epochs": "epochs", "rollouts a problem": "rollouts_per_problem",
        "problems an update": "problems_per_update", "updates": "updates", "temperature": "temperature",
        "top-p": "top_p", "top-k": "top_k",
    }  # fmt: skip

    def cells(settings: dict[str, object], paper: Mapping[str, float | str]) -> tuple[str, ...]:
        own = {name: settings.get(name) for name in shown.values()}
        return tuple(beside("-" if value is None else str(value), paper.get(name)) for name, value in own.items())

    names, paper = ("B, v1, v2 (by likelihood)", "v3 (GRPO)"), TABLE_2
    if results.config["reading"]:
        names, paper = ("each arm", "reinforced"), {"sft": {}, "grpo": {}}
    rows = [(names[0], *cells(sft, paper["sft"]))] + ([(names[1], *cells(grpo, paper["grpo"]))] if grpo else [])
    length = beside(str(results.config["trainer"]["row_length_tokens"]), LIMIT_TOKENS)
    note = f"The paper's table 2, its values in brackets. Longest sequence: {length} tokens."
    return Table("Training", ("variant", *shown), tuple(rows), note)


def length_table(results: GapResults) -> Table:
    """Return the tuples that are too long to be trained on, and the longest, by domain (table 1)."""

    def cells(row: LengthRow) -> tuple[str, ...]:
        beyond, longest = TABLE_1.get(row.domain, (None, None))
        return row.domain, str(row.n), beside(str(row.n_beyond), beyond), beside(str(row.longest), longest)

    note = (
        "Tuples of the first variant beyond the limit, and the longest, in tokens: the paper's table 1. In brackets "
        f"the paper's, of 4,000 tuples each and beyond {LIMIT_TOKENS}."
    )
    return Table("Lengths", ("domain", "tuples", "too long", "longest"), tuple(map(cells, results.lengths)), note)


def leak_table(results: GapResults) -> Table:
    """Return what a split of texts would have leaked into the test problems."""
    rows = [
        (row.level, str(row.n_texts), str(row.n_forms), str(row.n_test), percent(row.n_leaked / max(1, row.n_test)))
        for row in results.leak
    ]
    note = (
        "Drawn problems of different texts, their canonical forms, and what would have been had texts decided the "
        "split, at the same shares: test texts that are a training text under other names. Here forms decide: none."
    )
    return Table("Leaks of a split by text", ("level", "texts", "forms", "test texts", "leaked"), tuple(rows), note)


def effort_table(results: GapResults) -> Table:
    """Return what the training of each arm took, beside what it reached (figure 4)."""
    rows = [
        (arm_name(name), f"{effort.epochs:.2f}", str(effort.rollouts), f"{effort.seconds:.0f}",
         percent(results.arms[name].seen.accuracy))
        for name, effort in results.effort.items()
    ]  # fmt: skip
    note = (
        "From the untrained model on, in wall time of the stages; an epoch of reinforcement learning is one visit to "
        "each training problem."
    )
    header = ("policy", "epochs", "rollouts", "seconds", "valid, trained on")
    return Table("What the training of each took", header, tuple(rows), note)


def loop_table(results: GapResults) -> Table:
    """Return where the seconds of reinforcement learning went, by loop."""
    work, other = (GENERATING, WAITING, JUDGING, TRAINING), (HANDING_OVER, SAVING)

    def cells(loop: LoopSeconds) -> tuple[str, ...]:
        first, last = ([loop.work.get(name, 0.0) for name in names] for names in (work, other))
        return f"{loop.seconds:.0f}", *(percent(spent_s / loop.seconds) for spent_s in (*first, loop.other_s, *last))

    rows = [(arm_name(name), *cells(loop)) for name, loop in results.loops.items()]
    header = ("loop", "seconds", *work, "none of these", *(f"of it {name}" for name in other))
    note = (
        "Shares of the wall time of the loop's stages. What is judged while engines go on writing, and what is written "
        "and judged beside training, counts as far as it was waited for."
    )
    return Table("Seconds of reinforcement learning", header, tuple(rows), note)


def label_table(results: GapResults) -> Table:
    """Return what each share of the plans is worth: validity after tuning, and after reinforcement on the rest."""

    def cells(arm: str | None) -> tuple[str, ...]:
        if arm is None:
            return "-", "-"
        return percent(results.arms[arm].seen.accuracy), interval(results.arms[arm].seen.ci95)

    planning_s = None if results.cost is None else results.cost.planning_s
    rows = [
        (percent(one.share), str(one.n_plans),
         number_or_dash(None if planning_s is None else planning_s * one.n_plans, 1), *cells(one.tuned),
         str(one.n_rest) if one.reinforced else "-", *cells(one.reinforced), _reinforcement(results, one))
        for one in results.labels
    ]  # fmt: skip
    header = ("share of plans", "plans", "planning, s", "valid when tuned", "95% interval", "problems without plans",
              "valid when reinforced", "95% interval", "reinforcement, s")  # fmt: skip
    note = (
        "In domains trained on. A share contains the smaller ones, and all are tuned on as many tokens; reinforcement "
        "is on the problems whose plans it lacks. Planning: at the mean seconds of a problem to learn from."
    )
    return Table("What a label is worth", header, tuple(rows), note)


def _reinforcement(results: GapResults, one: LabelShare) -> str:
    if one.reinforced is None:
        return "-"
    return f"{results.effort[one.reinforced].seconds - results.effort[one.tuned].seconds:.0f}"


def cost_table(results: GapResults) -> Table:
    """Return what the run cost, by kind of work."""
    total = sum(results.cost_s.values())
    rows = [(name, f"{seconds:.1f}", percent(seconds / total)) for name, seconds in results.cost_s.items()]
    note = "Wall time of the stages of each kind; trying and judging in reinforcement learning are part of training."
    return Table("Cost", ("work", "seconds", "share"), tuple(rows), note)


def price_table(cost: Costs) -> Table:
    """Return what a training problem costs by imitation and by reinforcement, with the break-even (the appendix)."""
    updating = [part for part in (cost.generating_s, cost.updating_s) if part is not None]
    work = {
        DRAWING: (cost.drawing_s, cost.price(cpu_s=cost.cpu_s.get(DRAWING, cost.drawing_s))),
        PLANNING: (cost.planning_s, cost.price(cpu_s=cost.cpu_s.get(PLANNING, cost.planning_s))),
        "one pass over its plan": (cost.imitation_s, cost.price(accelerator_s=cost.imitation_s or 0.0)),
        "one visit: its rollouts and the update": (sum(updating) if updating else None,
                                                   cost.price(accelerator_s=sum(updating))),
        VISITING: (cost.judging_s, cost.price(cpu_s=cost.cpu_s.get(VISITING, cost.judging_s or 0.0))),
    }  # fmt: skip
    priced, n_of = any(cost.prices.values()), {DRAWING: cost.n_drawn}
    rows = [
        (name, number_or_dash(seconds, 4), number_or_dash(cost.cpu_s.get(name), 4),
         f"{price * n_of.get(name, cost.n_problems):.4g}" if priced and seconds is not None else "-")
        for name, (seconds, price) in work.items()
    ]  # fmt: skip
    if TESTING in cost.cpu_s:
        rows.append((TESTING, "-", f"{cost.cpu_s[TESTING]:.4f}", "-"))
    note = (
        f"Seconds for one of {cost.n_problems} problems to learn from, or of the {cost.n_drawn} drawn to find them and "
        f"those to test, measured in this run; and the price of all, at {cost.prices['cpu']:g} an hour of drawing, "
        f"planning and judging and {cost.prices['accelerator']:g} of generating and training. CPU seconds are those of "
        "the driver, of row workers and of the planner's processes, for one of all drawn, planned or tried; known, the "
        f"price is theirs. {break_even_text(cost)}"
    )
    return Table("A training problem", ("work", "seconds", "CPU seconds", "price of all"), tuple(rows), note)


def break_even_text(cost: Costs) -> str:
    """Return from where on verdicts are cheaper than plans."""
    speeds = " ".join(
        f"{speed:.0f} tokens are {verb} a second."
        for verb, speed in (("generated", cost.generated_per_s), ("trained on", cost.trained_per_s))
        if speed is not None
    )
    if cost.break_even_s is None:
        return speeds
    visit, passes = f"A visit, {cost.reinforcement_s:.2f} s as it passed, costs", f"{cost.n_passes:.3g} passes over"
    when = (
        f"{visit} as much as a plan and {passes} it where planning takes {cost.break_even_s:.2f} s a problem"
        if cost.break_even_s > 0
        else f"{visit} less than {passes} a plan, however soon it is found"
    )
    return f"{when}; here it takes {cost.planning_s:.3f} s. {speeds}"


def planning_table(cost: Costs) -> Table:
    """Return the planner's seconds by domain and plan length."""
    rows = [
        (item.domain, str(item.plan_length), str(item.n), f"{item.seconds:.2f}", f"{item.seconds / item.n:.4f}",
         *([f"{cost.price(cpu_s=item.seconds):.4g}"] if cost.prices["cpu"] else []))
        for item in cost.planning
    ]  # fmt: skip
    header = ("domain", "steps", "problems", "seconds", "a problem", *(["price"] if cost.prices["cpu"] else []))
    note = "Of the problems to learn from; 0 steps: no plan was found in time, or the goal held from the start."
    return Table("Planning", header, tuple(rows), note)
