"""The policy actor on a real vLLM engine, against transformers on the same weights."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from actors.policy import Generation, PolicyActor, PolicySettings, SamplingSettings, read_weight_shapes
from plansmith.errors import BadInputError, StalePolicyError

ROOT = Path(__file__).resolve().parents[1]
PROMPTS = [[5, 6, 7, 8], [9, 10, 11], list(range(20, 60)), [90, 3]]
SAMPLED = SamplingSettings(temperature=1.0, max_new_tokens=24, n=2, stop_token_ids=())
GREEDY = SamplingSettings(temperature=0.0, max_new_tokens=24, n=1, stop_token_ids=())
SEEDS = [100, 101, 102, 103, 104, 105, 106, 107]
PROBE = [1, *range(40, 72)]
SMALL = PolicySettings(max_model_len=256, max_num_seqs=8, kv_cache_gib=0.05)
END_TOKEN = 2


def write_model(folder: Path, *, seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=96,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=0.1,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=END_TOKEN,
    )
    model = LlamaForCausalLM(config).float().eval()
    model.save_pretrained(folder)
    return model


class PolicyActorWithPid(PolicyActor):
    """A policy that tells its process, so that a test can kill it."""

    def pid(self) -> int:
        """Return the id of the process that a test may kill."""
        return os.getpid()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("policy")


@pytest.fixture(scope="module")
def models(folders: Path) -> dict[str, LlamaForCausalLM]:
    """Return two models of one shape and other weights, saved as folders `first` and `second`."""
    return {name: write_model(folders / name, seed=seed) for seed, name in enumerate(("first", "second"))}


@pytest.fixture(scope="module")
def engine(folders: Path, models: dict[str, LlamaForCausalLM]) -> Iterator[Any]:
    is_mine = not ray.is_initialized()
    if is_mine:
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    env_vars = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    actor = (
        ray.remote(PolicyActorWithPid)
        .options(num_cpus=1, max_restarts=1, max_task_retries=-1, runtime_env={"env_vars": env_vars})
        .remote(str(folders / "first"), "first", settings=SMALL, pointer=str(folders / "current.json"))
    )
    yield actor
    ray.kill(actor)
    if is_mine:
        ray.shutdown()


@pytest.fixture
def policy(engine: Any, folders: Path) -> Any:
    """Return the engine with the first weights, whatever the test before it loaded."""
    if ray.get(engine.policy_version.remote()) != "first":
        ray.get(engine.load_weights.remote(str(folders / "first"), "first"))
    return engine


def roll_out(
    policy: Any, sampling: SamplingSettings, prompts: list[list[int]] = PROMPTS, seeds: list[int] = SEEDS
) -> list[list[Generation]]:
    wanted = seeds[: len(prompts) * sampling.n]
    groups: list[list[Generation]] = ray.get(
        policy.generate.remote(prompts, sampling, seeds=wanted, description="roll out")
    )
    return groups


@torch.no_grad()
def log_softmax(model: LlamaForCausalLM, token_ids: list[int]) -> torch.Tensor:
    """Return (T, V): log-probabilities of the token after each position."""
    logits: torch.Tensor = model(torch.tensor([token_ids])).logits[0]
    return logits.log_softmax(-1)


def reference_logprobs(model: LlamaForCausalLM, token_ids: list[int]) -> list[float]:
    table = log_softmax(model, token_ids)
    return [float(table[i, token]) for i, token in enumerate(token_ids[1:])]


def tokens(groups: list[list[Generation]]) -> list[list[tuple[int, ...]]]:
    return [[generation.token_ids for generation in group] for group in groups]


def test_import_of_the_module_loads_neither_vllm_nor_torch_nor_ray() -> None:
    code = "import sys, actors.policy; print([m for m in ('vllm', 'torch', 'ray', 'transformers') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_policy_actor_folder_missing_is_bad_input_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no such folder") as caught:
        PolicyActor(str(tmp_path / "nowhere"), "v0")
    assert caught.value.where == str(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("removed", "message"), [("config.json", "no config.json"), ("model.safetensors", "no [*].safetensors")]
)
def test_policy_actor_folder_without_a_file_is_bad_input(
    folders: Path, models: object, tmp_path: Path, removed: str, message: str
) -> None:
    shutil.copytree(folders / "first", tmp_path / "model")
    (tmp_path / "model" / removed).unlink()
    with pytest.raises(BadInputError, match=message):
        PolicyActor(str(tmp_path / "model"), "v0")


@pytest.mark.parametrize("damaged", ["config.json", "model.safetensors"])
def test_policy_actor_file_cut_short_is_bad_input(folders: Path, models: object, tmp_path: Path, damaged: str) -> None:
    shutil.copytree(folders / "first", tmp_path / "model")
    file = tmp_path / "model" / damaged
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(BadInputError, match="damaged model folder"):
        PolicyActor(str(tmp_path / "model"), "v0")


def test_read_weight_shapes_of_a_folder_names_every_tensor(folders: Path, models: object) -> None:
    shapes = read_weight_shapes(str(folders / "first"))
    assert shapes["model.embed_tokens.weight"] == (96, 128)
    assert shapes["model.layers.3.self_attn.k_proj.weight"] == (64, 128)
    assert len(shapes) == 2 + 4 * 9


def test_generate_same_seeds_gives_the_same_tokens_in_any_order_of_prompts(policy: Any) -> None:
    first = tokens(roll_out(policy, SAMPLED))
    reversed_seeds = [seed for i in reversed(range(len(PROMPTS))) for seed in SEEDS[2 * i : 2 * i + 2]]
    backwards = tokens(roll_out(policy, SAMPLED, PROMPTS[::-1], reversed_seeds))
    assert tokens(roll_out(policy, SAMPLED)) == first
    assert backwards[::-1] == first
    assert tokens(roll_out(policy, SAMPLED, PROMPTS[:1])) == first[:1]


def test_generate_other_seeds_gives_other_tokens(policy: Any) -> None:
    groups = tokens(roll_out(policy, SAMPLED))
    assert all(group[0] != group[1] for group in groups)
    assert tokens(roll_out(policy, SAMPLED, seeds=[seed + 50 for seed in SEEDS])) != groups


def test_generate_more_prompts_than_a_prefill_batch_holds_answers_each(policy: Any) -> None:
    prompts = [[5 + i % 90] * 200 for i in range(60)]
    groups = roll_out(policy, replace(SAMPLED, n=1, max_new_tokens=4), prompts, list(range(60)))
    assert [len(group[0].token_ids) for group in groups] == [4] * 60


def test_generate_greedy_takes_the_likeliest_token_of_transformers(
    policy: Any, models: dict[str, LlamaForCausalLM]
) -> None:
    for prompt, [generation] in zip(PROMPTS, roll_out(policy, GREEDY), strict=True):
        table = log_softmax(models["first"], [*prompt, *generation.token_ids])[len(prompt) - 1 : -1]
        chosen = table.gather(1, torch.tensor(generation.token_ids)[:, None])[:, 0]
        assert torch.all(chosen >= table.max(-1).values - 1e-4)  # a near tie may go either way
        assert (table.argmax(-1) == torch.tensor(generation.token_ids)).float().mean() > 0.9


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_generate_logprobs_are_those_of_the_model_at_temperature_one(
    policy: Any, models: dict[str, LlamaForCausalLM], temperature: float
) -> None:
    sampling = replace(SAMPLED, temperature=temperature, top_p=0.9)
    for prompt, group in zip(PROMPTS, roll_out(policy, sampling), strict=True):
        for generation in group:
            expected = reference_logprobs(models["first"], [*prompt, *generation.token_ids])[len(prompt) - 1 :]
            assert generation.logprobs == pytest.approx(expected, abs=1e-4)


def test_generate_frequencies_at_temperature_one_follow_the_model(
    policy: Any, models: dict[str, LlamaForCausalLM]
) -> None:
    n = 2000
    [group] = roll_out(policy, replace(SAMPLED, n=n, max_new_tokens=1), [PROMPTS[0]], list(range(n)))
    counts = torch.bincount(torch.tensor([generation.token_ids[0] for generation in group]), minlength=96)
    expected = log_softmax(models["first"], PROMPTS[0])[-1].exp()
    # A fair draw has an expected distance of about sum(sqrt(p / n)) / 2.5; three times that is far outside chance.
    assert float((counts / n - expected).abs().sum()) < 1.2 * float((expected / n).sqrt().sum())


def test_generate_out_of_tokens_says_length_and_keeps_what_was_written(policy: Any) -> None:
    generations = [generation for group in roll_out(policy, SAMPLED) for generation in group]
    assert {generation.finish_reason for generation in generations} == {"length"}
    assert {len(generation.token_ids) for generation in generations} == {24}
    assert {len(generation.logprobs) for generation in generations} == {24}
    assert {generation.policy_version for generation in generations} == {"first"}


def test_generate_out_of_model_length_says_length(policy: Any) -> None:
    [[generation]] = roll_out(policy, replace(GREEDY, max_new_tokens=500), [PROMPTS[2]])
    assert (generation.finish_reason, len(generation.token_ids)) == ("length", SMALL.max_model_len - len(PROMPTS[2]))


def test_generate_stop_token_ends_the_completion_and_is_its_last_token(policy: Any) -> None:
    [[free]] = roll_out(policy, GREEDY, PROMPTS[:1])
    stop = free.token_ids[5]
    end = free.token_ids.index(stop) + 1
    [[stopped]] = roll_out(policy, replace(GREEDY, stop_token_ids=(stop,)), PROMPTS[:1])
    assert (stopped.finish_reason, stopped.token_ids) == ("stop", free.token_ids[:end])


def test_generate_end_token_of_the_folder_not_asked_for_does_not_stop(policy: Any) -> None:
    sampling = replace(SAMPLED, temperature=2.0, n=40, max_new_tokens=60)
    [group] = roll_out(policy, sampling, PROMPTS[:1], list(range(40)))
    assert any(END_TOKEN in generation.token_ids[:-1] for generation in group)
    assert {generation.finish_reason for generation in group} == {"length"}


@pytest.mark.parametrize(
    ("prompt", "got"),
    [([], "0 tokens"), ([5] * 256, "256 tokens"), ([5, 96], "tokens 5 to 96"), ([-1, 5], "tokens -1 to 5")],
    ids=["empty", "too_long", "beyond_vocabulary", "negative"],
)
def test_generate_prompt_that_cannot_be_read_is_bad_input_that_names_it(
    policy: Any, prompt: list[int], got: str
) -> None:
    with pytest.raises(BadInputError) as caught:
        roll_out(policy, GREEDY, [PROMPTS[0], prompt])
    assert (caught.value.where, caught.value.got) == ("prompt 1", got)


@pytest.mark.parametrize(
    "wrong", [{"temperature": 2.5}, {"temperature": -1.0}, {"max_new_tokens": 0}, {"n": 0}, {"top_p": 0.0}]
)
def test_sampling_settings_out_of_range_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        replace(SAMPLED, **wrong)


def test_generate_too_few_seeds_is_bad_input(policy: Any) -> None:
    with pytest.raises(BadInputError, match="its own seed"):
        roll_out(policy, SAMPLED, seeds=SEEDS[:7])


def test_prompt_logprobs_of_a_sequence_equal_those_of_transformers(
    policy: Any, models: dict[str, LlamaForCausalLM]
) -> None:
    answer = ray.get(policy.prompt_logprobs.remote(PROBE))
    assert len(answer) == len(PROBE) - 1
    assert answer == pytest.approx(reference_logprobs(models["first"], PROBE), abs=1e-4)


def test_load_weights_other_folder_changes_answers_and_is_proved_by_transformers(
    policy: Any, models: dict[str, LlamaForCausalLM], folders: Path
) -> None:
    before = roll_out(policy, GREEDY)
    ray.get(policy.load_weights.remote(str(folders / "second"), "second"))
    after = roll_out(policy, GREEDY)
    expected = reference_logprobs(models["second"], PROBE)
    assert tokens(after) != tokens(before)
    assert {generation.policy_version for [generation] in after} == {"second"}
    assert ray.get(policy.prove.remote(PROBE, expected, tolerance=1e-4)) < 1e-4
    assert ray.get(policy.ping.remote()) == "second"


def test_load_weights_forgets_cached_prefixes_of_the_old_weights(
    policy: Any, models: dict[str, LlamaForCausalLM], folders: Path
) -> None:
    long_prompt = [*range(5, 85), *range(5, 85)]  # more than a block of 128 tokens, the unit of the cache on a CPU
    sampling = replace(GREEDY, max_new_tokens=2)
    roll_out(policy, sampling, [long_prompt])
    ray.get(policy.load_weights.remote(str(folders / "second"), "second"))
    [[generation]] = roll_out(policy, sampling, [long_prompt])
    expected = reference_logprobs(models["second"], [*long_prompt, *generation.token_ids])[-2:]
    assert generation.logprobs == pytest.approx(expected, abs=1e-4)


def test_load_weights_other_shape_is_bad_input_and_keeps_the_old_weights(
    policy: Any, models: dict[str, LlamaForCausalLM], tmp_path: Path
) -> None:
    config = models["first"].config
    LlamaForCausalLM(LlamaConfig(**{**config.to_dict(), "intermediate_size": 64})).save_pretrained(tmp_path / "narrow")
    with pytest.raises(BadInputError, match=r"do not fit.*12 tensors differ"):
        ray.get(policy.load_weights.remote(str(tmp_path / "narrow"), "narrow"))
    assert ray.get(policy.prove.remote(PROBE, reference_logprobs(models["first"], PROBE), tolerance=1e-4)) < 1e-4


def test_prove_against_other_weights_is_stale_and_names_both_numbers(
    policy: Any, models: dict[str, LlamaForCausalLM]
) -> None:
    other = reference_logprobs(models["second"], PROBE)
    with pytest.raises(StalePolicyError) as caught:
        ray.get(policy.prove.remote(PROBE, other, tolerance=1e-3))
    position = int(str(caught.value.where).removeprefix("probe token "))
    assert f"{other[position - 1]:.6f} from the trainer" in str(caught.value.expected)
    engine_logprob = reference_logprobs(models["first"], PROBE)[position - 1]
    assert float(str(caught.value.got).split()[1]) == pytest.approx(engine_logprob, abs=1e-4)


def test_prove_not_a_number_is_stale(policy: Any, models: dict[str, LlamaForCausalLM]) -> None:
    expected = reference_logprobs(models["first"], PROBE)
    with pytest.raises(StalePolicyError, match="probe token 4"):
        ray.get(policy.prove.remote(PROBE, [*expected[:3], float("nan"), *expected[4:]], tolerance=1.0))


def test_policy_actor_killed_after_an_update_restarts_with_the_current_weights(
    policy: Any, models: dict[str, LlamaForCausalLM], folders: Path
) -> None:
    ray.get(policy.load_weights.remote(str(folders / "second"), "second"))
    pointer = json.loads((folders / "current.json").read_text())
    assert pointer == {"weights_folder": str(folders / "second"), "policy_version": "second"}
    pid = ray.get(policy.pid.remote())
    os.kill(pid, 9)
    expected = reference_logprobs(models["second"], PROBE)
    assert ray.get(policy.prove.remote(PROBE, expected, tolerance=1e-4)) < 1e-4
    assert ray.get(policy.policy_version.remote()) == "second"
    assert ray.get(policy.pid.remote()) != pid
