"""From problems to rollouts, with hand-written stand-ins for who answers, for engines and for Ray."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from answered_ray import Answer, AnsweredRay
from conftest import BLOCKS_TEXT, SUSSMAN_PLAN, random_problem, sussman
from stand_in_generator import StandInGenerator

from pipelines.pddl_instruct import PIPELINE
from pipelines.run.workers import Workers
from pipelines.stages.generating import GenerationSettings, rollouts_of, sample_rollouts
from plansmith.config.generation import EndpointModel, SamplingConfig
from plansmith.config.training import EngineNumerics
from plansmith.data.artifacts import ArtifactWriter
from plansmith.data.rows import FAILURES, USAGE, FailedRequestRow, RolloutRow, SolvedProblemRow, UsageRow
from plansmith.data.tables import read_table
from plansmith.errors import PlansmithError
from plansmith.generation import Answers, Conversation, FinishReason, Generation, Generator, asking
from plansmith.pddl.printer import print_problem
from plansmith.resources import Resources
from plansmith.stages import Stage, StageContext
from plansmith.text.chains import chain_of_plan
from plansmith.text.compact import CompactRendering

SMOKE = PIPELINE.settings("smoke")
COMPACT = CompactRendering()
SAMPLED = SamplingConfig(temperature=1.0, max_new_tokens=8, n=2)


# --- engines that share the prompts


@dataclass
class StandInEngine:
    """Answers each completion with its prompt's first token and its seed; of the last prompts it forgets some."""

    version: str
    forgets: int = 0
    calls: list[tuple[list[int], list[int]]] = field(default_factory=list)

    @property
    def generate(self) -> Any:
        """Return something with `remote`, as the method of a Ray actor."""
        engine = self

        class Method:
            @staticmethod
            def remote(prompts: Any, sampling: SamplingConfig, *, seeds: list[int], description: str | None) -> Any:
                engine.calls.append(([prompt[0] for prompt in prompts], seeds))
                n = sampling.n
                groups = [
                    [Generation((prompt[0], seeds[i * n + k]), (), "stop", engine.version) for k in range(n)]
                    for i, prompt in enumerate(prompts)
                ]
                return iter([Answer(group) for group in groups[: len(groups) - engine.forgets]])

        return Method


class WorkersWithoutRay(Workers):
    """Workers whose remote calls are already answered."""

    def __init__(self, folder: Path, engines: Sequence[StandInEngine]) -> None:
        super().__init__(SMOKE, folder)
        self._policies, self._policy_version = list(engines), "v2"

    def ray(self) -> Any:
        return AnsweredRay


@pytest.mark.parametrize("n_engines", [1, 2, 3])
def test_stream_gives_each_prompt_its_own_completions_however_many_engines(tmp_path: Path, n_engines: int) -> None:
    engines = [StandInEngine("v2") for _ in range(n_engines)]
    stream = (
        WorkersWithoutRay(tmp_path, engines)
        .engines()
        .stream([[1], [2], [3], [4], [5]], SAMPLED, seeds=[10, 11, 20, 21, 30, 31, 40, 41, 50, 51], description="")
    )
    found = dict(stream)
    assert {number: [g.token_ids for g in group] for number, group in found.items()} == {
        i: [(i + 1, 10 * (i + 1)), (i + 1, 10 * (i + 1) + 1)] for i in range(5)
    }
    prompts = [1, 2, 3, 4, 5]
    assert [given for engine in engines for given, _ in engine.calls] == [
        prompts[number::n_engines] for number in range(n_engines)
    ]


def test_stream_with_an_engine_left_behind_is_refused(tmp_path: Path) -> None:
    engines = WorkersWithoutRay(tmp_path, [StandInEngine("v2"), StandInEngine("v1")]).engines()
    with pytest.raises(PlansmithError, match="other weights") as caught:
        list(engines.stream([[1], [2]], SAMPLED, seeds=[1, 2, 3, 4], description=""))
    assert (caught.value.got, caught.value.expected) == ("v1", "v2")


def test_stream_of_an_engine_that_leaves_prompts_out_is_an_error_that_counts(tmp_path: Path) -> None:
    engines = WorkersWithoutRay(tmp_path, [StandInEngine("v2"), StandInEngine("v2", forgets=1)]).engines()
    with pytest.raises(PlansmithError, match="did not answer every prompt") as caught:
        list(engines.stream([[1], [2], [3], [4]], SAMPLED, seeds=range(8), description=""))
    assert (caught.value.where, caught.value.got, caught.value.expected) == (
        "engine 1", "1 answers", "2, one for each prompt")  # fmt: skip


# --- rollouts


@dataclass
class StandInResources(Resources):
    """A generator that breaks after so many answers."""

    stand_in: StandInGenerator = field(default_factory=StandInGenerator)
    breaks_after: int | None = None
    n_lent: int = 0

    def generator(self, policy: Any, engine: Any) -> Generator:
        self.n_lent += 1
        return self

    def complete(self, *arguments: Any, **options: Any) -> Answers:
        for number, answer in enumerate(self.stand_in.complete(*arguments, **options)):
            if number == self.breaks_after:
                raise InterruptedError
            yield answer


def problem_rows(count: int) -> list[SolvedProblemRow]:
    texts = [print_problem(random_problem(3, seed)) for seed in range(count)]
    return [SolvedProblemRow(f"p{i}", "3 blocks", BLOCKS_TEXT, text, ("(a)",)) for i, text in enumerate(texts)]


def context_of(tmp_path: Path, resources: Resources, **changes: Any) -> StageContext[GenerationSettings]:
    values = {"sampling": SAMPLED, "engine": EngineNumerics(), "prompting": "compact", "iteration": 1, **changes}
    stage = Stage(name="roll_out_1", run=lambda _: None, settings=GenerationSettings(**values), seed=3)
    return StageContext(stage, {}, ArtifactWriter(tmp_path / "out", stage.name, stage.key), resources)


def rollouts(context: StageContext[Any]) -> list[RolloutRow]:
    return context.output.shards("rows", RolloutRow).merged_rows()


def test_sample_rollouts_writes_every_completion_with_seeds_of_its_own(tmp_path: Path) -> None:
    context = context_of(tmp_path, StandInResources())
    sample_rollouts(context, problem_rows(5), description="")
    rows = rollouts(context)
    assert [row.rollout_id for row in rows] == [f"p{i}-01-{k}" for i in range(5) for k in range(2)]
    assert {(row.policy_version, row.finish_reason) for row in rows} == {("stand-in", FinishReason.LENGTH)}
    assert [row.seed for row in rows] == [context.row_seed(f"p{i}", k) % 2**31 for i in range(5) for k in range(2)]


def test_sample_rollouts_killed_in_between_asks_again_only_for_the_rest(tmp_path: Path) -> None:
    whole, broken, again = StandInResources(), StandInResources(breaks_after=2), StandInResources()
    expected = context_of(tmp_path / "whole", whole)
    sample_rollouts(expected, problem_rows(5), description="")
    with pytest.raises(InterruptedError):
        sample_rollouts(context_of(tmp_path, broken), problem_rows(5), description="")
    context = context_of(tmp_path, again)
    sample_rollouts(context, problem_rows(5), description="")
    assert len(again.stand_in.asked) == 3
    assert rollouts(context) == rollouts(expected)


def test_sample_rollouts_with_nothing_left_asks_nobody(tmp_path: Path) -> None:
    first, second = StandInResources(), StandInResources()
    for resources in (first, second):
        sample_rollouts(context_of(tmp_path, resources), problem_rows(2), description="")
    assert (first.n_lent, second.n_lent) == (1, 0)


def test_sample_rollouts_without_a_valid_one_spends_the_resample_budget(tmp_path: Path) -> None:
    context = context_of(tmp_path, StandInResources(), resample_budget=3)
    sample_rollouts(context, problem_rows(2), description="")
    rows = rollouts(context)
    assert [row.rollout_id for row in rows] == [f"p{i}-01-{k}" for i in range(2) for k in range(5)]
    assert [row.seed for row in rows] == [context.row_seed(f"p{i}", k) % 2**31 for i in range(2) for k in range(5)]


def test_sample_rollouts_with_a_valid_one_samples_no_more(tmp_path: Path) -> None:
    row = SolvedProblemRow("p", "3 blocks", BLOCKS_TEXT, print_problem(sussman().problem), ("(a)",))
    right = COMPACT.write_chain(chain_of_plan(sussman(), SUSSMAN_PLAN))
    resources = StandInResources(StandInGenerator(lambda *_: right, window=4096))
    long = SAMPLED.model_copy(update={"max_new_tokens": 2048})
    context = context_of(tmp_path, resources, sampling=long, resample_budget=3)
    sample_rollouts(context, [row, replace(problem_rows(1)[0], problem_id="q")], description="")
    assert [row.rollout_id for row in rollouts(context)] == [
        "p-01-0", "p-01-1", "q-01-0", "q-01-1", "q-01-2", "q-01-3", "q-01-4"]  # fmt: skip


def test_sample_rollouts_prompt_without_room_gets_an_empty_completion(tmp_path: Path) -> None:
    long = print_problem(random_problem(8, 0))
    rows = [problem_rows(1)[0], replace(problem_rows(1)[0], problem_id="long", problem_pddl=long)]
    context = context_of(tmp_path, StandInResources(StandInGenerator(window=40)))
    sample_rollouts(context, rows, description="")
    found = [(row.problem_id, row.finish_reason, bool(row.completion)) for row in rollouts(context)]
    assert found == [("long", FinishReason.NO_ROOM, False)] * 2 + [("p0", FinishReason.LENGTH, True)] * 2


# --- behind an endpoint

ENDPOINT = EndpointModel(url="http://localhost:8000/v1", model="m")


def failing(*problem_numbers: int) -> StandInGenerator:
    """Return a generator whose requests fail for some of the problems."""
    lost = {COMPACT.plan_prompt(task) for task in map(task_of, problem_numbers)}

    def write(conversation: Conversation, _: int) -> str | None:
        return None if conversation[0].text in lost else "final: verdict: VALID"

    return StandInGenerator(write)


def task_of(number: int) -> Any:
    from plansmith.pddl.grounding import PlanningTask

    row = problem_rows(number + 1)[number]
    return PlanningTask.from_text(row.domain_pddl, row.problem_pddl)


def test_sample_rollouts_of_an_endpoint_counts_usage_and_keeps_failures_apart(tmp_path: Path) -> None:
    context = context_of(tmp_path, StandInResources(failing(1)), engine=ENDPOINT, max_failed_share=0.5)
    sample_rollouts(context, problem_rows(3), description="")
    assert [row.rollout_id for row in rollouts(context)] == ["p0-01-0", "p0-01-1", "p2-01-0", "p2-01-1"]
    usage = context.output.shards(USAGE, UsageRow).merged_rows()
    assert [(row.rollout_id, row.completion_tokens) for row in usage] == [
        ("p0-01-0", 3), ("p0-01-1", 3), ("p2-01-0", 3), ("p2-01-1", 3)]  # fmt: skip
    [failure] = read_table(context.output.path(f"{FAILURES}.parquet"), FailedRequestRow)
    assert failure == FailedRequestRow("p1", "the request failed")


def test_sample_rollouts_with_too_many_failures_ends_and_the_next_asks_for_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(PlansmithError, match="too many requests failed") as caught:
        sample_rollouts(
            context_of(tmp_path, StandInResources(failing(1)), engine=ENDPOINT), problem_rows(3), description=""
        )
    assert str(caught.value.got).startswith("1 of 3")
    mended = StandInResources()
    context = context_of(tmp_path, mended, engine=ENDPOINT)
    sample_rollouts(context, problem_rows(3), description="")
    assert len(mended.stand_in.asked) == 2  # of the last one, which is answered first, the answer was kept
    assert len(rollouts(context)) == 6


def test_limit_of_failures_is_in_no_key(tmp_path: Path) -> None:
    first, second = (context_of(tmp_path, Resources(), max_failed_share=share).stage.key for share in (0.1, 0.9))
    assert first == second


def test_rollouts_of_conversations_come_in_their_order_and_a_failure_raises(tmp_path: Path) -> None:
    asked = {name: asking(f"clear {name}") for name in ("b", "a", "c")}
    rows = rollouts_of(context_of(tmp_path, StandInResources()), asked, iteration=7, description="")
    assert [row.rollout_id for row in rows] == ["b-07-0", "b-07-1", "a-07-0", "a-07-1", "c-07-0", "c-07-1"]
    assert rows[0].prompt == "clear b"
    silent = StandInResources(StandInGenerator(lambda *_: None))
    with pytest.raises(PlansmithError, match="a request failed"):
        rollouts_of(context_of(tmp_path, silent), asked, iteration=7, description="")
