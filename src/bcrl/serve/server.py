"""Running the server: a socket, the application and uvicorn."""

import gc
import ipaddress
import os
import socket
from pathlib import Path

from bcrl.errors import BCRLError, brief_repr, need, printable
from bcrl.serve.engine import load_engine
from bcrl.serve.journal import LONGEST_LINE, held
from bcrl.serve.store import Limits, Store

SHORTEST_TOKEN = 16
BYTES_PER_NUMBER = 32  # of an observation in JSON


def serve(
    path: Path,
    folder: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    candidates: tuple[int, ...] = (),
    token: str | None = None,
    limits: Limits | None = None,
) -> None:
    """Serves a policy until the process is told to stop. Without a token, `host` must be loopback."""
    need("starlette", "uvicorn", "prometheus_client", extra="serve")
    import uvicorn

    from bcrl.serve.app import make_app

    limits = limits or Limits()
    _check(host, port, candidates, token, limits)
    engine = load_engine(path, candidates)
    if engine.observation_size * BYTES_PER_NUMBER > limits.body:
        least = engine.observation_size * BYTES_PER_NUMBER
        raise BCRLError(f"an observation of this policy may take {least:,} bytes: give --max-body {least}")
    with _bound(host, port) as bound, held(folder) as journal:
        engine.warm_up()
        store = Store(engine, journal, limits)
        gc.freeze()  # what is here now stays; the collector need not look at it again
        config = uvicorn.Config(
            make_app(store, token),
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=5,
        )
        bound.listen(config.backlog)
        print(f"serving {printable(path)} at {_address(bound)}, episodes in {printable(folder)}", flush=True)
        uvicorn.Server(config).run(sockets=[bound])


def _address(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _bound(host: str, port: int) -> socket.socket:
    bound = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)  # asyncio sends at once where it reads TCP here
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except (OSError, UnicodeError) as error:
        if bound is not None:
            bound.close()
        why = getattr(error, "strerror", None) or error
        raise BCRLError(f"{host} port {port} cannot be used ({why}): give another --host or --port") from None
    return bound


def _check(host: str, port: int, candidates: tuple[int, ...], token: str | None, limits: Limits) -> None:
    if not 0 <= port < 2**16:
        raise BCRLError(f"--port is {port}, but must be from 0 (any free one) to 65535")
    for one in candidates:
        if not 0 <= one <= 1024:
            raise BCRLError(f"--candidates has {one}, but must be numbers from 0 to 1024")
    for name, least, most in (
        ("episodes", 1, 10**7),
        ("age", 1, 1e12),
        ("body", 1024, LONGEST_LINE),  # the journal must hold what a request says
        ("rate", 1, 1e12),
        ("new_rate", 1, 1e12),
    ):
        value = getattr(limits, name)
        if not least <= value <= most:
            flag = {"rate": "--rate", "new_rate": "--new-rate"}.get(name, f"--max-{name}")
            raise BCRLError(f"{flag} is {brief_repr(value)}, but must be from {least:,} to {most:,.0f}")
    if token is not None and (len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable()):
        raise BCRLError(f"the token must be at least {SHORTEST_TOKEN} printable ASCII letters")
    if token is None and not _is_loopback(host):
        raise BCRLError(
            f"--host is {host}, which other machines can reach: put a token into the environment variable "
            "BCRL_TOKEN, or give --token-file"
        )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_token(file: Path | None) -> str | None:
    """The token from a file or from BCRL_TOKEN; never from the command line, which all users can see."""
    if file is None:
        return os.environ.get("BCRL_TOKEN") or None
    try:
        return file.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        raise BCRLError(f"{file}: is no text: give a file with the token alone") from None
