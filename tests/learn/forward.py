"""Networks as compiled programs: outside of one, every operation is compiled by itself, for each shape."""

import jax

from bcrl.learn.networks import apply_each

forward = jax.jit(lambda network, inputs: network(inputs))
forward_each = jax.jit(apply_each)
