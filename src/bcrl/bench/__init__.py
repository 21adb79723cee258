"""Benchmarks: methods × tasks × seeds × thresholds into one store, here or on Ray, and their tables.

`plan.py`: what is asked for. `cells.py`: a result and its key. `store.py`: the file of results. `run.py`,
`ray_run.py`: doing what is missing. `scores.py`, `tables.py`, `formats.py`: the tables.
"""
