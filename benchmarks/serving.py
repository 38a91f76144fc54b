"""What the planning service gives on this machine: latency, who solved what, overload, memory; every plan judged again.

Freshly drawn Blocksworld problems are sent by clients that wait for each answer before they ask again. A client judges
every plan it gets with the validator, so a wrong plan is counted whatever the service says of it. Then four times as
many clients ask than have a place. The same is done with Fast Downward alone behind the same HTTP service, in the same
run: what the policy costs and saves against it.

    python benchmarks/serving.py [--policy runs/pddl_instruct-demo/model] [--requests N] [--clients N] [--url URL]

Clients run on the same cores as the service. The tables give seconds; the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plansmith.layout import text_table
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import Domain
from plansmith.pddl.parser import parse_step
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.pddl.validation import validate_plan
from plansmith.problems.library import PlanningDomain, load_domain

ROOT = Path(__file__).resolve().parents[1]
DOMAIN = "blocksworld"
OVERLOAD = 4
"""Clients in the overload, for each one before."""
START_LIMIT_S, END_LIMIT_S, ANSWER_LIMIT_S = 1200.0, 300.0, 300.0
LONGEST_PAUSE_S = 1.0
"""A refused client waits as long as it was told, but not longer than this."""


@dataclass(frozen=True)
class Reply:
    """One answer as the client sees it.

    Attributes:
        outcome: the status of a plan, the name of an error, or ``no answer``.
        source: who wrote the plan.
        is_wrong: there is a plan, and the client's validator refuses it.
    """

    code: int
    outcome: str
    source: str | None
    n_turns: int
    seconds: float
    is_wrong: bool


@dataclass(frozen=True)
class Load:
    """The answers to one load, and the wall-clock time of all of it."""

    replies: Sequence[Reply]
    wall_s: float

    @property
    def answered(self) -> list[Reply]:
        """Return the answers that are no refusals."""
        return [reply for reply in self.replies if reply.code == 200]

    def seconds(self, percent: int) -> float:
        """Return a percentile of the latency of what was answered (nearest rank)."""
        ordered = sorted(reply.seconds for reply in self.answered)
        return ordered[max(0, -(-percent * len(ordered) // 100) - 1)]

    def figures(self) -> dict[str, Any]:
        """Return what the JSON says of this load."""
        answered, codes = self.answered, Counter(reply.code for reply in self.replies)
        sources = Counter(reply.source for reply in answered)
        return {
            "requests": len(self.replies),
            "answered": len(answered),
            "refused_503": codes[503],
            "other_failures": len(self.replies) - len(answered) - codes[503],
            "solved": sum(reply.outcome == "solved" for reply in answered),
            "wrong_plans": sum(reply.is_wrong for reply in self.replies),
            "by_policy": sources["policy"],
            "by_planner": sources["planner"],
            "after_feedback": sum(reply.source == "policy" and reply.n_turns > 1 for reply in answered),
            "median_s": round(statistics.median(reply.seconds for reply in answered), 3) if answered else None,
            "p99_s": round(self.seconds(99), 3) if answered else None,
            "answers_per_s": round(len(answered) / self.wall_s, 2),
        }


class Client:
    """Draws problems, asks for plans, and believes none of them."""

    def __init__(self, url: str, domain: PlanningDomain, *, blocks: tuple[int, int], seed: int) -> None:
        self._url, self._domain, self._sizes, self._seed = url, domain, {"blocks": blocks}, seed
        self._domain_pddl = print_domain(domain.domain)

    def load(self, n_requests: int, n_clients: int) -> Load:
        """Return the answers to so many requests, each client with one under way."""
        start = time.perf_counter()
        with ThreadPoolExecutor(n_clients) as clients:
            replies = list(clients.map(self._ask, range(n_requests)))
        self._seed += 1  # problems of their own for every load
        return Load(replies, time.perf_counter() - start)

    def _ask(self, number: int) -> Reply:
        rng = random.Random(f"{self._seed} {number}")
        problem = print_problem(self._domain.sample("any", rng, sizes=self._sizes))
        content = json.dumps({"domain": self._domain_pddl, "problem": problem}).encode()
        request = urllib.request.Request(f"{self._url}/v1/plans", content, {"Content-Type": "application/json"})
        start = time.perf_counter()
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_LIMIT_S) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            return self._refused(error, time.perf_counter() - start)
        except (OSError, ValueError) as error:
            return Reply(0, f"no answer: {error}", None, 0, time.perf_counter() - start, is_wrong=False)
        seconds = time.perf_counter() - start
        is_wrong = found["plan"] is not None and not is_right(self._domain.domain, problem, found["plan"])
        return Reply(200, found["status"], found["source"], len(found["turns"]), seconds, is_wrong)

    def _refused(self, error: urllib.error.HTTPError, seconds: float) -> Reply:
        with error:
            name = json.load(error).get("error", "?") if error.headers.get_content_subtype() == "json" else "?"
        time.sleep(min(float(error.headers.get("Retry-After", 0)), LONGEST_PAUSE_S))
        return Reply(error.code, name, None, 0, seconds, is_wrong=False)


def is_right(domain: Domain, problem_pddl: str, plan: Sequence[str]) -> bool:
    """Return whether a plan reaches the goal of the problem that was sent."""
    task = PlanningTask.from_text(print_domain(domain), problem_pddl)
    return validate_plan(task, [parse_step(step) for step in plan]).is_valid


# --- the service


@contextmanager
def serving(policy: Path | None, settings: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Run ``plansmith serve``; yield its address and its process.

    Raises:
        RuntimeError: it does not start.
    """
    port = free_port()
    command = [sys.executable, "-m", "plansmith.cli", "serve", "--port", str(port)]
    command += [] if policy is None else ["--policy", str(policy)]
    command += [word for setting in settings for word in ("--set", setting)]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT)
        try:
            url = f"http://127.0.0.1:{port}"
            if not is_ready(url, process):
                log.seek(0)
                raise RuntimeError(f"the service did not start:\n{log.read()}")
            yield url, process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(END_LIMIT_S)


def free_port() -> int:
    """Return a port that nobody listens on, below those that the kernel and Ray hand out while the service starts.

    Raises:
        RuntimeError: there is none.
    """
    for port in random.SystemRandom().sample(range(20_000, 30_000), 100):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise RuntimeError("no free port between 20000 and 30000")


def is_ready(url: str, process: subprocess.Popen[bytes]) -> bool:
    """Wait until the service can plan; return whether it came to that."""
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=5):
                return True
        except OSError:
            time.sleep(0.5)
    return False


KINDS = {
    r"ray::ServeReplica:[^:]+:(?P<deployment>\w+)": r"\g<deployment>",
    r"ray::ServeController": "controller",
    r"ray::ProxyActor": "proxy",
    r"gcs_server|raylet|ray::|/ray/(_private|autoscaler|dashboard)/": "ray",
}
"""What a process is, by its command line; any other is what its parent is, such as a search of a planner."""


def memory_mib(root: int) -> dict[str, float]:
    """Return the memory of a process and all below it, by kind of process.

    Counted is what they have written to, in memory of their own or shared; a page that several share counts in parts.
    Files that are only mapped are not: the kernel drops their pages when it likes.
    """
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # gone in the meantime
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(folder.name))
    found: Counter[str] = Counter()
    waiting = [(root, "command")]
    while waiting:
        pid, inherited = waiting.pop()
        with suppress(OSError):
            kind = _kind_of(pid) or inherited
            found[kind] += _written_kib(pid)
            waiting += [(child, kind) for child in children.get(pid, [])]
    return {kind: round(kib / 1024, 1) for kind, kib in sorted(found.items())}


def _kind_of(pid: int) -> str | None:
    command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    matches = ((re.search(pattern, command), name) for pattern, name in KINDS.items())
    return next((match.expand(name) for match, name in matches if match), None)


def _written_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:")))


# --- the measurement


@dataclass(frozen=True)
class Measured:
    """One side: the load it is meant for, the overloads, and its memory in MiB after each, by kind of process."""

    name: str
    load: Load
    overloads: Sequence[Load]
    memory: Mapping[str, Mapping[str, float]]

    @property
    def loads(self) -> list[Load]:
        """Return everything that was asked."""
        return [self.load, *self.overloads]

    def figures(self) -> dict[str, Any]:
        """Return what the JSON says of this side."""
        overloads = [load.figures() for load in self.overloads]
        return {"load": self.load.figures(), "overloads": overloads, "memory_mib": self.memory}


def measure(name: str, client: Client, arguments: argparse.Namespace, pid: int | None) -> Measured:
    """Return what one service gave; the first answers, in which everything is new to it, do not count."""
    memory: dict[str, dict[str, float]] = {}

    def note(stage: str) -> None:
        if pid is not None:
            memory[stage] = memory_mib(pid)

    client.load(arguments.clients, arguments.clients)
    note("warm")
    load = client.load(arguments.requests, arguments.clients)
    note("load")
    overloads = []
    for number in range(arguments.rounds):
        overloads.append(client.load(arguments.overload, OVERLOAD * arguments.clients))
        note(f"overload {number + 1}")
    return Measured(name, load, overloads, memory)


def say(sides: Sequence[Measured]) -> None:
    """Print the tables."""
    columns = ("requests", "answered", "refused_503", "other_failures", "wrong_plans", "by_policy", "after_feedback",
               "by_planner", "median_s", "p99_s", "answers_per_s")  # fmt: skip
    rows = []
    for side in sides:
        names = [side.name, *(f"{side.name}, {OVERLOAD}x, {number + 1}" for number in range(len(side.overloads)))]
        figures = [load.figures() for load in side.loads]
        rows += [[name, *(str(row[key]) for key in columns)] for name, row in zip(names, figures, strict=True)]
    print(text_table(["", *(column.replace("_", " ") for column in columns)], rows))
    for side in sides:
        if side.memory:
            print(f"\nMemory in MiB: {side.name}\n\n{memory_table(side.memory)}")


def memory_table(memory: Mapping[str, Mapping[str, float]]) -> str:
    """Return a row for each kind of process and a column for each moment."""
    kinds = sorted({kind for found in memory.values() for kind in found})
    rows = [[kind, *(f"{found.get(kind, 0):.0f}" for found in memory.values())] for kind in kinds]
    return text_table(["", *memory], [*rows, ["all", *(f"{sum(found.values()):.0f}" for found in memory.values())]])


def main() -> None:
    """Print the tables and the JSON line; exit code 1 when a plan was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--policy", type=Path, default=ROOT / "runs" / "pddl_instruct-demo" / "model", help="model folder")
    add("--url", help="a running service instead of one started here; then there is no other side and no memory")
    add("--requests", type=int, default=200, help="of the load (200)")
    add("--clients", type=int, default=16, help="that ask at the same time (16)")
    add("--overload", type=int, default=400, help=f"requests of an overload, by {OVERLOAD} times the clients (400)")
    add("--rounds", type=int, default=5, help="overloads, one after the other; 0: none (5)")
    add("--blocks", type=int, nargs=2, default=(4, 5), metavar="N", help="fewest and most blocks (4 5)")
    add("--seed", type=int, default=int(time.time()), help="of the problems; default: the time, so that they are fresh")
    add("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE", help="a setting of the service")
    arguments = parser.parse_args()
    domain, blocks = load_domain(DOMAIN), (arguments.blocks[0], arguments.blocks[1])
    print(f"seed {arguments.seed}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} before\n", flush=True)
    sides = []
    if arguments.url:
        client = Client(arguments.url.rstrip("/"), domain, blocks=blocks, seed=arguments.seed)
        sides.append(measure("service", client, arguments, None))
    else:
        for name, policy in (("policy, then planner", arguments.policy), ("planner alone", None)):
            with serving(policy, arguments.settings) as (url, pid):
                client = Client(url, domain, blocks=blocks, seed=arguments.seed)
                sides.append(measure(name, client, arguments, pid))
    say(sides)
    result = {"seed": arguments.seed, "clients": arguments.clients, "blocks": list(blocks)}
    print(json.dumps(result | {side.name: side.figures() for side in sides}))
    if any(reply.is_wrong for side in sides for load in side.loads for reply in load.replies):
        sys.exit(1)


if __name__ == "__main__":
    main()
