"""What raymx needs of other packages, out of its own metadata. Pure but for `installed`."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion

from raymx.doctor.facts import canonical

CPU, GPU = "cpu", "cu112"  # raymx's extras for MXNet's builds


@dataclass(frozen=True)
class Needs:
    """Versions ("==1.23.5") by the name of a package, and of Python."""

    python: str
    packages: Mapping[str, str]
    mxnet: Mapping[str, str]  # its builds, one of which is needed
    cuda: Mapping[str, str]  # the libraries of the GPU build

    def exactly(self, package: str) -> str:
        """What pip is to be told: ``numpy==1.23.5``, quoted for a shell where that is needed."""
        text = package + self.packages.get(package, "")
        return f"'{text}'" if "<" in text or ">" in text else text


def installed() -> Needs | None:
    """What the raymx that is installed here needs; None when it is a folder that was never installed."""
    try:
        metadata = importlib.metadata.metadata("raymx")
    except importlib.metadata.PackageNotFoundError:
        return None
    return parse(metadata.get_all("Requires-Dist") or [], "".join(metadata.get_all("Requires-Python") or []))


def parse(requires: Iterable[str], python: str) -> Needs:
    """Of ``Requires-Dist`` and ``Requires-Python`` as they stand in the metadata."""
    found = [Requirement(text) for text in requires]
    extras = {
        extra: [one for one in found if one.marker and one.marker.evaluate({"extra": extra})]
        for extra in ("", CPU, GPU)
    }
    own = {one.name for one in extras[""]}
    only = {
        extra: {one.name: str(one.specifier) for one in extras[extra] if one.name not in own} for extra in (CPU, GPU)
    }
    builds = {name: version for extra in only.values() for name, version in extra.items() if _is_build(name)}
    return Needs(
        python,
        {one.name: str(one.specifier) for one in found if not one.marker},
        builds,
        {name: version for name, version in only[GPU].items() if not _is_build(name)},
    )


def fits(version: str, wanted: str) -> bool:
    """Whether a version is within a range; what cannot be read is not."""
    try:
        return SpecifierSet(wanted).contains(version, prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return False


def version_of(package: str, packages: Mapping[str, str]) -> str | None:
    """The version among those of a node's facts; None when it is not installed."""
    return packages.get(canonical(package))


def builds(packages: Mapping[str, str]) -> dict[str, str]:
    """All builds of MXNet that are installed: any two overwrite each other."""
    return {name: version for name, version in sorted(packages.items()) if _is_build(name)}


def _is_build(name: str) -> bool:
    return name == "mxnet" or name.startswith("mxnet-")
