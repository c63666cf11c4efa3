"""The notebooks of the project in a real kernel, with a cluster that the first cell starts."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from conftest import EXPERIMENTS
from here import Here

sys.path.insert(0, str(EXPERIMENTS / "notebooks"))
import execute

KEPT_BYTES = 500_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The notebooks as they are, beside a smaller experiment: no standbys, and a sixth of the images."""
    copy = tmp_path_factory.mktemp("experiments") / "copy"
    shutil.copytree(EXPERIMENTS, copy)
    text = (EXPERIMENTS / "fashion_mnist.yaml").read_text()
    text = text.replace("resources: {", "resources: {standby: false, ").replace(
        "fashion_mnist_train", "fashion_mnist_val"
    )
    (copy / "fashion_mnist.yaml").write_text(text.replace("global_batch_size: 128", "global_batch_size: 32"))
    return copy / "notebooks"


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.long
@pytest.mark.parametrize("name", execute.NOTEBOOKS)
def test_every_cell_runs(here: Here, folder: Path, name: str) -> None:
    here.environment["HOME"] = str(here.storage)  # the notebooks leave their results in the default place
    outputs = {
        cell.source: cell.outputs
        for cell in execute.execute(name, here.environment, folder).cells
        if cell.cell_type == "code"
    }
    shown = [data for cell in outputs.values() for data in map(_data, cell)]
    cards = [data["text/html"] for data in shown if "fashion_mnist_" in data.get("text/html", "")]
    assert cards
    assert all("finished" in card for card in cards), "the card was not brought up to date"
    assert not any(output.get("name") == "stderr" for cell in outputs.values() for output in cell)
    if name == "sweep.ipynb":
        assert sum("image/png" in data for data in shown) >= 4
        assert "(8, " in _text(outputs, "summary[")
    else:
        assert float(_text(outputs, "best.predict")) > 0.5
        assert "Conv2D" in _text(outputs, "best.load_net()")


def test_what_is_kept_of_them() -> None:
    """Outputs that a reader can see without running anything, small, and without anything of one machine."""
    for name in execute.NOTEBOOKS:
        path = execute.FOLDER / name
        code = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
        assert all(cell.outputs for cell in code if not cell.source.startswith("from mxnet")), name
        assert path.stat().st_size < KEPT_BYTES
        assert "/root" not in path.read_text()
        assert not any(output.output_type == "error" for cell in code for output in cell.outputs)
        assert {output.get("name") for cell in code for output in cell.outputs} <= {None, "stdout"}


def test_tidy() -> None:
    given = {"text": [f"{sys.prefix}/bin/ray stop, {Path.home()}/ray_results"], "execution": {"a": os.getpid()}}
    assert execute.tidy(given) == {"text": ["~/env/bin/ray stop, ~/ray_results"]}


def _data(output: Any) -> Any:
    return output.get("data", {})


def _text(outputs: dict[str, list[Any]], part: str) -> str:
    """What the cell with this text in it gave."""
    found = next(cell for source, cell in outputs.items() if part in source)
    return str(_data(found[-1])["text/plain"])
