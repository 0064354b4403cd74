"""Inputs without a file when a query starts: a typing error, or its files were taken and archived."""

from __future__ import annotations

import json

from pyspark.sql import DataFrame

from recension.core.errors import FormatError
from recension.core.formats.columns import BATCH
from recension.core.formats.listing import NO_FILES
from recension.runners.spark.sinks.checkpoint import CheckpointFiles, is_begun, times_of
from recension.runners.spark.stream.inputs import with_times
from recension.runners.spark.stream.topology import EMPTY, OWNER, TIMES


def with_known_times(sdf: DataFrame, files: CheckpointFiles) -> DataFrame:
    """Refuse to begin with an input that has no file. To go on with one, times are as they were."""
    if not (empty := sdf.schema[BATCH].metadata.get(EMPTY)):
        return sdf
    if not is_begun(files):
        raise FormatError(NO_FILES, file=empty[0])
    known, owner = times_of(files), sdf.schema[BATCH].metadata[OWNER]
    if known is None or str(known) == json.loads(owner).get(TIMES):
        return sdf
    if (made := with_times(sdf, known)) is None:
        raise FormatError(
            f"{NO_FILES}, which would show that times are {known}, as in the checkpoint: give the sink what "
            "rc.spark.stream gave, or put a file without rows there",
            file=empty[0],
        )
    return made
