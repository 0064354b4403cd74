"""What can be computed with sums of decimals, and how it is said what cannot."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

import recension as rc
from recension.plan.aggregates import Aggregate, Sum
from recension.plan.expressions import column

s = rc.source("s", {"d": "decimal128(10, 2)", "w": "decimal128(35, 2)", "b": "bool"})


def test_a_sum_has_ten_more_digits() -> None:
    found = s.agg(d=rc.sum("d"), w=rc.sum("w")).schema
    assert found.types == [pa.decimal128(20, 2), pa.decimal128(38, 2)]


def test_sums_in_parts_have_no_more_digits_than_in_one() -> None:
    schema = pa.schema([("d", pa.decimal128(10, 2))])
    again = Sum(column("d")).combining("t", schema)
    assert isinstance(again, Aggregate)
    assert again.result_type(pa.schema([("t", pa.decimal128(20, 2))])) == pa.decimal128(20, 2)


def test_sums_are_added_and_subtracted() -> None:
    asked = s.agg(
        rest=rc.sum("d") - rc.sum("d", where="b"),
        more=rc.sum("d") + rc.count(),
        share=rc.sum("d") * rc.lit(2.0),
    ).having(rc.sum("d") > Decimal("5.00"), rc.sum("d") > 5)
    rows = [rc.Insert({"d": Decimal(d), "w": None, "b": d > "4"}, 0, 9) for d in ("1.25", "4.50")]
    (event,) = rc.run(asked, {"s": rows}, close=True).history().to_events()
    assert event.payload == {"rest": Decimal("1.25"), "more": Decimal("7.75"), "share": 11.5}


@pytest.mark.parametrize(
    "made", [rc.sum("d") / rc.count(), rc.sum("d") * rc.sum("d"), rc.sum("w") + rc.sum("w")]
)
def test_too_many_digits_are_refused_with_advice(made: rc.Expr) -> None:
    with pytest.raises(
        rc.SchemaError, match=r'at most 38 digits.*\.cast\("float64"\); for a mean .*rc\.mean$'
    ):
        s.agg(n=made)
    assert s.agg(n=rc.sum("d").cast("float64") / rc.count()).schema.types == [pa.float64()]
