"""Converts the exported network to ONNX."""

import contextlib
import logging
import warnings
from typing import Any

import onnx
import torch
from torch import Tensor

from sample_factory.exporting.network import ExportedNetwork
from sample_factory.runtime.command_failed import CommandFailed
from sample_factory.runtime.failures import one_line

MAX_BYTES = 2**31 - 1  # of a file, by the format
MAX_REASON = 400  # characters


class ExportFailed(CommandFailed):
    """A policy cannot be exported, or the exported one differs; no file was written."""


def to_onnx(network: ExportedNetwork) -> onnx.ModelProto:
    """Returns the network as an ONNX model with a dynamic first axis, `batch`, of all inputs and outputs.

    Raises ExportFailed for a network that torch cannot export.
    """
    example = network.example()
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it notes e.g. that torchvision is missing
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Tensors that a network caches in its first call must be real ones, not those of the exporter.
        network((*example,))
        try:
            program = torch.onnx.export(
                _trace(network, example),
                dynamo=True,
                input_names=network.signature.inputs,
                output_names=network.signature.outputs,
                external_data=False,
                verbose=False,
            )
        except Exception as error:  # whatever a network, and the exporter for it, raise
            raise ExportFailed(
                "torch cannot export this network; forward should have no branch and no loop that depends on "
                f"numbers in tensors or on the number of rows: {one_line(error)[:MAX_REASON]}"
            ) from None
    assert program is not None, "dynamo=True"
    model: onnx.ModelProto = program.model_proto
    if model.ByteSize() > MAX_BYTES:
        raise ExportFailed(f"the network has {model.ByteSize():,} bytes; a file of ONNX holds {MAX_BYTES:,}")
    _remove_traces(model)
    return model


def _trace(network: ExportedNetwork, example: tuple[Tensor, ...]) -> torch.export.ExportedProgram:
    """Returns the network as a graph, for any number of rows."""
    batch = torch.export.Dim("batch")
    shapes = (tuple({0: batch} for _ in example),)
    try:
        return torch.export.export(network, (example,), dynamic_shapes=shapes, strict=False)
    except Exception:  # whatever it raises for code that it does not understand, such as len(tensor)
        with contextlib.suppress(Exception):
            return torch.export.export(network, (example,), dynamic_shapes=shapes, strict=True)
        raise


def _remove_traces(model: onnx.ModelProto) -> None:
    """Removes the exporter's notes, which are larger than a small network and hold paths of this machine."""
    graph: Any = model.graph
    model.producer_name = "sample_factory"
    values = (*graph.input, *graph.output, *graph.value_info, *graph.initializer)
    for part in (model, graph, *graph.node, *values, *model.functions):
        del part.metadata_props[:]
        part.ClearField("doc_string")
    graph.ClearField("value_info")
