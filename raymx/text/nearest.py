"""The names that are spelled most like a wrong one. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: object, names: Iterable[str], count: int = 1) -> list[str]:
    """The at most ``count`` names that are spelled most like ``word``, nearest first; empty when none is near."""
    folded = {name.lower(): name for name in names}
    found = difflib.get_close_matches(str(word).lower(), folded, n=count, cutoff=0.6)
    return [folded[name] for name in found]


def did_you_mean(word: object, names: Iterable[str]) -> str:
    """``"; did you mean NAME?"`` to go on with after a wrong name, or nothing when no name is near."""
    found = nearest(word, names)
    return f"; did you mean {found[0]}?" if found else ""
