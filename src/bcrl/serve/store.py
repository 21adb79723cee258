"""All episodes of a server: begun, stepped and ended through the journal, and brought back from it."""

import asyncio
import re
import secrets
import time
from collections import Counter
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import Any

from bcrl.errors import BCRLError, brief
from bcrl.progress import progress
from bcrl.serve import fields
from bcrl.serve.cost_log import CostLog
from bcrl.serve.engine import Engine
from bcrl.serve.episodes import ENDS, GOAL, STEPS, Conflict, Episode, read_goal
from bcrl.serve.journal import Failed, Record, Writer, check_header, compact, header, read_journal

ID = re.compile(r"[0-9a-f]{32}")
LATEST = 253_402_300_799.0  # seconds since 1970: the last that a date is written for


@dataclass(frozen=True)
class Limits:
    """What a server allows."""

    episodes: int = 1_000
    """Running at once; as many ended ones are remembered."""
    age: float = 86_400.0
    """Seconds without a step after which a running episode is ended and an ended one forgotten."""
    body: int = 65_536
    """Bytes of a request."""
    rate: float = 5_000.0
    """Requests a second."""
    new_rate: float = 500.0
    """New episodes a second."""


class Unknown(Exception):
    """There is no such episode."""


class Full(Exception):
    """A limit is reached; `retry` is the number of seconds to wait."""

    def __init__(self, message: str, retry: int):
        super().__init__(message)
        self.retry = retry


class Store:
    """The episodes by their names. Used by one thread, that of the event loop."""

    def __init__(self, engine: Engine, journal: Path, limits: Limits):
        self.engine, self.limits = engine, limits
        self.ended: Counter[str] = Counter()
        self.steps = self.fallbacks = 0
        self.running = 0
        self._episodes: dict[str, Episode] = {}
        """In the order of their last step, so that the first are the oldest."""
        self._keys: dict[str, str] = {}
        self._journal = journal
        self._log = CostLog(journal.parent, engine.cost_count)
        self._writer: Writer | None = None
        self._replay()

    # ---- what clients ask for ----

    def create(self, body: Any) -> Episode:
        """A new episode, or the one that the same key has begun."""
        body = fields.only(body, (), (*GOAL, "key"))
        key = fields.key(body["key"]) if "key" in body else None
        before = self._episodes.get(self._keys.get(key or "", ""))
        seed = before.goal["seed"] if before is not None else secrets.randbits(32)
        goal = read_goal(self.engine, {"seed": seed, **body})
        if before is not None:
            if goal != before.goal:
                raise Conflict(f"key {key!r} has begun an episode with other settings: give another key")
            return before
        writer = self._ready()
        if self.running >= self.limits.episodes:
            raise Full(f"{self.running:,} episodes are running, the most allowed: end some, or wait", 1)
        episode = Episode(self.engine, secrets.token_hex(16), key, goal, time.time())
        self._add(episode)
        record = {"create": episode.id, "at": episode.started, "key": key, "goal": goal}
        episode.saved = writer.append(record)
        return episode

    def find(self, id: str) -> Episode:
        """The episode of that name."""
        if id not in self._episodes:
            raise Unknown(f"there is no episode {brief(id, 40)!r}: it was never begun, or ended long ago")
        return self._episodes[id]

    def act(self, id: str, body: Any) -> tuple[Episode, dict[str, Any]]:
        """The action for an observation."""
        body = fields.only(body, ("step", "observation"))
        step = fields.whole("step", body["step"], 0, STEPS)
        observation = self._observation(body["observation"])
        episode, writer, at = self.find(id), self._ready(), time.time()
        answer, new = episode.act(step, observation, at)
        if new:
            said = {name: answer[name] for name in ("action", "slack", "fallback")}
            self._count_action(episode, answer)
            record = {"act": id, "at": at, "step": step, "observation": observation, "said": said}
            episode.saved = writer.append(record)
        return episode, answer

    def observe(self, id: str, body: Any) -> tuple[Episode, dict[str, Any]]:
        """Counts what the last action cost."""
        body = fields.only(
            body, ("step", "cost", *(("reward",) if self.engine.needs_reward else ())), ("reward",)
        )
        step = fields.whole("step", body["step"], 0, STEPS)
        cost = fields.costs("cost", body["cost"], self.engine.cost_count)
        reward = fields.number("reward", body["reward"]) if "reward" in body else None
        episode, writer, at = self.find(id), self._ready(), time.time()
        answer, new = episode.observe(step, cost, reward, at)
        if new:
            record = {"observe": id, "at": at, "step": step, "cost": cost, "reward": reward}
            episode.saved = writer.append(record, self._touched(episode))
        return episode, answer

    def end(self, id: str, body: Any) -> Episode:
        """Ends an episode after `step` steps."""
        step = fields.whole("step", fields.only(body, ("step",))["step"], 0, STEPS)
        episode = self.find(id)
        if episode.check_end(step):
            self._end(episode, "client", self._ready())
        return episode

    # ---- the life of the store ----

    def open(self) -> None:
        """Begins to write; called in the event loop."""
        keep = self._known
        self._writer = Writer(self._journal, header(self.engine.digest), keep)

    async def close(self) -> None:
        """Writes what is queued."""
        if self._writer is not None:
            await self._writer.close()

    @property
    def failure(self) -> str | None:
        """Why nothing can be written any more."""
        return None if self._writer is None else self._writer.failure

    @property
    def journal_bytes(self) -> int:
        return 0 if self._writer is None else self._writer.size

    def sweep(self) -> None:
        """Ends running episodes without a step for too long; forgets ended ones, old or too many."""
        oldest = time.time() - self.limits.age
        spare = len(self._episodes) - self.running - self.limits.episodes
        for episode in list(self._episodes.values()):
            if episode.ended is not None and (spare > 0 or episode.touched < oldest):
                self._forget(episode)
                spare -= 1
            elif episode.touched < oldest and self.failure is None:
                self._end(episode, "unobserved" if episode.next == "observe" else "idle", self._ready())

    def _ready(self) -> Writer:
        if self._writer is None or self._writer.failure is not None:
            raise Failed(self.failure or "the server is not open")
        return self._writer

    def _add(self, episode: Episode) -> None:
        self._episodes[episode.id] = episode
        self.running += 1
        if episode.key is not None:
            self._keys[episode.key] = episode.id

    def _forget(self, episode: Episode) -> None:
        del self._episodes[episode.id]
        if episode.key is not None:
            self._keys.pop(episode.key, None)

    def _end(self, episode: Episode, how: str, writer: Writer) -> None:
        at = time.time()
        episode.end(how, at)
        record = {"end": episode.id, "at": at, "how": how}
        episode.saved = writer.append(record, self._touched(episode))

    def _touched(self, episode: Episode) -> dict[Path, bytes] | None:
        """After a step: its place among the oldest, and if it has ended, its rows in the log of costs."""
        self._episodes[episode.id] = self._episodes.pop(episode.id)
        if episode.ended is None:
            return None
        self.running -= 1
        self.ended[episode.ended] += 1
        return self._log.rows(episode.facts())

    def _count_action(self, episode: Episode, answer: dict[str, Any]) -> None:
        self._episodes[episode.id] = self._episodes.pop(episode.id)
        self.steps += 1
        self.fallbacks += answer["fallback"]

    def _known(self, record: Record) -> bool:
        id = next((record[kind] for kind in KINDS if kind in record), None)
        return isinstance(id, str) and id in self._episodes

    # ---- after a restart ----

    def _replay(self) -> None:
        """Brings the episodes of the journal back, logs those that ended, and compacts the journal."""
        path = self._journal
        policy, over, count = self._survey(path)
        if policy == self.engine.digest:
            with progress("replaying the journal", count, "records") as tick:
                for number, record in enumerate(read_journal(path)):
                    if number:
                        try:
                            self._apply(record, over)
                        except (BCRLError, Conflict, KeyError, TypeError) as error:
                            raise BCRLError(
                                f"{path}: record {number} does not fit ({brief(error)}): restore the file, "
                                "or give another --out"
                            ) from None
                    tick()
        self._log.add_missing([e.facts() for e in self._episodes.values() if e.ended is not None])
        self.ended.clear()
        self.steps = self.fallbacks = 0
        compact(path, header(self.engine.digest), self._known)

    def _survey(self, path: Path) -> tuple[str | None, set[str], int]:
        """The policy of a journal, the episodes in it that have ended, and the number of records."""
        policy, count = None, 0
        left: dict[Any, float] = {}
        for record in read_journal(path):
            policy = check_header(path, record) if count == 0 else policy
            count += 1
            try:
                if "create" in record:
                    limited = "budget" not in record["goal"]
                    steps = index(record["goal"].get("horizon", self.engine.horizon))
                    left[record["create"]] = steps if limited else 1e300
                elif "observe" in record:
                    left[record["observe"]] -= 1
                elif "end" in record:
                    left[record["end"]] = 0
            except (KeyError, TypeError, AttributeError):
                raise BCRLError(f"{path}: record {count - 1} is damaged: give another --out") from None
        if path.exists() and policy is None:
            raise BCRLError(f"{path}: has no readable beginning: restore it, or give another --out")
        over = {id for id, steps in left.items() if steps <= 0}
        if policy not in (None, self.engine.digest) and left:
            raise BCRLError(f"{path}: is about another policy ({policy[:16]}): give another --out")  # type: ignore[index]
        return policy, over, count

    def _apply(self, record: Record, over: set[str]) -> None:
        kind = next((kind for kind in KINDS if kind in record), "create")
        id, at = record[kind], fields.number("at", record["at"], 0.0, LATEST)
        if kind == "create":
            if not isinstance(id, str) or ID.fullmatch(id) is None or id in self._episodes:
                raise BCRLError(f"episode is {brief(id)}")
            key = None if record["key"] is None else fields.key(record["key"])
            goal = read_goal(self.engine, fields.only(record["goal"], ("seed",), GOAL))
            self._add(Episode(self.engine, id, key, goal, at, running=id not in over))
            return
        episode = self._episodes[id]
        if kind == "end":
            episode.check_end(episode.step) if record["how"] == "client" else None
            episode.end(fields.choice("how", record["how"], ENDS), at)
            self._touched(episode)
            return
        step = fields.whole("step", record["step"], 0, STEPS)
        if kind == "act":
            observation = self._observation(record["observation"])
            answer, new = episode.act(step, observation, at, self._said(record["said"]))
            self._count_action(episode, answer)
        else:
            reward = None if record["reward"] is None else fields.number("reward", record["reward"])
            cost = fields.costs("cost", record["cost"], self.engine.cost_count)
            _, new = episode.observe(step, cost, reward, at)
            self._touched(episode)
        if not new:
            raise BCRLError(f"step {step} stands twice")

    def _observation(self, value: Any) -> list[float]:
        most = self.engine.observation_limit
        return fields.numbers("observation", value, self.engine.observation_size, -most, most)

    def _said(self, said: Any) -> dict[str, Any]:
        said = fields.only(said, ("action", "slack", "fallback"))
        if self.engine.discrete:
            fields.whole("action", said["action"], 0, self.engine.action_size - 1)
        else:
            fields.numbers("action", said["action"], self.engine.action_size)
        if not isinstance(said["slack"], list) or len(said["slack"]) != self.engine.cost_count:
            raise BCRLError(f"slack is {brief(said['slack'])}")
        for one in said["slack"]:
            if one is not None and type(one) is not float:
                raise BCRLError(f"slack is {brief(said['slack'])}")
        fields.truth("fallback", said["fallback"])
        return said


KINDS = ("create", "act", "observe", "end")


async def saved(episode: Episode) -> None:
    """Returns once the last change of an episode is on the disk."""
    if episode.saved is not None:
        await asyncio.shield(episode.saved)
