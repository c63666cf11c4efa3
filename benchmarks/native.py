"""The peer of launch.py where no other is given: MXNet's own parameter server as plain processes, one a role.

    python native.py [--kv-store dist_sync] [--workers 2] [--servers 1] [--steps 30] [--batch-size 32]
                     [--layers 2048,2048,1024]

Prints seconds from launch to the first finished step, milliseconds a step and samples a second over all workers.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kv-store", default="dist_sync")
    for name, default in (("workers", 2), ("servers", 1), ("steps", 30), ("batch-size", 32)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--layers", default="2048,2048,1024")
    parser.add_argument("--begun", type=float, default=None)
    return parser.parse_args()


def train(args: argparse.Namespace) -> None:
    """One worker."""
    import mxnet as mx

    store = mx.kv.create(args.kv_store)
    net = mx.gluon.nn.HybridSequential()
    for width in args.layers.split(","):
        net.add(mx.gluon.nn.Dense(int(width), activation="relu"))
    net.add(mx.gluon.nn.Dense(10))
    net.initialize()
    net.hybridize(static_alloc=True, static_shape=True)
    trainer = mx.gluon.Trainer(
        net.collect_params(), "sgd", {"learning_rate": 0.001, "momentum": 0.9}, kvstore=store, update_on_kvstore=True
    )
    loss_fn = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    images = mx.nd.random.uniform(shape=(args.batch_size, 1024))
    labels = mx.nd.arange(args.batch_size) % 10

    def step() -> None:
        with mx.autograd.record():
            loss = loss_fn(net(images), labels)
        loss.backward()
        trainer.step(args.batch_size * store.num_workers)

    step()
    mx.nd.waitall()
    first_step_s = time.time() - args.begun
    begun = time.perf_counter()
    for _ in range(args.steps):
        step()
    mx.nd.waitall()
    seconds = (time.perf_counter() - begun) / args.steps
    if store.rank == 0:
        print(
            f"native {args.kv_store} first_step_s={first_step_s:.2f} step_ms={seconds * 1e3:.1f} "
            f"samples_per_s={args.batch_size * store.num_workers / seconds:.1f}",
            flush=True,
        )


def launch(args: argparse.Namespace) -> int:
    """Start every role and wait for all."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = os.environ | {
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": str(port),
        "OMP_NUM_THREADS": "1",
        "DMLC_NUM_WORKER": str(args.workers),
        "DMLC_NUM_SERVER": str(args.servers),
    }
    command = [sys.executable, __file__, *sys.argv[1:], "--begun", str(time.time())]
    roles = ["scheduler", *["server"] * args.servers, *["worker"] * args.workers]
    processes = [subprocess.Popen(command, env=env | {"DMLC_ROLE": role}) for role in roles]
    return max(abs(process.wait()) for process in processes)


if __name__ == "__main__":
    role = os.environ.get("DMLC_ROLE")
    if role == "worker":
        train(options())
    elif role:
        import mxnet  # noqa: F401  serves until the workers end, then exits
    else:
        sys.exit(launch(options()))
