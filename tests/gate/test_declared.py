"""Whole numbers as a source's own times that look like seconds or milliseconds, in a query with units."""

from __future__ import annotations

import pyarrow as pa
import pytest

import recension as rc
from recension.core.errors import TimeError


def run(*starts: int, windows: int | str = "1h", times: str | None = None) -> int:
    """How many windows there are over rows that start then."""
    source = rc.source("s", {"x": "int64"}, start="at", times=times)
    table = pa.table({"at": pa.array(starts, pa.int64()), "x": [0] * len(starts)})
    return len(rc.run(source.tumbling(windows).agg(n=rc.count()), {"s": table}, close=True).history())


@pytest.mark.parametrize(("least", "unit", "name"), [(10**9, "s", "seconds"), (10**12, "ms", "milliseconds")])
def test_times_of_so_many_digits_are_refused_with_both_readings(least: int, unit: str, name: str) -> None:
    for start in (least, 10 * least - 1):
        says = f"s: column at: {start} is .* if it counts microseconds and .* if it counts {name}, .*{unit!r}"
        with pytest.raises(TimeError, match=says):
            run(start, start)
    assert run(least - 1) == run(10 * least) == 1


def test_what_is_said_is_believed_and_ticks_in_a_query_without_units() -> None:
    start = 1_700_000_000
    assert run(start, start + 3600, times="s") == 2
    assert run(start, start + 3600, times="ticks") == 1
    assert run(start, windows=60) == 1
