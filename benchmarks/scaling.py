"""How building datasets and judging rollouts grow with CPUs and machines, and what one problem costs.

Blocksworld of six and seven blocks. First what one problem costs in processor time, without Ray. Then the stages of
`plansmith dataset build` and the judging of rollouts (true chains, corrupted ones, cut ones) through Ray, on one CPU,
on two, and on two nodes of one CPU each (`ray.cluster_utils.Cluster`: nodes of their own on one machine). Every layout
has a process of its own in every round; all must give the same tables, byte for byte, or the program fails.

    python benchmarks/scaling.py [--problems N] [--rollouts N] [--rounds N] [--out FILE]
    python benchmarks/scaling.py --table FILE [--gpu-generates TOKENS_PER_S] [--gpu-trains TOKENS_PER_S]

The tables give medians over the rounds; efficiency is the time on one CPU over n times the time on n. Starting Ray and
its worker processes is told apart and not in the efficiencies. The last line is one JSON object; ``--table`` computes
from such a line (a file of `--out`) what larger runs cost.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scaling_model import GpuRates, UnitCosts, dataset_table, iteration_table, problems_the_driver_can_feed, unit_table
from scaling_units import rollouts_of, solved_problems, unit_costs

from actors.validator import ValidatorActor
from plansmith.config.dataset import DatasetConfig
from plansmith.data.artifacts import ArtifactWriter, Provenance, complete_artifacts
from plansmith.data.rows import JudgedRow, JudgingRow
from plansmith.data.tables import read_table, write_table
from plansmith.judging.judge import PlanJudge
from plansmith.layout import text_table

LAYOUTS = {"1 CPU": (1, 1), "2 CPUs": (1, 2), "2 nodes of 1 CPU": (2, 1)}
"""Nodes, and CPUs of each."""
ONE = "1 CPU"
STAGES = ("draw_problems", "solve_problems", "write_dataset")
JUDGE = "judge"
BATCH = 128
"""Most problems of a batch; the pipelines have 32."""
WARM_UP = 20
SIZES = [10**power for power in range(3, 8)]
CPUS, GPUS = (1, 8, 64, 512), (1, 8, 64, 256)


@dataclass(frozen=True)
class Measured:
    """One layout in one round: wall-clock seconds, processor seconds of the driver, and digests of the tables."""

    layout: str
    ray_start_s: float
    worker_start_s: dict[str, float]
    seconds: dict[str, float]
    driver_s: dict[str, float]
    digests: dict[str, str]


# --- one layout, in a process of its own


def measure_here(layout: str, n_problems: int, work: Path) -> Measured:
    """Return the figures of one layout; the rollouts lie in `work`."""
    import ray
    from dataset import config_of
    from ray.cluster_utils import Cluster

    n_nodes, n_cpus = LAYOUTS[layout]
    start_s = time.perf_counter()
    cluster = Cluster()
    try:
        for _ in range(n_nodes):
            cluster.add_node(num_cpus=n_cpus, object_store_memory=200 * 2**20, include_dashboard=False)
        ray.init(address=cluster.address, logging_level="ERROR")
        ray_start_s = time.perf_counter() - start_s
        reach = {"address": cluster.address, "max_workers": n_nodes * n_cpus}
        configs = [
            config_of(n, 1, work / "blocksworld").model_copy(update={"cluster": _cluster_config(reach)})
            for n in (WARM_UP, WARM_UP, n_problems)
        ]
        with tempfile.TemporaryDirectory(prefix="plansmith-scaling-") as name:
            return _measured(layout, ray_start_s, configs, work, Path(name))
    finally:
        ray.shutdown()
        cluster.shutdown()


def _cluster_config(reach: dict[str, Any]) -> Any:
    return type(DatasetConfig.model_fields["cluster"].default).model_validate(reach)


def _measured(layout: str, ray_start_s: float, configs: Sequence[DatasetConfig], work: Path, folder: Path) -> Measured:
    """Return the figures once Ray runs: everything is done once at its smallest before it counts."""
    builds = [_build(config, folder / str(number)) for number, config in enumerate(configs)]
    rollouts, n_workers = read_table(work / "rollouts.parquet", JudgingRow), LAYOUTS[layout][0] * LAYOUTS[layout][1]
    judged = [
        _judge(rows, n_workers, folder / f"judge{number}")
        for number, rows in enumerate((rollouts[:n_workers], rollouts[:n_workers], rollouts))
    ]
    return Measured(
        layout=layout,
        ray_start_s=ray_start_s,
        worker_start_s={"dataset": builds[0][0]["dataset"], JUDGE: judged[1][0]},
        seconds={**builds[2][0], "dataset": builds[2][0]["dataset"] - builds[1][0]["dataset"],
                 JUDGE: judged[2][0] - judged[1][0]},
        driver_s={"dataset": builds[2][1] - builds[1][1], JUDGE: judged[2][1] - judged[1][1]},
        digests={"dataset": builds[2][2], "verdicts": judged[2][2]},
    )  # fmt: skip


def _build(config: DatasetConfig, folder: Path) -> tuple[dict[str, float], float, str]:
    """Return the seconds of a build and its stages, the driver's processor seconds, and the digest of the tables."""
    from pipelines.commands.dataset import build

    start_s, driver_s = time.perf_counter(), time.process_time()
    build(config, folder / "run", folder / "dataset")
    seconds, driver_s = time.perf_counter() - start_s, time.process_time() - driver_s
    stages = {a.manifest.provenance.stage: a.manifest.wall_time_s for a in complete_artifacts(folder / "run")}
    return (
        {"dataset": seconds, **{name: stages[name] for name in STAGES}},
        driver_s,
        digest(folder / "dataset" / "data"),
    )


def _judge(rows: Sequence[JudgingRow], n_workers: int, folder: Path) -> tuple[float, float, str]:
    """Return the seconds of judging, the driver's processor seconds, and the digest of the table."""
    from actors.mapping import map_rows

    start_s, driver_s = time.perf_counter(), time.process_time()
    writer = ArtifactWriter(folder, JUDGE, "0" * 64)
    map_rows(
        rows, JudgingRow, ValidatorActor, shards=writer.shards("rows", JudgedRow),
        batch_size=max(1, min(BATCH, len(rows) // n_workers)), pool_size=lambda: n_workers, description="judging",
        id_column="problem_id", worker_settings={"judge": PlanJudge("full")},
    )  # fmt: skip
    artifact = writer.finish(Provenance(JUDGE, "0" * 64, {}, {}, 0), wall_time_s=0.0)
    seconds, driver_s = time.perf_counter() - start_s, time.process_time() - driver_s
    n_rollouts = sum(len(row.completions) for row in rows)
    n_verdicts = sum(len(row.verdicts) for row in artifact.rows(JudgedRow))
    if n_verdicts != n_rollouts:
        raise RuntimeError(f"{n_rollouts} rollouts gave {n_verdicts} verdicts")
    return seconds, driver_s, artifact.manifest.files["rows.parquet"].sha256


def digest(folder: Path) -> str:
    """Return a hash of every file of a folder, by name."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    if not files:
        raise RuntimeError(f"nothing was written to {folder}")
    parts = [f"{path.relative_to(folder)} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


# --- all layouts


def measure(layout: str, n_problems: int, work: Path) -> Measured:
    """Return the figures of one layout by a process of its own."""
    program = [sys.executable, __file__, "--one", layout, str(n_problems), str(work)]
    # Before Ray is imported: a token of this process alone, and no talk of accelerators.
    own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    done = subprocess.run(program, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **own})
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def check_same_tables(found: Sequence[Measured]) -> None:
    """Raise unless every layout in every round gave the same tables."""
    for table in found[0].digests:
        kinds = {one.digests[table] for one in found}
        if len(kinds) > 1:
            raise SystemExit(f"error: {table}: the layouts gave {len(kinds)} different tables")


def medians(found: Sequence[Measured], field: str) -> dict[str, dict[str, float]]:
    """Return the median of each figure of a field, by layout."""
    by_layout = {layout: [getattr(one, field) for one in found if one.layout == layout] for layout in LAYOUTS}
    return {
        layout: {name: statistics.median(one[name] for one in values) for name in values[0]}
        for layout, values in by_layout.items()
    }


def efficiencies(seconds: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Return t1 / (n tn) of each part, for the layouts of more than one CPU."""
    cpus = {layout: nodes * each for layout, (nodes, each) in LAYOUTS.items()}
    return {
        layout: {name: round(seconds[ONE][name] / (cpus[layout] * value), 3) for name, value in parts.items()}
        for layout, parts in seconds.items()
        if layout != ONE
    }


def result_of(found: Sequence[Measured], units: dict[str, float], sizes: dict[str, int]) -> dict[str, Any]:
    """Return the last line."""
    seconds, driver_s = medians(found, "seconds"), medians(found, "driver_s")
    costs = UnitCosts(
        **units,
        driver_problem_s=max(0.0, driver_s[ONE]["dataset"] / sizes["problems"]),
        driver_rollout_s=max(0.0, driver_s[ONE][JUDGE] / sizes["rollouts"]),
    )
    starts = {one: statistics.median(m.ray_start_s for m in found if m.layout == one) for one in LAYOUTS}
    return {
        **sizes,
        "rounds": len(found) // len(LAYOUTS),
        "efficiency": efficiencies(seconds),
        "seconds": {layout: {name: round(s, 2) for name, s in parts.items()} for layout, parts in seconds.items()},
        "ray_start_s": {layout: round(value, 2) for layout, value in starts.items()},
        "worker_start_s": {
            layout: {name: round(s, 2) for name, s in parts.items()}
            for layout, parts in medians(found, "worker_start_s").items()
        },
        "unit_costs_s": asdict(costs),
        "digests": found[0].digests,
    }


def print_result(result: dict[str, Any]) -> None:
    """Print the tables of a result."""
    parts = list(result["seconds"][ONE])
    header = (
        "part",
        *(f"{layout}, s" for layout in LAYOUTS),
        *(f"efficiency, {layout}" for layout in LAYOUTS if layout != ONE),
    )
    rows = [
        [part, *(f"{result['seconds'][layout][part]:.2f}" for layout in LAYOUTS),
         *(f"{values[part]:.2f}" for values in result["efficiency"].values())]
        for part in parts
    ]  # fmt: skip
    print(text_table(header, rows))
    starts = [
        ["Ray", *(f"{result['ray_start_s'][layout]:.2f}" for layout in LAYOUTS)],
        *([f"workers, {what}", *(f"{result['worker_start_s'][layout][what]:.2f}" for layout in LAYOUTS)]
          for what in ("dataset", JUDGE)),
    ]  # fmt: skip
    print("\nstarting, in seconds, not in the figures above")
    print(text_table(("what", *LAYOUTS), starts))
    print(f"\n{unit_table(UnitCosts(**result['unit_costs_s']))}\n")


def print_growth(result: dict[str, Any], rates: GpuRates, arguments: argparse.Namespace) -> None:
    """Print what larger runs cost by the measured unit costs."""
    costs, efficiency = UnitCosts(**result["unit_costs_s"]), min(1.0, result["efficiency"]["2 CPUs"]["dataset"])
    problem_s = result["seconds"][ONE]["dataset"] / result["problems"]
    print(unit_table(costs))
    print(f"\nBuilding a dataset: {1000 * problem_s:.3g} ms a problem on one CPU, with all of its examples; efficiency "
          f"{efficiency:.2f} on two:\n")  # fmt: skip
    print(dataset_table(problem_s, costs.driver_problem_s, efficiency, sizes=SIZES, cpus=CPUS))
    print(f"\nThe driver hands out and collects {problems_the_driver_can_feed(costs):.3g} problems a second at most.")
    n_rollouts, tokens = arguments.rollouts_per_iteration, arguments.tokens_per_rollout
    print(f"\nOne feedback iteration, {n_rollouts:,} rollouts of {tokens} tokens; g and t are the tokens that one GPU "
          "generates and trains in a second:\n")  # fmt: skip
    print(iteration_table(costs, rates, GPUS, n_rollouts=n_rollouts, rollout_tokens=tokens, epochs=2.0))


def main() -> None:
    """Measure, print, and end with one JSON object; or compute from one."""
    arguments = _parser().parse_args()
    if arguments.one:
        layout, n_problems, work = arguments.one
        print(json.dumps(asdict(measure_here(layout, int(n_problems), Path(work)))))
        return
    if arguments.table:
        result = json.loads(arguments.table.read_text(encoding="utf-8").splitlines()[-1])
        print_growth(result, GpuRates(arguments.gpu_generates, arguments.gpu_trains), arguments)
        return
    from dataset import write_domain

    with tempfile.TemporaryDirectory(prefix="plansmith-scaling-") as name:
        work = Path(name)
        rows, units = solved_problems(min(arguments.problems, 500), write_domain(work))
        rollouts = rollouts_of(rows, arguments.rollouts)
        units |= unit_costs(rows, rollouts[:2000])
        write_table(work / "rollouts.parquet", rollouts, JudgingRow)
        found = [measure(layout, arguments.problems, work) for _ in range(arguments.rounds) for layout in LAYOUTS]
    check_same_tables(found)
    result = result_of(found, units, {"problems": arguments.problems, "rollouts": arguments.rollouts})
    print_result(result)
    line = json.dumps(result)
    if arguments.out:
        arguments.out.write_text(f"{line}\n", encoding="utf-8")
    print(line)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=2000, help="problems of the dataset, a multiple of 10")
    parser.add_argument("--rollouts", type=int, default=20_000, help="rollouts to judge")
    parser.add_argument("--rounds", type=int, default=3, help="processes for each layout")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where the last line goes as well")
    parser.add_argument("--table", type=Path, metavar="FILE", help="compute what larger runs cost from such a line")
    parser.add_argument("--gpu-generates", type=float, metavar="TOKENS", help="tokens a second that one GPU generates")
    parser.add_argument("--gpu-trains", type=float, metavar="TOKENS", help="tokens a second that one GPU trains")
    parser.add_argument("--rollouts-per-iteration", type=int, default=100_000)
    parser.add_argument("--tokens-per-rollout", type=int, default=1000)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    main()
