"""``plansmith mcp``: the commands as tools for other people's agents, by the Model Context Protocol.

Not here: the tools (`plansmith.tools`), which are imported when they are needed.
"""

from __future__ import annotations

import argparse
import contextlib
import sys

from plansmith.config.loading import build_model
from plansmith.config.tools import ToolSettings
from plansmith.errors import ConfigError
from plansmith.hosts import address_of, listening_socket

LOCAL = "127.0.0.1"
EPILOG = """\
tools: validate, diagnose, plan, problems, and with --policy nl2plan. On stdio, the default, an agent starts the
command itself:

  {"mcpServers": {"plansmith": {"command": "plansmith", "args": ["mcp"]}}}

exit code: 0 when the agent has closed the connection, or at Ctrl-C; 2 bad input.

examples:
  plansmith mcp
  plansmith mcp --http --port 8000 --workers 4 --time-limit 60
  plansmith mcp --policy http://localhost:8000/v1
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "mcp",
        help="give agents validate, diagnose, plan, problems and nl2plan as tools (Model Context Protocol)",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    defaults = ToolSettings()
    parser.add_argument("--http", action="store_true", help="streamable HTTP at /mcp instead of stdin and stdout")
    parser.add_argument("--host", default=LOCAL, help="address to listen on; the default is this machine alone")
    parser.add_argument("--port", type=int, default=0, help="port to listen on (default: a free one)")
    parser.add_argument("--workers", type=int, default=defaults.workers, metavar="N",
                        help=f"calls that are worked on together ({defaults.workers})")  # fmt: skip
    parser.add_argument("--time-limit", type=float, default=defaults.time_limit_s, metavar="S",
                        help=f"seconds a call ({defaults.time_limit_s:g})")  # fmt: skip
    parser.add_argument("--memory-limit", type=int, default=defaults.memory_limit_mib, metavar="MIB",
                        help=f"of each process that works on a call ({defaults.memory_limit_mib})")  # fmt: skip
    modelling = parser.add_argument_group("the tool nl2plan")
    modelling.add_argument("--policy", default="", metavar="FOLDER_OR_URL", help="who answers, as for plansmith "
                           "nl2plan; without it there is no such tool")  # fmt: skip
    modelling.add_argument("--model", default="", metavar="NAME", help="of the server (default: its only one)")
    modelling.add_argument("--modelling-time-limit", type=float, default=defaults.modelling_time_limit_s, metavar="S",
                           help=f"seconds a call of it ({defaults.modelling_time_limit_s:g})")  # fmt: skip
    modelling.add_argument("--max-calls", type=int, default=defaults.max_calls, metavar="N",
                           help=f"questions that a call of it asks, at most ({defaults.max_calls})")  # fmt: skip
    parser.set_defaults(work=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve until the agent is gone, or until interrupted; return the exit code."""
    given = {
        "workers": arguments.workers,
        "time_limit_s": arguments.time_limit,
        "memory_limit_mib": arguments.memory_limit,
        "policy": arguments.policy,
        "model": arguments.model,
        "modelling_time_limit_s": arguments.modelling_time_limit,
        "max_calls": arguments.max_calls,
    }
    settings = build_model(ToolSettings, given, where="the command line")
    if not arguments.http and (arguments.port or arguments.host != LOCAL):
        raise ConfigError("--host and --port go with --http", got="stdin and stdout", cure="add --http")
    with contextlib.suppress(KeyboardInterrupt):
        if arguments.http:
            _serve_http(settings, arguments.host, arguments.port)
        else:
            from plansmith.tools.server import make_server

            make_server(settings).run("stdio")
    return 0


def _serve_http(settings: ToolSettings, host: str, port: int) -> None:
    with listening_socket(host, port) as listener:
        import uvicorn

        from plansmith.tools.server import http_app, make_server

        app = http_app(make_server(settings), settings, host)
        address = address_of(listener.getsockname()[:2])
        print(f"tools for agents: {address}/mcp (Ctrl-C ends them)", file=sys.stderr, flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
