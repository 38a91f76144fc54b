"""The trainer: one rank, which holds a model, or an adapter on a frozen one, and optimises it.

`TrainerActor` is a plain class, testable without Ray; `actors.ranks` has one in each worker of Ray Train. The loop is
in `plansmith.learning.optimisation`, the calls into DeepSpeed are in `actors.deepspeed_engine`, adapters and their
folders in `plansmith.learning.adapters`. Heavy libraries are imported when an actor is made, not when this file is.
"""

from __future__ import annotations

import gc
import logging
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actors.deepspeed_engine import DeepSpeedEngineAdapter, handing_out_weights, whole_shape
from actors.telemetry import RayListener, record_as
from plansmith.config.training import TrainerConfig
from plansmith.data.artifacts import installed_tool_versions
from plansmith.data.storage import move_folder
from plansmith.errors import BadInputError, ConfigError, LostWorkerError, PlansmithError
from plansmith.garbage import no_garbage
from plansmith.learning import adapters
from plansmith.learning.weight_files import shard_name, write_index, write_weights
from plansmith.live import LiveFile, LiveProgress, report, report_to

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from plansmith.config.training import OptimiserConfig
    from plansmith.learning.objectives.base import Objective, Reader
    from plansmith.learning.objectives.trust_region import TrustRegion
    from plansmith.learning.optimisation import OptimisationReport
    from plansmith.learning.packing import PackingReport, Unit
    from plansmith.learning.sequences import Sequences

logger = logging.getLogger(__name__)

BFLOAT16_INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16")
"""The last is Arm's; as `torch.cpu.get_capabilities` names them."""
FREE_SETTINGS = {
    "n_threads", "micro_batch_tokens", "is_checkpointing_activations", "min_ranks", "rank_timeout_s",
    "checkpoint_every_s",
}  # fmt: skip
"""What may be another when an optimisation goes on from a checkpoint: it changes rounding at most."""


class TrainerActor:
    """One rank of the trainer. Every rank gets the same calls with the same sequences and cuts its own share."""

    def __init__(
        self,
        model_folder: str | Path,
        *,
        config: TrainerConfig,
        seed: int = 0,
        rank: int = 0,
        n_ranks: int | None = None,
        master_addr: str = "127.0.0.1",
        master_port: int = 0,
        run_folder: str | None = None,
    ) -> None:
        """Load the model and start the engine, the ``rank``-th of ``n_ranks``.

        Args:
            model_folder: Hugging Face layout; its tokenizer files travel with every `save`. With ``lora`` either the
                base, which gets a fresh adapter whose product is zero, or an adapter folder.
            seed: of fresh adapters and of dropout.
            n_ranks: how many there are, which may be fewer than ``config.n_ranks`` (`TrainerConfig.min_ranks`): batches
                stay what they are. None: as many.
            master_addr, master_port: where rank 0 listens; not used with one rank.
            run_folder: where rank 0 says what it is doing (`plansmith.live`).

        Raises:
            BadInputError: the folder holds no model, an adapter without its base, or one that does not fit ``lora``.
        """
        self.rank, self.seed, self.n_ranks = rank, seed, n_ranks or config.n_ranks
        if run_folder is not None and rank == 0:
            report_to(LiveFile(Path(run_folder), "trainer"), RayListener(Path(run_folder).name, "trainer"))
        report("loading the model")
        folder = Path(model_folder)
        self.base_folder = _base_folder(folder, config)
        with no_garbage():
            _prepare_process(config, seed, rank)
            _join_process_group(config, rank, self.n_ranks, f"tcp://{master_addr}:{master_port}")
            has_bfloat16 = _has_bfloat16(config.device)
            self.config = config = _decided(config, has_bfloat16=has_bfloat16)
            model = _load_model(self.base_folder, config, config.dtype, seed=seed, rank=rank)
            self.engine = DeepSpeedEngineAdapter(model, config, has_bfloat16=has_bfloat16)
            if config.has_master_weights:  # DeepSpeed begins with those of the model, which are rounded
                self._load_whole_model(self.base_folder)
        self._sender: Any = None  # of weights to engines, once there is one
        self._reference: tuple[str, Mapping[str, torch.Tensor]] = ("", {})
        if config.lora is not None:
            self._fresh_adapter = self._on_every_rank(self.engine.weights())
            if adapters.is_adapter_folder(folder):
                self.load(folder)

    def optimise(
        self,
        objective: Objective | TrustRegion,
        sequences: Sequences,
        settings: OptimiserConfig,
        *,
        seed: int = 0,
        keeps_moments: bool = False,
        epoch: int | None = None,
        description: str = "",
        checkpoints: str | Path | None = None,
    ) -> OptimisationReport:
        """Train on ``sequences``; return losses and rates by step, and how many sequences did not fit.

        Args:
            objective: what is minimised; or what is solved, in one step of all sequences, on one rank.
            sequences: the same on every rank, which reads those of its rows; too long ones are left out whole.
            settings: of this phase.
            seed: of the order of the sequences, and of dropout.
            keeps_moments: let the optimizer go on from the moments of the call before, or of the checkpoint. Otherwise
                they start anew: those of another phase describe another loss.
            epoch: train on this one alone of the settings' epochs, from 1, as if those before had just been; None
                trains on all.
            description: what a progress bar says.
            checkpoints: folder that all ranks see, of this optimisation alone (`plansmith.learning.checkpoints`): what
                lies there is gone on from, instead of from the weights held, and every ``checkpoint_every_s`` the
                state is kept there. None keeps none.

        Raises:
            BadInputError: nothing to train on, or the checkpoints are of another optimisation.
            PlansmithError: training diverged.
        """
        import torch

        from plansmith.learning.checkpoints import Checkpoints
        from plansmith.learning.objectives.trust_region import TrustRegion
        from plansmith.learning.optimisation import plan_optimisation, run_optimisation
        from plansmith.learning.policy_region import run_trust_region
        from plansmith.learning.sequence_files import lengths_of, unit_names_of

        if isinstance(objective, TrustRegion):
            settings = objective.whole_batch(settings, len(sequences))
        row_length = self.config.row_length_tokens
        is_shared = settings.shares_prompts and not isinstance(objective, TrustRegion)
        plan = plan_optimisation(
            lengths_of(sequences).tolist(),
            settings,
            seed=seed,
            row_length_tokens=self.config.micro_batch_tokens or row_length,
            longest_tokens=row_length,
            n_ranks=self.n_ranks,
            unit_names=unit_names_of(sequences),
            sharing=_sharing(sequences, objective.columns, row_length) if is_shared else None,
        )
        if isinstance(objective, TrustRegion):
            return run_trust_region(self.engine, objective, sequences, plan)
        torch.manual_seed(seed + self.rank)  # what is dropped must not depend on what was trained before
        self.engine.prepare(settings, keeps_moments=keeps_moments)
        record_as(objective=objective.name)
        n_planned = len(plan.steps_of(epoch))
        keeper: Checkpoints | None = None
        if checkpoints is not None:
            made_for = self._made_for(objective, settings, plan.packing, seed=seed, epoch=epoch)
            every_s = self.config.checkpoint_every_s
            keeper = Checkpoints(Path(checkpoints), self, made_for, n_planned=n_planned, every_s=every_s)
        report = run_optimisation(
            self.engine,
            objective,
            sequences,
            settings,
            plan,
            epoch=epoch,
            progress=LiveProgress(description or objective.name, n_planned, unit="step"),
            description=description or objective.name,
            keeper=keeper,
        )
        return replace(report, n_missing_ranks=self.config.n_ranks - self.n_ranks)

    def _made_for(
        self, objective: Objective, settings: OptimiserConfig, packing: PackingReport, **call: Any
    ) -> dict[str, Any]:
        """Return what a checkpoint's state hangs on, by dotted name; where and how fast it is computed is not."""
        versions = installed_tool_versions()
        return {
            "objective": objective.name,
            **call,
            **{name: getattr(packing, name) for name in ("n_sequences", "n_tokens")},
            **{f"optimiser.{name}": value for name, value in settings.model_dump(mode="json").items()},
            **{
                f"trainer.{name}": value
                for name, value in self.config.model_dump(mode="json", exclude=FREE_SETTINGS).items()
            },
            **{name: versions[name] for name in ("torch", "deepspeed")},
        }

    def predict(self, reader: Reader, sequences: Sequences, *, as_trained: bool = False) -> list[NDArray[np.float32]]:
        """Return what ``reader`` reads at each token of each sequence, without training.

        Rows are no longer than a sequence that is trained on may be, as all their logits are held; one that is longer
        is read by itself, not dropped. Every rank must make this call, reads its share and gets the whole answer.

        Args:
            reader, sequences: what is read, and of what.
            as_trained: products are rounded as those of a training step, with which what is read will be compared.
        """
        import numpy as np

        from plansmith.learning.optimisation import micro_batches
        from plansmith.learning.packing import pack_rows, units_of
        from plansmith.learning.sequence_files import lengths_of

        lengths = lengths_of(sequences).tolist()
        limits = [self.config.row_length_tokens, self.config.micro_batch_tokens or self.config.row_length_tokens]
        row_length = max([min(limits), *lengths])
        rows = pack_rows(units_of(lengths, [""] * len(lengths)), row_length, n_ranks=self.n_ranks)
        places = np.cumsum([0, *lengths])
        found = np.zeros(places[-1])
        for batch in micro_batches(sequences, rows, reader.columns, rank=self.rank, world_size=self.n_ranks):
            numbers = self.engine.predict(batch, reader, as_trained=as_trained).numpy()
            for row, indices in enumerate(batch.rows):
                start = 0
                for index in indices:
                    end = start + lengths[index]
                    found[places[index] : places[index + 1]] = numbers[row, start:end]
                    start = end
        everywhere = np.asarray(self.engine.sum_over_ranks(found), np.float32)
        return [everywhere[start:end] for start, end in pairwise(places)]

    def token_logprobs(
        self,
        sequences: Sequences,
        *,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = 0,
        as_trained: bool = False,
        weights: str | None = None,
    ) -> list[NDArray[np.float32]]:
        """Return what `TokenLogprobs` reads of each token, by sequence; 0 for the first. See `predict`.

        Args:
            sequences, temperature, top_p, top_k, as_trained: what is read, and how.
            weights: of another folder, by which it is read instead; a frozen copy of each rank's share of them stays in
                the memory of the host, until they are those of another folder. What is trained is left as it is.

        Raises:
            BadInputError: see `load`.
        """
        from plansmith.learning.objectives.supervised import TokenLogprobs

        reader = TokenLogprobs(temperature, top_p, top_k)
        with nullcontext() if weights is None else self.engine.holding(self._shares_of(weights)):
            found = self.predict(reader, sequences, as_trained=as_trained)
        for numbers in found:
            numbers[0] = 0.0  # in a packed row it is that of following a stranger
        return found

    def _shares_of(self, folder: str) -> Mapping[str, torch.Tensor]:
        if self._reference[0] != folder:
            self._reference = "", {}  # two would not fit
            self._reference = folder, self.engine.shares_of(self._read(Path(folder)))
        return self._reference[1]

    def end(self) -> None:
        """Let go of the model, which nothing else may be asked of: its hooks and the engine hold each other."""
        import torch

        if self._sender is not None:
            self._sender.shutdown()
            self._sender = None  # which holds the engine, too
        self.engine.end()
        del self.engine
        gc.collect()
        if self.config.device != "cpu":
            torch.cuda.empty_cache()

    def sleep(self) -> None:
        """Give the device's memory to the engine beside it until `wake_up`, before which nothing else may be asked."""
        self.engine.sleep()

    def wake_up(self) -> None:
        """Take the memory again; awake already, do nothing."""
        self.engine.wake_up()

    def save(self, folder: str | Path, *, has_weights: bool = True) -> None:
        """Write model and tokenizer in Hugging Face layout, or the adapter; ``folder`` is complete or not there.

        Without weights it gets the rest of a whole model, which engines need that are sent these (`send_weights`).

        The tensors are in float32, also those of a model in bfloat16: rounded from stage to stage, small updates would
        be lost. Its ``config.json`` says bfloat16 still, and who reads it without a wish gets that. All ranks must make
        the call, and return when all is written: by rank 0, or, of a whole model with ZeRO 3, a file by each rank, so
        that none ever holds it all.

        Raises:
            OSError: a rank could not; of this all ranks hear, and ``folder`` is as before.
        """
        module = self.engine.module
        is_sharded = self.config.zero_stage == 3 and self.config.lora is None and self.n_ranks > 1
        if has_weights and is_sharded and _is_saved_as_held(module, self.engine.shapes()):
            self._written_by_all(Path(folder), self._save_share)
            return
        folder = Path(folder)
        weights = self.engine.weights() if has_weights else {}
        with self._all_or_none():
            if self.rank == 0 and not has_weights:
                with adapters.written_whole(folder) as partial:
                    self._save_settings(partial)
            elif self.rank == 0 and self.config.lora is not None:
                adapters.save_adapter(module, folder, weights=weights, base_folder=self.base_folder)
            elif self.rank == 0:
                with adapters.written_whole(folder) as partial:
                    module.save_pretrained(partial, state_dict={**weights, **_buffers(module)})
                    adapters.copy_tokenizer(self.base_folder, partial)

    def _save_share(self, folder: Path) -> None:
        """Write every n-th parameter, from this rank's number on; the first rank also writes what is no parameter."""
        module, weights = self.engine.module, self.engine.weights(is_shared_out=True)
        if self.rank == 0:
            weights |= _buffers(module)
            self._save_settings(folder)
            write_index(folder, self.engine.shapes(), _buffers(module), n_files=self.n_ranks)
        write_weights(weights, folder / shard_name(self.rank, self.n_ranks))

    def _save_settings(self, folder: Path) -> None:
        module = self.engine.module
        module.config.save_pretrained(folder)
        if module.can_generate():
            module.generation_config.save_pretrained(folder)
        adapters.copy_tokenizer(self.base_folder, folder)

    def load(self, folder: str | Path) -> None:
        """Take the weights of another folder with the same architecture; the optimizer's moments start anew.

        With ``lora``: those of an adapter on the same base, or, given the base itself, those of the fresh adapter.

        Raises:
            BadInputError: no model in ``folder``, one with other tensors, or an adapter with another base.
        """
        if self.config.lora is None:
            self._load_whole_model(Path(folder))
        else:
            self.engine.set_weights(self._read(Path(folder)))

    def _read(self, folder: Path) -> Mapping[str, torch.Tensor]:
        """Return what a folder has of the trained parameters; see `load`."""
        if self.config.lora is None:
            return dict(self._whole_model(folder).named_parameters())
        if not adapters.is_adapter_folder(folder):
            _check_same_base(folder, self.base_folder)
            return self._fresh_adapter
        shapes = self.engine.shapes()
        return adapters.read_adapter(folder, self.config.lora, base_folder=self.base_folder, shapes=shapes)

    def send_weights(self, engines: Sequence[Any], *, n_parts: int, dtype: str, is_new: bool) -> None:
        """Send the model's weights to engines that expect them. All ranks must make the call.

        Args:
            engines: handles of `actors.policy.PolicyActor`.
            n_parts: processes of each.
            dtype: of the engines.
            is_new: engines or ranks are others than at the call before, or there was none: they have to meet first.

        Raises:
            BadInputError: a model whose files have other tensors than it has.
            LostWorkerError: an engine died.
        """
        import torch
        from ray.exceptions import RayError

        from actors.weight_transfer import GLOO, NCCL, TrainedWeights, open_sender

        try:
            if is_new or self._sender is None:
                if not _is_saved_as_held(self.engine.module, self.engine.shapes()):
                    raise BadInputError("this model's files have other tensors than the model in the trainer",
                                        where="policy.handover=direct", cure="set policy.handover=folder")  # fmt: skip
                if self._sender is not None:
                    self._sender.shutdown()
                source = TrainedWeights(self.engine.shapes(), self.engine.whole_weights, getattr(torch, dtype))
                backend = GLOO if self.config.device == "cpu" else NCCL
                self._sender = open_sender(source, engines, n_parts=n_parts, rank=self.rank, backend=backend)
            self._sender.send_weights()
        except PlansmithError:
            raise
        except (RayError, RuntimeError) as error:
            self._sender = None  # the group's own error, or of an engine that began anew and has not met the trainer
            if self.rank:  # waited for the sender in vain, in a group that is of no use any more
                raise
            raise LostWorkerError("an engine was lost as it took weights", got=str(error)[:400]) from error

    def save_checkpoint(self, folder: str | Path) -> None:
        """Write what `load_checkpoint` needs to train on as if nothing had happened: weights, optimizer, random state.

        ``folder`` is complete or not there, and replaced if it is. Every rank must make the call and writes its share.

        Raises:
            OSError: a rank could not, a disk that is full for one; of this all ranks hear, and ``folder`` is as before.
        """
        self._written_by_all(Path(folder), self.engine.save_state)

    def _written_by_all(self, folder: Path, write: Callable[[Path], None]) -> None:
        """Let every rank write into a folder that takes the place of ``folder`` once all have."""
        partial = folder.with_name(f".{folder.name}.partial")
        try:
            with self._all_or_none():
                if self.rank == 0:
                    shutil.rmtree(partial, ignore_errors=True)
                    partial.mkdir(parents=True)
            with self._all_or_none():
                write(partial)
            with self._all_or_none():
                if self.rank == 0:
                    move_folder(partial, folder)
        except OSError:
            if self.rank == 0:
                shutil.rmtree(partial, ignore_errors=True)
            raise

    @contextmanager
    def _all_or_none(self) -> Iterator[None]:
        """Wait at the end for every rank, and raise on all of them if one could not write."""
        problem: OSError | None = None
        try:
            yield
        except OSError as error:
            problem = error
        if self.sum_over_ranks([float(problem is not None)])[0]:
            raise problem or OSError("another rank could not write its share")

    def sum_over_ranks(self, numbers: Sequence[float]) -> NDArray[np.float64]:
        """Return the element-wise sum over ranks; all must make the call."""
        return self.engine.sum_over_ranks(numbers)

    def load_checkpoint(self, folder: str | Path) -> None:
        """Take the weights and the optimizer's state of a checkpoint that any number of ranks wrote.

        Raises:
            BadInputError: no checkpoint there.
        """
        if not Path(folder).is_dir() or not self.engine.load_state(Path(folder)):
            raise BadInputError("no checkpoint here", where=str(folder), expected="a folder written by save_checkpoint")

    def _load_whole_model(self, folder: Path) -> None:
        model = self._whole_model(folder)
        self.engine.set_weights(dict(model.named_parameters()))
        self.engine.module.load_state_dict(_buffers(model), strict=False)
        if self.config.zero_stage == 3:
            del model
            gc.collect()  # whose parameters refer to themselves
        self.base_folder = _base_folder(folder, self.config)

    def _whole_model(self, folder: Path) -> Any:
        base_folder = _base_folder(folder, self.config)
        model = _load_model(base_folder, self.config, "float32", seed=self.seed, rank=self.rank)
        got = {name: whole_shape(weight) for name, weight in model.named_parameters()}
        expected = self.engine.shapes()
        if got != expected:
            unlike = sorted(name for name in got.keys() | expected.keys() if got.get(name) != expected.get(name))
            raise BadInputError("the model does not fit the trainer's", where=str(folder),
                                got=f"{unlike[0]} of shape {got.get(unlike[0])}",
                                expected=f"{expected.get(unlike[0])}")  # fmt: skip
        return model

    def _on_every_rank(self, weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return rank 0's weights on every rank; the others have none of ZeRO 3's."""
        import torch.distributed as distributed

        box: list[Any] = [weights]
        if self.n_ranks > 1:
            distributed.broadcast_object_list(box, src=0)
        received: dict[str, torch.Tensor] = box[0]
        return received


def _sharing(sequences: Sequences, columns: Sequence[str], row_length: int) -> Callable[[Sequence[Unit]], list[Unit]]:
    """Return what makes of units those that share their beginnings; it reads sequences in the order they are stored."""
    from plansmith.learning.packing import sharing_units
    from plansmith.learning.sequence_files import storage_order

    def shared(units: Sequence[Unit]) -> list[Unit]:
        by_first = {unit.indices[0]: unit for unit in units}
        stored = [by_first[index] for index in storage_order(sequences) if index in by_first]
        found = sharing_units(stored, sequences, columns, row_length)
        return sorted(found, key=lambda unit: min(unit.indices))

    return shared


def _decided(config: TrainerConfig, *, has_bfloat16: bool) -> TrainerConfig:
    """Return the settings with what was left to the devices decided."""
    if config.is_autocast is not None:
        return config
    return config.model_copy(update={"is_autocast": has_bfloat16 and config.dtype == "float32"})


def _base_folder(folder: Path, config: TrainerConfig) -> Path:
    """Return the folder of the whole model: the folder itself, or the base of its adapter."""
    if adapters.is_adapter_folder(folder):
        if config.lora is None:
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


def _is_saved_as_held(module: Any, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Return whether a model's parameters have the same names in its files, as those of most have."""
    import torch
    from transformers.core_model_loading import revert_weight_conversion

    held = {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
    return bool(revert_weight_conversion(module, dict(held)).keys() == held.keys())


def _buffers(module: Any) -> Mapping[str, torch.Tensor]:
    """Return what a model saves besides its parameters."""
    parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    return {name: tensor for name, tensor in module.state_dict().items() if name not in parameters}


def rank_environment(config: TrainerConfig) -> dict[str, str]:
    """Return what torch and DeepSpeed are to find in the environment when they are imported."""
    return {
        "DS_ACCELERATOR": config.device,
        # Every length of sequence is another kernel; oneDNN keeps the last 1024 of them, 0.6 GiB and no faster.
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64",
        "OMP_WAIT_POLICY": "PASSIVE",  # threads that wait leave the cores to other processes
    }


def _prepare_process(config: TrainerConfig, seed: int, rank: int) -> None:
    """Set what DeepSpeed reads from the environment before it is imported, and undo Ray's single thread."""
    os.environ["DS_ACCELERATOR"] = config.device
    os.environ.setdefault("LOCAL_RANK", "0" if config.device == "cuda" else str(rank))
    for variable, value in rank_environment(config).items():
        os.environ.setdefault(variable, value)
    import torch

    if config.device == "cpu":
        # A trained model's attention is full of numbers too small for the normal range, which slow a CPU down.
        torch.set_flush_denormal(True)
        warnings.filterwarnings("ignore", "The value of the smallest subnormal", UserWarning)  # NumPy notices
        torch.set_num_threads(config.n_threads or len(os.sched_getaffinity(0)))
        # DeepSpeed decorates its Muon with torch.compile, which needs a C++ compiler at run time.
        torch.compiler.set_stance("force_eager")
    torch.manual_seed(seed)


def _join_process_group(config: TrainerConfig, rank: int, world_size: int, address: str) -> None:
    import torch.distributed as distributed

    if distributed.is_initialized():
        if distributed.get_world_size() != world_size:
            raise ConfigError(f"this process is already in a group of {distributed.get_world_size()} ranks")
        return
    backend = "gloo" if config.device == "cpu" else "nccl"
    meeting: dict[str, Any] = {"init_method": address}
    if world_size == 1:
        meeting = {"store": distributed.HashStore()}
    timeout = timedelta(seconds=config.rank_timeout_s)
    distributed.init_process_group(backend, rank=rank, world_size=world_size, timeout=timeout, **meeting)


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


def _load_model(folder: Path, config: TrainerConfig, dtype: str, *, seed: int, rank: int) -> Any:
    """Return the model of a folder, with a fresh adapter if one is asked for; with ZeRO 3 this rank's share of it."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging as transformers_logging

    from plansmith.learning.packed_attention import register_packed_attention
    from plansmith.learning.weight_files import SAFE_LOADING, check_weight_files

    check_weight_files(folder)
    transformers_logging.disable_progress_bar()
    is_bfloat16 = bool(config.is_autocast) or config.dtype == "bfloat16"
    with handing_out_weights(config, dtype):
        model = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=getattr(torch, dtype),
            attn_implementation=register_packed_attention(),
            **SAFE_LOADING,
            **adapters.quantised_loading(config.quantisation, is_bfloat16=is_bfloat16),
        )
    adapters.keep_differentiable(model)
    if config.is_checkpointing_activations:
        # Not the reentrant way, which finds no gradient to compute where only an adapter is trained.
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if config.lora is not None:
        model = adapters.attach_adapter(model, config.lora, base_folder=folder, seed=seed)
    torch.manual_seed(seed + rank)  # ranks have other sequences and drop other elements
    return model
