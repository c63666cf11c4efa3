"""A Module script: ``fit`` with a dist store, checkpoints by prefix, and a worker that can be made to fail once."""

import argparse
import logging
import os

import mxnet as mx
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--kv-store", default="dist_sync")
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--num-epochs", type=int, default=3)
parser.add_argument("--model-prefix")
parser.add_argument("--load-epoch", type=int)
parser.add_argument("--fail-in", type=int, help="the epoch in which rank 0 is killed, unless it was loaded")
args = parser.parse_args()
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")

kv = mx.kvstore.create(args.kv_store)
numbers = np.random.RandomState(kv.rank)
data = numbers.normal(size=(64, 4)).astype("float32")
label = (data[:, 0] > 0).astype("float32")
train = mx.io.NDArrayIter(data, label, batch_size=8)
validation = mx.io.NDArrayIter(data, label, batch_size=8)

net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2)
net = mx.sym.SoftmaxOutput(net, name="softmax")
module = mx.mod.Module(net)

begun, loaded = 0, {}
if args.load_epoch is not None:
    begun = args.load_epoch
    _, loaded["arg_params"], loaded["aux_params"] = mx.model.load_checkpoint(args.model_prefix, begun)
    print("loaded epoch", begun)


def fail(epoch, *_):
    if args.fail_in == epoch and kv.rank == 0 and args.load_epoch is None:
        os.kill(os.getpid(), 9)


after = [fail]
if args.model_prefix and kv.rank == 0:
    after.insert(0, mx.callback.do_checkpoint(args.model_prefix))
module.fit(
    train,
    eval_data=validation,
    kvstore=kv,
    optimizer_params={"learning_rate": args.lr},
    initializer=mx.init.Xavier(),
    num_epoch=args.num_epochs,
    begin_epoch=begun,
    batch_end_callback=mx.callback.Speedometer(8, 2),
    epoch_end_callback=after,
    **loaded,
)
print("trained", args.num_epochs - begun, "epochs")
