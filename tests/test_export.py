"""The exported folder: loads with plain transformers and vLLM, answers as its source, and its card tells the truth."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import torch
from checkpoints import full_texts, gemma_checkpoint, llama_checkpoint, qwen3_checkpoint
from conftest import BLOCKS, NAMES, sussman
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from plansmith.config.training import ModelConfig
from plansmith.errors import BadInputError
from plansmith.learning.export import (
    CARD,
    EXAMPLE_PROMPT,
    FORMALISING,
    PLANNING,
    MeasuredAccuracy,
    ModelCard,
    TrainedOn,
    export_model,
)
from plansmith.learning.models import bpe_tokenizer, make_model
from plansmith.learning.tokenizer import encode_prompt, word_tokenizer
from plansmith.report.statistics import wilson_interval
from plansmith.text.compact import CompactRendering
from plansmith.text.full import FullRendering

N_TOKENS = 12
SHAPE = ModelConfig(hidden_size=32, n_layers=1, n_heads=2, n_kv_heads=1, intermediate_size=64)

CARD_OF_QWEN3 = ModelCard(
    skill=PLANNING,
    name="qwen3-plans",
    base_model="Qwen/Qwen3-1.7B",
    method="It was instruction-tuned on explained plans (arXiv 2509.13351).",
    rendering="full",
    example_prompt=FullRendering().plan_prompt(sussman()),
    max_new_tokens=N_TOKENS,
    accuracies=(
        MeasuredAccuracy("blocksworld", "L4", 200, 150, low=0.6856, high=0.8050, n_right_before=2),
        MeasuredAccuracy("logistics", "L1", 50, 5, low=0.0435, high=0.2136),
    ),
    training=(TrainedOn("blocksworld", "L3", 1000), TrainedOn("blocksworld", "L4", 2000)),
    n_test_forms=110,
    n_trained_forms=0,
    config={"seed": 7, "model": {"folder": str(Path("/", "home", "someone", "Qwen3-1.7B"))}},
    examples=(("plan_chain", 3000), ("explain_invalid", 900)),
    limits=("More than eight blocks were never seen.",),
)
CARD_FROM_NOTHING = replace(
    CARD_OF_QWEN3, skill=FORMALISING, name="tiny", base_model=None, rendering="compact",
    accuracies=(), examples=(), limits=(), example_prompt=CompactRendering().plan_prompt(sussman()),
)  # fmt: skip


def words_checkpoint(folder: Path) -> Path:
    """Write an untrained `tiny`; return its folder."""
    make_model(folder, word_tokenizer([BLOCKS], NAMES), SHAPE, max_position_embeddings=1024, seed=0)
    return folder


def pairs_checkpoint(folder: Path) -> Path:
    """Write an untrained Qwen3 with byte pairs and no chat template; return its folder."""
    make_model(folder, bpe_tokenizer(full_texts(), 800), SHAPE, max_position_embeddings=1024, seed=0)
    return folder


def adapter_checkpoint(folder: Path) -> Path:
    """Write a Qwen 3 and an adapter over it that changes what it says; return the adapter's folder."""
    base = qwen3_checkpoint(folder / "base")
    torch.manual_seed(1)
    config = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM")
    get_peft_model(AutoModelForCausalLM.from_pretrained(base), config).save_pretrained(folder / "adapter")
    AutoTokenizer.from_pretrained(base).save_pretrained(folder / "adapter")
    return folder / "adapter"


SOURCES: dict[str, tuple[Callable[[Path], Path], ModelCard]] = {
    "qwen3": (qwen3_checkpoint, CARD_OF_QWEN3),
    "llama": (llama_checkpoint, replace(CARD_OF_QWEN3, base_model="meta-llama/Meta-Llama-3-8B-Instruct")),
    "gemma": (gemma_checkpoint, replace(CARD_OF_QWEN3, base_model="google/gemma-3-1b-it")),
    "adapter": (adapter_checkpoint, CARD_OF_QWEN3),
    "pairs": (pairs_checkpoint, replace(CARD_FROM_NOTHING, rendering="full", example_prompt="(on a b)\n")),
    "words": (words_checkpoint, CARD_FROM_NOTHING),
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """Return for each kind of model its source and its exported folder."""
    root, found = tmp_path_factory.mktemp("export"), {}
    for name, (make, card) in SOURCES.items():
        source, target = make(root / name), root / "exported" / name
        export_model(source, target, card)
        found[name] = source, target
    return found


def source_answer(source: Path, prompt: str) -> list[int]:
    """Return the greedy answer of a source folder, an adapter through PEFT, without its generation settings."""
    if (source / "adapter_config.json").exists():
        from peft import AutoPeftModelForCausalLM

        model = AutoPeftModelForCausalLM.from_pretrained(source)
    else:
        model = AutoModelForCausalLM.from_pretrained(source)
    ids = encode_prompt(AutoTokenizer.from_pretrained(source), prompt)
    model.generation_config = GenerationConfig()
    output = model.generate(input_ids=torch.tensor([ids]), do_sample=False, max_new_tokens=N_TOKENS)
    return list(output[0, len(ids) :].tolist())


def code_blocks(folder: Path) -> list[str]:
    """Return the Python of a model card."""
    return re.findall(r"```python\n(.*?)```", (folder / CARD).read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("name", SOURCES)
def test_exported_model_by_the_lines_of_its_card_answers_as_its_source(
    exported: dict[str, tuple[Path, Path]], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = exported[name]
    card = SOURCES[name][1]
    monkeypatch.chdir(target)
    names: dict[str, object] = {}
    exec(code_blocks(target)[0], names)
    inputs, output = names["inputs"], names["output"]
    assert isinstance(inputs, torch.Tensor) and isinstance(output, torch.Tensor)
    assert inputs[0].tolist() == encode_prompt(AutoTokenizer.from_pretrained(source), card.example_prompt)
    answer = source_answer(source, card.example_prompt)
    assert len(answer) == N_TOKENS and len(set(answer)) > 1
    said = output[0, inputs.shape[1] :].tolist()
    assert said == answer[: len(said)]
    ends = GenerationConfig.from_pretrained(target).eos_token_id  # the source was asked without, and goes on after one
    assert len(said) == N_TOKENS or said[-1] in (ends if isinstance(ends, list) else [ends])


def test_exported_adapter_is_merged_and_no_longer_its_base(exported: dict[str, tuple[Path, Path]]) -> None:
    source, target = exported["adapter"]
    assert not (target / "adapter_config.json").exists()
    prompt = CARD_OF_QWEN3.example_prompt
    assert (
        source_answer(target, prompt) == source_answer(source, prompt) != source_answer(source.parent / "base", prompt)
    )


def test_exported_model_card_asks_vllm_as_its_generation_settings_say(
    exported: dict[str, tuple[Path, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = dict[str, Any]()

    class StandIn:
        def __init__(self, *, model: str) -> None:
            asked["model"] = model

        def chat(self, messages: Any, sampling: Any, *, chat_template_kwargs: Any) -> Any:
            asked.update(messages=messages, sampling=sampling, template=chat_template_kwargs)
            return [SimpleNamespace(outputs=[SimpleNamespace(text="")])]

    _, target = exported["qwen3"]
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=StandIn, SamplingParams=lambda **told: told))
    monkeypatch.chdir(target)
    exec(code_blocks(target)[1], {})
    ends = GenerationConfig.from_pretrained(target).eos_token_id
    assert asked == {
        "model": str(target.resolve()),
        "messages": [{"role": "user", "content": CARD_OF_QWEN3.example_prompt}],
        "sampling": {"temperature": 0, "max_tokens": N_TOKENS, "stop_token_ids": ends},
        "template": {"enable_thinking": False},
    }


@pytest.mark.long
def test_exported_model_by_the_vllm_lines_of_its_card_answers_as_its_source(
    exported: dict[str, tuple[Path, Path]],
) -> None:
    source, target = exported["qwen3"]
    # on a CPU, as the policy actor builds it: no compiler at run time, and the precision of the source
    settings = "import functools, vllm; vllm.LLM = functools.partial(vllm.LLM, enforce_eager=True, dtype='float32')"
    program = f"{settings}\n{code_blocks(target)[1]}\nprint('TOKENS', list(answer.outputs[0].token_ids))\n"
    quiet = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    small = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "TORCHDYNAMO_DISABLE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    environment = os.environ | quiet | small
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=target, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    [line] = [line for line in done.stdout.splitlines() if line.startswith("TOKENS ")]
    assert json.loads(line.removeprefix("TOKENS ")) == source_answer(source, CARD_OF_QWEN3.example_prompt)


@pytest.mark.parametrize(
    ("name", "ends"),
    [("qwen3", ["<|im_end|>", "<|endoftext|>"]), ("gemma", ["<end_of_turn>", "<eos>"]), ("words", ["<end>"])],
)
def test_exported_generation_settings_are_greedy_and_stop_at_every_end(
    exported: dict[str, tuple[Path, Path]], name: str, ends: list[str]
) -> None:
    _, target = exported[name]
    settings = GenerationConfig.from_pretrained(target)
    assert (settings.do_sample, settings.max_new_tokens, settings.temperature) == (False, N_TOKENS, None)
    assert AutoTokenizer.from_pretrained(target).convert_ids_to_tokens(settings.eos_token_id) == ends


def test_exported_chat_template_is_the_sources(exported: dict[str, tuple[Path, Path]]) -> None:
    source, target = exported["llama"]
    assert AutoTokenizer.from_pretrained(target).chat_template == AutoTokenizer.from_pretrained(source).chat_template


def test_model_card_metadata_is_read_by_the_hub_library(exported: dict[str, tuple[Path, Path]]) -> None:
    card = huggingface_hub.ModelCard.load(exported["qwen3"][1] / CARD)
    assert (card.data.base_model, card.data.library_name, card.data.license) == (
        "Qwen/Qwen3-1.7B",
        "transformers",
        None,
    )
    assert card.data.model_name == "qwen3-plans" and "pddl" in card.data.tags
    results = {result.dataset_config: result for result in card.data.eval_results}
    assert {name: result.metric_value for name, result in results.items()} == {
        "blocksworld-L4": 0.75, "logistics-L1": 0.1,
    }  # fmt: skip
    assert results["logistics-L1"].metric_type == "accuracy" and results["logistics-L1"].dataset_split == "test"


def test_model_card_of_a_model_from_nothing_has_our_licence_and_no_base(
    exported: dict[str, tuple[Path, Path]],
) -> None:
    card = huggingface_hub.ModelCard.load(exported["words"][1] / CARD)
    assert (card.data.base_model, card.data.license, card.data.eval_results) == (None, "apache-2.0", None)
    assert "trained from nothing" in card.text and "It was not measured." in card.text
    assert "apply_chat_template" not in card.text
    assert "plansmith formalise --policy ." in card.text and "formalisation" in card.data.tags


def test_model_card_shows_figures_with_intervals_training_data_and_limits(
    exported: dict[str, tuple[Path, Path]],
) -> None:
    text = (exported["qwen3"][1] / CARD).read_text(encoding="utf-8")
    assert "| blocksworld, L4 | yes | 200 | 150 | 75.0% | 68.6% to 80.5% | 1.0% |\n" in text
    assert "| logistics, L1 | no | 50 | 5 | 10.0% | 4.3% to 21.4% | - |\n" in text
    assert "| blocksworld, L3 | 1000 |\n| blocksworld, L4 | 2000 |\n" in text
    assert "| plan_chain | 3000 |\n| explain_invalid | 900 |\n" in text
    assert "\n- More than eight blocks were never seen.\n" in text
    assert "Up to the names of objects these are 110 problems; none of them\nwere among the training problems." in text
    assert not re.search(r"[^\n]\n\|---", text.replace("|\n|---", ""))  # every table stands apart and has its header
    assert "\n\n\n" not in text


def test_exported_folder_names_no_place_of_the_machine(exported: dict[str, tuple[Path, Path]]) -> None:
    places = [str(exported["qwen3"][0].parent), "someone"]
    for _, target in exported.values():
        for path in target.rglob("*"):
            content = path.read_bytes()
            assert not any(place.encode() in content for place in places), path.name
    assert '"folder": "Qwen3-1.7B"' in (exported["qwen3"][1] / CARD).read_text(encoding="utf-8")


def test_exported_folder_holds_the_model_and_nothing_else_of_its_source(
    tmp_path: Path, exported: dict[str, tuple[Path, Path]]
) -> None:
    source = qwen3_checkpoint(tmp_path / "source")
    (source / "optimizer.pt").write_bytes(b"0")
    (source / "LICENSE").write_text("of the base", encoding="utf-8")
    export_model(source, tmp_path / "target", CARD_OF_QWEN3)
    names = {path.name for path in (tmp_path / "target").iterdir()}
    assert names == {path.name for path in exported["qwen3"][1].iterdir()} | {"LICENSE"}
    assert {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja", CARD, EXAMPLE_PROMPT} < names


def test_exported_weights_have_the_precision_of_the_model_though_a_run_keeps_them_in_float32(tmp_path: Path) -> None:
    source = qwen3_checkpoint(tmp_path / "source")
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    (source / "config.json").write_text(json.dumps({**config, "dtype": "bfloat16"}), encoding="utf-8")
    export_model(source, tmp_path / "target", CARD_OF_QWEN3)
    kept, published = (load_file(folder / "model.safetensors") for folder in (source, tmp_path / "target"))
    assert {tensor.dtype for tensor in kept.values()} == {torch.float32}
    assert published.keys() == kept.keys()
    assert all(torch.equal(tensor, kept[name].bfloat16()) for name, tensor in published.items())


def test_export_model_that_fails_leaves_the_target_as_it_was(
    tmp_path: Path, exported: dict[str, tuple[Path, Path]]
) -> None:
    source, target = exported["qwen3"][0], tmp_path / "target"
    with pytest.raises(TypeError):
        export_model(source, target, replace(CARD_OF_QWEN3, example_prompt=None))  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(BadInputError, match="no such model folder"):
        export_model(tmp_path / "nowhere", target, CARD_OF_QWEN3)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["/models/qwen", "a/b/c", "", "./qwen"])
def test_model_card_base_that_is_no_name_of_the_hub_is_refused(name: str) -> None:
    with pytest.raises(BadInputError, match="no name of the Hub"):
        replace(CARD_OF_QWEN3, base_model=name)
    with pytest.raises(BadInputError, match="no name of the Hub"):
        replace(CARD_OF_QWEN3, datasets=(name,))


def test_measured_accuracy_outside_its_interval_is_refused() -> None:
    with pytest.raises(ValueError, match="no accuracy"):
        MeasuredAccuracy("d", "l", 10, 5, low=0.6, high=0.9)
    with pytest.raises(ValueError, match="no accuracy"):
        MeasuredAccuracy("d", "l", 10, 11, low=0.6, high=1.0)
    with pytest.raises(ValueError, match="no accuracy"):
        MeasuredAccuracy("d", "l", 0, 0, low=0.0, high=1.0)


@pytest.mark.parametrize("n", [1, 3, 7, 49, 200, 1000])
def test_measured_accuracy_of_none_and_of_all_fits_its_wilson_interval(n: int) -> None:
    for n_valid in (0, n):
        low, high = wilson_interval(n_valid, n)
        assert MeasuredAccuracy("d", "l", n, n_valid, low, high).accuracy == n_valid / n
