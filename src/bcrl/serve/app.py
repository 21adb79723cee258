"""The server as an ASGI application: requests in, JSON out, every limit in front."""

import asyncio
import hmac
import json
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from bcrl.errors import BCRLError, brief
from bcrl.serve.episodes import Conflict, Episode
from bcrl.serve.journal import Failed
from bcrl.serve.metrics import CONTENT_TYPE, Metrics
from bcrl.serve.schema import openapi
from bcrl.serve.store import Full, Limits, Store, Unknown, saved

BODY_SECONDS = 10.0
SPARE_REQUESTS = 100  # at once, beside one for each episode
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def make_app(store: Store, token: str | None) -> "Gate":
    """The application. Without a token, only requests to the names of this machine itself are answered."""
    metrics = Metrics(store)
    document = openapi(store.engine, token is not None)

    async def state_of(episode: Episode, status: int = 200) -> Response:
        said = episode.state()  # before others change it: what is told is saved
        await saved(episode)
        return answer(said, status)

    async def create(request: Request) -> Response:
        if not new.take():
            raise Full(f"more than {store.limits.new_rate:g} new episodes a second: wait", 1)
        return await state_of(store.create(await _json(request, store.limits)), 201)

    async def state(request: Request) -> Response:
        return await state_of(store.find(request.path_params["episode"]))

    async def act(request: Request) -> Response:
        episode, said = store.act(request.path_params["episode"], await _json(request, store.limits))
        await saved(episode)
        return answer(said)

    async def observe(request: Request) -> Response:
        episode, said = store.observe(request.path_params["episode"], await _json(request, store.limits))
        await saved(episode)
        return answer(said)

    async def end(request: Request) -> Response:
        return await state_of(store.end(request.path_params["episode"], await _json(request, store.limits)))

    async def health(request: Request) -> Response:
        if store.failure is not None:
            raise Failed(store.failure)
        return answer({"status": "ok", "policy": store.engine.digest, "running": store.running})

    async def read_metrics(request: Request) -> Response:
        return Response(metrics.text(), headers={"content-type": CONTENT_TYPE})

    async def read_openapi(request: Request) -> Response:
        return answer(document)

    new = Bucket(store.limits.new_rate)
    routes = [
        Route("/episodes", create, methods=["POST"]),
        Route("/episodes/{episode}", state),
        *(Route(f"/episodes/{{episode}}/{f.__name__}", f, methods=["POST"]) for f in (act, observe, end)),
        Route("/health", health),
        Route("/metrics", read_metrics),
        Route("/openapi.json", read_openapi),
    ]
    refusals = (BCRLError, Conflict, Unknown, Full, Failed, HTTPException)
    handlers: dict[Any, Any] = dict.fromkeys(refusals, _refused)
    app = Starlette(routes=routes, exception_handlers=handlers, lifespan=_lifespan(store))
    app.router.redirect_slashes = False
    return Gate(app, store.limits, metrics, token)


class Bucket:
    """At most `rate` a second, in bursts of as many."""

    def __init__(self, rate: float):
        self.rate, self._most = rate, max(rate, 1.0)
        self._left, self._then = self._most, time.monotonic()

    def take(self) -> bool:
        """Whether one more is allowed."""
        now = time.monotonic()
        self._left = min(self._left + (now - self._then) * self.rate, self._most)
        self._then = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Gate:
    """What every request passes: host name, token, rate; then it is counted and timed."""

    def __init__(self, app: Starlette, limits: Limits, metrics: Metrics, token: str | None):
        self._app, self._limits, self._metrics = app, limits, metrics
        self._token = None if token is None else f"Bearer {token}".encode()
        self._bucket = Bucket(limits.rate)
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        begun, status = time.monotonic(), 500

        async def noted(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        self._open += 1
        try:
            fault = self._fault(scope)
            await (fault or self._app)(scope, receive, noted)
        finally:
            self._open -= 1
            name = getattr(scope.get("endpoint"), "__name__", "other")
            self._metrics.count(name, status, time.monotonic() - begun)

    def _fault(self, scope: Scope) -> Response | None:
        headers = dict(scope["headers"])
        if self._token is None:  # a page in a browser here may reach loopback under a name of its own
            host = headers.get(b"host", b"").decode("latin-1").lower()
            if host.rpartition(":")[0] not in LOOPBACK and host not in LOOPBACK:
                return _error(
                    421, f"host is {brief(host, 80)!r}, but without a token only loopback is served"
                )
        if scope["path"] == "/health":
            return None
        if self._token is not None and not hmac.compare_digest(
            headers.get(b"authorization", b""), self._token
        ):
            way = {"WWW-Authenticate": "Bearer"}
            return _error(401, "the token is missing or wrong: send 'Authorization: Bearer TOKEN'", way)
        if self._open > self._limits.episodes + SPARE_REQUESTS or not self._bucket.take():
            many = f"more than {self._limits.rate:g} requests a second, or too many at once: wait"
            return _error(429, many, {"Retry-After": "1"})
        return None


def answer(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON in ASCII: text of a client may hold what UTF-8 cannot."""
    body = json.dumps(content, allow_nan=False).encode()
    return Response(body, status, {"content-type": "application/json", **(headers or {})})


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return answer({"error": message}, status, headers)


async def _refused(request: Request, error: Exception) -> Response:
    match error:
        case BCRLError():
            return _error(422, str(error))
        case Conflict():
            return _error(409, str(error))
        case Unknown():
            return _error(404, str(error))
        case Full():
            return _error(429, str(error), {"Retry-After": str(error.retry)})
        case Failed():
            return _error(503, f"nothing can be saved: {error}; mend that and restart the server")
        case HTTPException():
            known = {404: "there is no such page", 405: f"{brief(request.method, 20)} is not done here"}
            said = f"{known.get(error.status_code, error.detail)}: see /openapi.json"
            headers = None if error.headers is None else dict(error.headers)
            return _error(error.status_code, error.detail if error.status_code < 404 else said, headers)
    raise error


async def _json(request: Request, limits: Limits) -> Any:
    """The body of a request."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # a form of a foreign page cannot send this
        raise HTTPException(415, f"content-type is {brief(kind, 80)!r}, but must be application/json")
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > limits.body:
                    raise HTTPException(413, f"the body has more than {limits.body:,} bytes")
                parts.append(part)
    except TimeoutError:
        raise HTTPException(408, f"the body did not arrive in {BODY_SECONDS:g} s") from None
    except ClientDisconnect:
        raise HTTPException(400, "the body was cut short") from None
    try:
        return json.loads(b"".join(parts), parse_constant=_no_number)
    except RecursionError:
        raise HTTPException(400, "the body is nested too deeply") from None
    except ValueError as error:
        raise HTTPException(400, f"the body is not JSON ({brief(error)})") from None


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def _lifespan(store: Store) -> Callable[[Any], Any]:
    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        store.open()
        sweeping = asyncio.create_task(_sweep(store))
        try:
            yield
        finally:
            sweeping.cancel()
            await store.close()

    return lifespan


async def _sweep(store: Store) -> None:
    pause = min(1.0, store.limits.age / 4)
    while math.isfinite(pause):
        await asyncio.sleep(pause)
        store.sweep()
