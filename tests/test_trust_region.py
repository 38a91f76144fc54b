"""The trust region's step: against SciPy on five logits, in a bandit with a budget, for a model by differences."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from test_constrained import TOKENIZER, chain_text, judged, rule_of, settings_of
from torch import Tensor

from actors.trainer import TrainerActor
from pipelines.self_criteach import PIPELINE
from plansmith.config.constrained import CpoConfig, TrustRegionConfig, check_trust_region
from plansmith.config.generation import SamplingConfig
from plansmith.config.training import ModelConfig, OptimiserConfig, TrainerConfig
from plansmith.errors import ConfigError
from plansmith.learning.models import make_model
from plansmith.learning.objectives.trust_region import TrustRegion
from plansmith.learning.packing import build_batch
from plansmith.learning.policy_region import PolicyRegion
from plansmith.learning.sequences import (
    ADVANTAGE,
    COST_ADVANTAGE,
    RESPONSE_MASK,
    ROLLOUT_END,
    TrainingSequence,
    rollout_sequence,
)
from plansmith.learning.tokenizer import word_tokenizer
from plansmith.learning.trust_region import Measured, conjugate_gradients, solve, take_step
from plansmith.problems.library import load_domain

RADIUS = 0.01
LOGITS = torch.tensor([0.3, -0.2, 0.9, 0.0, -1.1], dtype=torch.float64)
REWARDS = torch.tensor([1.0, 0.2, 0.6, -0.5, 0.1], dtype=torch.float64)
COSTS = torch.tensor([0.9, 0.1, 1.2, 0.0, 0.4], dtype=torch.float64)


@pytest.fixture(autouse=True)
def linear_without_zero_3(monkeypatch: pytest.MonkeyPatch) -> None:
    """ZeRO 3, once begun by another test in this process, leaves a linear layer without tangents behind.

    A run has either: the trust region is refused with ZeRO 3.
    """
    monkeypatch.setattr(torch.nn.functional, "linear", torch._C._nn.linear)


def fisher(logits: Tensor) -> Tensor:
    shares = logits.softmax(0)
    return torch.diag(shares) - torch.outer(shares, shares) + 1e-3 * torch.eye(len(logits), dtype=logits.dtype)


def gradient(logits: Tensor, values: Tensor) -> Tensor:
    """Return the gradient of the mean value by the logits."""
    shares = logits.softmax(0)
    return shares * (values - shares @ values)


def by_scipy(target: Tensor, cost: Tensor | None, excess: float) -> Any:
    """Return the step that SLSQP finds: target x is made large within the region and, with a cost, the budget."""
    h, g = fisher(LOGITS).numpy(), target.numpy()
    limits: list[dict[str, Any]] = [
        {"type": "ineq", "fun": lambda x: RADIUS - 0.5 * x @ h @ x, "jac": lambda x: -(h @ x)}
    ]
    if cost is not None:
        b = cost.numpy()
        limits.append({"type": "ineq", "fun": lambda x: -(excess + b @ x), "jac": lambda x: -b})
    scale = 1.0 / np.linalg.norm(g)
    found = minimize(lambda x: -scale * g @ x, np.zeros(5), jac=lambda x: -scale * g, method="SLSQP",
                     constraints=limits, options={"maxiter": 1000, "ftol": 1e-14})  # fmt: skip
    return found.x


def solved(excess: float, *, rewards: Tensor = REWARDS, costs: Tensor = COSTS) -> Any:
    h = fisher(LOGITS)
    g, b = gradient(LOGITS, rewards), gradient(LOGITS, costs)
    return solve(g, b, excess, lambda vector: h @ vector, radius=RADIUS, n_iterations=10)


@pytest.mark.parametrize(
    ("excess", "rewards"),
    [(-0.03, REWARDS), (-0.001, REWARDS), (0.0, REWARDS), (0.02, REWARDS), (0.04, REWARDS), (-0.02, -COSTS),
     (-5.0, REWARDS)],
    ids=["budget binds", "budget nearly used", "at the budget", "beyond it", "far beyond it", "cheap is good",
         "budget out of reach"],
)  # fmt: skip
def test_step_on_five_logits_is_that_of_slsqp_where_the_budget_can_be_met(excess: float, rewards: Tensor) -> None:
    found = solved(excess, rewards=rewards)
    expected = by_scipy(gradient(LOGITS, rewards), gradient(LOGITS, COSTS), excess)
    assert not found.is_recovery
    np.testing.assert_allclose(found.step.numpy(), expected, atol=2e-5, rtol=1e-4)


def test_step_on_five_logits_is_that_of_slsqp_where_the_budget_cannot_be_met() -> None:
    found = solved(0.5)
    expected = by_scipy(-gradient(LOGITS, COSTS), None, 0.5)
    assert found.is_recovery
    np.testing.assert_allclose(found.step.numpy(), expected, atol=2e-5, rtol=1e-4)


def test_dual_prices_say_what_the_step_satisfies() -> None:
    binding, free, h, b = solved(-0.001), solved(-5.0), fisher(LOGITS), gradient(LOGITS, COSTS)
    assert binding.of_cost > 0 and float(b @ binding.step) == pytest.approx(0.001)
    assert free.of_cost == 0
    for found in (binding, free):
        assert float(found.step @ h @ found.step) / 2 == pytest.approx(RADIUS)


def test_no_gradient_of_reward_or_cost_moves_nothing_it_should_not() -> None:
    zero = torch.zeros(5, dtype=torch.float64)
    assert solved(-0.001, rewards=zero).step.abs().max() == 0
    within = solved(0.5, costs=zero)
    np.testing.assert_allclose(
        within.step.numpy(), by_scipy(gradient(LOGITS, REWARDS), None, 0.0), atol=2e-5, rtol=1e-4
    )
    assert solved(0.5, rewards=zero, costs=zero).step.abs().max() == 0
    alike = Bandit(torch.zeros(3), torch.tensor([0, 1, 2]), torch.ones(3), torch.ones(3))
    taken = take_step(alike, 0.5, TrustRegionConfig())
    assert (taken.share, taken.n_tried) == (0.0, 0)


def test_conjugate_gradients_solve_exactly_in_as_many_steps_as_there_are_numbers() -> None:
    h, g = fisher(LOGITS), gradient(LOGITS, REWARDS)
    found = conjugate_gradients(lambda vector: h @ vector, g, 5)
    np.testing.assert_allclose(found.numpy(), np.linalg.solve(h.numpy(), g.numpy()), rtol=1e-6, atol=1e-9)
    assert conjugate_gradients(lambda vector: h @ vector, torch.zeros(5), 5).abs().max() == 0


# --- a bandit with a budget


@dataclass(frozen=True)
class Bandit:
    """Arms that were pulled, as a region; what they earn and cost is centred by the mean of the pulls."""

    logits: Tensor
    pulled: Tensor
    rewards: Tensor
    costs: Tensor

    def _gain(self, logits: Tensor, values: Tensor) -> Tensor:
        of_pulls = values[self.pulled]
        ratios = (logits.log_softmax(0) - self.logits.log_softmax(0)).exp()[self.pulled]
        return ((of_pulls - of_pulls.mean()) * ratios).mean()

    def gradients(self) -> tuple[Tensor, Tensor]:
        leaf = self.logits.clone().requires_grad_()
        reward, cost = (torch.autograd.grad(self._gain(leaf, values), leaf)[0] for values in (self.rewards, self.costs))
        return reward, cost

    def curvature(self, vector: Tensor) -> Tensor:
        shares = self.logits.softmax(0)
        return shares * (vector - shares @ vector)

    def measure(self, step: Tensor) -> Measured:
        new, old = (self.logits + step).log_softmax(0), self.logits.log_softmax(0)
        changes = [
            float(self._gain(self.logits + step, values) - self._gain(self.logits, values))
            for values in (self.rewards, self.costs)
        ]
        return Measured(*changes, float((new.exp() * (new - old)).sum()))


def test_constrained_bandit_settles_at_its_budget_from_beyond_it() -> None:
    """The best arm earns 1 and costs 1, one earns 0.4 and costs 0.2, one nothing: with d = 0.5 all cost is used."""
    rewards, costs = torch.tensor([1.0, 0.4, 0.0]), torch.tensor([1.0, 0.2, 0.0])
    logits, d, settings = torch.tensor([2.0, 0.0, 0.0]), 0.5, TrustRegionConfig(radius=0.005, damping=1e-4)
    drawn, seen, recoveries = torch.Generator().manual_seed(0), [], []
    for _ in range(300):
        pulled = torch.multinomial(logits.softmax(0), 128, replacement=True, generator=drawn)
        cost = float(costs[pulled].mean())
        taken = take_step(Bandit(logits, pulled, rewards, costs), cost - d, settings)
        assert taken.measured.divergence <= settings.radius
        logits = logits + taken.step
        seen.append(cost)
        recoveries.append(taken.solution.is_recovery)
    assert recoveries[0] and not all(recoveries)
    assert np.mean(seen[150:]) == pytest.approx(d, rel=0.1)
    shares = logits.softmax(0)
    assert shares[2] < 0.1  # of what is within the budget the mixture that earns most: never the arm that earns nothing
    assert float(shares @ rewards) > 0.55


def test_step_that_no_shortening_makes_good_is_not_taken() -> None:
    @dataclass(frozen=True)
    class Costly(Bandit):
        def measure(self, step: Tensor) -> Measured:
            return Measured(1.0, 1.0, 0.0)

    pulled = torch.tensor([0, 1, 2])
    region = Costly(torch.zeros(3), pulled, torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.0, 0.0, 1.0]))
    taken = take_step(region, -0.5, TrustRegionConfig(backtracks=3))
    assert (taken.share, taken.n_tried, float(taken.step.abs().max())) == (0.0, 4, 0.0)


# --- a model


SAMPLING = SamplingConfig(temperature=0.7, max_new_tokens=64, n=4)
TRAINER = TrainerConfig(n_threads=1, row_length_tokens=64, is_autocast=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    shape = ModelConfig(hidden_size=32, n_layers=2, n_heads=4, n_kv_heads=2, head_dim=8, intermediate_size=48)
    tokenizer = word_tokenizer([load_domain("blocks-classic").domain], ["a", "b", "c"])
    make_model(path, tokenizer, shape, max_position_embeddings=128, seed=1)
    return path


@pytest.fixture(scope="module")
def trainer(folder: Path) -> TrainerActor:
    return TrainerActor(folder, config=TRAINER)


def rollouts(n: int = 8) -> list[TrainingSequence]:
    drawn = np.random.default_rng(3)
    found = []
    for _ in range(n):
        ids, (reward, cost) = drawn.integers(2, 40, 14).tolist(), drawn.normal(size=2)
        found.append(rollout_sequence(ids[:4], ids[4:], advantage=reward, cost_advantage=[cost] * 10))
    return found


def objective(excess: float, **changes: Any) -> TrustRegion:
    return TrustRegion(TrustRegionConfig(**{"curvature_share": 1.0, **changes}), SAMPLING, excess)


def region_of(trainer: TrainerActor, **sampling: Any) -> PolicyRegion:
    asked = TrustRegion(TrustRegionConfig(), SAMPLING.model_copy(update=sampling), 0.0)
    batches = [build_batch(rollouts(), rows, asked.columns) for rows in ([(0, 1, 2), (3,)], [(4, 5), (6, 7)])]
    counts = {name: sum(int(batch.columns[name].count_nonzero()) for batch in batches) for name in asked.columns}
    assert (counts[ROLLOUT_END], counts[RESPONSE_MASK]) == (8, 80)
    return PolicyRegion(trainer.engine.module.eval(), asked, batches, batches, counts)


def finite_difference(function: Callable[[Tensor], float], direction: Tensor, size: float) -> float:
    return (function(size * direction) - function(-size * direction)) / (2 * size)


def test_product_by_the_fisher_is_the_second_difference_of_the_divergence(trainer: TrainerActor) -> None:
    region, drawn = region_of(trainer), torch.Generator().manual_seed(0)
    reward, _ = region.gradients()
    n = len(reward)
    for direction in (torch.randn(n, generator=drawn) / math.sqrt(n), reward / reward.norm()):
        size, curved = 1e-2, float(direction @ region.curvature(direction))
        there, back = (region.measure(sign * size * direction).divergence for sign in (1, -1))
        assert curved > 0 and (there + back) / size**2 == pytest.approx(curved, rel=2e-2)


def test_product_by_the_fisher_is_the_difference_of_the_divergences_gradient(trainer: TrainerActor) -> None:
    """The gradient of KL(pi, pi_k) at x is H x to first order; here by autograd in float64, not as the code does it."""
    region, module = region_of(trainer), trainer.engine.module
    double = {name: weight.double() for name, weight in region.weights.items()}
    vector = torch.randn(sum(w.numel() for w in double.values()), generator=torch.Generator().manual_seed(1)) * 1e-2
    found = region.curvature(vector)

    def divergence_gradient(size: float) -> Tensor:
        parts = vector.double().split([w.numel() for w in double.values()])
        moved = {name: (w + size * part.view_as(w)).requires_grad_()
                 for (name, w), part in zip(double.items(), parts, strict=True)}  # fmt: skip
        total = torch.zeros((), dtype=torch.float64)
        for batch in region.batches:
            inputs = {**batch.model_inputs(), "is_plain": True}
            old, new = (torch.func.functional_call(module, w, (), inputs).logits for w in (double, moved))
            logs = [region.objective.scaled(logits, batch).log_softmax(-1) for logits in (old.detach(), new)]
            total = total + (logs[1].exp() * (logs[1] - logs[0])).sum() / 80
        return torch.cat([part.reshape(-1) for part in torch.autograd.grad(total, list(moved.values()))])

    expected = (divergence_gradient(1e-3) - divergence_gradient(-1e-3)) / 2e-3
    assert float((found.double() - expected).norm() / expected.norm()) < 1e-3


@pytest.mark.parametrize("sampling", [{}, {"top_p": 0.8}], ids=["all", "nucleus"])
def test_gradients_of_both_surrogates_are_their_finite_differences(
    trainer: TrainerActor, sampling: dict[str, Any]
) -> None:
    region = region_of(trainer, **sampling)
    for number, gradient_of in enumerate(region.gradients()):
        direction = gradient_of / gradient_of.norm()
        changed = finite_difference(
            lambda step, k=number: (region.measure(step).reward, region.measure(step).cost)[k],  # type: ignore[misc]
            direction,
            1e-3,
        )
        assert changed == pytest.approx(float(gradient_of.norm()), rel=2e-2)


def test_plain_attention_gives_the_logits_of_the_packed_one(trainer: TrainerActor) -> None:
    module, batch = trainer.engine.module.eval(), build_batch(rollouts(), [(0, 1, 2), (3, 4)], ())
    with torch.no_grad():
        packed = module(**batch.model_inputs()).logits
        plain = module(**batch.model_inputs(), is_plain=True).logits
    torch.testing.assert_close(plain, packed, atol=2e-5, rtol=1e-4)


OPTIMISER = OptimiserConfig(learning_rate=0.1, batch_sequences=2)


def test_trainer_takes_a_step_that_earns_more_within_budget_and_region(folder: Path) -> None:
    actor = TrainerActor(folder, config=TRAINER)
    before = actor.engine.weights()
    report = actor.optimise(objective(-1.0), rollouts(), OPTIMISER)
    found = {name: values[0] for name, values in report.metrics.items()}
    assert report.n_steps == 1 and report.n_sequences == 8
    assert found["reward_gain"] > 0 and found["cost_change"] <= 1.0 and found["recovery"] == 0.0
    assert 0 < found["divergence"] <= 0.001 and found["dual_nu"] >= 0
    assert any(not torch.equal(before[name], weight) for name, weight in actor.engine.weights().items())


def test_trainer_beyond_reach_of_its_budget_lowers_the_cost_alone(folder: Path) -> None:
    actor = TrainerActor(folder, config=TRAINER)
    report = actor.optimise(objective(50.0, backtracks=20), rollouts(), OPTIMISER)
    found = {name: values[0] for name, values in report.metrics.items()}
    assert found["recovery"] == 1.0 and found["cost_change"] < 0 and found["divergence"] <= 0.001
    assert actor.engine.module.training


def test_groups_of_chains_become_a_step_that_makes_the_right_one_likelier(tmp_path: Path) -> None:
    settings = settings_of(solver="trust_region", budget=0.25, trust_region={"curvature_share": 1.0, "radius": 1e-4})
    right, wrong = judged(chain_text(), "p0", "r1"), judged("do: stack", "p0", "r2")
    lesson = rule_of(settings).lesson([right, wrong], None)
    assert isinstance(lesson.objective, TrustRegion)
    assert lesson.objective.excess == pytest.approx((0.0 + 1.5) / 2 - 0.25)
    assert lesson.state == {"asked": 1} and "cpo/penalty" not in lesson.figures
    earning, pricey = lesson.sequences
    assert earning.columns[ADVANTAGE][2] == pytest.approx(0.75) and pricey.columns[ADVANTAGE][2] == pytest.approx(-0.75)
    assert earning.columns[COST_ADVANTAGE][2] == -1.5 and set(pricey.columns[COST_ADVANTAGE][2:]) == {1.5}
    shape = ModelConfig(hidden_size=32, n_layers=2, n_heads=4, n_kv_heads=2, head_dim=8, intermediate_size=48)
    make_model(tmp_path, TOKENIZER, shape, max_position_embeddings=2048, seed=1)
    actor = TrainerActor(tmp_path, config=TRAINER.model_copy(update={"row_length_tokens": 2048}))
    before = [logprobs[2:].sum() for logprobs in actor.token_logprobs(lesson.sequences)]
    report = actor.optimise(lesson.objective, lesson.sequences, OPTIMISER)
    after = [logprobs[2:].sum() for logprobs in actor.token_logprobs(lesson.sequences)]
    found = {name: values[0] for name, values in report.metrics.items()}
    assert found["step_share"] > 0 and found["cost_change"] < 0 and 0 < found["divergence"] <= 1e-4
    assert after[0] - before[0] > after[1] - before[1]


# --- settings


@pytest.mark.parametrize(
    "changes",
    [{"n_ranks": 2}, {"dtype": "bfloat16", "zero_stage": 2, "optimizer": "adamw"},
     {"zero_stage": 3, "optimizer": "adamw"}],
    ids=["ranks", "bfloat16", "shared weights"],
)  # fmt: skip
def test_trust_region_with_several_ranks_or_bfloat16_is_bad_input(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        check_trust_region(TrainerConfig(**changes))
    error = caught.value
    assert error.exit_code == 2 and error.where and error.expected and error.cure
    assert error.got is not None and str(next(iter(changes.values()))) in error.got


def test_preset_with_several_ranks_and_trust_region_is_refused_before_anything_starts() -> None:
    overrides = ["cpo.solver=trust_region", "trainer.n_ranks=2"]
    with pytest.raises(ConfigError, match="one rank"):
        PIPELINE.settings("smoke", overrides=overrides)
    assert PIPELINE.settings("smoke", overrides=overrides[:1]).cpo == CpoConfig(
        **{**PIPELINE.settings("smoke").cpo.model_dump(), "solver": "trust_region"}
    )


@pytest.mark.parametrize(
    "overrides",
    [["cpo.solver=trust_region", "cpo.beta=0.2"], ["cpo.solver=trust_region", "cpo.learning_rate=0.1"],
     ["cpo.trust_region.radius=0.1"]],
    ids=["beta", "rate", "radius without solver"],
)  # fmt: skip
def test_setting_that_the_solver_does_not_read_is_bad_input(overrides: list[str]) -> None:
    with pytest.raises(ConfigError, match="no stage reads"):
        PIPELINE.settings("smoke", overrides=overrides)
