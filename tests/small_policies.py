"""Policies small enough to be trained in a test, whole or by an adapter, and moved away from where they began."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from plansmith.config.training import LoraConfig
from plansmith.learning.adapters import attach_adapter

LORA = LoraConfig(rank=4, alpha=8.0)


def load_policy(folder: Path, attention: str, *, is_adapter: bool = False) -> Any:
    """Return the model of a folder, or a new adapter on it."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation=attention)
    return attach_adapter(model, LORA, base_folder=folder, seed=0) if is_adapter else model


def moved(model: Any, *, seed: int, by: float = 0.01) -> Any:
    """Return the model with noise on what is trained of it."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in trained(model):
        parameter.data += by * torch.randn(parameter.shape, generator=generator)
    return model


def trained(model: Any) -> list[torch.nn.Parameter]:
    """Return what a step moves."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]
