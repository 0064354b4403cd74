"""What tasks make of messages, and of rows that become messages; neither Spark nor a broker is needed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import recension as rc
from recension.core.errors import FormatError, RecensionError
from recension.core.formats.messages import TOMBSTONE
from recension.gate.partitions import Partitions
from recension.plan.source import sources_of
from recension.runners.exchange.packets import merge_packets
from recension.runners.spark.kafka import sink
from recension.runners.spark.kafka.source import MessageColumns, Reading
from recension.runners.spark.stream.packing import Packing
from recension.runners.spark.stream.topology import Inlet, topology
from recension.runners.topic_rows import UNREADABLE, columns_of

SCHEMA = {"k": "string", "v": "int64"}
PLACES: dict[str, Any] = {"partition": "partition", "order": "offset"}
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def messages(*given: Any, partition: int = 0, headers: Any = None, key: Any = None) -> pa.RecordBatch:
    size = len(given)
    values = [m if m is None or isinstance(m, bytes) else json.dumps(m).encode() for m in given]
    return pa.RecordBatch.from_pydict(
        {
            "value": pa.array(values, pa.binary()),
            "topic": ["t"] * size,
            "partition": pa.array([partition] * size, pa.int32()),
            "offset": pa.array(range(7, 7 + size)),
            "timestamp": pa.array([1_000_000] * size, pa.timestamp("us", "UTC")),
            "key": pa.array([key] * size, pa.binary()),
            "headers": pa.array(headers or [None] * size, HEADERS),
        }
    )


def reading(
    stream: Any, form: Any = "json", columns: Any = None, partitions: int = 3
) -> tuple[Reading, Packing]:
    found = columns_of(stream.plan, ["t"], partitions, form, None, columns or {})
    (source,) = sources_of(stream.plan).values()
    kind = found.kind
    packing = Packing(topology([stream.plan], 1, {source.name: Inlet(kind=kind)}), source.name, 1)
    return Reading(packing, MessageColumns(**found.__dict__)), packing


def events(stream: Any, given: pa.RecordBatch, **how: Any) -> tuple[list[Any], dict[str, int]]:
    read, packing = reading(stream, **how)
    packets = list(read.packets(given))
    found = [
        element for packet in packets for element in packet.open(read._source.schema).events.to_elements()
    ]
    counts = [json.loads(p.info) for p in packing.end_of_task_packets() if p.info]
    return found, next(iter(counts[0].values())) if counts else {}


def test_messages_become_elements_with_their_places() -> None:
    s = rc.source("s", SCHEMA, **PLACES)
    given = messages({"_kind": "insert", "_vs": 1, "_ve": 5, "k": "a", "v": 1}, {"_kind": "cti", "_vs": 4})
    assert events(s, given)[0] == [rc.Insert({"k": "a", "v": 1}, 1, 5), rc.Cti(4)]


@pytest.mark.parametrize("policy", ["raise", "drop"])
@pytest.mark.parametrize("bad", [b"{", {"_kind": "wrong", "_vs": 1}, {"k": "no start"}, {"_vs": 1, "v": "x"}])
def test_a_bad_message_names_its_place_or_is_counted(policy: Any, bad: Any) -> None:
    s = rc.source("s", SCHEMA, on_violation=policy, **PLACES)
    given = messages({"_vs": 1, "_ve": 2, "k": "a"}, bad, {"_vs": 3, "_ve": 4, "k": "b"}, partition=2)
    if policy == "raise":
        with pytest.raises(FormatError, match=r"^topic t, partition 2, offset 8: "):
            events(s, given)
        return
    found, counts = events(s, given)
    assert [element.payload["k"] for element in found] == ["a", "b"]
    assert counts == {UNREADABLE: 1}


def test_tombstones_are_skipped_or_delete_their_key() -> None:
    s = rc.source("s", SCHEMA, **PLACES)
    found, counts = events(s, messages({"_vs": 1, "k": "a"}, None))
    assert (len(found), counts) == (1, {TOMBSTONE: 1})
    keyed = rc.changes(
        "s", {"id": "int64", "v": "int64"}, key="id", start="at", version="offset", deleted="gone"
    )
    columns = {"id": "key", "at": "timestamp", "offset": "offset"}
    found, counts = events(keyed, messages({"v": 3}, None, key=b"5"), columns=columns)
    rows = [element.payload for element in found]
    assert [(row["id"], row["v"], row["gone"]) for row in rows] == [(5, 3, None), (5, None, True)]
    assert counts == {}


def test_columns_from_beside_the_value() -> None:
    schema = {"k": "string", "v": "int64", "at": "timestamp[us, UTC]", "who": "string", "trace": "int64"}
    s = rc.source("s", schema, start="at", **PLACES)
    columns = {"at": "timestamp", "who": "key", "trace": "headers.trace"}
    given = messages({"k": "a", "v": 1}, key=b"ann", headers=[[("trace", b"12")]])
    (element,), _ = events(s, given, columns=columns)
    assert element.payload["who"] == "ann"
    assert element.payload["trace"] == 12
    assert element.vs == 1_000_000
    with pytest.raises(FormatError, match=r"offset 7: column trace: "):
        events(s, messages({"k": "a"}, headers=[[("trace", b"x")]]), columns=columns)


def test_numbers_of_a_producer_come_from_headers() -> None:
    s = rc.source("s", SCHEMA, run="_run", sequence=["_batch", "_seq"], **PLACES)
    numbers = [[("_run", b"r"), ("_batch", b"3"), ("_seq", str(n).encode())] for n in (5, 6)]
    read, _ = reading(s)
    placement = merge_packets(
        list(read.packets(messages({"_vs": 1, "k": "a"}, {"_vs": 2, "k": "b"}, headers=numbers))),
        s.plan.schema,
    ).placement
    assert placement is not None
    assert [column.tolist() for column in placement.sequence] == [[3, 3], [5, 6]]
    assert list(placement.runs) == ["r"]


def test_a_table_in_a_message() -> None:
    def table(*starts: int) -> bytes:
        out = pa.BufferOutputStream()
        rows = pa.table({"_vs": pa.array(starts), "k": ["a"] * len(starts), "v": [1] * len(starts)})
        with pa.ipc.new_stream(out, rows.schema) as writer:
            writer.write_table(rows)
        return bytes(out.getvalue())

    s = rc.source("s", SCHEMA, partition="partition", order=["offset", "row"])
    read, _ = reading(s, form="arrow")
    placement = merge_packets(list(read.packets(messages(table(3, 1), table(2)))), s.plan.schema).placement
    assert placement is not None
    assert [column.tolist() for column in placement.order] == [[7, 7, 8], [0, 1, 0]]
    with pytest.raises(
        RecensionError, match=r'several rows come in one message: .*order=\["offset", "row"\]'
    ):
        reading(rc.source("s", SCHEMA, **PLACES), form="arrow")


def test_partitions_that_a_source_does_not_name_are_refused() -> None:
    with pytest.raises(
        RecensionError, match=r'topic t: has 3 partitions.*partition="partition", order="offset"'
    ):
        reading(rc.source("s", SCHEMA))
    reading(rc.source("s", SCHEMA), partitions=1)
    with pytest.raises(RecensionError, match="messages stand by their offsets"):
        reading(rc.source("s", SCHEMA, partition="partition"))
    with pytest.raises(RecensionError, match=r"did you mean 'offset'"):
        reading(rc.source("s", SCHEMA, **PLACES), columns={"k": "offsett"})
    with pytest.raises(RecensionError, match=r"columns= names 'K' \(did you mean 'k'"):
        reading(rc.source("s", SCHEMA, **PLACES), columns={"K": "key"})


OUTPUT = pa.schema(
    [
        ("_kind", pa.string()),
        *((name, pa.int64()) for name in ("_vs", "_ve", "_new_ve", "_count")),
        ("k", pa.string()),
        ("p", pa.int64()),
        ("_batch", pa.int64()),
        ("_seq", pa.int64()),
    ]
)


def output(*rows: tuple[Any, ...]) -> pa.RecordBatch:
    numbered = [(*row, None, "x", 2, 4, seq) for seq, row in enumerate(rows)]
    return pa.RecordBatch.from_pylist([dict(zip(OUTPUT.names, row, strict=True)) for row in numbered], OUTPUT)


def encoder(**how: Any) -> sink._Encoder:
    made = sink._checked_encoder(OUTPUT, how.get("key", ()), how.get("partition"))
    return made.spread_over(how.get("width", 3), how.get("partitions", 4))


def test_rows_become_messages_and_ctis_go_everywhere() -> None:
    rows = output(("insert", 1, 9, None), ("retract", 1, 9, 5), ("cti", 5, None, None))
    found = encoder(key=("k",)).encode(rows).to_pylist()
    home = found[0]["partition"]
    assert [m["partition"] for m in found] == [home, home, 0, 1, 2, 3]
    assert [m["seq"] for m in found] == [0, 1, 2, 2, 2, 2]
    assert {m["batch"] for m in found} == {4}
    assert [m["key"] for m in found] == [b'{"k":"x"}'] * 2 + [None] * 4
    value = json.loads(found[1]["value"])
    assert value == {"_kind": "retract", "_vs": 1, "_ve": 9, "_new_ve": 5, "k": "x", "p": 2}
    assert json.loads(found[5]["value"])["_kind"] == "cti"


def test_a_column_may_name_the_partition() -> None:
    rows = output(("insert", 1, 9, None))
    assert encoder(partition="p").encode(rows).column("partition").to_pylist() == [2]
    with pytest.raises(RecensionError, match="p is 2, and the topic has the partitions 0 to 1"):
        encoder(partition="p", width=2).encode(rows)
    wrongs: list[dict[str, Any]] = [{"key": ("K",)}, {"partition": "q"}, {"partition": "k"}]
    for wrong in wrongs:
        with pytest.raises(RecensionError):
            encoder(**wrong)


def test_events_are_spread_over_the_first_partitions_only() -> None:
    """Those that the topic had when the query began."""
    many = [row for n in range(200) for row in output(("insert", n, n + 1, None)).to_pylist()]
    rows = pa.RecordBatch.from_pylist([row | {"k": str(n)} for n, row in enumerate(many)], OUTPUT)
    found = encoder().encode(rows).column("partition").to_numpy()
    assert np.unique(found).tolist() == [0, 1, 2]


def test_a_topic_that_grew_fits_its_checkpoint_and_is_waited_for_as_before() -> None:
    """A replay must not wait for a partition that the first attempt knew nothing of."""
    few, more = (rc.source("s", SCHEMA, partitions=number, **PLACES).plan for number in (3, 4))
    assert few.structure == more.structure
    kept, then = Partitions(expected=3), Partitions(expected=4)
    then.restore(kept.snapshot())
    states = [one.snapshot()["partitions_source"].to_pylist() for one in (kept, then)]
    assert states[0] == states[1]


def test_an_answer_that_is_too_long_names_its_row() -> None:
    rows = output(("insert", 1, 9, None), ("cti", 5, None, None))
    at = rows.schema.get_field_index("k")
    rows = rows.set_column(at, "k", pa.array(["y" * 2_000, None]))
    whole = replace(encoder(), topic="answers", longest=3_000)
    assert len(whole.encode(rows)) == 5
    with pytest.raises(
        RecensionError,
        match=r"topic answers: an answer is a message of \d+ bytes, and the topic takes 2500 with headers: "
        r"_kind='insert', _vs=1, _ve=9, k='yyy.*raise the topic's max.message.bytes or leave columns out",
    ):
        replace(whole, longest=2_500).encode(rows)
