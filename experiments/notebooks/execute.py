"""Run the notebooks of this folder, on a cluster of this machine, and with --write keep their outputs in them.

pip install nbclient ipykernel && python experiments/notebooks/execute.py --write
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parent
NOTEBOOKS = ("quickstart.ipynb", "sweep.ipynb")
CELL_TIMEOUT_S = 300


def execute(name: str, environment: Mapping[str, str] | None = None, folder: Path = FOLDER) -> Any:
    """The notebook of ``folder`` with its outputs, run there in a kernel with these environment variables. Raises
    CellExecutionError.
    """
    notebook = nbformat.read(folder / name, as_version=4)
    client = NotebookClient(
        notebook, timeout=CELL_TIMEOUT_S, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    return client.execute(env=dict(os.environ if environment is None else environment))


def tidy(value: Any) -> Any:
    """Outputs without what is of this machine alone: its paths, times of execution."""
    if isinstance(value, str):
        for path, word in ((sys.prefix, "~/env"), (str(Path.home()), "~")):
            value = value.replace(path, word)
        return value
    if isinstance(value, list):
        return [tidy(one) for one in value]
    if isinstance(value, dict):
        return {key: tidy(one) for key, one in value.items() if key != "execution"}
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="keep the outputs in the notebooks")
    write = parser.parse_args().write
    for name in NOTEBOOKS:
        notebook = execute(name)
        if write:
            nbformat.write(nbformat.from_dict(tidy(notebook)), FOLDER / name)
        print(f"{name}: {sum(cell.cell_type == 'code' for cell in notebook.cells)} cells")


if __name__ == "__main__":
    main()
