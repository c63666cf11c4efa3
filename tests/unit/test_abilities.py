"""Processors and GPUs that cannot compute what is asked are found before anything starts."""

from __future__ import annotations

from typing import Any

import pytest
from factories import make_experiment

from raymx.cluster.placement import NodeResources
from raymx.errors import PlacementError
from raymx.experiment.mxnet_gpus import has_code_for_type
from raymx.experiment.this_machine import unusable_of
from raymx.sweep.plan import RunPlan, prepare

BFLOAT16: dict[str, Any] = {"precision": {"dtype": "amp_bfloat16"}}


def prepared(*nodes: NodeResources, **given: Any) -> RunPlan:
    return prepare(make_experiment(data={"cpus": 1}, **given), nodes, nodes)


def test_bfloat16_without_avx512_is_refused_before_the_start() -> None:
    with pytest.raises(PlacementError) as error:
        prepared(NodeResources("a", 8, 0, True), NodeResources("b", 8, 0, False), **BFLOAT16)
    assert str(error.value) == (
        "precision.dtype is amp_bfloat16: MXNet computes it with AVX-512 (avx512bw), which the processor of b does not "
        "have; use float32"
    )


@pytest.mark.parametrize("there", [True, None])
def test_bfloat16_with_it_or_where_it_is_not_known_is_not(there: bool | None) -> None:
    assert prepared(NodeResources("a", 8, 0, there), NodeResources("head", 0, 0, False), **BFLOAT16).trials == 1


def test_a_gpu_that_mxnet_has_no_code_for_is_refused() -> None:
    nodes = (NodeResources("a", 8, 1, None, "NVIDIA H100 80GB HBM3 (9.0)"),)
    with pytest.raises(PlacementError) as error:
        prepared(*nodes, resources={"gpus_per_worker": 1})
    assert str(error.value) == (
        "resources.gpus_per_worker is 1: MXNet 1.9.1 has code for NVIDIA GPUs of compute capability 5.0 to 8.9, and "
        "not for NVIDIA H100 80GB HBM3 (9.0) of a; set it to 0, or use others"
    )
    with pytest.raises(PlacementError, match=r"resources\.gpus_per_worker is auto"):
        prepared(*nodes, resources={"gpus_per_worker": "auto"})
    assert prepared(*nodes).trials == 1


def test_a_cell_that_no_node_can_compute_is_skipped_with_its_reason() -> None:
    node = NodeResources("a", 8, 0, False)
    found = prepared(node, sweep={"space": {"precision.dtype": {"grid": ["float32", "amp_bfloat16"]}}})
    assert [bool(cell.reason) for cell in found.cells] == [False, True]
    assert "AVX-512" in found.cells[1].reason


def test_what_nvidia_smi_lists() -> None:
    assert unusable_of("NVIDIA A100-SXM4-40GB, 8.0\nNVIDIA L4, 8.9\n") == ""
    assert unusable_of("NVIDIA H200, 9.0\nNVIDIA H200, 9.0\nTesla K80, 3.7\n") == "NVIDIA H200 (9.0), Tesla K80 (3.7)"
    assert unusable_of("No devices were found\n") == unusable_of("Name, [N/A]\n") == ""


@pytest.mark.parametrize(
    ("name", "usable"), [("A100", True), ("A10G", True), ("H100", False), ("AMD-Instinct-MI210", False), ("new", True)]
)
def test_accelerator_types_of_ray(name: str, usable: bool) -> None:
    assert has_code_for_type(name) is usable


def test_the_types_of_a_node() -> None:
    nodes = pytest.importorskip("raymx.cluster.nodes")
    assert nodes.unusable_gpus({"CPU": 8.0, "GPU": 1.0, "accelerator_type:H100": 1.0}) == "H100"
    assert nodes.unusable_gpus({"CPU": 8.0, "accelerator_type:A100": 1.0}) == ""
