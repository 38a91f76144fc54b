"""Where the figures of a run are shown besides its own live page and report."""

from __future__ import annotations

from pydantic import Field

from plansmith.config.basics import StrictModel


class TelemetryConfig(StrictModel):
    """The windows of a run; none of them changes a result, and none that fails stops a run."""

    tensorboard: bool = True
    """Write TensorBoard files into the folder ``tensorboard`` of the run."""
    ray_metrics: bool = True
    """Hand every figure to Ray, which serves it to Prometheus; only while Ray runs."""
    wandb_project: str | None = Field(None, min_length=1)
    """Also log to this project of Weights & Biases. The key comes from that tool's own login, never from a setting;
    with ``WANDB_MODE=offline`` it writes files only."""
