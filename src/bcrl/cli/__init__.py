"""The command line: `bcrl VERB ...`. One file per verb; only the verb that is called is imported."""

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module

from bcrl.cli.compiled import keep_compiled_programs
from bcrl.cli.terminal import prepare_streams
from bcrl.errors import BCRLError, Stopped, did_you_mean, printable
from bcrl.train.interrupt import interrupts_noted

# verb -> (module with a dataclass `Command` that has `run()`, one line for the overview)
VERBS = {
    "demo": ("bcrl.cli.demo", "make a log, train, evaluate and report: the whole way in minutes"),
    "example ev-charging": (
        "bcrl.cli.example",
        "electric cars under a carbon budget: real data, the whole way",
    ),
    "collect": ("bcrl.cli.collect", "record a log in a world, by an agent that learns"),
    "data info": ("bcrl.cli.data_info", "what a log holds: sizes, ranges, returns, costs and a picture"),
    "data fetch": ("bcrl.cli.data_fetch", "download DSRL's log of a task"),
    "data import": ("bcrl.cli.data_import", "a log from a table of your own: CSV or Parquet"),
    "data filter": ("bcrl.cli.data_filter", "thin, cut or spoil a log as DSRL does, into a new one"),
    "data convert": ("bcrl.cli.data_convert", "write a log in another format: HDF5, NPZ, Minari"),
    "train": ("bcrl.cli.train", "learn policies from a log"),
    "evaluate": ("bcrl.cli.evaluate", "run trained policies in a world at many thresholds"),
    "estimate": ("bcrl.cli.estimate", "what policies will cost and earn, from the log alone"),
    "calibrate": ("bcrl.cli.calibrate", "what to tell a policy so that thresholds are kept, from the log"),
    "choose": ("bcrl.cli.choose", "the best of several policies, from the log alone"),
    "critics": ("bcrl.cli.critics", "what a policy's cost critics say of a log, beside what followed there"),
    "adjust": ("bcrl.cli.adjust", "how trained policies act, changed without training them again"),
    "certify": ("bcrl.cli.certify", "is the mean cost below a threshold? From monitored episodes"),
    "export": ("bcrl.cli.export", "a policy for machines without JAX: numpy alone, or ONNX"),
    "inspect": ("bcrl.cli.inspect", "what is in a policy file, and a model card of it"),
    "serve": ("bcrl.cli.serve", "episodes of a policy over HTTP, for programs in any language"),
    "bench": ("bcrl.cli.bench", "methods on tasks by the paper's protocol, here or on Ray, with tables"),
    "bench table": ("bcrl.cli.bench_table", "the tables of a benchmark from its store"),
    "worlds": ("bcrl.cli.worlds", "the DSRL tasks and which of their worlds are installed"),
    "worlds install": ("bcrl.cli.worlds_install", "make the isolated environment of a family of tasks"),
    "solve": ("bcrl.cli.solve", "exact answers and a budgeted policy for a known model, with a map"),
    "paper list": ("bcrl.cli.paper_list", "the paper's experiments"),
    "paper run": ("bcrl.cli.paper_run", "an experiment of the paper, its numbers beside yours"),
    "ship data": ("bcrl.cli.ship_data", "AIS logs to ship scenarios: ny-harbor, or files of your own"),
    "ship log": ("bcrl.cli.ship_log", "the experts' transitions of ship scenarios, as a log to learn from"),
    "ship evaluate": ("bcrl.cli.ship_evaluate", "run trained policies in the congested ship scenarios"),
    "ship plan": ("bcrl.cli.ship_plan", "what is possible in ship scenarios, by a planner that knows them"),
    "ship show": ("bcrl.cli.ship_show", "one ship scenario on a map, with what policies do there"),
    "report": ("bcrl.cli.report", "results as a page with pictures"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `bcrl`. Mistakes of the user end in one line and exit status 2."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    prepare_streams()
    try:
        with _warnings_as_lines(), interrupts_noted():
            run_verb(words)
    except BCRLError as error:
        _complain(error)
        raise SystemExit(2) from None
    except BrokenPipeError:  # the reader of a pipe, such as head, has seen enough
        sys.stderr.close()
        raise SystemExit(0) from None
    except OSError as error:  # no space, no permission, a folder in the place of a file
        where = error.filename2 or error.filename or "a file"
        _complain(f"{where}: {error.strerror or error}; choose another place")
        raise SystemExit(2) from None
    except KeyboardInterrupt as stop:  # a training says where it stopped, and by which signal
        _complain(str(stop) or "stopped")
        raise SystemExit(stop.status if isinstance(stop, Stopped) else 130) from None


def run_verb(words: list[str]) -> None:
    """Runs the verb that the words name, with its options."""
    if not words or words[0] in ("-h", "--help"):
        print(overview())
        return
    if words[0] == "--version":
        from importlib.metadata import version

        print(f"bcrl {version('bcrl')}")
        return
    verb = next((" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in VERBS), None)
    if verb is None:
        inside = [name for name in VERBS if name.split()[0] == words[0]]
        known = ", ".join(inside or VERBS)
        asked = " ".join(words[:2] if inside else words[:1])
        hint = did_you_mean(asked, VERBS) or did_you_mean(" ".join(words[:2]), VERBS) or ";"
        raise BCRLError(f"there is no verb {asked!r}{hint} known: {known} (see bcrl --help)")
    from bcrl.cli.arguments import parse

    keep_compiled_programs()
    module = import_module(VERBS[verb][0])
    rest = words[len(verb.split()) :]
    # A verb whose options depend on what is asked for (train) names its own command and defaults.
    command, default = module.command_for(rest) if hasattr(module, "command_for") else (module.Command, None)
    parse(command, f"bcrl {verb}{getattr(default, 'help_words', '')}", rest, default).run()


def _complain(message: object) -> None:
    """One line on stderr. Names from files are in it, so control characters are shown as escapes."""
    print(f"bcrl: {printable(message)}", file=sys.stderr)


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Python's warnings as lines of the program: `bcrl: ...` on stderr, without code."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        # Another process is writing it: the program is compiled here instead.
        warnings.filterwarnings("ignore", "Error reading persistent compilation cache entry")
        warnings.showwarning = lambda message, *_, **__: _complain(message)
        yield


def overview() -> str:
    """The verbs, one line each."""
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {verb:<{width}}  {line}" for verb, (_, line) in VERBS.items())
    return (
        "usage: bcrl VERB [options]\n\n"
        "Safe offline reinforcement learning with a budget you set at run time.\n\n"
        f"{verbs}\n\n'bcrl VERB --help' lists all options of a verb."
    )
