"""The stages of policies that read the domain, by what they leave; nothing is trained."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from stand_in_updates import OPTIMISER, StandInUpdates, begin
from test_label_budget import Recording

from pipelines.generalization_gap import PIPELINE, check_gap
from pipelines.stages import phase1_data, reading
from pipelines.stages.reading import FRESH, InventedProblemsSettings, InventingSettings, ToldExamplesSettings
from pipelines.stages.training import SEQUENCES, check_fitting
from pipelines.stages.update_loop import SEGMENT_START
from plansmith.config.dataset import PlanExamplesConfig, SymbolPoolConfig
from plansmith.config.invention import InventionConfig
from plansmith.config.training import Numerics
from plansmith.data.artifacts import Artifact
from plansmith.data.drawing import DrawnProblem, SplitShares, leak_of_texts
from plansmith.data.rows import ExampleRow, InventedDomainRow, ProblemRow, SequenceRow, Split
from plansmith.errors import BadInputError, ConfigError
from plansmith.learning.sequences import NLL_WEIGHT, TrainingSequence
from plansmith.pddl.canonical import canonical_form
from plansmith.problems.invention.folders import INVENTED
from plansmith.problems.library import DOMAINS_FOLDER, load_domain
from plansmith.resources import Resources
from plansmith.stages import Stage, StageContext, row_rng, run_stages

POOL = SymbolPoolConfig()


class InThisProcess(Resources):
    """Lends workers that are called here and now."""

    def map_rows(self, rows: Sequence[Any], row_type_in: type, worker: Any, **options: Any) -> None:
        made = worker(**options["worker_settings"]) if isinstance(worker, type) else worker
        options["shards"].append(made(rows))


def invented_folder(folder: Path, *names: str) -> Path:
    """Return a folder of domain folders, copies of the project's."""
    for name in names:
        shutil.copytree(DOMAINS_FOLDER / name, folder / name)
    return folder


def inventing(folder: Path, tested: tuple[str, ...] = ("rovers",)) -> InventingSettings:
    return InventingSettings(folder=str(folder), content="", n_domains=3, invention=InventionConfig(), sources=(),
                             tested=tested, held_out_share=0.3, n_workers=1)  # fmt: skip


def drawn_problems(tmp_path: Path) -> dict[str, Artifact]:
    """Return the artifacts up to the problems, in three domains of which one is held out."""
    folder = invented_folder(tmp_path / "domains", "ferry", "spanner", "miconic")
    domains = Stage(name="invent_domains", run=reading.have_domains, settings=inventing(folder))
    config = PIPELINE.settings("smoke").problems
    drawing = phase1_data.DrawingSettings(problems=config, pddl="", is_word_level=False)
    own = Stage(name="sample_problems", run=phase1_data.sample_problems, settings=drawing)
    counts = InventedProblemsSettings(n_problems=3, n_fresh=2, n_test=2, n_draws=12)
    given = {"problems": own, "domains": domains}
    problems = Stage(name="draw_invented", run=reading.draw_invented, settings=counts, inputs=given)
    hiding = reading.HidingSettings(symbols=POOL)
    hidden = Stage(name="hide_names", run=reading.hide_behind_symbols, settings=hiding, inputs={"problems": problems})
    return run_stages([problems, hidden], root=tmp_path / "artifacts", resources=InThisProcess())


def test_invented_domains_are_held_out_whole_and_their_problems_stand_behind_the_others(tmp_path: Path) -> None:
    found = drawn_problems(tmp_path)
    domains = found["invent_domains"].rows(InventedDomainRow)
    held_out = {row.domain for row in domains if row.split == Split.TEST}
    assert len(domains) == 3 and len(held_out) == 1
    rows = found["draw_invented"].rows(ProblemRow)
    own = found["sample_problems"].rows(ProblemRow)
    assert [row.problem_id for row in rows[: len(own)]] == [row.problem_id for row in own]
    invented = rows[len(own) :]
    assert {row.source for row in invented} == {INVENTED} == {row.level for row in invented}
    assert {row.split for row in invented if row.domain in held_out} == {Split.TEST}
    assert {row.split for row in invented if row.domain not in held_out} == {Split.PHASE1}
    fresh = found["draw_invented"].rows(ProblemRow, FRESH)
    assert {row.split for row in fresh} == {Split.PHASE2} and held_out.isdisjoint(row.domain for row in fresh)
    forms = [row.canonical_form for row in (*invented, *fresh)]
    assert len(set(forms)) == len(forms)


def test_test_problems_are_hidden_behind_symbols_of_the_pool_under_their_ids(tmp_path: Path) -> None:
    found = drawn_problems(tmp_path)
    tested = {row.problem_id for row in found["draw_invented"].rows(ProblemRow) if row.split == Split.TEST}
    hidden = found["hide_names"].rows(ProblemRow)
    assert {row.problem_id for row in hidden} == tested
    names = {name for row in hidden for name in row.problem_pddl.replace("(", " ").replace(")", " ").split()}
    assert not {name for name in names if name.startswith(("passenger", "floor", "car", "origin", "lift"))}


def write_sequences(context: StageContext[None]) -> None:
    """Write sequences of 39 to 10 tokens, the longest first; each begins with its length."""
    rows = [TrainingSequence.of([length] * length, {NLL_WEIGHT: [0.0] + [1.0] * (length - 1)}).row(f"p{length}")
            for length in range(39, 9, -1)]  # fmt: skip
    context.output.parts(SEQUENCES, SequenceRow).write("plans", rows, SequenceRow)


def test_a_curriculum_begins_with_short_sequences_and_has_as_many_tokens(tmp_path: Path) -> None:
    trainer = Recording()
    start, encoded = Stage(name="start", run=begin), Stage(name="encode", run=write_sequences)
    optimiser = OPTIMISER.model_copy(update={"is_curriculum": True})
    tuning = reading.ReadingTuningSettings(optimiser=optimiser, numerics=Numerics(row_length_tokens=50), tokens=2000)
    stage = Stage(name="mixed", run=reading.tune_reading, settings=tuning, inputs={"policy": start, SEQUENCES: encoded})
    run_stages([stage], root=tmp_path, resources=StandInUpdates(held=trainer))
    assert 2000 <= sum(trainer.taught) < 2040 and set(trainer.taught) == set(range(10, 40))
    n_sorted = next(n for n in range(1, 90) if trainer.taught[n] < trainer.taught[n - 1])
    assert 10 < n_sorted < len(trainer.taught) and trainer.taught[0] < 12


def test_a_folder_with_a_tested_domain_under_its_own_name_is_refused(tmp_path: Path) -> None:
    folder = invented_folder(tmp_path, "ferry", "mystery-blocksworld", "miconic")
    stage = Stage(name="invent_domains", run=reading.have_domains, settings=inventing(folder, ("blocksworld",)))
    with pytest.raises(BadInputError, match="never to be seen is learnt from") as caught:
        run_stages([stage], root=tmp_path / "artifacts", resources=Resources())
    assert caught.value.got == "mystery-blocksworld, which is blocksworld renamed"


def test_a_run_that_trains_on_a_tested_domain_in_other_words_is_refused_before_it_starts() -> None:
    levels = (
        "{domain: blocksworld, level: L1, phase1: 3, test: 3}",
        "{domain: mystery-blocksworld, level: L1, test: 3}",
    )
    config = PIPELINE.settings("smoke", overrides=[f"problems.domains=[{', '.join(levels)}]"])
    with pytest.raises(BadInputError, match="never to be seen"):
        check_gap(config)


def test_a_run_with_a_domain_that_cannot_be_told_is_refused_before_it_starts() -> None:
    levels = ("{domain: assembly, level: L1, phase1: 3, test: 3}", "{domain: ferry, level: L1, test: 3}")
    config = PIPELINE.settings("smoke", overrides=[f"problems.domains=[{', '.join(levels)}]", "prompts=told"])
    with pytest.raises(BadInputError, match="conjunctive"):
        check_gap(config)


def test_a_run_with_a_domain_of_more_names_than_symbols_is_refused_before_it_starts() -> None:
    few = ["reading.symbols.predicates=23", "reading.invented.invention.grid.predicates=[[1, 20]]"]
    check_gap(PIPELINE.settings("unseen", overrides=few))
    config = PIPELINE.settings("unseen", overrides=[few[0].replace("23", "22"), few[1]])
    with pytest.raises(BadInputError, match="more predicates than the pool has symbols") as caught:
        check_gap(config)
    assert (caught.value.where, caught.value.got, caught.value.expected) == ("domain rovers", "23", "22 at most")


@pytest.mark.parametrize(("kind", "most"), [("actions", 9), ("predicates", 24), ("types", 8)])
def test_a_grid_of_more_names_than_symbols_is_refused_with_the_settings(kind: str, most: int) -> None:
    PIPELINE.settings("unseen", overrides=[f"reading.symbols.{kind}={most}"])
    with pytest.raises(
        BadInputError, match=rf"reading\.symbols\.{kind}: domains are invented with more {kind}"
    ) as caught:
        PIPELINE.settings("unseen", overrides=[f"reading.symbols.{kind}={most - 1}"])
    assert (caught.value.got, caught.value.expected) == (str(most - 1), f"{most} at least")
    PIPELINE.settings("unseen", overrides=[f"reading.symbols.{kind}={most - 1}", "reading.invented.folder=mine"])


def test_a_folder_with_a_domain_that_cannot_be_told_is_refused_before_a_run_starts(tmp_path: Path) -> None:
    folder = invented_folder(tmp_path, "miconic", "assembly")
    config = PIPELINE.settings("unseen-smoke", overrides=[f"reading.invented.folder={folder}"])
    with pytest.raises(BadInputError, match="conjunctive") as caught:
        PIPELINE.stages(config)
    assert caught.value.where == "domain assembly, assemble"


def test_a_folder_with_a_domain_of_more_names_than_symbols_is_refused_before_a_run_starts(tmp_path: Path) -> None:
    folder = invented_folder(tmp_path, "miconic", "ferry")
    few = [f"reading.invented.folder={folder}", "reading.symbols.actions=3"]
    config = PIPELINE.settings("unseen-smoke", overrides=few)
    with pytest.raises(BadInputError, match="more actions than the pool has symbols") as caught:
        PIPELINE.stages(config)
    assert caught.value.where == "domain miconic"


def test_a_folder_without_domains_is_refused_with_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no folder of invented domains") as caught:
        reading.domains_in(tmp_path)
    assert caught.value.cure and "domains generate" in caught.value.cure


def graph_of(preset: str, *overrides: str) -> dict[str, Stage[Any]]:
    """Return the stages of a run by name, each after those that it reads."""
    stages = PIPELINE.stages(PIPELINE.settings(preset, overrides=list(overrides)))
    known: dict[str, Stage[Any]] = {}
    for stage in stages:
        assert all(known.get(read.name) is read for read in stage.inputs.values()), stage.name
        known[stage.name] = stage
    assert len(known) == len(stages)
    return known


@pytest.mark.parametrize(
    ("preset", "arms"),
    [
        ("unseen", ["walk", "trained", "invented", "distant", "mixed", "reinforced"]),
        ("unseen-smoke", ["walk", "trained", "mixed", "reinforced"]),
        ("unseen-gpu", ["walk", "trained", "mixed"]),
    ],
)
def test_every_arm_that_reads_is_tuned_on_its_sources_tried_and_judged(preset: str, arms: list[str]) -> None:
    stages = graph_of(preset)
    assert [name.removeprefix("failures_") for name in stages if name.startswith("failures_")] == arms
    for arm in arms:
        tried, judged = stages[f"try_{arm}"], stages[f"judge_{arm}"]
        assert judged.inputs["rollouts"] is tried and stages[f"failures_{arm}"].inputs["judged"] is judged
        assert judged.labels["arm"] == arm and tried.inputs["plans"] is stages["synthesize_plans"]
        assert arm == "walk" or tried.inputs["policy"] is stages[arm]
    for arm in reading.SOURCES_OF.keys() & set(arms):
        read = {name: stage.name for name, stage in stages[arm].inputs.items()}
        sources = reading.SOURCES_OF[arm]
        assert read == {"policy": "initial_policy", **{f"{SEQUENCES}_{name}": f"encode_{name}" for name in sources}}
    if "reinforced" in arms:
        assert stages["reinforced"].inputs["policy"] is stages["mixed"]
        assert stages["reinforced"].inputs["problems"] is stages["hide_fresh"]


def test_segments_of_reinforcement_in_told_domains_follow_each_other_and_each_is_tried() -> None:
    stages = graph_of("unseen-smoke", "reading.grpo.segments=2")
    first, last = stages["reinforced_1_of_2"], stages["reinforced"]
    assert [(stage.settings.first, stage.settings.last) for stage in (first, last)] == [(1, 1), (2, 2)]
    assert first.inputs["policy"] is stages["mixed"] is last.inputs[SEGMENT_START]
    assert last.inputs["policy"] is first and stages["try_reinforced_1_of_2"].inputs["policy"] is first
    assert {stage.labels["loop"] for stage in (first, last)} == {"reinforced"}
    assert {(stage.settings.prompting, stage.settings.split) for stage in (first, last)} == {("chain_told", "d2")}


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("variants=[compact]", "are two runs"),
        ("model.tokenizer=bpe", "fixed pool"),
        ("reading.arms=[trained]", "begins with the arm mixed"),
        ("reading.arms=[]", "names none"),
        ("reading.invented.fresh_problems=0", "tries fresh problems"),
        ("reading.invented.held_out_share=0", "a number, above 0, below 1"),
        ("reading=null", "nothing would be tuned"),
    ],
)
def test_settings_of_reading_that_do_not_go_together_are_refused(override: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        PIPELINE.settings("unseen-smoke", overrides=[override])


def written(tmp_path: Path, source: str, tested: tuple[str, ...]) -> set[str]:
    """Return the domains that the examples of a source are of."""
    found = drawn_problems(tmp_path)
    problems = {row.problem_id: row.domain for row in found["draw_invented"].rows(ProblemRow)}
    rows = found["draw_invented"].rows(ProblemRow)
    settings = ToldExamplesSettings(source=source, examples=PlanExamplesConfig(), tested=tested)  # type: ignore[arg-type]

    def keep(context: Any) -> None:
        wanted = set(reading._wanted(context))
        context.output.write_rows(
            [ExampleRow(name, name, "plan", None, "", "") for name in sorted(wanted)], ExampleRow, table="plans"
        )

    problems_stage = Stage(name="rows", run=lambda context: context.output.write_rows(rows, ProblemRow) and None)
    stage = Stage(name="wanted", run=keep, settings=settings, inputs={"problems": problems_stage})
    made = run_stages([stage], root=tmp_path / "wanted", resources=Resources())["wanted"]
    return {problems[row.problem_id] for row in made.rows(ExampleRow, "plans")}


def test_the_distant_source_drops_every_domain_that_shares_an_action_schema(tmp_path: Path) -> None:
    # briefcase is tested; no domain here shares a schema with it, and miconic shares all with itself
    assert "miconic" in written(tmp_path / "a", "distant", ("briefcase",))
    assert "miconic" not in written(tmp_path / "b", "distant", ("briefcase", "miconic"))
    assert written(tmp_path / "c", "drawn", ()) == {"miconic", "ferry", "briefcase"}


def test_texts_beyond_the_window_are_an_error_above_a_share_of_5_in_100() -> None:
    check_fitting([10] * 95 + [30] * 5, 20, where="here")
    with pytest.raises(BadInputError, match="longer than the window") as caught:
        check_fitting([10] * 94 + [30] * 6, 20, where="here")
    assert caught.value.got == "6 of 100, the longest with 30 tokens"


def test_a_split_of_texts_leaks_where_texts_share_a_form_and_not_where_each_has_its_own() -> None:
    loaded = load_domain("blocksworld")
    problems = [loaded.sample("L1", row_rng(0, "leak", number), sizes={"blocks": (3, 3)}) for number in range(60)]
    shares = SplitShares(0.3, 0.0, seed=0)
    items = [DrawnProblem(problem, canonical_form(loaded.domain, problem)) for problem in problems]
    alike = leak_of_texts(loaded.domain, items, shares, level="3 blocks")
    assert alike.n_forms < alike.n_texts == 60 and 0 < alike.n_leaked <= alike.n_test
    unlike = [DrawnProblem(item.problem, str(number)) for number, item in enumerate(items)]
    assert leak_of_texts(loaded.domain, unlike, shares, level="3 blocks").n_leaked == 0
