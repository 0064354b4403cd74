"""Histories and results as pictures and tables: what is drawn is what is there, and text stays text."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from xml.dom.minidom import parseString

import pyarrow as pa
import pytest

import recension as rc
from recension.cli import main
from recension.core.pictures import RetractedParts, draw, timeline_svg

HOSTILE = "<script>alert(1)</script>"
LEASES = rc.source("leases", {"user": "string", "n": "int64"})


def history(*events: tuple[str, int, int]) -> rc.History:
    return rc.History.from_events([rc.Event({"user": user, "n": 1}, vs, ve) for user, vs, ve in events])


def test_overlapping_events_of_a_key_have_rows_of_their_own() -> None:
    picture = draw(history(("ann", 1, 5), ("bob", 0, 9), ("ann", 5, 7), ("ann", 3, 6)))
    assert picture.lane_names == ["ann", "bob"]
    assert picture.lane_tops == [0, 2, 3]
    assert picture.rows.tolist() == [0, 2, 0, 1]
    assert (picture.low, picture.high) == (0, 9)


def test_a_long_history_says_what_is_left_out() -> None:
    picture = draw(history(*((f"u{i % 3}", i, i + 1) for i in range(50))), most=10)
    assert len(picture.history) == 10
    assert picture.notes() == "the first 10 events; 40 more are not drawn"
    assert "40 more are not drawn" in timeline_svg(picture)


def test_what_was_taken_back_and_the_cti_are_drawn() -> None:
    out = rc.run(
        LEASES,
        {
            "leases": [
                rc.Insert({"user": "ann", "n": 1}, 1, 9),
                rc.Insert({"user": "bob", "n": 1}, 2, 4),
                rc.Retract({"user": "ann", "n": 1}, 1, 9, 6),
                rc.Cti(3),
                rc.Retract({"user": "bob", "n": 1}, 2, 4, 3),
            ]
        },
    )
    retracted = RetractedParts.of(out.batch(), out.time_type)
    assert retracted.cti == 3
    assert list(zip(retracted.parts.vs.tolist(), retracted.parts.ve.tolist(), strict=True)) == [
        (6, 9),
        (3, 4),
    ]
    svg = re.findall(r"<svg.*</svg>", out._repr_html_())[0]
    titles = [title.firstChild.data for title in parseString(svg).getElementsByTagName("title")]  # type: ignore[union-attr]
    assert titles.count("user ann, n 1 [1, 6)") == 2  # the final and the speculative part
    assert titles.count("taken back") == 2
    assert "cti 3" in titles


def test_text_stays_text_in_notebooks() -> None:
    hostile = history((HOSTILE, 1, 5))
    for markup in (hostile._repr_html_(), rc.run(LEASES, {"leases": hostile})._repr_html_()):
        assert "<script" not in markup
        assert "&lt;script&gt;" in markup
    query = LEASES.where(rc.col("user") == HOSTILE)
    assert "<script" not in query._repr_html_()
    assert "source leases" in query._repr_html_()


def test_every_history_has_a_picture() -> None:
    empty = rc.History.from_arrow(
        pa.table({"_vs": pa.array([], pa.int64()), "_ve": pa.array([], pa.int64())})
    )
    assert "<table>" in empty._repr_html_()
    endless = history(("ann", rc.BEGINNING, rc.FOREVER), ("ann", 2**61, 2**62))
    assert "<svg" in endless._repr_html_()
    bare = rc.History.from_arrow(pa.table({"_vs": [1], "_ve": [2]}))
    assert "<svg" in bare._repr_html_()
    live = rc.session(LEASES)
    live.push("leases", [rc.Insert({"user": "ann", "n": 1}, 1, 9)])
    live.read()
    live.push("leases", [rc.Retract({"user": "ann", "n": 1}, 1, 9, 6)])
    assert "retract" in live.read()._repr_html_()


def test_plots_have_keys_as_lanes() -> None:
    pytest.importorskip("matplotlib").use("agg")
    import matplotlib.pyplot as plt

    when = [datetime(2026, 11, 18, hour, tzinfo=UTC) for hour in (9, 10, 12)]
    events = [
        rc.Event({"user": "$ann$", "n": 1}, when[0], when[2]),
        rc.Event({"user": "bob", "n": 1}, when[1]),
    ]
    axes = rc.History.from_events(events).plot()
    assert [label.get_text() for label in axes.get_yticklabels()] == [r"\$ann\$", "bob"]
    axes.figure.canvas.draw()
    by_number = rc.History.from_events(events).plot(lanes="n")
    assert [label.get_text() for label in by_number.get_yticklabels()] == ["1"]
    _, given = plt.subplots()
    out = rc.run(LEASES, {"leases": rc.History.from_events(events)})
    assert out.plot(given) is given
    plt.close("all")
    with pytest.raises(rc.RecensionError, match=r"plot: no column 'usr' \(did you mean 'user'\?\)"):
        out.plot(lanes="usr")


def test_they_speak_arrow() -> None:
    found = history(("ann", 1, 5))
    out = rc.run(LEASES, {"leases": found})
    assert pa.table(found).equals(found.to_arrow())
    assert pa.table(out).equals(out.to_arrow())
    import polars as pl

    assert pl.DataFrame(found).rows() == [(1, 5, "ann", 1)]


def test_the_command_plots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    stream, plot = tmp_path / "s.csv", tmp_path / "out.svg"
    stream.write_text("_vs,_ve,k\n1,5,a\n2,6,b\n")
    assert main(["history", str(stream), "--plot", str(plot)]) == 0
    assert plot.read_text().rstrip().endswith("</svg>")
    assert capsys.readouterr().out == ""
    for wrong in (["--plot", str(tmp_path / "x.doc")], ["--plot", str(plot), "--bitemporal"]):
        assert main(["history", str(stream), *wrong]) == 2
    assert "a plot is .svg, .png, .pdf" in capsys.readouterr().err
