"""Shared by all tests: compiled programs are kept for the session, and a tiny log with a policy from it."""

import gc
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tiny_log_maker import make_log

HIDDEN = (8,)

# No test may fail because the machine is busy.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# Most of a small test is compilation, and many tests compile the same program: all workers, and the programs
# that tests start, inherit one cache. Set here and not in a hook: JAX reads it when it is first imported, and
# other conftests import it before any hook is called. JAX writes without a lock; its files have a checksum,
# and a process that reads half of one warns and compiles (the warning is let through in pyproject.toml).
# A folder that is given, JAX_COMPILATION_CACHE_DIR, is kept for the next run.
OWN_CACHE = not {"PYTEST_XDIST_WORKER", "JAX_COMPILATION_CACHE_DIR"} & os.environ.keys()
if "PYTEST_XDIST_WORKER" not in os.environ:
    if OWN_CACHE:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="bcrl-jax-")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    # Programs are optimised only where a test asks for it (optimised.py): that halves the compilation.
    # XLA's newer emitters of fused kernels would take a third longer. Cutting a program into parts, to
    # compile them side by side, takes a tenth more: the other core has tests of its own.
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    quick = "--xla_backend_optimization_level=1 --xla_llvm_disable_expensive_passes=true"
    quick += " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {quick}".strip()
    # The other core has tests of its own here too: threads of BLAS would only wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# A core for each worker: threads that take turns on all cores cost an eighth of the time.
if (worker := os.environ.get("PYTEST_XDIST_WORKER")) and hasattr(os, "sched_setaffinity"):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})

# Tracing makes many small objects, and most live on: to look through them after every 700 takes a twentieth
# of the time.
gc.set_threshold(50_000, 20, 100)


def pytest_unconfigure() -> None:
    if OWN_CACHE:
        shutil.rmtree(os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)


@pytest.fixture(autouse=True, scope="module")
def _few_memory_maps():
    """Forgets compiled programs before they exhaust the memory maps of a process (65,530 on Linux).

    Each program takes about ten, and XLA ends in a segmentation fault without. A module has less than a
    thousand programs. Those that are needed again come back from the cache.
    """
    yield
    maps = Path("/proc/self/maps")
    if "jax" in sys.modules and maps.exists() and maps.read_bytes().count(b"\n") > 45_000:
        sys.modules["jax"].clear_caches()
        gc.collect()


@pytest.fixture(scope="session")
def tiny_log():
    return make_log()


@pytest.fixture(scope="session")
def tiny_log_file(tiny_log, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "tiny.npz"
    tiny_log.save(path)
    return path


@pytest.fixture(scope="session")
def tiny_method():
    from bcrl.learn.bcrl import BCRL

    return BCRL(hidden=HIDDEN, batch_size=16, learning_rate=1e-2)


@pytest.fixture(scope="session")
def tiny_run(tiny_log_file: Path, tiny_method, tmp_path_factory: pytest.TempPathFactory):
    """Two seeds trained for 40 steps, in a folder."""
    from bcrl.data import load_data
    from bcrl.train.run import fit

    out = tmp_path_factory.mktemp("runs") / "tiny"
    return fit(
        load_data(tiny_log_file),
        tiny_method,
        seeds=(0, 10),
        steps=40,
        out=out,
        log_every=10,
        checkpoint_every=20,
    )


@pytest.fixture(scope="session")
def tiny_policy(tiny_run):
    return tiny_run.policy(seed=10)
