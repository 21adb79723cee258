"""Steps environments for a bcrl in another process. Runs under the Python of a family, never imports bcrl.

    python _worker.py PARENT_PID

Messages on standard input and output: two lengths, a JSON object, the bytes of its arrays. The first one
says which environment; later ones which of its copies to reset (with which seed) and to step. Nothing is
pickled: the two sides may run different versions of Python and numpy.
"""

import contextlib
import ctypes
import json
import os
import random
import signal
import struct
import sys
import traceback
from typing import Any

import numpy as np

LENGTHS = struct.Struct("<II")


def write_message(file, header, arrays=()):
    """Sends a JSON object and arrays `[(name, array)]` in one piece."""
    arrays = [(name, np.ascontiguousarray(array)) for name, array in arrays]
    header = dict(header, arrays=[[name, a.dtype.str, list(a.shape)] for name, a in arrays])
    text = json.dumps(header).encode()
    payload = b"".join(array.tobytes() for _, array in arrays)
    file.write(LENGTHS.pack(len(text), len(payload)) + text + payload)
    file.flush()


def read_message(read):
    """The next object and its arrays; `read(n)` gives n bytes or raises EOFError."""
    text_length, payload_length = LENGTHS.unpack(read(LENGTHS.size))
    header = json.loads(read(text_length))
    payload, at, arrays = read(payload_length), 0, {}
    for name, kind, shape in header.pop("arrays", ()):
        dtype = np.dtype(kind)
        size = dtype.itemsize * int(np.prod(shape))
        arrays[name] = np.frombuffer(payload[at : at + size], dtype).reshape(shape)
        at += size
    return header, arrays


def vector(seen, size):
    """An observation of this size; numpy itself would stretch a single number to it."""
    if np.iscomplexobj(seen):  # numpy would drop the imaginary part
        raise RuntimeError("an observation is complex, but must be real numbers")
    array = np.asarray(seen, np.float32)
    if array.shape != (size,):
        raise RuntimeError(f"an observation has shape {array.shape}, but its space has ({size},)")
    return array


class Environment:
    """One Gymnasium environment; families override what they do in their own way."""

    fresh_each_episode = False
    """Whether something of an episode is left over after reset, so that each needs a new environment."""

    def __init__(self, env_id, config):
        self.env: Any = self.make(env_id, config)
        self.draws = np.random.get_state()  # noqa: NPY002

    def make(self, env_id, config) -> Any:
        import gymnasium

        try:
            return gymnasium.make(env_id, disable_env_checker=True, **config)
        except gymnasium.error.UnregisteredEnv as error:
            hint = "" if ":" in env_id else f": give gym:module:{env_id}; importing the module registers it"
            raise RuntimeError(f"{str(error).rstrip('.')}{hint}") from None

    def seed(self, seed):
        """Environments may draw from the global generators too, so these are seeded with the episode."""
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 (this is the generator that old environments use)

    def reset(self, seed):
        self.seed(seed)
        observation = self.env.reset(seed=seed)[0]
        self.draws = np.random.get_state()  # noqa: NPY002
        return observation

    def step(self, action):
        """Observation, reward, cost, terminal, timeout."""
        # The other copies in this process share the global generator: each goes on from its own state.
        np.random.set_state(self.draws)  # noqa: NPY002
        observation, reward, terminal, timeout, info = self.env.step(action)
        self.draws = np.random.get_state()  # noqa: NPY002
        if "cost" not in info:
            raise RuntimeError("its info has no 'cost': wrap it so that each step gives its cost there")
        return observation, reward, info["cost"], terminal, timeout

    def describe(self):
        observations, actions = self.env.observation_space, self.env.action_space
        for name, space in (("observations", observations), ("actions", actions)):
            if type(space).__name__ != "Box" or len(space.shape) != 1:
                raise RuntimeError(f"its {name} are {space}, but must be vectors (a Box of one dimension)")
        spec = getattr(self.env, "spec", None)
        return {
            "observation_size": int(observations.shape[0]),
            "action_size": int(actions.shape[0]),
            "action_low": float(actions.low.min()),
            "action_high": float(actions.high.max()),
            "horizon": getattr(spec, "max_episode_steps", None),
        }


class Bullet(Environment):
    """Bullet-Safety-Gym."""

    def make(self, env_id, config) -> Any:
        import bullet_safety_gym  # noqa: F401  # pyright: ignore (registers the environments)
        import gymnasium

        return gymnasium.make(env_id, disable_env_checker=True, **config)

    def reset(self, seed):
        # reset() restores positions and speeds but not what the motors were told to do, and then makes one
        # step: cars and drones would start an episode with the last action of the one before. Motors off is
        # how a new environment starts, bit for bit.
        bullet = self.env.unwrapped.bc
        for number in range(bullet.getNumBodies()):
            body = bullet.getBodyUniqueId(number)
            for joint in range(bullet.getNumJoints(body)):
                if bullet.getJointInfo(body, joint)[2] in (bullet.JOINT_REVOLUTE, bullet.JOINT_PRISMATIC):
                    bullet.setJointMotorControl2(
                        body, joint, bullet.VELOCITY_CONTROL, targetVelocity=0, force=0
                    )
        # reset(seed=) is ignored: starts are drawn from np.random.
        self.seed(seed)
        return self.env.reset()[0]

    def step(self, action):
        # These tasks draw random numbers at reset only, so there is no generator to keep apart.
        observation, reward, terminal, timeout, info = self.env.step(action)
        return observation, reward, info["cost"], terminal, timeout


class SafetyGym(Environment):
    """Safety-Gymnasium 0.4.0 on Python 3.11."""

    fresh_each_episode = True  # CarCircle1's first observation else differs in the last bits; it takes 3 ms

    def make(self, env_id, config) -> Any:
        allow_array_defaults()
        import gymnasium
        import safety_gymnasium  # noqa: F401  # pyright: ignore (registers the environments)

        leave_out_skybox()
        return gymnasium.make(env_id, disable_env_checker=True, **config)

    def reset(self, seed):
        return self.env.reset(seed=seed)[0]

    def step(self, action):
        observation, reward, terminal, timeout, info = self.env.step(action)
        return observation, reward, info["cost"], terminal, timeout


def allow_array_defaults():
    """Python 3.11 refuses unhashable defaults in dataclasses; Safety-Gymnasium has arrays there."""
    import dataclasses as module

    dataclasses: Any = module  # the rule is a private function of it
    original = dataclasses._get_field
    if getattr(original, "allows_arrays", False):
        return

    def get_field(cls, name, *rest):
        declared: Any = getattr(cls, name, None)
        is_field = isinstance(declared, dataclasses.Field)
        value = declared.default if is_field else declared
        if not isinstance(value, np.ndarray):
            return original(cls, name, *rest)
        # A 0 is checked in its place, then the array is put back.
        if is_field:
            declared.default = 0
        else:
            setattr(cls, name, 0)
        found = original(cls, name, *rest)
        found.default = value
        if not is_field:
            setattr(cls, name, value)
        return found

    vars(get_field)["allows_arrays"] = True
    dataclasses._get_field = get_field


def leave_out_skybox():
    """A navigation task decodes six pictures of the sky at every reset: 1.4 s for what is not used."""
    import types

    from safety_gymnasium import world  # pyright: ignore

    xmltodict = world.xmltodict
    if isinstance(xmltodict, types.SimpleNamespace):
        return

    def unparse(tree, **options):
        assets = tree["mujoco"]["asset"]
        assets["texture"] = [t for t in assets["texture"] if t.get("@type") != "skybox"]
        return xmltodict.unparse(tree, **options)

    world.xmltodict = types.SimpleNamespace(parse=xmltodict.parse, unparse=unparse)


class MetaDrive(Environment):
    """MetaDrive 0.2.6.0, the release nearest to DSRL's private fork. One environment per process."""

    fresh_each_episode = True  # returns else differ in the seventh digit; it takes 0.1 s
    LIDAR = 240  # the last entries of an observation

    def make(self, env_id, config) -> Any:
        self.config = config
        bring_back_numpy_names()
        # Its import wants gym's registry of old.
        from gym.envs import registration  # pyright: ignore

        if not hasattr(registration.registry, "env_specs"):
            registration.registry = type("Registry", (dict,), {"env_specs": property(lambda self: self)})(
                registration.registry
            )
        from metadrive.envs import SafeMetaDriveEnv  # pyright: ignore

        return SafeMetaDriveEnv(config)

    def reset(self, seed):
        self.seed(seed)
        # It accepts only the number of its one map, so episodes differ by what the policy does.
        return self.env.reset(self.config["start_seed"])

    def step(self, action):
        observation, reward, done, info = self.env.step(action)
        # DSRL's cost: the crash or the ditch, and a little for speed (km/h) and for passing closely.
        near = max(0.0, 0.1 - float(np.min(observation[-self.LIDAR :])))
        cost = info["cost"] + 0.01 * max(0.0, info["velocity"] - 10.0) + 0.01 * near**2
        timeout = bool(info.get("max_step", False))
        return observation, reward, cost, done and not timeout, timeout


def bring_back_numpy_names():
    """MetaDrive and gym use names that numpy has removed."""
    import warnings

    dropped = {"float": float, "int": int, "bool": bool, "object": object, "bool8": np.bool_}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, kind in {**dropped, "float_": np.float64}.items():
            if name not in vars(np):
                setattr(np, name, kind)


FAMILIES = {"gym": Environment, "bullet": Bullet, "safety-gym": SafetyGym, "metadrive": MetaDrive}


class Worker:
    """Copies of one environment, made when they are first reset, each running one episode after another."""

    def __init__(self, request):
        for path in reversed(request.get("path", ())):
            sys.path.insert(0, path)
        self.kind = FAMILIES[request["family"]]
        self.id, self.config = request["id"], request["config"]
        self.step_seconds = request["step_seconds"]
        self.copies = {0: self.kind(self.id, self.config)}
        self.used = set()
        self.size = self.copies[0].describe()["observation_size"]

    def unused(self, copy):
        """The environment of a copy, fit to be reset."""
        if self.kind.fresh_each_episode and copy in self.used:
            self.copies.pop(copy).env.close()
        if copy not in self.copies:
            self.copies[copy] = self.kind(self.id, self.config)
        self.used.add(copy)
        return self.copies[copy]

    def serve(self, request, actions):
        """Resets, then steps; their results in the same order."""
        resets, steps = request["reset"], request["step"]
        observations = np.zeros((len(resets) + len(steps), self.size), np.float32)
        rewards, costs = np.zeros(len(steps)), np.zeros(len(steps))
        ends = np.zeros((len(steps), 2), np.uint8)
        for row, (copy, seed) in enumerate(resets):
            with time_limit(self.step_seconds):
                observations[row] = vector(self.unused(copy).reset(seed), self.size)
        for row, copy in enumerate(steps):
            with time_limit(self.step_seconds):
                seen, rewards[row], costs[row], *ends[row] = self.copies[copy].step(actions[row])
            observations[len(resets) + row] = vector(seen, self.size)
        return [("observations", observations), ("rewards", rewards), ("costs", costs), ("ends", ends)]


@contextlib.contextmanager
def time_limit(seconds):
    """Ends this process when the body takes longer, even inside compiled code: nothing else stops that."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def die_with_parent(parent):
    """Ends this process with its parent, however that ends: a closed pipe is noticed only between steps."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent tidies up
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def main():
    die_with_parent(int(sys.argv[1]))
    del sys.path[0]  # modules of a family are not in the folder of this script
    # What libraries print must not reach the pipe, so their standard output goes to standard error.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    questions = os.fdopen(os.dup(0), "rb")

    def read(count):
        data = questions.read(count)
        if len(data) < count:
            raise EOFError
        return data

    worker = None
    while True:
        try:
            request, arrays = read_message(read)
        except EOFError:
            os._exit(0)  # at once: clean-up in a library's destructors may hang
        try:
            if worker is None:
                worker = Worker(request)
                answer, results = worker.copies[0].describe(), ()
            else:
                answer, results = {}, worker.serve(request, arrays.get("actions"))
        except Exception as error:
            traceback.print_exc()
            answer, results = {"error": " ".join(str(error).split()) or type(error).__name__}, ()
        write_message(answers, answer, results)


if __name__ == "__main__":
    main()
