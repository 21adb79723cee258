"""Judging policies: roll-outs at many thresholds at once, statistics and tables."""
