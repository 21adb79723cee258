"""Benchmarks: methods × tasks × seeds × thresholds into one store, here or on Ray, and their tables.

`plan.py` says what is wanted, `cells.py` what a result is and what decides it, `store.py` keeps results,
`run.py` and `ray_run.py` do what is missing, `scores.py` and `tables.py` show what there is.
"""
