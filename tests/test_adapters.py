"""Adapters: what a folder holds, what is refused, and that training one equals PEFT's plain forward and backward."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from actors.trainer import TrainerActor
from plansmith.config.training import LoraConfig, OptimiserConfig, Schedule, TrainerConfig
from plansmith.errors import BadInputError, ConfigError
from plansmith.learning.adapters import (
    attach_adapter,
    base_folder_of,
    is_adapter_folder,
    merge_adapter,
    written_whole,
)
from plansmith.learning.objectives.supervised import Supervised
from plansmith.learning.sequences import TrainingSequence, supervised_sequence

LORA = LoraConfig(rank=4, alpha=8.0)
SETTINGS = TrainerConfig(n_threads=1, row_length_tokens=32, optimizer="adamw", is_autocast=False, lora=LORA)
FAST = OptimiserConfig(
    learning_rate=1e-2, batch_sequences=4, weight_decay=0.1, gradient_clipping=0.5, eps=1e-5, schedule=Schedule.CONSTANT
)
PROBE = (3, 9, 27, 33, 1, 40, 12)


def changed(settings: Any, **changes: Any) -> Any:
    """Return other settings, checked like those that are written."""
    return type(settings)(**{**settings.model_dump(), **changes})


def make_model(folder: Path, *, dtype: torch.dtype = torch.float32) -> Path:
    """Write a Llama of two layers with a tokenizer of 48 words, a chat template and generation settings."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=48,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
            initializer_range=0.3,
        )
    )
    model.generation_config.temperature, model.generation_config.do_sample = 0.7, True
    model.to(dtype).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(48)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # type: ignore[assignment]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0", eos_token="w1")
    tokenizer.chat_template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def adapter(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a trained adapter."""
    trainer = TrainerActor(base, config=SETTINGS)
    trainer.optimise(Supervised(), sequences(), FAST)
    folder = tmp_path_factory.mktemp("trained") / "adapter"
    trainer.save(folder)
    return folder


@pytest.fixture
def loose_adapter(adapter: Path, tmp_path: Path) -> Path:
    """Return a copy of the adapter that a test may damage."""
    shutil.copytree(adapter, tmp_path / "loose")
    return tmp_path / "loose"


def sequences(n: int = 12) -> list[TrainingSequence]:
    generator = random.Random(0)
    return [
        supervised_sequence([3, 4 + i], [generator.randrange(4, 48) for _ in range(generator.randrange(3, 14))])
        for i in range(n)
    ]


def probe_of(trainer: TrainerActor) -> list[float]:
    """Return the log-probabilities of the probe by the trainer."""
    return trainer.token_logprobs([TrainingSequence.of(PROBE, {})])[0].tolist()


def logprobs_of(model: Any) -> list[float]:
    """Return the log-probabilities of the probe by plain transformers."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([PROBE])).logits[0].float()
    followers = torch.tensor(PROBE[1:])[:, None]
    return [0.0, *logits.log_softmax(-1)[:-1].gather(1, followers)[:, 0].tolist()]


def plain_model(folder: Path, **options: Any) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", **options)


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_fresh_adapter_leaves_every_log_probability_as_it_is(base: Path) -> None:
    whole = TrainerActor(base, config=changed(SETTINGS, lora=None))
    assert probe_of(TrainerActor(base, config=SETTINGS)) == probe_of(whole)
    assert probe_of(whole) == pytest.approx(logprobs_of(plain_model(base)), abs=1e-5)


def test_fresh_adapter_is_the_same_for_the_same_seed_only(base: Path) -> None:
    first, again, other = (TrainerActor(base, config=SETTINGS, seed=seed).engine.weights() for seed in (0, 0, 1))
    assert all(first[name].equal(again[name]) for name in first)
    assert any(not first[name].equal(other[name]) for name in first)


def test_attach_adapter_does_not_depend_on_what_was_drawn_before(base: Path) -> None:
    drawn = []
    for n_numbers in (1, 5):
        torch.rand(n_numbers)
        adapted = attach_adapter(plain_model(base), LORA, base_folder=base, seed=3)
        drawn.append({name: p.detach() for name, p in adapted.named_parameters() if p.requires_grad})
    assert all(drawn[0][name].equal(drawn[1][name]) for name in drawn[0])


def test_adapter_is_all_that_is_trained_and_vocabulary_and_head_have_none(base: Path) -> None:
    trainer = TrainerActor(base, config=SETTINGS)
    names = trainer.engine.shapes()
    # two layers, seven linear layers each, two matrices each
    assert len(names) == 2 * 7 * 2
    assert all("lora_" in name for name in names)
    assert not any("embed_tokens" in name or "lm_head" in name for name in names)
    before = {n: p.clone() for n, p in trainer.engine.module.named_parameters() if not p.requires_grad}
    trainer.optimise(Supervised(), sequences(), FAST)
    after = dict(trainer.engine.module.named_parameters())
    assert all(after[name].equal(parameter) for name, parameter in before.items())
    assert len(before) == 2 * 9 + 3  # seven matrices and two norms a layer; embeddings, last norm, head


@pytest.mark.parametrize(
    "changes",
    [{}, {"dtype": "bfloat16"}, {"quantisation": "nf4"}, {"dtype": "bfloat16", "quantisation": "nf4"}],
    ids=str,
)
def test_adapter_is_trained_in_float32_whatever_the_base_has(base: Path, changes: dict[str, Any]) -> None:
    trainer = TrainerActor(base, config=changed(SETTINGS, **changes))
    dtypes = {p.dtype for p in trainer.engine.module.parameters() if p.requires_grad}
    frozen = {p.dtype for p in trainer.engine.module.parameters() if not p.requires_grad}
    assert dtypes == {torch.float32}
    assert (torch.uint8 in frozen) is ("quantisation" in changes)
    assert (torch.bfloat16 in frozen) is ("dtype" in changes)
    start = trainer.engine.weights()
    trainer.optimise(Supervised(), sequences(), changed(FAST, learning_rate=1e-6))
    moved = [n for n, w in trainer.engine.weights().items() if not w.equal(start[n])]
    assert len(moved) == len(start)  # bfloat16 would have rounded steps of a millionth away


THREE_STEPS = changed(FAST, is_curriculum=True, eps=1e-3)
"""AdamW divides by eps where a gradient is nearly zero; far above float noise, so that weights can be compared."""


def peft_reference(base: Any) -> tuple[dict[str, torch.Tensor], list[float]]:
    """Train PEFT's model in plain torch: one sequence at a time, no packing, no DeepSpeed, none of our losses."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    config = LoraConfig(r=LORA.rank, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(base, config)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(
        parameters, lr=FAST.learning_rate, weight_decay=FAST.weight_decay, eps=THREE_STEPS.eps
    )
    norms = []
    for batch in (sequences()[i : i + 4] for i in (0, 4, 8)):
        optimizer.zero_grad()
        n_tokens = sum(len(sequence) - 2 for sequence in batch)
        for sequence in batch:
            token_ids = torch.from_numpy(sequence.token_ids)[None].long()
            labels = token_ids.clone()
            labels[0, :2] = -100
            (model(input_ids=token_ids, labels=labels).loss * (len(sequence) - 2) / n_tokens).backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(parameters, FAST.gradient_clipping)))
        optimizer.step()
    return {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}, norms


@pytest.mark.parametrize(
    "changes",
    [{}, {"zero_stage": 2, "offload": "optimizer"}, {"zero_stage": 3}, {"is_checkpointing_activations": True}],
    ids=str,
)
def test_three_steps_equal_pefts_forward_and_backward_with_torchs_adamw(base: Path, changes: dict[str, Any]) -> None:
    trainer = TrainerActor(base, config=changed(SETTINGS, **changes))
    probe_of(trainer)
    report = trainer.optimise(Supervised(), sequences(), THREE_STEPS)
    assert_same_training(trainer.engine.weights(), report.gradient_norms, peft_reference(plain_model(base)))


def assert_same_training(
    weights: dict[str, torch.Tensor],
    norms: tuple[float, ...],
    expected: tuple[dict[str, torch.Tensor], list[float]],
) -> None:
    assert weights.keys() == expected[0].keys()
    assert max((weights[name] - expected[0][name]).abs().max().item() for name in weights) < 1e-5
    assert norms == pytest.approx(expected[1], rel=1e-4)


def dequantised_model(base: Path) -> Any:
    """Return a plain model whose matrices are those of the blocks as nf4 rounds them."""
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit

    model = plain_model(base)
    for name, parameter in model.named_parameters():
        if "_proj" in name:
            packed, state = quantize_4bit(parameter.data, quant_type="nf4", compress_statistics=True)
            parameter.data = dequantize_4bit(packed, state)
    return model


def test_three_steps_on_an_nf4_base_equal_peft_on_the_same_weights_dequantised(base: Path) -> None:
    trainer = TrainerActor(base, config=changed(SETTINGS, quantisation="nf4"))
    # a pass without gradients first: on some CPUs it would turn the layers into ones without a backward pass
    assert probe_of(trainer) == pytest.approx(logprobs_of(dequantised_model(base)), abs=1e-4)
    report = trainer.optimise(Supervised(), sequences(), THREE_STEPS)
    expected = peft_reference(dequantised_model(base))
    assert_same_training(trainer.engine.weights(), report.gradient_norms, expected)


def test_saved_adapter_holds_the_files_that_peft_and_a_tokenizer_need(base: Path, adapter: Path) -> None:
    from transformers import AutoTokenizer

    assert sorted(path.name for path in adapter.iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "chat_template.jinja",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    config = json.loads((adapter / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(base.resolve())
    assert (config["r"], config["lora_alpha"], config["task_type"]) == (4, 8.0, "CAUSAL_LM")
    assert {tensor.dtype for tensor in load_file(adapter / "adapter_model.safetensors").values()} == {torch.float32}
    tokenizer = AutoTokenizer.from_pretrained(adapter)
    assert tokenizer.apply_chat_template([{"content": "w5 w6"}], tokenize=False) == "w5 w6"
    assert json.loads((adapter / "generation_config.json").read_text())["temperature"] == 0.7


@pytest.mark.parametrize("zero_stage", [1, 3])
def test_adapter_read_back_by_trainer_peft_and_transformers_gives_the_same_numbers(
    base: Path, tmp_path: Path, zero_stage: int
) -> None:
    from peft import PeftModel

    trainer = TrainerActor(base, config=changed(SETTINGS, zero_stage=zero_stage))
    fresh = probe_of(trainer)
    trainer.optimise(Supervised(), sequences(), FAST)
    trained = probe_of(trainer)
    trainer.save(tmp_path / "adapter")
    assert trained != pytest.approx(fresh, abs=1e-2)
    assert probe_of(trainer) == trained
    assert probe_of(TrainerActor(tmp_path / "adapter", config=SETTINGS)) == pytest.approx(trained, abs=1e-6)
    with_peft = PeftModel.from_pretrained(plain_model(base), tmp_path / "adapter")
    assert logprobs_of(with_peft.eval()) == pytest.approx(trained, abs=1e-5)
    assert logprobs_of(plain_model(tmp_path / "adapter")) == pytest.approx(trained, abs=1e-5)

    trainer.load(base)
    assert probe_of(trainer) == fresh
    trainer.load(tmp_path / "adapter")
    assert probe_of(trainer) == pytest.approx(trained, abs=1e-6)


def test_load_of_the_base_starts_anew_with_the_same_fresh_adapter(base: Path, adapter: Path) -> None:
    trainer = TrainerActor(adapter, config=SETTINGS)
    trainer.load(base)
    trainer.optimise(Supervised(), sequences(), FAST)
    trainer.save(adapter.parent / "again")
    once, again = (load_file(folder / "adapter_model.safetensors") for folder in (adapter, adapter.parent / "again"))
    assert all(once[name].equal(again[name]) for name in once)


def test_load_of_another_base_or_a_whole_model_is_refused(base: Path, tmp_path: Path) -> None:
    trainer = TrainerActor(base, config=SETTINGS)
    with pytest.raises(BadInputError, match="neither an adapter nor"):
        trainer.load(make_model(tmp_path / "other"))


def test_load_of_an_adapter_of_another_base_is_refused(base: Path, loose_adapter: Path, tmp_path: Path) -> None:
    change_config(loose_adapter, base_model_name_or_path=str(make_model(tmp_path / "other")))
    with pytest.raises(BadInputError, match="another base model"):
        TrainerActor(base, config=SETTINGS).load(loose_adapter)


def test_base_that_vanished_is_bad_input_that_names_it(loose_adapter: Path, tmp_path: Path) -> None:
    change_config(loose_adapter, base_model_name_or_path=str(tmp_path / "gone"))
    for attempt in (
        lambda: base_folder_of(loose_adapter),
        lambda: TrainerActor(loose_adapter, config=SETTINGS),
        lambda: merge_adapter(loose_adapter, tmp_path / "merged"),
    ):
        with pytest.raises(BadInputError, match="base model of this adapter is gone") as caught:
            attempt()
        assert str(tmp_path / "gone") in str(caught.value)
    assert not (tmp_path / "merged").exists()


def test_adapter_in_a_trainer_of_whole_models_is_refused(base: Path, adapter: Path) -> None:
    whole = changed(SETTINGS, lora=None)
    with pytest.raises(BadInputError, match="trains whole models"):
        TrainerActor(adapter, config=whole)
    with pytest.raises(BadInputError, match="trains whole models"):
        TrainerActor(base, config=whole).load(adapter)


@pytest.mark.parametrize("lora", [changed(LORA, rank=8), changed(LORA, alpha=16.0)], ids=["rank", "alpha"])
def test_adapter_of_another_rank_or_scale_is_refused(adapter: Path, lora: LoraConfig) -> None:
    with pytest.raises(BadInputError, match="other settings"):
        TrainerActor(adapter, config=changed(SETTINGS, lora=lora))


def test_adapter_on_other_layers_is_refused(adapter: Path) -> None:
    with pytest.raises(BadInputError, match="does not fit"):
        TrainerActor(adapter, config=changed(SETTINGS, lora=changed(LORA, target_modules=("q_proj",))))


def _drop_a_tensor(weights: dict[str, torch.Tensor]) -> None:
    weights.popitem()


def _add_a_tensor(weights: dict[str, torch.Tensor]) -> None:
    weights["more"] = torch.zeros(2)


def _widen_a_tensor(weights: dict[str, torch.Tensor]) -> None:
    name, tensor = weights.popitem()
    weights[name] = torch.cat([tensor, tensor])


@pytest.mark.parametrize("damage", [_drop_a_tensor, _add_a_tensor, _widen_a_tensor])
def test_adapter_with_other_tensors_is_refused(
    loose_adapter: Path, damage: Callable[[dict[str, torch.Tensor]], None]
) -> None:
    weights = load_file(loose_adapter / "adapter_model.safetensors")
    damage(weights)
    save_file(weights, loose_adapter / "adapter_model.safetensors")
    with pytest.raises(BadInputError, match="does not fit"):
        TrainerActor(loose_adapter, config=SETTINGS)


def test_adapter_folder_is_known_by_its_config_and_incomplete_without_weights(base: Path, loose_adapter: Path) -> None:
    assert is_adapter_folder(loose_adapter)
    assert not is_adapter_folder(base)
    assert base_folder_of(loose_adapter) == base.resolve()
    (loose_adapter / "adapter_model.safetensors").unlink()
    with pytest.raises(BadInputError, match="no adapter here"):
        base_folder_of(loose_adapter)
    with pytest.raises(BadInputError, match="no adapter here"):
        base_folder_of(base)


@pytest.mark.parametrize(
    "targets", [("lm_head",), ("q_proj", "embed_tokens"), ("no_such_layer",)], ids=["head", "embeddings", "missing"]
)
def test_adapter_on_the_vocabulary_or_on_nothing_is_refused(base: Path, targets: tuple[str, ...]) -> None:
    settings = changed(LORA, target_modules=targets)
    with pytest.raises(ConfigError, match=r"stay frozen|no adapter for these"):
        attach_adapter(plain_model(base), settings, base_folder=base, seed=0)


def test_dropout_is_at_work_in_training_and_off_in_probes(base: Path) -> None:
    with_dropout = changed(SETTINGS, lora=changed(LORA, dropout=0.5))
    ours, plain = TrainerActor(base, config=with_dropout), TrainerActor(base, config=SETTINGS)
    for trainer in (ours, plain):
        trainer.optimise(Supervised(), sequences(), FAST)
    assert any(not w.equal(plain.engine.weights()[name]) for name, w in ours.engine.weights().items())
    assert probe_of(ours) == probe_of(ours)


def test_merged_adapter_is_a_whole_model_with_the_same_numbers(adapter: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    merge_adapter(adapter, tmp_path / "merged")
    expected = probe_of(TrainerActor(adapter, config=SETTINGS))
    merged = plain_model(tmp_path / "merged")
    assert logprobs_of(merged) == pytest.approx(expected, abs=1e-4)
    assert not is_adapter_folder(tmp_path / "merged")
    assert not any("lora" in name for name in load_file(tmp_path / "merged" / "model.safetensors"))
    assert AutoTokenizer.from_pretrained(tmp_path / "merged").chat_template
    assert merged.generation_config.temperature == 0.7
    assert [path.name for path in tmp_path.iterdir()] == ["merged"]
    whole = TrainerActor(tmp_path / "merged", config=changed(SETTINGS, lora=None))
    assert probe_of(whole) == pytest.approx(expected, abs=1e-4)


def test_merged_adapter_keeps_the_precision_of_its_base(tmp_path: Path) -> None:
    base = make_model(tmp_path / "base", dtype=torch.bfloat16)
    trainer = TrainerActor(base, config=changed(SETTINGS, dtype="bfloat16"))
    trainer.optimise(Supervised(), sequences(), FAST)
    trainer.save(tmp_path / "adapter")
    merge_adapter(tmp_path / "adapter", tmp_path / "merged")
    assert {t.dtype for t in load_file(tmp_path / "merged" / "model.safetensors").values()} == {torch.bfloat16}
    merged = logprobs_of(plain_model(tmp_path / "merged"))
    assert merged == pytest.approx(probe_of(trainer), abs=0.3)  # log-probabilities of about -10 in bfloat16
    assert logprobs_of(plain_model(base)) != pytest.approx(merged, abs=0.5)


def test_nf4_base_is_held_in_half_a_byte_and_learns(base: Path, tmp_path: Path) -> None:
    trainer = TrainerActor(base, config=changed(SETTINGS, quantisation="nf4"))
    packed = dict(trainer.engine.module.named_parameters())
    matrix = packed["base_model.model.model.layers.0.mlp.up_proj.base_layer.weight"]
    assert (matrix.dtype, matrix.numel()) == (torch.uint8, 128 * 64 // 2)
    assert packed["base_model.model.lm_head.weight"].dtype is torch.float32
    whole = logprobs_of(plain_model(base))
    quantised = probe_of(trainer)
    assert quantised != pytest.approx(whole, abs=1e-3)  # four bits are at work
    report = trainer.optimise(Supervised(), sequences(), changed(FAST, epochs=20))
    assert report.losses[-1] < 0.5 * report.losses[0]
    trained = probe_of(trainer)
    trainer.save(tmp_path / "adapter")
    again = TrainerActor(tmp_path / "adapter", config=changed(SETTINGS, quantisation="nf4"))
    assert probe_of(again) == pytest.approx(trained, abs=1e-6)


def test_written_whole_after_an_error_leaves_the_old_folder_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "old").touch()
    with pytest.raises(FileNotFoundError), written_whole(tmp_path / "policy") as partial:
        (partial / "missing" / "new").touch()
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["policy", "policy/old"]
