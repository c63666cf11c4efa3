"""Command lines: their flags and how they end."""

from __future__ import annotations

import os
import sys

from raymx.experiment import hidden

# `python -m` looks for modules in the current folder first. A queue.py there ends in a traceback from inside of another
# module, long before a command can look at its experiment: so this is the first thing that a command does.
if sys.path[:1] in ([""], [os.getcwd()]) and (_hiding := hidden.of_python(os.getcwd())):
    sys.exit(f"raymx: error: {_hiding[0]}")
