"""Worlds in their own processes: each family in its own Python, stepped over a pipe."""
