"""Stages of sections 5.1 and A.1 of Self-CriTeach: demonstrations, a domain written of them, mended and pruned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from pydantic import Field

from pipelines.stages.generating import Generating, GenerationSettings, keep_rollouts
from plansmith.config.basics import StrictModel
from plansmith.config.dataset import SymbolPoolConfig
from plansmith.config.domain_writing import DamageConfig, DemonstrationsConfig, DomainQuestionConfig, Objective
from plansmith.config.planner import PlannerConfig
from plansmith.data.artifacts import Artifact, Shards
from plansmith.data.demonstration_files import read_demonstrations, write_demonstrations
from plansmith.data.rows import (
    FIRST,
    OPPONENTS,
    ExampleKind,
    ExampleRow,
    ProblemRow,
    RolloutRow,
    Split,
    WrittenDomainRow,
)
from plansmith.errors import BadInputError, PlansmithError
from plansmith.generation import Conversation
from plansmith.judging.domain_agreement import domain_agreement, planned
from plansmith.judging.domain_checks import CheckedDomain, DomainChecks, DomainFault, Scene, known_atoms
from plansmith.judging.domain_repair import WrittenDomain, judged_answers, next_question
from plansmith.judging.schema_writing import SchemaWriting, Shown, WrittenSchema
from plansmith.layout import text_table
from plansmith.pddl.model import ActionSchema, Domain
from plansmith.pddl.parser import parse_domain, parse_problem
from plansmith.pddl.printer import print_domain
from plansmith.planners import FastDownward
from plansmith.planners.batch import proving
from plansmith.problems.action_learning import learn_domain as learn_symbolically
from plansmith.problems.damage import damaged
from plansmith.problems.demonstrations import Attempt, Demonstrations, State, Trajectory
from plansmith.problems.pruning import prune, size_of
from plansmith.problems.simulator import Recording, Simulator, demonstrate, demonstrations_of
from plansmith.stages import StageContext
from plansmith.text.domain_writing import domain_prompt
from plansmith.text.schema_words import hidden_names

DEMONSTRATIONS = "demonstrations.jsonl"
HELD_OUT = "held_out.jsonl"
"""Walks that neither prompts nor checks see; missing where there is none."""


class GatheringSettings(StrictModel):
    """What is recorded."""

    domain: str
    """Name of the reference domain, which the simulator has."""
    demonstrations: DemonstrationsConfig
    """How much."""
    attempts_shown: int
    """Of each skill, in the prompt that the base model's weights are proved with."""
    digest: str | None = None
    """Of a user's file."""


class CheckingSettings(StrictModel):
    """What a domain is checked with."""

    domain: str
    """Name of the reference domain."""
    planner: PlannerConfig
    """What solves the scenes."""
    scenes: int
    """Problems of D1 that are solved."""


class ReadingSettings(CheckingSettings):
    """A domain that no model of the run writes."""

    given: str | None
    """Its text; None learns it symbolically."""


class WriteDomainSettings(GenerationSettings):
    """One turn of writing."""

    checking: CheckingSettings
    """What answers are checked with."""
    writing: DomainQuestionConfig
    """How the model is asked."""


class WriteSchemasSettings(WriteDomainSettings):
    """One turn of writing by a model that writes one schema a completion."""

    symbols: SymbolPoolConfig
    """What names are hidden behind."""


class PruningSettings(CheckingSettings):
    """What becomes of the domain that counts."""

    objective: Objective | None
    """What pruning must not make worse; None does not prune."""
    agreement_scenes: int
    """Problems of D1 in which it is compared with the reference."""
    max_faults: int | None = Field(exclude=True)
    """More are an error."""


class DamageSettings(CheckingSettings):
    """What is done to the domain that counts."""

    damage: DamageConfig
    """How much, and of which kind."""


def gather_demonstrations(context: StageContext[GatheringSettings]) -> None:
    """Record random walks of the simulator, in scenes that are learnt from, or take a user's: U (equation 4).

    Raises:
        BadInputError: a user's file has a mistake, no walk beside those held out, or is of another domain.
    """
    settings, config = context.settings, context.settings.demonstrations
    rows = scenes_of(context.inputs["problems"], settings.domain)
    reference = parse_domain(rows[0].domain_pddl)
    found = _recorded(context, rows) if config.file is None else _of_file(context, Path(config.file), reference)
    n_shown = len(found.trajectories) - config.held_out
    if n_shown < 1:
        raise BadInputError("no demonstrations", where=str(config.file), got=f"{len(found.trajectories)} trajectories, "
                            f"of which demonstrations.held_out={config.held_out} are held out",
                            expected="one more at least", cure="record more, or lower it")  # fmt: skip
    demonstrations, held_out = (
        replace(found, trajectories=part) for part in (found.trajectories[:n_shown], found.trajectories[n_shown:])
    )
    write_demonstrations(demonstrations, context.output.path(DEMONSTRATIONS))
    if held_out.trajectories:
        write_demonstrations(held_out, context.output.path(HELD_OUT))
    prompt = domain_prompt(demonstrations, most_attempts=settings.attempts_shown)
    opening = ExampleRow(
        settings.domain, "", ExampleKind.WRITE_DOMAIN, None, prompt, f"(define (domain {reference.name})"
    )
    context.output.write_rows([opening], ExampleRow, table="openings")


def _recorded(context: StageContext[GatheringSettings], rows: Sequence[ProblemRow]) -> Demonstrations:
    config = context.settings.demonstrations
    recording, trajectories = Recording(config.steps, config.refused), []
    for number in range(config.trajectories + config.held_out):
        row = rows[number % len(rows)]
        domain = parse_domain(row.domain_pddl)
        problem = parse_problem(row.problem_pddl, domain)
        trajectories.append(demonstrate(domain, problem, recording, context.rng(row.problem_id, number)))
    return demonstrations_of(parse_domain(rows[0].domain_pddl), config.task, tuple(trajectories))


def _of_file(context: StageContext[GatheringSettings], path: Path, reference: Domain) -> Demonstrations:
    """Return a user's demonstrations, after telling what the domain that judges plans does not explain of them."""
    found = read_demonstrations(path)
    checked = DomainChecks(found).check_domain(reference)
    told = "; ".join(fault.words for fault in checked.faults[:3])
    if checked.does_nothing_right:
        raise BadInputError("demonstrations of another domain", where=str(path), got=told,
                            expected=f"those of {reference.name}, which problems.domains names",
                            cure="name there the folder that plansmith domains write made of them")  # fmt: skip
    if checked.faults:
        context.logger.warning("%s explains not all of %s: %d faults, the first: %s", reference.name, path,
                               len(checked.faults), told)  # fmt: skip
    return _seen_in(reference, found)


def _seen_in(reference: Domain, found: Demonstrations) -> Demonstrations:
    """Return demonstrations without the facts that no scene of a domain has, and which a domain could thus not need."""

    def seen(state: State) -> State:
        return frozenset(known_atoms(reference, state))

    def walk(trajectory: Trajectory) -> Trajectory:
        attempts = (
            Attempt(seen(attempt.state), attempt.action, None if attempt.after is None else seen(attempt.after))
            for attempt in trajectory.attempts
        )
        return replace(trajectory, attempts=tuple(attempts))

    known = {schema.name for schema in reference.predicates}
    predicates = tuple(schema for schema in found.predicates if schema.name in known)
    return replace(found, predicates=predicates, trajectories=tuple(map(walk, found.trajectories)))


def scenes_of(problems: Artifact, domain: str) -> list[ProblemRow]:
    """Return the problems of D1 of a domain.

    Raises:
        BadInputError: there is none, or its domain has types, which nobody demonstrates.
    """
    rows = [row for row in problems.rows(ProblemRow) if row.split == Split.PHASE1 and row.domain == domain]
    if not rows:
        raise BadInputError("no scene to record", got=f"no problem of D1 of {domain}", expected="one at least")
    if parse_domain(rows[0].domain_pddl).types:
        raise BadInputError("a domain with types", where=domain, expected="one whose facts tell what objects are",
                            cure="a robot's demonstrations name objects alone; take another domain")  # fmt: skip
    return rows


def write_domain(context: StageContext[WriteDomainSettings]) -> None:
    """Let the base model write a domain, or mend the best so far; where that has no fault it is kept as it is."""
    settings, writing = context.settings, context.settings.writing
    before = _best_row(context.inputs["before"]) if "before" in context.inputs else None
    rows: list[WrittenDomainRow] = [] if before is None else [before]
    if before is None or before.faults:
        with FastDownward(settings.checking.planner) as planner:
            checks = _checks(context, settings.checking, planner)
            best = None if before is None else _again(before, checks)
            question = next_question(
                checks.demonstrations, best, most_attempts=writing.attempts_shown, most_faults=writing.faults_shown
            )
            asked = {settings.checking.domain: question}
            [(_, told)] = _candidates(context, asked)
            answers = judged_answers(told, checks)
        rows += [
            _row(answer.checked, settings.checking.domain, answer.text, completion=answer.completion, candidate=number,
                 turn=settings.iteration) for number, answer in enumerate(answers)
        ]  # fmt: skip
    _write_marked(context, rows)


def write_schemas(context: StageContext[WriteSchemasSettings]) -> None:
    """Let the base model write a schema for each skill, or mend those with faults; the best of each are the domain.

    A schema is compared with others by the attempts of its own skill; the domain as a whole is checked as any.

    Raises:
        PlansmithError: a request failed.
    """
    settings, writing = context.settings, context.settings.writing
    before = _best_row(context.inputs["before"]) if "before" in context.inputs else None
    rows: list[WrittenDomainRow] = [] if before is None else [before]
    if before is None or before.faults:
        with FastDownward(settings.checking.planner) as planner:
            checks = _checks(context, settings.checking, planner)
            names = hidden_names(checks.demonstrations, context.rng("names", settings.iteration), settings.symbols)
            loop = SchemaWriting(checks.demonstrations, names, Shown(writing.attempts_shown, writing.faults_shown))
            best, faults = dict[str, WrittenSchema](), tuple[DomainFault, ...]()
            if before is not None and before.n_literals:
                best = {action.name: loop.kept(action) for action in parse_domain(before.domain_pddl).actions}
                faults = checks.check(before.domain_pddl).faults
            asked = loop.questions(_schemas(best), faults)
            for name, told in _candidates(context, asked):
                answers = [loop.judged(name, text) for text in told]
                best[name] = max([*answers, *([best[name]] if name in best else [])], key=lambda one: one.worth)
            text = print_domain(loop.domain(_schemas(best))) if _schemas(best) else ""
            completion = "\n".join(filter(None, (found.completion for found in best.values())))
            rows.insert(  # first: of equal domains the one whose schemas are no worse, one by one
                0,
                _row(checks.check(text or None), settings.checking.domain, text, completion=completion,
                     turn=settings.iteration)
            )  # fmt: skip
    _write_marked(context, rows)


def _candidates(
    context: StageContext[Generating], asked: Mapping[str, Conversation]
) -> Iterator[tuple[str, list[str]]]:
    """Yield each question with its answers, every one of which is kept as it comes.

    Raises:
        PlansmithError: a request failed; the same command asks for what is missing.
    """
    names = {name: [f"{name} {number}" for number in range(context.settings.sampling.n)] for name in asked}
    shards = Shards(context.output.scratch("answers"), "rows", RolloutRow)
    finished = shards.finished_ids("problem_id")
    waiting = {each: asked[name] for name, own in names.items() for each in own if each not in finished}
    if waiting:
        keep_rollouts(context, waiting, shards, turn=0, n=1, description=context.stage.name.replace("_", " "))
    said = {row.problem_id: row.completion for row in shards.merged_rows()}
    yield from ((name, [said[each] for each in own]) for name, own in names.items())


def _schemas(written: Mapping[str, WrittenSchema]) -> dict[str, ActionSchema]:
    return {name: found.schema for name, found in written.items() if found.schema is not None}


def read_domain(context: StageContext[ReadingSettings]) -> None:
    """Check a domain that is given, or learn a safe action model of the demonstrations, and check that."""
    settings = context.settings
    with FastDownward(settings.planner) as planner:
        checks = _checks(context, settings, planner)
        text = settings.given
        if text is None:
            text = print_domain(learn_symbolically(checks.demonstrations))
        row = _row(checks.check(text), settings.domain, text)
    _write_marked(context, [row])


def prune_domain(context: StageContext[PruningSettings]) -> None:
    """Drop what the domain can do without, and compare it with the reference as it was first, mended, and pruned.

    Its opponent, which is learnt of the same demonstrations without a model, is checked and compared as well, where it
    is another domain; it is pruned of nothing.

    Raises:
        PlansmithError: no answer holds a domain that can be read, or it has more faults than it may.
    """
    settings = context.settings
    best = _best_row(context.inputs["written"])
    with FastDownward(settings.planner) as planner:
        checks = _checks(context, settings, planner)
        checked = checks.check(best.domain_pddl)
        _check_quality(best, checked, settings.max_faults)
        assert checked.domain is not None, "it was looked at"
        rows = [replace(best, is_best=settings.objective is None)]
        domains = [checked.domain]
        if settings.objective is not None:
            pruned = prune(checked.domain, keeps(settings.objective, checks, checked.domain))
            text = print_domain(pruned.domain)
            row = _row(checks.check_domain(pruned.domain), settings.domain, text, turn=best.turn)
            rows.append(replace(row, candidate=1, is_best=True, dropped=pruned.dropped))
            domains.append(pruned.domain)
        symbolic = learn_symbolically(checks.demonstrations)
        opponents = [] if symbolic == checked.domain else [symbolic]
        of_opponents = [_row(checks.check_domain(one), settings.domain, print_domain(one)) for one in opponents]
        firsts = [_best_row(context.inputs["first"])] if "first" in context.inputs else []
        checked_first = [checks.check(row.domain_pddl or None) for row in firsts]
        domains_of_first = [None if found.does_nothing_right else found.domain for found in checked_first]
        scenes = scenes_of(context.inputs["problems"], settings.domain)[: settings.agreement_scenes]
        reference = parse_domain(scenes[0].domain_pddl)
        problems = planned(reference, (parse_problem(row.problem_pddl, reference) for row in scenes), proving(planner))
    recorded = context.inputs["demonstrations"]
    is_held_out = HELD_OUT in recorded.manifest.files
    unseen = DomainChecks(read_demonstrations(recorded.path(HELD_OUT))) if is_held_out else None

    def compared(row: WrittenDomainRow, domain: Domain | None) -> WrittenDomainRow:
        if domain is None:
            return row
        found = domain_agreement(reference, domain, problems, n_steps=10, rng=context.rng("agreement"))
        return replace(
            row,
            applicable_precision=found.applicable_precision,
            applicable_recall=found.applicable_recall,
            effect_precision=found.effect_precision,
            effect_recall=found.effect_recall,
            reference_plans=found.reference_plans,
            held_out=None if unseen is None else unseen.replay(domain)[0].transitions,
        )

    context.output.write_rows(map(compared, rows, domains), WrittenDomainRow)
    context.output.write_rows(map(compared, firsts, domains_of_first), WrittenDomainRow, table=FIRST)
    context.output.write_rows(map(compared, of_opponents, opponents), WrittenDomainRow, table=OPPONENTS)


def damage_domain(context: StageContext[DamageSettings]) -> None:
    """Remove or add literals of the domain that counts, and check what is left; ``dropped`` says which.

    Where no scene can be solved in it, others are drawn; ``candidate`` counts the draws before.

    Raises:
        PlansmithError: none of the draws leaves a scene that can be solved, or there are not as many literals.
    """
    settings, damage = context.settings, context.settings.damage
    best = _best_row(context.inputs["written"])
    with FastDownward(settings.planner) as planner:
        checks = _checks(context, settings, planner)
        for number in range(damage.redraws + 1):
            rng = context.rng("damage", number)
            found = damaged(parse_domain(best.domain_pddl), damage.kind, damage.literals, rng)
            text = print_domain(found.domain)
            row = _row(checks.check(text), settings.domain, text, candidate=number, turn=best.turn)
            if row.solved:
                context.output.write_rows([replace(row, is_best=True, dropped=found.changes)], WrittenDomainRow)
                return
    raise PlansmithError(
        "no drawn damage leaves a domain to learn in", where=settings.domain,
        got=f"{damage.redraws + 1} draws of {damage.literals} literals {damage.kind}, in which no scene is solved",
        expected="one scene at least that a planner solves", cure="raise domain.damage.redraws, or damage less",
    )  # fmt: skip


def _check_quality(best: WrittenDomainRow, checked: CheckedDomain, max_faults: int | None) -> None:
    n_faults = len(checked.faults)
    if checked.domain is None or (max_faults is not None and n_faults > max_faults):
        kinds = Counter(fault.kind.replace("_", " ") for fault in checked.faults)
        table = text_table(("fault", "times"), [[kind, str(n)] for kind, n in kinds.most_common()])
        raise PlansmithError(
            "no domain passes" if checked.domain is not None else "no answer holds a domain that can be read",
            where=best.domain, got=f"{n_faults} faults, the first: {'; '.join(best.faults[:3])}\n{table}",
            expected="no fault" if not max_faults else f"{max_faults} faults at most",
            cure="allow more domain.turns or candidates, a stronger model, or more faults (domain.max_faults)",
        )  # fmt: skip


def keeps(objective: Objective, checks: DomainChecks, domain: Domain) -> Callable[[Domain], bool]:
    """Return whether another domain is as good as this one, by what pruning must not make worse.

    Where this one does nothing right every other one is, down to the empty one: then none is.
    """
    checked = checks.check_domain(domain)
    base = checked.scores

    def is_no_worse(candidate: Domain) -> bool:
        if checked.does_nothing_right:
            return False
        if objective == "solvability":
            solved = checks.check_domain(candidate).scores.solved
            return (solved or 0.0) >= (base.solved or 0.0)
        replayed, _ = checks.replay(candidate)  # first: no planner is asked
        if not replayed.is_no_worse_than(replace(base, solved=None, true_plans=None)):
            return False
        return checks.check_domain(candidate).scores.is_no_worse_than(base)

    return is_no_worse


def written_domain(pruned: Artifact) -> Domain:
    """Return the domain that counts."""
    return parse_domain(_best_row(pruned).domain_pddl)


Checking = TypeVar("Checking")


def _checks(context: StageContext[Checking], settings: CheckingSettings, planner: FastDownward) -> DomainChecks:
    demonstrations = read_demonstrations(context.inputs["demonstrations"].path(DEMONSTRATIONS))
    scenes = []
    for row in scenes_of(context.inputs["problems"], settings.domain)[: settings.scenes]:
        domain = parse_domain(row.domain_pddl)
        problem = parse_problem(row.problem_pddl, domain)
        scenes.append(Scene(problem, Simulator(domain, problem)))
    return DomainChecks(demonstrations, tuple(scenes), proving(planner))


def _best_row(written: Artifact) -> WrittenDomainRow:
    return next(row for row in written.rows(WrittenDomainRow) if row.is_best)


def _again(row: WrittenDomainRow, checks: DomainChecks) -> WrittenDomain:
    """Return an answer of an earlier turn with its faults as they are."""
    return WrittenDomain(row.completion, row.domain_pddl, checks.check(row.domain_pddl or None))


def _row(
    checked: CheckedDomain, domain: str, text: str, *, completion: str = "", candidate: int = 0, turn: int = 0
) -> WrittenDomainRow:
    scores = checked.scores
    return WrittenDomainRow(
        domain=domain,
        turn=turn,
        candidate=candidate,
        completion=completion,
        domain_pddl=text,
        n_literals=0 if checked.domain is None else size_of(checked.domain),
        transitions=scores.transitions,
        refusals=scores.refusals,
        solved=scores.solved,
        true_plans=scores.true_plans,
        faults=tuple(fault.words for fault in checked.faults),
        is_best=False,
    )


def _write_marked(context: StageContext[Checking], rows: Sequence[WrittenDomainRow]) -> None:
    """Write rows with a mark at the best: it can be read, then its shares, then few faults; the first of equal ones."""

    def worth(row: WrittenDomainRow) -> tuple[bool, float, int]:
        shares = (row.transitions, row.refusals, row.solved, row.true_plans)
        return row.n_literals > 0, sum(share or 0.0 for share in shares), -len(row.faults)

    best = max(rows, key=worth)
    context.output.write_rows([replace(row, is_best=row is best) for row in rows], WrittenDomainRow)
