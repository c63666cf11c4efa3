"""A bare KVStore script: what a sync store gives for what several workers push."""

import argparse
import os
import time

import mxnet as mx
import numpy as np

RATE = 2.0
SMALL, BIG = (3, 4), (1100, 1000)  # the second one is cut into one slice a server
THRESHOLD = 0.5

kv = mx.kv.create("dist_sync")
TOTAL = kv.num_workers * (kv.num_workers + 1) / 2  # of what the workers push: 1, 2, 3, ...


def equal(found, expected, what):
    found = found.asnumpy() if hasattr(found, "asnumpy") else found
    assert np.array_equal(found, np.broadcast_to(expected, found.shape)), f"{what}: {found} is not {expected}"


def pulled(key, shape, dtype="float32"):
    out = mx.nd.zeros(shape, dtype=dtype)
    kv.pull(key, out=out)
    return out


def initial_values():
    for number, dtype in enumerate(("float32", "float16", "float32")):
        key = f"init{number}"
        kv.init(key, mx.nd.ones(SMALL, dtype=dtype) * number)
        equal(pulled(key, SMALL, dtype), number, key)


def sums(dtype, shape, key, times):
    """The servers add the rate times the sum of what all workers push."""
    for number in range(1, times + 1):
        kv.push(key, mx.nd.ones(shape, dtype=dtype) * (kv.rank + 1))
        equal(pulled(key, shape, dtype), 1 + RATE * TOTAL * number, f"{key} after {number} pushes")


def rows(times):
    """Each worker pushes one row, and pulls rows that it has drawn."""
    weights = np.ones(SMALL, dtype="float32")
    for _ in range(times):
        gradient = np.zeros(SMALL, dtype="float32")
        gradient[kv.rank % SMALL[0]] = kv.rank + 1
        kv.push("rows", mx.nd.array(gradient).tostype("row_sparse"))
        for rank in range(kv.num_workers):
            weights[rank % SMALL[0]] += RATE * (rank + 1)
        wanted = np.random.randint(SMALL[0], size=2)
        out = mx.nd.sparse.zeros("row_sparse", SMALL)
        kv.row_sparse_pull("rows", out=out, row_ids=mx.nd.array(wanted))
        expected = np.zeros_like(weights)
        expected[wanted] = weights[wanted]
        equal(out, expected, f"rows {wanted}")


def compressed(key, shape):
    """What stays below the threshold is kept for the next push, in each worker."""
    for pushed, changes in ((0.3, 0.0), (0.3, THRESHOLD), (0.4, THRESHOLD), (0.0, 0.0)):
        before = pulled(key, shape).asnumpy()
        kv.push(key, mx.nd.ones(shape) * pushed)
        change = pulled(key, shape).asnumpy() - before
        equal(change, changes * RATE * kv.num_workers, f"{key} after {pushed}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--forever", action="store_true", help="pull and push on after the checks")
    args = parser.parse_args()
    initial_values()
    for dtype in ("float32", "float16"):
        kv.init(f"small {dtype}", mx.nd.ones(SMALL, dtype=dtype))
        kv.init(f"big {dtype}", mx.nd.ones(BIG, dtype=dtype))
    kv.init("rows", mx.nd.ones(SMALL).tostype("row_sparse"))
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=1.0, rescale_grad=-RATE, multi_precision=True))
    for dtype in ("float32", "float16"):
        sums(dtype, SMALL, f"small {dtype}", args.times)
        sums(dtype, BIG, f"big {dtype}", args.times)
    rows(args.times)
    kv.set_gradient_compression({"type": "2bit", "threshold": THRESHOLD})
    for name, shape in (("small", SMALL), ("big", BIG)):
        kv.init(f"compressed {name}", mx.nd.zeros(shape))
        compressed(f"compressed {name}", shape)
    print(f"rank {kv.rank} of {kv.num_workers}: all checks passed")
    if args.forever:
        print(f"forever as {os.getpid()}")
    while args.forever:
        kv.push("init0", mx.nd.ones(SMALL))
        pulled("init0", SMALL).wait_to_read()
        time.sleep(0.05)


main()
