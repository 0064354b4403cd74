"""Types by name: whatever is printed of a type can be written for it."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import recension as rc
from recension.core.errors import SchemaError
from recension.plan.schemas import type_name, type_named

UNITS = ("s", "ms", "us", "ns")
PLAIN = [
    *(pa.null(), pa.bool_(), pa.int8(), pa.uint8(), pa.int64(), pa.uint64(), pa.float16(), pa.float32()),
    *(pa.float64(), pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(16)),
    *(pa.string_view(), pa.binary_view(), pa.date32(), pa.date64(), pa.time32("ms"), pa.time64("us")),
    *(pa.month_day_nano_interval(), pa.decimal128(10, 2), pa.decimal256(40, 3), pa.decimal128(5, -2)),
    *(pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int8(), pa.string(), ordered=True)),
    *(make(unit) for make in (pa.timestamp, pa.duration) for unit in UNITS),
    *(pa.timestamp(u, zone) for u in UNITS for zone in ("UTC", "Europe/Paris", "+05:30", "Etc/GMT+3")),
]
names = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True)


def field(name: str, kind: pa.DataType, nullable: bool) -> pa.Field:
    return pa.field(name, kind, nullable or pa.types.is_null(kind))


def nested(kinds: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    fields = st.builds(field, names, kinds, st.booleans())
    return st.one_of(
        kinds.map(pa.list_),
        fields.map(pa.list_),
        fields.map(pa.large_list),
        st.builds(pa.list_, fields, st.integers(0, 9)),
        st.lists(fields, max_size=3, unique_by=lambda field: field.name).map(pa.struct),
        st.builds(pa.map_, st.just(pa.string()), kinds, keys_sorted=st.booleans()),
    )


types = st.recursive(st.sampled_from(PLAIN), nested, max_leaves=5)


@given(types)
def test_what_is_printed_of_a_type_can_be_written(kind: pa.DataType) -> None:
    assert type_named(type_name(kind)) == kind
    assert type_named(str(kind)) == kind


def test_a_source_takes_the_types_that_it_prints() -> None:
    source = rc.source("s", {"at": "timestamp[us, tz=UTC]", "prices": "list<item: decimal128(10, 2)>"})
    again = rc.source("s", {field.name: type_name(field.type) for field in source.schema})
    assert again.schema == source.schema
    assert source.schema.field("at").type == pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    "written",
    [
        "timestamp[us, tz=Nowhere/At_All]",
        "list<int64>",
        "list<item: int64",
        "decimal128",
        "int64>",
        "struct<a>",
    ],
)
def test_what_is_no_type_is_refused_by_name(written: str) -> None:
    with pytest.raises(SchemaError, match=r"column 'x'.*is not a type"):
        rc.source("s", {"x": written})
