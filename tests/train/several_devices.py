"""`python -m bcrl.train WORDS...` on several devices: what is asserted here must hold in that process.

python several_devices.py DEVICES STOPPING WORDS...: STOPPING is the number of the process that gets SIGTERM
at its second row of metrics, or - for none.
"""

import os
import signal
import sys

import jax

from bcrl.learn.devices import mesh_for
from bcrl.train.__main__ import main
from bcrl.train.saver import Saver

devices, stopping = int(sys.argv.pop(1)), sys.argv.pop(1)
log, signals = Saver._log, []


def logged(saver: Saver, step: int, metrics) -> None:
    log(saver, step, metrics)
    if step == 20 and stopping == str(jax.process_index()) and not signals:
        signals.append(signal.SIGTERM)  # once: a second one would end the process at once
        os.kill(os.getpid(), signal.SIGTERM)


def checked(count: int):
    mesh = mesh_for(count)
    assert mesh is not None
    assert mesh.size == len(jax.devices()) == devices
    return mesh


Saver._log = logged
sys.modules["bcrl.learn.loop"].mesh_for = checked  # type: ignore[attr-defined]
if devices > 1 and not any("--distributed" in word for word in sys.argv):
    sizes = [1 if mesh is None else mesh.size for mesh in map(mesh_for, (1, 3, 4, 6, 36))]
    assert sizes == [1, 3, 4, 3, 4], sizes
main()
