"""Every metric that the board or an alert asks for is exported under that name, with those labels, by a real Ray."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen

import promql_parser as promql
import pytest
import ray
import yaml
from conftest import ROOT
from prometheus_client.parser import text_string_to_metric_families

from actors.telemetry import RayListener, exported_name, metrics_table, record, tag_keys
from pipelines.run import telemetry as telemetry_of_runs
from pipelines.run.ray_start import start_ray
from pipelines.run.telemetry import Telemetry
from plansmith.config.telemetry import TelemetryConfig
from plansmith.data.artifacts import ArtifactWriter, Provenance
from plansmith.live import report, report_to
from plansmith.report.metric_list import METRICS
from plansmith.stages import Stage

GRAFANA = ROOT / "cluster" / "grafana"
BOARD = json.loads((GRAFANA / "plansmith.json").read_text(encoding="utf-8"))
RULES = yaml.safe_load((GRAFANA / "prometheus-rules.yaml").read_text(encoding="utf-8"))
VARIABLES = {"$run": "by-hand", "$__range": "1h", "$__rate_interval": "5m"}
MADE_IN_QUERIES = {"loss"}
"""Labels that a query itself adds with label_replace."""
DEADLINE_S = 240.0
"""A busy machine takes longer than Ray's reports are apart."""
HASTE = 5
"""How many times as often as usual Ray reports, and forgets, and the run records; the proportions stay."""


def targets(panel: Mapping[str, Any]) -> Iterator[str]:
    for target in panel.get("targets", ()):
        yield target["expr"]


def expressions() -> list[str]:
    """Return every expression of the board and the rules, with values for Grafana's variables."""
    asked = [expression for panel in BOARD["panels"] for expression in targets(panel)]
    asked += [rule["expr"] for group in RULES["groups"] for rule in group["rules"]]
    for variable, value in VARIABLES.items():
        asked = [expression.replace(variable, value) for expression in asked]
    return asked


@dataclass(frozen=True)
class Asked:
    """A metric that a query asks for, and the labels that it selects or groups by."""

    metric: str
    labels: frozenset[str]


def asked_of(expression: str) -> list[Asked]:
    """Return what a PromQL expression asks for; an aggregation's labels belong to every metric within it."""
    found: list[Asked] = []

    def visit(node: Any, labels: frozenset[str]) -> None:
        if isinstance(node, promql.AggregateExpr):
            by = set(node.modifier.labels) if node.modifier is not None else set()
            visit(node.expr, labels | (by - MADE_IN_QUERIES))
        elif isinstance(node, promql.VectorSelector):
            found.append(Asked(node.name, labels | {matcher.name for matcher in node.matchers.matchers}))
        elif isinstance(node, promql.BinaryExpr):
            visit(node.lhs, labels)
            visit(node.rhs, labels)
        elif isinstance(node, promql.Call):
            for argument in node.args:
                visit(argument, labels)
        elif isinstance(node, promql.MatrixSelector):
            visit(node.vector_selector, labels)
        elif isinstance(node, promql.ParenExpr | promql.UnaryExpr | promql.SubqueryExpr):
            visit(node.expr, labels)
        else:
            assert isinstance(node, promql.NumberLiteral | promql.StringLiteral), type(node)

    visit(promql.parse(expression), frozenset())
    return found


ALL_ASKED = [(expression, asked) for expression in expressions() for asked in asked_of(expression)]
OURS = {exported_name(metric): set(tag_keys(metric)) for metric in METRICS.values()}


# --- what is asked for


def test_asked_of_an_expression_finds_metrics_matchers_and_groupings() -> None:
    expression = 'sum by (run) (rate(a_total{x="1"}[5m])) / on (run) max by (run, y) (b) > 0'
    assert asked_of(expression) == [Asked("a_total", frozenset({"run", "x"})), Asked("b", frozenset({"run", "y"}))]


def test_board_and_rules_ask_for_no_metric_of_ours_that_does_not_exist() -> None:
    wrong = [
        (asked.metric, sorted(asked.labels - OURS.get(asked.metric, set())), expression)
        for expression, asked in ALL_ASKED
        if asked.metric.startswith("ray_plansmith_") and not asked.metric.startswith("ray_plansmith_serve_")
        if asked.metric not in OURS or asked.labels - OURS[asked.metric]
    ]
    assert wrong == []
    assert len({asked.metric for _, asked in ALL_ASKED} & set(OURS)) > 20


def test_board_asks_for_every_window_of_the_design() -> None:
    asked = {asked.metric for _, asked in ALL_ASKED}
    names = [
        "evaluation/accuracy", "evaluation/errors", "loss/reasoning_as_printed", "loss/final_as_printed",
        "train/tokens_per_s", "rollout/tokens_per_s", "stage/wall_time_s", "run/stage", "run/policy_version",
        "actor/restarts",
    ]  # fmt: skip
    assert {exported_name(METRICS[name]) for name in names} <= asked


def test_board_panels_are_distinct_and_lie_beside_each_other() -> None:
    panels = BOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    titles = [panel["title"] for panel in panels]
    assert len(set(titles)) == len(titles)
    covered: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + dx, place["y"] + dy) for dx in range(place["w"]) for dy in range(place["h"])}
        assert not cells & covered, panel["title"]
        assert max(x for x, _ in cells) < 24
        covered |= cells


def test_board_uses_its_variables_for_data_source_and_run() -> None:
    assert [variable["name"] for variable in BOARD["templating"]["list"]] == ["datasource", "run"]
    for panel in BOARD["panels"]:
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}"
            assert panel["description"], panel["title"]
            assert [target["datasource"]["uid"] for target in panel["targets"]] == ["${datasource}"] * len(
                panel["targets"]
            )
        for expression in targets(panel):
            ours = [asked for asked in asked_of(_with_values(expression)) if asked.metric in OURS]
            assert all("run" in asked.labels for asked in ours), expression


def _with_values(expression: str) -> str:
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    return expression


def test_rules_each_say_what_is_wrong_and_how_bad() -> None:
    rules = [rule for group in RULES["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool, which comes with Prometheus, is not installed")
def test_rules_fire_when_they_should() -> None:
    command = ["promtool", "test", "rules", str(GRAFANA / "prometheus-rules-test.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_documented_table_of_metrics_is_the_one_of_the_program() -> None:
    text = (ROOT / "docs" / "telemetry.md").read_text(encoding="utf-8")
    begin, end = "<!-- metrics: begin -->\n\n", "\n\n<!-- metrics: end -->"
    assert text.partition(begin)[2].partition(end)[0] == metrics_table()


# --- what is exported


class Engine:
    """Stands in an actor's process for an engine: it reports as the policy and the trainer do."""

    def __init__(self) -> None:
        report_to(RayListener("by-hand", "policy-0"))

    def work(self) -> None:
        for done in (0, 3, 8):
            report("rolling out", done, 8, unit="rollout", values={"rollout/tokens_per_s": 50.0})

    def die(self) -> None:
        os._exit(1)


def counting_service() -> Any:
    """Return the metrics of a replica of the planning service that has counted a request."""
    from cluster.service.answer import PlanAnswer, PlanSource, PlanStatus
    from cluster.service.metrics import ServiceMetrics

    metrics = ServiceMetrics()
    answer = PlanAnswer(
        status=PlanStatus.SOLVED, plan=(), cost=0.0, source=PlanSource.POLICY, chain=None, chain_first_fault=None,
        problem_id="p", turns=("valid",), verdict=None, reason=None, timings={"policy_s": 0.5},
        policy_version="v",
    )  # fmt: skip
    metrics.finished("/plan", "solved", 0.5)
    metrics.answered(answer, 0.1)
    return metrics


Samples = dict[str, list[dict[str, Any]]]


def scrape() -> Samples:
    """Return what this machine's agent exports to Prometheus: by name, the labels with the value; nothing yet is {}."""
    [node] = [node for node in ray.nodes() if node["Alive"]]
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    try:
        with urlopen(url, timeout=30) as answer:
            text = answer.read().decode()
    except OSError:
        return {}  # the agent is starting, or busy
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append({**sample.labels, "value": sample.value})
    return found


def scraped_with(names: set[str], service: Any) -> Samples:
    """Return the latest of every metric and run over several scrapes; fail with what none of them had.

    Ray forgets a gauge after two reports, so that what was recorded is recorded again before each of them.
    """
    deadline = time.monotonic() + DEADLINE_S
    samples: Samples = {}
    while (lacking := lacking_in(samples, names)) and time.monotonic() < deadline:
        record_everything()
        service.loaded(1, 2)
        time.sleep(0.5)
        for name, rows in scrape().items():
            runs = runs_of(rows)
            samples[name] = rows + [row for row in samples.get(name, []) if row.get("run") not in runs]
    assert lacking == set(), f"waited for {sorted(lacking)}"
    return samples


OF_THE_RUN = {
    "ray_plansmith_rollout_finished_total",
    "ray_plansmith_actor_restarts_total",
    "ray_plansmith_stage_wall_time_s",
    "ray_plansmith_run_stage",
}
"""What the engine and the run report, at other times than this process records everything."""


def lacking_in(samples: Samples, names: set[str]) -> set[str]:
    """Return the metrics that have not come yet."""
    runs = {name: runs_of(samples.get(name, [])) for name in names | OF_THE_RUN}
    return (
        (names - samples.keys())
        | {name for name in OURS if "every" not in runs[name]}
        | {name for name in OF_THE_RUN if "by-hand" not in runs[name]}
    )


def runs_of(rows: list[dict[str, Any]]) -> set[str | None]:
    return {row.get("run") for row in rows}


def of_the_run(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the samples of the run by hand."""
    return [row for row in rows if row.get("run") == "by-hand"]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    """What Prometheus gets of a run on a private Ray: an engine that was started again, a service, all figures.

    In a process of its own: whether and how often Ray reports is decided at a process's first Ray.
    """
    process = multiprocessing.get_context("spawn")
    with pytest.MonkeyPatch.context() as patch, ProcessPoolExecutor(1, mp_context=process) as alone:
        patch.delenv("RAY_enable_open_telemetry")
        patch.setenv("RAY_metrics_report_interval_ms", str(10_000 // HASTE))
        return alone.submit(samples_of_a_run, tmp_path_factory.mktemp("run")).result()


def samples_of_a_run(folder: Path) -> Samples:
    telemetry_of_runs.REFRESH_INTERVAL_S /= HASTE
    settings = SimpleNamespace(name="by-hand", telemetry=TelemetryConfig(), model_dump=lambda *, mode: {})
    writer = ArtifactWriter(folder / "artifacts", "polish_2", "f" * 64)
    artifact = writer.finish(Provenance("polish_2", "f" * 64, {}, {}, 0, iteration=2), wall_time_s=2.5)
    stage = Stage(name="polish_2", run=lambda context: None)
    with Telemetry(settings, folder) as telemetry:
        telemetry.started(stage, number=3, count=7)  # before there is a Ray
        telemetry.finished(stage, artifact, {}, was_reused=False)
        code = {"env_vars": {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}}
        start_ray(ray, num_cpus=0, include_dashboard=False, object_store_memory=100 * 2**20,
                 logging_level=logging.ERROR, runtime_env=code)  # fmt: skip
        try:
            telemetry.started(stage, number=3, count=7)
            engine = engine_that_was_started_again()
            samples = scraped_with(wanted(), counting_service())
            samples["kept"] = kept_when_ray_forgets()
        finally:
            telemetry.__exit__()
            ray.shutdown()
    del engine
    return samples


def engine_that_was_started_again() -> Any:
    """Let an engine work and die, and work once more when Ray has started it again."""
    engine = ray.remote(Engine).options(num_cpus=0, max_restarts=1).remote()
    ray.get(engine.work.remote())
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(engine.die.remote())
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        try:
            ray.get(engine.work.remote())
            return engine
        except ray.exceptions.ActorUnavailableError:
            time.sleep(0.5)
    raise AssertionError("waited for the engine to be started again")


def kept_when_ray_forgets() -> list[dict[str, Any]]:
    """Return the stage times that are exported when those that nobody records anew have vanished."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        times = scrape().get("ray_plansmith_stage_wall_time_s", [])
        if times and all(row["run"] != "every" for row in times):
            return times
        time.sleep(0.2)
    raise AssertionError(f"waited for Ray to forget one and keep the other; it has {times}")


def record_everything() -> None:
    """Record a value of every metric under another run's name, with every label that it may carry."""
    for metric in METRICS.values():
        record(metric.name, 1.0, **dict.fromkeys(tag_keys(metric), "x") | {"run": "every"})


def wanted() -> set[str]:
    return {asked.metric for _, asked in ALL_ASKED} | set(OURS)


def test_every_metric_asked_for_is_exported_with_the_labels_asked_for(exported: Samples) -> None:
    lacking = [
        (asked.metric, sorted(asked.labels - exported[asked.metric][0].keys()), expression)
        for expression, asked in ALL_ASKED
        if asked.labels - exported[asked.metric][0].keys()
    ]
    assert lacking == []


def test_every_metric_of_the_list_is_exported_under_its_name_with_its_labels(exported: Samples) -> None:
    for metric in METRICS.values():
        [sample] = [row for row in exported[exported_name(metric)] if row["run"] == "every"]
        labels = {key for key in tag_keys(metric) if sample[key] == "x"}
        assert labels == set(tag_keys(metric)) - {"run"}


def test_figures_from_before_ray_started_are_exported(exported: Samples) -> None:
    [row] = of_the_run(exported["ray_plansmith_stage_wall_time_s"])
    assert (row["stage"], row["iteration"], row["value"]) == ("polish_2", "2", 2.5)
    [row] = of_the_run(exported["ray_plansmith_run_stage"])
    assert (row["stage"], row["value"]) == ("polish_2", 1.0)


def test_figures_of_the_run_stay_when_ray_forgets_others(exported: Samples) -> None:
    assert [(row["run"], row["stage"], row["value"]) for row in exported["kept"]] == [("by-hand", "polish_2", 2.5)]


def test_engine_that_was_started_again_counts_its_work_and_the_restart(exported: Samples) -> None:
    assert {row["source"] for row in of_the_run(exported["ray_plansmith_rollout_finished_total"])} == {"policy-0"}
    assert [row["value"] for row in of_the_run(exported["ray_plansmith_actor_restarts_total"])] == [1.0]


def test_states_of_actors_that_the_board_names_are_those_of_ray(exported: Samples) -> None:
    from ray.core.generated.gcs_pb2 import ActorTableData

    states = set(ActorTableData.ActorState.keys())
    named = {"PENDING_CREATION", "DEPENDENCIES_UNREADY", "RESTARTING", "DEAD"}
    assert named <= states
    assert {row["State"] for row in exported["ray_actors"] if row["Source"] == "gcs"} <= states
    assert all(state in json.dumps(BOARD) for state in named)
