"""The trainer: a resident Ray actor that holds a model, or an adapter on a frozen one, and optimises it.

`TrainerActor` is a plain class, testable without Ray; the pipeline wraps it with ``ray.remote``. The loop itself is in
`plansmith.learning.optimisation`, the calls into DeepSpeed are in `actors.deepspeed_engine`, adapters and their folders
in `plansmith.learning.adapters`. Heavy libraries are imported when an actor is made, not when this file is.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actors.deepspeed_engine import DeepSpeedEngineAdapter, EngineSettings
from actors.telemetry import RayListener, record_as
from plansmith.errors import BadInputError, ConfigError
from plansmith.garbage import no_garbage
from plansmith.learning import adapters
from plansmith.learning.adapters import LoraSettings
from plansmith.live import LiveFile, LiveProgress, report, report_to

if TYPE_CHECKING:
    import torch

    from plansmith.learning.objectives import Objective
    from plansmith.learning.optimisation import Hyperparameters, OptimisationReport
    from plansmith.learning.packing import PackedBatch
    from plansmith.learning.printed_losses import LossWeights
    from plansmith.learning.sequences import TrainingSequence

logger = logging.getLogger(__name__)

BFLOAT16_INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16")
"""The last is Arm's; as `torch.cpu.get_capabilities` names them."""


@dataclass(frozen=True, slots=True)
class TrainerSettings:
    """What cannot change while the actor lives; what differs between phases is in `Hyperparameters`."""

    zero_stage: int = 1
    """What is sharded over ranks: 1 the optimizer's state, 2 the gradients too, 3 the weights too."""
    dtype: str = "float32"
    """``float32`` or ``bfloat16``. With bfloat16 the optimizer keeps float32 weights; an adapter is float32 itself."""
    is_autocast: bool | None = False
    """With float32: keep the weights so, compute matrix products in bfloat16. What is saved and probed is float32.
    ``None``: where the devices of all ranks have instructions for it."""
    device: str = "cpu"
    """``cpu`` (gloo) or ``cuda`` (nccl)."""
    n_threads: int = 0
    """Threads of torch on a CPU; 0 takes every core. Ray starts its actors with one."""
    row_length_tokens: int = 1024
    """Longest sequence, and length of a packed row. Longer sequences are dropped and counted."""
    micro_batch_rows: int = 1
    """Rows of one forward pass; memory grows with it, the result does not change."""
    optimizer: str = "adamw"
    """``adamw``, or ``muon``: Muon on the matrices of the layers, AdamW on embeddings, norms, biases and head."""
    is_checkpointing_activations: bool = False
    """Recompute activations in the backward pass: less memory, about a third more time."""
    offload: str = "none"
    """``optimizer`` keeps the optimizer's state in the memory of the host, ``all`` the weights too (ZeRO 3). On a CPU
    they are there anyway; the code that runs is the same."""
    quantisation: str = "none"
    """``nf4`` holds the frozen matrices in four bits, with ``lora`` (QLoRA)."""
    lora: LoraSettings | None = None
    """Train an adapter; ``None`` trains every weight."""
    seed: int = 0
    valid_token_id: int = -1
    invalid_token_id: int = -1
    timeout_s: float = 120.0
    """Longest wait for another rank; a dead one is an error then, not a hang."""

    def __post_init__(self) -> None:
        _check_choice("zero_stage", self.zero_stage, (1, 2, 3))
        _check_choice("dtype", self.dtype, ("float32", "bfloat16"))
        _check_choice("device", self.device, ("cpu", "cuda"))
        _check_choice("optimizer", self.optimizer, ("adamw", "muon"))
        _check_choice("offload", self.offload, ("none", "optimizer", "all"))
        _check_choice("quantisation", self.quantisation, ("none", "nf4"))
        if self.optimizer == "muon":
            reason = "muon needs whole gradients on the device to clip them, and is made for whole matrices"
            got = f"zero_stage={self.zero_stage}, offload={self.offload}, lora={self.lora}"
            if (self.zero_stage, self.offload, self.lora) != (1, "none", None):
                raise ConfigError(reason, got=got, expected="zero_stage=1, offload=none and no lora")
        if self.offload == "all" and self.zero_stage != 3:
            raise ConfigError("only ZeRO 3 can offload weights", got=f"zero_stage={self.zero_stage}", expected="3")
        if self.quantisation != "none" and (self.lora is None or self.zero_stage == 3):
            raise ConfigError(
                "weights in four bits stay frozen and cannot be sharded",
                got=f"lora={self.lora}, zero_stage={self.zero_stage}",
                expected="lora, and zero_stage 1 or 2",
            )

    @property
    def is_computing_in_bfloat16(self) -> bool:
        """Return whether matrix products are in bfloat16."""
        return bool(self.is_autocast) or self.dtype == "bfloat16"

    def fitted_to(self, *, has_bfloat16: bool) -> TrainerSettings:
        """Return the settings with what was left to the device decided."""
        if self.is_autocast is not None:
            return self
        return replace(self, is_autocast=has_bfloat16 and self.dtype == "float32")

    def engine_settings(self, *, has_bfloat16: bool) -> EngineSettings:
        """Return what DeepSpeed has to know."""
        is_bfloat16 = self.dtype == "bfloat16" and self.lora is None  # an adapter is trained in float32
        return EngineSettings(
            zero_stage=self.zero_stage,
            is_bfloat16=is_bfloat16,
            is_autocast=bool(self.is_autocast),
            has_bfloat16=has_bfloat16,
            device=self.device,
            optimizer=self.optimizer,
            offload=self.offload,
        )


def _check_choice(name: str, got: object, allowed: tuple[object, ...]) -> None:
    if got not in allowed:
        raise ConfigError(f"{name} cannot be used", got=repr(got), expected=f"one of {allowed}")


class TrainerActor:
    """One rank of the trainer. Every rank gets the same calls with the same sequences and cuts its own share."""

    def __init__(
        self,
        model_folder: str | Path,
        *,
        settings: TrainerSettings,
        rank: int = 0,
        world_size: int = 1,
        master_addr: str = "127.0.0.1",
        master_port: int = 0,
        run_folder: str | None = None,
    ) -> None:
        """Load the model and start the engine.

        Args:
            model_folder: Hugging Face layout; its tokenizer files travel with every `save`. With ``lora`` either the
                base, which gets a fresh adapter whose product is zero, or an adapter folder.
            master_addr, master_port: where rank 0 listens; not used with one rank.
            run_folder: where rank 0 says what it is doing (`plansmith.live`).

        Raises:
            BadInputError: the folder holds no model, an adapter without its base, or one that does not fit ``lora``.
        """
        self.rank, self.world_size = rank, world_size
        if run_folder is not None and rank == 0:
            report_to(LiveFile(Path(run_folder), "trainer"), RayListener(Path(run_folder).name, "trainer"))
        report("loading the model")
        folder = Path(model_folder)
        self.base_folder = _base_folder(folder, settings)
        with no_garbage():
            _prepare_process(settings, rank)
            _join_process_group(settings, rank, world_size, f"tcp://{master_addr}:{master_port}")
            has_bfloat16 = _has_bfloat16(settings.device)
            self.settings = settings = settings.fitted_to(has_bfloat16=has_bfloat16)
            model = _load_model(self.base_folder, settings, rank)
            self.engine = DeepSpeedEngineAdapter(model, settings.engine_settings(has_bfloat16=has_bfloat16))
        if settings.lora is not None:
            self._fresh_adapter = self._on_every_rank(self.engine.weights())
            if adapters.is_adapter_folder(folder):
                self.load(folder)

    def optimise(
        self,
        objective: Objective,
        sequences: Sequence[TrainingSequence],
        hyperparameters: Hyperparameters,
        *,
        weights: LossWeights | None = None,
        description: str = "",
        max_length_tokens: int | None = None,
    ) -> OptimisationReport:
        """Train on ``sequences``; return losses and rates by step, and how many sequences did not fit.

        Args:
            objective: what is minimised.
            sequences: the same on every rank.
            hyperparameters: of this phase.
            weights: of the losses' terms.
            description: what a progress bar says.
            max_length_tokens: longest sequence that is trained on; longer ones are left out whole, never cut. ``None``,
                or a number above ``row_length_tokens``: a row.

        Raises:
            BadInputError: nothing to train on, or no verdict tokens where the objective needs them.
            PlansmithError: training diverged.
        """
        from plansmith.learning.objectives import Objective, VerdictTokens
        from plansmith.learning.optimisation import plan_optimisation, run_optimisation
        from plansmith.learning.printed_losses import LossWeights

        if objective is Objective.FINAL:
            self._require_verdict_tokens()
        settings = self.settings
        plan = plan_optimisation(
            [len(sequence) for sequence in sequences],
            hyperparameters,
            row_length_tokens=settings.row_length_tokens,
            micro_batch_rows=settings.micro_batch_rows,
            n_ranks=self.world_size,
            max_length_tokens=max_length_tokens,
        )
        self.engine.prepare(hyperparameters)
        doing = description or objective.value
        record_as(objective=objective.value)
        return run_optimisation(
            self.engine,
            objective,
            sequences,
            hyperparameters,
            plan,
            micro_batch_rows=settings.micro_batch_rows,
            weights=weights or LossWeights(),
            verdict_tokens=VerdictTokens(settings.valid_token_id, settings.invalid_token_id),
            progress=LiveProgress(doing, len(plan.batches), unit="step"),
            description=doing,
        )

    def verdict_probabilities(self, sequences: Sequence[TrainingSequence]) -> list[float | None]:
        """Return v_hat, the probability of VALID against INVALID at the verdict; ``None`` without a verdict.

        A sequence longer than ``row_length_tokens`` is judged in a row of its own, not dropped. Every rank must make
        this call, judges its share and gets the whole answer.
        """
        from plansmith.learning.losses import verdict_logits

        self._require_verdict_tokens()
        own = [0.0] * len(sequences)
        judged = [index for index, sequence in enumerate(sequences) if sequence.verdict_position >= 0]
        for batch in self._own_batches(sequences, judged):
            two_logits = verdict_logits(
                self.engine.predict(batch),
                batch.verdict_rows,
                batch.verdict_columns,
                valid_id=self.settings.valid_token_id,
                invalid_id=self.settings.invalid_token_id,
            )
            places = [index for row in batch.rows for index in row]
            for index, v_hat in zip(places, two_logits.softmax(dim=-1)[:, 1].tolist(), strict=True):
                own[index] = v_hat
        v_hats = self.engine.sum_over_ranks(own)
        return [v_hats[index] if sequence.verdict_position >= 0 else None for index, sequence in enumerate(sequences)]

    def _own_batches(self, sequences: Sequence[TrainingSequence], indices: Sequence[int]) -> Iterator[PackedBatch]:
        """Yield this rank's share of these sequences; a row is as long as the longest of them demands."""
        from plansmith.learning.optimisation import micro_batches
        from plansmith.learning.packing import pack_rows

        lengths = [len(sequence) for sequence in sequences]
        longest = max((lengths[index] for index in indices), default=0)
        rows = pack_rows(lengths, indices, max(self.settings.row_length_tokens, longest), n_ranks=self.world_size)
        return micro_batches(
            sequences, rows, rank=self.rank, world_size=self.world_size, micro_batch_rows=self.settings.micro_batch_rows
        )

    def logprobs(self, token_ids: Sequence[int]) -> list[float]:
        """Return log p of each token given those before it; 0 for the first. The trainer's side of the probe.

        With ZeRO 3 every rank must make this call.
        """
        from plansmith.learning.losses import token_logprobs
        from plansmith.learning.packing import build_batch
        from plansmith.learning.sequences import TrainingSequence

        nothing = (0.0,) * len(token_ids)
        probe = TrainingSequence(tuple(token_ids), nothing, nothing)
        batch = build_batch([probe], [(0,)])
        numbers: list[float] = token_logprobs(self.engine.predict(batch), batch.token_ids)[0].tolist()
        return numbers

    def save(self, folder: str | Path) -> None:
        """Write model and tokenizer in Hugging Face layout, or the adapter; ``folder`` is complete or not there.

        With several ranks only rank 0 writes; all must make the call, and return when it has.
        """
        weights, folder = self.engine.weights(), Path(folder)
        if self.rank == 0 and self.settings.lora is not None:
            adapters.save_adapter(self.engine.module, folder, weights=weights, base_folder=self.base_folder)
        elif self.rank == 0:
            with adapters.written_whole(folder) as partial:
                self.engine.module.save_pretrained(partial, state_dict={**weights, **_buffers(self.engine.module)})
                adapters.copy_tokenizer(self.base_folder, partial)
        self.engine.barrier()

    def load(self, folder: str | Path) -> None:
        """Take the weights of another folder with the same architecture; the optimizer's moments start anew.

        With ``lora``: those of an adapter on the same base, or, given the base itself, those of the fresh adapter.

        Raises:
            BadInputError: no model in ``folder``, one with other tensors, or an adapter with another base.
        """
        folder = Path(folder)
        if self.settings.lora is None:
            self._load_whole_model(folder)
        elif not adapters.is_adapter_folder(folder):
            _check_same_base(folder, self.base_folder)
            self.engine.set_weights(self._fresh_adapter)
        else:
            shapes = self.engine.shapes()
            weights = adapters.read_adapter(folder, self.settings.lora, base_folder=self.base_folder, shapes=shapes)
            self.engine.set_weights(weights)

    def _load_whole_model(self, folder: Path) -> None:
        base_folder = _base_folder(folder, self.settings)
        model = _load_model(base_folder, self.settings, self.rank)
        weights = dict(model.named_parameters())
        got, expected = {name: tuple(weight.shape) for name, weight in weights.items()}, self.engine.shapes()
        if got != expected:
            unlike = sorted(name for name in got.keys() | expected.keys() if got.get(name) != expected.get(name))
            raise BadInputError("the model does not fit the trainer's", where=str(folder),
                                got=f"{unlike[0]} of shape {got.get(unlike[0])}",
                                expected=f"{expected.get(unlike[0])}")  # fmt: skip
        self.engine.set_weights(weights)
        self.engine.module.load_state_dict(_buffers(model), strict=False)
        self.base_folder = base_folder

    def _on_every_rank(self, weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return rank 0's weights on every rank; the others have none of ZeRO 3's."""
        import torch.distributed as distributed

        box: list[Any] = [weights]
        if self.world_size > 1:
            distributed.broadcast_object_list(box, src=0)
        received: dict[str, torch.Tensor] = box[0]
        return received

    def _require_verdict_tokens(self) -> None:
        if min(self.settings.valid_token_id, self.settings.invalid_token_id) < 0:
            raise BadInputError(
                "the trainer does not know the verdict tokens",
                got=f"valid {self.settings.valid_token_id}, invalid {self.settings.invalid_token_id}",
                cure="set valid_token_id and invalid_token_id in its settings",
            )


def _base_folder(folder: Path, settings: TrainerSettings) -> Path:
    """Return the folder of the whole model: the folder itself, or the base of its adapter."""
    if adapters.is_adapter_folder(folder):
        if settings.lora is None:
            raise BadInputError(
                "an adapter, but the trainer trains whole models",
                where=str(folder),
                cure="set trainer.lora as the adapter was trained, or merge it with its base first",
            )
        return adapters.base_folder_of(folder)
    if not (folder / "config.json").is_file():
        raise BadInputError(
            "no model here",
            where=str(folder),
            expected="a folder with config.json and safetensors",
            cure="check the path",
        )
    return folder.resolve()


def _check_same_base(folder: Path, base_folder: Path) -> None:
    if folder.resolve() != base_folder or not (folder / "config.json").is_file():
        raise BadInputError(
            "neither an adapter nor the trainer's base model",
            where=str(folder),
            expected=f"an adapter folder, or {base_folder}",
            cure="start another trainer for another base",
        )


def _buffers(module: Any) -> Mapping[str, torch.Tensor]:
    """Return what a model saves besides its parameters."""
    parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    return {name: tensor for name, tensor in module.state_dict().items() if name not in parameters}


def _prepare_process(settings: TrainerSettings, rank: int) -> None:
    """Set what DeepSpeed reads from the environment before it is imported, and undo Ray's single thread."""
    os.environ["DS_ACCELERATOR"] = settings.device
    os.environ.setdefault("LOCAL_RANK", "0" if settings.device == "cuda" else str(rank))
    # Every length of sequence is another kernel; oneDNN keeps the last 1024 of them, which is 0.6 GiB and no faster.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that wait leave the cores to other processes
    import torch

    if settings.device == "cpu":
        # A trained model's attention is full of numbers too small for the normal range, which slow a CPU down.
        torch.set_flush_denormal(True)
        warnings.filterwarnings("ignore", "The value of the smallest subnormal", UserWarning)  # NumPy notices
        torch.set_num_threads(settings.n_threads or len(os.sched_getaffinity(0)))
        # DeepSpeed decorates its Muon with torch.compile, which needs a C++ compiler at run time.
        torch.compiler.set_stance("force_eager")
    torch.manual_seed(settings.seed)


def _join_process_group(settings: TrainerSettings, rank: int, world_size: int, address: str) -> None:
    import torch.distributed as distributed

    if distributed.is_initialized():
        if distributed.get_world_size() != world_size:
            raise ConfigError(f"this process is already in a group of {distributed.get_world_size()} ranks")
        return
    backend = "gloo" if settings.device == "cpu" else "nccl"
    timeout = timedelta(seconds=settings.timeout_s)
    if world_size == 1:
        store = distributed.HashStore()
        distributed.init_process_group(backend, store=store, rank=0, world_size=1, timeout=timeout)
    else:
        distributed.init_process_group(backend, init_method=address, rank=rank, world_size=world_size, timeout=timeout)


def _has_bfloat16(device: str) -> bool:
    """Return whether the devices of all ranks have instructions for products in bfloat16."""
    import torch
    import torch.distributed as distributed

    if device == "cuda":
        has_own = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        capabilities = torch.cpu.get_capabilities()
        has_own = any(capabilities.get(name, False) for name in BFLOAT16_INSTRUCTIONS)
    everywhere = torch.tensor(float(has_own), device=device)
    distributed.all_reduce(everywhere, op=distributed.ReduceOp.MIN)
    return bool(everywhere)


def _load_model(folder: Path, settings: TrainerSettings, rank: int) -> Any:
    """Return the model of a folder, with a fresh adapter if one is asked for."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging as transformers_logging

    from plansmith.learning.packed_attention import register_packed_attention
    from plansmith.learning.weight_files import SAFE_LOADING, check_weight_files

    check_weight_files(folder)
    transformers_logging.disable_progress_bar()
    attention = register_packed_attention() if settings.device == "cpu" else "sdpa"
    model = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=getattr(torch, settings.dtype),
        attn_implementation=attention,
        **SAFE_LOADING,
        **adapters.quantised_loading(settings.quantisation, is_bfloat16=settings.is_computing_in_bfloat16),
    )
    adapters.keep_differentiable(model)
    if settings.is_checkpointing_activations:
        # Not the reentrant way, which finds no gradient to compute where only an adapter is trained.
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if settings.lora is not None:
        model = adapters.attach_adapter(model, settings.lora, base_folder=folder, seed=settings.seed)
    torch.manual_seed(settings.seed + rank)  # ranks have other sequences and drop other elements
    return model
