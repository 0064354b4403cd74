"""Modules found by name: the sample package under examples/ as if it were installed."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

import recension as rc
from recension.cli import main
from recension.core.errors import RecensionError, SchemaError
from recension.modules.registry import module_named

PACKAGE = Path(__file__).parents[2] / "examples" / "acme_charts"
PRICES: Any = rc.source("prices", {"symbol": "string", "price": "float64"})


def _install(folder: Path, name: str, points: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    info = folder / f"{name}-1.0.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0.0\n")
    lines = [f"{key} = {value}" for key, value in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[recension.modules]", *lines, ""]))
    monkeypatch.syspath_prepend(str(folder))


@pytest.fixture
def _acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    _install(tmp_path, "acme_charts", project["entry-points"]["recension.modules"], monkeypatch)
    monkeypatch.syspath_prepend(str(PACKAGE / "src"))


@pytest.mark.usefixtures("_acme")
def test_a_query_calls_a_module_by_its_name() -> None:
    prices = [1, 5, 1, 9, 2, 6, 3, 1]
    events = [rc.Insert({"symbol": "x", "price": float(p)}, t, t + 1) for t, p in enumerate(prices)]
    windowed = PRICES.group_by("symbol").tumbling(10).stamp_output("keep")
    query = windowed.apply("acme.head_and_shoulders", depth=3)
    assert "apply by symbol acme.head_and_shoulders(price, depth=3)" in query.explain()
    assert rc.run(query, {"prices": events}, close=True).history().to_events() == [
        rc.Event({"symbol": "x", "left": 5.0, "head": 9.0, "right": 6.0}, 6, 10)
    ]
    none = windowed.apply("acme.head_and_shoulders", depth=4)
    assert rc.run(none, {"prices": events}, close=True).history().to_events() == []


@pytest.mark.usefixtures("_acme")
def test_an_aggregate_is_called_by_its_name_too() -> None:
    events = [rc.Insert({"symbol": "x", "price": float(p)}, t, t + 1) for t, p in enumerate([3, 8, 5])]
    windowed = PRICES.tumbling(10)
    for query, spread in (
        (windowed.agg(spread="acme.spread", n=rc.count()), 5.0),
        (windowed.agg(spread=rc.module("acme.spread", price=rc.col("price") * 2), n=rc.count()), 10.0),
        (windowed.agg(spread=module_named("acme.spread"), n=rc.count()), 5.0),
    ):
        assert rc.run(query, {"prices": events}, close=True).history().to_events() == [
            rc.Event({"spread": spread, "n": 3}, 0, 10)
        ]
    with pytest.raises(SchemaError, match=r"did you mean 'acme.spread'\?"):
        windowed.agg(spread="acme.spreads")
    with pytest.raises(SchemaError, match=r"acme.spread: there is no input or parameter 'depth'"):
        rc.module("acme.spread", depth=3)


@pytest.mark.usefixtures("_acme")
def test_parameters_are_checked_when_the_query_is_built() -> None:
    windowed = PRICES.tumbling(10)
    with pytest.raises(SchemaError, match=r"acme.head_and_shoulders: depth is at least 1, not 0"):
        windowed.apply("acme.head_and_shoulders", depth=0)
    with pytest.raises(SchemaError, match=r"the parameter depth: int = 1 cannot be 'deep'"):
        windowed.apply("acme.head_and_shoulders", depth="deep")
    with pytest.raises(SchemaError, match=r"did you mean 'acme.head_and_shoulders'\?"):
        windowed.apply("acme.head_and_shoulder")


@pytest.mark.usefixtures("_acme")
def test_the_command_lists_what_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["modules"]) == 0
    listed = capsys.readouterr().out
    signature = "acme.head_and_shoulders(price: float64, depth: int = 1) -> left: float64, head: float64"
    assert signature in listed
    assert "time-sensitive operator (acme_charts.patterns)" in listed
    assert "The greatest price less the least." in listed
    assert main(["modules", "acme.head_and_shoulders"]) == 0
    assert "true from then to the end of the window" in capsys.readouterr().out
    assert main(["modules", "acme.nothing"]) == 2


def test_what_cannot_be_loaded_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(tmp_path / "a", "broken", {"b.none": "nowhere_at_all:X", "b.path": "pathlib:Path"}, monkeypatch)
    with pytest.raises(
        RecensionError, match=r"'b.none' cannot be loaded from nowhere_at_all:X: ModuleNotFound"
    ):
        module_named("b.none")
    with pytest.raises(RecensionError, match=r"'b.path', pathlib:Path, is not a class of"):
        module_named("b.path")
    _install(tmp_path / "b", "other", {"b.path": "os:X"}, monkeypatch)
    with pytest.raises(RecensionError, match=r"two packages offer the module 'b.path'"):
        module_named("b.path")
