"""Floating-point operations that training a decoder needs, for its share of a device's peak (model FLOP utilisation).

Counted is what the mathematics needs, not what was executed: no padding, no recomputed activations, no optimizer, none
of the small vector operations. Source: PaLM (arXiv:2204.02311, appendix B) and Kaplan et al. (arXiv:2001.08361, section
2.1). How we differ: they count attention over the whole square of positions, we count the half that causal attention
needs, within each sequence and not across a packed row. For long sequences our utilisation is therefore lower.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from plansmith.errors import BadInputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FORWARD, WEIGHT_GRADIENT, INPUT_GRADIENT = 2, 2, 2
"""Operations per parameter and token: a multiplication and an addition, in each of the three matrix products."""


def training_flops(model: Mapping[str, Any] | PreTrainedModel, n_tokens: int, lengths: Sequence[int]) -> float:
    """Return the operations of one forward and backward pass over these sequences.

    A trained parameter costs 6 per token. A frozen one, as under an adapter, costs 4: it has no gradient of its own,
    but the gradient passes through it. Looking up an embedding costs nothing.

    Args:
        model: the ``config.json`` of a dense Llama-like model (Llama, Qwen2, Qwen3, Mistral), all of whose weights are
            trained; or a model, whose parameters say which are. Four-bit and scattered (ZeRO 3) parameters do not have
            their own size; give the config instead.
        n_tokens: that pass through the weights; the sum of ``lengths`` unless padding is to be counted.
        lengths: of the sequences within which attention is computed.

    Raises:
        BadInputError: a mixture of experts, or a config without the sizes.
    """
    config = model if isinstance(model, Mapping) else model.config.to_dict()
    if any(config.get(name) for name in ("num_experts", "num_local_experts", "n_routed_experts")):
        raise BadInputError("operations are counted for dense models only", got="a mixture of experts")
    trained, frozen = (matrix_parameters(config), 0) if isinstance(model, Mapping) else _parameters_of(model)
    per_token = trained * (FORWARD + WEIGHT_GRADIENT + INPUT_GRADIENT) + frozen * (FORWARD + INPUT_GRADIENT)
    return float(per_token * n_tokens + attention_flops(config, lengths))


def attention_flops(config: Mapping[str, Any], lengths: Sequence[int]) -> int:
    """Return the operations of queries times keys and weights times values, forward and twice that backward.

    A sequence of L tokens has L * (L + 1) / 2 pairs of positions. A pair costs 2 * head_dim for each of both products,
    per query head and layer; heads that share keys compute no less.
    """
    n_layers, width = _size(config, "num_hidden_layers"), _size(config, "num_attention_heads") * _head_size(config)
    n_pairs = sum(length * (length + 1) // 2 for length in lengths)
    return 3 * 2 * 2 * width * n_layers * n_pairs


def matrix_parameters(config: Mapping[str, Any]) -> int:
    """Return how many parameters are in matrices that multiply: the layers' and the head's, not the embeddings'."""
    hidden, head_size = _size(config, "hidden_size"), _head_size(config)
    n_heads = _size(config, "num_attention_heads")
    n_kv_heads = int(config.get("num_key_value_heads") or n_heads)
    attention = hidden * head_size * (2 * n_heads + 2 * n_kv_heads)
    gated = 3 * hidden * _size(config, "intermediate_size")
    return _size(config, "num_hidden_layers") * (attention + gated) + hidden * _size(config, "vocab_size")


def _parameters_of(model: PreTrainedModel) -> tuple[int, int]:
    """Return the numbers of trained and of frozen parameters in matrices; a head tied to the embeddings counts once."""
    embeddings, head = model.get_input_embeddings(), model.get_output_embeddings()
    is_looked_up_only = embeddings.weight is not getattr(head, "weight", None)
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    if is_looked_up_only:
        matrices = [p for p in matrices if p is not embeddings.weight]
    trained = sum(p.numel() for p in matrices if p.requires_grad)
    return trained, sum(p.numel() for p in matrices) - trained


def _head_size(config: Mapping[str, Any]) -> int:
    return int(config.get("head_dim") or _size(config, "hidden_size") // _size(config, "num_attention_heads"))


def _size(config: Mapping[str, Any], name: str) -> int:
    if not isinstance(config.get(name), int):
        raise BadInputError("the config does not say how large the model is", got=f"{name}={config.get(name)!r}",
                            expected="the config.json of a Llama-like model")  # fmt: skip
    return int(config[name])
