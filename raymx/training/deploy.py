"""A trained net as others take it: a graph in files, ONNX, fused by oneDNN, or in int8 by MXNet's own quantization."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import gluon

from raymx.errors import TrainingError
from raymx.training.structure import filled, form_of, leaves

ONNX = "onnx>=1.13,<1.17"  # later ones lack what MXNet 1.9.1 imports
_OPSET, _IR = 13, 7  # the newest that MXNet 1.9.1 knows; it writes down the newest that the package onnx knows
_INPUT = "data"


class _Flat(gluon.HybridBlock):
    """A graph gives a list of arrays, whatever the form is that the net gives."""

    def __init__(self, net: gluon.HybridBlock) -> None:
        super().__init__()
        self.net = net

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        given = self.net(x)
        return given if form_of(given) is None else leaves(given)


class InForm:
    """A graph's block, called as the net is: its outputs in the net's own form."""

    def __init__(self, block: Any, form: Any) -> None:
        self.block, self._form = block, form

    def __call__(self, x: mx.nd.NDArray) -> Any:
        given = self.block(x)
        return given if self._form is None else filled(self._form, given)


def save_graph(net: gluon.Block, example: mx.nd.NDArray, prefix: str) -> tuple[str, str]:
    """Write ``PREFIX-symbol.json`` and ``PREFIX-0000.params``, which MXNet and others load; their paths.

    ``example`` is an input of the net. Raises TrainingError for a net that is no graph.
    """
    if not isinstance(net, gluon.HybridBlock):
        raise TrainingError(f"the net is a {type(net).__name__}, a Block and no HybridBlock: it has no graph to export")
    whole = _Flat(net)
    whole.hybridize()
    try:
        whole(example)
        whole.export(prefix)
    except (mx.MXNetError, AssertionError, TypeError, ValueError, AttributeError, NotImplementedError) as error:
        raise TrainingError(
            f"the net cannot be made a graph ({type(error).__name__}: {str(error).strip().splitlines()[-1]}): it must "
            "be made of HybridBlocks with hybrid_forward alone"
        ) from None
    finally:
        net.hybridize(False)
    return f"{prefix}-symbol.json", f"{prefix}-0000.params"


def save_onnx(net: gluon.Block, example: mx.nd.NDArray, path: str) -> str:
    """Write an ONNX file, of opset 13, whose first axis may have any length; its path.

    Raises TrainingError where the package is absent, or MXNet's exporter does not know one of the net's operators.
    """
    try:
        import onnx
        from onnx import mapping  # noqa: F401
    except ImportError:
        raise TrainingError(f"ONNX files are written with the package onnx: pip install '{ONNX}'") from None
    shape = tuple(example.shape)
    with tempfile.TemporaryDirectory() as folder:
        files = save_graph(net, example, os.path.join(folder, "net"))
        try:
            mx.onnx.export_model(
                *files, [shape], np.float32, path, dynamic=True, dynamic_input_shapes=[(None, *shape[1:])]
            )
        except (AttributeError, NotImplementedError, ValueError, KeyError, mx.MXNetError) as error:
            raise TrainingError(
                f"MXNet 1.9.1 cannot write this net as ONNX ({type(error).__name__}: "
                f"{str(error).strip().splitlines()[-1]}): use the form symbol"
            ) from None
    _correct(onnx, path)
    return path


def _correct(onnx: Any, path: str) -> None:
    """Write the versions that MXNet means into an ONNX file, and leave weights out of the graph's inputs."""
    model = onnx.load(path)
    model.ir_version = _IR
    del model.opset_import[:]
    model.opset_import.append(onnx.helper.make_opsetid("", _OPSET))
    weights = {each.name for each in model.graph.initializer}
    inputs = [each for each in model.graph.input if each.name not in weights]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def fused(net: gluon.Block, example: mx.nd.NDArray) -> InForm:
    """The net with its operators fused by oneDNN (``optimize_for`` the backend MKLDNN), for inference on a CPU."""
    with _graph(net, example) as (files, form):
        block = _imported(files)
        block.optimize_for(example, backend="MKLDNN", static_alloc=True, static_shape=True)
        return InForm(block, form)


def quantized(net: gluon.Block, examples: Sequence[mx.nd.NDArray]) -> InForm:
    """The net in int8, by MXNet's own quantization; what its layers give for ``examples``, inputs of one size, is what
    the ranges of numbers are taken from. For inference on a CPU.
    """
    from mxnet.contrib.quantization import quantize_net_v2

    with _graph(net, examples[0]) as (files, form):
        given = np.concatenate([each.asnumpy() for each in examples])
        data = mx.io.NDArrayIter({_INPUT: given}, batch_size=len(examples[0]))
        try:
            with _no_warnings():
                block = quantize_net_v2(
                    _imported(files),
                    quantize_mode="smart",
                    calib_mode="naive",
                    calib_data=data,
                    num_calib_examples=len(given),
                )
        except mx.MXNetError as error:
            raise TrainingError(
                f"MXNet 1.9.1 cannot quantize this net: {str(error).strip().splitlines()[-1]}"
            ) from None
    block.hybridize(static_alloc=True, static_shape=True)
    return InForm(block, form)


class AsModule:
    """The net as a Module, as MXNet's own benchmark_score runs it."""

    def __init__(self, net: gluon.Block, example: mx.nd.NDArray) -> None:
        with _graph(net, example) as (files, self._form):
            self._symbol = mx.sym.load(files[0])
            saved = mx.nd.load(files[1])
        self._arguments = {name[4:]: array for name, array in saved.items() if name.startswith("arg:")}
        self._auxiliary = {name[4:]: array for name, array in saved.items() if name.startswith("aux:")}
        self._modules: dict[tuple[int, ...], Any] = {}

    def __call__(self, x: mx.nd.NDArray) -> Any:
        module = self._modules.get(x.shape) or self._bind(x)
        module.forward(mx.io.DataBatch([x]), is_train=False)
        outputs = module.get_outputs()
        return outputs[0] if self._form is None else filled(self._form, outputs)

    def _bind(self, x: mx.nd.NDArray) -> Any:
        module = mx.mod.Module(self._symbol, data_names=[_INPUT], label_names=None, context=x.context)
        module.bind(data_shapes=[(_INPUT, x.shape)], for_training=False)
        module.set_params(self._arguments, self._auxiliary)
        self._modules = {x.shape: module}
        return module


@contextmanager
def _graph(net: gluon.Block, example: mx.nd.NDArray) -> Iterator[tuple[tuple[str, str], Any]]:
    """The files of the net's graph, as long as the context is, and the form of what it gives."""
    form = form_of(net(example))
    with tempfile.TemporaryDirectory() as folder:
        yield save_graph(net, example, os.path.join(folder, "net")), form


def _imported(files: tuple[str, str]) -> gluon.SymbolBlock:
    with _no_warnings():
        return gluon.SymbolBlock.imports(files[0], [_INPUT], files[1])


@contextmanager
def _no_warnings() -> Iterator[None]:
    """MXNet warns of the type of a graph's input, which comes with the first one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
