"""`python -m bcrl.train DATA.npz OUT`: training on a box that has jax, optax, equinox, numpy and safetensors.

`bcrl train` is the same with every option spelt out, and needs the whole package.
"""

import argparse
import json
import sys
from functools import partial

from bcrl.data import load_data
from bcrl.errors import BCRLError, Stopped, printable
from bcrl.learn.devices import join_processes
from bcrl.learn.registry import FAMILIES, METHODS, PRESETS, default_steps, find_method, make_method
from bcrl.train.run import fit
from bcrl.train.sweep import read_grid, settings, sweep


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bcrl.train", description=__doc__)
    parser.add_argument("data", help="the log, a .npz file")
    parser.add_argument("out", help="folder of the run")
    parser.add_argument("--method", default="bcrl", choices=sorted(METHODS), help="what to train")
    parser.add_argument("--preset", default="paper", help=f"size of the training: {', '.join(PRESETS)}")
    parser.add_argument("--family", default="own", help=f"kind of task: {', '.join(FAMILIES)}")
    parser.add_argument("--seeds", default="0", help="comma-separated seeds, trained as one program")
    parser.add_argument("--steps", type=int, help="gradient steps (default: the preset's)")
    parser.add_argument("--resume", action="store_true", help="go on where the folder's checkpoint stands")
    parser.add_argument("--log-every", type=int, default=1_000, help="steps between rows of metrics.csv")
    parser.add_argument("--checkpoint-every", type=int, default=10_000, help="steps between checkpoints")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=JSON",
        help="an option of the method, such as --set tau_c=0.3 or --set 'hidden=[256, 256]'",
    )
    parser.add_argument(
        "--sweep",
        nargs="+",
        default=[],
        metavar="NAME=X,Y",
        help="a run for each combination of values, such as tau_c=0.2,0.3 beta=1,3, in OUT/tau_c=0.2,beta=1",
    )
    parser.add_argument(
        "--distributed",
        help="auto, or HOST:PORT,COUNT,NUMBER of this process among those that train together",
    )
    words = parser.parse_args()
    try:
        if words.distributed:
            join_processes(words.distributed)
        options = dict(_option(text) for text in words.set)
        grid = read_grid(find_method(words.method).kind, words.sweep)
        options |= {name: values[0] for name, values in grid.items()}
        method = make_method(words.method, preset=words.preset, family=words.family, **options)
        steps = default_steps(words.method, words.preset, words.family)
        train = partial(sweep, methods=settings(method, **grid)) if grid else partial(fit, method=method)
        train(
            load_data(words.data),
            seeds=_seeds(words.seeds),
            steps=steps if words.steps is None else words.steps,
            out=words.out,
            resume=words.resume,
            log_every=words.log_every,
            checkpoint_every=words.checkpoint_every,
        )
    except (BCRLError, OSError) as error:
        print(f"bcrl.train: {printable(error)}", file=sys.stderr)
        raise SystemExit(2) from None
    except Stopped as stop:
        print(f"bcrl.train: {stop}", file=sys.stderr)
        raise SystemExit(stop.status) from None


def _option(text: str) -> tuple[str, object]:
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value  # a bare word, such as tracking=soft


def _seeds(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise BCRLError(
            f"seeds are {text!r}, but must be whole numbers with commas, such as 0,10,20"
        ) from None


if __name__ == "__main__":
    main()
