"""Explain, as golden files: set UPDATE_GOLDEN=1 to write them anew, then read the difference."""

from __future__ import annotations

import json
import os
import runpy
from pathlib import Path

import pytest

import recension as rc
from recension import col
from recension.lowering import describe_choice
from recension.plan import nodes
from recension.plan.explain import explain
from recension.plan.rewrites import optimize

HERE = Path(__file__).parent
leases = rc.source("leases", {"user": "string", "site": "string", "bytes": "float64"})
sites = rc.source(
    "sites",
    {"site": "string", "country": "string", "quota": "float64"},
    properties=rc.Properties(is_insert_only=True, is_ordered=True, has_key=True),
)
readings = rc.source(
    "readings",
    {"sensor": "int64", "value": "float64"},
    start="at",
    properties=rc.Properties(is_strictly_increasing=True, is_point=True, cti_frequency=1_000_000),
    on_violation="drop",
)
busy = leases.where(col("bytes") > 0).set_duration("10m").group_by("site")

QUERIES = {
    "moving_count": busy.agg(n=rc.count(), avg=rc.mean("bytes")),
    "over_quota": (
        leases.with_columns(kb=col("bytes") / 1024)
        .join(sites, on="site", where=(col("quota") > 0) & (col("kb") > col("quota")))
        .where((col("country") == "DE") & (col("user") != "root"))
        .select("user", "site", over=col("kb") - col("quota"))
    ),
    "idle_sites": sites.join(leases, on="site", how="anti").select("site"),
    "alarms": readings.set_duration("1m").agg(rc.top_k(3, by="value")),
    "twice": busy.agg(n=rc.count()).join(busy.agg(n=rc.count()).shift("10m"), on="site", suffix="_before"),
    "eager_total": readings.agg(total=rc.sum("value"), speculate="eager"),
    "last_ten": leases.group_by("site").count_window(10, by="end").agg(n=rc.count(), top=rc.max("bytes")),
    "above_mean": leases.group_by("site").apply(
        lambda g: g.join(g.agg(mean=rc.mean("bytes")), where=col("bytes") > col("mean"))
    ),
    "example_bank": runpy.run_path(str(HERE.parents[1] / "examples" / "bank.py"))["query"],
}


def check_golden(name: str, text: str) -> None:
    golden = HERE / f"{name}.golden"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8"), "if this is meant: UPDATE_GOLDEN=1 make test"


@pytest.mark.parametrize("name", QUERIES)
def test_text(name: str) -> None:
    query = QUERIES[name]
    written, runs = query.explain(rewrite=False), query.explain()
    check_golden(name, f"as written\n\n{written}\nas it runs\n\n{runs}")


def test_json() -> None:
    text = QUERIES["moving_count"].explain(format="json")
    check_golden("moving_count.json", text + "\n")
    plan = json.loads(text)
    assert [node["node"] for node in plan["nodes"]] == [
        "Source",
        "Span",
        "AlterLifetime",
        "SnapshotAggregate",
    ]
    assert plan["roots"] == [3]


def test_what_lowering_chose_is_shown() -> None:
    def told(node: nodes.Node) -> str | None:
        return "variant ordered" if isinstance(node, nodes.SnapshotAggregate) else None

    plan = busy.agg(n=rc.count()).plan
    assert "│  chosen: variant ordered\n" in explain([plan], annotate=told)
    assert explain([plan]).count("chosen") == 0


def test_a_plan_is_explained_as_written_or_as_it_runs() -> None:
    query = QUERIES["idle_sites"]
    assert query.explain(rewrite=False) == explain([query.plan], annotate=describe_choice)
    assert query.explain() == explain(optimize([query.plan]), annotate=describe_choice)


def test_describe() -> None:
    assert QUERIES["eager_total"].describe().splitlines() == [
        "aggregate total = sum(value), speculate eager",
        "columns: total float64",
        "known: (vs, payload) is a key, shrink-only",
    ]
