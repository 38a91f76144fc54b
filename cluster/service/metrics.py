"""What the service counts, through Ray's own metrics; every name begins with ``plansmith_serve_``.

Ray's agent on each node exports them for Prometheus, with ``ray_`` in front of the name.
"""

from __future__ import annotations

from urllib.request import ProxyHandler, build_opener

from ray.serve import metrics

from cluster.service.answer import PlanAnswer

PREFIX = "plansmith_serve_"
SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
"""Upper ends of the classes of every time."""
EXPORT_LIMIT_S = 5.0


class ServiceMetrics:
    """The metrics of one replica of the front.

    Sums of Ray's histograms are estimates; exact seconds are in ``plansmith_serve_seconds_total``.
    """

    def __init__(self) -> None:
        self._requests = metrics.Counter(
            f"{PREFIX}requests_total",
            "Requests by route and by how they ended.",
            ("path", "outcome"),  # type: ignore[arg-type]  # Ray names the type of one key
        )
        self._plans = metrics.Counter(f"{PREFIX}plans_total", "Plans given out, by who wrote them.", ("source",))
        self._turns = metrics.Counter(f"{PREFIX}policy_turns_total", "Answers of the policy by verdict.", ("verdict",))
        self._seconds = metrics.Counter(f"{PREFIX}seconds_total", "Seconds that requests spent on a part.", ("part",))
        self._latency = metrics.Histogram(
            f"{PREFIX}request_seconds", "Time of a request, waiting included.", list(SECONDS), ("path",)
        )
        self._running = metrics.Gauge(f"{PREFIX}running_requests", "Requests that have a slot.")
        self._queued = metrics.Gauge(f"{PREFIX}queued_requests", "Requests that wait for a slot.")

    def finished(self, path: str, outcome: str, seconds: float) -> None:
        """Count a request that got its answer, was refused, or was given up by its client."""
        self._requests.inc(tags={"path": path, "outcome": outcome})
        self._latency.observe(seconds, tags={"path": path})

    def answered(self, answer: PlanAnswer, queued_s: float) -> None:
        """Count what is in an answer about a plan."""
        if answer.source is not None:
            self._plans.inc(tags={"source": answer.source})
        for verdict in answer.turns:
            self._turns.inc(tags={"verdict": verdict})
        for part, seconds in {**answer.timings, "queued_s": queued_s}.items():
            if seconds > 0:  # Ray refuses to add nothing
                self._seconds.inc(seconds, tags={"part": part.removesuffix("_s")})

    def loaded(self, running: int, queued: int) -> None:
        """Set how many requests there are."""
        self._running.set(running)
        self._queued.set(queued)


def exported_metrics() -> str:
    """Return the service's metrics as the agent of this node exports them, in Prometheus' text format.

    Raises:
        OSError: the agent does not answer.
    """
    import ray

    here = ray.get_runtime_context().get_node_id()
    [node] = [node for node in ray.nodes() if node["NodeID"] == here]
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    opener = build_opener(ProxyHandler({}))  # a proxy of the environment knows nothing of this node
    with opener.open(url, timeout=EXPORT_LIMIT_S) as response:
        lines = response.read().decode().splitlines()
    return "".join(f"{line}\n" for line in lines if PREFIX in line)
