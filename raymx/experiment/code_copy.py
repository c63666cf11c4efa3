"""The code of a run as it was when the run began: a copy that its processes import, whatever is edited meanwhile.

    with copied("/home/me/experiment") as folder:       # its modules; "" where it is too large to copy
        content = zipped(folder)                        # code.zip in the run's folder
        changed(before, folder)                         # ["nets.py", "more.py (new)"], against an earlier one

Only modules are copied. All else is a link to the file itself, so that a module finds its neighbours.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from raymx.experiment.source_files import is_left_out

CODE = "code.zip"  # in a run's folder
MOST_FILES, MOST_IN_FOLDER = 10_000, 1_000
_PYTHON = ".py"


@contextlib.contextmanager
def copied(directory: str) -> Iterator[str]:
    """A folder with the modules of ``directory`` as they are now, for as long as the context lasts; "" where it has
    none, or more than `MOST_FILES` files, or they cannot be copied."""
    with tempfile.TemporaryDirectory(prefix="raymx_code_", ignore_cleanup_errors=True) as folder:
        _there.add(folder)
        try:
            copies = _fill(Path(directory), Path(folder), _Budget())
        except (OSError, _TooMany):  # the modules themselves are imported
            copies = 0
        try:
            yield folder if copies else ""
        finally:
            _there.discard(folder)


_there: set[str] = set()  # copies of contexts that last


def remove_all() -> None:
    """Remove the copies of this process, which ends without leaving the contexts that they are of."""
    for folder in list(_there):
        shutil.rmtree(folder, ignore_errors=True)


class _TooMany(Exception):
    """There are more files than may be looked at."""


class _Budget:
    """How many files may still be looked at."""

    def __init__(self) -> None:
        self._left = MOST_FILES

    def take(self, number: int) -> None:
        """Raises _TooMany."""
        self._left -= number
        if self._left < 0:
            raise _TooMany


def _fill(source: Path, there: Path, budget: _Budget) -> int:
    """Copy the modules of ``source``, and link all else in it, ignored files too; how many modules there are."""
    entries, copies = list(source.iterdir()), 0
    budget.take(len(entries))
    for entry in entries:
        link = there / entry.name
        if entry.name == "__pycache__":
            continue
        if entry.suffix == _PYTHON and entry.is_file():
            shutil.copyfile(entry, link)
            copies += 1
        elif entry.is_dir() and not entry.is_symlink() and not is_left_out(entry) and not _is_large(entry):
            link.mkdir()
            copies += _fill(entry, link, budget)
        else:
            link.symlink_to(os.path.abspath(entry))
    return copies


def _is_large(folder: Path) -> bool:
    """Whether a folder holds so much that it is data, and no package."""
    return sum(1 for _ in itertools.islice(os.scandir(folder), MOST_IN_FOLDER + 1)) > MOST_IN_FOLDER


def zipped(folder: str) -> bytes:
    """The modules in ``folder``, a copy, as a zip file."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, code in _modules(folder).items():
            archive.writestr(zipfile.ZipInfo(name), code)
    return content.getvalue()


def version(archive: bytes) -> str:
    """A short text that is equal for equal modules."""
    read = hashlib.sha256()
    for name, code in sorted(_unzipped(archive).items()):
        read.update(f"{name} {len(code)} ".encode() + code)
    return read.hexdigest()[:8]


def changed(archive: bytes, folder: str) -> list[str]:
    """The modules in ``folder``, a copy, that differ from those in a zip file; [] for one that is damaged."""
    now, before = _modules(folder), _unzipped(archive)
    if not before:
        return []
    found = [name for name in now if name in before and now[name] != before[name]]
    found += [f"{name} (new)" for name in now if name not in before]
    return sorted(found + [f"{name} (gone)" for name in before if name not in now])


def _modules(folder: str) -> dict[str, bytes]:
    """What was copied; what is only linked is none."""
    files = (Path(place, name) for place, _, names in os.walk(folder) for name in names if name.endswith(_PYTHON))
    found = {str(file.relative_to(folder)): file.read_bytes() for file in files if not file.is_symlink()}
    return dict(sorted(found.items()))


def _unzipped(archive: bytes) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            return {name: opened.read(name) for name in opened.namelist()}
    except (zipfile.BadZipFile, OSError, ValueError):
        return {}
