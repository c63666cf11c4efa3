"""YAML text to plain data and back, with the surprises of YAML 1.1 that bite in experiment files taken out.

``1e-3`` is a number (PyYAML reads text), a date and ``2:8`` stay text, and a key that is given twice is an error.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from raymx.errors import ExperimentError

_FLOAT = "tag:yaml.org,2002:float"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_EXPONENT = re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)[eE][-+]?[0-9]+$")


class _Loader(yaml.SafeLoader):
    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        first_line: dict[str, int] = {}
        for key, _ in node.value:
            # A key that is itself a list or mapping has no text here; the constructor refuses it.
            if not isinstance(key.value, str):
                continue
            if key.value in first_line:
                problem = f"the key {key.value} is given twice in one section, first on line {first_line[key.value]}"
                raise yaml.composer.ComposerError(None, None, problem, key.start_mark)
            first_line[key.value] = key.start_mark.line + 1
        return node


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _decimal(pattern: re.Pattern[str]) -> re.Pattern[str]:
    """The pattern of a number without base 60, in which 2:8 is 128."""
    return re.compile(pattern.pattern.replace("(?::[0-5]?[0-9])+", "(?!)"), pattern.flags)


for _class in (_Loader, _Dumper):  # the dumper too: it must quote text that the loader would read as a number
    _class.add_implicit_resolver(_FLOAT, _EXPONENT, list("-+.0123456789"))
    _class.yaml_implicit_resolvers = {
        first: [(tag, _decimal(pattern)) for tag, pattern in resolvers if tag != _TIMESTAMP]
        for first, resolvers in _class.yaml_implicit_resolvers.items()
    }


def parse(text: str, source: str) -> Any:
    """Plain data from YAML ``text``; ``source`` (a path, a flag) opens the message of an ExperimentError."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        raise ExperimentError(f"{source}{_line(error)}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ExperimentError(f"{source}: not valid YAML: {' '.join(str(error).split())}") from None


def _line(error: yaml.MarkedYAMLError) -> str:
    where = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
    outer = f" {error.context}" if error.context and error.problem else ""
    begun = f" that began on line {error.context_mark.line + 1}" if outer and error.context_mark else ""
    return f"{where}: not valid YAML: {error.problem or error.context}{outer}{begun}"


def dump(data: object) -> str:
    """YAML text of plain data, keys in their own order, short lists and mappings on one line."""
    text: str = yaml.dump(data, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=110, allow_unicode=True)
    return text
