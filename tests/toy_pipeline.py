"""A pipeline that no line of the project knows: it draws numbers, learns their mean step by step, and reports it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field

from pipelines.commands.run import run_command
from pipelines.run.ray_session import RaySession
from plansmith.config.basics import StrictModel
from plansmith.config.run import RunConfig
from plansmith.data.artifacts import StageKind
from plansmith.data.rows import MetricRow, OptimisationStepRow
from plansmith.pipeline import Ablation, OverSeeds, Pipeline, Reporting, Variant
from plansmith.report.finished_stages import RunSoFar
from plansmith.report.sections import Drawing, Plot, Plots, Report, Section, Sentences, Table
from plansmith.report.svg import plot_of
from plansmith.stages import Stage, StageContext


class Learning(StrictModel):
    """How the mean is learnt."""

    n_steps: int
    rate: float


class ToyConfig(RunConfig):
    """A toy run."""

    n_steps: int = Field(2, ge=1)
    rate: float = 0.5
    unused: int = 0

    def unread(self) -> dict[str, str]:
        """Return the setting that nobody reads."""
        return {"unused": "it is there for a test"}


@dataclass(frozen=True, slots=True)
class ToyResults:
    """What a toy run learnt, step by step."""

    name: str
    seed: int
    losses: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ToyComparison:
    """The last losses of the variants."""

    losses: dict[str, float]


def draw_numbers(context: StageContext[None]) -> None:
    """Write one number a line."""
    numbers = [str(context.rng(number).randint(0, 9)) for number in range(5)]
    context.output.path("numbers.txt").write_text("\n".join(numbers))


def learn_mean(context: StageContext[Learning]) -> None:
    """Go towards the mean of the numbers; the loss is the squared distance from it."""
    numbers = [float(line) for line in context.inputs["numbers"].path("numbers.txt").read_text().split()]
    mean, guess, curve = sum(numbers) / len(numbers), 0.0, []
    for step in range(1, context.settings.n_steps + 1):
        guess += context.settings.rate * (mean - guess)
        curve.append(OptimisationStepRow(step, (mean - guess) ** 2, context.settings.rate, 1.0))
    context.output.write_rows(curve, OptimisationStepRow, table="curve")
    tokens = [MetricRow(context.stage.name, 0, "", "", "training/n_tokens", float(len(numbers)))]
    context.output.write_rows(tokens, MetricRow, table="metrics")


def stages(config: ToyConfig) -> list[Stage[Any]]:
    """Return the two stages."""
    numbers = Stage(name="draw_numbers", run=draw_numbers, settings=None, seed=config.seed)
    learning = Learning(n_steps=config.n_steps, rate=config.rate)
    told = {"kind": StageKind.OPTIMISES, "labels": {"objective": "mean"}}
    learnt = Stage(name="learn_mean", run=learn_mean, settings=learning, inputs={"numbers": numbers}, **told)
    return [numbers, learnt]


def results(run: RunSoFar[ToyConfig]) -> ToyResults | None:
    """Return the losses, once there are some."""
    learnt = run.one(StageKind.OPTIMISES)
    if learnt is None:
        return None
    losses = tuple(row.loss for row in learnt.artifact.rows(OptimisationStepRow, "curve"))
    return ToyResults(run.config.name, run.config.seed, losses)


def report(found: ToyResults) -> Report:
    """Return a report with a section of this pipeline's own."""
    rows = tuple((str(step), f"{loss:.3f}") for step, loss in enumerate(found.losses, 1))
    plot = Drawing("mean", found.losses, partial(draw_losses, found.losses))
    section = Section("How near it came", (Table("Distance from the mean", ("step", "loss"), rows), Plots((plot,))))
    return Report(f"Toy: {found.name}", f"The last loss is {found.losses[-1]:.3f}.", "", (section,))


def draw_losses(losses: Sequence[float]) -> Plot:
    """Return the losses as a line."""
    return plot_of("toy-losses", "Toy losses", "By step.", 1.0, lambda figure: figure.add_subplot().plot(losses))


def variants(config: ToyConfig) -> list[Variant[ToyConfig]]:
    """Return a slow and a fast learner."""
    rates = {"slow": 0.25, "fast": 0.75}
    return [Variant(name, config.model_copy(update={"rate": rate})) for name, rate in rates.items()]


def compared(config: ToyConfig, runs: Sequence[tuple[str, RunSoFar[ToyConfig]]], command: str) -> ToyComparison:
    """Return the last loss of each run."""
    found = {f"{name}, seed {run.config.seed}": results(run) for name, run in runs}
    return ToyComparison({name: one.losses[-1] for name, one in found.items() if one is not None})


def over_seeds(name: str, runs: Sequence[RunSoFar[ToyConfig]], command: str) -> ToyComparison:
    """Return the last loss of each seed."""
    return compared(runs[0].config, [(name, run) for run in runs], command)


def comparison_report(found: ToyComparison) -> Report:
    """Return which variant came nearest."""
    best = min(found.losses, key=lambda name: found.losses[name])
    lines = tuple(f"{name}: {loss:.4f}" for name, loss in found.losses.items())
    return Report("Toys", f"Nearest: {best}.", "", (Section("All", (Sentences(lines),)),))


PIPELINE = Pipeline(
    name="toy",
    config=ToyConfig,
    presets=Path(__file__).parent / "presets" / "toy",
    stages=stages,
    session=RaySession,
    results=results,
    reporting=Reporting(ToyResults, report),
    ablation=Ablation(
        about="Learn slowly and fast.",
        variants=variants,
        results=compared,
        reporting=Reporting(ToyComparison, comparison_report, "comparison"),
    ),
    over_seeds=OverSeeds(over_seeds, Reporting(ToyComparison, comparison_report, "seeds")),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run it as a file of its own would."""
    return run_command(PIPELINE, argv)
