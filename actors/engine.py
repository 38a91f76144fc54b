"""The vLLM engine: how it is built, how completions are drawn, and every call into vLLM.

A part of `actors.policy`, which knows what the weights are called and whose they are. vLLM is imported only when an
engine is built or asked. Requests are decoded together and each ends on its own: `Engine.add`, `Engine.step` and
`Engine.abort` are what in-flight (continuous) batching is made of.
"""

from __future__ import annotations

import gc
import logging
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from plansmith.config.generation import SamplingConfig
from plansmith.config.training import PolicyConfig
from plansmith.errors import BadInputError, ConfigError, StalePolicyError
from plansmith.garbage import no_garbage

GIB = 2**30

ENGINE_LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The ranks that vLLM 0.32.0 can be built for; an adapter may have any rank up to the one chosen."""

LOOPS = 4
"""So many equal runs of tokens, one behind the other, are a loop (`EngineNumerics.max_loop_tokens`)."""


class Engine:
    """A vLLM engine that holds one model and one adapter over it at most. For one thread.

    Args:
        llm: what `build_engine` returns.
    """

    def __init__(self, llm: Any) -> None:
        self._llm = llm
        self._adapter: Any = None  # vLLM's LoRARequest, given with every prompt; None samples from the base
        self._adapter_numbers = count(1)

    @property
    def vocab_size(self) -> int:
        """Return the number of tokens that the model reads."""
        return int(self._llm.model_config.get_vocab_size())

    @property
    def has_sleep_mode(self) -> bool:
        """Say whether memory can be given away."""
        return bool(self._llm.model_config.enable_sleep_mode)

    @property
    def has_unfinished(self) -> bool:
        """Say whether any request is waiting or being decoded."""
        return bool(self._llm.llm_engine.has_unfinished_requests())

    @property
    def has_adapter(self) -> bool:
        """Say whether an adapter lies over the model."""
        return self._adapter is not None

    def add(self, prompts: Iterable[Sequence[int]], params: Sequence[Any], *, of_base: bool = False) -> list[int]:
        """Queue prompts, each with its parameters, and return the numbers; `of_base` as if there were no adapter."""
        inputs = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        adapter = None if of_base else self._adapter
        ids = self._llm.enqueue(inputs, params, lora_request=adapter, use_tqdm=False)
        return [int(request.partition("-")[0]) for request in ids]  # vLLM's own number, a dash, random characters

    def step(self) -> dict[int, Any]:
        """Decode one token of every request that has a place, and return vLLM's output of those that finished."""
        return {int(output.request_id): output for output in self._llm.llm_engine.step() if output.finished}

    def written(self) -> list[int]:
        """Return how many tokens are written of each request that is under way; 0 of one that waits."""
        states = self._llm.llm_engine.output_processor.request_states.values()
        return [state.detokenizer.num_output_tokens() for state in states]

    def abort(self, requests: Iterable[int]) -> None:
        """Drop requests and free their places; one that has finished is left alone."""
        self._llm.llm_engine.abort_request([str(number) for number in requests])

    def add_adapter(self, folder: str, name: str) -> None:
        """Put an adapter beside the base, under a number never used before: vLLM knows adapters by number, not content.

        Raises:
            BadInputError: vLLM refuses it; what the engine held stays.
            StalePolicyError: the engine holds no adapter, or also another.
        """
        from vllm.lora.request import LoRARequest

        number, engine = next(self._adapter_numbers), self._llm.llm_engine
        request = LoRARequest(lora_name=f"{name}-{number}", lora_int_id=number, lora_path=folder)
        try:
            engine.add_lora(request)
        except ValueError as error:
            raise BadInputError("vLLM refuses the adapter", where=folder, got=str(error)) from error
        self.drop_adapter()
        self._adapter, held = request, set(engine.list_loras())
        if held != {number}:
            raise StalePolicyError(f"the engine does not hold the adapter of {name}", where=folder,
                                   got=f"adapters {sorted(held)}", expected=f"[{number}]")  # fmt: skip

    def drop_adapter(self) -> None:
        """Go back to the base alone."""
        if self._adapter is not None:
            self._llm.llm_engine.remove_lora(self._adapter.lora_int_id)
            self._adapter = None

    def reload(self, folder: str) -> None:
        """Replace the weights by those in a folder, of the same shapes."""
        self._llm.collective_rpc("reload_weights", kwargs={"weights_path": folder})
        self._llm.apply_model(_repack_tied_head)

    def receive(self, call: str, *arguments: Any) -> None:
        """Let every part of the engine do a call of vLLM's weight transfer (`actors.weight_transfer`)."""
        self._llm.collective_rpc(call, args=arguments)
        if call == "finish_weight_update":
            self._llm.apply_model(_repack_tied_head)

    def ask_model(self, question: Callable[[Any], Any]) -> list[Any]:
        """Return what a function, one that can be pickled, says of each part of the model; it runs beside the model."""
        answers: list[Any] = self._llm.apply_model(question)
        return answers

    def clear_prefix_cache(self) -> bool:
        """Forget every cached prefix; return False, and keep them, while requests use them."""
        return bool(self._llm.reset_prefix_cache())

    def sleep(self, level: int) -> None:
        """Give memory away: at level 1 the host keeps the weights, at level 2 they are dropped."""
        self._llm.sleep(level=level)

    def wake_up(self) -> None:
        """Take the memory again."""
        self._llm.wake_up()


def build_engine(
    weights_folder: str, settings: PolicyConfig, *, seed: int, lora_rank: int | None, has_sleep_mode: bool
) -> Any:
    """Return a vLLM engine that runs in this process, quietly and without network.

    Chunked prefill is off on a CPU: with a seed a request it ends there in "CPU Generator does not use offset"
    (vLLM 0.32.0). `generation_config="vllm"` keeps the folder's sampling defaults out: rollouts are drawn as
    `SamplingConfig` says and in no other way.
    """
    os.environ.update(_engine_environment(settings))
    warnings.filterwarnings("ignore", category=FutureWarning, module="vllm")
    logging.getLogger("torch._library.triton").setLevel(logging.ERROR)  # "Triton not available", at every start
    with no_garbage():
        import torch

        torch.set_num_threads(settings.n_threads)  # where torch came in before OMP_NUM_THREADS was set
        from vllm import LLM
        from vllm.platforms import current_platform

        llm = LLM(
            model=str(Path(weights_folder).resolve()),
            skip_tokenizer_init=True,
            load_format="safetensors",  # vLLM's own choice falls back to pickles
            trust_remote_code=False,
            generation_config="vllm",
            dtype=settings.dtype,
            seed=seed,
            max_model_len=settings.max_model_len,
            max_num_seqs=settings.max_num_seqs,
            kv_cache_memory_bytes=None if settings.kv_cache_gib is None else int(settings.kv_cache_gib * GIB),
            gpu_memory_utilization=settings.gpu_memory_utilization,
            enforce_eager=settings.enforce_eager,
            enable_prefix_caching=True,
            enable_chunked_prefill=not current_platform.is_cpu(),
            logprobs_mode=f"{settings.logprobs}_logprobs",  # of a prompt the same in both modes: `prove` needs that
            disable_log_stats=True,
            use_tqdm_on_load=False,
            tensor_parallel_size=settings.tensor_parallel_size,
            distributed_executor_backend="mp" if settings.tensor_parallel_size > 1 else None,
            enable_sleep_mode=has_sleep_mode and current_platform.is_sleep_mode_available(),
            weight_transfer_config=_weight_transfer(settings, is_cpu=current_platform.is_cpu()),
            **lora_options(lora_rank, settings.dtype, is_cpu=current_platform.is_cpu()),
        )
    gc.collect()
    gc.freeze()  # a million objects of imports, walked again by every full collection while decoding
    return llm


def _weight_transfer(settings: PolicyConfig, *, is_cpu: bool) -> Any:
    if settings.handover == "folder":
        return None
    from vllm.config import WeightTransferConfig

    from actors.weight_transfer import GLOO, NCCL

    return WeightTransferConfig(backend=GLOO if is_cpu else NCCL)


def lora_options(lora_rank: int | None, dtype: str, *, is_cpu: bool) -> dict[str, Any]:
    """Return what an engine with room for one adapter is built with; nothing without adapters.

    Raises:
        ConfigError: a rank beyond vLLM's; or float32 on a GPU, where its kernels for adapters stop at an assertion.
    """
    if lora_rank is None:
        return {}
    if not 1 <= lora_rank <= ENGINE_LORA_RANKS[-1]:
        raise ConfigError("the engine takes no adapter of this rank", got=f"rank {lora_rank}",
                          expected=f"1 to {ENGINE_LORA_RANKS[-1]}")  # fmt: skip
    if dtype == "float32" and not is_cpu:
        raise ConfigError("vLLM's adapters on a GPU are 16 bits wide", got="dtype=float32",
                          expected="dtype=bfloat16 or float16", cure="set policy.dtype=bfloat16")  # fmt: skip
    rank = next(rank for rank in ENGINE_LORA_RANKS if rank >= lora_rank)
    return {"enable_lora": True, "max_lora_rank": rank, "max_loras": 1, "max_cpu_loras": 1}


def sampling_params(sampling: SamplingConfig, seed: int, *, max_loop_tokens: int) -> Any:
    """Return vLLM's parameters for one completion."""
    from vllm import SamplingParams
    from vllm.sampling_params import RepetitionDetectionParams, RequestOutputKind

    loops = RepetitionDetectionParams(max_pattern_size=max_loop_tokens, min_count=LOOPS) if max_loop_tokens else None
    return SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        max_tokens=sampling.max_new_tokens,
        stop_token_ids=list(sampling.stop_token_ids),
        ignore_eos=True,  # or the folder's own end token would stop it beside `stop_token_ids`
        seed=seed,
        logprobs=0,  # of the sampled token only
        flat_logprobs=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
        repetition_detection=loops,
    )


def scoring_params() -> Any:
    """Return vLLM's parameters for the log-probabilities of a prompt; one token has to be sampled with them."""
    from vllm import SamplingParams

    return SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0, detokenize=False)


def _engine_environment(settings: PolicyConfig) -> dict[str, str]:
    return {
        "OMP_NUM_THREADS": str(settings.n_threads),
        "OMP_WAIT_POLICY": "PASSIVE",  # idle threads sleep; the trainer has the cores then
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        # At WARNING every start prints a stack trace because there is no tokenizer to warm a chat template with.
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        # oneDNN compiles a matrix product for every number of tokens that a step happens to have, and would keep 1024
        # of them, a quarter of a MiB each.
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "128",
        # Counting log-probabilities is decorated with torch.compile, which on a CPU needs a C++ compiler at run time.
        # vLLM would bind each part of a model on a CPU to a NUMA node of its own, and refuse where there are fewer.
        **({"VLLM_CPU_OMP_THREADS_BIND": "nobind"} if settings.tensor_parallel_size > 1 else {}),
        **({"TORCHDYNAMO_DISABLE": "1"} if settings.enforce_eager else {}),
    }


def _repack_tied_head(model: Any) -> None:
    """Give a tied output head the new embeddings; runs beside the model.

    vLLM 0.32.0 on a CPU multiplies with a packed copy of the head, and a reload never rebuilds that of a tied one: the
    engine would go on with the new body under the old head.
    """
    head: Any = getattr(model, "lm_head", None)
    if getattr(head, "cpu_linear", None) is None or not model.config.tie_word_embeddings:
        return
    from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

    dispatch_cpu_unquantized_gemm(head, remove_weight=False)
