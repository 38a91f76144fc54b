"""Stages of Self-CriTeach between its written domain and its arms: the library, its chains, and the other ways."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field
from rapidfuzz.distance import Levenshtein

from actors.writer import ChainWriter
from pipelines.run.workers import MODEL
from pipelines.stages.domain_writing import DEMONSTRATIONS, written_domain
from pipelines.stages.generating import GenerationSettings, sample_prompts
from pipelines.stages.judging import STEPS, steps_of
from pipelines.stages.phase1_data import solve_problems, solved_problems
from plansmith.config.basics import StrictModel
from plansmith.config.chains import ChainConfig
from plansmith.config.constrained import CriticConfig
from plansmith.config.domains import WalkSettings
from plansmith.config.pddl_instruct import ExamplesConfig
from plansmith.config.planner import PlannerConfig
from plansmith.config.problems import task_of_level
from plansmith.config.self_criteach import LengthShare, LibraryConfig, QuotaConfig, WalksConfig
from plansmith.config.training import Numerics
from plansmith.data.artifacts import Artifact
from plansmith.data.demonstration_files import read_demonstrations
from plansmith.data.held_out import MEASURING, HeldOut
from plansmith.data.rows import (
    CriticismRow,
    ExampleKind,
    ExampleRow,
    JudgedStepRow,
    MetricRow,
    PairRow,
    PlanRow,
    ProblemRow,
    RolloutRow,
    SolvedProblemRow,
    Split,
    VerdictRow,
)
from plansmith.errors import BadInputError, PlansmithError
from plansmith.generation import asking
from plansmith.groups import grouped
from plansmith.judging.domain_checks import adopted
from plansmith.judging.progress_score import printed_progress
from plansmith.judging.step_critic import criticise
from plansmith.layout import text_table
from plansmith.learning.encoding import ExampleEncoder
from plansmith.learning.sequences import NLL_WEIGHT
from plansmith.pddl.canonical import canonical_form
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Atom, Domain, PlanStep, conjuncts_of
from plansmith.pddl.parser import parse_domain, parse_problem, parse_step
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.pddl.validation import Verdict, validate_plan
from plansmith.problems.invariants import learn_invariants, nearest_problem
from plansmith.problems.noise import Noise, noisy_problem
from plansmith.problems.simulator import Simulator
from plansmith.problems.walk import WalkSampler
from plansmith.stages import StageContext, row_seed
from plansmith.text.chains import VALID, Chain
from plansmith.text.narration import (
    Narration,
    aspects_of,
    narrated_answer,
    narration_of_steps,
    narration_prompt,
    read_narration,
    read_step_narration,
    states_before,
    step_prompts,
)
from plansmith.text.paraphrase import paraphrase_prompt, read_paraphrase
from plansmith.text.rendering import is_rendering, prompting_of, rendering_of

OF_STEP = "-step"
"""Between the id of a plan and the number of a step of it, from 0, that is narrated by itself."""
OF_PLAN = "-p"
"""Between the id of a problem and the number of a plan of it, from 2."""
_OF_PLAN = re.compile(rf"{OF_PLAN}\d+$")
WRITTEN, DEMONSTRATED = "written", "demonstrated"
"""How the names of inputs begin that hold a domain that counts, or demonstrations; the reference's name follows."""


class WritingLibrarySettings(StrictModel):
    """How the library is written."""

    library: LibraryConfig
    """What is learnt of it."""
    prompting: str
    """How policies are asked, and chains written."""
    object_names: tuple[str, ...]
    """Names that objects get; none: each problem keeps its own."""
    n_plans: int
    """Plans of a problem, at most."""
    has_chains: bool = True
    """Chains of thought; otherwise plans alone."""
    chains: ChainConfig = ChainConfig()
    """What chains tell beside their steps."""
    noise: Noise | None = None
    """Disturbs the states of prompts; chains then begin with the true ones."""


class NoiseSettings(StrictModel):
    """How states are disturbed."""

    rate: float
    """Share of the atoms that may change."""
    mixture: str
    """A name of `plansmith.problems.noise.MIXTURES`."""


def _written_domains(context: StageContext[Any]) -> dict[str, Domain]:
    """Return the domains that count, by the reference's name."""
    return {
        name.removeprefix(f"{WRITTEN} "): written_domain(artifact)
        for name, artifact in context.inputs.items()
        if name.startswith(WRITTEN)
    }


def walk_library(context: StageContext[WalksConfig]) -> None:
    """Give each problem that is learnt from a goal that a walk in the written domain reaches; tests stay as they are.

    The scenes are the simulator's, and the rows of the reference domain, by which plans are run. One in which the
    walk changes nothing is left out; whether two have one form, `adopt_domains` sees.
    """
    domains, settings = _written_domains(context), context.settings
    walking = WalkSettings(problems=WRITTEN, steps=settings.steps, goal_size=settings.goal_size)
    rows = []
    for row in context.inputs["problems"].rows(ProblemRow):
        domain = domains.get(row.domain)
        if domain is None or row.split in MEASURING:
            rows.append(row)
            continue
        reference = parse_domain(row.domain_pddl)
        scene = parse_problem(row.problem_pddl, reference)
        sampler = WalkSampler(domain, walking, Path(), where=WRITTEN)
        goal = sampler.walked(adopted(domain, scene), context.rng(row.problem_id)).goal
        if conjuncts_of(goal):
            walked = replace(scene, goal=goal)
            form = canonical_form(reference, walked)
            rows.append(replace(row, canonical_form=form, problem_pddl=print_problem(walked), source=WRITTEN))
    context.output.write_rows(rows, ProblemRow)


def adopt_domains(context: StageContext[None]) -> None:
    """Write every problem as the written domain has it, under its id; those of other domains stay as they are.

    Canonical forms are those of the written domain: by them plans in it are recognised that pass a test problem. A
    problem to learn from whose form in it is of another split, or that of one before, is left out, which is said.
    """
    domains, rows = _written_domains(context), list[ProblemRow]()
    for row in context.inputs["problems"].rows(ProblemRow):
        domain = domains.get(row.domain)
        if domain is not None:
            problem = adopted(domain, parse_problem(row.problem_pddl, parse_domain(row.domain_pddl)))
            form, texts = canonical_form(domain, problem), (print_domain(domain), print_problem(problem))
            row = replace(row, canonical_form=form, domain_pddl=texts[0], problem_pddl=texts[1])
        rows.append(row)
    kept = list(_of_one_split(rows))
    if len(kept) < len(rows):
        context.logger.warning("%d problems to learn from have the form of another in the written domain: left out",
                               len(rows) - len(kept))  # fmt: skip
    context.output.write_rows(kept, ProblemRow)


def _of_one_split(rows: Sequence[ProblemRow]) -> Iterator[ProblemRow]:
    """Yield those that measure, and of those to learn from the first of each form in its domain, for one split."""
    split_of, first = dict[str, str](), dict[tuple[str, str], str]()
    for row in sorted(rows, key=lambda row: row.split not in MEASURING):
        split_of.setdefault(row.canonical_form, row.split)
        first.setdefault((row.domain, row.canonical_form), row.problem_id)
    for row in rows:
        is_first = first[row.domain, row.canonical_form] == row.problem_id
        if row.split in MEASURING or (is_first and split_of[row.canonical_form] == row.split):
            yield row


def plan_tests(context: StageContext[PlannerConfig]) -> None:
    """Solve the test problems in the reference domain, for comparison; nothing is learnt of these plans."""
    rows = [row for row in context.inputs["problems"].rows(ProblemRow) if row.split == Split.TEST]
    solve_problems(context, rows, context.settings, held_out=HeldOut(), description="solving test problems")


def run_library(context: StageContext[None]) -> None:
    """Run every plan of the library in the simulator, and count by domain how many are true there."""
    references = {row.problem_id: row for row in context.inputs["reference"].rows(ProblemRow)}
    counts: dict[str, list[bool]] = defaultdict(list)
    for row in context.inputs["plans"].rows(PlanRow):
        reference = references[row.problem_id]
        if reference.split == Split.TEST or not row.plan:
            continue
        domain = parse_domain(reference.domain_pddl)
        simulator = Simulator(domain, parse_problem(reference.problem_pddl, domain))
        plans = (row.plan, *(item.plan for item in row.alternatives))
        counts[reference.domain] += [simulator.solves(tuple(map(parse_step, plan))) for plan in plans]
    metrics = [
        MetricRow(context.stage.name, 0, domain, "", name, float(value))
        for domain, found in counts.items()
        for name, value in (("library/plans", len(found)), ("library/true_plans", sum(found)))
    ]
    context.output.write_rows(metrics, MetricRow)


def write_library(context: StageContext[WritingLibrarySettings]) -> None:
    """Write the plans of D1 as chains of thought by template, or as plans alone.

    Raises:
        BadInputError: there is none.
        PlansmithError: fewer plans of a length than the quota.
    """
    settings = context.settings
    solved = library_plans(context.inputs["problems"], context.inputs["plans"], settings)
    if not settings.has_chains:
        context.output.write_rows(bare_plans(solved, settings.prompting), ExampleRow, table="chains")
        return
    examples = ExamplesConfig(
        renamings=settings.library.renamings, valid_explanations=0.0, invalid_explanations=0.0,
        **settings.chains.model_dump(),
    )  # fmt: skip
    context.resources.map_rows(
        solved,
        SolvedProblemRow,
        ChainWriter,
        shards=context.output.shards("chains", ExampleRow),
        batch_size=64,
        description="writing chains of thought",
        worker_settings={
            "rendering": settings.prompting,
            "names": settings.object_names,
            "examples": examples,
            "renamings": {},
            "seed": context.seed,
            "noise": settings.noise,
        },
        is_resident=False,
    )


class PartSettings(StrictModel):
    """Which chains of the library are taken."""

    held_out_share: float
    """Share of the problems whose chains only measure."""
    is_held_out: bool
    """Theirs, or all others."""


def part_of_chains(context: StageContext[PartSettings]) -> None:
    """Write the chains of a part of the library's problems: of one the plans are all learnt from, or none.

    Raises:
        BadInputError: there is none.
    """
    settings, rows = context.settings, context.inputs["chains"].rows(ExampleRow, "chains")
    problems = sorted({_problem_of(row) for row in rows}, key=lambda name: row_seed(context.seed, "held out", name))
    held_out = {*problems[: round(settings.held_out_share * len(problems))]}
    kept = [row for row in rows if (_problem_of(row) in held_out) == settings.is_held_out]
    if not kept:
        raise BadInputError("no chain is left", where="library.held_out_share", got=f"{settings.held_out_share:g} of "
                            f"{len(problems)} problems", expected="some to learn from and some to measure by",
                            cure="draw more problems, or change the share")  # fmt: skip
    context.output.write_rows(kept, ExampleRow, table="chains")


def _problem_of(row: ExampleRow) -> str:
    """Return the problem of a chain, several plans of which may be told."""
    return _OF_PLAN.sub("", row.problem_id)


def read_chains(context: StageContext[Numerics]) -> None:
    """Write what a policy expects of chains: the mean over their tokens of -log p, in nats."""
    folder, rows = context.inputs["policy"].path(MODEL), context.inputs["chains"].rows(ExampleRow, "chains")
    encoder = ExampleEncoder(str(folder))
    sequences = [encoder.encode(row) for row in rows]
    numbers = context.resources.trainer(folder, context.settings).token_logprobs(sequences)
    told = [read[sequence.columns[NLL_WEIGHT] != 0] for read, sequence in zip(numbers, sequences, strict=True)]
    loss = -float(np.concatenate(told).mean(dtype=np.float64))
    found = {"held_out/chains": float(len(rows)), "held_out/loss": loss}
    metrics = [MetricRow(context.stage.name, 0, "", "", name, value) for name, value in found.items()]
    context.output.write_rows(metrics, MetricRow, table="metrics")


class NarratingSettings(GenerationSettings):
    """How the library is told by a model."""

    library: WritingLibrarySettings
    """What is told."""
    by: str
    """A whole plan, or a step, at a time."""


class NarrationSettings(StrictModel):
    """Which narrations are kept."""

    library: WritingLibrarySettings
    """What was told."""
    by: str
    """A whole plan, or a step, at a time."""
    max_refused_share: float = Field(exclude=True)
    """More refused plans are an error."""


def narrate(context: StageContext[NarratingSettings]) -> None:
    """Let the base model narrate the plans of the library, each again while it is refused and may be (equation 6)."""
    rows = library_plans(context.inputs["problems"], context.inputs["plans"], context.settings.library)
    told, is_by_step = {row.problem_id: _told(row) for row in rows}, context.settings.by == "step"
    if is_by_step:
        asked = {f"{name}{OF_STEP}{number}": asking(prompt) for name, pair in told.items()
                 for number, prompt in enumerate(step_prompts(*pair))}  # fmt: skip
    else:
        asked = {name: asking(narration_prompt(*pair)) for name, pair in told.items()}

    before = _states_before_steps(told) if is_by_step else {}

    def is_kept(name: str, text: str) -> bool:
        if is_by_step:
            return read_step_narration(text, before[name]) is not None
        return read_narration(text, *told[name]).refusal is None

    sample_prompts(context, asked, description="narrating plans", is_good=is_kept)


def keep_narrations(context: StageContext[NarrationSettings]) -> None:
    """Write the first narration of each plan that is believed; count the refused by reason, its steps by aspect.

    Raises:
        PlansmithError: more plans have none than may.
    """
    settings = context.settings
    rows = library_plans(context.inputs["problems"], context.inputs["plans"], settings.library)
    told = {row.problem_id: _told(row) for row in rows}
    refusals, aspects, kept = Counter[str](), Counter[str](), dict[str, ExampleRow]()
    answers = sorted(context.inputs["narrations"].rows(RolloutRow), key=lambda row: row.rollout_id)
    whole = _of_steps(told, answers) if settings.by == "step" else ((row.problem_id, row.completion) for row in answers)
    for name, completion in whole:
        task, plan = told[name]
        found = read_narration(completion, task, plan)
        if found.refusal is not None:
            refusals[found.refusal] += 1
        elif name not in kept:
            prompt, answer = prompting_of(settings.library.prompting).plan_prompt(task), narrated_answer(found, plan)
            kept[name] = ExampleRow(f"{name}-told", name, ExampleKind.PLAN_CHAIN, None, prompt, answer)
            aspects.update({"steps": len(plan)})
            aspects.update(f"steps with {aspect}" for aspect in aspects_of(found, task, plan))
    counted = {"told": len(told), "kept": len(kept), **{f"refused {reason}": n for reason, n in refusals.items()}}
    counted |= dict(sorted(aspects.items()))
    metrics = [MetricRow(context.stage.name, 0, "", "", f"narration/{name}", float(n)) for name, n in counted.items()]
    context.output.write_rows(metrics, MetricRow, table="metrics")
    if not kept or len(told) - len(kept) > settings.max_refused_share * len(told):
        table = text_table(("refused for", "narrations"), [[why, str(n)] for why, n in refusals.most_common()])
        raise PlansmithError(
            "too many narrations are refused", got=f"{len(told) - len(kept)} of {len(told)} plans\n{table}",
            expected=f"a share of {settings.max_refused_share:g} at most (narrator.max_refused_share)",
            cure="allow longer narrations or more repeats, take a stronger model, or narrator.kind=template",
        )  # fmt: skip
    context.output.write_rows(kept.values(), ExampleRow, table="chains")


def _states_before_steps(
    told: Mapping[str, tuple[PlanningTask, Sequence[PlanStep]]],
) -> dict[str, frozenset[Atom]]:
    """Return what holds before each step of each plan, by the name under which it is told."""
    return {
        f"{name}{OF_STEP}{number}": state
        for name, pair in told.items()
        for number, state in enumerate(states_before(*pair))
    }


def _of_steps(
    told: Mapping[str, tuple[PlanningTask, Sequence[PlanStep]]], answers: Iterable[RolloutRow]
) -> Iterator[tuple[str, str]]:
    """Yield each plan with the narration of its steps, the first that can be used of each; empty where one has none."""
    said, before = dict[str, str](), _states_before_steps(told)
    for row in answers:
        if (text := read_step_narration(row.completion, before[row.problem_id])) is not None:
            said.setdefault(row.problem_id, text)
    for name, (task, plan) in told.items():
        steps = [said.get(f"{name}{OF_STEP}{number}") for number in range(len(plan))]
        known = [text for text in steps if text is not None]
        yield name, narration_of_steps(task, plan, known) if len(known) == len(plan) else ""


def paraphrase(context: StageContext[GenerationSettings]) -> None:
    """Let the base model, or whom else the settings name, rephrase the prompt of every chain (appendix A.3.2)."""
    prompts = {row.example_id: row.prompt for row in context.inputs["examples"].rows(ExampleRow, "chains")}
    asked = {name: asking(paraphrase_prompt(prompt)) for name, prompt in prompts.items()}

    def is_kept(name: str, text: str) -> bool:
        return read_paraphrase(text, prompts[name]).fault is None

    sample_prompts(context, asked, description="rephrasing prompts", is_good=is_kept)


def keep_paraphrases(context: StageContext[None]) -> None:
    """Write every chain with its prompt rephrased, or as it was where that is refused, and count both."""
    rollouts = context.inputs["paraphrases"].rows(RolloutRow)
    answers = {row.problem_id: row.completion for row in rollouts}
    counts, kept = Counter[str](), list[ExampleRow]()
    for row in context.inputs["examples"].rows(ExampleRow, "chains"):
        found = read_paraphrase(answers.get(row.example_id, ""), row.prompt)
        counts["rephrased" if found.fault is None else f"refused {found.fault}"] += 1
        kept.append(replace(row, prompt=found.prompt) if found.fault is None else row)
    metrics = [MetricRow(context.stage.name, 0, "", "", f"paraphrase/{name}", float(n)) for name, n in counts.items()]
    context.output.write_rows(metrics, MetricRow, table="metrics")
    context.output.write_rows(kept, ExampleRow, table="chains")


def _told(row: SolvedProblemRow) -> tuple[PlanningTask, tuple[PlanStep, ...]]:
    return PlanningTask.from_text(row.domain_pddl, row.problem_pddl), tuple(map(parse_step, row.plan))


def library_plans(problems: Artifact, plans: Artifact, settings: WritingLibrarySettings) -> list[SolvedProblemRow]:
    """Return the plans that are learnt from, each under an id of its own."""
    found, counts = list[SolvedProblemRow](), dict[str, int]()
    for row in solved_problems(problems, plans, Split.PHASE1, n_plans=settings.n_plans):
        number = counts[row.problem_id] = counts.get(row.problem_id, 0) + 1
        found.append(replace(row, problem_id=f"{row.problem_id}{OF_PLAN}{number}" if number > 1 else row.problem_id))
    if not found:
        raise BadInputError(
            "no plan to learn from",
            got="no problem of D1 has a plan in the written domain",
            expected="one at least",
            cure="let the domain be mended more often (domain.turns)",
        )
    return by_quotas(found, settings.library)


def by_quotas(rows: Sequence[SolvedProblemRow], library: LibraryConfig) -> list[SolvedProblemRow]:
    """Return the plans that the quotas of some tasks, and that of all others, let in; see `by_quota`."""
    quotas: list[QuotaConfig] = [*library.of_tasks, library]
    quota_of = {task: quota for quota in library.of_tasks for task in quota.tasks}
    parts = [[row for row in rows if quota_of.get(task_of_level(row.level), library) is quota] for quota in quotas]
    return [row for quota, own in zip(quotas, parts, strict=True) if own or quota is not library
            for row in by_quota(own, quota)]  # fmt: skip


def by_quota(rows: Sequence[SolvedProblemRow], library: QuotaConfig) -> list[SolvedProblemRow]:
    """Return as many plans of each length as wanted, at even distances among those that there are.

    So each kind of problem, which stand together, loses as large a share as the others.

    Raises:
        PlansmithError: there are fewer.
    """
    if not library.lengths:
        if library.plans is not None and len(rows) < library.plans:
            raise _too_few({"any length": len(rows)}, {"any length": library.plans})
        return _from_all_over(rows, len(rows) if library.plans is None else library.plans)
    groups, weight = by_length(rows, library.lengths), sum(part.share for part in library.lengths)
    shares = [part.share / weight for part in library.lengths]
    total = library.plans or min(int(len(own) / share) for share, own in zip(shares, groups.values(), strict=True))
    wanted = dict(zip(groups, apportioned(total, library.lengths), strict=True))
    if any(len(own) < max(wanted[name], 1) for name, own in groups.items()):
        raise _too_few({name: len(own) for name, own in groups.items()},
                       {name: max(n, 1) for name, n in wanted.items()})  # fmt: skip
    return [row for name, own in groups.items() for row in _from_all_over(own, wanted[name])]


def by_length(rows: Sequence[SolvedProblemRow], lengths: Sequence[LengthShare]) -> dict[str, list[SolvedProblemRow]]:
    """Return the problems of each part of the lengths of plans, by what the part is called."""
    bounds = pairwise([0, *(part.up_to for part in lengths)])
    return {
        f"{least + 1} to {most} steps": [row for row in rows if least < len(row.plan) <= most]
        for least, most in bounds
    }  # fmt: skip


def apportioned(total: int, lengths: Sequence[LengthShare]) -> list[int]:
    """Return how many of a total each part gets: rounded down, and one more those that lose most by it."""
    weight = sum(part.share for part in lengths)
    exact = [total * part.share / weight for part in lengths]
    found = list(map(int, exact))
    lost = sorted(range(len(exact)), key=lambda number: found[number] - exact[number])
    for number in lost[: total - sum(found)]:
        found[number] += 1
    return found


def _from_all_over(rows: Sequence[SolvedProblemRow], n_wanted: int) -> list[SolvedProblemRow]:
    return [rows[place * len(rows) // n_wanted] for place in range(n_wanted)]


def _too_few(there: Mapping[str, int], wanted: Mapping[str, int]) -> PlansmithError:
    lines = [[name, str(n), str(wanted[name])] for name, n in there.items()]
    return PlansmithError(
        "fewer plans than the library wants", got="\n" + text_table(("plans of", "there", "wanted"), lines),
        cure="draw more problems of D1, other sizes, or more planner.n_plans; or want fewer (library.plans, lengths)",
    )  # fmt: skip


def bare_plans(solved: Iterable[SolvedProblemRow], name: str) -> Iterator[ExampleRow]:
    """Yield problems answered by their plans, without a step of reasoning, asked for under the name of a prompting."""
    prompting = prompting_of(name)
    for row in solved:
        task, plan = PlanningTask.from_text(row.domain_pddl, row.problem_pddl), tuple(map(parse_step, row.plan))
        if is_rendering(prompting):
            response = rendering_of(name).write_chain(Chain((), None, plan, VALID))
        else:
            response = narrated_answer(Narration(""), plan)
        prompt = prompting.plan_prompt(task)
        yield ExampleRow(f"{row.problem_id}-plan", row.problem_id, ExampleKind.PLAN, None, prompt, response)


def distil(context: StageContext[None]) -> None:
    """Write the answers that are valid in the written domain, each once, to be tuned on; none passes a test problem."""
    answers = _JudgedAnswers.of(context)
    kept: dict[tuple[str, str], ExampleRow] = {}
    for row in answers.rollouts:
        if answers.verdicts[row.rollout_id].is_valid and answers.is_clean(row):
            made = ExampleRow(row.rollout_id, row.problem_id, ExampleKind.PLAN_CHAIN, None, row.prompt, row.completion)
            kept.setdefault((row.prompt, row.completion), made)
    context.output.write_rows(kept.values(), ExampleRow, table="chains")


def has_examples(artifacts: Mapping[str, Artifact], *, stage: str) -> bool:
    """Return whether a stage has left anything to tune on."""
    return stage in artifacts and bool(artifacts[stage].rows(ExampleRow, "chains"))


def has_pairs(artifacts: Mapping[str, Artifact], *, stage: str) -> bool:
    """Return whether a stage has left a preference pair."""
    return stage in artifacts and bool(artifacts[stage].rows(PairRow))


def pair_answers(context: StageContext[CriticConfig]) -> None:
    """Pair the best answer to each problem with its worst: a valid one first, then by R less lambda C.

    A problem whose answers are worth the same gives no pair, which is counted. No answer passes a test problem.
    """
    answers = _JudgedAnswers.of(context)
    groups: dict[str, list[tuple[tuple[bool, float], RolloutRow]]] = defaultdict(list)
    for row in answers.rollouts:
        verdict, steps = answers.verdicts[row.rollout_id], answers.steps.get(row.rollout_id, [])
        found = criticise(answers.task_of(row), verdict, steps, context.settings, finish_reason=row.finish_reason)
        if found is not None and row.completion and answers.is_clean(row):
            worth = (verdict.is_valid, found.reward - context.settings.state_cost * found.cost)
            groups[row.problem_id].append((worth, row))
    pairs = []
    for problem_id, group in sorted(groups.items()):
        best, worst = max(group, key=lambda a: a[0]), min(group, key=lambda a: a[0])
        if best[0] > worst[0] and best[1].completion != worst[1].completion:
            fault = answers.verdicts[worst[1].rollout_id].verdict
            pairs.append(
                PairRow(problem_id, problem_id, fault, best[1].prompt, best[1].completion, worst[1].completion)
            )
    n_problems = len({row.problem_id for row in answers.rollouts})
    counts = {"pairs/problems": n_problems, "pairs/problems without a pair": n_problems - len(pairs)}
    metrics = [MetricRow(context.stage.name, 0, "", "", name, float(n)) for name, n in counts.items()]
    context.output.write_rows(metrics, MetricRow, table="metrics")
    context.output.write_rows(pairs, PairRow)


@dataclass(frozen=True)
class _JudgedAnswers:
    """Answers to problems, and what was said of each, by its id."""

    rollouts: Sequence[RolloutRow]
    verdicts: Mapping[str, VerdictRow]
    steps: Mapping[str, Sequence[JudgedStepRow]]
    problems: Mapping[str, ProblemRow]
    held_out: HeldOut

    @classmethod
    def of(cls, context: StageContext[Any]) -> _JudgedAnswers:
        """Return those that a stage is given as ``rollouts``, ``judged`` and ``problems``."""
        problems, judged = context.inputs["problems"].rows(ProblemRow), context.inputs["judged"]
        return cls(
            context.inputs["rollouts"].rows(RolloutRow),
            {row.rollout_id: row for row in judged.rows(VerdictRow)},
            steps_of(judged),
            {row.problem_id: row for row in problems},
            HeldOut.of(problems),
        )

    def task_of(self, row: RolloutRow) -> PlanningTask:
        """Return what an answer is to."""
        return _task(self.problems[row.problem_id])

    def is_clean(self, row: RolloutRow) -> bool:
        """Return whether an answer passes no problem that only measures."""
        plan = self.verdicts[row.rollout_id].plan
        return not self.held_out.is_met_by(self.task_of(row), self.steps.get(row.rollout_id, []), plan)


def vote(context: StageContext[None]) -> None:
    """Write the verdict on one answer to each problem: that whose plan is nearest to all others by edit distance.

    Unreadable answers have no vote, and are chosen only where there are no others; of equals the first is.
    """
    groups = grouped(context.inputs["judged"].rows(VerdictRow), lambda row: row.problem_id)
    chosen = [elected(sorted(group, key=lambda row: row.rollout_id)) for _, group in sorted(groups.items())]
    context.output.write_rows(chosen, VerdictRow)
    ids = {row.rollout_id for row in chosen}
    steps = [row for row in context.inputs["judged"].rows(JudgedStepRow, STEPS) if row.rollout_id in ids]
    context.output.write_rows(steps, JudgedStepRow, table=STEPS)


def elected(group: Sequence[VerdictRow]) -> VerdictRow:
    """Return the verdict on the plan with the smallest sum of distances to the others."""
    readable = [row for row in group if row.verdict != Verdict.MALFORMED_PLAN] or list(group)
    sums = [0] * len(readable)
    for (i, one), (k, other) in combinations(enumerate(readable), 2):
        distance = Levenshtein.distance(one.plan, other.plan)
        sums[i] += distance
        sums[k] += distance
    return readable[sums.index(min(sums))]


def criticise_attempts(context: StageContext[CriticConfig]) -> None:
    """Write R, C and the printed progress score of every judged attempt.

    R and the score are of the domain that judges. C is of the written domain, in whose words an attempt claims its
    states: another that knows more or fewer predicates would find all of them false.
    """
    references, written = (
        {row.problem_id: row for row in context.inputs[name].rows(ProblemRow)} for name in ("problems", "library")
    )
    steps = steps_of(context.inputs["as_written"])
    as_written = {row.rollout_id: row for row in context.inputs["as_written"].rows(VerdictRow)}
    rows = []
    for verdict in context.inputs["judged"].rows(VerdictRow):
        reference, own = (_task(known[verdict.problem_id]) for known in (references, written))
        place = (verdict.rollout_id, verdict.problem_id, verdict.iteration, verdict.policy_version)
        reached = criticise(reference, verdict, (), context.settings)
        paid = criticise(own, as_written[verdict.rollout_id], steps.get(verdict.rollout_id, []), context.settings)
        if reached is None or paid is None:
            rows.append(CriticismRow(*place, None, None, None))
            continue
        is_read = verdict.verdict != Verdict.MALFORMED_PLAN
        judged = validate_plan(reference, [parse_step(step) for step in verdict.plan] if is_read else [])
        rows.append(CriticismRow(*place, reached.reward, paid.cost, printed_progress(reference, judged)))
    context.output.write_rows(rows, CriticismRow)


def _task(row: ProblemRow) -> PlanningTask:
    return PlanningTask.from_text(row.domain_pddl, row.problem_pddl)


def add_noise(context: StageContext[NoiseSettings]) -> None:
    """Write the test problems that policies try, those with a plan, as they are perceived, each under its id."""
    settings, rows = context.settings, []
    tried = {row.problem_id for row in solved_problems(context.inputs["problems"], context.inputs["plans"], Split.TEST)}
    for row in context.inputs["problems"].rows(ProblemRow):
        if row.problem_id not in tried:
            continue
        domain = parse_domain(row.domain_pddl)
        problem = parse_problem(row.problem_pddl, domain)
        rng = context.rng(row.problem_id)
        noisy = noisy_problem(domain, problem, rate=settings.rate, mixture=settings.mixture, rng=rng)
        rows.append(replace(row, problem_pddl=print_problem(noisy)))
    context.output.write_rows(rows, ProblemRow)


def find_nearest(context: StageContext[None]) -> None:
    """Write disturbed problems with the nearest states that fit what demonstrations always showed, each under its id.

    One without such a state stays as it is. By level it is said how many there are, and how many are the true states.
    """
    known = {row.problem_id: row for row in context.inputs["problems"].rows(ProblemRow)}
    always = {
        name.removeprefix(f"{DEMONSTRATED} "): learn_invariants(read_demonstrations(artifact.path(DEMONSTRATIONS)))
        for name, artifact in context.inputs.items()
        if name.startswith(DEMONSTRATED)
    }
    rows, outcomes = list[ProblemRow](), defaultdict[tuple[str, str], list[bool]](list)
    for row in context.inputs["noisy"].rows(ProblemRow):
        domain = parse_domain(row.domain_pddl)
        noisy, true = (parse_problem(own.problem_pddl, domain) for own in (row, known[row.problem_id]))
        nearest = nearest_problem(always[domain.name], domain, noisy) if domain.name in always else None
        rows.append(replace(row, problem_pddl=print_problem(nearest or noisy)))
        if nearest is not None:
            outcomes[row.domain, row.level].append({*nearest.init} == {*true.init})
    _write_outcomes(context, outcomes, "nearest/found", "nearest/true")
    context.output.write_rows(rows, ProblemRow)


def plan_under_noise(context: StageContext[PlannerConfig]) -> None:
    """Let the planner plan from noisy states, and run its plans from the true ones; say by level how many succeed."""
    rows = context.inputs["noisy"].rows(ProblemRow)
    plans = {
        plan.problem_id: plan
        for plan in solve_problems(
            context, rows, context.settings, held_out=HeldOut(), description="planning from noisy states"
        )
    }
    references = {row.problem_id: row for row in context.inputs["reference"].rows(ProblemRow)}
    outcomes: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for row in rows:
        reference, plan = references[row.problem_id], plans[row.problem_id]
        domain = parse_domain(reference.domain_pddl)
        simulator = Simulator(domain, parse_problem(reference.problem_pddl, domain))
        is_solved = plan.status == "solved" and simulator.solves(tuple(map(parse_step, plan.plan)))
        outcomes[row.domain, row.level].append(is_solved)
    _write_outcomes(context, outcomes, "noise/tried", "noise/succeeded")


def _write_outcomes(
    context: StageContext[Any], outcomes: Mapping[tuple[str, str], Sequence[bool]], tried: str, succeeded: str
) -> None:
    """Write how many there are by domain and level, and how many are true."""
    metrics = [
        MetricRow(context.stage.name, 0, domain, level, name, float(value))
        for (domain, level), found in outcomes.items()
        for name, value in ((tried, len(found)), (succeeded, sum(found)))
    ]
    context.output.write_rows(metrics, MetricRow, table="metrics")
