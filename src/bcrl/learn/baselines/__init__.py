"""Methods to compare with, one file each, on the same loop, policy file and evaluation as BCRL."""
