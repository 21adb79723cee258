"""Pytest puts the folder of a conftest on the path: so the tests in baselines/ find lane.py too."""
