"""A Gluon script with what a stock dist store cannot: compression, another rate, a frozen parameter, a short batch."""

import sys

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

BATCH = 4
store = mx.kv.create("dist_sync")
net = gluon.nn.Dense(1)
net.initialize(mx.init.Zero())
net(mx.nd.zeros((1, 2)))
net.bias.lr_mult = 0.0
compressed = "--compress" in sys.argv
trainer = gluon.Trainer(
    net.collect_params(),
    "sgd",
    {"learning_rate": 1.0},
    kvstore=store,
    compression_params={"type": "2bit", "threshold": 0.5} if compressed else None,
)


def step(rows):
    """Each row's gradient of the weights is 1, of each worker."""
    with autograd.record():
        loss = net(mx.nd.ones((rows, 2))).sum()
    loss.backward()
    trainer.step(rows * store.num_workers)
    return float(net.weight.data().asnumpy().ravel()[0])


found = [step(BATCH), step(BATCH)]
trainer.set_learning_rate(0.25)
found.append(step(BATCH))
found.append(step(2))  # a stock trainer refuses it
# Compressed, a gradient of 4 is the threshold and the rest is kept; its mean over the batch is 0.5 / 4.
expected = [-0.125, -0.25, -0.28125, -0.34375] if compressed else [-1.0, -2.0, -2.25, -2.5]
assert np.allclose(found, expected), (found, expected)
assert net.bias.data().asnumpy()[0] == 0.0, "its multiplier is 0"
print("guarded:", found)
