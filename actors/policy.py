"""The policy: one vLLM engine that samples rollouts, takes new weights, and proves that it answers with them.

Every call into vLLM is in this file, and vLLM is imported only when an engine is built. This is not the trainer:
weights come as a folder on disk, a Hugging Face model or a PEFT adapter over the model that the engine holds. It reads
and writes token ids only; prompts and tokenizers live in the library. One engine uses one device; for more, place more
actors.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal

from actors.engine_weights import (
    base_of,
    check_adapter,
    check_same_shapes,
    first_different_tensor,
    read_pointer,
    read_weight_shapes,
    write_pointer,
)
from actors.telemetry import RayListener
from plansmith.errors import BadInputError, ConfigError, PlansmithError, StalePolicyError
from plansmith.live import LiveFile, LiveProgress, report, report_to

GIB = 2**30

ENGINE_LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The ranks that vLLM 0.32.0 can be built for; an adapter may have any rank up to the one chosen."""


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """How the engine is built; the defaults suit `tiny` on one CPU core.

    Attributes:
        max_model_len: prompt plus completion, in tokens; a longer completion is cut with finish reason ``length``.
        max_num_seqs: rollouts decoded together.
        kv_cache_gib: memory of the key-value cache; None takes `gpu_memory_utilization` of the device instead.
        dtype: ``float32``, ``bfloat16`` or ``float16``.
        n_threads: OpenMP threads of this process. Decoding a small model is bound by Python, so several actors of
            one thread are meant to serve it better than one actor of several; not yet measured on idle cores.
        enforce_eager: skip compilation and CUDA graphs; right on a CPU, slower on a GPU.
        lora_rank: largest rank of an adapter; None builds an engine that takes whole models only, and is faster.
        has_sleep_mode: let `PolicyActor.sleep` give the GPU's memory away. No effect on a CPU.
    """

    max_model_len: int = 1024
    max_num_seqs: int = 256
    kv_cache_gib: float | None = 0.5
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    gpu_memory_utilization: float = 0.9
    n_threads: int = 1
    enforce_eager: bool = True
    seed: int = 0
    lora_rank: int | None = None
    has_sleep_mode: bool = False

    def __post_init__(self) -> None:
        if self.lora_rank is not None and not 1 <= self.lora_rank <= ENGINE_LORA_RANKS[-1]:
            raise ConfigError(
                "the engine takes no adapter of this rank",
                got=f"lora_rank={self.lora_rank}",
                expected=f"1 to {ENGINE_LORA_RANKS[-1]}",
            )


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """How completions are drawn; `n` rollouts a prompt, temperature 0 is greedy."""

    temperature: float
    max_new_tokens: int
    n: int
    stop_token_ids: tuple[int, ...]
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 2:
            raise ValueError(f"temperature {self.temperature} is outside 0 to 2, which is what the engine accepts")
        if self.max_new_tokens < 1 or self.n < 1:
            raise ValueError(f"max_new_tokens {self.max_new_tokens} and n {self.n} must be at least 1")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p {self.top_p} is outside 0 to 1")


@dataclass(frozen=True, slots=True)
class Generation:
    """One completion.

    Attributes:
        token_ids: the sampled tokens, the stop token included.
        logprobs: of each sampled token under the model itself, before temperature and `top_p`.
        finish_reason: ``stop``, or ``length`` for a truncated completion.
        policy_version: the weights that wrote it.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str
    policy_version: str


class PolicyActor:
    """Samples from the current weights. A plain class; ``ray.remote`` is applied where the pipeline places it.

    Building the engine changes its process for good (thread count, a process group, `torch.set_num_threads` does
    nothing any more), so give it a process of its own, as Ray does.

    Args:
        weights_folder: model or adapter to start from; the base of an adapter is loaded first.
        policy_version: name of those weights.
        settings: how the engine is built.
        pointer: JSON file that names the current weights. `load_weights` writes it, and an actor that Ray restarts
            starts from it; a first start ignores what it says, so that a leftover of an older run is harmless.
        run_folder: where it says what it is doing (`plansmith.live`).
        number: of this engine among several.

    Raises:
        BadInputError: the folder is no usable model or adapter; found before the engine starts.
    """

    def __init__(
        self,
        weights_folder: str,
        policy_version: str,
        *,
        settings: PolicySettings | None = None,
        pointer: str | None = None,
        run_folder: str | None = None,
        number: int = 0,
    ) -> None:
        self._settings = settings or PolicySettings()
        if run_folder is not None:
            source = f"policy-{number}"
            report_to(LiveFile(Path(run_folder), source), RayListener(Path(run_folder).name, source))
        report("starting the engine")
        self._pointer = Path(pointer) if pointer else None
        if self._pointer and self._pointer.exists() and _is_restarted_actor():
            weights_folder, policy_version = read_pointer(self._pointer)
        folder = str(Path(weights_folder).resolve())
        self._base_folder = base_of(folder)
        self._shapes = read_weight_shapes(self._base_folder)
        self._check(folder)
        self._adapter: Any = None  # vLLM's LoRARequest, given with every prompt; None samples from the base
        self._adapter_numbers = count(1)
        self._sleep_level: int | None = None
        self._llm = self._build_engine()
        if folder != self._base_folder:
            self._load_adapter(folder, policy_version)
        self._remember(folder, policy_version)

    def ping(self) -> str:
        """Return the policy version; an answer means that the engine is up."""
        return self._policy_version

    def policy_version(self) -> str:
        """Return the name of the weights that the engine holds."""
        return self._policy_version

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: SamplingSettings,
        *,
        seeds: Sequence[int],
        description: str | None,
    ) -> list[list[Generation]]:
        """Return `n` completions for each prompt, in the order of the prompts.

        A completion depends on its prompt, its seed and the weights. The engine adds one caveat: rounding in the matrix
        products depends on how many rollouts are decoded together, which at a near tie can turn a token.

        Args:
            prompts: token ids.
            sampling: shared by all prompts.
            seeds: (prompts * n,); seed ``i * n + k`` belongs to completion k of prompt i.
            description: what it says it is doing; None says nothing.

        Raises:
            BadInputError: a prompt that is empty, too long or outside the vocabulary; wrong number of seeds.
            PlansmithError: the engine sleeps, or it lost a prompt.
        """
        self._check_request(prompts)
        if len(seeds) != len(prompts) * sampling.n:
            raise BadInputError(
                "every completion needs its own seed",
                where="PolicyActor.generate",
                got=f"{len(seeds)} seeds",
                expected=f"{len(prompts)} prompts * {sampling.n} = {len(prompts) * sampling.n}",
            )
        repeated = [list(prompt) for prompt in prompts for _ in range(sampling.n)]
        finished = self._run(repeated, [_sampling_params(sampling, seed) for seed in seeds], description)
        generations = [self._generation(output) for output in finished]
        return [generations[i : i + sampling.n] for i in range(0, len(generations), sampling.n)]

    def prompt_logprobs(self, token_ids: Sequence[int]) -> list[float]:
        """Return log p(token | tokens before it) for every token but the first: ``len(token_ids) - 1`` numbers."""
        self._check_request([token_ids])
        from vllm import SamplingParams

        params = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0, detokenize=False)
        [output] = self._run([list(token_ids)], [params], None)
        rows = output.prompt_logprobs[1:]
        return [row[token].logprob for row, token in zip(rows, token_ids[1:], strict=True)]

    def load_weights(self, weights_folder: str, policy_version: str) -> None:
        """Take other weights, forget every cached prefix, and point restarts at the new folder.

        A model replaces the weights in place, and its tensors are compared with the folder's afterwards. On a CPU the
        matrices of linear layers are repacked for the hardware and cannot be compared, embeddings and norms can. An
        adapter goes beside the base, which the engine already holds; the base itself again means no adapter. `prove` is
        what covers all of them. An engine that sleeps wakes up.

        Raises:
            BadInputError: no usable model or adapter, another shape, or an adapter over another base; the old weights
                stay.
            StalePolicyError: the engine did not take the weights over.
        """
        folder = str(Path(weights_folder).resolve())
        self._check(folder)
        self._wake()
        if base_of(folder) != folder:
            self._load_adapter(folder, policy_version)
        else:
            self._load_model(folder, policy_version)
        if not self._llm.reset_prefix_cache():
            raise StalePolicyError("the prefix cache of the old weights could not be cleared", where=folder)
        self._remember(folder, policy_version)

    def _build_engine(self) -> Any:
        return _build_engine(self._base_folder, self._settings)

    def _check(self, weights_folder: str) -> None:
        """Refuse a folder that the engine cannot take, before anything changes."""
        base = base_of(weights_folder)
        if base == weights_folder:
            check_same_shapes(weights_folder, read_weight_shapes(weights_folder), self._shapes)
            return
        if self._settings.lora_rank is None:
            raise BadInputError("the engine was built without adapters", where=weights_folder,
                                expected="a whole model", cure="set lora_rank to the adapter's rank")  # fmt: skip
        if base != self._base_folder:
            raise BadInputError("an adapter over another base", where=weights_folder, got=base,
                                expected=self._base_folder)  # fmt: skip
        check_adapter(weights_folder, self._shapes, max_rank=self._settings.lora_rank)

    def _load_adapter(self, folder: str, policy_version: str) -> None:
        """Put an adapter beside the base, under a number never used before: vLLM knows adapters by number, not content.

        Raises:
            BadInputError: vLLM refuses it; the old weights stay.
            StalePolicyError: the engine holds no adapter, or also another.
        """
        request = _lora_request(next(self._adapter_numbers), folder, policy_version)
        engine, old = self._llm.llm_engine, self._adapter
        try:
            engine.add_lora(request)
        except ValueError as error:
            raise BadInputError("vLLM refuses the adapter", where=folder, got=str(error)) from error
        self._policy_version, self._adapter = "unknown", request  # until the check below has passed
        if old is not None:
            engine.remove_lora(old.lora_int_id)
        held = set(engine.list_loras())
        if held != {request.lora_int_id}:
            raise StalePolicyError(f"the engine does not hold the adapter of {policy_version}", where=folder,
                                   got=f"adapters {sorted(held)}", expected=f"[{request.lora_int_id}]")  # fmt: skip

    def _load_model(self, folder: str, policy_version: str) -> None:
        """Drop the adapter; replace the weights unless the engine holds exactly these beneath it.

        Raises:
            StalePolicyError: the engine holds other values than the folder.
        """
        self._policy_version = "unknown"  # until the check below has passed
        if self._adapter is not None:
            self._llm.llm_engine.remove_lora(self._adapter.lora_int_id)
            self._adapter = None
        if self._settings.lora_rank is None or folder != self._base_folder:
            self._llm.collective_rpc("reload_weights", kwargs={"weights_path": folder})
            self._llm.apply_model(_repack_tied_head)
            self._base_folder = folder
        different = self._llm.apply_model(lambda model: first_different_tensor(model, folder))[0]
        if different:
            raise StalePolicyError(
                f"the engine does not hold the weights of {policy_version}",
                where=folder,
                got=f"other values in {different}",
                expected="the values in the folder",
            )

    def sleep(self) -> None:
        """Give the memory of weights and cache back to the GPU until `wake_up` or `load_weights`.

        With adapters the base outlives every update: vLLM's level 1 keeps it in the host's memory. Without, the next
        weights come from a folder anyway: level 2 drops them, and `wake_up` reads the folder again. vLLM 0.32.0 has no
        sleep mode on a CPU, where the two share the host's memory and nothing could be given back: no effect there.
        """
        if self._sleep_level is None and self._llm.model_config.enable_sleep_mode:
            level = 2 if self._settings.lora_rank is None else 1
            self._llm.sleep(level=level)
            self._sleep_level = level

    def wake_up(self) -> None:
        """Come back with the weights and the version of before; a call while awake changes nothing."""
        if self._wake() == 2:
            version = self._policy_version
            self._load_model(self._base_folder, version)
            self._policy_version = version

    def _wake(self) -> int | None:
        """Take the memory again and return the level of the sleep; after level 2 the weights are still to be read."""
        level, self._sleep_level = self._sleep_level, None
        if level is not None:
            self._llm.wake_up()
        return level

    def prove(self, probe_token_ids: Sequence[int], trainer_logprobs: Sequence[float], *, tolerance: float) -> float:
        """Return the largest absolute difference between the engine's log-probabilities and the trainer's.

        Args:
            probe_token_ids: (T,)
            trainer_logprobs: (T - 1,), of tokens 1 to T-1.
            tolerance: largest difference to accept.

        Raises:
            StalePolicyError: above the tolerance, or not a number. The message has both numbers.
        """
        engine_logprobs = self.prompt_logprobs(probe_token_ids)
        pairs = list(zip(engine_logprobs, trainer_logprobs, strict=True))
        if not pairs:
            raise ValueError("a probe needs at least two tokens")
        differences = [_difference(engine, trainer) for engine, trainer in pairs]
        worst = max(range(len(pairs)), key=differences.__getitem__)
        if differences[worst] > tolerance:
            raise StalePolicyError(
                f"the engine disagrees with the trainer about {self._policy_version}",
                where=f"probe token {worst + 1}",
                got=f"log-probability {pairs[worst][0]:.6f} from the engine",
                expected=f"{pairs[worst][1]:.6f} from the trainer, within {tolerance:g}",
                cure="the weights that were saved are not those of the trainer, or the engine did not load them",
            )
        return differences[worst]

    def _remember(self, weights_folder: str, policy_version: str) -> None:
        self._policy_version = policy_version
        if self._pointer:
            write_pointer(self._pointer, weights_folder, policy_version)

    def _check_request(self, prompts: Sequence[Sequence[int]]) -> None:
        if self._sleep_level is not None:
            raise PlansmithError("the engine sleeps", where="PolicyActor", cure="call wake_up or load_weights first")
        _check_prompts(prompts, self._settings.max_model_len, self._llm.model_config.get_vocab_size())

    def _generation(self, output: Any) -> Generation:
        completion = output.outputs[0]
        return Generation(
            token_ids=tuple(completion.token_ids),
            logprobs=tuple(completion.logprobs.logprobs),
            finish_reason=completion.finish_reason,
            policy_version=self._policy_version,
        )

    def _run(self, prompts: list[list[int]], params: list[Any], description: str | None) -> list[Any]:
        """Return vLLM's outputs in the order of the prompts; without a description nobody is told.

        Raises:
            PlansmithError: the engine is idle and some prompt has no output.
        """
        engine = self._llm.llm_engine
        inputs = [{"prompt_token_ids": prompt} for prompt in prompts]
        ids = self._llm.enqueue(inputs, params, lora_request=self._adapter, use_tqdm=False)
        progress = LiveProgress(description, len(prompts), unit="rollout") if description is not None else None
        outputs: list[Any] = []
        start_s, n_tokens = time.perf_counter(), 0
        try:
            while engine.has_unfinished_requests():
                finished = [output for output in engine.step() if output.finished]
                outputs += finished
                if finished and progress is not None:
                    n_tokens += sum(len(output.outputs[0].token_ids) for output in finished)
                    speed = n_tokens / (time.perf_counter() - start_s)
                    progress.advance(len(finished), {"rollout/tokens_per_s": speed})
        finally:  # after an interrupt nothing may stay in the engine, or the next call would decode it too
            if len(outputs) < len(ids):
                engine.abort_request(ids, internal=True)
        if len(outputs) != len(ids):
            raise PlansmithError("the engine lost prompts", where="PolicyActor", got=f"{len(outputs)} outputs",
                                 expected=str(len(ids)), cure="give the command again")  # fmt: skip
        return sorted(outputs, key=lambda output: int(output.request_id))


def _check_prompts(prompts: Sequence[Sequence[int]], max_model_len: int, vocab_size: int) -> None:
    for index, prompt in enumerate(prompts):
        where = f"prompt {index}"
        if not 0 < len(prompt) < max_model_len:
            expected = f"1 to {max_model_len - 1} (max_model_len is {max_model_len}, one token must be left to write)"
            raise BadInputError("prompt length", where=where, got=f"{len(prompt)} tokens", expected=expected)
        if min(prompt) < 0 or max(prompt) >= vocab_size:
            got, expected = f"tokens {min(prompt)} to {max(prompt)}", f"0 to {vocab_size - 1}"
            raise BadInputError("token outside the vocabulary", where=where, got=got, expected=expected)


def _difference(engine: float, trainer: float) -> float:
    difference = abs(engine - trainer)
    return difference if difference == difference else float("inf")  # NaN compares false with every tolerance


def _is_restarted_actor() -> bool:
    """Return whether Ray runs this constructor again for an actor that died."""
    if not _is_inside_actor():
        return False
    import ray

    return bool(ray.get_runtime_context().was_current_actor_reconstructed)


def _is_inside_actor() -> bool:
    if "ray" not in sys.modules:
        return False
    import ray

    return ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None


def _build_engine(weights_folder: str, settings: PolicySettings) -> Any:
    """Return a vLLM engine that runs in this process, quietly and without network.

    Chunked prefill is off on a CPU: with a seed a request it ends there in "CPU Generator does not use offset"
    (vLLM 0.32.0). `generation_config="vllm"` keeps the folder's sampling defaults out: rollouts are drawn as
    `SamplingSettings` says and in no other way.
    """
    os.environ.update(_engine_environment(settings))
    warnings.filterwarnings("ignore", category=FutureWarning, module="vllm")
    logging.getLogger("torch._library.triton").setLevel(logging.ERROR)  # "Triton not available", at every start
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
        seed=settings.seed,
        max_model_len=settings.max_model_len,
        max_num_seqs=settings.max_num_seqs,
        kv_cache_memory_bytes=None if settings.kv_cache_gib is None else int(settings.kv_cache_gib * GIB),
        gpu_memory_utilization=settings.gpu_memory_utilization,
        enforce_eager=settings.enforce_eager,
        enable_prefix_caching=True,
        enable_chunked_prefill=not current_platform.is_cpu(),
        logprobs_mode="raw_logprobs",
        disable_log_stats=True,
        use_tqdm_on_load=False,
        enable_sleep_mode=settings.has_sleep_mode and current_platform.is_sleep_mode_available(),
        **_lora_options(settings, is_cpu=current_platform.is_cpu()),
    )
    gc.collect()
    gc.freeze()  # a million objects of imports, walked again by every full collection while decoding
    return llm


def _lora_options(settings: PolicySettings, *, is_cpu: bool) -> dict[str, Any]:
    """Return what an engine with room for one adapter is built with; nothing without adapters.

    Raises:
        ConfigError: float32 on a GPU, where vLLM's kernels for adapters stop at an assertion.
    """
    if settings.lora_rank is None:
        return {}
    if settings.dtype == "float32" and not is_cpu:
        raise ConfigError("vLLM's adapters on a GPU are 16 bits wide", got="dtype=float32",
                          expected="dtype=bfloat16 or float16", cure="set policy.dtype=bfloat16")  # fmt: skip
    rank = next(rank for rank in ENGINE_LORA_RANKS if rank >= settings.lora_rank)
    return {"enable_lora": True, "max_lora_rank": rank, "max_loras": 1, "max_cpu_loras": 1}


def _lora_request(number: int, folder: str, policy_version: str) -> Any:
    from vllm.lora.request import LoRARequest

    return LoRARequest(lora_name=f"{policy_version}-{number}", lora_int_id=number, lora_path=folder)


def _engine_environment(settings: PolicySettings) -> dict[str, str]:
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
        # Counting log-probabilities is decorated with torch.compile, which on a CPU needs a C++ compiler at run time.
        **({"TORCHDYNAMO_DISABLE": "1"} if settings.enforce_eager else {}),
    }


def _sampling_params(sampling: SamplingSettings, seed: int) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        max_tokens=sampling.max_new_tokens,
        stop_token_ids=list(sampling.stop_token_ids),
        ignore_eos=True,  # or the folder's own end token would stop it beside `stop_token_ids`
        seed=seed,
        logprobs=0,  # of the sampled token only
        flat_logprobs=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


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
