"""How mxnet is imported in the processes of roles."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT = """
import sys
from raymx.kvstore.native import import_mxnet
import_mxnet()
assert not {"sklearn", "scipy.stats", "scipy.sparse", "setuptools", "distutils"} & set(sys.modules)
import mxnet
sparse = mxnet.nd.array([[0, 1], [2, 0]]).tostype("csr").asscipy()
assert sparse.sum() == 3
assert mxnet.nd.sparse.array(sparse).asnumpy().sum() == 3
assert mxnet.contrib.quantization.stats.entropy([1, 1]) > 0
import sklearn.base, setuptools, distutils
"""
ABSENT = """
import sys
sys.modules.update({"scipy": None, "sklearn": None})
from raymx.kvstore.native import import_mxnet
import_mxnet()
import mxnet
assert mxnet.ndarray.sparse.spsp is None
"""


def test_what_mxnet_rarely_needs_is_imported_when_it_is_used() -> None:
    pytest.importorskip("sklearn")
    subprocess.run([sys.executable, "-c", WITHOUT], check=True, timeout=120)


def test_where_it_is_not_installed() -> None:
    subprocess.run([sys.executable, "-c", ABSENT], check=True, timeout=120)
