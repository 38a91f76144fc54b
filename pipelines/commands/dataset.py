"""The command `dataset`: problems, plans and training examples as Parquet, from a preset.

Stages and part files are durable: the same command continues a killed run, and a finished one only prints its summary.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from actors.part_writer import COUNTS, EXAMPLES, PLANS
from pipelines.run.paths import PRESETS, default_runs
from pipelines.run.ray_session import RaySession
from pipelines.stages import dataset as dataset_stages
from pipelines.stages.dataset import DrawingSettings, SolvingSettings, WritingSettings
from pipelines.stages.graph import Graph
from plansmith.config.dataset import DatasetConfig
from plansmith.config.loading import load_settings, preset_names
from plansmith.console import exit_code_of, set_up_logging
from plansmith.data.artifacts import Artifact, remove
from plansmith.data.dataset_summary import SOLVED, DatasetSummary, format_summary, render_card, summarise
from plansmith.data.rows import CountRow, DatasetExampleRow, DatasetPlanRow
from plansmith.data.storage import atomic_file, make_folder, storage_errors
from plansmith.data.tables import merge_tables, read_table
from plansmith.errors import BadInputError
from plansmith.stages import Stage, preview_stages

DATASET_PRESETS = PRESETS / "datasets"

ROW_TYPES = {PLANS: DatasetPlanRow, EXAMPLES: DatasetExampleRow}
"""The tables of a dataset."""

CARD = "README.md"
CARD_SAYS = "judged valid by Plansmith's own validator"
"""In the card of every dataset, and by it one is known."""

EPILOG = """\
examples:
  plansmith dataset list
  plansmith dataset build pddl_instruct --scale 0.01
  plansmith dataset build generalization_gap --workers 16 --out data/gap
  plansmith dataset build my-dataset.yaml --set planner.search=good
"""


def dataset(config: DatasetConfig) -> list[Stage[Any]]:
    """Return the stages, in order; each names what it reads and every setting it depends on."""
    cells, graph = tuple(config.cells()), Graph(config.seed)
    drawing = DrawingSettings(
        cells=cells,
        reserve=config.reserve,
        max_draws=config.max_draws,
        rows_per_part=config.rows_per_part,
        pddl=dataset_stages.domains_digest(cells),
    )
    problems = graph.stage("draw_problems", dataset_stages.draw_problems, drawing, {})
    solving = SolvingSettings(cells=cells, planner=config.planner)
    plans = graph.stage("solve_problems", dataset_stages.solve_problems, solving, {"problems": problems})
    writing = WritingSettings(cells=cells, examples=config.examples)
    given: dict[str, Stage[Any]] = {"problems": problems, "plans": plans}
    graph.stage("write_dataset", dataset_stages.write_dataset, writing, given)
    return graph.stages


def build(config: DatasetConfig, run_folder: Path, out: Path) -> DatasetSummary:
    """Return the summary of the dataset, after making it in ``out``; finished stages are reused."""
    with RaySession(config, run_folder) as session:
        artifacts = session.run(dataset(config), root=run_folder)
    summary = _summary(artifacts)
    with storage_errors(out):
        written = artifacts["write_dataset"]
        _publish(written, render_card(summary, config, _tables(written)), out, config.rows_per_file)
    return summary


def _summary(artifacts: Mapping[str, Artifact]) -> DatasetSummary:
    written = artifacts["write_dataset"]
    counts = [row for name in ("draw_problems", "solve_problems") for row in artifacts[name].rows(CountRow, COUNTS)]
    counts = [row for row in counts if row.what != SOLVED]
    counts += [row for path in written.parts(COUNTS) for row in read_table(path, CountRow)]
    wall_time_s = sum(artifact.manifest.wall_time_s for artifact in artifacts.values())
    return summarise(counts, written.parts(PLANS), wall_time_s=wall_time_s)


def _tables(written: Artifact) -> dict[str, list[str]]:
    """Return the tables that have rows, each with its splits."""
    found = {table: sorted({path.parent.name for path in written.parts(table)}) for table in ROW_TYPES}
    return {table: splits for table, splits in found.items() if splits}


def _publish(written: Artifact, card: str, out: Path, rows_per_file: int) -> None:
    """Make the folder of the dataset, complete or not at all."""
    make_folder(out.parent)
    fresh = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    remove(fresh)
    fresh.mkdir()
    try:
        for table, splits in _tables(written).items():
            for split in splits:
                parts = [path for path in written.parts(table) if path.parent.name == split]
                merge_tables(parts, fresh / "data" / table, split, ROW_TYPES[table], rows_per_file=rows_per_file)
        with atomic_file(fresh / CARD) as file:
            file.write(card.encode())
        check_out(out)
        remove(out / "data")  # before the card, by which a dataset that a kill leaves half is known
        remove(out)
        fresh.rename(out)
    finally:
        remove(fresh)


def check_out(out: Path) -> None:
    """Raise unless a dataset may stand in a folder: one that is not there, is empty, or holds a dataset alone.

    Raises:
        BadInputError: it may not.
    """
    is_free = not out.exists() or (out.is_dir() and not any(out.iterdir()))
    if not is_free and not _is_dataset(out):
        raise BadInputError("something is there that is no dataset", where=str(out), expected="a new or an empty "
                            "folder, or one with nothing but a dataset that this command built",
                            cure="give another --out, or move away what is there")  # fmt: skip


def _is_dataset(folder: Path) -> bool:
    card = folder / CARD
    if not card.is_file() or CARD_SAYS not in card.read_text(encoding="utf-8", errors="replace"):
        return False
    own = {card, *folder.glob("data/**/*.parquet")}
    return all(path.is_dir() or path in own for path in folder.rglob("*"))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0 when done, 1 when it failed, 2 for bad input."""
    arguments = _parser().parse_args(argv)
    set_up_logging()
    return exit_code_of(lambda: int(arguments.work(arguments)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="plansmith dataset",
        description="Build datasets of problems, plans and training examples.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    commands.add_parser("list", help="the presets, with their sizes").set_defaults(work=_list)
    build_parser = commands.add_parser("build", help="build a dataset, or continue building it")
    build_parser.add_argument("preset", help=f"{', '.join(preset_names(DATASET_PRESETS))}, or a YAML file")
    build_parser.add_argument("--scale", type=float, help="factor on all numbers of problems, such as 0.01")
    build_parser.add_argument("--seed", type=int, help="seed of everything that is drawn")
    build_parser.add_argument("--workers", type=int, help="worker processes; on a local Ray also its cores")
    build_parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE",
                              help="change one setting, such as planner.search=good; may be repeated")  # fmt: skip
    build_parser.add_argument("--out", type=Path, help="folder of the dataset, in the place of one that is there "
                              "(default: RUN/dataset)")  # fmt: skip
    build_parser.add_argument("--runs", type=Path, default=default_runs(), help="folder of all runs (default: runs)")
    build_parser.add_argument("--dry-run", action="store_true", help="print the settings and what would run")
    build_parser.set_defaults(work=_build)
    return parser


def _list(_: argparse.Namespace) -> int:
    for name in preset_names(DATASET_PRESETS):
        config = load_settings(DatasetConfig, name, DATASET_PRESETS)
        total = sum(sum(cell.wanted.values()) for cell in config.cells())
        print(f"{name:24} {total:8} problems  {' '.join(config.description.split())}")
    return 0


def _build(arguments: argparse.Namespace) -> int:
    named = {"scale": arguments.scale, "seed": arguments.seed, "cluster.num_cpus": arguments.workers}
    overrides = [f"{key}={value}" for key, value in named.items() if value is not None]
    overrides = [*arguments.overrides, *overrides]
    config = load_settings(DatasetConfig, arguments.preset, DATASET_PRESETS, overrides=overrides)
    dataset_stages.domains_of(config.cells())
    run_folder = (arguments.runs / _run_name(config)).resolve()
    out = arguments.out.resolve() if arguments.out else run_folder / "dataset"
    check_out(out)
    if arguments.dry_run:
        print(json.dumps(config.model_dump(mode="json"), indent=2))
        for preview in preview_stages(dataset(config), run_folder):
            print(f"{preview.status:8}  {preview.name:16}  {preview.key[:12]}")
        return 0
    print(format_summary(build(config, run_folder, out)))
    print(f"\ndataset: {out.relative_to(Path.cwd()) if out.is_relative_to(Path.cwd()) else out}")
    return 0


def _run_name(config: DatasetConfig) -> str:
    scale, seed = f"x{config.scale:g}" if config.scale != 1 else "", f"seed{config.seed}" if config.seed else ""
    return "-".join(filter(None, (config.name, scale, seed)))
