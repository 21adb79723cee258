"""A small builder of ONNX graphs: operators by name, numpy arrays as constants."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bcrl.files import atomic_path
from bcrl.runtime import MLP

OPSET = 18
IR_VERSION = 9


class Graph:
    """Nodes and constants in the order of computation. A tensor is named by a text."""

    def __init__(self, name: str):
        self.name = name
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self._known: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    def __call__(
        self, operator: str, *inputs: str | np.ndarray | np.generic | float, **attributes: Any
    ) -> str:
        """Adds an operator with one output; arrays and floats become constants."""
        from onnx import helper

        names = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        out = f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, names, [out], **attributes))
        return out

    def constant(self, value: np.ndarray | np.generic | float) -> str:
        """Equal constants are stored once: the cost critics are used several times."""
        from onnx import numpy_helper

        array = np.asarray(value, np.float32 if type(value) is float else None, order="C")
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._known:
            name = self._known[key] = f"constant_{len(self._known)}"
            self.constants[name] = numpy_helper.from_array(array, name)
        return self._known[key]

    def input(self, name: str, kind: str, *shape: int) -> str:
        self.inputs.append(_described(name, kind, shape))
        return name

    def output(self, tensor: str, name: str, kind: str, *shape: int) -> None:
        from onnx import helper

        self.nodes.append(helper.make_node("Identity", [tensor], [name]))
        self.outputs.append(_described(name, kind, shape))

    def concat(self, *tensors: str) -> str:
        return self("Concat", *tensors, axis=-1)

    def columns(self, tensor: str, begin: int, end: int) -> str:
        """Columns of the last axis."""
        return self("Slice", tensor, whole(begin), whole(end), whole(-1))

    def reshape(self, tensor: str, *shape: int) -> str:
        return self("Reshape", tensor, whole(*shape))

    def network(self, mlp: MLP, x: str) -> str:
        """The layers of a network on rows; an ensemble has its members in front."""
        for i, (weight, bias) in enumerate(zip(mlp.weights, mlp.biases, strict=True)):
            x = self("Add", self("MatMul", x, weight), bias)
            if i == len(mlp.weights) - 1:
                break
            if mlp.norms:
                mean = self("ReduceMean", x, whole(-1))
                square = self("ReduceMean", self("Mul", x, x), whole(-1))
                variance = self("Max", self("Sub", square, self("Mul", mean, mean)), 0.0)
                spread = self("Sqrt", self("Add", variance, 1e-6))
                x = self("Div", self("Sub", x, mean), spread)
                x = self("Add", self("Mul", x, mlp.norms[i][0]), mlp.norms[i][1])
            x = self("Relu", x)
        return x

    def save(self, path: Path, about: dict[str, Any]) -> None:
        """Checks the graph and writes it, all or nothing."""
        import onnx
        from onnx import helper

        graph = helper.make_graph(
            self.nodes, self.name, self.inputs, self.outputs, list(self.constants.values())
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="bcrl",
        )
        helper.set_model_props(model, {"bcrl": json.dumps(about)})
        onnx.checker.check_model(model, full_check=True)
        with atomic_path(path) as temporary:
            onnx.save_model(model, temporary)


def whole(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _described(name: str, kind: str, shape: Sequence[int]) -> Any:
    from onnx import TensorProto, helper

    return helper.make_tensor_value_info(name, getattr(TensorProto, kind), ["batch", *shape])
