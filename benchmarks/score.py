"""The forms of `python -m raymx.score` beside MXNet's own way of measuring a net, in turns.

    python benchmarks/score.py [--json PATH] [--check] [--repeats 3]

The peer is what MXNet's benchmark_score does: a Module, with random numbers for pictures, one batch after the other,
each waited for. Weights are random too, so what int8 loses of an accuracy is not told here: raymx.score tells that of
a run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import mxnet as mx
import numpy as np
from common import Figure, arguments, finish, spread

from raymx.training import deploy
from raymx.training.speed import images_per_s

sys.path.append(str(Path(__file__).parents[1] / "experiments"))
import nets

NETS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "lenet 28x28": (lambda: nets.lenet(classes=10), (1, 28, 28)),
    "resnet18_v1 64x64": (lambda: mx.gluon.model_zoo.vision.resnet18_v1(classes=10), (3, 64, 64)),
}
BATCHES, LEAST_S, CALIBRATION = (1, 32), 0.5, 64


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    figures, notes = [], []
    for name, (make, shape) in NETS.items():
        forms = _forms(make(), shape)
        for size in BATCHES:
            x = mx.nd.random.uniform(-1, 1, shape=(size, *shape))
            speeds: dict[str, list[float]] = {form: [] for form in forms}
            for _ in range(args.repeats):
                for form, net in forms.items():
                    speeds[form].append(images_per_s(net, x, LEAST_S))
            for form in ("float32", "fused", "int8"):
                ratios = [one / other for one, other in zip(speeds[form], speeds["module"], strict=True)]
                mine, peer = median(speeds[form]), median(speeds["module"])
                figures.append(Figure(f"{name}, batch {size}: {form}; peer: Module", mine, peer, median(ratios)))
            notes += [f"- {name}, batch {size}, {form}: {spread(found)}" for form, found in speeds.items()]
        figures.append(_difference(name, forms, shape))
    return finish(args, figures, notes)


def _forms(net: Any, shape: tuple[int, ...]) -> dict[str, Callable[[Any], Any]]:
    mx.random.seed(1)
    net.initialize(mx.init.Xavier())
    examples = mx.nd.random.uniform(-1, 1, shape=(CALIBRATION, *shape))
    net(examples[:1])
    forms = {
        "module": deploy.AsModule(net, examples[:1]),
        "fused": deploy.fused(net, examples[:1]),
        "int8": deploy.quantized(net, [examples]),
    }
    net.hybridize(static_alloc=True, static_shape=True)
    return {**forms, "float32": net}


def _difference(name: str, forms: dict[str, Callable[[Any], Any]], shape: tuple[int, ...]) -> Figure:
    x = mx.nd.random.uniform(-1, 1, shape=(8, *shape))
    expected, found = forms["float32"](x).asnumpy(), forms["fused"](x).asnumpy()
    apart = float(np.abs(expected - found).max() / np.abs(expected).max())
    return Figure(f"{name}: fused differs by, of the largest", apart, None, None, "<= 1e-5", apart <= 1e-5)


if __name__ == "__main__":
    sys.exit(main())
