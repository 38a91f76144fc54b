"""The pipeline `self_criteach` as a whole: its preset smoke, with the real engine, trainer and planner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines import self_criteach
from plansmith.ablation.criteach_seeds import criteach_seeds_report, criteach_seeds_results
from plansmith.commands.watch import report_so_far
from plansmith.data.artifacts import complete_artifacts
from plansmith.data.rows import ExampleRow, PairRow
from plansmith.report.criteach_results import criteach_results
from plansmith.report.finished_stages import RunSoFar
from plansmith.report.render import format_report
from plansmith.watch.page import RunPage

RUN = "self_criteach-smoke"
ARMS = ["base", "vote", "symbol", "sft_noisy", "sft", "sft_dpo", "sft_cpo"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    assert self_criteach.main(["--preset", "smoke", "--runs", str(folder)]) == 0
    return folder


def results_of(runs: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((runs / RUN / "report" / "results.json").read_text())
    return found


def test_smoke_run_has_every_arm_that_could_be_run(runs: Path) -> None:
    results = results_of(runs)
    assert list(results["arms"]) == [arm for arm in ARMS if arm in results["arms"]]
    assert sorted([*results["arms"], *results["not_run"]]) == sorted(ARMS)
    assert set(results["not_run"]) <= {"sft_dpo"}, "all others need no pair"
    for arm in results["arms"].values():
        assert arm["figures"]["n"] == 6 and set(arm["by_task"]) == {"blocks-classic"}
        assert 0 <= arm["progress"] <= 1 and arm["cost_per_plan"] >= 0


def test_smoke_run_gives_its_last_policy_to_the_world(runs: Path) -> None:
    results, folder = results_of(runs), runs / RUN / "model"
    card = (folder / "README.md").read_text()
    last = list(results["arms"])[-1]
    assert "Self-CriTeach" in card and f"arm {last}" in card and "| blocks-classic, all levels | yes | 6 |" in card
    assert any(folder.glob("*.safetensors"))


def test_smoke_run_writes_a_domain_that_explains_its_demonstrations(runs: Path) -> None:
    [found] = results_of(runs)["domain"].values()
    assert found["repaired"]["transitions"] == found["repaired"]["refusals"] == 1.0
    assert found["pruned"]["size"] < found["repaired"]["size"]
    assert found["pruned"]["transitions"] == found["pruned"]["refusals"] == 1.0
    assert found["pruned"]["held_out"] > 0.9 and 0 <= found["pruned"]["reference_plans"] <= 1
    assert found["first_go"] is None, "no model wrote it"


def test_smoke_run_records_reward_cost_penalty_and_divergence_of_every_update(runs: Path) -> None:
    [updates] = results_of(runs)["cpo"].values()
    for name in ("cpo/reward", "cpo/cost", "cpo/penalty", "cpo/disagreement", "group_relative/divergence"):
        assert len(updates[name]) == 2 and None not in updates[name]
    after = max(0.0, updates["cpo/penalty"][0] + 0.5 * (updates["cpo/cost"][0] - 0.25))
    assert updates["cpo/penalty"][1] == pytest.approx(after)


def test_smoke_run_plans_from_noisy_states_and_from_the_nearest_that_fit_demonstrations(runs: Path) -> None:
    [noise] = results_of(runs)["noise"]
    assert (noise["rate"], noise["n"]) == (0.2, 6)
    assert 0 <= noise["restored"] <= noise["nearest"] <= 6, "a plan from the true state is one"
    assert 0 <= noise["planner"] <= 6 and 0 <= noise["policy"] <= 6 and 0 <= noise["believing"] <= 6


def test_smoke_run_reads_chains_that_were_held_out_and_expects_them_better_once_tuned(runs: Path) -> None:
    losses = results_of(runs)["held_out"]
    assert 0 < losses["sft"] < losses["base"]


def test_two_seeds_are_summarised_with_what_success_does_not_show(runs: Path) -> None:
    made = {found.manifest.provenance.stage: found for found in complete_artifacts(runs / RUN / "artifacts")}
    config = self_criteach.PIPELINE.settings("smoke")
    seeds = [RunSoFar("self_criteach", config.model_copy(update={"seed": seed}), "smoke", made) for seed in (100, 101)]
    found, alone = criteach_seeds_results("two", seeds, "a command"), results_of(runs)
    assert found.seeds == (100, 101) and found.levels == ("blocks-classic smallest",)
    assert (found.tests[0].before, found.tests[0].after) == ("sft", "sft_cpo")
    assert found.tests[0].test.n == 2 * alone["arms"]["sft"]["figures"]["n"]
    assert found.by_seed[100] == found.by_seed[101]
    for pooled, test in zip(found.pooled, alone["mean_tests"], strict=True):
        assert (pooled.before, pooled.after, pooled.what) == (test["before"], test["after"], test["what"])
        assert pooled.mean_after == pytest.approx(test["mean_after"])
    text = format_report(criteach_seeds_report(found))
    assert "cost per plan" in text and "progress" in text and "seed 101" in text


def test_smoke_run_is_shown_while_it_goes_on_with_its_stages_and_the_report_so_far(runs: Path) -> None:
    page = RunPage(runs / RUN, report_so_far).snapshot()
    for stage in ("gather_demonstrations_blocks-classic", "prune_domain_blocks-classic", "run_library", "sft_cpo"):
        assert stage in page
    assert "The written domain" in page and "held out" in page and "reference plans" in page
    made = {found.manifest.provenance.stage: found for found in complete_artifacts(runs / RUN / "artifacts")}
    names = [stage.name for stage in self_criteach.PIPELINE.stages(self_criteach.PIPELINE.settings("smoke"))]
    first = {name: made[name] for name in names[: names.index("criticise_base") + 1]}
    run = RunSoFar("self_criteach", self_criteach.PIPELINE.settings("smoke"), "smoke", first)
    found = criteach_results(run)
    assert found is not None and list(found.arms) == ["base"]
    report = report_so_far(run)
    assert report is not None and "base" in report.result and "blocks-classic, pruned" in format_report(report)


def test_smoke_run_given_again_reuses_every_stage(runs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = results_of(runs)
    assert self_criteach.main(["--preset", "smoke", "--runs", str(runs)]) == 0
    said = [line for line in capfd.readouterr().err.splitlines() if " stage " in line]
    assert said and all(line.endswith(("reused", "not needed")) for line in said)
    assert results_of(runs)["arms"] == before["arms"]


@pytest.mark.long
def test_smoke_run_solves_its_updates_within_the_trust_region_and_leaves_out_arms_without_anything_to_learn(
    tmp_path: Path,
) -> None:
    overrides = ["cpo.solver=trust_region", "arms=[base, self_distilled, cpo_only, dpo_only]",
                 "evaluation.noise_rates=[]"]  # fmt: skip
    given = [word for override in overrides for word in ("--set", override)]
    assert self_criteach.main(["--preset", "smoke", "--runs", str(tmp_path), *given]) == 0
    results = results_of(tmp_path)
    stages = {found.manifest.provenance.stage: found for found in complete_artifacts(tmp_path / RUN / "artifacts")}
    taught = {
        "self_distilled": stages["distil_itself"].rows(ExampleRow, "chains"),
        "dpo_only": stages["pair_dpo_only"].rows(PairRow),
    }
    lacking = {arm for arm, rows in taught.items() if not rows}
    assert {*results["not_run"]} == lacking, "a model from nothing may have no valid answer, and no pair"
    assert {*results["arms"]} == {"base", "self_distilled", "cpo_only", "dpo_only"} - lacking
    [updates] = results["cpo"].values()
    assert "cpo/penalty" not in updates
    for name in (
        "cpo/reward",
        "cpo/cost",
        "cpo/disagreement",
        "trust_region/dual_nu",
        "trust_region/line_search_steps",
    ):
        assert len(updates[name]) == 2 and None not in updates[name]
    for share, divergence, cost in zip(updates["trust_region/step_share"], updates["trust_region/divergence"],
                                       updates["trust_region/cost_change"], strict=True):  # fmt: skip
        assert 0 <= divergence <= 0.001 and (share > 0) == (divergence > 0)
        assert cost <= 0, "a model that knows nothing is beyond its budget"


PRIMED = ["domain.writer=model", "domain.turns=1", "domain.candidates=2", "domain.max_new_tokens=120",
          "domain.attempts_shown=3", "policy.max_model_len=1024",
          "prime={domains: 6, held_out: 3, renamings: 2, problems: 12, optimiser: {learning_rate: 0.003, "
          "muon_learning_rate: 0.02, batch_tokens: 4096, epochs: 2}}",
          "arms=[base]", "evaluation.noise_rates=[]"]  # fmt: skip


@pytest.mark.long
def test_primed_smoke_run_asks_for_schemas_of_the_primed_policy_and_is_reused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["--preset", "smoke", "--runs", str(tmp_path), *(word for one in PRIMED for word in ("--set", one))]
    first = self_criteach.main(command)
    said = capfd.readouterr().err
    assert "try_schema_primer" in said and "repair_domain_blocks-classic_1" in said
    if first:  # so small a model may write nothing that can be read, which ends a run
        assert first == 1 and "no answer holds a domain that can be read" in said
    assert self_criteach.main(command) == first
    again = [line for line in capfd.readouterr().err.splitlines() if " stage " in line]
    done = [
        line for line in again if any(name in line for name in ("prime_base", "write_schema_primer", "write_domain"))
    ]
    assert done and all(line.endswith("reused") for line in done)
