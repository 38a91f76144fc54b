"""Small real checkpoints of public model families, written to disk: no weights can be downloaded where tests run.

Architecture, chat template, special tokens and end tokens are shaped as in the family; the sizes are not, the weights
are random, and all three share one kind of tokenizer: byte pairs learnt from chains in the full rendering.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from conftest import ROOT, SUSSMAN_PLAN, blocks_task, shortest_plan, sussman
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.utils import logging as transformers_logging

from plansmith.text.chains import chain_of_plan
from plansmith.text.full import FullRendering

VOCABULARY_SIZE = 1000
MAX_POSITIONS = 8192
INITIALIZER_RANGE, GEMMA_RANGE = 0.1, 0.02
"""Far from a flat distribution, so that rounding turns no greedy token. Gemma scales its embeddings up: with more, its
random layers would add nothing to them and every token be followed by itself."""

LLAMA_TEMPLATE = (
    "{{- bos_token }}"
    "{%- for message in messages %}"
    "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}"
    "{{- message['content'] | trim + '<|eot_id|>' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"
)
"""Llama 3: writes the begin-of-text token itself and trims what is said."""

QWEN3_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\n' }}"
    "{%- if message.role == 'assistant' and loop.last %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}"
    "{{- message.content + '<|im_end|>\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}"
    "{{- '<|im_start|>assistant\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}"
    "{%- endif %}"
)
"""Qwen 3: no begin-of-text token; without thinking the answer follows an empty block of it."""

GEMMA_TEMPLATE = (
    "{{ bos_token }}"
    "{%- if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{%- endif %}"
    "{%- for message in messages %}"
    "{%- set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
    "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{%- endif %}"
)
"""Gemma: calls the assistant "model" and refuses a system message."""


@dataclass(frozen=True, slots=True)
class ChatFamily:
    """What the tokenizer of a family is told: template, special tokens, and which of them end an answer."""

    template: str
    special: tuple[str, ...]
    bos: str | None
    eos: str
    pad: str
    ends: tuple[str, ...]
    """End tokens of generation_config.json, in its order."""


LLAMA = ChatFamily(
    LLAMA_TEMPLATE,
    ("<|begin_of_text|>", "<|end_of_text|>", "<|finetune_pad|>", "<|start_header_id|>", "<|end_header_id|>",
     "<|eom_id|>", "<|eot_id|>"),
    bos="<|begin_of_text|>", eos="<|eot_id|>", pad="<|finetune_pad|>",
    ends=("<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"),
)  # fmt: skip
QWEN3 = ChatFamily(
    QWEN3_TEMPLATE, ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    bos=None, eos="<|im_end|>", pad="<|endoftext|>", ends=("<|im_end|>", "<|endoftext|>"),
)  # fmt: skip
GEMMA = ChatFamily(
    GEMMA_TEMPLATE, ("<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"),
    bos="<bos>", eos="<eos>", pad="<pad>", ends=("<eos>", "<end_of_turn>"),
)  # fmt: skip


@cache
def full_texts() -> tuple[str, ...]:
    """Return prompts and chains of small Blocksworld problems in the full rendering, and every domain that we have."""
    rendering = FullRendering()
    domains = sorted((ROOT / "datasets" / "domains").glob("*/domain.pddl"))
    texts = [path.read_text(encoding="utf-8") for path in domains]
    rng = random.Random(0)
    tasks = [(sussman(), SUSSMAN_PLAN)]
    for _ in range(12):
        names = rng.sample([*"abcdefgh", *(f"b{number}" for number in range(1, 30))], 3)
        x, y, z = names
        init = f"(on {x} {y}) (ontable {y}) (ontable {z}) (clear {x}) (clear {z}) (handempty)"
        task = blocks_task(init, f"(on {y} {z}) (on {z} {x})", objects=" ".join(names))
        tasks.append((task, shortest_plan(task)))
    for task, plan in tasks:
        texts += [rendering.plan_prompt(task), rendering.write_chain(chain_of_plan(task, plan))]
    return tuple(texts)


def chat_tokenizer(family: ChatFamily) -> PreTrainedTokenizerFast:
    """Return a byte-level tokenizer of `VOCABULARY_SIZE` tokens with the family's special tokens and chat template."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE, show_progress=False, special_tokens=list(family.special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    # VALID and INVALID more often than in the texts, so that each is one token as in the families' own vocabularies
    tokenizer.train_from_iterator([*full_texts(), "[VERDICT] VALID\n[VERDICT] INVALID\n" * 50], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=family.bos, eos_token=family.eos, pad_token=family.pad,
        chat_template=family.template, model_max_length=MAX_POSITIONS, clean_up_tokenization_spaces=False,
    )  # fmt: skip


def llama_checkpoint(folder: Path, *, seed: int = 0) -> Path:
    """Write a Llama 3 with grouped-query attention; return its folder."""
    tokenizer = chat_tokenizer(LLAMA)
    torch.manual_seed(seed)
    return _write(folder, LlamaForCausalLM(LlamaConfig(**_shape(tokenizer))), tokenizer, LLAMA)


def qwen3_checkpoint(folder: Path, *, seed: int = 0) -> Path:
    """Write a Qwen 3, with its normalised queries and keys; return its folder."""
    tokenizer = chat_tokenizer(QWEN3)
    torch.manual_seed(seed)
    return _write(folder, Qwen3ForCausalLM(Qwen3Config(**_shape(tokenizer), head_dim=32)), tokenizer, QWEN3)


def gemma_checkpoint(folder: Path, *, seed: int = 0) -> Path:
    """Write a Gemma 3 (text) with tied embeddings, one sliding-window layer and one full; return its folder."""
    tokenizer = chat_tokenizer(GEMMA)
    torch.manual_seed(seed)
    shape = _shape(tokenizer) | {"tie_word_embeddings": True, "initializer_range": GEMMA_RANGE}
    config = Gemma3TextConfig(
        **shape, head_dim=32, query_pre_attn_scalar=2, sliding_window=512,
        layer_types=["sliding_attention", "full_attention"],
    )  # fmt: skip
    # the query scalar is far below the head's size: sharp attention, or random heads average all they see to one token
    return _write(folder, Gemma3ForCausalLM(config), tokenizer, GEMMA)


def _shape(tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": MAX_POSITIONS,
        "initializer_range": INITIALIZER_RANGE,
        "tie_word_embeddings": False,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }


def _write(folder: Path, model: Any, tokenizer: PreTrainedTokenizerFast, family: ChatFamily) -> Path:
    model.generation_config = GenerationConfig(
        do_sample=True, temperature=0.6, top_p=0.9, bos_token_id=tokenizer.bos_token_id,
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.convert_tokens_to_ids(list(family.ends)),
    )  # fmt: skip
    transformers_logging.disable_progress_bar()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
