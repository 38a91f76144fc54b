"""The parts of Self-CriTeach between its domain and its arms, and its first stages without an engine."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from stand_in_generator import StandInGenerator

from pipelines import self_criteach
from pipelines.self_criteach import PIPELINE, learnt_domains
from pipelines.stages import domain_writing, phase1_data
from pipelines.stages.domain_writing import (
    DEMONSTRATIONS,
    HELD_OUT,
    CheckingSettings,
    GatheringSettings,
    PruningSettings,
    WriteDomainSettings,
    written_domain,
)
from pipelines.stages.generating import GenerationSettings
from pipelines.stages.judging import JudgingSettings, judge_plans
from pipelines.stages.phase1_data import DrawingSettings
from pipelines.stages.self_teaching import (
    WRITTEN,
    NarratingSettings,
    NarrationSettings,
    WritingLibrarySettings,
    adopt_domains,
    by_quota,
    by_quotas,
    elected,
    keep_narrations,
    narrate,
    pair_answers,
    walk_library,
)
from plansmith.config.constrained import CriticConfig
from plansmith.config.domain_writing import DemonstrationsConfig, WritingConfig
from plansmith.config.generation import EndpointModel, SamplingConfig
from plansmith.config.planner import PlannerConfig
from plansmith.config.problems import DomainLevelConfig, ProblemsConfig
from plansmith.config.self_criteach import (
    LengthShare,
    LibraryConfig,
    SelfCriteachConfig,
    TasksQuotaConfig,
    WalksConfig,
)
from plansmith.config.training import EngineNumerics, FolderEngine
from plansmith.data.artifacts import Artifact
from plansmith.data.demonstration_files import read_demonstrations
from plansmith.data.rows import (
    FIRST,
    OPPONENTS,
    ExampleRow,
    MetricRow,
    PairRow,
    PlanRow,
    ProblemRow,
    RolloutRow,
    SolvedProblemRow,
    Split,
    VerdictRow,
    WrittenDomainRow,
)
from plansmith.errors import BadInputError, ConfigError, PlansmithError
from plansmith.generation import Completion, Conversation, asking, plain_text
from plansmith.pddl.canonical import canonical_form
from plansmith.pddl.ground_actions import GroundAction
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Atom, Conjunction, Literal, PlanStep, conjuncts_of, literals_of_effects
from plansmith.pddl.parser import parse_problem, parse_step
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.pddl.simulation import successors
from plansmith.planners import FastDownward
from plansmith.problems.action_learning import learn_domain
from plansmith.problems.invariants import Group, Invariants, learn_invariants, nearest_problem
from plansmith.problems.library import load_domain
from plansmith.problems.noise import MIXTURES, noisy_problem
from plansmith.problems.pruning import _without_predicate
from plansmith.problems.simulator import IRRELEVANT, Recording, Simulator, demonstrate, demonstrations_of
from plansmith.report import statistics
from plansmith.report.criteach_paper import OF_HARD, paper_figure, paper_of, paper_percent
from plansmith.report.criteach_results import length_name
from plansmith.report.statistics import paired_permutation
from plansmith.resources import Resources
from plansmith.stages import Stage, run_stages
from plansmith.text.chains import chain_of_plan
from plansmith.text.narration import (
    Aspect,
    Refusal,
    aspects_of,
    narrated_answer,
    read_narration,
    read_step_narration,
    states_before,
)
from plansmith.text.paraphrase import ParaphraseFault, read_paraphrase
from plansmith.text.rendering import prompting_of, rendering_of

BLOCKS = load_domain("blocks-classic")
SIZES: Any = {"blocks": (3, 4), "tables": (1, 1), "robots": (1, 1), "moves": (1, 4)}


def problem_of(seed: int) -> Any:
    return BLOCKS.sample("any", random.Random(seed), sizes=SIZES)


# --- choosing


def verdict(number: int, *plan: str, kind: str = "goal_not_reached") -> VerdictRow:
    return VerdictRow(f"r{number}", "p", 0, "v", kind, "", None, None, (), plan, "")


def test_vote_takes_the_plan_nearest_to_all_others_and_the_first_of_equals() -> None:
    # distances: r1-r2 1, r1-r3 2, r2-r3 1: sums 3, 2, 3
    group = [verdict(1, "a", "b"), verdict(2, "a", "c"), verdict(3, "d", "c")]
    assert elected(group).rollout_id == "r2"
    assert elected([verdict(1, "a"), verdict(2, "a")]).rollout_id == "r1"


def test_vote_leaves_out_what_cannot_be_read_unless_there_is_nothing_else() -> None:
    lost = [verdict(number, kind="malformed_plan") for number in (1, 2)]
    assert elected([*lost, verdict(3, "a", "b", "c")]).rollout_id == "r3"
    assert elected(lost).rollout_id == "r1"


def solved(*lengths: int) -> list[SolvedProblemRow]:
    return [SolvedProblemRow(f"p{k}", "", "", "", ("(a)",) * length) for k, length in enumerate(lengths)]


QUOTA = LibraryConfig(lengths=(LengthShare(up_to=2, share=2), LengthShare(up_to=4, share=1)))


def test_quota_keeps_the_shares_of_lengths_of_as_many_as_there_are() -> None:
    chosen = by_quota(solved(1, 1, 2, 2, 2, 3, 4, 9), QUOTA)
    assert [len(row.plan) for row in chosen] == [1, 1, 2, 2, 3, 4]


def test_quota_takes_of_each_kind_of_problem_as_large_a_share_as_of_the_others() -> None:
    kinds = [row for kind, n in (("blocks", 8), ("align", 4)) for row in [replace(solved(1)[0], problem_id=kind)] * n]
    for library in (LibraryConfig(plans=6), LibraryConfig(plans=6, lengths=(LengthShare(up_to=2, share=1),))):
        assert [row.problem_id for row in by_quota(kinds, library)] == ["blocks"] * 4 + ["align"] * 2


def test_quota_of_some_tasks_is_theirs_alone_and_that_of_the_others_stays() -> None:
    rows = [
        replace(row, level=f"{task} L1")
        for task, lengths in (("stack", (1, 1, 3, 3)), ("unstack", (1, 3)), ("align", (1, 1)))
        for row in solved(*lengths)
    ]
    tasks = TasksQuotaConfig(tasks=("stack", "unstack"), plans=3, lengths=(LengthShare(up_to=2, share=2),
                                                                           LengthShare(up_to=4, share=1)))  # fmt: skip
    chosen = by_quotas(rows, LibraryConfig(of_tasks=(tasks,)))
    assert [(row.level, len(row.plan)) for row in chosen] == [
        ("stack L1", 1), ("stack L1", 1), ("stack L1", 3), ("align L1", 1), ("align L1", 1)
    ]  # fmt: skip
    assert by_quotas(rows, LibraryConfig(plans=2)) == by_quota(rows, LibraryConfig(plans=2))
    with pytest.raises(PlansmithError, match="any length"):
        by_quotas(rows, LibraryConfig(of_tasks=(TasksQuotaConfig(tasks=("reorder",), plans=1),)))
    only = LibraryConfig(plans=1, of_tasks=(TasksQuotaConfig(tasks=("stack", "unstack", "align")),))
    assert len(by_quotas(rows, only)) == len(rows), "of no others there is nothing to want"


def test_quota_that_cannot_be_filled_says_which_length_is_short() -> None:
    with pytest.raises(PlansmithError, match=r"1 to 2 steps +4 +1\n3 to 4 steps +0 +1"):
        by_quota(solved(1, 1, 2, 2), QUOTA)
    with pytest.raises(PlansmithError, match="any length"):
        by_quota(solved(1), LibraryConfig(plans=2))


@pytest.mark.parametrize(("length", "name"), [(1, "1-10"), (10, "1-10"), (11, "11-20"), (30, "21-30"), (31, "31+")])
def test_lengths_lie_in_the_papers_intervals(length: int, name: str) -> None:
    assert length_name(length) == name


# --- noise


def test_noise_of_rate_0_changes_nothing_and_of_rate_1_all_that_may_change() -> None:
    problem, rng = problem_of(3), random.Random(0)
    assert noisy_problem(BLOCKS.domain, problem, rate=0.0, mixture="vlm", rng=rng) == problem
    lost = noisy_problem(BLOCKS.domain, problem, rate=1.0, mixture="missing", rng=rng)
    assert {atom.predicate for atom in lost.init} == {"obj", "table", "robot"}
    assert lost.goal == problem.goal


def test_noise_adds_and_exchanges_objects_and_never_touches_what_no_action_changes() -> None:
    problem = problem_of(3)
    for mixture in MIXTURES:
        noisy = noisy_problem(BLOCKS.domain, problem, rate=0.5, mixture=mixture, rng=random.Random(1))
        still = [atom for atom in problem.init if atom.predicate in ("obj", "table", "robot")]
        assert [atom for atom in noisy.init if atom.predicate in ("obj", "table", "robot")] == still
    more = noisy_problem(BLOCKS.domain, problem, rate=1.0, mixture="spurious", rng=random.Random(1))
    assert set(problem.init) < set(more.init)
    swapped = noisy_problem(BLOCKS.domain, problem, rate=1.0, mixture="swapped", rng=random.Random(1))
    assert len(swapped.init) <= len(problem.init) and set(swapped.init) != set(problem.init)


def test_noise_has_about_the_rate_that_it_is_said_to_have() -> None:
    counts = Counter[str]()
    for seed in range(60):
        problem = BLOCKS.sample("L1", random.Random(seed))
        task = PlanningTask(BLOCKS.domain, problem)
        true = {atom for atom in problem.init if not task.is_static(atom.predicate)}
        noisy = noisy_problem(BLOCKS.domain, problem, rate=0.3, mixture="spurious", rng=random.Random(seed))
        swapped = noisy_problem(BLOCKS.domain, problem, rate=0.3, mixture="swapped", rng=random.Random(seed))
        counts["true"] += len(true)
        counts["made up"] += len(set(noisy.init) - set(problem.init))
        counts["lost"] += len(set(problem.init) - set(swapped.init))
        counts["in its place"] += len(set(swapped.init) - set(problem.init))
        assert set(problem.init) <= set(noisy.init)
    assert 0.2 < counts["made up"] / counts["true"] < 0.33
    assert 0.25 < counts["lost"] / counts["true"] < 0.35
    assert counts["in its place"] > 0.4 * counts["lost"]  # the only robot's hand is no other one's


# --- what always held


def always_held(n_trajectories: int = 12) -> Invariants:
    """Return what walks through small scenes show."""
    walks = (
        demonstrate(BLOCKS.domain, problem_of(n), Recording(10, 10), random.Random(n)) for n in range(n_trajectories)
    )
    return learn_invariants(demonstrations_of(BLOCKS.domain, "Blocks.", tuple(walks)))


def test_invariants_of_blocks_are_that_each_is_in_one_place_and_no_tower_is_a_ring() -> None:
    found = always_held()
    groups = {group.places: group.guards for group in found.groups}
    places = (("above", 0), ("holding", 0), ("on-table", 0))
    assert {("obj", 0), ("above", 1), ("top", 0)} <= groups[places]
    assert not {("table", 0), ("robot", 0)} & groups[places]
    assert groups[("hand_free", 0), ("holding", 1)] >= {("robot", 0)}
    assert groups[("above", 1), ("holding", 0), ("top", 0)] >= {("obj", 0)}
    assert found.orders == ("above",)
    # in one order, of which the choice among equally near states depends, in any process
    assert list(found.changing) == ["above", "hand_free", "holding", "on-table", "top"]


def test_nearest_problem_of_a_true_state_is_itself_and_of_disturbed_ones_fits_what_always_held() -> None:
    found, restored = always_held(), []
    for seed in range(20, 60):
        true = problem_of(seed)
        assert nearest_problem(found, BLOCKS.domain, true) == true
        noisy = noisy_problem(BLOCKS.domain, true, rate=0.2, mixture="vlm", rng=random.Random(seed))
        nearest = nearest_problem(found, BLOCKS.domain, noisy)
        assert nearest is not None and nearest.goal == true.goal
        n_changed = len(set(nearest.init) ^ set(noisy.init))
        assert n_changed <= len(set(true.init) ^ set(noisy.init))  # the true one fits, too
        for block in (atom.arguments[0] for atom in true.init if atom.predicate == "obj"):
            at = [
                a for a in nearest.init if a.predicate in ("above", "holding", "on-table") and a.arguments[0] == block
            ]
            assert len(at) == 1
        restored.append(set(nearest.init) == set(true.init))
    assert sum(restored) >= 20


def test_nearest_problem_breaks_a_ring_that_each_pair_of_blocks_allows() -> None:
    state = "(obj a) (obj b) (obj c) (table t) (robot r) (hand_free r) (above a b) (above b c) (above c a)"
    text = f"(define (problem ring) (:domain blocks-classic) (:objects a b c t r) (:init {state}) (:goal (top a)))"
    ring = parse_problem(text, BLOCKS.domain)
    nearest = nearest_problem(always_held(), BLOCKS.domain, ring)
    assert nearest is not None
    above = [atom.arguments for atom in nearest.init if atom.predicate == "above"]
    assert len(above) == 2
    assert {atom.predicate for atom in set(nearest.init) - set(ring.init)} == {"on-table", "top"}


def test_nearest_problem_without_anything_that_changes_is_the_problem() -> None:
    nothing = Invariants({}, (), (), (), {})
    assert nearest_problem(nothing, BLOCKS.domain, problem_of(1)) == problem_of(1)


def test_nearest_problem_that_cannot_be_is_none() -> None:
    held = always_held()
    all_are_held = replace(held, groups=(*held.groups, Group((("holding", 0),), frozenset({("obj", 0)}))))
    assert nearest_problem(all_are_held, BLOCKS.domain, problem_of(1)) is None  # by one robot


# --- statistics


def test_figures_beside_a_run_are_the_papers_of_its_own_backbone() -> None:
    llama, qwen = (paper_of(PIPELINE.settings(preset).model.folder) for preset in ("paper-llama3-8b", "paper"))
    assert paper_percent(llama.success, "sft_cpo", "blocks-align") == pytest.approx(64.2)
    assert paper_percent(qwen.success, "sft_cpo", "blocks-align") == pytest.approx(75)
    assert paper_figure(llama.tokens, "base", "reorganize-room") == 8876 and llama.overall["base"][1] == 0.512
    assert paper_figure(llama.progress, "vote", "blocks-align") is None and "vote" not in llama.names
    assert paper_of(None) is qwen
    for paper in (llama, qwen):
        for table in (paper.success, paper.progress, paper.tokens):
            assert {len(row) for row in table.values()} == {6}


def test_paired_permutation_of_five_equal_gains_is_about_two_of_thirty_two() -> None:
    assert paired_permutation([0.0] * 5, [1.0] * 5, range(5)) == pytest.approx(2 / 32, abs=0.01)
    assert paired_permutation([1.0, 0.0], [0.0, 1.0], range(2)) == 1.0
    with pytest.raises(ValueError, match="same problems"):
        paired_permutation([], [], [])


def test_paired_permutation_takes_problems_of_one_form_together() -> None:
    forms = [number % 20 for number in range(200)]
    gains = [float(form < 3) for form in forms]
    assert paired_permutation([0.0] * 200, gains, forms) == pytest.approx(0.25, abs=0.02)
    assert paired_permutation([0.0] * 200, gains, range(200)) < 0.001


def test_paired_permutation_drawn_in_blocks_is_that_drawn_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = [0.0, 1.0, 2.0, 5.0, 1.0], [1.0, 1.5, 1.0, 7.0, 3.0]
    whole = paired_permutation(before, after, range(5))
    monkeypatch.setattr(statistics, "SIGNS_AT_ONCE", 37)
    assert paired_permutation(before, after, range(5)) == whole < 1


# --- settings


@pytest.mark.parametrize("preset", PIPELINE.preset_names)
def test_presets_give_stages(preset: str) -> None:
    config = PIPELINE.settings(preset)
    assert len({stage.name for stage in PIPELINE.stages(config)}) == len(PIPELINE.stages(config))
    assert config.sft.max_dropped_share == 0.05, "more chains beyond the window are refused"


def test_paper_preset_has_the_papers_values() -> None:
    config = PIPELINE.settings("paper")
    assert config.cpo is not None
    assert (config.cpo.budget, config.cpo.state_cost, config.cpo.beta, config.cpo.learning_rate) == (
        0.25,
        0.5,
        0.1,
        1e-6,
    )
    assert (config.cpo.temperature, config.cpo.top_p, config.cpo.max_new_tokens) == (0.6, 0.95, 16384)
    assert (config.sft.learning_rate, config.sft.epochs, config.sft.batch_sequences) == (1e-5, 5, 4)
    quotas = config.library.of_tasks
    assert [quota.plans for quota in quotas] == [
        2038 + 227,
        3048 + 340,
        719 + 80,
    ] and config.library.held_out_share == 0.1
    hard = quotas[1]
    assert set(hard.tasks) == {*OF_HARD} and not quotas[0].lengths and not quotas[2].lengths
    assert [(part.up_to, part.share) for part in hard.lengths] == [(10, 6), (20, 2), (30, 1), (60, 1)]
    assert learnt_domains(config) == ["blocks-classic", "blocks-align"], "blocks-hard has the first one's"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["domain.writer=model"], "knows no PDDL"),
        (["domain.file=x.pddl"], "go together"),
        (["arms=[base, prompt_cot]"], "word-level"),
        (["arms=[base, base]"], "each once"),
        (["cpo=null"], "need cpo"),
        (["rendering=full"], "compact"),
        (["paraphrase={}"], "word-level"),
        (["library.lengths=[{up_to: 5, share: 1}, {up_to: 3, share: 1}]"], "must grow"),
        (["narrator={kind: model}"], "no words to narrate in"),
        (["library.of_tasks=[{tasks: [blocks-align], plans: 1}]"], "that is learnt in"),
    ],
    ids=["writer", "file", "words", "twice", "cpo", "rendering", "paraphrase", "lengths", "narrator", "quota"],
)
def test_settings_that_do_not_go_together_are_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PIPELINE.settings("smoke", overrides=overrides)


# --- the first stages


class Killed(BaseException):
    """As a process that is gone."""


class Lending(Resources):
    """Lends a model that writes a damaged domain, and mends it when it is told; it may die instead."""

    def __init__(self, *, dies_at: int | None = None) -> None:
        self.model = StandInGenerator(self._write, window=100_000)
        self._dies_at = dies_at

    def generator(self, policy: Any, engine: Any) -> StandInGenerator:
        if self._dies_at is not None and len(self.model.asked) >= self._dies_at:
            raise Killed
        return self.model

    def _write(self, conversation: Conversation, seed: int) -> str:
        stack = BLOCKS.domain.action("stack")
        assert stack is not None
        worse = replace(stack, effects=stack.effects[1:])
        actions = tuple(worse if action.name == "stack" else action for action in BLOCKS.domain.actions)
        damaged = print_domain(replace(BLOCKS.domain, actions=actions))
        return print_domain(BLOCKS.domain) if "What is wrong with it" in plain_text(conversation) else damaged


PROBLEMS = ProblemsConfig(
    domains=(
        DomainLevelConfig(
            domain="blocks-classic", level="small", sizes=SIZES, phase1=12, phase2=6, test=6, n_draws=200
        ),
    ),
    phase2_share=0.3,
)
PLANNER = PlannerConfig(search="first", time_limit_s=5, kill_after_s=10)
CHECKING = CheckingSettings(domain="blocks-classic", planner=PLANNER, scenes=3)


def first_stages() -> list[Stage[Any]]:
    drawing = DrawingSettings(problems=PROBLEMS, pddl="", is_word_level=False)
    problems = Stage(name="sample_problems", run=phase1_data.sample_problems, settings=drawing)
    gathering = GatheringSettings(
        domain="blocks-classic", demonstrations=DemonstrationsConfig(trajectories=8, held_out=3), attempts_shown=4
    )
    run = domain_writing.gather_demonstrations
    recorded = Stage(name="gather", run=run, settings=gathering, inputs={"problems": problems})
    given: dict[str, Stage[Any]] = {"problems": problems, "demonstrations": recorded}
    found, before = [problems, recorded], dict[str, Stage[Any]]()
    for turn in range(3):
        settings = WriteDomainSettings(
            sampling=SamplingConfig(n=2, temperature=0.6, max_new_tokens=4000), engine=EngineNumerics(), prompting="",
            iteration=turn, checking=CHECKING, writing=WritingConfig(candidates=2),
        )  # fmt: skip
        name, run_turn = f"write_{turn}", domain_writing.write_domain
        found.append(Stage(name=name, run=run_turn, settings=settings, inputs={**given, **before}, iteration=turn))
        before = {"before": found[-1]}
    pruning = PruningSettings(**CHECKING.model_dump(exclude={"planner"}), planner=PLANNER, objective="checks",
                              agreement_scenes=3, max_faults=0)  # fmt: skip
    inputs = {**given, "written": before["before"], "first": found[2]}
    pruned = Stage(name="prune", run=domain_writing.prune_domain, settings=pruning, inputs=inputs)
    adopted = Stage(name="adopt", run=adopt_domains, inputs={"problems": problems, f"{WRITTEN} blocks-classic": pruned})
    return [*found, pruned, adopted]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Artifact], Lending]:
    resources = Lending()
    return run_stages(first_stages(), root=tmp_path_factory.mktemp("made"), resources=resources), resources


def root_of(made: tuple[dict[str, Artifact], Lending]) -> Path:
    """Return where the first stages lie, so that who begins with one of them does not make it again."""
    return made[0]["gather"].folder.parent


def best(artifact: Artifact) -> WrittenDomainRow:
    return next(row for row in artifact.rows(WrittenDomainRow) if row.is_best)


def test_domain_is_mended_after_one_turn_and_not_asked_for_again(made: tuple[dict[str, Artifact], Lending]) -> None:
    artifacts, resources = made
    assert best(artifacts["write_0"]).faults and not best(artifacts["write_1"]).faults
    assert best(artifacts["write_2"]) == best(artifacts["write_1"])
    assert len(resources.model.asked) == 2 * 2, "for each candidate"


def test_first_answer_and_what_became_of_it_are_compared_with_the_reference_and_on_walks_nobody_saw(
    made: tuple[dict[str, Artifact], Lending],
) -> None:
    artifacts, _ = made
    shown, held_out = (read_demonstrations(artifacts["gather"].path(name)) for name in (DEMONSTRATIONS, HELD_OUT))
    assert (len(shown.trajectories), len(held_out.trajectories)) == (8, 3)
    assert not {*shown.trajectories} & {*held_out.trajectories}
    [first] = artifacts["prune"].rows(WrittenDomainRow, FIRST)
    pruned = best(artifacts["prune"])
    assert first.domain_pddl == best(artifacts["write_0"]).domain_pddl != pruned.domain_pddl
    stacked = [attempt.action.name == "stack" for _, attempt in held_out.attempts if attempt.after is not None]
    assert first.held_out == 1 - sum(stacked) / len(stacked) < pruned.held_out == 1.0
    assert first.effect_recall is not None and first.effect_recall < 1.0
    assert first.reference_plans is not None and first.reference_plans < pruned.reference_plans == 1.0


@pytest.mark.parametrize(
    ("held_out", "skill", "mistake"),
    [(2, "", None), (8, "", "of which demonstrations.held_out=8 are held out"), (2, "grab", "has no action")],
    ids=["whole", "all held out", "another robot"],
)
def test_users_demonstrations_are_taken_in_the_place_of_the_simulators(
    held_out: int, skill: str, mistake: str | None, made: tuple[dict[str, Artifact], Lending], tmp_path: Path
) -> None:
    text = made[0]["gather"].path(DEMONSTRATIONS).read_text()
    file = tmp_path / "mine.jsonl"
    file.write_text(text.replace("pick-up", skill) if skill else text)
    problems, gathering, *_ = first_stages()
    recorded = DemonstrationsConfig(file=str(file), held_out=held_out)
    stages = [problems, replace(gathering, settings=gathering.settings.model_copy(update={"demonstrations": recorded}))]
    if mistake is not None:
        with pytest.raises(BadInputError, match=mistake):
            run_stages(stages, root=root_of(made), resources=Resources())
        return
    found = run_stages(stages, root=root_of(made), resources=Resources())["gather"]
    shown, kept_back = (read_demonstrations(found.path(name)) for name in (DEMONSTRATIONS, HELD_OUT))
    assert (len(shown.trajectories), len(kept_back.trajectories)) == (6, 2)
    mine = [attempt for _, attempt in read_demonstrations(file).attempts]
    for (_, attempt), own in zip((*shown.attempts, *kept_back.attempts), mine, strict=True):
        assert (attempt.action, attempt.after is None) == (own.action, own.after is None)
        assert attempt.state == {atom for atom in own.state if atom.predicate not in IRRELEVANT}, "no scene has these"


def test_users_file_that_changed_is_recorded_anew_and_its_settings_alone_are_read(tmp_path: Path) -> None:
    keys = []
    for task in ("One.", "Another."):
        walk = {"objects": ["x"], "attempts": [{"state": [], "action": "(go x)", "next": []}]}
        head = {"name": "d", "task": task, "skills": [{"name": "go", "arguments": ["a"]}], "predicates": []}
        (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, (head, walk))))
        config = PIPELINE.settings("smoke", overrides=[f"demonstrations.file={tmp_path / 'mine.jsonl'}"])
        keys += [stage.settings for stage in PIPELINE.stages(config) if stage.name.startswith("gather")]
    assert keys[0] != keys[1]
    assert "demonstrations.steps" in config.unread() and "demonstrations.held_out" not in config.unread()
    with pytest.raises(ConfigError, match="is of one domain"):
        PIPELINE.settings("small", overrides=["demonstrations.file=mine.jsonl"])


def test_written_domain_stands_beside_one_that_no_model_has_written(made: tuple[dict[str, Artifact], Lending]) -> None:
    pruned = made[0]["prune"]
    [opponent] = pruned.rows(WrittenDomainRow, OPPONENTS)
    demonstrations = read_demonstrations(made[0]["gather"].path(domain_writing.DEMONSTRATIONS))
    assert opponent.domain_pddl == print_domain(learn_domain(demonstrations)) != best(pruned).domain_pddl
    assert (opponent.transitions, opponent.refusals, opponent.n_literals) != (None, None, 0)
    assert opponent.applicable_precision == 1.0, "a safe action model allows nothing that the robot refuses"


def test_every_literal_of_the_final_domain_stands_in_a_completion(made: tuple[dict[str, Artifact], Lending]) -> None:
    artifacts, _ = made
    completions = " ".join(
        row.completion for turn in range(3) for row in artifacts[f"write_{turn}"].rows(WrittenDomainRow)
    )
    for action in written_domain(artifacts["prune"]).actions:
        for literal in (*conjuncts_of(action.precondition), *literals_of_effects(action.effects)):
            assert str(literal) in completions


def test_prompts_of_a_run_hold_no_reference_schema(made: tuple[dict[str, Artifact], Lending]) -> None:
    artifacts, resources = made
    first, second = dict.fromkeys(plain_text(conversation) for conversation in resources.model.asked)
    handed_back = best(artifacts["write_0"]).domain_pddl.strip()
    assert handed_back in second
    for prompt in (first, second.replace(handed_back, "")):
        assert ":precondition" not in prompt and ":effect" not in prompt
        for schema in BLOCKS.domain.actions:
            assert str(Conjunction(conjuncts_of(schema.precondition))) not in prompt
            assert " ".join(str(effect) for effect in schema.effects if isinstance(effect, Literal)) not in prompt


def test_library_has_no_form_of_a_test_problem_and_every_id_of_the_run(
    made: tuple[dict[str, Artifact], Lending],
) -> None:
    artifacts, _ = made
    rows, drawn = (artifacts[name].rows(ProblemRow) for name in ("adopt", "sample_problems"))
    assert {row.problem_id for row in rows} == {row.problem_id for row in drawn}
    forms = {split: {row.canonical_form for row in rows if row.split == split} for split in Split}
    assert forms[Split.TEST] and not forms[Split.TEST] & (forms[Split.PHASE1] | forms[Split.PHASE2])
    scenes = {row.problem_id for row in drawn if row.split != Split.TEST}
    recorded = read_demonstrations(artifacts["gather"].path(DEMONSTRATIONS))
    starts = {row.problem_id: row for row in drawn if row.problem_id in scenes}
    assert len(recorded.trajectories) == 8 and starts


@pytest.fixture
def drawn_and_written() -> list[Stage[Any]]:
    """Return stages that draw problems, and give a domain that knows neither what is a block nor who has a hand."""
    forgetful = print_domain(_without_predicate(_without_predicate(BLOCKS.domain, "hand_free"), "obj"))

    def write(context: Any) -> None:
        row = WrittenDomainRow("blocks-classic", 0, 0, "", forgetful, 1, None, None, None, None, (), is_best=True)
        context.output.write_rows([row], WrittenDomainRow)

    return [first_stages()[0], Stage(name="written", run=write)]


def test_library_that_is_walked_has_goals_of_the_written_domain_alone_and_its_tests_stay(
    drawn_and_written: list[Stage[Any]], made: tuple[dict[str, Artifact], Lending]
) -> None:
    problems, written = drawn_and_written
    given = {"problems": problems, f"{WRITTEN} blocks-classic": written}
    walking = Stage(name="walk", run=walk_library, settings=WalksConfig(steps=(1, 3)), inputs=given)
    adopted_ones = Stage(name="adopt", run=adopt_domains, inputs={**given, "problems": walking})
    found = run_stages([problems, written, walking, adopted_ones], root=root_of(made), resources=Resources())
    drawn, walked, library = (
        {row.problem_id: row for row in found[name].rows(ProblemRow)} for name in ("sample_problems", "walk", "adopt")
    )
    forms: dict[str, set[str]] = {split: set() for split in Split}
    for name, row in walked.items():
        if row.split == Split.TEST:
            assert row == drawn[name]
            continue
        task, before = (PlanningTask.from_text(one.domain_pddl, one.problem_pddl) for one in (row, drawn[name]))
        assert set(task.problem.init) == set(before.problem.init), "the scene is the simulator's"
        assert row.domain_pddl == drawn[name].domain_pddl and not task.is_goal(task.initial_state)
        assert "hand_free" not in str(task.problem.goal)
    assert {row.split for row in library.values()} == {Split.PHASE1, Split.PHASE2, Split.TEST}
    for row in library.values():
        forms[row.split].add(row.canonical_form)
        if row.split != Split.TEST:
            task = PlanningTask.from_text(row.domain_pddl, row.problem_pddl)
            reached = {task.initial_state}
            for _ in range(3):
                reached |= {after for state in reached for _, after in successors(task, state)}
            assert any(map(task.is_goal, reached)), "three steps of the written domain are enough"
    assert not forms[Split.TEST] & (forms[Split.PHASE1] | forms[Split.PHASE2])
    assert not forms[Split.PHASE1] & forms[Split.PHASE2]
    config = PIPELINE.settings("smoke", overrides=["library.walks={}"])
    stages = {stage.name: stage for stage in PIPELINE.stages(config)}
    assert {stages["run_library"].inputs["reference"], stages["sft_cpo"].inputs["reference"]} == {
        stages["walk_library"]
    }


def test_problem_to_learn_from_whose_form_in_the_written_domain_is_a_tests_is_left_out(
    drawn_and_written: list[Stage[Any]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, written = drawn_and_written
    with_hand = problem_of(3)
    without_hand = replace(with_hand, init=tuple(atom for atom in with_hand.init if atom.predicate != "hand_free"))
    rows = [
        ProblemRow(name, canonical_form(BLOCKS.domain, problem), "blocks-classic", "l", split, 1,
                   print_domain(BLOCKS.domain), print_problem(problem), "")
        for name, problem, split in (("learnt", without_hand, Split.PHASE1), ("other", problem_of(4), Split.PHASE1),
                                     ("again", problem_of(4), Split.PHASE2), ("test", with_hand, Split.TEST))
    ]  # fmt: skip
    assert rows[0].canonical_form != rows[-1].canonical_form

    def problems(context: Any) -> None:
        context.output.write_rows(rows, ProblemRow)

    given: dict[str, Stage[Any]] = {
        "problems": Stage(name="problems", run=problems),
        f"{WRITTEN} blocks-classic": written,
    }
    adopted_ones = Stage(name="adopt", run=adopt_domains, inputs=given)
    made = run_stages([*given.values(), adopted_ones], root=tmp_path, resources=Resources())["adopt"]
    assert {row.problem_id for row in made.rows(ProblemRow)} == {"other", "test"}
    assert "2 problems to learn from have the form of another" in caplog.text


def test_domain_that_never_passes_ends_the_run_with_a_table_and_the_best_is_kept(
    made: tuple[dict[str, Artifact], Lending],
) -> None:
    problems, gathered, first, *_, pruning, _ = first_stages()
    stages = [problems, gathered, first, replace(pruning, inputs={**first.inputs, "written": first})]
    with pytest.raises(PlansmithError, match=r"no domain passes(?s:.)*fault +times\n-+\n[a-z ]+ \d") as raised:
        run_stages(stages, root=root_of(made), resources=Resources())
    assert raised.value.exit_code == 1 and "domain.turns" in str(raised.value.cure)
    kept = run_stages(stages[:3], root=root_of(made), resources=Resources())["write_0"]
    assert best(kept).n_literals > 0 and best(kept).faults


def test_run_killed_in_the_repair_ends_with_the_same_domain(
    made: tuple[dict[str, Artifact], Lending], tmp_path: Path
) -> None:
    with pytest.raises(Killed):
        run_stages(first_stages(), root=tmp_path, resources=Lending(dies_at=1))
    again = run_stages(first_stages(), root=tmp_path, resources=Lending())
    assert again["prune"].rows(WrittenDomainRow) == made[0]["prune"].rows(WrittenDomainRow)


def names_of(stages: Sequence[Stage[Any]]) -> list[str]:
    return [stage.name for stage in stages]


def test_model_that_writes_is_asked_turn_by_turn_before_the_library() -> None:
    config = SelfCriteachConfig.model_validate(
        {**PIPELINE.settings("smoke").model_dump(), "model": {"folder": "some-model"}, "domain": {"turns": 2}}
    )
    names = names_of(PIPELINE.stages(config))
    order = ["initial_policy", "write_domain_blocks-classic", "repair_domain_blocks-classic_1",
             "repair_domain_blocks-classic_2", "prune_domain_blocks-classic", "adopt_domains"]  # fmt: skip
    assert [name for name in names if name in order] == order


# --- narration


TASK = PlanningTask(BLOCKS.domain, problem_of(3))


def a_plan() -> tuple[PlanStep, ...]:
    simulator = Simulator(BLOCKS.domain, TASK.problem)
    first = simulator.possible(simulator.initial_state)[0]
    after = simulator.step(simulator.initial_state, first)
    assert after is not None
    return first, simulator.possible(after)[0]


def telling(*, without: str = "", more: str = "", needs: str = "", steps: int = 2, told: bool = True) -> str:
    simulator = Simulator(BLOCKS.domain, TASK.problem)
    state, lines = simulator.initial_state, []
    for number, step in enumerate(a_plan()[:steps], 1):
        after = simulator.step(state, step)
        assert after is not None
        state = after
        facts = " ".join(str(atom) for atom in sorted(state) if not (number == 2 and atom.predicate == without))
        lines += [f"Step {number}: {step}", *([f"Preconditions: {needs}"] if needs and number == 1 else [])]
        lines += ["It serves the goal.", *([f"State: {facts} {more}"] if told else [])]
    return "<REASON>" + "\n".join(lines) + "</REASON>"


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        (telling(), None),
        (telling(without="robot"), None),
        (f"first {telling(steps=1)} then {telling()}", None),
        ("no marks", Refusal.NO_REASON),
        (telling(steps=1), Refusal.OTHER_PLAN),
        ("<REASON>I move the blocks about.</REASON>", Refusal.OTHER_PLAN),
        (telling().replace("It serves", "Step 7: (stack b1 b2 robot1)\nIt serves", 1), Refusal.OTHER_PLAN),
        (telling(told=False), Refusal.NO_STATES),
        (telling(more="(holding table1 robot1)"), Refusal.FALSE_STATE),
        (telling(more="(not (holding table1 robot1))"), None),
        (telling(more="(not (robot robot1))"), Refusal.FALSE_STATE),
        (telling(without="top"), Refusal.FALSE_STATE),
        (telling().replace("It serves", "State: (holding table1 robot1)\nIt serves", 1), Refusal.FALSE_STATE),
        (telling(needs="(top b2) (not (holding b1 robot1))"), None),
        (telling(needs="(holding b1 robot1)"), Refusal.FALSE_PRECONDITION),
        (telling(needs="(not (top b2))"), Refusal.FALSE_PRECONDITION),
    ],
    ids=["true", "static left out", "last counts", "no marks", "too few", "no step", "one more", "no states", "false",
         "false and said so", "true and denied", "left out", "false before a true one", "needs",
         "does not hold", "holds"],
)  # fmt: skip
def test_narration_is_believed_only_where_steps_and_states_are_true(text: str, refusal: Refusal | None) -> None:
    assert read_narration(text, TASK, a_plan()).refusal is refusal


@pytest.mark.parametrize(
    ("text", "is_used"),
    [("Preconditions: (top b2)\nIt serves.", True), ("Preconditions: (holding b1 robot1)\nIt serves.", False),
     ("State: (top b2)", False), ("", False)],
)  # fmt: skip
def test_narration_of_a_step_is_used_where_it_needs_what_holds_before_the_step(text: str, is_used: bool) -> None:
    before = states_before(TASK, a_plan())
    assert len(before) == len(a_plan())
    assert read_step_narration(f"<REASON>{text}</REASON>", before[0]) == (text if is_used else None)


def test_steps_of_a_narration_are_counted_by_what_they_tell() -> None:
    plan, simulator = a_plan(), Simulator(BLOCKS.domain, TASK.problem)
    after = simulator.step(simulator.initial_state, plan[0])
    assert after is not None
    other = next(step for step in simulator.possible(after) if step != plan[1])
    first, second = telling(needs="(top b2)").split("Step 2")
    second = second.replace("It serves the goal.", f"{other} leads elsewhere, {plan[0]} is done.")
    found = read_narration(f"{first.replace('It serves the goal.', '')}Step 2{second}", TASK, plan)
    assert found.refusal is None
    told = Counter(aspects_of(found, TASK, plan))
    assert told == {Aspect.REASON: 1, Aspect.PRECONDITIONS: 1, Aspect.ALTERNATIVES: 1, Aspect.FAILURES: 1}
    assert Counter(aspects_of(read_narration(telling(), TASK, plan), TASK, plan)) == {Aspect.REASON: 2}


class Narrating(Resources):
    """Lends a model that says something of every step at its second try, but nothing of a step of one problem."""

    def __init__(self, mute: str) -> None:
        self.model = StandInGenerator(self._say, window=100_000)
        self._mute = mute

    def generator(self, policy: Any, engine: Any) -> StandInGenerator:
        return self.model

    def _say(self, conversation: Conversation, seed: int) -> str:
        asked = plain_text(conversation)
        if self._mute in asked or sum(plain_text(one) == asked for one in self.model.asked) < 2:
            return "<REASON>Step 3: (stack b1 b2 robot1) comes later.</REASON>"
        return "<REASON>It serves the goal, and nothing is in its way.</REASON>"


def test_plans_narrated_step_by_step_have_true_states_and_one_with_a_step_untold_is_dropped(tmp_path: Path) -> None:
    told, mute = problem_of(3), replace(problem_of(4), name="mute")
    domain = print_domain(BLOCKS.domain)
    rows = [ProblemRow(name, name, "d", "l", Split.PHASE1, 1, domain, print_problem(problem), "")
            for name, problem in (("told", told), ("mute", mute))]  # fmt: skip
    with FastDownward(PLANNER) as planner:
        plans = [PlanRow(row.problem_id, "p", "solved", planner.solve(domain, row.problem_pddl).plan or (), 1.0, 0.0,
                         is_optimal=False) for row in rows]  # fmt: skip

    def problems(context: Any) -> None:
        context.output.write_rows(rows, ProblemRow)

    def solved(context: Any) -> None:
        context.output.write_rows(plans, PlanRow)

    library = WritingLibrarySettings(library=LibraryConfig(), prompting="narrated", object_names=(), n_plans=1)
    telling_them = NarratingSettings(
        sampling=SamplingConfig(), engine=EngineNumerics(), prompting="", resample_budget=1, library=library, by="step"
    )
    keeping = NarrationSettings(library=library, by="step", max_refused_share=0.5)
    given = {"problems": Stage(name="problems", run=problems), "plans": Stage(name="plans", run=solved)}
    asked = Stage(name="narrate", run=narrate, settings=telling_them, inputs=given)
    kept = Stage(name="keep", run=keep_narrations, settings=keeping, inputs={**given, "narrations": asked})
    resources = Narrating("problem mute")
    made = run_stages([*given.values(), asked, kept], root=tmp_path, resources=resources)["keep"]
    [example] = made.rows(ExampleRow, "chains")
    assert example.problem_id == "told"
    assert example.response.count("It serves the goal, and nothing is in its way.") == len(plans[0].plan)
    steps = tuple(map(parse_step, plans[0].plan))
    task = PlanningTask(BLOCKS.domain, told)
    assert read_narration(f"<REASON>{example.response.partition('FINAL')[0]}</REASON>", task, steps).refusal is None
    counts = {row.name: row.value for row in made.rows(MetricRow, "metrics")}
    assert counts == {"narration/told": 2, "narration/kept": 1, "narration/refused no_reason": 1,
                      "narration/steps": len(steps), "narration/steps with a reason": len(steps)}  # fmt: skip
    less = keeping.model_copy(update={"max_refused_share": 0.4})
    strict = replace(kept, settings=less)
    with pytest.raises(PlansmithError, match=r"1 of 2 plans\nrefused for +narrations\n-+\nno_reason +1") as raised:
        run_stages([*given.values(), asked, strict], root=tmp_path / "strict", resources=Narrating("problem mute"))
    assert raised.value.exit_code == 1 and "narrator.max_refused_share" in str(raised.value)
    first = [plain_text(one) for one in resources.model.asked if "problem mute" not in plain_text(one)]
    assert len(first) == 2 * len(steps) and all("\n\nBefore:\n" in one and "\n\nAfter:\n" in one for one in first)


class Overloaded(Resources):
    """Lends a model whose third request fails at first."""

    def __init__(self) -> None:
        self.asked = list[int]()

    def generator(self, policy: Any, engine: Any) -> Any:
        return self

    def complete(self, conversations: Any, sampling: Any, *, seeds: Any, description: str | None = None) -> Any:
        self.asked.append(len(conversations))
        for number, seed in enumerate(seeds):
            fault = "overloaded" if len(self.asked) == 1 and number == 2 else None
            yield number, [Completion(None if fault else f"answer {seed}", "stop", "m", seed, fault=fault)]


def test_candidates_are_kept_as_they_come_and_a_failed_one_alone_is_asked_for_again(tmp_path: Path) -> None:
    found = dict[str, list[str]]()

    def write(context: Any) -> None:
        found.update(domain_writing._candidates(context, {"d": asking("Write d."), "e": asking("Write e.")}))

    settings = GenerationSettings(sampling=SamplingConfig(n=3), engine=EngineNumerics(), prompting="")
    stages, model = [Stage(name="write", run=write, settings=settings)], Overloaded()
    with pytest.raises(PlansmithError, match="a request failed"):
        run_stages(stages, root=tmp_path, resources=model)
    run_stages(stages, root=tmp_path, resources=model)
    assert model.asked == [6, 1]
    assert {name: len(set(texts)) for name, texts in found.items()} == {"d": 3, "e": 3}


def test_narrated_answer_is_read_as_its_plan() -> None:
    plan = a_plan()
    answer = narrated_answer(read_narration(telling(), TASK, plan), plan)
    read = prompting_of("narrated").read(answer, BLOCKS.domain).chain
    assert read.final_plan == read.plan_of_steps == plan


# --- a teacher


@pytest.mark.parametrize(
    ("overrides", "where", "got"),
    [
        ([], "teacher", "no url, no folder"),
        (["teacher={url: 'http://localhost:1/v1', folder: some-model}"], "teacher", "url and folder"),
        (["teacher.url=http://localhost:1/v1"], "teacher.model", "nothing"),
        (["teacher={url: 'http://localhost:1/v1', model: m, account_env: NOT_SET_ANYWHERE}"],
         "environment variable NOT_SET_ANYWHERE", "nothing"),
        (["teacher.folder=no-such-folder"], "no-such-folder", "nothing"),
    ],
    ids=["nobody", "two", "no model", "no key", "no folder"],
)  # fmt: skip
def test_teacher_without_model_or_key_is_bad_input_before_anything_starts(
    overrides: list[str], where: str, got: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [word for one in ["arms=[base, sft, distilled]", *overrides] for word in ("--set", one)]
    assert self_criteach.main(["--preset", "smoke", "--runs", str(tmp_path), *asked]) == 2
    said = capsys.readouterr().err
    assert where in said and got in said and "expected" in said and "to mend it" in said
    assert not any(tmp_path.iterdir())


class Teaching(Resources):
    """Lends a teacher who knows the plans of some prompts, and nobody else."""

    def __init__(self, plans: dict[str, str]) -> None:
        self.model = StandInGenerator(lambda asked, _: plans.get(plain_text(asked), "I do not know"), window=100_000)

    def generator(self, policy: Any, engine: Any) -> StandInGenerator:
        assert policy is None and engine == EndpointModel(url="http://localhost:1/v1", model="m")
        return self.model


SERVER = "{url: 'http://localhost:1/v1', model: m}"


def test_others_may_write_the_domain_and_narrate_in_the_place_of_the_base_model() -> None:
    others = [f"domain.speaker={SERVER}", f"narrator={{kind: model, by: step, speaker: {SERVER}}}"]
    config = PIPELINE.settings("paper", overrides=["model.folder=some-model", *others])
    stages = {stage.name: stage for stage in PIPELINE.stages(config)}
    asked = EndpointModel(url="http://localhost:1/v1", model="m")
    for stage in (stages["write_domain_blocks-classic"], stages["repair_domain_blocks-classic_1"], stages["narrate"]):
        assert "policy" not in stage.inputs and stage.settings.engine == asked
    own = PIPELINE.settings("paper", overrides=["model.folder=some-model"])
    assert "policy" in {stage.name: stage for stage in PIPELINE.stages(own)}["narrate"].inputs
    assert set(config.speakers) >= {"domain.speaker", "narrator.speaker"}
    small = PIPELINE.settings("smoke", overrides=[f"domain={{writer: model, speaker: {SERVER}}}"])
    first = next(stage for stage in PIPELINE.stages(small) if stage.name == "write_domain_blocks-classic")
    assert first.settings.engine == asked


@pytest.mark.parametrize(
    ("override", "told"),
    [
        (f"domain.speaker={SERVER}", "writes with writer=model alone"),
        (f"narrator.speaker={SERVER}", "narrates with kind=model alone"),
        ("domain={writer: model}", "or name a domain.speaker"),
    ],
)
def test_others_who_would_not_be_asked_are_refused(override: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        PIPELINE.settings("smoke", overrides=[override])


def test_other_models_try_the_same_tests_in_words_of_their_own() -> None:
    others = f"evaluation.models={{big: {SERVER}, near: {{folder: some-model}}}}"
    config = PIPELINE.settings("smoke", overrides=[others])
    stages = {stage.name: stage for stage in PIPELINE.stages(config)}
    assert "policy" not in stages["try_big"].inputs and isinstance(stages["try_big"].settings.engine, EndpointModel)
    assert isinstance(stages["try_near"].settings.engine, FolderEngine)
    for name in ("big", "near"):
        assert stages[f"try_{name}"].settings.split == Split.TEST
        assert stages[f"judge_{name}"].settings.prompting == stages[f"try_{name}"].settings.prompting == "narrated"
        assert stages[f"judge_{name}"].inputs["problems"].name == "sample_problems", "the reference judges"
    assert config.speakers.keys() == {"evaluation.models.big", "evaluation.models.near"}
    names = list(stages)
    assert names.index("judge_near") < names.index("sft"), "the arm that was trained last is the run's"


def test_answers_without_a_pair_are_counted_and_none_passes_a_test_problem(tmp_path: Path) -> None:
    domain, texts = print_domain(BLOCKS.domain), [print_problem(problem_of(seed)) for seed in (3, 4)]
    with FastDownward(PLANNER) as planner:
        plans = [planner.solve(domain, text).plan or () for text in texts]
    tasks = [PlanningTask.from_text(domain, text) for text in texts]
    passed = replace(tasks[1].problem, init=tuple(_after(tasks[1], plans[1][0])))
    rows = [ProblemRow(name, name, "d", "l", Split.PHASE2, len(task.problem.objects), domain, text, "")
            for name, task, text in zip(("one", "two"), tasks, texts, strict=True)]  # fmt: skip
    form = canonical_form(BLOCKS.domain, passed)
    rows.append(ProblemRow("test", form, "d", "l", Split.TEST, len(passed.objects), domain, print_problem(passed), ""))
    prompting = rendering_of("compact")
    answers = [
        RolloutRow(f"{row.problem_id}-{number}", row.problem_id, 0, "v", "asked",
                   prompting.write_chain(chain_of_plan(task, tuple(map(parse_step, own)))), (), (), (), "stop", 0)
        for row, task, plan in zip(rows, tasks, plans, strict=False) for number, own in enumerate((plan, plan[:1]))
    ]  # fmt: skip

    def rolled_out(context: Any) -> None:
        context.output.write_rows(answers, RolloutRow)

    def problems(context: Any) -> None:
        context.output.write_rows(rows, ProblemRow)

    given = {"problems": Stage(name="problems", run=problems), "rollouts": Stage(name="rollouts", run=rolled_out)}
    judging = Stage(name="judged", run=judge_plans, settings=JudgingSettings(prompting="compact"), inputs=given)
    pairing = Stage(name="pair", run=pair_answers, settings=CriticConfig(), inputs={**given, "judged": judging})
    made = run_stages([*given.values(), judging, pairing], root=tmp_path, resources=Resources())["pair"]
    assert [row.problem_id for row in made.rows(PairRow)] == ["one"]
    counts = {row.name: row.value for row in made.rows(MetricRow, "metrics")}
    assert counts == {"pairs/problems": 2, "pairs/problems without a pair": 1}


@pytest.mark.parametrize(
    ("answers", "lambda_", "chosen"),
    [(("wrong", "short"), 0.5, "short"), (("short", "wrong"), 0.5, "short"), (("short", "false"), 9.0, "false"),
     (("short", "short"), 0.5, None)],
    ids=["two invalid", "in the other order", "valid though it is worth less", "alike"],
)  # fmt: skip
def test_pair_is_of_the_valid_answer_first_and_then_of_what_is_worth_more(
    answers: tuple[str, str], lambda_: float, chosen: str | None, tmp_path: Path
) -> None:
    domain, text = print_domain(BLOCKS.domain), print_problem(TASK.problem)
    with FastDownward(PLANNER) as planner:
        plan = tuple(map(parse_step, planner.solve(domain, text).plan or ()))
    true, rendering = chain_of_plan(TASK, plan), rendering_of("compact")
    claims = replace(true.steps[0], next_state=(Atom("top", (TASK.problem.objects[0].name,)),))
    chains = {
        "short": chain_of_plan(TASK, plan[:1]),  # nothing wrong, and no goal: R 0, C 0
        "wrong": chain_of_plan(TASK, (plan[0], plan[0])),  # not twice: R 0, C 1 + lambda
        "false": replace(
            true, steps=(claims, *true.steps[1:])
        ),  # valid, and claims a false state: R 1, C lambda or more
    }
    row = ProblemRow("p", "p", "d", "l", Split.PHASE2, 5, domain, text, "")
    told = {name: rendering.write_chain(chain) for name, chain in chains.items()}
    rollouts = [RolloutRow(f"{n}", "p", 0, "v", "asked", told[name], (), (), (), "stop", 0)
                for n, name in enumerate(answers)]  # fmt: skip

    def given(rows: Sequence[Any], kind: type) -> Any:
        return lambda context: context.output.write_rows(rows, kind)

    inputs = {"problems": Stage(name="problems", run=given([row], ProblemRow)),
              "rollouts": Stage(name="rollouts", run=given(rollouts, RolloutRow))}  # fmt: skip
    judging = Stage(name="judged", run=judge_plans, settings=JudgingSettings(prompting="compact"), inputs=inputs)
    critic = CriticConfig(state_cost=lambda_)
    pairing = Stage(name="pair", run=pair_answers, settings=critic, inputs={**inputs, "judged": judging})
    made = run_stages([*inputs.values(), judging, pairing], root=tmp_path, resources=Resources())
    valid = {row.rollout_id: row.verdict == "valid" for row in made["judged"].rows(VerdictRow)}
    assert [valid[f"{n}"] for n, _ in enumerate(answers)] == [name == "false" for name in answers]
    pairs = [(row.chosen, row.rejected) for row in made["pair"].rows(PairRow)]
    assert pairs == ([] if chosen is None else [(told[chosen], next(told[one] for one in answers if one != chosen))])


def _after(task: PlanningTask, step: str) -> tuple[Atom, ...]:
    action = task.ground(parse_step(step))
    assert isinstance(action, GroundAction)
    return tuple(task.atoms_of(action.apply(task.initial_state)))


def test_distilled_arm_learns_the_teachers_valid_answers_alone_each_once(tmp_path: Path) -> None:
    config = PIPELINE.settings(
        "smoke",
        overrides=[
            "arms=[base, sft, distilled]",
            "teacher={url: 'http://localhost:1/v1', model: m}",
            "evaluation.max_new_tokens=2000",
        ],
    )
    stages = {stage.name: stage for stage in PIPELINE.stages(config)}
    teaching = stages["answer_distilled"].settings
    assert (
        "policy" not in stages["answer_distilled"].inputs
        and stages["distilled"].inputs["policy"].name == "initial_policy"
    )
    assert teaching.sampling.n == config.samples.answers and teaching.split == Split.PHASE2

    names = ("known", "unknown")
    texts = [print_problem(problem_of(seed)) for seed in (3, 4)]
    domain = print_domain(BLOCKS.domain)
    rows = [
        ProblemRow(name, name, "d", "l", Split.PHASE2, 1, domain, text, "")
        for name, text in zip(names, texts, strict=True)
    ]
    task = PlanningTask.from_text(rows[0].domain_pddl, rows[0].problem_pddl)
    with FastDownward(PLANNER) as planner:
        plan = planner.solve(rows[0].domain_pddl, rows[0].problem_pddl).plan
    assert plan
    prompting = prompting_of(config.prompting)
    answer = rendering_of(config.prompting).write_chain(chain_of_plan(task, tuple(map(parse_step, plan))))

    def problems(context: Any) -> None:
        context.output.write_rows(rows, ProblemRow)

    def plans(context: Any) -> None:
        context.output.write_rows([PlanRow(name, "p", "solved", plan, 1.0, 0.0, False) for name in names], PlanRow)

    given = {"problems": Stage(name="problems", run=problems), "plans": Stage(name="plans", run=plans)}
    tried = replace(stages["answer_distilled"], inputs=given)
    judging = replace(stages["judge_answers_distilled"], inputs={"rollouts": tried, "problems": given["problems"]})
    learnt = replace(
        stages["distil_teacher"], inputs={"rollouts": tried, "problems": given["problems"], "judged": judging}
    )
    resources = Teaching({prompting.plan_prompt(task): answer})
    made = run_stages([*given.values(), tried, judging, learnt], root=tmp_path, resources=resources)
    [example] = made["distil_teacher"].rows(ExampleRow, "chains")
    assert (example.prompt, example.response) == (prompting.plan_prompt(task), answer)
    assert len(resources.model.asked) == 2


# --- paraphrase


PROMPT = prompting_of("full").plan_prompt(TASK)
DOMAIN_TEXT, PROBLEM_TEXT = print_domain(BLOCKS.domain).strip(), print_problem(TASK.problem).strip()


def rephrased(domain: str = DOMAIN_TEXT, problem: str = PROBLEM_TEXT, more: str = "") -> str:
    return f"Sure: <PROMPT>\nHere is what there is to do:\n{problem}\n{more}\nin this world:\n{domain}\n</PROMPT>"


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (rephrased(), None),
        (rephrased(domain=" ".join(DOMAIN_TEXT.split())), None),
        ("Here is what there is to do.", ParaphraseFault.NO_ANSWER),
        (rephrased(problem=PROBLEM_TEXT.replace(str(TASK.problem.init[0]), "")), ParaphraseFault.CHANGED),
        (rephrased(problem=PROBLEM_TEXT.replace(TASK.problem.objects[0].name, "cup")), ParaphraseFault.CHANGED),
        (rephrased(problem=PROBLEM_TEXT.replace("(:goal", "(:goal (and) #")), ParaphraseFault.CHANGED),
        (rephrased(domain=DOMAIN_TEXT.replace("(hand_free ?r)", "", 1)), ParaphraseFault.CHANGED),
        (rephrased(more="and (top b1)"), ParaphraseFault.ADDED),
        (rephrased(more="beginning with (pick-up b1 table1 robot1)"), ParaphraseFault.ADDED),
        (rephrased(more="and ( TOP b1)"), ParaphraseFault.ADDED),
        (rephrased(more="(in any order), one step a line, such as (action-name object1 object2)"), None),
        (f"<PROMPT>{PROMPT}</PROMPT>", ParaphraseFault.SAME),
    ],
    ids=[
        "whole",
        "white space",
        "no marks",
        "state",
        "name",
        "goal",
        "domain",
        "fact",
        "step",
        "in capitals",
        "brackets",
        "same",
    ],
)
def test_paraphrase_is_believed_only_where_states_goal_and_names_survive(
    answer: str, fault: ParaphraseFault | None
) -> None:
    found = read_paraphrase(answer, PROMPT)
    assert found.fault is fault
    if fault is None:
        assert "[INSTRUCTION]" not in found.prompt and "what there is to do" in found.prompt


class Rephrasing(Resources):
    """Lends a model that rephrases the first prompt it is asked, and forgets the problem of others."""

    def __init__(self) -> None:
        self.model = StandInGenerator(lambda asked, _: self._answers[len(self.model.asked) > 1], window=100_000)
        self._answers = (rephrased(), rephrased(problem=""))

    def generator(self, policy: Any, engine: Any) -> StandInGenerator:
        return self.model


def test_refused_paraphrases_are_counted_and_leave_the_prompt_as_it_was(tmp_path: Path) -> None:
    config = PIPELINE.settings("paper", overrides=["model.folder=some-model"])
    stages = {stage.name: stage for stage in PIPELINE.stages(config)}
    assert stages["encode_sft"].inputs["examples"].name == "keep_paraphrases"
    assert stages["paraphrase"].inputs["policy"].name == "initial_policy"
    examples = [ExampleRow(name, name, "plan_chain", None, PROMPT, f"answer {name}") for name in ("one", "two")]

    def chains(context: Any) -> None:
        context.output.write_rows(examples, ExampleRow, table="chains")

    given = Stage(name="chains", run=chains)
    told = replace(stages["paraphrase"], inputs={"examples": given})
    kept = replace(stages["keep_paraphrases"], inputs={"examples": given, "paraphrases": told})
    made = run_stages([given, told, kept], root=tmp_path, resources=Rephrasing())["keep_paraphrases"]
    after = made.rows(ExampleRow, "chains")
    assert [row.response for row in after] == ["answer one", "answer two"]
    assert sorted(row.prompt == PROMPT for row in after) == [False, True]
    counts = {row.name: row.value for row in made.rows(MetricRow, "metrics")}
    assert counts == {"paraphrase/rephrased": 1.0, "paraphrase/refused changed": 1.0}


def test_chains_are_parted_by_problem_so_that_no_plan_of_one_that_measures_is_learnt(tmp_path: Path) -> None:
    config = PIPELINE.settings("paper", overrides=["model.folder=some-model", "library.held_out_share=0.3"])
    stages = {stage.name: stage for stage in PIPELINE.stages(config)}
    names = [f"machine-parts-{number:02d}{plan}" for number in range(10) for plan in ("", "-p2")]
    examples = [ExampleRow(f"{name}-000", name, "plan_chain", None, PROMPT, "answer") for name in names]

    def chains(context: Any) -> None:
        context.output.write_rows(examples, ExampleRow, table="chains")

    given = Stage(name="chains", run=chains)
    parts = [replace(stages[name], inputs={"chains": given}) for name in ("learnt_chains", "held_out_chains")]
    made = run_stages([given, *parts], root=tmp_path, resources=Resources())
    learnt, held_out = (
        {row.problem_id.removesuffix("-p2") for row in made[part.name].rows(ExampleRow, "chains")} for part in parts
    )
    assert (len(learnt), len(held_out)) == (7, 3) and not learnt & held_out
    assert sum(len(made[part.name].rows(ExampleRow, "chains")) for part in parts) == len(examples)
    assert stages["paraphrase"].inputs["examples"].name == "learnt_chains"
    assert stages["encode_symbol"].inputs["examples"].name == "learnt_symbols", "which has equal supervision"
    assert {stages[name].inputs["chains"].name for name in ("read_base", "read_sft")} == {"held_out_chains"}


def test_share_that_leaves_nothing_to_measure_by_is_refused(tmp_path: Path) -> None:
    config = PIPELINE.settings("paper", overrides=["model.folder=some-model", "library.held_out_share=0.1"])
    [stage] = [stage for stage in PIPELINE.stages(config) if stage.name == "held_out_chains"]

    def chains(context: Any) -> None:
        context.output.write_rows([ExampleRow("a", "a", "plan_chain", None, PROMPT, "b")], ExampleRow, table="chains")

    given = Stage(name="chains", run=chains)
    with pytest.raises(BadInputError, match=r"library\.held_out_share: no chain is left"):
        run_stages([given, replace(stage, inputs={"chains": given})], root=tmp_path, resources=Resources())
