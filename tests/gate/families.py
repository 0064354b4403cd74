"""Kinds of cases, by what their source declares: each draws its rows, and faults among them.

Times are small numbers, so that ties, late rows, repeats and touching lifetimes are frequent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from tests.gate.cases import PAYLOAD, STREAM, Case, Row, row_of

import recension as rc
from recension.core.events import Cti, Element, Event, Insert, Retract
from recension.core.ticks import FOREVER
from recension.testing.physical import HORIZON, Dice, Shape, build_stream

POLICIES: Final = ("raise", "drop", "adjust")


def _payload(dice: Dice) -> dict[str, Any]:
    return {"k": dice.pick("ab"), "v": dice.pick([0, 1, None])}


def _stream(dice: Dice, *, insert_only: bool = False) -> list[Element]:
    """A valid stream with perhaps something in it that may not be there."""
    rows = [
        Event(_payload(dice), vs := dice.pick(range(HORIZON - 1)), dice.pick([*range(vs + 1, 9), FOREVER]))
        for _ in range(dice.pick([1, 2, 3, 4]))
    ]
    ghosts = [event.payload for event in rows]
    stream = build_stream(rows, dice, Shape(insert_only=insert_only, closed=dice.pick([False, True])), ghosts)
    for _ in range(dice.pick([0, 1, 1, 2, 3])):
        at = dice.pick(range(len(stream)))
        here, after = stream[at : at + 1], stream[at + 1 : at + 2]
        variants = [after, [*here, *here, *after], [*after, *here], [*here, _wrong(dice, here[0]), *after]]
        stream[at : at + 2] = dice.pick(variants)
        if not stream:
            return [Cti(1)]
    return stream


def _wrong(dice: Dice, near: Element) -> Element:
    """What may hardly ever follow an element."""
    if not isinstance(near, Insert | Retract):
        return Cti(dice.pick(range(HORIZON)))
    payload, vs, ve = near.payload, near.vs, near.new_ve if isinstance(near, Retract) else near.ve
    wrong: list[Element] = [
        Insert(payload, vs, vs),
        Insert(payload, 0, ve),
        Retract(payload, vs, ve, ve),
        Retract(payload, vs, ve, vs - 1),
        Retract(payload, vs, vs if ve == FOREVER else max(vs, ve - 1), vs),
        Retract(payload, vs, ve, vs + 1),
    ]
    return dice.pick(wrong)


def _spoil(dice: Dice, rows: list[Row]) -> list[Row]:
    """Now and then a row of which no element can be made."""
    rows = [dict(row) for row in rows]
    for _ in range(dice.pick([0, 0, 0, 1, 2])):
        row = dice.pick(rows)
        row |= dice.pick([{"_kind": "upsert"}, {"_kind": None}, {"_kind": "insert", "_vs": None}])
    return rows


def plain_stream(dice: Dice, policy: str) -> Case:
    """Inserts, retractions and CTIs."""
    stream = [row_of(element) for element in _stream(dice)]
    return Case({"on_violation": policy}, {**STREAM, **PAYLOAD}, _spoil(dice, stream))


def finalized(dice: Dice, policy: str) -> Case:
    """Below a step that copes with retractions of what is not there."""
    return replace(plain_stream(dice, policy), above=".finalize()")


def insert_only(dice: Dice, policy: str) -> Case:
    """Declared free of retractions, which may come all the same."""
    stream = _stream(dice, insert_only=dice.pick([True, True, False]))
    known = rc.Properties(is_insert_only=True)
    rows = _spoil(dice, [row_of(element) for element in stream])
    return Case({"on_violation": policy, "properties": known}, {**STREAM, **PAYLOAD}, rows)


def open_close(dice: Dice, policy: str) -> Case:
    """What says when something opens and when it closes."""
    rows, t = list[Row](), 0
    for _ in range(dice.pick([1, 3, 5, 7, 9])):
        t += dice.pick([0, 1, 2])
        match dice.pick(["open", "open", "close", "close", "cti", "insert", "open late", "ended open"]):
            case "open":
                rows.append({"_kind": "open", "_vs": t, **_payload(dice)})
            case "open late":
                rows.append({"_kind": "open", "_vs": t - 3, **_payload(dice)})
            case "ended open":
                rows.append(
                    {"_kind": "open", "_vs": t, "_ve": dice.pick([None, None, t + 1]), **_payload(dice)}
                )
            case "close":
                rows.append({"_kind": "close", "_ve": t + dice.pick([0, 0, 1, -2]), **_payload(dice)})
            case "cti":
                rows.append({"_kind": "cti", "_vs": t})
            case "insert":
                rows.append({"_kind": "insert", "_vs": t, "_ve": t + dice.pick([1, 2, 0]), **_payload(dice)})
    return Case({"on_violation": policy}, {**STREAM, **PAYLOAD}, rows)


def partitioned(dice: Dice, policy: str) -> Case:
    """Two streams in one, each in an order of its own, which a row may break."""
    streams = {name: [row_of(element) for element in _stream(dice)] for name in ("p", "q")}
    rows, left = list[Row](), {name: iter(enumerate(stream)) for name, stream in streams.items()}
    for name in dice.shuffle([name for name, stream in streams.items() for _ in stream]):
        order, row = next(left[name])
        rows.append({**row, "part": name, "off": order})
    is_disordered = dice.pick([False, False, True])
    # Of a CTI and a row with one order, which of them counts on Spark depends on what it sends first.
    changes = [row for row in rows if row["_kind"] != "cti" or policy == "raise"]
    if is_disordered and changes:
        row = dice.pick(changes)
        row["off"] = dice.pick([other["off"] for other in changes if other["part"] == row["part"]])
    options = {"on_violation": policy, "partition": "part", "order": "off", "partitions": 2}
    columns = {**STREAM, **PAYLOAD, "part": "string", "off": "int64"}
    return Case(options, columns, _spoil(dice, rows), may_be_cut=not is_disordered)


def paced(dice: Dice, policy: str) -> Case:
    """Two streams in one that send no CTIs: each has those that its own events make."""
    rows = list[Row]()
    for number in range(dice.pick([1, 4, 8])):
        vs = number + dice.pick([0, 0, 1, -1, -4])
        lifetime = {"_vs": vs, "_ve": dice.pick([vs + 1, vs + 3, None, vs])}
        rows.append({"_kind": "insert", **lifetime, **_payload(dice), "part": dice.pick("pq"), "off": number})
    options = {"on_violation": policy, "partition": "part", "order": "off", "partitions": 2}
    columns = {**STREAM, **PAYLOAD, "part": "string", "off": "int64"}
    return Case(options, columns, _spoil(dice, rows), above=".advance_time(2)")


def numbered(dice: Dice, policy: str) -> Case:
    """Rows that their producer numbers, and perhaps sends again."""
    rows: list[Row] = [{**row_of(element), "n": n} for n, element in enumerate(_stream(dice))]
    for _ in range(dice.pick([0, 1, 2])):
        at = dice.pick(range(len(rows)))
        rows[at + 1 : at + 1] = rows[max(0, at - dice.pick([0, 1, 2])) : at + 1]
    return Case(
        {"on_violation": policy, "sequence": "n"}, {**STREAM, **PAYLOAD, "n": "int64"}, _spoil(dice, rows)
    )


def plain_table(dice: Dice, policy: str) -> Case:
    """Rows with times in columns of their own, perhaps without a start, or empty."""
    has_end = dice.pick([False, True])
    rows = [
        {"ts": dice.pick([0, 1, 5, 5, 3, None]), "until": dice.pick([6, 7, None, 3, 9]), **_payload(dice)}
        for _ in range(dice.pick([1, 3, 5]))
    ]
    options = {"on_violation": policy, "start": "ts"} | ({"end": "until"} if has_end else {})
    return Case(options, {"ts": "int64", "until": "int64", **PAYLOAD}, rows)


def history(dice: Dice, policy: str) -> Case:
    """Lifetimes, and no kinds."""
    rows = [
        {"_vs": dice.pick([0, 1, 5, 5, 3, 4, None]), "_ve": dice.pick([6, 7, None, 3, 9]), **_payload(dice)}
        for _ in range(dice.pick([1, 3, 5]))
    ]
    return Case({"on_violation": policy}, {"_vs": "int64", "_ve": "int64", **PAYLOAD}, rows)


def keyed(dice: Dice, policy: str) -> Case:
    """Rows that restate a record, in the order of their versions; among them perhaps a retraction."""
    rows = list[Row]()
    for version in dice.shuffle(range(dice.pick([1, 3, 5]))):
        vs = dice.pick(range(6))
        kind = dice.pick(["insert"] * 9 + ["retract"])
        row = {"_kind": kind, "_vs": vs, "_ve": dice.pick([vs + 1, vs + 3, None, vs]), **_payload(dice)}
        rows += [row | {"_new_ve": vs, "version": version}]
        # Whether a row is late is for the step that restates: only it knows whether the row changes anything.
        cti = 0 if policy == "raise" else dice.pick(range(8))
        rows += dice.pick([[], [], [{"_kind": "cti", "_vs": cti}]])
    options = {"on_violation": policy, "key": "k", "version": "version"}
    return Case(
        options,
        {**STREAM, **PAYLOAD, "version": "int64"},
        _spoil(dice, rows),
        {**PAYLOAD, "version": "int64"},
    )


def timeless(dice: Dice, policy: str) -> Case:
    """A table without times."""
    return Case(
        {},
        dict(PAYLOAD),
        [_payload(dice) for _ in range(dice.pick([1, 2, 4]))],
        make="table",
        may_be_cut=False,
    )


def written(dice: Dice, policy: str) -> Case:
    """What a query has written, in the order of ``(_batch, _seq)``; a run may write some rows twice."""
    rows: list[Row] = [
        {**row_of(element), "_batch": n // 3, "_seq": n % 3} for n, element in enumerate(_stream(dice))
    ]
    columns = {**STREAM, **PAYLOAD, "_batch": "int64", "_seq": "int64"}
    if dice.pick([False, True]):
        columns, rows = columns | {"_run": "string"}, [{**row, "_run": "r"} for row in rows]
        rows = [row for row in rows for _ in range(dice.pick([1, 1, 1, 2]))]
    return Case({"on_violation": policy}, columns, _spoil(dice, rows))


FAMILIES: Final[dict[str, Callable[[Dice, str], Case]]] = {
    "stream": plain_stream,
    "below a finalize": finalized,
    "insert-only": insert_only,
    "open and close": open_close,
    "partitions": partitioned,
    "paced": paced,
    "numbered": numbered,
    "plain table": plain_table,
    "history": history,
    "keyed": keyed,
    "table": timeless,
    "written": written,
}


def make_case(family: str, dice: Dice, policy: str = "") -> Case:
    """A case of a family, perhaps with timestamps."""
    case = FAMILIES[family](dice, policy or dice.pick(POLICIES))
    return replace(case, is_timed=case.make == "source" and dice.pick([False, False, True]))
