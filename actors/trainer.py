"""The trainer: a resident Ray actor that holds the model in a DeepSpeed engine (ZeRO stage 1 or 2) and optimises it.

`TrainerActor` is a plain class, testable without Ray; the pipeline wraps it with ``ray.remote``. The loop itself is in
`plansmith.learning.optimisation`. Heavy libraries are imported when an actor is made, not when this file is.

On a CPU nothing is compiled at run time: DeepSpeed's shared-memory collective (built with a C++ compiler on first use)
is switched off, its Muon runs without ``torch.compile``, and AdamW is torch's.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plansmith.errors import BadInputError, ConfigError

if TYPE_CHECKING:
    import torch

    from plansmith.learning.objectives import Objective
    from plansmith.learning.optimisation import Hyperparameters, OptimisationReport
    from plansmith.learning.packing import PackedBatch
    from plansmith.learning.printed_losses import LossWeights
    from plansmith.learning.sequences import TrainingSequence

logger = logging.getLogger(__name__)

WEIGHT_FILES = ("*.safetensors", "*.safetensors.index.json", "*.bin", "*.bin.index.json")
UNTOUCHED = 10**9


@dataclass(frozen=True, slots=True)
class TrainerSettings:
    """What cannot change while the actor lives; what differs between phases is in `Hyperparameters`."""

    zero_stage: int = 1
    """1 shards the optimizer's state over ranks, 2 the gradients too."""
    dtype: str = "float32"
    """``float32`` or ``bfloat16``; with bfloat16 the optimizer keeps float32 weights."""
    is_autocast: bool = False
    """With float32: keep the weights so, compute matrix products in bfloat16. What is saved and probed is float32."""
    device: str = "cpu"
    """``cpu`` (gloo) or ``cuda`` (nccl)."""
    n_threads: int = 0
    """Threads of torch on a CPU; 0 takes every core. Ray starts its actors with one."""
    row_length_tokens: int = 1024
    """Longest sequence, and length of a packed row. Longer sequences are dropped and counted."""
    micro_batch_rows: int = 1
    """Rows of one forward pass; memory grows with it, the result does not change."""
    seed: int = 0
    valid_token_id: int = -1
    invalid_token_id: int = -1
    optimizer: str = "adamw"
    """``adamw``, or ``muon``: Muon on the matrices of the layers, AdamW on embeddings, norms, biases and head."""
    is_checkpointing_activations: bool = False
    """Recompute activations in the backward pass: less memory, about a third more time."""
    timeout_s: float = 120.0
    """Longest wait for another rank; a dead one is an error then, not a hang."""

    def __post_init__(self) -> None:
        _check_choice("zero_stage", self.zero_stage, (1, 2))
        _check_choice("dtype", self.dtype, ("float32", "bfloat16"))
        _check_choice("device", self.device, ("cpu", "cuda"))
        _check_choice("optimizer", self.optimizer, ("adamw", "muon"))
        if self.optimizer == "muon" and self.zero_stage != 1:
            raise ConfigError(
                "muon needs whole gradients to clip them before it orthogonalises them",
                got=f"zero_stage={self.zero_stage}",
                expected="zero_stage=1",
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
    ) -> None:
        """Load the model and start the engine.

        Args:
            model_folder: Hugging Face layout. Its tokenizer files travel with every `save`.
            master_addr, master_port: where rank 0 listens; not used with one rank.

        Raises:
            BadInputError: the folder holds no model.
        """
        self.settings, self.rank, self.world_size = settings, rank, world_size
        self.model_folder = _existing_model_folder(model_folder)
        _prepare_process(settings, rank)
        _join_process_group(settings, rank, world_size, f"tcp://{master_addr}:{master_port}")
        self.engine = DeepSpeedEngineAdapter(_load_model(self.model_folder, settings), settings)

    def optimise(
        self,
        objective: Objective,
        sequences: Sequence[TrainingSequence],
        hyperparameters: Hyperparameters,
        *,
        weights: LossWeights | None = None,
        description: str = "",
    ) -> OptimisationReport:
        """Train on ``sequences``; return losses and rates by step, and how many sequences did not fit.

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
        )
        if plan.packing.n_dropped:
            logger.warning("%d sequences exceed %d tokens: dropped", plan.packing.n_dropped, settings.row_length_tokens)
        self.engine.prepare(hyperparameters)
        with _progress_bar(description or objective.value, len(plan.batches), is_shown=self.rank == 0) as progress:
            return run_optimisation(
                self.engine,
                objective,
                sequences,
                hyperparameters,
                plan,
                micro_batch_rows=settings.micro_batch_rows,
                weights=weights or LossWeights(),
                verdict_tokens=VerdictTokens(settings.valid_token_id, settings.invalid_token_id),
                progress=progress,
                description=description or objective.value,
            )

    def verdict_probabilities(self, sequences: Sequence[TrainingSequence]) -> list[float | None]:
        """Return v_hat, the probability of VALID against INVALID at the verdict; ``None`` without a verdict.

        A sequence longer than ``row_length_tokens`` is judged in a row of its own, not dropped.
        """
        from plansmith.learning.losses import verdict_logits

        self._require_verdict_tokens()
        probabilities: list[float | None] = [None] * len(sequences)
        judged = [index for index, sequence in enumerate(sequences) if sequence.verdict_position >= 0]
        for batch, logits in self._forward(sequences, judged):
            two_logits = verdict_logits(
                logits,
                batch.verdict_rows,
                batch.verdict_columns,
                valid_id=self.settings.valid_token_id,
                invalid_id=self.settings.invalid_token_id,
            )
            places = [index for row in batch.rows for index in row]
            for index, v_hat in zip(places, two_logits.softmax(dim=-1)[:, 1].tolist(), strict=True):
                probabilities[index] = v_hat
        return probabilities

    def logprobs(self, token_ids: Sequence[int]) -> list[float]:
        """Return log p of each token given those before it; 0 for the first. The trainer's side of the probe."""
        from plansmith.learning.losses import token_logprobs
        from plansmith.learning.sequences import TrainingSequence

        nothing = (0.0,) * len(token_ids)
        probe = TrainingSequence(tuple(token_ids), nothing, nothing)
        ((batch, logits),) = self._forward([probe], [0])
        numbers: list[float] = token_logprobs(logits, batch.token_ids)[0].tolist()
        return numbers

    def save(self, folder: str | Path) -> None:
        """Write model and tokenizer in Hugging Face layout; ``folder`` is complete or not there.

        With several ranks only rank 0 writes; all return when it has.
        """
        if self.rank == 0:
            _save_folder(self.engine.module, source=self.model_folder, folder=Path(folder))
        self.engine.barrier()

    def load(self, folder: str | Path) -> None:
        """Take the weights of another folder with the same architecture; the optimizer's moments start anew.

        Raises:
            BadInputError: no model in ``folder``, or one with other tensors.
        """
        model_folder = _existing_model_folder(folder)
        model = _load_model(model_folder, self.settings)
        try:
            self.engine.module.load_state_dict(model.state_dict())
        except RuntimeError as error:
            raise BadInputError("the model does not fit the trainer's", where=str(folder), got=str(error)) from error
        self.engine.take_over_weights()
        self.model_folder = model_folder

    def _require_verdict_tokens(self) -> None:
        if min(self.settings.valid_token_id, self.settings.invalid_token_id) < 0:
            raise BadInputError(
                "the trainer does not know the verdict tokens",
                got=f"valid {self.settings.valid_token_id}, invalid {self.settings.invalid_token_id}",
                cure="set valid_token_id and invalid_token_id in its settings",
            )

    def _forward(
        self, sequences: Sequence[TrainingSequence], indices: Sequence[int]
    ) -> Iterator[tuple[PackedBatch, torch.Tensor]]:
        """Yield packed batches of these sequences with their logits, without gradients."""
        from plansmith.learning.packing import build_batch, pack_rows

        lengths = [len(sequence) for sequence in sequences]
        longest = max((lengths[index] for index in indices), default=0)
        rows = pack_rows(lengths, indices, max(self.settings.row_length_tokens, longest))
        for i in range(0, len(rows), self.settings.micro_batch_rows):
            yield self.engine.predict(build_batch(sequences, rows[i : i + self.settings.micro_batch_rows]))


class DeepSpeedEngineAdapter:
    """A DeepSpeed engine in the shape that `plansmith.learning.optimisation.Engine` asks for."""

    def __init__(self, model: Any, settings: TrainerSettings) -> None:
        import deepspeed
        import torch.distributed as distributed

        if settings.device == "cpu":
            # Looked up, this table tries the C++ compiler on every extension; where it finds one, collectives on gloo
            # get an extension compiled at run time. No entry means no extension.
            deepspeed.ops.__compatible_ops__ = defaultdict(bool)
        logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
        self._is_muon = settings.optimizer == "muon"
        optimizer = _muon(model) if self._is_muon else _adamw(model)
        self.engine, self.optimizer, _, _ = deepspeed.initialize(
            model=model, optimizer=optimizer, config=_deepspeed_config(settings), dist_init_required=False
        )
        self.module = self.engine.module
        self.rank, self.world_size = distributed.get_rank(), distributed.get_world_size()
        self._gradient_clipping = 0.0

    def __call__(self, batch: PackedBatch) -> torch.Tensor:
        """Return the logits of a micro-batch in float32, ready for `backward`."""
        logits: torch.Tensor = self.engine(**batch.to(self.engine.device).model_inputs()).logits.float()
        return logits.to(batch.token_ids.device)

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradient of a part of the batch's loss."""
        # DeepSpeed averages gradients over ranks; our losses are parts of one batch and must add up.
        self.engine.backward(loss * self.world_size)

    def step(self) -> float:
        """Take one optimiser step; return the norm of the gradient before clipping."""
        norm = self._clip_whole_gradients() if self._is_muon else None
        self.engine.step()
        return float(self.engine.get_global_grad_norm()) if norm is None else norm

    def set_learning_rate(self, learning_rate: float) -> None:
        """Set the rate of every group, each by its own scale."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate * group["lr_scale"]

    def sum_over_ranks(self, numbers: Sequence[float]) -> list[float]:
        """Return the sums over all ranks."""
        import torch
        import torch.distributed as distributed

        if self.world_size == 1:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.float64, device=self.engine.device)
        distributed.all_reduce(total)
        summed: list[float] = total.tolist()
        return summed

    def barrier(self) -> None:
        """Wait for every rank."""
        import torch.distributed as distributed

        distributed.barrier()

    def predict(self, batch: PackedBatch) -> tuple[PackedBatch, torch.Tensor]:
        """Return the batch and its logits, without gradients and dropout."""
        import torch

        self.module.eval()
        with torch.no_grad():
            logits = self.module(**batch.to(self.engine.device).model_inputs()).logits.to(batch.token_ids.device)
        self.module.train()
        return batch, logits

    def prepare(self, hyperparameters: Hyperparameters) -> None:
        """Put the settings of this phase into the resident optimizer."""
        self.module.train()
        self._gradient_clipping = hyperparameters.gradient_clipping
        self.optimizer.clip_grad = 0.0 if self._is_muon else hyperparameters.gradient_clipping
        for group in self.optimizer.param_groups:
            group["lr_scale"] = _lr_scale(group, hyperparameters)
            group["weight_decay"] = hyperparameters.weight_decay / group["lr_scale"] if group["is_decayed"] else 0.0
            if "momentum" in group:
                group["momentum"] = hyperparameters.muon_momentum
            else:
                group["betas"], group["eps"] = hyperparameters.betas, hyperparameters.eps
        if hyperparameters.is_optimizer_reset:
            self._reset_moments()

    def take_over_weights(self) -> None:
        """Make the module's weights, changed from outside, those the optimizer goes on from."""
        self.optimizer.refresh_fp32_params()
        self._reset_moments()

    def _reset_moments(self) -> None:
        import torch

        for state in self.optimizer.optimizer.state.values():
            for name, value in state.items():
                if torch.is_tensor(value):
                    value.zero_()
                elif name == "step":
                    state[name] = 0

    def _clip_whole_gradients(self) -> float:
        """Clip the gradient of the whole batch before Muon orthogonalises it; return its norm before.

        DeepSpeed clips after that, and would shrink every Muon update to the clipping norm. Averaging here leaves every
        rank with the same gradient, so that DeepSpeed's own average changes nothing.
        """
        import torch
        import torch.distributed as distributed

        gradients = [self.optimizer.get_param_gradient_attribute(p) for p in self.module.parameters()]
        gradients = [gradient for gradient in gradients if gradient is not None]
        if self.world_size > 1:
            flat = torch.cat([gradient.reshape(-1) for gradient in gradients])  # one message instead of one a matrix
            distributed.all_reduce(flat)
            parts = flat.div_(self.world_size).split([gradient.numel() for gradient in gradients])
            torch._foreach_copy_(gradients, [p.view_as(g) for p, g in zip(parts, gradients, strict=True)])
        norm = float(torch.nn.utils.get_total_norm(gradients))
        if 0 < self._gradient_clipping < norm:
            torch._foreach_mul_(gradients, self._gradient_clipping / norm)
        return norm


def _existing_model_folder(folder: str | Path) -> Path:
    folder = Path(folder)
    if not (folder / "config.json").is_file():
        raise BadInputError(
            "no model here",
            where=str(folder),
            expected="a folder with config.json and safetensors",
            cure="check the path",
        )
    return folder


def _prepare_process(settings: TrainerSettings, rank: int) -> None:
    """Set what DeepSpeed reads from the environment before it is imported, and undo Ray's single thread."""
    os.environ["DS_ACCELERATOR"] = settings.device
    os.environ.setdefault("LOCAL_RANK", "0" if settings.device == "cuda" else str(rank))
    # Every length of sequence is another kernel; oneDNN keeps the last 1024 of them, which is 0.6 GiB and no faster.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
    import torch

    if settings.device == "cpu":
        # A trained model's attention is full of numbers too small for the normal range, which slow a CPU down.
        torch.set_flush_denormal(True)
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


def _load_model(folder: Path, settings: TrainerSettings) -> Any:
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging as transformers_logging

    from plansmith.learning.packing import register_packed_attention

    transformers_logging.disable_progress_bar()
    attention = register_packed_attention() if settings.device == "cpu" else "sdpa"
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=getattr(torch, settings.dtype), attn_implementation=attention, local_files_only=True
    )
    if settings.is_checkpointing_activations:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def _deepspeed_config(settings: TrainerSettings) -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        # step() is the boundary, so that batches may have different numbers of micro-batches.
        "managed_gradient_accumulation": False,
        "zero_optimization": {"stage": settings.zero_stage, "overlap_comm": False},
        "zero_allow_untested_optimizer": True,
        "bf16": {"enabled": settings.dtype == "bfloat16"},
        "torch_autocast": {"enabled": settings.is_autocast, "dtype": "bfloat16"},
        "gradient_clipping": 1.0,
        "steps_per_print": UNTOUCHED,
    }


def _is_decayed(parameter: torch.nn.Parameter) -> bool:
    return parameter.ndim >= 2


def _adamw_groups(parameters: Sequence[torch.nn.Parameter]) -> list[dict[str, Any]]:
    """Return one group with weight decay (matrices) and one without; learning rate and the rest come with `prepare`."""
    halves = [(True, [p for p in parameters if _is_decayed(p)]), (False, [p for p in parameters if not _is_decayed(p)])]
    settings = {"lr": 0.0, "lr_scale": 1.0, "weight_decay": 0.0, "betas": (0.9, 0.999), "eps": 1e-8}
    return [{"params": half, "is_decayed": is_decayed, **settings} for is_decayed, half in halves if half]


def _adamw(model: Any) -> torch.optim.Optimizer:
    import torch

    return torch.optim.AdamW(_adamw_groups([p for p in model.parameters() if p.requires_grad]))


def _muon(model: Any) -> torch.optim.Optimizer:
    """Return DeepSpeed's Muon, the one that knows ZeRO's flat partitions; one group per shape of matrix."""
    from deepspeed.runtime.zero.muon.muon_optimizer import MuonWithAuxAdam

    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    by_shape: dict[tuple[int, ...], list[torch.nn.Parameter]] = {}
    for name, parameter in named:
        parameter.use_muon = parameter.ndim == 2 and not ("embed" in name or "lm_head" in name)
        if parameter.use_muon:
            by_shape.setdefault(tuple(parameter.shape), []).append(parameter)
    settings = {"lr": 0.0, "lr_scale": 1.0, "weight_decay": 0.0, "momentum": 0.95, "ns_method": "standard"}
    groups: list[dict[str, Any]] = [
        {"params": parameters, "is_decayed": True, "use_muon": True, "shape": shape, **settings}
        for shape, parameters in by_shape.items()
    ]
    others = _adamw_groups([p for _, p in named if not p.use_muon])
    optimizer: torch.optim.Optimizer = MuonWithAuxAdam([*groups, *({**group, "use_muon": False} for group in others)])
    return optimizer


def _lr_scale(group: dict[str, Any], hyperparameters: Hyperparameters) -> float:
    """Return the factor between the phase's learning rate and this group's.

    DeepSpeed's Muon multiplies by sqrt(max(1, rows / columns)) itself; without a rate of its own we undo that.
    """
    if not group.get("use_muon"):
        return 1.0
    if hyperparameters.muon_learning_rate is not None:
        return hyperparameters.muon_learning_rate / hyperparameters.learning_rate
    rows, columns = group["shape"]
    return float(0.2 * max(rows, columns) ** 0.5 / max(1.0, rows / columns) ** 0.5)


def _save_folder(module: Any, *, source: Path, folder: Path) -> None:
    partial = folder.with_name(f".{folder.name}.partial-{os.getpid()}")
    replaced = folder.with_name(f".{folder.name}.replaced-{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(source, partial, ignore=shutil.ignore_patterns(*WEIGHT_FILES))
    module.save_pretrained(partial, safe_serialization=True)
    if folder.exists():
        folder.rename(replaced)
    partial.rename(folder)
    shutil.rmtree(replaced, ignore_errors=True)


@contextmanager
def _progress_bar(description: str, n_steps: int, *, is_shown: bool) -> Iterator[Any]:
    """Yield a bar that Ray's driver shows, or ``None`` outside Ray."""
    ray = sys.modules.get("ray")
    if not is_shown or ray is None or not ray.is_initialized():
        yield None
        return
    from ray.experimental import tqdm_ray

    bar = tqdm_ray.tqdm(desc=description, total=n_steps, unit="step")
    try:
        yield bar
    finally:
        bar.close()
