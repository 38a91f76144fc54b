"""The policy: one vLLM engine that samples rollouts, takes new weights, and proves that it answers with them.

Every call into vLLM is in this file, and vLLM is imported only when an engine is built. This is not the trainer:
weights come as a Hugging Face folder on disk (`config.json` and `*.safetensors`). It reads and writes token ids only;
prompts and tokenizers live in the library. One engine uses one device; for more, place more actors.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from plansmith.errors import BadInputError, StalePolicyError

GIB = 2**30

TensorShapes = dict[str, tuple[int, ...]]


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
    """

    max_model_len: int = 1024
    max_num_seqs: int = 256
    kv_cache_gib: float | None = 0.5
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    gpu_memory_utilization: float = 0.9
    n_threads: int = 1
    enforce_eager: bool = True
    seed: int = 0


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
        weights_folder: Hugging Face folder to start from.
        policy_version: name of those weights.
        settings: how the engine is built.
        pointer: JSON file that names the current weights. `load_weights` writes it, and an actor that Ray restarts
            starts from it; a first start ignores what it says, so that a leftover of an older run is harmless.

    Raises:
        BadInputError: the folder is no usable model; found before the engine starts.
    """

    def __init__(
        self,
        weights_folder: str,
        policy_version: str,
        *,
        settings: PolicySettings | None = None,
        pointer: str | None = None,
    ) -> None:
        self._settings = settings or PolicySettings()
        self._pointer = Path(pointer) if pointer else None
        if self._pointer and self._pointer.exists() and _is_restarted_actor():
            weights_folder, policy_version = _read_pointer(self._pointer)
        self._shapes = read_weight_shapes(weights_folder)
        self._llm = _build_engine(weights_folder, self._settings)
        self._remember(weights_folder, policy_version)

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
        description: str,
    ) -> list[list[Generation]]:
        """Return `n` completions for each prompt, in the order of the prompts.

        A completion depends on its prompt, its seed and the weights. The engine adds one caveat: rounding in the matrix
        products depends on how many rollouts are decoded together, which at a near tie can turn a token.

        Args:
            prompts: token ids.
            sampling: shared by all prompts.
            seeds: (prompts * n,); seed ``i * n + k`` belongs to completion k of prompt i.
            description: text of the progress bar.

        Raises:
            BadInputError: a prompt that is empty, too long or outside the vocabulary; wrong number of seeds.
        """
        _check_prompts(prompts, self._settings.max_model_len, self._llm.model_config.get_vocab_size())
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
        from vllm import SamplingParams

        _check_prompts([token_ids], self._settings.max_model_len, self._llm.model_config.get_vocab_size())
        params = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0, detokenize=False)
        [output] = self._run([list(token_ids)], [params], None)
        rows = output.prompt_logprobs[1:]
        return [row[token].logprob for row, token in zip(rows, token_ids[1:], strict=True)]

    def load_weights(self, weights_folder: str, policy_version: str) -> None:
        """Replace the weights in place, forget every cached prefix, and point restarts at the new folder.

        Compares the engine's tensors with the folder's afterwards. On a CPU the matrices of linear layers are repacked
        for the hardware and cannot be compared, embeddings and norms can; `prove` is what covers all of them.

        Raises:
            BadInputError: the folder is no usable model, or one of another shape; the old weights stay.
            StalePolicyError: the engine did not take the weights over.
        """
        _check_same_shapes(weights_folder, read_weight_shapes(weights_folder), self._shapes)
        folder = str(Path(weights_folder).resolve())
        self._policy_version = "unknown"  # until the check below has passed
        self._llm.collective_rpc("reload_weights", kwargs={"weights_path": folder})
        self._llm.apply_model(_repack_tied_head)
        if not self._llm.reset_prefix_cache():
            raise StalePolicyError("the prefix cache of the old weights could not be cleared", where=folder)
        different = self._llm.apply_model(lambda model: _first_different_tensor(model, folder))[0]
        if different:
            raise StalePolicyError(
                f"the engine does not hold the weights of {policy_version}",
                where=folder,
                got=f"other values in {different}",
                expected="the values in the folder",
            )
        self._remember(folder, policy_version)

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
            _write_pointer(self._pointer, weights_folder, policy_version)

    def _generation(self, output: Any) -> Generation:
        completion = output.outputs[0]
        return Generation(
            token_ids=tuple(completion.token_ids),
            logprobs=tuple(completion.logprobs.logprobs),
            finish_reason=completion.finish_reason,
            policy_version=self._policy_version,
        )

    def _run(self, prompts: list[list[int]], params: list[Any], description: str | None) -> list[Any]:
        """Return vLLM's outputs in the order of the prompts; no bar without a description."""
        engine = self._llm.llm_engine
        ids = self._llm.enqueue([{"prompt_token_ids": prompt} for prompt in prompts], params, use_tqdm=False)
        outputs: list[Any] = []
        try:
            with _progress(len(prompts), description) as advance:
                while engine.has_unfinished_requests():
                    finished = [output for output in engine.step() if output.finished]
                    outputs += finished
                    if finished:
                        advance(len(finished))
        finally:  # after an interrupt nothing may stay in the engine, or the next call would decode it too
            if len(outputs) < len(ids):
                engine.abort_request(ids, internal=True)
        return sorted(outputs, key=lambda output: int(output.request_id))


def read_weight_shapes(weights_folder: str) -> TensorShapes:
    """Return the shape of every tensor in a Hugging Face folder; this is also the check that the folder is a model.

    Raises:
        BadInputError: no folder, no readable `config.json`, no `*.safetensors`, or a damaged one.
    """
    from safetensors import SafetensorError, safe_open

    folder = Path(weights_folder)
    config = folder / "config.json"
    files = sorted(folder.glob("*.safetensors"))
    cure = "give a folder written by save_pretrained, with config.json and *.safetensors"
    if not config.is_file() or not files:
        missing = "no such folder" if not folder.is_dir() else "no config.json" if files else "no *.safetensors"
        raise BadInputError("not a model folder", where=str(folder), got=missing, cure=cure)
    shapes: TensorShapes = {}
    try:
        json.loads(config.read_text(encoding="utf-8"))
        for file in files:
            with safe_open(file, framework="numpy") as tensors:
                names = tensors.keys()
                shapes.update((name, tuple(tensors.get_slice(name).get_shape())) for name in names)
    except (SafetensorError, ValueError) as error:
        raise BadInputError("damaged model folder", where=str(folder), got=str(error), cure=cure) from error
    return shapes


def _check_same_shapes(weights_folder: str, got: TensorShapes, expected: TensorShapes) -> None:
    differing = sorted(name for name in got.keys() | expected.keys() if got.get(name) != expected.get(name))
    if differing:
        name = differing[0]
        raise BadInputError(
            f"these weights do not fit the running engine ({len(differing)} tensors differ)",
            where=weights_folder,
            got=f"{name} {got.get(name, 'absent')}",
            expected=f"{name} {expected.get(name, 'absent')}",
        )


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


def _read_pointer(pointer: Path) -> tuple[str, str]:
    content = json.loads(pointer.read_text(encoding="utf-8"))
    return content["weights_folder"], content["policy_version"]


def _write_pointer(pointer: Path, weights_folder: str, policy_version: str) -> None:
    content = {"weights_folder": str(Path(weights_folder).resolve()), "policy_version": policy_version}
    partial = pointer.with_name(f"{pointer.name}.{os.getpid()}.partial")
    partial.write_text(json.dumps(content), encoding="utf-8")
    partial.replace(pointer)


@contextmanager
def _progress(total: int, description: str | None) -> Iterator[Callable[[int], Any]]:
    """Yield a function that advances a bar; Ray's own inside an actor, where bars of several actors line up."""
    if description is None:
        yield lambda _: None
        return
    if _is_inside_actor():
        from ray.experimental import tqdm_ray as bars
    else:
        import tqdm as bars
    bar: Any = bars.tqdm(total=total, desc=description, unit="rollout")
    try:
        yield bar.update
    finally:
        bar.close()


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
    )
    gc.collect()
    gc.freeze()  # a million objects of imports, walked again by every full collection while decoding
    return llm


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


def _first_different_tensor(model: Any, folder: str) -> str | None:
    """Return a tensor whose values in the engine are not the folder's, or None; runs beside the model.

    Query, key and value (and gate and up) are one matrix in the engine, in that order. Tensors that the engine holds in
    another form, such as linear layers on a CPU, are passed over.
    """
    import torch
    from safetensors import safe_open

    held = dict(model.named_parameters())
    packed = getattr(model, "packed_modules_mapping", {})
    parts = {part: (whole, names) for whole, names in packed.items() for part in names}
    for file in sorted(Path(folder).glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            names = set(tensors.keys())
            for name in names:
                module = name.split(".")[-2] if name.count(".") else ""
                whole, pieces = parts.get(module, (module, [module]))
                wanted = [name.replace(f".{module}.", f".{whole_piece}.") for whole_piece in pieces]
                holder = held.get(name.replace(f".{module}.", f".{whole}."))
                if holder is None or not names.issuperset(wanted):
                    continue
                values = torch.cat([tensors.get_tensor(piece) for piece in wanted]).to(holder)
                rows = holder[: len(values)] if holder.dim() else holder  # the vocabulary is padded
                if rows.shape == values.shape and not torch.equal(rows, values):
                    return str(name)
    return None
