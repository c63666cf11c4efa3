"""A Gluon script with a dist store, that sets DMLC_* for the machine that it was written for."""

import argparse
import logging
import os
import time

os.environ.update(DMLC_PS_ROOT_URI="127.0.0.1", DMLC_PS_ROOT_PORT="9", DMLC_NUM_WORKER="8", DMLC_ROLE="worker")

import mxnet as mx
from mxnet import autograd, gluon

parser = argparse.ArgumentParser()
parser.add_argument("--kv-store", default="dist_sync")
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=2)
args = parser.parse_args()
logging.basicConfig(level=logging.INFO)

BATCH, STEPS = 16, 6
store = mx.kv.create(args.kv_store)
mx.random.seed(1)
net = gluon.nn.Dense(2)
net.initialize(mx.init.One())
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": args.lr}, kvstore=store)
loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
speedometer = mx.callback.Speedometer(BATCH, 2)
metric = mx.metric.Accuracy()
for epoch in range(args.epochs):
    metric.reset()
    began = time.time()
    for batch in range(STEPS):
        data = mx.nd.random.normal(shape=(BATCH, 4))
        label = (data[:, 0] > 0).astype("float32")
        with autograd.record():
            out = net(data)
            loss = loss_of(out, label)
        loss.backward()
        trainer.step(BATCH * store.num_workers)
        metric.update(label, out)
        speedometer(mx.model.BatchEndParam(epoch=epoch, nbatch=batch, eval_metric=metric, locals=None))
    logging.info("[Epoch %d] training: %s=%f", epoch, *metric.get())
    logging.info("[Epoch %d] time cost: %f", epoch, time.time() - began)
print("weights", net.weight.data().asnumpy().ravel().tolist())
