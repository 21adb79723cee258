"""Learning from a log. Needs jax, optax, equinox and numpy alone, so that it runs on a bare GPU box.

`bcrl.py` is Algorithm 1 of the paper, `acting.py` its execution, `loop.py` the one train loop of all
methods, `run.py` the run folder and `fit`.
"""
