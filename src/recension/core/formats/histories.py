"""Reading history files: a stream's meaning, stored as ``_vs``, ``_ve`` and the payload."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike

import pyarrow as pa

from recension.core.errors import FormatError
from recension.core.formats.reader import open_stream
from recension.core.history import History
from recension.core.reconstitution import reconstitute


def read_history(path: str | PathLike[str], *, schema: pa.Schema | None = None) -> History:
    """The history in a file or a directory of files."""
    reader = open_stream(path, schema=schema)
    if reader.has_kinds:
        raise FormatError("a stream, not a history: it has a column _kind", file=str(path))
    return replace(reconstitute(reader, reader.schema), time_type=reader.time_type)
