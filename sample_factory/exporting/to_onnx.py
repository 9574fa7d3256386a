"""Converts the exported network to ONNX."""

import contextlib
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import onnx
import torch
from torch import Tensor

from sample_factory.exporting.network import ExportedNetwork
from sample_factory.exporting.signature import Signature
from sample_factory.runtime.failures import CommandFailed, one_line

MAX_BYTES = 2**31 - 1  # of a file, by the format
MAX_REASON = 400  # characters


class ExportFailed(CommandFailed):
    """A policy cannot be exported, or the exported one differs; no file was written."""


def to_onnx(network: ExportedNetwork, signature: Signature) -> onnx.ModelProto:
    """Returns the network as an ONNX model with a dynamic first axis, `batch`, of all inputs and outputs.

    Raises ExportFailed for a network that torch cannot export.
    """
    example = network.example()
    with torch.no_grad(), _quiet():
        # Tensors that a network caches in its first call must be real ones, not those of the exporter.
        network((*example,))
        try:
            exported = _trace(network, example)
            program = torch.onnx.export(
                exported,
                dynamo=True,
                input_names=signature.inputs,
                output_names=signature.outputs,
                external_data=False,
                verbose=False,
            )
        except Exception as error:  # whatever a network, and the exporter for it, raise
            raise _not_exportable(error) from None
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


def _not_exportable(error: Exception) -> ExportFailed:
    reason = one_line(error)
    if len(reason) > MAX_REASON:
        reason = f"{reason[:MAX_REASON]} ..."
    return ExportFailed(
        "torch cannot export this network; forward should have no branch and no loop that depends on numbers "
        f"in tensors or on the number of rows: {reason}"
    )


def _remove_traces(model: onnx.ModelProto) -> None:
    """Removes the exporter's notes, which are larger than a small network and hold paths of this machine."""
    graph: Any = model.graph
    model.producer_name = "sample_factory"
    values = (*graph.input, *graph.output, *graph.value_info, *graph.initializer)
    for part in (model, graph, *graph.node, *values, *model.functions):
        del part.metadata_props[:]
        part.ClearField("doc_string")
    graph.ClearField("value_info")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides the exporter's notes, such as that torchvision is not installed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
