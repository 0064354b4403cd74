"""The step *declared*: rows are what the owner of the source said that they are."""

from __future__ import annotations

from typing import Final

from recension.core.batch import RETRACT
from recension.core.errors import TimeError
from recension.core.rows import Rows
from recension.core.ticks import TICKS_PER, TimeUnit
from recension.core.time_kind import NAIVE, TICKS, describe_time
from recension.gate.step import Arrival, Step, Verdict
from recension.plan.source import Source

_EPOCHS: Final[tuple[tuple[TimeUnit, str, int], ...]] = (
    ("s", "seconds", 10**9),
    ("ms", "milliseconds", 10**12),
)


class Declared(Step):
    """Refuses what contradicts the declaration of a source, whatever the policy. It remembers nothing."""

    def __init__(self, source: Source, *, in_units: bool = False) -> None:
        """``in_units``: the query measures time in units; then its times must be what they look like."""
        super().__init__()
        self._source = source
        self.takes_retractions = not (source.declared.is_insert_only or source.are_rows)
        # Only what the user's own column of starts holds can be of another unit in silence.
        self._must_be_ticks = in_units and source.start is not None and source.times is None

    def judge(self, rows: Rows, arrival: Arrival) -> Verdict:
        """The same rows."""
        if not self.takes_retractions and rows.batch.has_retractions():
            kind = "keyed: it takes rows and ctis" if self._source.are_rows else "declared insert-only"
            at = int((rows.batch.kind == RETRACT).argmax())
            raise rows.origin.error(f"a retraction, but the source is {kind}", at)
        if self._must_be_ticks:
            self._refuse_counts(rows)
        return rows, None

    def _refuse_counts(self, rows: Rows) -> None:
        """Refuse ticks that look like seconds or milliseconds since 1970, if the query counts on ticks."""
        has_own_times = rows.layout is not None and rows.layout.times.start is not None
        if not (has_own_times and rows.kind == TICKS and len(rows.batch)):
            return
        starts = rows.batch.vs[rows.batch.is_data()]
        for unit, units, least in _EPOCHS:
            if len(starts) and least <= int(starts.min()) and int(starts.max()) < 10 * least:
                first, name = int(starts[0]), self._source.start
                readings = [
                    f"{describe_time(first * factor, NAIVE)} if it counts {what}"
                    for what, factor in (("microseconds", 1), (units, TICKS_PER[unit]))
                ]
                raise TimeError(
                    f"{self._source.name}: column {name}: {first} is {' and '.join(readings)}, and the query "
                    f"measures time in units: say times={unit!r} or times='us', or 'ticks' if it is neither"
                )
