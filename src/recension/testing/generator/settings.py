"""What a test stream is like: the knobs of the LMerge paper, and what each class R0..R4 allows.

Source      LMerge technical report, §III-C and §VI-B.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

import pyarrow as pa

from recension.core.errors import RecensionError
from recension.core.ticks import DurationLike, duration

Case: TypeAlias = Literal["R0", "R1", "R2", "R3", "R4"]
CASES: Final[tuple[Case, ...]] = get_args(Case)
SCHEMA: Final = pa.schema([("value", pa.int64()), ("text", pa.string())])

_ACTIVE = 10_000
_REACH_IN_GAPS = 50
_FAR: Final = 2**62
# What a case has when nothing is said, and all that it can have: knobs that are absent must stay 0.
_BY_CASE: Final[dict[Case, dict[str, float]]] = {
    "R0": {},
    "R1": {"ties": 0.2},
    "R2": {"ties": 0.2},
    "R3": {"disorder": 0.2, "ties": 0.0, "revisions": 0.0},
    "R4": {"disorder": 0.2, "ties": 0.0, "revisions": 0.0, "duplicates": 0.05},
}
_FRACTIONS: Final = ("stable_freq", "disorder", "ties", "duplicates", "revisions", "duration_spread")


class SettingsError(RecensionError, ValueError):
    """Knobs that contradict each other or lie out of range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """The knobs; `of` fills in what suits a case.

    case             the class the stream satisfies (see `recension.core.classes`)
    size             elements, CTIs included; of a revised stream, the elements it has without revisions
    stable_freq      probability that an element is a CTI; two CTIs never follow each other
    event_duration   lifetime of an event, in ticks
    duration_spread  lifetimes vary evenly by this fraction either way
    max_gap          gap between consecutive elements is even in [0, max_gap] ticks
    disorder         fraction of inserts that start before an event already sent, as far as CTIs allow
    reach            how far back, in ticks, a disordered insert may lie
    ties             probability that an element comes at the same time as the one before
    duplicates       fraction of inserts that repeat the start and payload of an earlier one
    revisions        fraction of events first sent with a wrong end and corrected later
    string_size      characters of the payload's text
    seed             the same seed gives the same stream
    start            the time before the first element
    close            end with a CTI at the end of time
    """

    case: Case
    size: int
    stable_freq: float
    event_duration: int
    duration_spread: float
    max_gap: int
    disorder: float
    reach: int
    ties: float
    duplicates: float
    revisions: float
    string_size: int
    seed: int
    start: int
    close: bool

    @staticmethod
    def of(
        case: Case = "R3",
        *,
        size: int = 200_000,
        stable_freq: float = 0.01,
        event_duration: DurationLike | None = None,
        duration_spread: float = 0.0,
        max_gap: DurationLike = "20s",
        disorder: float | None = None,
        reach: DurationLike | None = None,
        ties: float | None = None,
        duplicates: float | None = None,
        revisions: float | None = None,
        string_size: int = 16,
        seed: int = 0,
        start: int = 0,
        close: bool = True,
    ) -> StreamSettings:
        """The paper's defaults where they suit the case; by default some 10,000 events live at a time."""
        if case not in CASES:
            raise SettingsError(f"case is one of {', '.join(CASES)}, not {case!r}")
        gap = duration(max_gap)
        usual = {"disorder": 0.0, "ties": 0.0, "duplicates": 0.0, "revisions": 0.0} | _BY_CASE[case]
        asked = {"disorder": disorder, "ties": ties, "duplicates": duplicates, "revisions": revisions}
        chosen: dict[str, Any] = usual | {name: x for name, x in asked.items() if x is not None}
        return StreamSettings(
            case=case,
            size=size,
            stable_freq=stable_freq,
            event_duration=max(1, _ACTIVE * gap // 2) if event_duration is None else duration(event_duration),
            duration_spread=duration_spread,
            max_gap=gap,
            reach=max(1, _REACH_IN_GAPS * gap) if reach is None else duration(reach),
            string_size=string_size,
            seed=seed,
            start=start,
            close=close,
            **chosen,
        )

    def __post_init__(self) -> None:
        for name in _FRACTIONS:
            if not 0 <= getattr(self, name) <= 1:
                raise SettingsError(f"{name} is a fraction between 0 and 1, not {getattr(self, name)}")
        for name, least in {"size": 1, "event_duration": 1, "reach": 1, "string_size": 0, "seed": 0}.items():
            if getattr(self, name) < least:
                raise SettingsError(f"{name} must be at least {least}, not {getattr(self, name)}")
        self._check_case()
        self._check_range()

    def _check_case(self) -> None:
        for name in ("disorder", "ties", "duplicates", "revisions"):
            if getattr(self, name) and name not in _BY_CASE[self.case]:
                raise SettingsError(f"case {self.case} has no {name}")
        needed = self.size * (2 if self.revisions else 1)
        if self.case in ("R2", "R3") and needed > 16**self.string_size:
            raise SettingsError(
                f"case {self.case} keeps (vs, payload) unique: {self.size} elements need longer strings"
                f" than {self.string_size} characters"
            )

    def _check_range(self) -> None:
        least = 1 if self.case == "R0" else 0
        if self.max_gap < least:
            raise SettingsError(f"case {self.case} needs a max_gap of at least {least} ticks")
        span = self.size * (self.max_gap + 1) + 8 * (self.event_duration + self.reach)
        if abs(self.start) + span > _FAR:
            raise SettingsError("the stream would run past the end of time: fewer elements or smaller gaps")
