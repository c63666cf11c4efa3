"""The KVStore's pure parts: environments, how slices lie on servers, what travels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raymx.kvstore import env
from raymx.kvstore.state import Layout, OptimizerState, bytes_a_step, cut, join, rekey

TCP = env.Topology(num_workers=2, num_servers=1, root_host="10.0.0.1", root_port=9000)
UNIX = env.Topology(num_workers=2, num_servers=1, root_host="10.0.0.1", root_port=900_000_000, unix_sockets=True)


def test_a_role_over_tcp_binds_its_own_node() -> None:
    found = env.role_env("worker", TCP, "10.0.0.2")
    assert found == {
        "DMLC_ROLE": "worker",
        "DMLC_PS_ROOT_URI": "10.0.0.1",
        "DMLC_PS_ROOT_PORT": "9000",
        "DMLC_NUM_WORKER": "2",
        "DMLC_NUM_SERVER": "1",
        "DMLC_NODE_HOST": "10.0.0.2",
        "MXNET_KVSTORE_BIGARRAY_BOUND": "1000000",
    }


def test_an_interface_takes_the_place_of_the_address() -> None:
    for options in ({"interface": "eth1"}, {"settings": {"DMLC_INTERFACE": "eth1"}}):
        found = env.role_env("server", TCP, "10.0.0.2", **options)  # type: ignore[arg-type]
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


@st.composite
def states(draw: st.DrawFn) -> tuple[OptimizerState, dict[int, int]]:
    """A state, with masters of some keys, and the elements of each key; every element is another number."""
    sizes = dict(enumerate(draw(st.lists(st.integers(1, 3000), min_size=1, max_size=6))))
    state = OptimizerState(
        counts=draw(st.fixed_dictionaries(dict.fromkeys(sizes, st.integers(0, 10**6)))),
        scalars=draw(st.dictionaries(st.sampled_from(["learning_rate", "m"]), st.floats(0, 1))),
    )
    first = 0.0
    for key, size in sizes.items():
        state.arrays[key] = [first + np.arange(size) + size * i for i in range(draw(st.integers(0, 2)))]
        first += size * 3
        if draw(st.booleans()):
            state.masters[key] = first - np.arange(size, dtype=np.float64)
    return state, sizes


def assert_same(found: OptimizerState, expected: OptimizerState) -> None:
    assert (found.counts, found.scalars) == (expected.counts, expected.scalars)
    np.testing.assert_equal(found.arrays, expected.arrays)
    np.testing.assert_equal(found.masters, expected.masters)


@given(states(), st.integers(1, 3), st.integers(1, 3), st.booleans(), st.integers(200, 2000))
def test_state_moves_to_another_number_of_servers(
    case: tuple[OptimizerState, dict[int, int]], before: int, after: int, compressed: bool, bound: int
) -> None:
    whole, sizes = case
    for servers in (before, after, before):
        layout = Layout(servers, bound, compressed)
        parts = cut(whole, layout, sizes)
        assert [part.scalars for part in parts] == [whole.scalars] * servers
        for key, size in sizes.items():  # a master lies where its slices of the state do
            for server, length in layout.slices(key, size):
                lengths = {len(array) for array in parts[server].arrays[key]}
                assert lengths <= {length}
                assert (key in parts[server].masters) is (key in whole.masters)
                assert len(parts[server].masters.get(key, range(length))) == length
        assert_same(join(parts, layout, sizes), whole)


@pytest.mark.parametrize("field", ["arrays", "masters"])
def test_slices_that_do_not_make_up_a_weight_are_refused(field: str) -> None:
    layout, sizes = Layout(2, 1000), {0: 1005}
    for left_out in (False, True):
        parts = cut(OptimizerState({0: [np.ones(1005)]}, {0: 1}, {0: np.ones(1005)}), layout, sizes)
        held: dict[int, Any] = getattr(parts[1], field)
        if left_out:
            del held[0]
        else:
            held[0] = [np.ones(501)] if field == "arrays" else np.ones(501)
        with pytest.raises(ValueError, match=r"key 0 has \d+ elements|zip"):
            join(parts, layout, sizes)


def test_a_state_without_arrays_joins() -> None:
    assert join([OptimizerState({0: []}, {0: 3})], Layout(1, 1000), {0: 10}).arrays == {0: []}


def test_rekey_leaves_out_what_is_unknown() -> None:
    state = OptimizerState({"a": [np.ones(1)], "b": []}, {"a": 1, "b": 2}, {"a": np.ones(2), "b": np.ones(3)}, {"m": 3})
    assert_same(rekey(state, {"a": 0}), OptimizerState({0: [np.ones(1)]}, {0: 1}, {0: np.ones(2)}, {"m": 3}))


def test_only_pushes_shrink() -> None:
    assert bytes_a_step([160, 1], 4) == (644, 644)
    assert bytes_a_step([160, 1], 4, compressed=True) == (44, 644)
    pushed, pulled = bytes_a_step([16_000], 4, compressed=True)
    assert 2 * pulled / (pushed + pulled) == pytest.approx(1.88, abs=0.01)
