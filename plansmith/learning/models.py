"""Models: a Qwen3 trained from nothing, of any size, with a tokenizer of its own; and what a folder must hold.

`tiny` is such a Qwen3 with one token a word; byte pairs learnt from texts serve every rendering. Loading weights is the
business of the trainer and of the engine.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from plansmith.config.training import ModelConfig
from plansmith.errors import BadInputError
from plansmith.garbage import no_garbage
from plansmith.learning.adapters import ADAPTER_CONFIG, ADAPTER_WEIGHTS, base_folder_of, is_adapter_folder
from plansmith.learning.tokenizer import END, PAD, verdict_token_ids
from plansmith.learning.weight_files import NO_FOREIGN_CODE, check_weight_files
from plansmith.text.chains import INVALID, VALID

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

PIECES = Regex(r" ?[\p{L}_]+(?:-[\p{L}_]+)*|\p{N}{1,3}| ?[^\s\p{L}\p{N}_]|\s+(?!\S)|\s+")
"""What byte pairs never merge across: a name with its hyphens and the space before it, up to three digits, one other
sign with the space before it, white space. So ``(on a b)`` is five tokens at best, and none joins bracket and name."""

WHOLE_NAMES = Regex(r" ?[\p{L}_][\p{L}\p{N}_]*(?:-[\p{L}\p{N}_]+)*|\p{N}{1,3}| ?[^\s\p{L}\p{N}_]|\s+(?!\S)|\s+")
"""The same where a name keeps its digits, so that ``b12`` may be one token."""

SAME_WORD = 0.7
"""Correlation of the first head's queries and keys in a new model."""


FREQUENCIES_OF_NEIGHBOURS = 6.0
"""How many of RoPE's frequencies, from the highest, the heads have most of that begin by attending to words before."""


def make_model(
    folder: Path, tokenizer: PreTrainedTokenizerFast, shape: ModelConfig, *, max_position_embeddings: int, seed: int
) -> int:
    """Write an untrained Qwen3 with its tokenizer to `folder`; return its number of parameters.

    Qwen3 is a Llama that normalises queries and keys, which at the size of `tiny` about halves the tokens it takes to
    learn to look things up in a state (docs/log.md). The first head of every layer begins by attending to the same word
    elsewhere (`_look_for_the_same_word`): in one pair of runs the loss then fell in about half the steps. With several
    key-value heads the first layer begins with heads that attend to the words before (`_look_back`).
    """
    with no_garbage():
        import torch  # seconds, which a run that reuses its model need not spend
        from transformers import Qwen3Config, Qwen3ForCausalLM
        from transformers.utils import logging as transformers_logging

    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=shape.hidden_size,
            intermediate_size=shape.intermediate_size,
            num_hidden_layers=shape.n_layers,
            num_attention_heads=shape.n_heads,
            num_key_value_heads=shape.n_kv_heads,
            head_dim=shape.head_dim or shape.hidden_size // shape.n_heads,
            max_position_embeddings=max_position_embeddings,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    _look_for_the_same_word(model)
    if shape.n_kv_heads > 1:
        _look_back(model)
    transformers_logging.disable_progress_bar()  # of the writing of a few megabytes
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return int(sum(parameter.numel() for parameter in model.parameters()))


def _look_for_the_same_word(model: Any) -> None:
    """Let the first head of every layer begin with queries like its keys, so that equal words attend to each other.

    Mimetic initialisation (arXiv:2305.09828, section 3: W_Q W_K^T near alpha * I + noise) of one head; theirs is of all
    heads, and of values and output as well. A query is `SAME_WORD` of its key's weights and noise of what is left of
    their variance.
    """
    import torch

    with torch.no_grad():
        for layer in model.model.layers:
            attention = layer.self_attn
            key = attention.k_proj.weight[: attention.head_dim]
            query = attention.q_proj.weight[: attention.head_dim]
            query.mul_((1 - SAME_WORD**2) ** 0.5).add_(key, alpha=SAME_WORD)


def _look_back(model: Any) -> None:
    """Let the heads of the first layer's last key-value head begin by attending 1, 2, ... tokens back.

    In ``on d e`` the block on e stands before e: whoever looks it up finds e, and needs there what stood before, which
    is the first half of an induction head (Olsson et al., arXiv:2209.11895). All embeddings get a direction in common;
    from it come keys that are the same for every word, and queries turned by so many positions (RoPE), mostly in the
    high frequencies, which tell neighbours apart. What was drawn stays in part. With three seeds each see docs/log.md.
    """
    import torch

    config = model.config
    width, n_shared = config.head_dim, config.num_attention_heads // config.num_key_value_heads
    frequencies = torch.arange(width // 2)
    turns = config.rope_parameters["rope_theta"] ** (-frequencies / (width // 2))
    amplitudes = torch.exp(-frequencies / FREQUENCIES_OF_NEIGHBOURS)
    amplitudes /= amplitudes.norm()
    attention, words = model.model.layers[0].self_attn, model.model.embed_tokens.weight
    with torch.no_grad():
        shared = torch.nn.functional.normalize(torch.randn(config.hidden_size), dim=0)
        words.add_(shared * words.norm(dim=1).mean())
        weights_of_keys = attention.k_proj.weight[-width:]
        scale = 2 * config.initializer_range * (config.hidden_size * width) ** 0.5
        key = torch.cat([amplitudes, torch.zeros_like(amplitudes)])
        weights_of_keys.mul_(0.5).add_(torch.outer(key, shared), alpha=scale)
        for n_back, weights in enumerate(reversed(attention.q_proj.weight[-n_shared * width :].split(width)), 1):
            query = torch.cat([amplitudes * torch.cos(n_back * turns), -amplitudes * torch.sin(n_back * turns)])
            weights.mul_(0.3).add_(torch.outer(query, shared), alpha=scale)


def bpe_tokenizer(
    texts: Iterable[str], vocabulary_size: int, *, has_whole_names: bool = False
) -> PreTrainedTokenizerFast:
    """Return a byte-level tokenizer of byte pairs learnt from texts, without chat template.

    Any text can be encoded and comes back as it was. The same texts in the same order give the same tokens.

    Args:
        texts: prompts and responses of training; no need for VALID and INVALID among them.
        vocabulary_size: tokens at most, the 256 bytes and the pad and end tokens included.
        has_whole_names: see `ModelConfig`.

    Raises:
        BadInputError: a vocabulary too small for the bytes and the two verdicts.
    """
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    pieces = WHOLE_NAMES if has_whole_names else PIECES
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(pieces, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size, show_progress=False, special_tokens=[PAD, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    # every text counts as if it had both verdicts: each must be one token even where only valid plans are shown
    verdicts = f"[VERDICT] {VALID}\n[VERDICT] {INVALID}\n"
    tokenizer.train_from_iterator((piece for text in texts for piece in (text, verdicts)), trainer)
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, clean_up_tokenization_spaces=False
    )
    verdict_token_ids(made)  # raises where no token tells them apart
    return made


def load_tokenizer(folder: str) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a model folder or an adapter folder.

    Raises:
        BadInputError: there is no such folder, or no tokenizer in it that needs no code of the folder's own.
    """
    from transformers import AutoTokenizer  # brings torch with it

    check_model_folder(folder)
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, **NO_FOREIGN_CODE
        )
    except (ValueError, OSError) as error:
        raise BadInputError(
            "no tokenizer that can be loaded", where=folder, got=" ".join(str(error).split())[:300],
            expected="a tokenizer and a model that transformers knows: code from a model folder is never run",
            cure="take a model of a supported architecture",
        ) from error  # fmt: skip
    return tokenizer


def check_model_folder(folder: str) -> None:
    """Check that a folder holds a Hugging Face model with safetensors weights, or a PEFT adapter and its base is there.

    Raises:
        BadInputError: something is lacking, all of which is named; or the folder leads to weights in other formats.
    """
    path, is_adapter = Path(folder), is_adapter_folder(folder)
    weights = (ADAPTER_CONFIG, ADAPTER_WEIGHTS) if is_adapter else ("config.json", "*.safetensors")
    lacking = [name for name in (*weights, "tokenizer_config.json") if not any(path.glob(name))]
    if lacking:
        raise BadInputError(
            "no model here" if path.is_dir() else "no such model folder",
            where=str(path), got=f"no {', '.join(lacking)}" if path.is_dir() else "nothing",
            expected="a Hugging Face model folder: config.json, *.safetensors and a tokenizer; or a PEFT adapter: "
            f"{ADAPTER_CONFIG}, {ADAPTER_WEIGHTS} and a tokenizer",
            cure="give the path of a downloaded model, or leave out model.folder to train `tiny`",
        )  # fmt: skip
    check_weight_files(path)
    if is_adapter:
        check_model_folder(str(base_folder_of(path)))
