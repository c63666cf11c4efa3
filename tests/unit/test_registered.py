"""What of a net is trained, saved and sent: its parameters, as Gluon sees them and as it does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

mx = pytest.importorskip("mxnet")

from mxnet import gluon  # noqa: E402

from raymx.errors import TrainingError  # noqa: E402
from raymx.kvstore.schedule import Schedule  # noqa: E402
from raymx.kvstore.spec import OptimizerSpec, StoreSettings  # noqa: E402
from raymx.kvstore.trainer import Trainer, trained_parameters  # noqa: E402
from raymx.training.parameters import running_statistics  # noqa: E402
from raymx.training.registered import check_registered, parameters_of  # noqa: E402


def dense(**options: Any) -> gluon.Block:
    return gluon.nn.Dense(2, in_units=3, **options)


class Holder(gluon.HybridBlock):  # type: ignore[misc]
    """Keeps what it is given in an attribute."""

    def __init__(self, make: Callable[[Holder], Any]) -> None:
        super().__init__()
        with self.name_scope():
            self.seen = dense()
            self.kept = make(self)


class Plain(gluon.Block):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.kept = [dense(prefix="hidden_")]


HIDDEN: dict[str, Callable[[Holder], Any]] = {
    "list": lambda self: [dense(prefix="hidden_")],
    "tuple": lambda self: (dense(prefix="hidden_"),),
    "dict": lambda self: {"a": {"b": [dense(prefix="hidden_")]}},
    "parameters": lambda self: [gluon.Parameter("hidden_weight", shape=(2,))],
    "params.get": lambda self: [self.params.get("hidden_weight", shape=(2,)).name],
}


@pytest.mark.parametrize("make", HIDDEN.values(), ids=HIDDEN)
def test_what_gluon_does_not_see_is_refused_by_name(make: Callable[[Holder], Any]) -> None:
    outer = gluon.nn.HybridSequential()
    outer.add(Holder(make))
    with pytest.raises(TrainingError, match=r"Holder\.\w+ has \w*hidden_weight.*neither trained nor saved") as refused:
        parameters_of(outer)
    assert "\n" not in str(refused.value)


def test_a_plain_blocks_list_is_looked_at_too() -> None:
    with pytest.raises(TrainingError, match=r"the list Plain\.kept has hidden_weight, hidden_bias"):
        check_registered(Plain())


@pytest.mark.parametrize(
    "make",
    [
        lambda self: [self.seen],
        lambda self: {"weight": self.seen.weight, "sizes": [1, 2]},
        lambda self: [self.register_child(dense())],
    ],
)
def test_what_is_registered_may_be_in_a_list_too(make: Callable[[Holder], Any]) -> None:
    net = Holder(make)
    assert parameters_of(net) == net._collect_params_with_prefix()


@pytest.mark.parametrize("name", ["resnet18_v2", "densenet121", "inceptionv3", "mobilenetv2_0.25"])
def test_nets_of_the_model_zoo_hide_nothing(name: str) -> None:
    check_registered(gluon.model_zoo.vision.get_model(name))


@pytest.mark.parametrize("kind", [gluon.rnn.LSTM, gluon.rnn.GRU, gluon.rnn.RNN])
def test_recurrent_layers_that_mxnet_cannot_name_are_refused_in_one_line(kind: Any) -> None:
    net = gluon.nn.HybridSequential()
    net.add(kind(4, num_layers=11))
    with pytest.raises(TrainingError, match=rf"{kind.__name__} \w+ has num_layers=11, and MXNet 1.9.1 can name .* 10"):
        parameters_of(net)
    assert parameters_of(kind(4, num_layers=10))


def conv_and_norm() -> gluon.Block:
    net = gluon.nn.HybridSequential()
    net.add(dense(), gluon.nn.BatchNorm(in_channels=2), gluon.nn.Dense(2, in_units=2))
    net.initialize()
    return net


def test_a_frozen_weight_is_no_statistic() -> None:
    net = conv_and_norm()
    net[0].collect_params().setattr("grad_req", "null")
    assert list(running_statistics(parameters_of(net))) == ["1.running_mean", "1.running_var"]
    net.collect_params().setattr("grad_req", "null")
    assert list(running_statistics(parameters_of(net))) == ["1.running_mean", "1.running_var"]


@pytest.fixture
def from_file(tmp_path: Path) -> gluon.Block:
    """A net of another project's files; its parameters know no shape."""
    net = conv_and_norm()
    net.hybridize()
    net(mx.nd.ones((2, 3)))
    net.export(str(tmp_path / "net"))
    with pytest.warns(UserWarning, match="Cannot decide type"):
        return gluon.SymbolBlock.imports(str(tmp_path / "net-symbol.json"), ["data"], str(tmp_path / "net-0000.params"))


def test_a_graph_from_a_file_has_statistics_too(from_file: gluon.Block) -> None:
    outer = gluon.nn.HybridSequential()
    outer.add(from_file)
    assert [name.rpartition("_")[2] for name in running_statistics(parameters_of(outer))] == ["mean", "var"]


def trainer_of(params: Any, name: str = "sgd", lr: float = 1.0) -> Trainer:
    spec = OptimizerSpec(name, {}, rescale_grad=1.0, schedule=Schedule(peak=lr))
    return Trainer(params, mx.kv.create("local"), spec, StoreSettings(distributed=False, update_on_kvstore=True))


def test_shapes_that_are_not_known_are_settled_before_an_optimizer_looks(from_file: gluon.Block) -> None:
    params = trained_parameters(parameters_of(from_file))
    assert all(param.shape for param in params.values())
    assert trainer_of(params).sizes[0] == 6
    with pytest.raises(TrainingError, match="groupadagrad, which needs weights with rows and columns"):
        trainer_of(params, "groupadagrad")


@pytest.mark.parametrize("on_store", [True, False])
def test_grad_req_add_gives_what_write_gives(on_store: bool) -> None:
    found = {}
    for grad_req in ("write", "add"):
        weight = gluon.Parameter("weight", shape=(3,), init=mx.init.One(), grad_req=grad_req)
        weight.initialize()
        spec = OptimizerSpec("sgd", {}, rescale_grad=1.0, schedule=Schedule(peak=0.1))
        settings = StoreSettings(distributed=False, update_on_kvstore=on_store)
        trainer = Trainer({"weight": weight}, mx.kv.create("device"), spec, settings)
        for _ in range(3):
            with mx.autograd.record():
                loss = (weight.data() ** 2).sum()
            loss.backward()
            trainer.step()
        found[grad_req] = weight.data().asnumpy().tolist()
    assert found["add"] == found["write"]
    assert found["write"][0] == pytest.approx(0.8**3)
