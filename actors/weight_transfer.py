"""Weights from the trainer straight into the engines, without a folder between, by vLLM's weight transfer.

vLLM brings both ends for NCCL, between GPUs. Here is what they need of us: the trainer's weights one by one, a voice to
several engines, and the same two ends for CPUs, over gloo. Imported only where weights go that way: it imports vLLM.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Self

import torch
from torch.distributed import BroadcastOptions, ProcessGroup
from vllm.distributed.utils import stateless_init_torch_distributed_process_group
from vllm.distributed.weight_transfer.base import ParamMeta, WeightSource
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.distributed.weight_transfer.nccl_common import NCCLWeightTransferInitInfo, worker_init_payload
from vllm.distributed.weight_transfer.nccl_engine import (
    NCCLTrainerInitInfo,
    NCCLTrainerWeightTransferEngine,
    NCCLWeightTransferEngine,
)

GLOO, NCCL = "gloo", "nccl"
"""How the two meet: on CPUs, on GPUs."""
TIMEOUT_S = 600


class TrainedWeights(WeightSource):
    """The trainer's parameters as a sender wants them, one by one; every rank reads through, each brings its share.

    Args:
        shapes: of all by name, in the order of `weights`.
        weights: yields them anew, whole.
        dtype: of the engines, to which each is rounded before it is sent.
    """

    def __init__(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        weights: Callable[[], Iterable[tuple[str, torch.Tensor]]],
        dtype: torch.dtype,
    ) -> None:
        self._shapes, self._weights, self._dtype = shapes, weights, dtype

    def metadata(self) -> list[ParamMeta]:
        """Return name, type and shape of each."""
        return [ParamMeta(name, self._dtype, shape) for name, shape in self._shapes.items()]

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in self._weights():
            yield name, tensor.to(self._dtype)


class EngineClients:
    """What the sender says to the engines, to all of them at once: vLLM's control calls, by Ray.

    Args:
        actors: handles of `actors.policy.PolicyActor`.
        n_parts: processes of each engine.
    """

    def __init__(self, actors: Sequence[Any], n_parts: int) -> None:
        self._actors, self._n_parts = actors, n_parts

    def _ask(self, call: str, arguments: Iterable[tuple[Any, ...]]) -> None:
        import ray

        ray.get([actor.receive.remote(call, *own) for actor, own in zip(self._actors, arguments, strict=True)])

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Let the engines leave whom they met before, and join; each counts its processes from a number of its own."""
        self._ask("shutdown_weight_transfer_engine", ((),) * len(self._actors))
        first = init_info["rank_offset"]
        infos = [{**init_info, "rank_offset": first + i * self._n_parts} for i in range(len(self._actors))]
        self._ask("init_weight_transfer_engine", ((info,) for info in infos))

    def start_weight_update(self) -> None:
        """Let them expect weights."""
        self._ask("start_weight_update", ((),) * len(self._actors))

    def update_weights(self, update_info: Any) -> None:
        """Let them take what is sent meanwhile."""
        self._ask("update_weights", ((update_info,),) * len(self._actors))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Let them use what they have."""
        self._ask("finish_weight_update", ((),) * len(self._actors))


def open_sender(source: WeightSource, actors: Sequence[Any], *, n_parts: int, rank: int, backend: str) -> Any:
    """Return what sends the trainer's weights with each `send_weights()`; every rank opens one and calls it.

    Args:
        source: of the weights.
        actors: handles of the engines.
        n_parts: processes of each engine.
        rank: of this process in the trainer; the first one's sender sends.
        backend: `GLOO` or `NCCL`.
    """
    import ray

    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    end, info = SENDERS[backend]
    return end.trainer_init(
        info(
            master_address=ray.util.get_node_ip_address(),
            master_port=port,
            world_size=1 + len(actors) * n_parts,
            rank=rank,
        ),
        client=EngineClients(actors, n_parts),
        source=source,
    )


def _join(address: str, port: int, *, rank: int, world_size: int) -> ProcessGroup:
    timeout = timedelta(seconds=TIMEOUT_S)
    group: Any = stateless_init_torch_distributed_process_group(address, port, rank, world_size, GLOO, timeout=timeout)
    return group  # type: ignore[no-any-return]


def _broadcast(group: ProcessGroup, tensor: torch.Tensor) -> None:
    """Send a tensor of rank 0's, or take it."""
    options = BroadcastOptions()
    options.rootRank, options.rootTensor = 0, 0
    group.broadcast([tensor], options).wait()


class GlooReceiver(NCCLWeightTransferEngine):
    """An engine's end on a CPU; how weights enter the model is vLLM's."""

    _group: ProcessGroup | None = None

    def init_transfer_engine(self, init_info: Any) -> None:
        """Meet the trainer."""
        rank = init_info.rank_offset + self.parallel_config.rank
        address, port = init_info.master_address, init_info.master_port
        self._group = _join(address, port, rank=rank, world_size=init_info.world_size)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Take the weights; there is no device to wait for."""
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: Any) -> None:
        """Take the weights one by one."""
        if self._group is None:
            raise RuntimeError("the engine has not met the trainer")
        model: Any = self.model
        told = zip(update_info.names, update_info.dtype_names, update_info.shapes, strict=True)
        for name, dtype, shape in told:
            tensor = torch.empty(shape, dtype=getattr(torch, dtype))
            _broadcast(self._group, tensor)
            model.load_weights([(name, tensor)])

    def shutdown(self) -> None:
        """Part from the trainer."""
        self._group = None


@dataclass
class GlooTrainerInfo(NCCLTrainerInitInfo):
    """Where the two meet."""

    backend: ClassVar[str] = GLOO
    packed: bool = False


class GlooSender(NCCLTrainerWeightTransferEngine):
    """The trainer's end on a CPU; in which order the engines are asked is vLLM's."""

    _group: ProcessGroup | None = None

    @classmethod
    def trainer_init(cls, init_info: NCCLTrainerInitInfo, *, client: Any, source: Any = None) -> Self:
        """Meet the engines, which must be asked beside it: each side waits for the other."""
        sender = cls(client=client, source=source, is_sender=init_info.is_sender, packed=False)
        if sender.is_sender:
            address, port, world_size = init_info.master_address, init_info.master_port, init_info.world_size
            theirs = NCCLWeightTransferInitInfo(
                master_address=address, master_port=port, rank_offset=1, world_size=world_size
            )
            with ThreadPoolExecutor(max_workers=1) as beside:
                joined = beside.submit(client.init_weight_transfer_engine, worker_init_payload(theirs))
                sender._group = _join(address, port, rank=0, world_size=world_size)
                joined.result()
        return sender

    def _broadcast(self, source: WeightSource, meta: list[ParamMeta]) -> None:
        for _, tensor in self._checked_iter(source, meta):
            if self._group is not None:
                _broadcast(self._group, tensor.contiguous())

    def shutdown(self) -> None:
        """Part from the engines."""
        self._group = None


SENDERS: Mapping[str, tuple[Any, Any]] = {
    GLOO: (GlooSender, GlooTrainerInfo), NCCL: (NCCLTrainerWeightTransferEngine, NCCLTrainerInitInfo),
}  # fmt: skip
WeightTransferEngineFactory.register_engine(GLOO, GlooReceiver)
