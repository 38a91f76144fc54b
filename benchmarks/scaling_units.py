"""What one problem costs in processor time, without Ray; and rollouts to judge, made of real and corrupted plans.

Part of `scaling.py`. The planner's time is that of its processes, which count once they have ended.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle, groupby, islice
from pathlib import Path
from typing import Any

from plansmith.config.planner import PlannerConfig
from plansmith.data.drawing import problem_id_of
from plansmith.data.rows import CompletionRow, JudgingRow, SolvedProblemRow
from plansmith.judging.judge import PlanJudge
from plansmith.pddl.canonical import canonical_form
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.parser import parse_step
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.planners import make_planner
from plansmith.problems.corruption import Corruption, corrupt_plan
from plansmith.problems.library import load_domain
from plansmith.stages import row_rng
from plansmith.text.chains import Chain, chain_of_plan
from plansmith.text.full import FullRendering

RENDERING = FullRendering()


def solved_problems(n_problems: int, domain_folder: Path) -> tuple[list[SolvedProblemRow], dict[str, float]]:
    """Return solved problems, and the processor seconds that drawing and solving one took."""
    loaded = load_domain(str(domain_folder))
    domain_pddl = print_domain(loaded.domain)
    start_s = time.process_time()
    problems = [loaded.sample("small", row_rng(0, "scaling", number)) for number in range(n_problems)]
    for problem in problems:
        canonical_form(loaded.domain, problem)
    sampled_s = time.process_time() - start_s
    texts = [print_problem(problem) for problem in problems]
    planner_s, plans = planned(domain_pddl, texts)
    rows = [
        SolvedProblemRow(problem_id_of(domain_pddl, text), "small", domain_pddl, text, plan)
        for text, plan in zip(texts, plans, strict=True)
    ]
    return rows, {"sampled_s": sampled_s / n_problems, "planned_s": planner_s / n_problems}


def planned(domain_pddl: str, problems: Sequence[str]) -> tuple[float, list[tuple[str, ...]]]:
    """Return the processor seconds of Fast Downward and its worker for all problems, starting left out; and plans."""

    def children_s(texts: Sequence[str]) -> tuple[float, list[tuple[str, ...]]]:
        before, plans = resource.getrusage(resource.RUSAGE_CHILDREN), []
        planner = make_planner(PlannerConfig(search="first"))
        for text in texts:
            result = planner.solve(domain_pddl, text)
            if result.plan is None:
                raise RuntimeError(f"a Blocksworld problem without a plan: {result}")
            plans.append(result.plan)
        planner.close()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, plans

    start_s, _ = children_s(problems[:1])
    all_s, plans = children_s(problems)
    return max(all_s - start_s, 0.0) * len(problems) / max(len(problems) - 1, 1), plans


def completions_of(row: SolvedProblemRow) -> Iterator[str]:
    """Yield what a policy might answer: the true chain, a chain of every corruption, a chain that is cut off."""
    task = PlanningTask.from_text(row.domain_pddl, row.problem_pddl)
    plan = [parse_step(step) for step in row.plan]
    true = chain_of_plan(task, plan)
    yield RENDERING.write_chain(true)
    for corruption in Corruption:
        shown = corrupt_plan(task, plan, corruption, row_rng(0, "corrupt", row.problem_id, corruption))
        if shown is not None:
            yield RENDERING.write_chain(_claiming(chain_of_plan(task, shown.plan), shown.claims))
    text = RENDERING.write_chain(true)
    yield text[: 2 * len(text) // 3]


def _claiming(chain: Chain, claims: Sequence[Any]) -> Chain:
    """Return a chain that claims other states after its steps; none given, it stays as it is."""
    if not claims:
        return chain
    steps = tuple(replace(step, next_state=claim) for step, claim in zip(chain.steps, claims, strict=True))
    return replace(chain, steps=steps)


def rollouts_of(rows: Sequence[SolvedProblemRow], n_rollouts: int) -> list[JudgingRow]:
    """Return so many rollouts, going round the problems, those of a problem together, as groups come from a policy."""
    written = [(row, text) for row in rows for text in completions_of(row)]
    numbered = enumerate(islice(cycle(written), n_rollouts))
    found = []
    for _, members in groupby(numbered, key=lambda item: item[1][0].problem_id):
        group = list(members)
        first, (row, _) = group[0]
        texts = tuple(CompletionRow(f"{number:08d}", 0, "scaling", text) for number, (_, text) in group)
        found.append(JudgingRow(f"{first:08d}", row.domain_pddl, row.problem_pddl, texts))
    return found


def unit_costs(rows: Sequence[SolvedProblemRow], rollouts: Sequence[JudgingRow]) -> dict[str, float]:
    """Return the processor seconds of writing a chain with its prompt, and of judging a rollout."""
    start_s = time.process_time()
    for row in rows:
        task = PlanningTask.from_text(row.domain_pddl, row.problem_pddl)
        RENDERING.plan_prompt(task)
        RENDERING.write_chain(chain_of_plan(task, [parse_step(step) for step in row.plan]))
    chain_s = (time.process_time() - start_s) / len(rows)
    judge, start_s = PlanJudge("full"), time.process_time()
    for group in rollouts:
        judge.judge(group)
    n_rollouts = sum(len(group.completions) for group in rollouts)
    return {"chain_s": chain_s, "judged_s": (time.process_time() - start_s) / n_rollouts}
