"""Packaged templates (Jinja): HTML whose values are escaped, with styles and scripts from files beside it."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def render(package: str, name: str, **values: Any) -> Markup:
    """The template ``name`` of ``package``'s folder templates. Values are escaped, but for those that are Markup."""
    return Markup(_environment(package).get_template(name).render(values))


@cache
def _environment(package: str) -> Environment:
    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
