"""The KVStore's pure parts: environments, how slices lie on servers, what travels."""

from __future__ import annotations

import numpy as np
import pytest

from raymx.kvstore import env
from raymx.kvstore.state import Layout, OptimizerState, bytes_a_step, cut, join, rekey

TCP = env.Topology(num_workers=2, num_servers=1, root_host="10.0.0.1", root_port=9000)
UNIX = env.Topology(num_workers=2, num_servers=1, root_host="10.0.0.1", root_port=900_000_000, unix_sockets=True)


def test_a_role_over_tcp_binds_its_own_node() -> None:
    found = env.role_env("worker", TCP, "10.0.0.2")
    assert found == {"DMLC_ROLE": "worker", "DMLC_PS_ROOT_URI": "10.0.0.1", "DMLC_PS_ROOT_PORT": "9000",
                     "DMLC_NUM_WORKER": "2", "DMLC_NUM_SERVER": "1", "DMLC_NODE_HOST": "10.0.0.2",
                     "MXNET_KVSTORE_BIGARRAY_BOUND": "1000000"}


def test_an_interface_takes_the_place_of_the_address() -> None:
    for options in ({"interface": "eth1"}, {"settings": {"DMLC_INTERFACE": "eth1"}}):
        found = env.role_env("server", TCP, "10.0.0.2", **options)      # type: ignore[arg-type]
        assert found["DMLC_INTERFACE"] == "eth1"
        assert "DMLC_NODE_HOST" not in found


def test_unix_sockets_name_every_port() -> None:
    found = env.role_env("server", UNIX, "10.0.0.1", own_port=900_000_001, interface="eth1")
    assert found["DMLC_LOCAL"] == "1"
    assert found["PORT"] == "900000001"
    assert "DMLC_INTERFACE" not in found


def test_the_users_settings_reach_their_roles_and_not_the_topology() -> None:
    settings = {"all": {"PS_VERBOSE": "1", "MXNET_A": "all"}, "server": {"MXNET_A": "server"}, "worker": {}}
    assert env.settings_for("server", settings) == {"PS_VERBOSE": "1", "MXNET_A": "server"}
    assert env.settings_for("worker", settings) == {"PS_VERBOSE": "1", "MXNET_A": "all"}
    assert env.role_env("worker", TCP, "h", settings={"DMLC_NUM_WORKER": "9"})["DMLC_NUM_WORKER"] == "2"


def test_what_the_last_generation_left_is_obsolete() -> None:
    present = ["PATH", "DMLC_RANK", "DMLC_LOCAL", "PORT", "DMLC_ROLE", "MXNET_A"]
    assert env.obsolete(present, env.role_env("worker", TCP, "h")) == ["DMLC_RANK", "DMLC_LOCAL", "PORT"]


@pytest.mark.parametrize(("worker", "expected"), [({}, 1_000_000), ({"MXNET_KVSTORE_BIGARRAY_BOUND": "1000"}, 1000)])
def test_the_bound_that_cuts_is_the_workers(worker: dict[str, str], expected: int) -> None:
    settings = {"all": {}, "server": {"MXNET_KVSTORE_BIGARRAY_BOUND": "5"}, "worker": worker}
    assert env.bigarray_bound(settings) == expected


# The sizes are those that MXNet 1.9.1 was seen to use.
@pytest.mark.parametrize(("compressed", "expected"), [(False, [503, 502]), (True, [512, 493])])
def test_a_large_array_is_cut_over_all_servers(compressed: bool, expected: list[int]) -> None:
    assert Layout(2, 1000, compressed).slices(0, 1005) == list(enumerate(expected))


def test_a_small_array_lives_on_one_server() -> None:
    assert Layout(2, 1000).slices(0, 999) == [(0, 999)]
    assert Layout(2, 1000).slices(1, 999) == [(1, 999)]
    assert Layout(3, 1000).slices(2, 10) == [(2 * 9973 % 3, 10)]


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 3), (3, 1)])
def test_state_moves_to_another_number_of_servers(before: int, after: int, compressed: bool) -> None:
    sizes = {0: 10, 1: 1005, 2: 2047}
    whole = OptimizerState({key: [np.arange(size, dtype=np.float32), -np.arange(size, dtype=np.float32)]
                            for key, size in sizes.items()}, dict.fromkeys(sizes, 7))
    parts = cut(whole, Layout(before, 1000, compressed), sizes)
    again = cut(join(parts, Layout(before, 1000, compressed), sizes), Layout(after, 1000, compressed), sizes)
    back = join(again, Layout(after, 1000, compressed), sizes)
    assert back.counts == whole.counts
    for key in sizes:
        for expected, found in zip(whole.arrays[key], back.arrays[key], strict=True):
            np.testing.assert_array_equal(found, expected)


def test_a_state_without_arrays_joins() -> None:
    assert join([OptimizerState({0: []}, {0: 3})], Layout(1, 1000), {0: 10}).arrays == {0: []}


def test_rekey_leaves_out_what_is_unknown() -> None:
    state = OptimizerState({"a": [np.ones(1)], "b": []}, {"a": 1, "b": 2})
    assert rekey(state, {"a": 0}).counts == {0: 1}


def test_only_pushes_shrink() -> None:
    assert bytes_a_step([160, 1], 4) == (644, 644)
    assert bytes_a_step([160, 1], 4, compressed=True) == (44, 644)
    pushed, pulled = bytes_a_step([16_000], 4, compressed=True)
    assert 2 * pulled / (pushed + pulled) == pytest.approx(1.88, abs=0.01)
