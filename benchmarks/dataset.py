"""How fast datasets are built: Blocksworld problems to plans to explained, corrupted and chained rows in Parquet.

Problems have six or seven blocks. Each size is built from nothing by a process of its own, which reports its time and
its greatest memory; then one size with one worker, to compare with two. Start-up, left out of the rates, is Ray's own
and that of its workers, warmed up with a dataset of twenty problems; it is the same for every size.

    python benchmarks/dataset.py [--sizes N ...] [--compare N] [--workers N]

The tables give rows per second and the time by part; the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import yaml

from pipelines.commands.dataset import build
from pipelines.run.ray_session import RaySession
from pipelines.stages.dataset import TIMES
from plansmith.config.dataset import DatasetConfig
from plansmith.data.artifacts import complete_artifacts
from plansmith.data.rows import PartTimeRow
from plansmith.layout import text_table
from plansmith.problems.library import DOMAINS_FOLDER

BLOCKS = [6, 7]
SHARES = {"train": 8, "validation": 1, "test": 1}


@dataclass(frozen=True)
class Measured:
    """One build: seconds are wall-clock, of parts summed over the workers; memory is the driver's greatest, in MiB."""

    problems: int
    workers: int
    rows: int
    seconds: float
    startup_s: float
    driver_mib: float
    parts_s: dict[str, float]
    stages_s: dict[str, float]

    @property
    def rows_per_s(self) -> float:
        """Return the rows written in a second, the start-up of Ray left out."""
        return self.rows / (self.seconds - self.startup_s)

    @property
    def problems_per_s(self) -> float:
        """Return the problems done in a second, start-up and all."""
        return self.problems / self.seconds


def write_domain(folder: Path) -> Path:
    """Return a domain folder that draws the project's Blocksworld in the sizes of this benchmark."""
    domain_folder = folder / "blocksworld"
    domain_folder.mkdir()
    settings = {
        "domain_file": str(DOMAINS_FOLDER / "blocksworld" / "domain.pddl"),
        "sampler": "blocksworld",
        "levels": {"small": {"blocks": BLOCKS}},
    }
    (domain_folder / "settings.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    return domain_folder


def config_of(n_problems: int, n_workers: int, domain_folder: Path) -> DatasetConfig:
    """Return the settings of a build."""
    counts = {split: n_problems * share // 10 for split, share in SHARES.items()}
    part = {"domains": [str(domain_folder)], "levels": {"small": counts}}
    settings = {
        "name": f"blocksworld-{n_problems}",
        "description": "Blocksworld, to measure with.",
        "parts": [part],
        "planner": {"search": "first"},
        "examples": {"rendering": "full", "plan_chain": 1.0, "explain_valid": 1.0, "explain_invalid": 1.0},
        "cluster": {"num_cpus": n_workers},
    }
    return DatasetConfig.model_validate(settings)


def measure_here(n_problems: int, n_workers: int) -> Measured:
    """Return the figures of one build by this process."""
    with tempfile.TemporaryDirectory(prefix="plansmith-benchmark-") as name:
        folder, start = Path(name), time.perf_counter()
        domain_folder = write_domain(folder)
        config = config_of(n_problems, n_workers, domain_folder)
        with RaySession(config, folder) as session:
            session.ray()
            build(config_of(20, n_workers, domain_folder), folder / "warm-up", folder / "warmed-up")
            startup_s = time.perf_counter() - start
            summary = build(config, folder / "run", folder / "dataset")
            seconds = time.perf_counter() - start
        artifacts = complete_artifacts(folder / "run")
        parts_s: dict[str, float] = defaultdict(float)
        for artifact in artifacts:
            if (artifact.folder / f"{TIMES}.parquet").exists():
                for row in artifact.rows(PartTimeRow, TIMES):
                    parts_s[row.work] += row.seconds
    return Measured(
        problems=n_problems,
        workers=n_workers,
        rows=summary.n_rows,
        seconds=seconds,
        startup_s=startup_s,
        driver_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        parts_s=dict(parts_s),
        stages_s={a.manifest.provenance.stage: a.manifest.wall_time_s for a in artifacts},
    )


def measure(n_problems: int, n_workers: int) -> Measured:
    """Return the figures of one build by a process of its own."""
    program = [sys.executable, __file__, "--one", str(n_problems), str(n_workers)]
    done = subprocess.run(program, stdout=subprocess.PIPE, text=True, check=True)
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def print_tables(found: list[Measured]) -> None:
    """Print what was measured."""
    header = (
        "problems",
        "workers",
        "rows",
        "seconds",
        "start-up",
        "rows/s",
        "rows/s, started",
        "problems/s",
        "driver MiB",
    )
    rows = [
        [str(m.problems), str(m.workers), str(m.rows), f"{m.seconds:.1f}", f"{m.startup_s:.1f}", f"{m.rows_per_s:.1f}",
         f"{m.rows / m.seconds:.1f}", f"{m.problems_per_s:.1f}", f"{m.driver_mib:.0f}"]
        for m in found
    ]  # fmt: skip
    print(text_table(header, rows))
    names = list(dict.fromkeys(name for m in found for name in m.parts_s))
    parts = [[name, *(f"{1000 * m.parts_s.get(name, 0) / m.problems:.2f}" for m in found)] for name in names]
    parts += [
        [f"stage {name}", *(f"{1000 * m.stages_s[name] / m.problems:.2f}" for m in found)] for name in found[0].stages_s
    ]
    print("\nmilliseconds a problem")
    print(text_table(("part", *(f"{m.problems} x{m.workers}" for m in found)), parts))


def main() -> None:
    """Measure, print, and end with one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10_000, 40_000], help="problems to build")
    parser.add_argument("--compare", type=int, default=2000, help="problems to build with one worker and with all")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--one", type=int, nargs=2, metavar=("PROBLEMS", "WORKERS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(asdict(measure_here(*arguments.one))))
        return
    found = [measure(size, arguments.workers) for size in arguments.sizes]
    single, many = measure(arguments.compare, 1), measure(arguments.compare, arguments.workers)
    print_tables([*found, single, many])
    rates = [m.rows_per_s for m in found]
    result = {
        "rows_per_s": {str(m.problems): round(m.rows_per_s, 1) for m in found},
        "flatness": round(min(rates) / max(rates), 3),
        "memory_growth_mib": round(found[-1].driver_mib - found[0].driver_mib, 1),
        "two_workers": round(many.rows_per_s / single.rows_per_s, 3),
        "seconds": {str(m.problems): round(m.seconds, 1) for m in found},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
