"""Every call into DeepSpeed: one engine (ZeRO 1 to 3, offload) in the shape that the optimisation loop asks for.

Part of the trainer actor. Not here: models, adapters and folders (`actors.trainer`), batches and losses
(`plansmith.learning`). DeepSpeed is imported when an engine is made.

On a CPU nothing is compiled at run time: DeepSpeed's shared-memory collective (built with a C++ compiler on first use)
is switched off, and AdamW is torch's. The last holds on a GPU as well: states that are offloaded are updated by torch's
fused AdamW, where DeepSpeed's own would be compiled. Muon's updates are ours (`plansmith.learning.orthogonalisation`).

With ZeRO 3 a rank holds a share of every weight; `weights`, `set_weights`, `predict` and the forward pass bring them
together, and all ranks must make these calls.
"""

from __future__ import annotations

import logging
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plansmith.data.storage import sync_file
from plansmith.learning.weight_files import write_weights

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import numpy as np
    import torch
    from numpy.typing import NDArray

    from plansmith.config.training import OptimiserConfig, TrainerConfig
    from plansmith.learning.objectives.base import Reader
    from plansmith.learning.packing import PackedBatch
    from plansmith.learning.token_reading import TokenQuestion, TokenReading

NEVER = 10**9
MUON_MOMENTUM, MUON_STEPS = 0.95, 5
"""Of its author: the share of the momentum that stays, and Newton-Schulz iterations."""
WEIGHT, MOMENTUM, ADAM_MOMENTS, STEP = "weight", "momentum_buffer", ("exp_avg", "exp_avg_sq"), "step"
"""What a checkpoint has of a parameter, and of all; but for the first as the optimizers call it."""
BUCKET_ELEMENTS = 50_000_000
"""Of weights and moments that are brought together at once; and with ZeRO 3 of gradients that are reduced at once, for
which DeepSpeed sets a buffer of that size aside, by default ten times as large."""

MOVED_WITH_ZERO3 = ("lp_params", "lp_grads", "contiguous_grad_buffer")
"""What DeepSpeed 0.19.8 moves to the host with ZeRO 3 and torch's AdamW; the optimizer's state only with its own."""


class DeepSpeedEngineAdapter:
    """A DeepSpeed engine in the shape that `plansmith.learning.optimisation.Engine` asks for."""

    def __init__(self, model: Any, settings: TrainerConfig, *, has_bfloat16: bool) -> None:
        """Start the engine; `has_bfloat16` tells whether all ranks have instructions for products in bfloat16."""
        import deepspeed
        import torch.distributed as distributed

        _compile_nothing(settings.device)
        logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
        # ZeRO 3 calls functions that torch is renaming, and would say so at every step
        warnings.filterwarnings("ignore", message="`torch.distributed.*is deprecated", category=FutureWarning)
        self._is_muon, self._is_sharded = settings.optimizer == "muon", settings.zero_stage == 3
        self._can_move = settings.offload != "all"
        self._has_bfloat16 = has_bfloat16
        optimizer = _muon(model) if self._is_muon else _adamw(model, is_fused=settings.offload != "none")
        self.engine, self.optimizer, _, _ = deepspeed.initialize(
            model=model, optimizer=optimizer, config=_deepspeed_config(settings), dist_init_required=False
        )
        if self._is_muon:
            self.optimizer.average_tensor = _already_averaged
            self._parts_by_deepspeed = self.optimizer.get_flat_partition
            self.optimizer.get_flat_partition = self._parts_of_updates
        self._is_update_adamw_sized = False
        self.module = self.engine.module
        self.device: torch.device = self.engine.device
        self.vocabulary_size: int = self.module.config.get_text_config().vocab_size
        self.rank, self.world_size = distributed.get_rank(), distributed.get_world_size()
        self._gradient_clipping = 0.0
        # in float32 a CPU's products are as quick at every length
        self._is_rounded = settings.device != "cpu" or bool(settings.is_autocast) or settings.dtype != "float32"

    def __call__(self, batch: PackedBatch) -> torch.Tensor:
        """Return the logits of a micro-batch on the device in float32, ready for `backward`."""
        logits: torch.Tensor = self.engine(**batch.model_inputs(is_rounded=self._is_rounded)).logits
        return logits[:, : batch.token_ids.shape[1]].float()

    def read_tokens(self, batch: PackedBatch, question: TokenQuestion) -> TokenReading:
        """Return what a micro-batch's logits would say of some tokens, ready for `backward`; they are never whole."""
        from plansmith.learning.token_reading import reading_head

        with reading_head(self.module, batch, question) as read:
            return read(self.engine(**batch.model_inputs(is_rounded=self._is_rounded)))

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

    def sum_over_ranks(self, numbers: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sums over all ranks."""
        import numpy as np
        import torch
        import torch.distributed as distributed

        total = torch.from_numpy(np.array(numbers, np.float64)).to(self.device)
        if self.world_size > 1:
            distributed.all_reduce(total)
        summed: NDArray[np.float64] = total.cpu().numpy()
        return summed

    def predict(self, batch: PackedBatch, reader: Reader, *, as_trained: bool = False) -> torch.Tensor:
        """Return what `reader` reads of a micro-batch, on the host; without gradients and dropout.

        Products are in the precision of the weights, or, ``as_trained``, rounded as those of a training step are.
        """
        import torch

        batch = batch.to(self.device)
        self.module.eval()
        with torch.no_grad():
            logits = self(batch) if as_trained else self.module(**batch.model_inputs()).logits
            numbers = reader.read(logits, batch).cpu()
        self.module.train()
        return numbers

    def prepare(self, settings: OptimiserConfig, *, keeps_moments: bool = False) -> None:
        """Put the settings of this phase into the resident optimizer, which begins anew unless it keeps its moments."""
        self.module.train()
        self._gradient_clipping = settings.gradient_clipping
        self._is_update_adamw_sized = settings.muon_learning_rate is None
        self.optimizer.clip_grad = 0.0 if self._is_muon else settings.gradient_clipping
        for group in self.optimizer.param_groups:
            group["lr_scale"] = _lr_scale(group, settings)
            group["weight_decay"] = settings.weight_decay / group["lr_scale"] if group["is_decayed"] else 0.0
            if "momentum" not in group:
                group["betas"], group["eps"] = (settings.beta1, settings.beta2), settings.eps
        if not keeps_moments:
            self._reset_moments()

    def save_state(self, folder: Path) -> None:
        """Write weights, the optimizer's moments and random states durably into a folder that is there.

        Each rank writes some of the parameters whole, so that any number of ranks can go on from them; DeepSpeed's own
        checkpoints are for as many ranks as wrote them. All ranks must make the call.

        Raises:
            OSError: this rank could not; the others have not waited for it.
        """
        self._make_moments()
        own: dict[str, torch.Tensor] = {}
        wanted = [
            (number, f"{name} {part}", parameter, part)
            for number, (name, parameter) in enumerate(self._trained())
            for part in (WEIGHT, *_moments_of(parameter))
        ]
        states = self._whole_states((parameter, part) for *_, parameter, part in wanted)
        for (number, key, *_), whole in zip(wanted, states, strict=True):
            if number % self.world_size == self.rank:
                own[key] = whole.to("cpu", copy=True)
        write_weights(own, folder / f"{self.rank}.safetensors", **{STEP: str(self._n_steps())})
        for name, generator in self._generators().items():
            path = folder / f"{self.rank}.{name}.random"
            path.write_bytes(generator.get_state().numpy().tobytes())
            sync_file(path)

    def load_state(self, folder: Path) -> bool:
        """Take what `save_state` of any number of ranks wrote; return whether it is there.

        A rank that had no counterpart among them draws what it drops anew.
        """
        import torch
        from safetensors import safe_open

        files: list[Any] = [safe_open(path, "pt") for path in sorted(folder.glob("*.safetensors"))]
        if not files:
            return False
        found = {key: file for file in files for key in file.keys()}  # noqa: SIM118 - it is no mapping
        self._make_moments()
        self._set_n_steps(int(files[0].metadata()[STEP]))
        for name, parameter in self._trained():
            for part in (WEIGHT, *_moments_of(parameter)):
                key = f"{name} {part}"
                self._set_whole_state(parameter, part, found[key].get_tensor(key).to(self.device))
        for name, generator in self._generators().items():
            path = folder / f"{self.rank}.{name}.random"
            if path.exists():
                generator.set_state(torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8))
        return True

    def _whole_states(self, wanted: Iterable[tuple[Any, str]]) -> Iterator[torch.Tensor]:
        """Yield of each parameter its `WEIGHT` in float32 or one of its moments, whole; all ranks must read to the end.

        Ranks sum what they hold in buckets, which live as long as a tensor of theirs does: with a sum for each tensor,
        a small model's checkpoint was four fifths waiting for the other rank.
        """
        import torch
        import torch.distributed as distributed

        if self._is_sharded:
            yield from (self._gathered(parameter, part) for parameter, part in wanted)
            return
        for bucket in _buckets(wanted):
            sizes = [parameter.numel() for parameter, _ in bucket]
            summed = torch.zeros(sum(sizes), dtype=torch.float32, device=self.device)
            for whole, (parameter, part) in zip(summed.split(sizes), bucket, strict=True):
                if (mapping := parameter._hp_mapping) is not None:
                    (held, first), own = self._held(parameter, part), mapping.lp_fragment_address
                    whole[own.start :][: own.numel] = held.detach()[own.start - first :][: own.numel]
            distributed.all_reduce(summed)
            for whole, (parameter, _) in zip(summed.split(sizes), bucket, strict=True):
                yield whole.view(parameter.shape)

    def _gathered(self, parameter: Any, part: str) -> torch.Tensor:
        """Return the same of a parameter of ZeRO 3, each of which DeepSpeed brings together by itself."""
        from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

        is_weight = part == WEIGHT
        whole = safe_get_full_fp32_param(parameter) if is_weight else safe_get_full_optimizer_state(parameter, part)
        sharded: torch.Tensor = whole.detach().view(whole_shape(parameter))
        return sharded

    def _set_whole_state(self, parameter: Any, part: str, whole: torch.Tensor) -> None:
        from deepspeed.utils import safe_set_full_optimizer_state

        if part == WEIGHT:
            self._set_weight(parameter, whole)
        elif self._is_sharded:
            safe_set_full_optimizer_state(parameter, whole, part)
        elif parameter._hp_mapping is not None:
            held, first = self._held(parameter, part)
            held.detach().copy_(whole.flatten()[first:][: held.numel()])

    def _held(self, parameter: Any, part: str) -> tuple[torch.Tensor, int]:
        """Return what this rank holds of a weight or a moment, flat and not a copy, and where in the whole it begins.

        With ZeRO 1 and 2. A rank's partition may end within a parameter; of a matrix it holds Muon's moment whole even
        then, because it computes with the whole matrix.
        """
        mapping = parameter._hp_mapping
        if part == WEIGHT:
            return mapping.hp_fragment, mapping.lp_fragment_address.start
        group = mapping.param_group_index
        moment = self.optimizer.optimizer.state[self.optimizer.single_partition_of_fp32_groups[group]][part]
        if part == MOMENTUM:
            before = takewhile(lambda other: other is not parameter, self.optimizer.params_in_partition[group])
            return moment[sum(other.numel() for other in before) :][: parameter.numel()], 0
        own = mapping.hp_fragment_address
        return moment[own.start :][: own.numel], mapping.lp_fragment_address.start

    def _make_moments(self) -> None:
        """Make the moments, zeros, as the first step does: an optimizer that has taken none has none to be set."""
        import torch

        states, is_adamw = self.optimizer.optimizer.state, isinstance(self.optimizer.optimizer, torch.optim.AdamW)
        for number, partition in enumerate(self._partitions()):
            if states[partition]:
                continue
            if not is_adamw and self.optimizer.optimizer.param_groups[number]["use_muon"]:
                n_held = sum(parameter.numel() for parameter in self.optimizer.params_in_partition[number])
                states[partition][MOMENTUM] = torch.zeros(n_held, dtype=torch.float32, device=partition.device)
            else:
                states[partition].update({moment: torch.zeros_like(partition) for moment in ADAM_MOMENTS})
                is_fused = is_adamw and self.optimizer.optimizer.param_groups[0]["fused"]
                step = torch.zeros((), device=partition.device if is_fused else "cpu")
                states[partition][STEP] = step if is_adamw else 0

    def _partitions(self) -> list[torch.Tensor]:
        """Return the flat tensors that this rank optimises."""
        name = "fp32_partitioned_groups_flat" if self._is_sharded else "single_partition_of_fp32_groups"
        partitions: list[torch.Tensor] = getattr(self.optimizer, name)
        return partitions

    def _n_steps(self) -> int:
        """Return how many steps the moments are of."""
        return max(int(state.get(STEP, 0)) for state in self.optimizer.optimizer.state.values())

    def _set_n_steps(self, count: int) -> None:
        for state in self.optimizer.optimizer.state.values():
            if STEP in state:
                state[STEP] = state[STEP] * 0 + count

    def _generators(self) -> dict[str, torch.Generator]:
        """Return what draws the elements that are dropped, by kind of device."""
        import torch

        found = {"cpu": torch.default_generator}
        if self.device.type == "cuda":
            found["cuda"] = torch.cuda.default_generators[torch.cuda.current_device()]
        return found

    def end(self) -> None:
        """Let go of what holds the model beside who has this: hooks.

        Of ZeRO 3 the tensors are emptied: DeepSpeed 0.19.8 has the modules of every engine in caches of its own.
        """
        self.engine.destroy()
        if self._is_sharded:
            for parameter in self.module.parameters():
                for held in (parameter, getattr(parameter, "ds_tensor")):  # noqa: B009 - what ZeRO 3 adds
                    held.data = held.data.new_empty(0)
            for partition in self._partitions():
                partition.data = partition.data.new_empty(0)
            self.optimizer.optimizer.state.clear()

    def sleep(self) -> None:
        """Move weights and optimizer state to the host until `wake_up`, before which nothing else works.

        With ZeRO 3 the optimizer's state stays where it is (`MOVED_WITH_ZERO3`); offloaded, it is on the host anyway.
        """
        import torch

        if self._can_move:
            included = MOVED_WITH_ZERO3 if self._is_sharded else None
            self.engine.offload_states(include=included, pin_memory=False)
        self._move_frozen(torch.device("cpu"))
        torch.cuda.empty_cache()

    def wake_up(self) -> None:
        """Take everything back to the device; awake already, do nothing."""
        self._move_frozen(self.device)
        if self._can_move:
            self.engine.reload_states()

    def _move_frozen(self, device: torch.device) -> None:
        """Move what is not trained, which DeepSpeed leaves to itself unless it shares it out."""
        if not self._is_sharded:
            for parameter in self.module.parameters():
                if not parameter.requires_grad:
                    parameter.data = parameter.data.to(device)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the trained parameters by name, whole ones."""
        return {name: whole_shape(parameter) for name, parameter in self._trained()}

    def weights(self, *, is_shared_out: bool = False) -> dict[str, torch.Tensor]:
        """Return copies of the trained parameters in the memory of the host: on the first rank all, on others none.

        Shared out, each rank has every n-th of them instead, from its number on.

        In float32, also those of a model in bfloat16: the optimizer's own, of which the model's are roundings. They are
        brought together bucket by bucket, so that no device ever holds the whole of a large model.
        """
        copies: dict[str, torch.Tensor] = {}
        for number, (name, whole) in enumerate(self.whole_weights()):
            if self.rank == (number % self.world_size if is_shared_out else 0):
                copies[name] = whole.to("cpu", copy=True)
        return copies

    def whole_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield each trained parameter by name, whole and in float32, on every rank; all must read through together."""
        trained = list(self._trained())
        names = (name for name, _ in trained)
        return zip(names, self._whole_states((parameter, WEIGHT) for _, parameter in trained), strict=True)

    def set_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Put other weights into the trained parameters; the optimizer goes on from them with fresh moments.

        Args:
            weights: every trained parameter by name, in its shape; the same on every rank, which with ZeRO 3 may hold
                a share of each as well (`handing_out_weights`).
        """
        for name, parameter in self._trained():
            with _whole(weights[name]):
                self._set_weight(parameter, weights[name].detach())
        self._reset_moments()

    def _set_weight(self, parameter: torch.nn.Parameter, weight: torch.Tensor) -> None:
        import torch

        with torch.no_grad():
            with _whole(parameter):
                parameter.copy_(weight)
            self._set_master(parameter, weight)

    def _set_master(self, parameter: torch.nn.Parameter, weight: torch.Tensor) -> None:
        """Give the optimizer this rank's share of a weight, not rounded to the precision of the model."""
        from deepspeed.utils import safe_set_full_fp32_param, safe_set_local_fp32_param

        if not self._is_sharded:
            safe_set_full_fp32_param(parameter, weight)
            return
        safe_set_local_fp32_param(parameter, self._own_share(parameter, weight))

    def _own_share(self, parameter: torch.nn.Parameter, weight: torch.Tensor) -> torch.Tensor:
        """Return this rank's share of a whole weight, flat, as ZeRO 3 holds that of a parameter."""
        from torch.nn.functional import pad

        n_own = getattr(parameter, "ds_tensor").numel()  # noqa: B009 - what ZeRO 3 adds
        own = weight.detach().flatten()[self.rank * n_own :][:n_own]
        return pad(own, (0, n_own - len(own)))

    def shares_of(self, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return what this rank would hold of other weights, in the model's precision and in the memory of the host.

        Args:
            weights: as of `set_weights`.
        """
        shares: dict[str, torch.Tensor] = {}
        for name, parameter in self._trained():
            share = getattr(weights[name], "ds_tensor", weights[name])
            if self._is_sharded and share is weights[name]:
                share = self._own_share(parameter, share)
            shares[name] = share.detach().to("cpu", parameter.dtype, copy=True)
        return shares

    @contextmanager
    def holding(self, shares: Mapping[str, torch.Tensor]) -> Iterator[None]:
        """Let the model have other weights, to be read by, until the context ends; the optimizer has its own."""
        own = [(parameter, self._held_by_model(parameter).data) for _, parameter in self._trained()]
        try:
            for name, parameter in self._trained():
                held = self._held_by_model(parameter)
                held.data = shares[name].to(held.device)
            yield
        finally:
            for parameter, data in own:
                self._held_by_model(parameter).data = data

    def _held_by_model(self, parameter: Any) -> torch.Tensor:
        """Return the tensor that the model computes with, or with ZeRO 3 this rank's share, of small ones, too."""
        if not self._is_sharded:
            tensor: torch.Tensor = parameter
            return tensor
        parameter.partition()
        share: torch.Tensor = parameter.ds_tensor
        return share

    def _trained(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        return ((name, p) for name, p in self.module.named_parameters() if p.requires_grad)

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
        rank with the same gradient, so that DeepSpeed's own average would change nothing and is left out.
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

    def _parts_of_updates(self, *args: Any, **kwargs: Any) -> list[torch.Tensor]:
        """Return the parts of this rank's partition of a group, Muon's updates of matrices in the size asked for.

        All matrices are one group: a rank iterates for the matrices of its partition, and each group more has a matrix
        on the border for which two do. DeepSpeed asks for their updates one after the other, and is given tensors that
        are written when it has asked for all.
        """
        import torch
        from deepspeed.runtime.zero.muon import original_muon

        from plansmith.learning.orthogonalisation import MuonUpdate, write_updates

        asked: list[MuonUpdate] = []

        def ask(gradient: torch.Tensor, momentum: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
            written = torch.empty_like(gradient, memory_format=torch.contiguous_format)
            asked.append(MuonUpdate(gradient, momentum, written))
            return written

        deepspeeds, original_muon.muon_update = original_muon.muon_update, ask
        try:
            parts: list[torch.Tensor] = self._parts_by_deepspeed(*args, **kwargs)
        finally:
            original_muon.muon_update = deepspeeds
        write_updates(
            asked,
            momentum=MUON_MOMENTUM,
            steps=MUON_STEPS,
            dtype=torch.bfloat16 if self._has_bfloat16 and self.device.type == "cuda" else torch.float32,
            is_adamw_sized=self._is_update_adamw_sized,
        )
        return parts


@contextmanager
def handing_out_weights(settings: TrainerConfig, dtype: str) -> Iterator[None]:
    """With ZeRO 3, let transformers hand out each weight of a model as it reads it, so that no rank holds them all.

    Args:
        settings: of the engine that the model is for.
        dtype: of the weights, which DeepSpeed decides, not transformers.
    """
    if settings.zero_stage != 3:
        yield
        return
    from transformers.integrations.deepspeed import HfDeepSpeedConfig, unset_hf_deepspeed_config

    _compile_nothing(settings.device)
    kept = HfDeepSpeedConfig({**_deepspeed_config(settings), "bf16": {"enabled": dtype == "bfloat16"}})
    try:
        yield  # transformers finds it by a weak reference
    finally:
        unset_hf_deepspeed_config()
        del kept


def _compile_nothing(device: str) -> None:
    """Keep DeepSpeed on a CPU from compiling an extension for collectives on gloo where it finds a C++ compiler."""
    import deepspeed

    if device == "cpu":  # looked up, this table tries the compiler on every extension; no entry means no extension
        deepspeed.ops.__compatible_ops__ = defaultdict(bool)


def _moments_of(parameter: torch.nn.Parameter) -> Sequence[str]:
    return (MOMENTUM,) if getattr(parameter, "use_muon", False) else ADAM_MOMENTS


def _buckets(wanted: Iterable[tuple[Any, str]]) -> Iterator[list[tuple[Any, str]]]:
    """Yield parameters in turn, as many together as are `BUCKET_ELEMENTS`; a larger one by itself."""
    bucket, n_elements = list[tuple[Any, str]](), 0
    for item in wanted:
        if bucket and n_elements + item[0].numel() > BUCKET_ELEMENTS:
            yield bucket
            bucket, n_elements = [], 0
        bucket.append(item)
        n_elements += item[0].numel()
    if bucket:
        yield bucket


def whole_shape(parameter: torch.Tensor) -> tuple[int, ...]:
    """Return the shape of a parameter, of which with ZeRO 3 a rank may hold a share."""
    return tuple(getattr(parameter, "ds_shape", parameter.shape))


def _whole(parameter: torch.Tensor) -> AbstractContextManager[Any]:
    """Return a context in which a parameter holds all its numbers, and at whose end the first rank's count."""
    if not hasattr(parameter, "ds_id"):
        return nullcontext()
    import deepspeed

    gathered: AbstractContextManager[Any] = deepspeed.zero.GatheredParameters([parameter], modifier_rank=0)
    return gathered


def _already_averaged(*_: Any) -> None:
    """Stand in for DeepSpeed's average of the gradient over ranks, which with autocast would round it to bfloat16."""


def _deepspeed_config(settings: TrainerConfig) -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        # step() is the boundary, so that batches may have different numbers of micro-batches.
        "managed_gradient_accumulation": False,
        "zero_optimization": _zero_config(settings),
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,  # it is compiled at run time
        "bf16": {"enabled": settings.has_master_weights},
        "data_types": {"grad_accum_dtype": "fp32"},
        "torch_autocast": _autocast_config(settings),
        "gradient_clipping": 0.0 if settings.optimizer == "muon" else 1.0,
        "steps_per_print": NEVER,
    }


def _zero_config(settings: TrainerConfig) -> dict[str, Any]:
    config: dict[str, Any] = {"stage": settings.zero_stage, "overlap_comm": False}
    if settings.optimizer == "muon":
        config["compute_grad_norm"] = False  # the norm that counts is ours; DeepSpeed's costs a message for every group
    if settings.zero_stage == 3:
        config["reduce_bucket_size"] = BUCKET_ELEMENTS
    host = {"device": "cpu", "pin_memory": settings.device == "cuda"}
    if settings.offload != "none":
        config["offload_optimizer"] = host
    if settings.offload == "all":
        config["offload_param"] = host
    return config


def _autocast_config(settings: TrainerConfig) -> dict[str, Any]:
    config: dict[str, Any] = {"enabled": bool(settings.is_autocast), "dtype": "bfloat16"}
    if settings.zero_stage == 3:
        # With autocast DeepSpeed would bring the float32 weights of linear layers together as bfloat16: right for
        # training, but the probe, which is in float32, would see other weights than those that are saved.
        config["lower_precision_safe_modules"] = []
    return config


def _is_decayed(parameter: torch.nn.Parameter) -> bool:
    return len(whole_shape(parameter)) >= 2


def _adamw_groups(parameters: Sequence[torch.nn.Parameter]) -> list[dict[str, Any]]:
    """Return one group with weight decay (matrices) and one without; learning rate and the rest come with `prepare`."""
    halves = [(True, [p for p in parameters if _is_decayed(p)]), (False, [p for p in parameters if not _is_decayed(p)])]
    settings = {"lr": 0.0, "lr_scale": 1.0, "weight_decay": 0.0, "betas": (0.9, 0.999), "eps": 1e-8}
    return [{"params": half, "is_decayed": is_decayed, **settings} for is_decayed, half in halves if half]


def _adamw(model: Any, *, is_fused: bool) -> torch.optim.Optimizer:
    import torch

    return torch.optim.AdamW(_adamw_groups([p for p in model.parameters() if p.requires_grad]), fused=is_fused)


def _muon(model: Any) -> torch.optim.Optimizer:
    """Return DeepSpeed's Muon, the one that knows ZeRO's flat partitions; it sorts the matrices by their size."""
    from deepspeed.runtime.zero.muon.muon_optimizer import MuonWithAuxAdam

    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    for name, parameter in named:
        parameter.use_muon = parameter.ndim == 2 and not ("embed" in name or "lm_head" in name)
    settings = {"lr": 0.0, "lr_scale": 1.0, "weight_decay": 0.0, "momentum": MUON_MOMENTUM}
    matrices = [p for _, p in named if p.use_muon]
    others = _adamw_groups([p for _, p in named if not p.use_muon])
    optimizer: torch.optim.Optimizer = MuonWithAuxAdam(
        [
            {"params": matrices, "is_decayed": True, "use_muon": True, **settings},
            *({**group, "use_muon": False} for group in others),
        ]
    )
    return optimizer


def _lr_scale(group: dict[str, Any], optimiser: OptimiserConfig) -> float:
    """Return the factor between the phase's learning rate and this group's."""
    if not group.get("use_muon") or optimiser.muon_learning_rate is None:
        return 1.0
    return optimiser.muon_learning_rate / optimiser.learning_rate
