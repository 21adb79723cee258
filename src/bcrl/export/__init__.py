"""Policies for machines without JAX: a folder for numpy, or ONNX graphs."""

from bcrl.export._numpy import export_numpy
from bcrl.export._onnx import export_onnx

__all__ = ["export_numpy", "export_onnx"]
