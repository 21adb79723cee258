"""Learning from a log. Needs only jax, optax, equinox and numpy, so that it runs on a bare GPU box.

`bcrl.py` is Algorithm 1 of the paper, `acting.py` its execution, `baselines/` the methods it is compared
with. `protocol.py` says what a method is, `registry.py` which there are, `loop.py` trains them all.
"""
