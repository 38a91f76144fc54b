"""The policy actor on a real vLLM engine, against transformers on the same weights."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
import ray
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from actors.engine import lora_options
from actors.engine_weights import check_adapter, first_different_tensor, read_weight_shapes
from actors.policy import PolicyActor
from cluster.service.inflight import InFlightEngine
from pipelines.run.ray_start import start_ray
from plansmith.config.basics import StrictModel
from plansmith.config.generation import SamplingConfig
from plansmith.config.training import PolicyConfig
from plansmith.data.rows import FinishReason
from plansmith.errors import BadInputError, ConfigError, PlansmithError, StalePolicyError
from plansmith.generation import Generation
from plansmith.learning.objectives.supervised import TokenLogprobs
from plansmith.learning.packing import build_batch
from plansmith.learning.sequences import RESPONSE_MASK, rollout_sequence
from plansmith.learning.weight_files import shard_name, write_weights

ROOT = Path(__file__).resolve().parents[1]
PROMPTS = [[5, 6, 7, 8], [9, 10, 11], list(range(20, 60)), [90, 3]]
SAMPLED = SamplingConfig(temperature=1.0, max_new_tokens=24, n=2)
GREEDY = SamplingConfig(max_new_tokens=24)
SAMPLED_ONCE = SamplingConfig(temperature=1.0, max_new_tokens=24)
SEEDS = [100, 101, 102, 103, 104, 105, 106, 107]
PROBE = [1, *range(40, 72)]
SMALL = PolicyConfig(max_model_len=256, max_num_seqs=8, kv_cache_gib=0.05)
END_TOKEN = 2


SettingsT = TypeVar("SettingsT", bound=StrictModel)


def but(settings: SettingsT, **values: Any) -> SettingsT:
    """Return settings with other values, checked."""
    return type(settings).model_validate({**settings.model_dump(), **values})


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


def write_qwen(folder: Path, *, seed: int, hidden_size: int = 64) -> Qwen3ForCausalLM:
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=96,
        hidden_size=hidden_size,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=256,
        initializer_range=0.1,
        tie_word_embeddings=True,
    )
    model = Qwen3ForCausalLM(config).float().eval()
    model.save_pretrained(folder)
    return model


def write_adapter(folder: Path, *, base: Path, seed: int, rank: int) -> PeftModel:
    """Return the base with an adapter of random weights, product not zero, and save the adapter."""
    torch.manual_seed(seed)
    settings = LoraConfig(r=rank, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(Qwen3ForCausalLM.from_pretrained(base), settings)
    for name, tensor in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(tensor, std=0.3)
    model.peft_config["default"].base_model_name_or_path = str(base.resolve())
    model.save_pretrained(folder)
    return model.eval()


class PolicyActorThatTells(PolicyActor):
    """A policy that tells what its engine holds and has left to do."""

    def adapter_numbers(self) -> list[int]:
        """Return the numbers of the adapters in the engine."""
        return sorted(self._engine._llm.llm_engine.list_loras())

    def lose_adapter(self) -> None:
        """Let requests go out without the adapter, as in an engine that it never reached."""
        self._engine._adapter = None

    def cut_loops(self, max_loop_tokens: int) -> None:
        """Cut from now on what goes in circles of at most so many tokens; 0 cuts nothing."""
        self._settings = self._settings.model_copy(update={"max_loop_tokens": max_loop_tokens})

    def answers_in_flight(self, seeds: Sequence[int]) -> tuple[list[Generation], bool]:
        """Answer `PROMPTS` in a thread of their own, each joining the others while one that is given up goes on.

        Return the answers, and whether anything was left in the engine once the last of them had come.
        """

        async def run() -> list[Generation]:
            engine = InFlightEngine(lambda: self, SAMPLED_ONCE)
            given_up = asyncio.create_task(engine.ask(PROMPTS[0], 7))
            answers = []
            for prompt, seed in zip(PROMPTS, seeds, strict=True):
                answers.append(asyncio.create_task(engine.ask(prompt, seed)))
                await asyncio.sleep(0.005)  # a few steps; nothing depends on how many
            given_up.cancel()
            return await asyncio.gather(*answers)

        answers = asyncio.run(run())
        return answers, self.has_unfinished_requests()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("policy")


@pytest.fixture(scope="module")
def models(folders: Path) -> dict[str, LlamaForCausalLM]:
    """Return two models of one shape and other weights, saved as folders `first` and `second`."""
    return {name: write_model(folders / name, seed=seed) for seed, name in enumerate(("first", "second"))}


@pytest.fixture(scope="module")
def ray_session() -> Iterator[None]:
    is_mine = not ray.is_initialized()
    if is_mine:
        start_ray(ray, num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    if is_mine:
        ray.shutdown()


def start_policy(
    folder: Path,
    version: str,
    pointer: Path,
    *,
    of: type[PolicyActor] = PolicyActorThatTells,
    settings: PolicyConfig = SMALL,
    **options: Any,
) -> Any:
    env_vars = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])}
    actor = ray.remote(of).options(num_cpus=0, max_restarts=1, max_task_retries=-1, runtime_env={"env_vars": env_vars})
    return actor.remote(str(folder), version, settings=settings, pointer=str(pointer), **options)


@pytest.fixture(scope="module")
def engine(ray_session: None, folders: Path, models: dict[str, LlamaForCausalLM]) -> Iterator[Any]:
    actor = start_policy(folders / "first", "first", folders / "current.json")
    yield actor
    ray.kill(actor)


@pytest.fixture
def policy(engine: Any, folders: Path) -> Any:
    """Return the engine with the first weights, whatever the test before it loaded."""
    if ray.get(engine.policy_version.remote()) != "first":
        ray.get(engine.load_weights.remote(str(folders / "first"), "first"))
    return engine


def roll_out(
    policy: Any, sampling: SamplingConfig, prompts: list[list[int]] = PROMPTS, seeds: list[int] = SEEDS
) -> list[list[Generation]]:
    wanted = seeds[: len(prompts) * sampling.n]
    answers = policy.generate.remote(prompts, sampling, seeds=wanted, description="roll out")
    return [ray.get(answer) for answer in answers]


@torch.no_grad()
def log_softmax(model: PreTrainedModel | PeftModel, token_ids: list[int]) -> torch.Tensor:
    """Return (T, V): log-probabilities of the token after each position."""
    logits: torch.Tensor = model(torch.tensor([token_ids])).logits[0]
    return logits.log_softmax(-1)


def reference_logprobs(model: PreTrainedModel | PeftModel, token_ids: list[int]) -> list[float]:
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
    groups = roll_out(policy, but(SAMPLED, n=1, max_new_tokens=4), prompts, list(range(60)))
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
    sampling = but(SAMPLED, temperature=temperature, top_p=0.9)
    for prompt, group in zip(PROMPTS, roll_out(policy, sampling), strict=True):
        for generation in group:
            expected = reference_logprobs(models["first"], [*prompt, *generation.token_ids])[len(prompt) - 1 :]
            assert generation.logprobs == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("cut", [{"top_p": 0.9}, {"top_k": 12, "top_p": 0.8}], ids=str)
def test_processed_logprobs_are_those_that_the_trainer_reads_of_what_was_drawn_from(
    adapting: Any, adapted_models: Any, cut: dict[str, Any]
) -> None:
    sampling = but(SAMPLED, temperature=0.7, **cut)
    for prompt, group in zip(PROMPTS, roll_out(adapting, sampling), strict=True):
        for generation in group:
            rollout = rollout_sequence(prompt, generation.token_ids, advantage=1.0)
            batch = build_batch([rollout], [(0,)], [RESPONSE_MASK])
            with torch.no_grad():
                read = TokenLogprobs(0.7, **cut).read(adapted_models["base"](batch.token_ids).logits, batch)
            assert generation.logprobs == pytest.approx(read[0, len(prompt) :].tolist(), abs=1e-4)


def test_generate_frequencies_at_temperature_one_follow_the_model(
    policy: Any, models: dict[str, LlamaForCausalLM]
) -> None:
    n = 2000
    [group] = roll_out(policy, but(SAMPLED, n=n, max_new_tokens=1), [PROMPTS[0]], list(range(n)))
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
    [[generation]] = roll_out(policy, but(GREEDY, max_new_tokens=500), [PROMPTS[2]])
    assert (generation.finish_reason, len(generation.token_ids)) == ("length", SMALL.max_model_len - len(PROMPTS[2]))


def test_completion_in_circles_is_cut_where_its_fourth_round_ends(policy: Any) -> None:
    asked = but(GREEDY, max_new_tokens=200)
    [[free]] = roll_out(policy, asked, PROMPTS[:1])
    ray.get(policy.cut_loops.remote(30))
    try:
        [[cut]] = roll_out(policy, asked, PROMPTS[:1])
    finally:
        ray.get(policy.cut_loops.remote(0))
    n_tokens = len(cut.token_ids)
    rounds = [n for n in range(1, 31) if cut.token_ids[-4 * n :] == cut.token_ids[-n:] * 4]
    assert cut.finish_reason == FinishReason.REPETITION and n_tokens < len(free.token_ids) and rounds
    assert cut.token_ids == free.token_ids[:n_tokens]
    shorter = cut.token_ids[:-1]
    assert not [n for n in range(1, 31) if len(shorter) >= 4 * n and shorter[-4 * n :] == shorter[-n:] * 4]


def test_generate_stop_token_ends_the_completion_and_is_its_last_token(policy: Any) -> None:
    [[free]] = roll_out(policy, GREEDY, PROMPTS[:1])
    stop = free.token_ids[5]
    end = free.token_ids.index(stop) + 1
    [[stopped]] = roll_out(policy, but(GREEDY, stop_token_ids=(stop,)), PROMPTS[:1])
    assert (stopped.finish_reason, stopped.token_ids) == ("stop", free.token_ids[:end])


def test_generate_several_stop_tokens_each_ends_its_completion(policy: Any) -> None:
    frees = [free for [free] in roll_out(policy, GREEDY)]
    stops = (frees[0].token_ids[7], frees[1].token_ids[4], 95)
    ends = [next((i + 1 for i, token in enumerate(free.token_ids) if token in stops), None) for free in frees]
    stopped = [generation for [generation] in roll_out(policy, but(GREEDY, stop_token_ids=stops))]
    assert len({generation.token_ids[-1] for generation in stopped[:2]}) == 2
    assert [generation.token_ids for generation in stopped] == [
        f.token_ids[:e] for f, e in zip(frees, ends, strict=True)
    ]
    assert [generation.finish_reason for generation in stopped] == ["length" if end is None else "stop" for end in ends]


def test_generate_end_token_of_the_folder_not_asked_for_does_not_stop(policy: Any) -> None:
    sampling = but(SAMPLED, temperature=2.0, n=40, max_new_tokens=60)
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
        but(SAMPLED, **wrong)


def test_generate_too_few_seeds_is_bad_input(policy: Any) -> None:
    with pytest.raises(BadInputError, match="its own seed"):
        roll_out(policy, SAMPLED, seeds=SEEDS[:7])


# --- requests that join and leave


def steps_until_idle(policy: Any) -> list[tuple[int, Generation]]:
    """Step until nothing is under way; return what finished, in that order."""
    finished: list[tuple[int, Generation]] = []
    while ray.get(policy.has_unfinished_requests.remote()):
        finished += ray.get(policy.step.remote()).items()
    return finished


def add(policy: Any, prompt: list[int], sampling: SamplingConfig, seed: int) -> int:
    [number] = ray.get(policy.add_requests.remote([prompt], sampling, seeds=[seed]))
    return int(number)


def test_add_requests_short_one_joins_a_long_one_and_ends_before_it_both_with_the_tokens_they_have_alone(
    policy: Any,
) -> None:
    long, short = but(SAMPLED, n=1, max_new_tokens=60), but(SAMPLED, n=1, max_new_tokens=5)
    [[long_alone]] = roll_out(policy, long, [PROMPTS[0]], [1])
    [[short_alone]] = roll_out(policy, short, [PROMPTS[2]], [2])
    first = add(policy, PROMPTS[0], long, 1)
    assert [ray.get(policy.step.remote()) for _ in range(3)] == [{}] * 3
    second = add(policy, PROMPTS[2], short, 2)
    finished = steps_until_idle(policy)
    assert [number for number, _ in finished] == [second, first]
    assert [generation.token_ids for _, generation in finished] == [short_alone.token_ids, long_alone.token_ids]
    assert {generation.policy_version for _, generation in finished} == {"first"}


def test_abort_requests_drops_them_for_good_and_the_others_keep_their_tokens(policy: Any) -> None:
    sampling = but(SAMPLED, n=1)
    [[alone]] = roll_out(policy, sampling, [PROMPTS[1]], [2])
    gone, kept = add(policy, PROMPTS[0], sampling, 1), add(policy, PROMPTS[1], sampling, 2)
    ray.get(policy.step.remote())
    ray.get(policy.abort_requests.remote([gone]))
    [(number, generation)] = steps_until_idle(policy)
    assert (number, generation.token_ids) == (kept, alone.token_ids)
    ray.get(policy.abort_requests.remote([gone, kept]))  # both are over: nothing happens


def test_abort_requests_of_everything_leaves_an_idle_engine_that_takes_other_weights(
    policy: Any, folders: Path
) -> None:
    long_prompt = [*range(5, 85), *range(5, 85)]  # holds a block of the prefix cache
    numbers = [add(policy, long_prompt, SAMPLED_ONCE, seed) for seed in range(3)]
    ray.get(policy.step.remote())
    ray.get(policy.abort_requests.remote(numbers))
    assert not ray.get(policy.has_unfinished_requests.remote())
    load(policy, folders, "second")  # clears the prefix cache, which fails while a request holds a part of it


def test_generate_while_someone_else_drives_the_engine_is_refused(policy: Any, folders: Path) -> None:
    number = add(policy, PROMPTS[0], SAMPLED_ONCE, 1)
    with pytest.raises(PlansmithError, match="requests of someone else"):
        roll_out(policy, GREEDY)
    with pytest.raises(PlansmithError, match="requests of someone else"):
        ray.get(policy.prompt_logprobs.remote(PROBE))
    with pytest.raises(PlansmithError, match="requests of someone else"):
        load(policy, folders, "second")
    assert [found for found, _ in steps_until_idle(policy)] == [number]


def test_in_flight_answers_are_those_of_generate_and_nothing_is_left_in_the_engine(policy: Any) -> None:
    groups = roll_out(policy, SAMPLED_ONCE)
    answers, is_anything_left = ray.get(policy.answers_in_flight.remote(SEEDS[: len(PROMPTS)]))
    assert [answer.token_ids for answer in answers] == [group[0].token_ids for group in groups]
    assert not is_anything_left


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
    assert ray.get(policy.policy_version.remote()) == "second"


def test_load_weights_forgets_cached_prefixes_of_the_old_weights(
    policy: Any, models: dict[str, LlamaForCausalLM], folders: Path
) -> None:
    long_prompt = [*range(5, 85), *range(5, 85)]  # more than a block of 128 tokens, the unit of the cache on a CPU
    sampling = but(GREEDY, max_new_tokens=2)
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


# --- adapters


@pytest.fixture(scope="module")
def adapted_models(folders: Path) -> dict[str, PreTrainedModel | PeftModel]:
    """Return a base and two adapters over it, saved as folders `base`, `adapter` and `later`."""
    base = write_qwen(folders / "base", seed=0)
    adapter = write_adapter(folders / "adapter", base=folders / "base", seed=1, rank=4)
    return {"base": base, "adapter": adapter, "later": write_adapter(folders / "later", base=folders / "base", seed=2,
                                                                     rank=2)}  # fmt: skip


@pytest.fixture(scope="module")
def adapting_engine(
    ray_session: None, folders: Path, adapted_models: dict[str, PreTrainedModel | PeftModel]
) -> Iterator[Any]:
    settings = but(SMALL, logprobs="processed")
    actor = start_policy(
        folders / "base", "base", folders / "adapting.json", settings=settings, lora_rank=4, has_sleep_mode=True
    )
    yield actor
    ray.kill(actor)


@pytest.fixture
def adapting(adapting_engine: Any, folders: Path) -> Any:
    """Return the engine with the base and no adapter, whatever the test before it loaded."""
    ray.get(adapting_engine.load_weights.remote(str(folders / "base"), "base"))
    return adapting_engine


def load(policy: Any, folders: Path, name: str) -> None:
    ray.get(policy.load_weights.remote(str(folders / name), name))


def probe(policy: Any) -> Any:
    return pytest.approx(ray.get(policy.prompt_logprobs.remote(PROBE)), abs=1e-4)


def test_load_weights_adapter_answers_as_peft_does(adapting: Any, folders: Path, adapted_models: Any) -> None:
    base, adapter = (reference_logprobs(adapted_models[name], PROBE) for name in ("base", "adapter"))
    assert max(abs(b - a) for b, a in zip(base, adapter, strict=True)) > 0.5
    assert base == probe(adapting)
    load(adapting, folders, "adapter")
    assert adapter == probe(adapting)
    assert ray.get(adapting.prove.remote(PROBE, adapter, tolerance=1e-4)) < 1e-4
    effect = max(abs(with_it - without) for with_it, without in zip(adapter, base, strict=True))
    assert ray.get(adapting.adapter_effect.remote(PROBE)) == pytest.approx(effect, abs=1e-4)
    with pytest.raises(StalePolicyError):
        ray.get(adapting.prove.remote(PROBE, base, tolerance=1e-2))


def test_generate_with_an_adapter_samples_and_counts_under_it(
    adapting: Any, folders: Path, adapted_models: Any
) -> None:
    load(adapting, folders, "adapter")
    for prompt, group in zip(PROMPTS, roll_out(adapting, SAMPLED), strict=True):
        for generation in group:
            expected = reference_logprobs(adapted_models["adapter"], [*prompt, *generation.token_ids])
            assert generation.logprobs == pytest.approx(expected[len(prompt) - 1 :], abs=1e-4)
            assert generation.policy_version == "adapter"
    for prompt, [generation] in zip(PROMPTS, roll_out(adapting, GREEDY), strict=True):
        table = log_softmax(adapted_models["adapter"], [*prompt, *generation.token_ids])[len(prompt) - 1 : -1]
        chosen = table.gather(1, torch.tensor(generation.token_ids)[:, None])[:, 0]
        assert torch.all(chosen >= table.max(-1).values - 1e-4)


def test_load_weights_adapter_that_is_not_given_with_requests_is_stale(
    adapting: Any, folders: Path, adapted_models: Any
) -> None:
    load(adapting, folders, "adapter")
    ray.get(adapting.lose_adapter.remote())
    with pytest.raises(StalePolicyError, match="disagrees with the trainer about adapter"):
        ray.get(adapting.prove.remote(PROBE, reference_logprobs(adapted_models["adapter"], PROBE), tolerance=0.05))


def test_load_weights_next_adapter_replaces_the_one_before(adapting: Any, folders: Path, adapted_models: Any) -> None:
    load(adapting, folders, "adapter")
    before = ray.get(adapting.adapter_numbers.remote())
    load(adapting, folders, "later")
    after = ray.get(adapting.adapter_numbers.remote())
    assert len(before) == len(after) == 1
    assert before != after
    assert reference_logprobs(adapted_models["later"], PROBE) == probe(adapting)


def test_load_weights_base_again_takes_the_adapter_away(adapting: Any, folders: Path, adapted_models: Any) -> None:
    load(adapting, folders, "adapter")
    load(adapting, folders, "base")
    assert ray.get(adapting.adapter_numbers.remote()) == []
    assert reference_logprobs(adapted_models["base"], PROBE) == probe(adapting)
    assert ray.get(adapting.policy_version.remote()) == "base"


def test_load_weights_same_folder_with_other_content_takes_the_content(
    adapting: Any, folders: Path, adapted_models: Any, tmp_path: Path
) -> None:
    long_prompt = [*range(5, 85), *range(5, 85)]  # more than a block of the prefix cache
    sampling = but(GREEDY, max_new_tokens=2)
    for name in ("adapter", "later"):
        shutil.copytree(folders / name, tmp_path / "adapter", dirs_exist_ok=True)
        ray.get(adapting.load_weights.remote(str(tmp_path / "adapter"), "same"))
        [[generation]] = roll_out(adapting, sampling, [long_prompt])
        expected = reference_logprobs(adapted_models[name], [*long_prompt, *generation.token_ids])[-2:]
        assert generation.logprobs == pytest.approx(expected, abs=1e-4)


def test_load_weights_other_model_under_an_engine_for_adapters_replaces_the_base(
    adapting: Any, folders: Path, adapted_models: Any
) -> None:
    other = write_qwen(folders / "other_base", seed=5)
    adapter = write_adapter(folders / "other_adapter", base=folders / "other_base", seed=6, rank=4)
    load(adapting, folders, "adapter")
    load(adapting, folders, "other_base")
    assert reference_logprobs(other, PROBE) == probe(adapting)
    load(adapting, folders, "other_adapter")
    assert reference_logprobs(adapter, PROBE) == probe(adapting)
    with pytest.raises(BadInputError, match="another base"):
        load(adapting, folders, "adapter")


def test_load_weights_adapter_over_another_base_is_refused_and_the_old_one_stays(
    adapting: Any, folders: Path, adapted_models: Any
) -> None:
    write_qwen(folders / "stranger", seed=7)
    write_adapter(folders / "of_stranger", base=folders / "stranger", seed=1, rank=4)
    load(adapting, folders, "adapter")
    with pytest.raises(BadInputError, match="another base") as caught:
        load(adapting, folders, "of_stranger")
    assert (caught.value.got, caught.value.expected) == (str(folders / "stranger"), str(folders / "base"))
    assert ray.get(adapting.policy_version.remote()) == "adapter"
    assert reference_logprobs(adapted_models["adapter"], PROBE) == probe(adapting)


def test_load_weights_adapter_that_vllm_refuses_is_bad_input_and_the_old_one_stays(
    adapting: Any, folders: Path, adapted_models: Any, tmp_path: Path
) -> None:
    shutil.copytree(folders / "later", tmp_path / "refused")
    config = json.loads((tmp_path / "refused" / "adapter_config.json").read_text())
    (tmp_path / "refused" / "adapter_config.json").write_text(json.dumps({**config, "use_dora": True}))
    load(adapting, folders, "adapter")
    with pytest.raises(BadInputError, match="vLLM refuses the adapter"):
        load(adapting, tmp_path, "refused")
    assert ray.get(adapting.policy_version.remote()) == "adapter"
    assert reference_logprobs(adapted_models["adapter"], PROBE) == probe(adapting)


def test_load_weights_adapter_into_an_engine_without_them_is_bad_input(
    policy: Any, folders: Path, adapted_models: Any, models: dict[str, LlamaForCausalLM]
) -> None:
    with pytest.raises(BadInputError, match="built without adapters"):
        load(policy, folders, "adapter")
    assert reference_logprobs(models["first"], PROBE) == probe(policy)


def test_sleep_on_a_cpu_has_no_effect(adapting: Any, folders: Path, adapted_models: Any) -> None:
    load(adapting, folders, "adapter")
    ray.get(adapting.sleep.remote())
    assert reference_logprobs(adapted_models["adapter"], PROBE) == probe(adapting)
    ray.get(adapting.wake_up.remote())
    assert reference_logprobs(adapted_models["adapter"], PROBE) == probe(adapting)


def test_check_adapter_that_fits_is_accepted(folders: Path, adapted_models: Any) -> None:
    shapes = read_weight_shapes(str(folders / "base"))
    check_adapter(str(folders / "adapter"), shapes, max_rank=4)
    with pytest.raises(BadInputError, match="rank is above") as caught:
        check_adapter(str(folders / "adapter"), shapes, max_rank=3)
    assert str(caught.value.got).startswith("rank 4 in base_model.model.model.layers.0.mlp.down_proj.lora_A.weight")


def test_check_adapter_of_a_wider_base_is_bad_input_that_names_the_factor(
    folders: Path, adapted_models: Any, tmp_path: Path
) -> None:
    write_qwen(tmp_path / "narrow", seed=0, hidden_size=32)
    with pytest.raises(BadInputError, match="does not fit its base") as caught:
        check_adapter(str(folders / "adapter"), read_weight_shapes(str(tmp_path / "narrow")), max_rank=4)
    factor = "base_model.model.model.layers.0.mlp.down_proj.lora_B.weight"
    assert (caught.value.got, caught.value.expected) == (f"{factor} (64, 4)", f"{factor} (32, 4)")


def test_check_adapter_of_a_deeper_base_is_bad_input(folders: Path, adapted_models: Any) -> None:
    shapes = {name: shape for name, shape in read_weight_shapes(str(folders / "base")).items() if ".1." not in name}
    with pytest.raises(BadInputError, match="does not fit its base") as caught:
        check_adapter(str(folders / "adapter"), shapes, max_rank=4)
    assert "layers.1.mlp.down_proj.lora_A" in str(caught.value.got)


@pytest.mark.parametrize("damaged", ["adapter_config.json", "adapter_model.safetensors"])
def test_policy_actor_adapter_cut_short_is_bad_input_before_an_engine_starts(
    folders: Path, adapted_models: Any, tmp_path: Path, damaged: str
) -> None:
    shutil.copytree(folders / "adapter", tmp_path / "adapter")
    file = tmp_path / "adapter" / damaged
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(BadInputError, match="damaged adapter folder"):
        PolicyActor(str(tmp_path / "adapter"), "v0", settings=SMALL, lora_rank=4)


@pytest.mark.parametrize(("rank", "engine_rank"), [(1, 1), (2, 8), (8, 8), (9, 16), (33, 64), (512, 512)])
def test_lora_options_take_the_next_rank_that_vllm_knows(rank: int, engine_rank: int) -> None:
    options = lora_options(rank, "float32", is_cpu=True)
    assert options == {"enable_lora": True, "max_lora_rank": engine_rank, "max_loras": 1, "max_cpu_loras": 1}


def test_lora_options_without_adapters_are_none() -> None:
    assert lora_options(None, "float32", is_cpu=True) == lora_options(None, "float32", is_cpu=False) == {}


def test_lora_options_float32_on_a_gpu_is_refused_and_bfloat16_taken() -> None:
    with pytest.raises(ConfigError, match="16 bits"):
        lora_options(4, "float32", is_cpu=False)
    assert lora_options(4, "bfloat16", is_cpu=False)["max_lora_rank"] == 8


@pytest.mark.parametrize("rank", [0, 513])
def test_lora_options_rank_outside_the_engine_is_refused(rank: int) -> None:
    with pytest.raises(ConfigError, match="no adapter of this rank"):
        lora_options(rank, "bfloat16", is_cpu=True)


# --- sleep on a GPU, with a stand-in for the engine: vLLM refuses sleep mode on a CPU


class StandInEngine:
    """Writes down what it is told."""

    def __init__(self, *, has_sleep_mode: bool) -> None:
        self.told: list[str] = []
        self.model_config = SimpleNamespace(enable_sleep_mode=has_sleep_mode, get_vocab_size=lambda: 96)
        self.llm_engine = SimpleNamespace(has_unfinished_requests=lambda: False)

    def sleep(self, level: int) -> None:
        self.told.append(f"sleep {level}")

    def wake_up(self) -> None:
        self.told.append("wake up")

    def collective_rpc(self, name: str, kwargs: dict[str, str]) -> None:
        self.told.append(f"{name} {Path(kwargs['weights_path']).name}")

    def apply_model(self, _: object) -> list[None]:
        return [None]

    def reset_prefix_cache(self) -> bool:
        return True


class PolicyActorOnStandIn(PolicyActor):
    """A policy whose engine is a stand-in; tells its process, and the model that its engine was built from."""

    def _build_engine(self) -> StandInEngine:
        self.built_from = self._base_folder
        return StandInEngine(has_sleep_mode=self._wants_sleep)

    def start(self) -> tuple[int, str]:
        """Return the process and the folder of the first weights."""
        return os.getpid(), self.built_from


def policy_on_stand_in(folders: Path, **options: Any) -> PolicyActorOnStandIn:
    return PolicyActorOnStandIn(str(folders / "first"), "first", settings=SMALL, **options)


def test_sleep_with_whole_models_drops_the_weights_and_reads_them_again(folders: Path, models: object) -> None:
    policy = policy_on_stand_in(folders, has_sleep_mode=True)
    policy.sleep()
    policy.sleep()
    assert policy._engine._llm.told == ["sleep 2"]
    policy.wake_up()
    policy.wake_up()
    assert policy._engine._llm.told == ["sleep 2", "wake up", "reload_weights first"]
    assert policy.policy_version() == "first"


def test_load_weights_while_asleep_wakes_and_reads_only_the_next_weights(folders: Path, models: object) -> None:
    policy = policy_on_stand_in(folders, has_sleep_mode=True)
    policy.sleep()
    policy.load_weights(str(folders / "second"), "second")
    assert policy._engine._llm.told == ["sleep 2", "wake up", "reload_weights second"]
    policy.sleep()
    policy.wake_up()
    assert policy._engine._llm.told[-1] == "reload_weights second"
    assert policy.policy_version() == "second"


def test_sleep_with_adapters_keeps_the_base(folders: Path, models: object) -> None:
    policy = policy_on_stand_in(folders, has_sleep_mode=True, lora_rank=4)
    policy.sleep()
    policy.wake_up()
    assert policy._engine._llm.told == ["sleep 1", "wake up"]
    assert policy.policy_version() == "first"


def test_sleep_without_sleep_mode_tells_the_engine_nothing(folders: Path, models: object) -> None:
    policy = policy_on_stand_in(folders)
    policy.sleep()
    policy.wake_up()
    assert policy._engine._llm.told == []


def test_policy_actor_killed_after_an_update_restarts_with_the_current_weights(
    ray_session: None, by_value: None, folders: Path, models: object, tmp_path: Path
) -> None:
    """Of whole models; test_workers.py kills a real engine that holds an adapter."""
    policy = start_policy(folders / "first", "first", tmp_path / "current.json", of=PolicyActorOnStandIn)
    pid, first = ray.get(policy.start.remote())
    load(policy, folders, "second")
    pointer = json.loads((tmp_path / "current.json").read_text())
    assert pointer == {"weights_folder": str(folders / "second"), "policy_version": "second"}
    os.kill(pid, 9)
    restarted, second = ray.get(policy.start.remote())
    assert restarted != pid
    assert (first, second) == (str(folders / "first"), str(folders / "second"))
    assert ray.get(policy.policy_version.remote()) == "second"
    ray.kill(policy)


class InterruptedEngine(StandInEngine):
    """Is interrupted in its first step, as by Ctrl-C or a cancelled call."""

    def __init__(self) -> None:
        super().__init__(has_sleep_mode=False)
        self.left: set[str] = set()
        self.llm_engine = self

    def enqueue(self, inputs: Sequence[object], params: object, **_: object) -> list[str]:
        self.left = {str(number) for number in range(len(inputs))}
        return [f"{number}-abcd1234" for number in range(len(inputs))]

    def has_unfinished_requests(self) -> bool:
        return bool(self.left)

    def step(self) -> list[object]:
        raise KeyboardInterrupt

    def abort_request(self, requests: Sequence[str]) -> None:
        self.left -= set(requests)


def test_generate_interrupted_leaves_nothing_in_the_engine(folders: Path, models: object) -> None:
    class Interrupted(PolicyActor):
        def _build_engine(self) -> InterruptedEngine:
            return InterruptedEngine()

    policy = Interrupted(str(folders / "first"), "first", settings=SMALL)
    with pytest.raises(KeyboardInterrupt):
        list(policy.generate(PROMPTS, GREEDY, seeds=SEEDS[:4], description=None))
    assert not policy.has_unfinished_requests()


def test_question_to_a_sleeping_engine_is_refused(folders: Path, models: object) -> None:
    policy = policy_on_stand_in(folders, has_sleep_mode=True)
    policy.sleep()
    with pytest.raises(PlansmithError, match="the engine sleeps"):
        list(policy.generate(PROMPTS[:1], GREEDY, seeds=[1], description=""))
    with pytest.raises(PlansmithError, match="the engine sleeps"):
        policy.prompt_logprobs(PROBE)


@pytest.mark.long
def test_engine_shared_by_two_processes_takes_weights_over_and_answers_as_one_alone(
    ray_session: None, policy: Any, folders: Path, models: dict[str, LlamaForCausalLM]
) -> None:
    settings = but(SMALL, tensor_parallel_size=2)
    shared = start_policy(folders / "first", "first", folders / "shared.json", settings=settings)
    try:
        assert tokens(roll_out(shared, GREEDY)) == tokens(roll_out(policy, GREEDY))
        ray.get(shared.load_weights.remote(str(folders / "second"), "second"))
        expected = reference_logprobs(models["second"], PROBE)
        assert ray.get(shared.prove.remote(PROBE, expected, tolerance=1e-3)) < 1e-3
        with pytest.raises(StalePolicyError, match="disagrees with the trainer"):
            ray.get(shared.prove.remote(PROBE, reference_logprobs(models["first"], PROBE), tolerance=1e-3))
    finally:
        ray.kill(shared)


def test_engine_matrix_whose_parts_lie_in_different_files_is_compared(tmp_path: Path) -> None:
    parts = {f"layer.{name}_proj.weight": torch.full((2, 3), float(number)) for number, name in enumerate("qkv")}
    for number, (name, weight) in enumerate(parts.items()):
        write_weights({name: weight}, tmp_path / shard_name(number, 3))
    held = torch.cat(list(parts.values()))
    engine = SimpleNamespace(
        named_parameters=lambda: [("layer.qkv_proj.weight", held)],
        packed_modules_mapping={"qkv_proj": ["q_proj", "k_proj", "v_proj"]},
    )
    assert first_different_tensor(engine, str(tmp_path)) is None
    held[5, 2] = 7.0
    assert first_different_tensor(engine, str(tmp_path)) in parts
