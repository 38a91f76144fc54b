"""Which Ray a run uses, and what it asks of it."""

from __future__ import annotations

import os

from pydantic import Field

from plansmith.config.basics import StrictModel


class ClusterConfig(StrictModel):
    """The Ray that the run uses."""

    address: str = "local"
    """`auto` or an address joins a running one. `local` starts one for this run, unless the environment variable
    RAY_ADDRESS names one, as it does in a job submitted to a Ray."""
    num_cpus: int = Field(2, ge=1)
    """Cores of a Ray started for this run."""
    max_workers: int | None = Field(None, ge=1)
    """Worker processes at most of each parallel stage. None: as many as Ray has cores when the stage begins; give a
    number where Ray adds machines on demand."""
    actor_cpus: float = Field(0, ge=0)
    """Cores that each rank of the trainer and each engine reserves. 0: none, and without GPUs they stay on the machine
    that conducts the run, where they take turns with the parallel stages."""
    trainer_resource: str | None = None
    """A resource of the cluster's own, such as `trainer`, of which each rank takes one beside its GPU, so that it comes
    to machines meant for it and Ray's autoscaler adds those."""
    policy_resource: str | None = None
    """The same for the engines."""
    stall_limit_s: float = Field(3600, ge=0)
    """How long nothing at all may move before the run ends with an error that names the stage; 0: for ever."""

    @property
    def ray_address(self) -> str:
        """Return the address to join, or `local`."""
        return os.environ.get("RAY_ADDRESS", self.address) if self.address == "local" else self.address

    @property
    def is_local(self) -> bool:
        """Return whether this run starts a Ray of its own."""
        return self.ray_address == "local"
