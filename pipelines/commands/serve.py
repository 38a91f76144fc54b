"""The command `serve`: a planning service on a Ray of its own, until it is told to end.

On a cluster the same service is ``serve run cluster.service.app:build_app``, or a RayService; see docs/serving.md.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from actors.engine_weights import base_of, read_weight_shapes
from cluster.service.args import ServeArgs
from pipelines.run.ray_start import start_ray
from plansmith.config.loading import build_model
from plansmith.config.planner import PlannerConfig
from plansmith.console import exit_code_of, set_up_logging
from plansmith.errors import BadInputError, ConfigError, PlansmithError
from plansmith.learning.hub import is_repository

logger = logging.getLogger("pipelines.commands.serve")

APP_NAME = "plansmith"
OBJECT_STORE_BYTES = 100 * 2**20
"""Prompts and answers are small."""
EPILOG = """examples:
  plansmith serve --policy runs/pddl_instruct-demo/model
      the model of a run, with Fast Downward behind it
  plansmith serve --port 9000
      Fast Downward alone
  plansmith serve --policy runs/pddl_instruct-demo/model --set max_concurrent=8 --set fallback=false
      any setting of the service; --dry-run prints them all

docs/serving.md says what can be asked, and how to serve on a cluster."""


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal comes; return 0 when ended, 1 when it failed, 2 for bad input."""
    arguments = _parser().parse_args(argv)
    set_up_logging()
    return exit_code_of(lambda: _serve(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="plansmith serve",
        description="Plan for whoever asks over HTTP; every plan given out has been accepted by the validator.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--policy", metavar="FOLDER", help="a model folder, such as runs/NAME/model; default: the planner alone")
    add("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this machine only)")
    add("--port", type=int, default=8000, help="port to listen on (default: 8000)")
    add("--num-cpus", type=int, default=2, metavar="N", help="cores for engines and planners (default: 2)")
    add("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE", help="a setting of the service, "
        "such as max_queued=100; may be repeated")  # fmt: skip
    add("--dry-run", action="store_true", help="print the settings and do nothing")
    return parser


def settings_of(arguments: argparse.Namespace) -> ServeArgs:
    """Return the settings that a command line asks for.

    Raises:
        ConfigError: a setting that is unknown or out of bounds, more cores than there are, or an unknown search.
        BadInputError: no model in the policy's folder, or damaged weights.
    """
    given: dict[str, Any] = {}
    for setting in arguments.settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError("not a setting", where="--set", got=setting, expected="KEY=VALUE")
        given[key] = value
    if arguments.policy is not None:
        given["policy"] = arguments.policy
    settings = build_model(ServeArgs, given, where="--set")
    reserved = settings.least_cpus(has_policy=settings.policy is not None)
    if reserved > arguments.num_cpus:
        raise ConfigError("not enough cores", where="--num-cpus", got=str(arguments.num_cpus),
                          expected=f"{reserved:g}, which engines, planners and fronts reserve",
                          cure="give more, or let them reserve less, such as --set cpus_per_engine=0.5")  # fmt: skip
    # a wrong search is said now, not by a replica
    build_model(PlannerConfig, {"search": settings.planner_search}, where="--set planner_search")
    if settings.policy is None or is_repository(settings.policy):
        return settings
    folder = str(Path(settings.policy).expanduser().resolve())
    read_weight_shapes(base_of(folder))  # damaged weights too are said now
    return settings.model_copy(update={"policy": folder})


def _serve(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    if arguments.dry_run:
        print(json.dumps(settings.model_dump(mode="json"), indent=2))
        return 0
    _check_port(arguments.host, arguments.port)
    import ray
    from ray import serve

    try:
        _start_ray(ray, arguments.num_cpus)
        _check_gpus(settings, ray.cluster_resources().get("GPU", 0))
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # in place of Ray's, which ends the process at once
        print(_greeting(_start_service(serve, settings, arguments), settings), flush=True)
        threading.Event().wait()
    except KeyboardInterrupt:
        logger.info("ending")
    finally:
        if ray.is_initialized():
            serve.shutdown()
            ray.shutdown()
    return 0


def _start_ray(ray: Any, num_cpus: int) -> None:
    """Start a Ray of this command's own, whatever other Ray runs on the machine."""
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # or looking for one is said aloud
    logger.info("starting Ray")
    start_ray(
        ray,
        num_cpus=num_cpus,
        include_dashboard=False,
        object_store_memory=OBJECT_STORE_BYTES,
        logging_level=logging.ERROR,
        log_to_driver=False,
    )


def _check_gpus(settings: ServeArgs, n_there: float) -> None:
    """Raise where engines would wait for GPUs for ever.

    Raises:
        ConfigError: they reserve more than there are.
    """
    reserved = settings.engines * settings.gpus_per_engine if settings.policy is not None else 0
    if reserved > n_there:
        raise ConfigError("not enough GPUs", where="--set gpus_per_engine", got=f"{n_there:g} on this machine",
                          expected=f"{reserved:g}, which the engines reserve",
                          cure="let them reserve less, or start fewer with --set engines=1")  # fmt: skip


def _start_service(serve: Any, settings: ServeArgs, arguments: argparse.Namespace) -> str:
    """Start the service and return its address once every part of it is up.

    Raises:
        PlansmithError: a part does not start.
    """
    from cluster.service.app import bind_app

    logger.info("starting the service" if settings.policy is None else "starting the service and its engine")
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    serve.start(http_options={"host": arguments.host, "port": arguments.port})
    try:
        serve.run(bind_app(settings), name=APP_NAME, route_prefix="/")
    except RuntimeError as error:
        raise PlansmithError("the service did not start", got=str(error)) from error
    return f"http://{arguments.host}:{arguments.port}"


def _greeting(url: str, settings: ServeArgs) -> str:
    body = "{domain: $d, problem: $p}"
    return (
        f"\nserving {'Fast Downward' if settings.policy is None else settings.policy} at {url} ({url}/docs)\n\n"
        f"  jq -n --rawfile d domain.pddl --rawfile p problem.pddl '{body}' |\n"
        f"    curl --json @- {url}/v1/plans\n\n"
        "Ctrl-C ends it.\n"
    )


def _check_port(host: str, port: int) -> None:
    """Raise unless the address is free to listen on.

    Raises:
        BadInputError: it is taken, or no address of this machine.
    """
    try:
        with socket.create_server((host, port)):
            pass
    except (OSError, OverflowError) as error:
        raise BadInputError("cannot listen", where=f"{host}:{port}", got=str(error), expected="a free port",
                            cure="choose another --port") from error  # fmt: skip
