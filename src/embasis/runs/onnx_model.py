"""A trained model as the bytes of an ONNX file: network and label distribution in one graph, checked before it is kept.

| name | shape | meaning |
| --- | --- | --- |
| x | (n, …) | input, as `input` of the file's metadata says; n is any number |
| mean, between, within | (n, C) | label distribution; of label maps (n, C, h, w) |
| uncertainty, label | (n) | the number that labels are ranked by, and the class; of label maps (n, h, w) |
| scores | (n, C) | the network's own, before the softmax |

Names of nodes and values are numbers, and nothing says where on this machine the graph was made: the same model gives
the same bytes.
"""

from __future__ import annotations

import json
import warnings
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from embasis.errors import ConfigError, NumericalError, ResourceError, require
from embasis.randomness import generator
from embasis.runs.model import TrainedModel
from embasis.runs.model_facts import describe_input, describe_model
from embasis.runs.model_graph import UNLABELLED_SIDE, GraphLabels, ModelGraph, build_graph

ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
LARGEST_FILE = 2**31 - 2**20
"""Bytes of weights in one ONNX file; its format ends at 2 GiB."""
CHECKED_ROWS, CLOSE = 7, 2e-3
"""Rows by which a file is checked, and by how much half of them may differ: pictures have means in half precision."""


def encode_onnx(model: TrainedModel) -> bytes:
    """The file; a ConfigError where the packages that make and run it are not there."""
    import_packages()
    graph = build_graph(model)
    weights = sum(tensor.numel() * tensor.element_size() for tensor in graph.state_dict().values())
    rule = f"an ONNX file holds at most 2 GiB, and the model has {weights:,} bytes of weights"
    require(weights <= LARGEST_FILE, f"{rule}; --as torch has no such limit", ResourceError)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, about itself
        program = torch.onnx.export(
            graph,
            (make_rows(model, 2),),
            dynamo=True,
            input_names=["x"],
            output_names=list(GraphLabels._fields),
            dynamic_shapes=(free_sides(model),),
            verbose=False,
        )
    assert program is not None
    clean_names(program.model.graph, model)
    facts = {
        name: value if isinstance(value, str) else json.dumps(value) for name, value in describe_model(model).items()
    }
    program.model.metadata_props.clear()
    program.model.metadata_props.update(facts)
    data: bytes = program.model_proto.SerializeToString(deterministic=True)
    check_onnx(data, graph, make_rows(model, CHECKED_ROWS))
    return data


def import_packages() -> None:
    """A ConfigError that says what to install."""
    for name in ONNX_PACKAGES:
        try:
            import_module(name)
        except ImportError as error:
            rule = f"--as onnx needs {', '.join(ONNX_PACKAGES)}, and {name} cannot be imported"
            raise ConfigError(f'{rule}: pip install "embasis[onnx]"') from error


def make_rows(model: TrainedModel, count: int) -> Tensor:
    """Inputs that look like some of the unlabelled side, always the same for the same count."""
    draw, sides = generator(0, "rows of an export", count), describe_input(model)["shape"][2:]
    if model.inputs.kind.has_maps:
        unit = side_unit(model)
        sides = [(4 + count % 2) * unit, 6 * unit]
    if model.inputs.identity is not None:
        return torch.randint(0, 256, (count, 3, *sides), dtype=torch.uint8, generator=draw)
    rows = torch.randn(count, *model.shape, generator=draw, dtype=torch.float64)
    if model.standardiser is not None:
        centre, scale = model.standardiser.centre[UNLABELLED_SIDE], model.standardiser.scale[UNLABELLED_SIDE]
        rows = (rows.flatten(1) * scale + centre).view(rows.shape)
    return rows if model.needs_float64 else rows.float()


def free_sides(model: TrainedModel) -> dict[int, Any]:
    """The sides of an input that may have any length: that of the rows; of label maps height and width, too."""
    rows = {0: torch.export.Dim("n")}
    if not model.inputs.kind.has_maps:
        return rows
    unit = side_unit(model)
    return {**rows, 2: unit * torch.export.Dim("rows"), 3: unit * torch.export.Dim("columns")}


def side_unit(model: TrainedModel) -> int:
    """What the sides of pictures are multiples of."""
    return int(describe_input(model)["sides_are_multiples_of"])


def clean_names(graph: Any, model: TrainedModel) -> None:
    """Numbers in place of names, which may clash with those of outputs; no traces of files and no guesses of shapes."""
    for number, node in enumerate(graph):
        node.name, node.doc_string = f"node_{number}", None
        node.metadata_props.clear()
        for place, value in enumerate(node.outputs):
            value.metadata_props.clear()
            if not value.is_graph_output():
                value.name, value.shape = f"value_{number}_{place}", None
    for value in (*graph.inputs, *graph.initializers.values()):
        value.metadata_props.clear()
    graph.metadata_props.clear()
    graph.name = "embasis"
    shape = import_module("onnx_ir").Shape
    sides, classes = ["h", "w"] if model.inputs.kind.has_maps else [], len(model.schema)
    for value in graph.inputs:
        value.shape = shape(describe_input(model)["shape"])
    for value in graph.outputs:
        by_class = value.name not in ("uncertainty", "label")
        value.shape = shape(["n", *([classes] if by_class else []), *sides])


def check_onnx(data: bytes, graph: ModelGraph, rows: Tensor) -> None:
    """A NumericalError for a file that says something else than the model: more than half of the rows differ.

    Not all must agree: where two neighbours are equally near, rounding decides which of them counts."""
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    got = session.run(["mean", "scores"], {"x": rows.numpy()})
    expected = graph(rows)
    for value, other in zip(got, (expected.mean, expected.scores), strict=True):
        difference = (torch.from_numpy(value) - other).abs().flatten(1).amax(1)
        size = max(float(other.abs().max()), 1.0)
        apart = float(difference.median()) / size
        rule = f"the ONNX file does not compute what the model does: it differs by {apart:.2g}"
        require(apart <= CLOSE, f"{rule}; --as torch writes the model for torch", NumericalError)
