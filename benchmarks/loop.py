"""Where the time of one feedback iteration goes, and what vLLM is worth; what the trainer is worth says training.py.

The second iteration of a run is measured: actors are up, caches warm. Then the same prompts are completed by the run's
engines and by `transformers.generate`, each side in this run. What comes before the second iteration is made first, or
taken from --from.

    python benchmarks/loop.py [--preset demo] [--from runs/pddl_instruct-demo] [--folder runs/benchmark-loop]

The tables give seconds by part and tokens per second; the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from actors.planner import PlannerActor
from pipelines.pddl_instruct import PIPELINE, pddl_instruct
from pipelines.run.workers import MODEL, Workers
from pipelines.stages.phase1_data import solved_problems
from plansmith.config.basics import narrowed
from plansmith.config.generation import SamplingConfig
from plansmith.config.pddl_instruct import PddlInstructConfig
from plansmith.config.training import EngineNumerics, Numerics
from plansmith.data.artifacts import Artifact
from plansmith.data.rows import Split
from plansmith.data.storage import link_folder
from plansmith.layout import text_table
from plansmith.learning.models import load_tokenizer
from plansmith.learning.sequences import TrainingSequence
from plansmith.learning.tokenizer import encode_prompt, end_token_ids
from plansmith.pddl.grounding import PlanningTask
from plansmith.stages import run_stages
from plansmith.text.rendering import rendering_of

ITERATION = 2
PARTS = ("roll_out", "judge", "replan", "build_datasets", "stage1", "stage2")
REPEATS = 3
BATCH_SIZES = (100, 200)
"""Of `transformers.generate`."""

TRAINER_PARTS = {"optimise": "optimisation", "save": "weights to disk", "load": "weights to the trainer"}
OTHER = "data sets, reading and writing"


class TimedWorkers(Workers):
    """The workers of a run, with a clock on every call."""

    def __init__(self, config: PddlInstructConfig, run_folder: Path) -> None:
        super().__init__(config, run_folder)
        self.seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def measuring(self, part: str) -> Iterator[None]:
        """Count the time of the block."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] += time.perf_counter() - start

    def streamed(self, streams: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Yield completions; what is done with them is not timed."""
        stream = super().streamed(streams)
        while True:
            with self.measuring("generation"):
                answer = next(stream, None)
            if answer is None:
                return
            yield answer

    def load_policy(self, artifact: Artifact, numerics: EngineNumerics) -> None:
        """Hand weights to the engines, and prove them."""
        with self.measuring("weights to the engine, probe"):
            super().load_policy(artifact, numerics)

    def map_rows(self, rows: Any, row_type_in: Any, worker: Any, **options: Any) -> None:
        """Work on rows in parallel; judging is timed by its stage, wherever it is done."""
        is_timed = worker is PlannerActor
        with self.measuring("planning") if is_timed else nullcontext():
            super().map_rows(rows, row_type_in, worker, **options)

    def trainer(self, *arguments: Any, **options: Any) -> Any:
        """Return the trainer, its calls timed too."""
        with self.measuring("weights to the trainer"):
            handle = super().trainer(*arguments, **options)
        return _TimedTrainer(handle, self)


@dataclass(frozen=True)
class _TimedTrainer:
    handle: Any
    workers: TimedWorkers

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            with self.workers.measuring(TRAINER_PARTS.get(name, "probe and v_hat")):
                return getattr(self.handle, name)(*arguments, **options)

        return call


def prepared(config: PddlInstructConfig, given: Path | None, folder: Path) -> list[Any]:
    """Return the stages up to the second iteration, whose own artifacts are not there."""
    root = folder / "artifacts"
    if given is not None and not root.exists():
        link_folder(given / "artifacts", root)
    for part in PARTS:
        for artifact in root.glob(f"{part}_{ITERATION}-*"):
            shutil.rmtree(artifact)
    wanted = {f"{part}_{t}" for t in range(1, ITERATION + 1) for part in PARTS}
    return [stage for stage in pddl_instruct(config) if stage.name in wanted]


def measure_iteration(
    config: PddlInstructConfig, given: Path | None, folder: Path
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the seconds of the second iteration by part, and completions of the engines: tokens and seconds."""
    stages = prepared(config, given, folder)
    before = [stage for stage in stages if not stage.name.endswith(f"_{ITERATION}")]
    with TimedWorkers(config, folder) as workers:
        done = run_stages(before, root=folder / "artifacts", resources=workers)
        policy = done[policy_before(config)]
        model, engine = policy.path(MODEL), narrowed(config.policy, EngineNumerics)
        workers.load_policy(policy, engine)
        warm_up = TrainingSequence.of(range(8), {})
        workers.trainer(model, narrowed(config.trainer, Numerics)).token_logprobs([warm_up])
        workers.seconds.clear()
        start = time.perf_counter()
        made = run_stages(stages, root=folder / "artifacts", resources=workers)
        total = time.perf_counter() - start
        seconds = {**workers.seconds, "judging": made[f"judge_{ITERATION}"].manifest.wall_time_s}
        seconds[OTHER] = total - sum(seconds.values())
        workers.load_policy(policy, engine)
        prompts, settings = test_prompts(config, done, model)
        speeds = []
        for repeat in range(REPEATS):
            start = time.perf_counter()
            answers = workers.engines().stream(prompts, settings, seeds=[repeat] * len(prompts), description="vLLM")
            n_tokens = sum(len(generation.token_ids) for _, group in answers for generation in group)
            speeds.append(n_tokens / (time.perf_counter() - start))
    return seconds, {"tokens_per_s": median(speeds), "n_tokens": n_tokens}


def test_prompts(
    config: PddlInstructConfig, done: dict[str, Artifact], model: Path
) -> tuple[list[list[int]], SamplingConfig]:
    """Return prompts of test problems, as token ids, and how they are completed: greedily."""
    tokenizer, rendering = load_tokenizer(str(model)), rendering_of(config.rendering)
    solved = solved_problems(done["sample_problems"], done["synthesize_plans"], Split.TEST)
    tasks = [PlanningTask.from_text(row.domain_pddl, row.problem_pddl) for row in solved]
    prompts = [encode_prompt(tokenizer, rendering.plan_prompt(task)) for task in tasks]
    limit = config.evaluation.max_new_tokens
    return prompts, SamplingConfig(max_new_tokens=limit, stop_token_ids=end_token_ids(tokenizer, model))


def complete_with_transformers(model: str, prompts: Sequence[Sequence[int]], settings: SamplingConfig) -> float:
    """Return the tokens per second of `transformers.generate` on every core, at the batch size that suits it best."""
    import torch
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, local_files_only=True)
    end = settings.stop_token_ids[0]

    def written(batch: Sequence[Sequence[int]]) -> int:
        longest = max(map(len, batch))
        ids = torch.tensor([[end] * (longest - len(prompt)) + list(prompt) for prompt in batch])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in batch])
        completed = loaded.generate(
            ids, attention_mask=mask, do_sample=False, max_new_tokens=settings.max_new_tokens,
            eos_token_id=list(settings.stop_token_ids), pad_token_id=end,
        )  # fmt: skip
        return sum(_length(row.tolist(), settings.stop_token_ids) for row in completed[:, longest:])

    best = 0.0
    for size in BATCH_SIZES:
        speeds = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            with torch.inference_mode():
                n_tokens = sum(written(prompts[i : i + size]) for i in range(0, len(prompts), size))
            speeds.append(n_tokens / (time.perf_counter() - start))
        best = max(best, median(speeds))
    return best


def _length(row: Sequence[int], stops: Sequence[int]) -> int:
    """Return how many tokens a completion has, its stop token included; what follows is padding."""
    return next((place + 1 for place, token in enumerate(row) if token in stops), len(row))


def in_process(function: Any, *arguments: Any) -> Any:
    """Return what a function returns in a process of its own: thread counts and engines stay there."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def main() -> None:
    """Measure, print, and end with one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="demo")
    parser.add_argument("--from", dest="given", type=Path, help="a run of the preset whose artifacts are taken")
    parser.add_argument("--folder", type=Path, default=Path("runs/benchmark-loop"))
    arguments = parser.parse_args()
    config, folder = PIPELINE.settings(arguments.preset), arguments.folder.resolve()
    seconds, engines = measure_iteration(config, arguments.given, folder)
    done = run_stages(prepared_before(config), root=folder / "artifacts")
    model = str(done[policy_before(config)].path(MODEL))
    prompts, settings = test_prompts(config, done, Path(model))
    generate = in_process(complete_with_transformers, model, prompts, settings)
    print_tables(seconds, {"vLLM": engines["tokens_per_s"], "transformers.generate": generate})
    total = sum(seconds.values())
    essential = sum(seconds.get(part, 0.0) for part in ("generation", "judging", "optimisation"))
    result = {
        "overhead_share": round(1 - essential / total, 3),
        "judging_vs_generation": round(seconds["judging"] / seconds["generation"], 4),
        "vllm_vs_generate": round(engines["tokens_per_s"] / generate, 2),
    }
    print(json.dumps(result))


def prepared_before(config: PddlInstructConfig) -> list[Any]:
    """Return the stages of the first iteration and of what it needs."""
    return [stage for stage in pddl_instruct(config) if stage.name == policy_before(config)]


def policy_before(config: PddlInstructConfig) -> str:
    """Return the stage that made the policy of the iteration."""
    return f"stage{1 if config.phase2.stage2 is None else 2}_{ITERATION - 1}"


def print_tables(seconds: dict[str, float], speeds: dict[str, float]) -> None:
    """Print what was measured."""
    total = sum(seconds.values())
    rows = [
        [part, f"{value:.1f}", f"{value / total:.1%}"] for part, value in sorted(seconds.items(), key=lambda x: -x[1])
    ]
    print(text_table((f"part of iteration {ITERATION}", "seconds", "share"), [*rows, ["total", f"{total:.1f}", ""]]))
    print()
    print(text_table(("side", "tokens/s"), [[side, f"{speed:.0f}"] for side, speed in speeds.items()]))


if __name__ == "__main__":
    main()
