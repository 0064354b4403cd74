"""Where a merge can run."""

from __future__ import annotations

from typing import Any

import pytest

import recension as rc
from recension.plan.fragments import cut, describe_fragments

PERFECT = rc.Properties(is_insert_only=True, is_ordered=True, has_key=True)


def _merged(known: rc.Properties | None = None, **options: Any) -> rc.Stream:
    return rc.merge(
        *(rc.source(name, {"k": "string", "v": "int64"}, properties=known) for name in "ab"), **options
    )


def _where(query: rc.Stream) -> str:
    return describe_fragments(cut([query.plan]))


@pytest.mark.parametrize("options", [{}, {"case": "R3", "policy": "ff"}, {"case": "R3", "policy": "quorum"}])
def test_a_merge_is_spread_by_the_whole_payload(options: dict[str, Any]) -> None:
    assert _where(_merged(**options)).splitlines()[:3] == [
        "fragment 1, in every shard",
        "   reads a by k, v",
        "   reads b by k, v",
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"known": PERFECT},
        {"case": "R0"},
        {"case": "R1"},
        {"case": "R3", "policy": "lead"},
        {"case": "R3", "on_mismatch": "fallback"},
    ],
)
def test_what_looks_at_whole_inputs_runs_in_one_shard(options: dict[str, Any]) -> None:
    assert _where(_merged(**options)).splitlines()[:3] == [
        "fragment 1, in one shard",
        "   reads a to one shard",
        "   reads b to one shard",
    ]


def test_without_columns_all_events_are_alike() -> None:
    assert "in one shard" in _where(rc.merge(*(rc.source(name, {}) for name in "ab")))


def test_replicas_that_are_apart_by_a_key_are_merged_where_they_are() -> None:
    a, b = (rc.source(name, {"k": "string", "v": "int64"}) for name in "ab")
    counted = (one.group_by("k").agg(n=rc.count()) for one in (a, b))
    assert _where(rc.merge(*counted)).splitlines()[:3] == [
        "fragment 1, in every shard",
        "   reads a by k",
        "   reads b by k",
    ]
