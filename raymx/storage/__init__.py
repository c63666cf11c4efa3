"""Where files are: local paths and URIs (``s3://``, ``gs://``, ``hdfs://``, ``file://``), found, read and written.

    for path in expand(["data/", "s3://bucket/train-*.rec"]):
        with open_reader(path) as reader:
            reader.read_at(0, 8)

This is the only room that opens files through ``pyarrow.fs``, which is imported when the first one is used. A space may
stand in a URI as it is; what follows ``?`` is options of the file system (``s3://bucket/a.rec?region=eu-west-1``), so
of the wildcards only ``*`` and ``[...]`` can be used there.

Functions that take a path or a URI raise a DataError of one line that names it, whatever fails. Who has a file system
already, as Tune gives one, or words of their own for what fails, uses a `Location`: it raises what pyarrow raises.
"""

from raymx.storage.finding import exists, expand, local_matches, why_no_match
from raymx.storage.kinds import HEAD_BYTES, NO_RECORDS, RECORDS_BEGIN, kind_of, placeholder_of
from raymx.storage.locations import FILE_ERRORS, Location, location, reason
from raymx.storage.paths import child, errors_name, is_uri, with_suffix
from raymx.storage.reading import (
    URI_THREADS,
    Reader,
    content,
    folders_in,
    map_ahead,
    names_in,
    open_reader,
    text,
)
from raymx.storage.writing import open_output, write_files

__all__ = [
    "FILE_ERRORS",
    "HEAD_BYTES",
    "NO_RECORDS",
    "RECORDS_BEGIN",
    "URI_THREADS",
    "Location",
    "Reader",
    "child",
    "content",
    "errors_name",
    "exists",
    "expand",
    "folders_in",
    "is_uri",
    "kind_of",
    "local_matches",
    "location",
    "map_ahead",
    "names_in",
    "open_output",
    "open_reader",
    "placeholder_of",
    "reason",
    "text",
    "why_no_match",
    "with_suffix",
    "write_files",
]
