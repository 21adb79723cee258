"""The OpenAPI document of a policy's server: sizes and choices in it are those of the policy."""

from typing import Any

import bcrl
from bcrl.serve.engine import Engine
from bcrl.serve.episodes import ENDS, STEPS
from bcrl.serve.fields import KEY_LENGTH, LARGEST

Schema = dict[str, Any]
FAULTS = {
    "400": "No JSON",
    "401": "The token is missing or wrong",
    "404": "No such episode",
    "408": "The body did not arrive",
    "409": "Does not fit the state of the episode",
    "413": "Too large",
    "415": "Not application/json",
    "422": "A field is missing, unknown or wrong",
    "429": "A limit is reached: Retry-After says when to try again",
    "503": "The disk refuses to be written",
}
MISDIRECTED = {"421": "The host name is not this server's"}


def openapi(engine: Engine, token: bool) -> Schema:
    """The whole document."""
    create = {"requestBody": _body("Goal"), "responses": _answers("State", status="201", but=("404",))}
    create["responses"]["201"]["links"] = {name: _link(name) for name in ("act", "state", "end")}
    read = {"responses": _answers("State", but=("400", "408", "409", "413", "415", "422"))}
    document: Schema = {
        "openapi": "3.1.0",
        "info": {
            "title": f"bcrl serve: {engine.name}",
            "version": bcrl.__version__,
            "description": f"Episodes of the policy {engine.digest[:16]}.",
        },
        "paths": {
            "/episodes": {"post": _operation("create", "Begin an episode", create)},
            "/episodes/{episode}": {
                "parameters": [_EPISODE],
                "get": _operation("state", "Read the state of an episode", read),
            },
        },
        "components": {"schemas": _schemas(engine)},
    }
    for name, about, answer in (
        ("act", "The action for the observation of a step", "Action"),
        ("observe", "What the action of a step cost", "Step"),
        ("end", "End an episode after that many steps", "State"),
    ):
        parts = {"requestBody": _body(name.capitalize()), "responses": _answers(answer)}
        if name == "act":
            parts["responses"]["200"]["links"] = {"observe": _link("observe")}
        path = {"parameters": [_EPISODE], "post": _operation(name, about, parts)}
        document["paths"][f"/episodes/{{episode}}/{name}"] = path
    for name, media in (
        ("health", "application/json"),
        ("metrics", "text/plain"),
        ("openapi.json", "application/json"),
    ):
        kind: Schema = {"type": "string"} if media == "text/plain" else {"type": "object"}
        answers: Schema = {"200": {"description": "OK", "content": {media: {"schema": kind}}}}
        faults = ("503",) if name == "health" else ("401", "429")
        answers |= {status: _fault(status) for status in faults} | {"421": _fault("421")}
        operation: Schema = {"operationId": name.partition(".")[0], "responses": answers}
        document["paths"][f"/{name}"] = {"get": operation | ({"security": []} if name == "health" else {})}
    if token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


_EPISODE = {
    "name": "episode",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
}


def _operation(name: str, about: str, parts: Schema) -> Schema:
    return {"operationId": name, "summary": about, **parts}


def _body(name: str) -> Schema:
    return {"required": True, "content": {"application/json": {"schema": _ref(name)}}}


def _answers(name: str, status: str = "200", but: tuple[str, ...] = ()) -> Schema:
    good = {"description": "OK", "content": {"application/json": {"schema": _ref(name)}}}
    faults = {status: _fault(status) for status in (*FAULTS, *MISDIRECTED) if status not in but}
    return {status: good, **faults}


def _link(name: str) -> Schema:
    """What may follow an answer: the same episode, and its step."""
    link: Schema = {"operationId": name, "parameters": {"episode": "$response.body#/episode"}}
    return link if name == "state" else link | {"requestBody": {"step": "$response.body#/step"}}


def _fault(status: str) -> Schema:
    about = (FAULTS | MISDIRECTED)[status]
    return {"description": about, "content": {"application/json": {"schema": _ref("Error")}}}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _schemas(engine: Engine) -> Schema:
    step: Schema = {"type": "integer", "minimum": 0, "maximum": STEPS}
    anything: Schema = {"type": "number", "minimum": -LARGEST, "maximum": LARGEST}
    cost = _several({"type": "number", "minimum": 0, "maximum": LARGEST}, engine.cost_count)
    most = engine.observation_limit
    spent = _several({"type": "number", "minimum": 0}, engine.cost_count)
    observation = _list({"type": "number", "minimum": -most, "maximum": most}, engine.observation_size)
    episode = _EPISODE["schema"]
    if engine.discrete:
        action: Schema = {"type": "integer", "minimum": 0, "maximum": engine.action_size - 1}
    else:
        action = _list({"type": "number"}, engine.action_size)
    observe = {"step": step, "cost": cost, "reward": anything}
    needed = ("step", "cost", "reward") if engine.needs_reward else ("step", "cost")
    ended = {"enum": [*ENDS, None]}
    return {
        "Goal": {"oneOf": _goals(engine, cost)},
        "Act": _object({"step": step, "observation": observation}),
        "Observe": _object(observe, needed),
        "End": _object({"step": step}),
        "Action": _object(
            {
                "episode": episode,
                "step": step,
                "action": action,
                "slack": _list({"type": ["number", "null"]}, engine.cost_count),
                "fallback": {"type": "boolean"},
            }
        ),
        "Step": _object(
            {
                "episode": episode,
                "step": step,
                "next_step": step,
                "spent": spent,
                "above_largest": {"type": "boolean"},
                "ended": ended,
            }
        ),
        "State": _object(
            {
                "episode": episode,
                "step": step,
                "threshold": {"anyOf": [cost, {"type": "null"}]},
                "budget": {"anyOf": [cost, {"type": "null"}]},
                "horizon": {"type": ["integer", "null"]},
                "execution": {"type": ["string", "null"]},
                "candidates": {"type": "integer"},
                "calibrated": {"type": "boolean"},
                "seed": {"type": "integer"},
                "spent": spent,
                "next": {"enum": ["act", "observe", None]},
                "ended": ended,
            }
        ),
        "Error": _object({"error": {"type": "string"}}),
    }


def _goals(engine: Engine, cost: Schema) -> list[Schema]:
    """What an episode may ask for, in up to three forms of which each request has one."""
    both: Schema = {
        "seed": {"type": "integer", "minimum": 0, "maximum": 2**32 - 1},
        "key": {"type": "string", "pattern": f"^[ -~]{{1,{KEY_LENGTH}}}$"},
    }
    horizon: Schema = {"type": "integer", "minimum": 1, "maximum": engine.longest, "default": engine.horizon}
    candidates: Schema = {"enum": list(engine.candidates)}
    plain: Schema = {"threshold": cost, "horizon": horizon, "calibrated": {"const": False}}
    if engine.executions:
        plain |= {"execution": {"enum": list(engine.executions)}, "candidates": candidates}
    forms = [_object(plain | both, ("threshold",))]
    if engine.executions:
        budget = {"budget": cost, "execution": {"enum": ["soft", "direct"]}, "candidates": candidates}
        forms.append(_object(budget | {"calibrated": {"const": False}} | both, ("budget",)))
    table = engine.calibration
    if table is not None and engine.cost_count == 1:
        usual = table.execution == "finite-horizon" or not engine.executions
        wanted: Schema = {
            "threshold": {"enum": [wanted for wanted, _ in table.table]},
            "calibrated": {"const": True},
            "horizon": {"const": table.horizon},
        }
        needed = ["threshold", "calibrated", *([] if table.horizon == engine.horizon else ["horizon"])]
        if engine.executions:
            wanted |= {"execution": {"const": table.execution}, "candidates": {"const": table.candidates}}
            needed += [] if usual else ["execution"]
            needed += [] if table.candidates == 0 else ["candidates"]
        forms.append(_object(wanted | both, needed))
    return forms


def _object(properties: Schema, required: Any = None) -> Schema:
    names = list(properties if required is None else required)
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}


def _list(item: Schema, count: int) -> Schema:
    return {"type": "array", "items": item, "minItems": count, "maxItems": count}


def _several(item: Schema, count: int) -> Schema:
    return item if count == 1 else _list(item, count)
