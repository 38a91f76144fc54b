"""The tables about one run that writes PDDL for texts, in the shapes of NL-PDDL-Bench's, its figures beside ours.

Not here: the sentences beside them (`formalisation_report`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from plansmith.report.direct_plans import PlanArm
from plansmith.report.formalisation_arms import DIRECT
from plansmith.report.formalisation_metrics import FormalisationArm, FormalisationFigures, Novelty
from plansmith.report.formalisation_results import FormalisationResults, TextFigures
from plansmith.report.nl_pddl_bench_paper import (
    PAPER_MODELS,
    TABLE_1,
    TABLE_2,
    TABLE_4,
    PaperModel,
    PaperPair,
    PaperShares,
    paper_model_of,
)
from plansmith.report.preference_metrics import PairFigures
from plansmith.report.repair_metrics import CodeCounts, codes_of_all_turns
from plansmith.report.sections import Table
from plansmith.report.wording import beside, interval, number_or_dash, percent, percent_or_dash, spoken

PAPER_SHARES = ("svr", "psr_of_all", "tsr", "cr")
"""Figures of ours that the paper's tables have."""
OTHER_TESTS = "Its models, texts and test problems are others than ours; in Assembly its references had no plan."
COLUMNS = ("answers of", "n", "SVR", "PSR", "PSR of all", "TSR", "CR", "equivalent", "95% interval", "identical",
           "flattered", "undecided", "task success", "contract")  # fmt: skip
CELL_COLUMNS = ("SVR", "PSR of all", "TSR", "CR", "equivalent")


def arm_table(results: FormalisationResults) -> Table:
    """Return the figures of every arm over all test texts, and under them the paper's (table 3)."""
    papers = [
        (f"paper: {model.name}, {setting}", *_paper_cells(shares))
        for model in PAPER_MODELS
        for setting, shares in zip(("baseline", "in the loop"), model.overall, strict=True)
    ]
    note = f"Under ours, the paper's table 3, whose PSR is of all. {OTHER_TESTS}"
    return Table("All test texts", COLUMNS, (*_arm_rows(results), *papers), note)


def own_table(results: FormalisationResults) -> Table:
    """Return the figures of every arm over all texts, with those of domains and levels where there are several."""
    rows = list(_arm_rows(results))
    for name, arm in results.arms.items():
        parts = [figures for figures in (arm.by_domain, arm.by_level) if len(figures) > 1]
        rows += [(f"{spoken(name)}, {part}", *_cells(of)) for figures in parts for part, of in figures.items()]
    return Table("All texts", COLUMNS, tuple(rows))


def _arm_rows(results: FormalisationResults) -> Iterator[tuple[str, ...]]:
    """Yield the figures of every arm over all texts."""
    yield from ((spoken(name), *_cells(arm)) for name, arm in results.arms.items())


def domain_table(results: FormalisationResults) -> Table:
    """Return the first arm and the one that the run is about by domain (the paper's table 7)."""
    return _pair_table(
        results, "By domain (the paper's table 7)", "domain", lambda arm: arm.by_domain, lambda paper: paper.by_domain
    )


def level_table(results: FormalisationResults) -> Table:
    """Return the same by level of difficulty (table 8)."""
    return _pair_table(
        results, "By level (the paper's table 8)", "level", lambda arm: arm.by_level, lambda paper: paper.by_level
    )


def direct_table(results: FormalisationResults) -> Table:
    """Return how many tasks plans solve that were written directly, and plans for written problems (table 2)."""
    direct = results.direct
    domains = () if direct is None else tuple(direct.by_domain)
    rows = []
    if direct is not None:
        rows.append(_success_row(direct, direct.ci95, domains))
        rows += [_success_row(arm, arm.ci95["task_success"], domains) for arm in results.arms.values()]
        rows += _paper_plan_rows(domains)
    note = (
        "Task success: the plan solves the reference. Direct: tuned from the same start on as many tokens of the same "
        "texts, it answers with a plan; the others with a problem, whose plan the planner finds. Under ours, the "
        "paper's table 2: the models that plan there are not tuned, and of its own it counts plans for what was "
        f"written, whatever was asked. {OTHER_TESTS}"
    )
    header = ("plans for", "n", "all", "95% interval", *domains)
    return Table("Plans written directly (the paper's table 2)", header, tuple(rows), note)


def _success_row(
    arm: FormalisationArm | PlanArm, ci95: tuple[float, float], domains: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the task success of an arm, over all and by domain."""
    shares = (percent(arm.by_domain[domain].task_success) for domain in domains)
    return (spoken(arm.name), str(arm.n), percent(arm.task_success), interval(ci95), *shares)


def _paper_plan_rows(domains: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the paper's table 2 under our domains; nothing where it has none of them."""
    found = {name: [f"{paper[domain]}%" if domain in paper else "-" for domain in domains]
             for name, paper in TABLE_2.items()}  # fmt: skip
    return [(f"paper: {name}", *["-"] * 3, *cells) for name, cells in found.items() if set(cells) - {"-"}]


def transfer_table(results: FormalisationResults) -> Table:
    """Return what becomes of texts of levels and domains that were never trained on, beside the others (table 5)."""
    rows, direct, main = list[tuple[str, ...]](), results.direct, results.main
    for novelty in tuple(Novelty) if main.by_novelty else ():
        ours = {name: arm if novelty is Novelty.TRAINED else arm.by_novelty.get(novelty)
                for name, arm in results.arms.items()}  # fmt: skip
        rows += [(novelty, spoken(name), *_transfer_cells(arm)) for name, arm in ours.items() if arm is not None]
        plans = direct and (direct if novelty is Novelty.TRAINED else direct.by_novelty.get(novelty))
        if plans:
            cells = (str(plans.n), *["-"] * len(CELL_COLUMNS), percent(plans.task_success))
            rows.append((novelty, spoken(DIRECT), *cells))
    rows += [(place, spoken(main.name), *_transfer_cells(figures)) for place, figures in main.by_new_place.items()]
    if rows:
        rows += [
            ("paper: PlanBench", f"{model.name}, {setting}", "-", *(f"{share:.1f}" for share in shares), "-", "-")
            for model in PAPER_MODELS
            for setting, shares in zip(("baseline", "in the loop"), model.planbench, strict=True)
        ]
    note = (
        "In percent; equivalent with its 95% interval. Only the first rows are what the other tables are about. Under "
        "ours, the paper's table 5: PlanBench's texts, of Blocksworld and Logistics, of which it trains on the latter."
    )
    header = ("texts", "answers of", "n", *CELL_COLUMNS, "task success")
    return Table("What was never trained on (the paper's table 5)", header, tuple(rows), note)


def _transfer_cells(figures: FormalisationFigures) -> tuple[str, ...]:
    return (str(figures.n), *_pair_cells(figures, None), percent(figures.task_success))


def _pair_table(
    results: FormalisationResults,
    title: str,
    key: str,
    ours: Callable[[FormalisationArm], Mapping[str, FormalisationFigures]],
    papers: Callable[[PaperModel], Mapping[str, PaperPair]],
) -> Table:
    """Return two arms one below the other, the paper's figures of its two settings in brackets."""
    arms, paper = list(dict.fromkeys((results.first.name, results.main.name))), _paper(results)
    rows = [
        (name, spoken(arm), str(figures.n),
         *_pair_cells(ours(results.arms[arm]).get(name), _beside(arm, papers(paper).get(name))))
        for name, figures in ours(results.main).items()
        for arm in arms
    ]  # fmt: skip
    header = (key, "answers of", "n", *CELL_COLUMNS)
    note = (
        f"In percent; equivalent with its 95% interval. In brackets: the paper's {paper.name}, bare beside untrained "
        f"answers, in the loop beside trained ones. {OTHER_TESTS}"
    )
    return Table(title, header, tuple(rows), note)


def _beside(arm: str, pair: PaperPair | None) -> PaperShares | None:
    """Return the paper's figures of the setting that an arm is like."""
    if pair is None:
        return None
    return pair.baseline if arm.startswith("untrained") else pair.in_the_loop


def data_table(results: FormalisationResults) -> Table:
    """Return how many texts there are of each level, and how long their plans are (table 1)."""
    rows = [
        (f"{item.domain or 'all domains'}, {item.level}", *_data_cells(item, is_total=not item.domain))
        for item in results.texts
    ]
    note = "Texts of all splits, each with a plan of its reference. In brackets: the paper's pairs that have a plan."
    header = ("domain, level", "objects", "texts", "plan length: median [quartiles]")
    return Table("Texts (the paper's table 1)", header, tuple(rows), note)


def benchmark_table(results: FormalisationResults) -> Table:
    """Return the extent of the texts beside that of the paper's and of PlanBench (table 4)."""
    totals = [item for item in results.texts if not item.domain]
    objects = [size for item in totals for size in item.objects]
    ours = {
        "domains": len({item.domain for item in results.texts} - {""}),
        "texts": f"{sum(item.n for item in totals):,}, all with a plan",
        "objects of a problem": f"{min(objects, default=0)} to {max(objects, default=0)}",
        "levels": len(totals),
    }
    rows = tuple((name, str(ours[name]), *theirs) for name, theirs in TABLE_4.items()) if totals else ()
    header = ("extent", "this run", "paper: NL-PDDL-Bench", "paper: PlanBench")
    return Table("Beside other data (the paper's table 4)", header, rows, "Those never trained on count, too.")


def turn_table(results: FormalisationResults) -> Table:
    """Return the figures of every arm with a loop, as if it had stopped after each turn."""
    rows = [
        (f"{spoken(name)}, turn {turn}", *_cells(figures))
        for name, arm in results.arms.items()
        for turn, figures in enumerate(arm.by_turn)
    ]
    note = "As if the loop had stopped after that turn; turn 0 is the first. An answer with nothing to mend stays."
    return Table("By turn of the loop", COLUMNS, tuple(rows), note)


def repair_table(results: FormalisationResults) -> Table:
    """Return what each turn changed in the answers that were handed back."""
    rows = [
        (
            f"{spoken(name)}, turn {turn.turn}",
            str(turn.n_handed_back),
            str(turn.n_mended),
            *_code_cells(CodeCounts.total(turn.codes.values())),
            str(turn.n_compared),
            number_or_dash(turn.mean_atoms_changed, 1),
            str(turn.n_goals_lost),
            str(turn.n_solved_by_losing),
        )
        for name, turns in results.repair.items()
        for turn in turns
    ]
    header = ("answers of", "handed back", "with a plan then", "errors before", "mended", "new", "readable twice",
              "atoms changed", "goals given up", "a plan for a goal")  # fmt: skip
    note = (
        "Each answer beside the one before it. Errors are the reader's, one of a code in an answer. From atoms on, of "
        "answers that could be read both times; a plan for a goal: answers that gave up a goal and have a plan now."
    )
    return Table("What repair changes", header, tuple(rows), note)


def code_table(results: FormalisationResults) -> Table:
    """Return the errors that were handed back, by code, over all turns of the arm that the run is about."""
    codes = codes_of_all_turns(results.repair.get(results.main.name, ()))
    rows = tuple((code, *_code_cells(counts)) for code, counts in codes.items())
    note = (
        f"Answers with an error of the code, all turns of {spoken(results.main.name)}; `docs/diagnostics.md` has them."
    )
    return Table("Errors handed back", ("code", "before", "mended", "new"), rows, note, is_folded=True)


def preference_table(results: FormalisationResults) -> Table:
    """Return what each policy gives to the held-out pairs, all of them and by fault."""
    rows = []
    for arm, figures in results.preference.items():
        means = (figures.mean_chosen, figures.mean_rejected, figures.mean_reference_chosen,
                 figures.mean_reference_rejected)  # fmt: skip
        rows.append((spoken(arm), *_pair_figures(figures), *(f"{mean:.2f}" for mean in means)))
        rows += [
            (f"{spoken(arm)}, {spoken(fault)}", *_pair_figures(of_fault), *["-"] * len(means))
            for fault, of_fault in figures.by_fault.items()
        ]
    header = ("policy", "pairs", "accuracy", "95% interval", "beta Delta", "log p chosen", "log p rejected",
              "reference's chosen", "reference's rejected")  # fmt: skip
    note = (
        "Held-out pairs. Right: Delta of equation 5 is above 0, so that the policy parts the two answers further than "
        "its reference does. Log-probabilities are means over pairs of whole answers."
    )
    return Table("Preference pairs", header, tuple(rows), note)


def _cells(figures: FormalisationFigures) -> list[str]:
    """Return the cells of `COLUMNS` after the first."""
    shares = (figures.identical, figures.flattered, figures.undecided, figures.task_success, figures.keeps_contract)
    return [
        str(figures.n),
        percent(figures.svr),
        percent_or_dash(figures.psr),
        percent(figures.psr_of_all),
        percent(figures.tsr),
        percent(figures.cr),
        percent(figures.equivalent),
        interval(figures.ci95["equivalent"]),
        *map(percent, shares),
    ]


def _paper_cells(shares: PaperShares) -> list[str]:
    svr, psr_of_all, tsr, cr = (percent(share / 100) for share in shares)
    return ["1000", svr, "-", psr_of_all, tsr, cr, *["-"] * 7]


def _pair_cells(figures: FormalisationFigures | None, paper: PaperShares | None) -> list[str]:
    """Return the cells of `CELL_COLUMNS`."""
    if figures is None:
        return ["-"] * len(CELL_COLUMNS)
    cells = [
        beside(f"{100 * getattr(figures, name):.1f}", f"{getattr(paper, name):.1f}" if paper else "")
        for name in PAPER_SHARES
    ]
    low, high = figures.ci95["equivalent"]
    return [*cells, f"{100 * figures.equivalent:.1f}, {100 * low:.0f} to {100 * high:.0f}"]


def _data_cells(item: TextFigures, *, is_total: bool) -> list[str]:
    paper = TABLE_1.get(item.level) if is_total else None
    cells = [f"{item.objects[0]} to {item.objects[1]}", str(item.n), _quartile_text(item.plan_length)]
    if paper is None:
        return cells
    papers = (paper.objects, f"{paper.n:,}", _quartile_text(paper.plan_length))
    return list(map(beside, cells, papers))


def _quartile_text(quartiles: tuple[float, float, float]) -> str:
    low, middle, high = quartiles
    return f"{middle:.1f} [{low:.1f}, {high:.1f}]"


def _code_cells(counts: CodeCounts) -> tuple[str, str, str]:
    return str(counts.n_seen), str(counts.n_mended), str(counts.n_new)


def _pair_figures(figures: PairFigures) -> list[str]:
    return [str(figures.n), percent(figures.accuracy), interval(figures.ci95), f"{figures.mean_margin:.2f}"]


def _paper(results: FormalisationResults) -> PaperModel:
    model = results.config.get("model") or {}
    return paper_model_of(model.get("folder"))
