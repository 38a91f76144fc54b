"""A model folder as the service needs it: tokenizer, engine settings, and the card that the front asks for.

Read where the engine runs; the front has neither torch nor a tokenizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.planning_service import NO_ROOM, Completion
from actors.planning_view import PolicyCard
from actors.policy import Generation, PolicySettings, SamplingSettings
from cluster.serve_args import EngineArgs
from plansmith.learning.model_folder import adapter_rank, cache_size_gib, folder_digest, is_word_level, text_config
from plansmith.learning.models import load_tokenizer
from plansmith.learning.tokenizer import encode_prompt, end_token_ids

VERSION_DIGITS = 12


@dataclass(frozen=True)
class ServedModel:
    """A model folder with everything between a prompt as text and a completion as text."""

    folder: Path
    tokenizer: Any
    settings: PolicySettings
    sampling: SamplingSettings
    card: PolicyCard

    @classmethod
    def read(cls, folder: Path, args: EngineArgs) -> ServedModel:
        """Return the model in a folder, a whole one or an adapter.

        Raises:
            BadInputError: no model there.
        """
        tokenizer = load_tokenizer(str(folder))
        words, settings = _words(tokenizer), _engine_settings(folder, args)
        sampling = SamplingSettings(
            temperature=args.temperature,
            max_new_tokens=args.max_new_tokens,
            n=1,
            stop_token_ids=end_token_ids(tokenizer, folder),
        )
        card = PolicyCard(
            policy_version=folder_digest(folder)[:VERSION_DIGITS],
            prompting=args.rendering or ("full" if words is None else "compact"),
            max_model_len=settings.max_model_len,
            max_new_tokens=args.max_new_tokens,
            words=words,
            object_names=args.object_names,
        )
        return cls(folder, tokenizer, settings, sampling, card)

    def encode(self, prompt: str) -> list[int] | None:
        """Return the tokens of a prompt; None where they leave the engine no room for an answer."""
        ids = encode_prompt(self.tokenizer, prompt)
        return ids if 0 < len(ids) < self.settings.max_model_len else None

    def completions(self, prompts: Sequence[list[int] | None], answers: Sequence[Generation]) -> list[Completion]:
        """Return a completion for each prompt; `answers` are those to the prompts that had room."""
        remaining = iter(answers)
        return [self._no_room() if ids is None else self._completion(next(remaining)) for ids in prompts]

    def _no_room(self) -> Completion:
        return Completion("", NO_ROOM, 0, self.card.policy_version)

    def _completion(self, generation: Generation) -> Completion:
        text = str(self.tokenizer.decode(list(generation.token_ids), skip_special_tokens=True))
        return Completion(text, generation.finish_reason, len(generation.token_ids), generation.policy_version)


def _words(tokenizer: Any) -> frozenset[str] | None:
    """Return the vocabulary of a word-level tokenizer; None for one that reads any text."""
    return frozenset(tokenizer.get_vocab()) if is_word_level(tokenizer) else None


def _engine_settings(folder: Path, args: EngineArgs) -> PolicySettings:
    model = text_config(folder)
    window = min(args.max_model_len, int(model.get("max_position_embeddings") or args.max_model_len))
    is_cpu = args.gpus_per_engine == 0
    dtype = args.dtype or ("float32" if is_cpu else "bfloat16")
    return PolicySettings(
        max_model_len=window,
        max_num_seqs=args.max_batch_size,
        kv_cache_gib=cache_size_gib(model, window, dtype) if is_cpu else None,
        dtype=dtype,
        n_threads=args.engine_threads,
        enforce_eager=is_cpu,
        seed=args.seed,
        lora_rank=adapter_rank(folder),
    )
