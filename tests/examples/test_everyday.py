"""Jobs, edits and vintages: every answer is what pandas says, here and on Spark."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.docs.pages import snippets

import recension as rc

ROOT = Path(__file__).parents[2]
JOBS, EDITS, VINTAGES = (
    runpy.run_path(str(ROOT / "examples" / f"{name}.py")) for name in ("jobs", "edits", "vintages")
)
ask = runpy.run_path(str(ROOT / "examples" / "engines.py"))["ask"]
JOB_TABLES = {"jobs": JOBS["rows"](), "sites": JOBS["rates"]()}
EDIT_TABLES = {"edits": EDITS["rows"]()}
GDP = VINTAGES["rows"]()
TICK, HOUR, DAY = pd.Timedelta(1, "us"), pd.Timedelta(hours=1), pd.Timedelta(days=1)


def known_jobs() -> pd.DataFrame:
    """Each job as its highest number says."""
    return JOB_TABLES["jobs"].sort_values("seq").groupby("job").tail(1)


def calendar(at: pd.Series, zone: str, freq: str) -> tuple[pd.Series, pd.Series]:
    """The start and the end of the calendar windows of some instants."""
    local = at.dt.tz_convert(zone).dt.tz_localize(None)
    period = local.dt.to_period(freq)
    starts, ends = period.dt.start_time, (period + 1).dt.start_time
    return starts.dt.tz_localize(zone), ends.dt.tz_localize(zone)


def ended_jobs() -> pd.DataFrame:
    return known_jobs().dropna(subset="finished")


def cost() -> pd.DataFrame:
    rows = ended_jobs().merge(JOB_TABLES["sites"], on="site")
    hours = (rows["finished"] - rows["began"]) / HOUR
    rows = rows.assign(cost=hours * rows["cores"] * rows["rate"], _vs=rows["finished"])
    return rows.assign(_ve=rows["_vs"] + TICK)[["_vs", "_ve", "job", "country", "cost"]]


def bill() -> pd.DataFrame:
    rows = cost()
    rows["_vs"], rows["_ve"] = calendar(rows["_vs"], "Europe/Zurich", "M")
    by = rows.groupby(["_vs", "_ve", "country"])
    return by.agg(jobs=("job", "size"), cost=("cost", "sum")).reset_index()


def load() -> pd.DataFrame:
    """Quarter by quarter of an hour, in which all jobs begin and end."""
    quarters = pd.date_range(JOBS["FIRST"] - DAY, JOBS["LAST"] - TICK, freq="15min")
    found = []
    for site, jobs in known_jobs().groupby("site"):
        ends = jobs["finished"].fillna(JOBS["LAST"] + DAY)
        begin, end = (np.array([t.value for t in column])[:, None] for column in (jobs["began"], ends))
        at = np.array([t.value for t in quarters])
        cores = ((begin <= at) & (at < end)) * jobs["cores"].to_numpy()[:, None]
        cores = pd.Series(cores.sum(axis=0), quarters)
        busy = cores[cores > 0]
        starts, ends = calendar(busy.index.to_series(), "Europe/Zurich", "D")
        days = busy.groupby([starts, ends]).agg(["max", "mean"])
        found += [(vs, ve, site, row["max"], row["mean"]) for (vs, ve), row in days.iterrows()]
    return pd.DataFrame(found, columns=["_vs", "_ve", "site", "peak", "mean"])


def overdue() -> pd.DataFrame:
    rows = known_jobs()
    rows = rows.assign(_vs=rows["began"] + 2 * DAY, _ve=rows["finished"])
    return rows[~(rows["_ve"] <= rows["_vs"])][["_vs", "_ve", "job", "site"]]


def failing() -> pd.DataFrame:
    rows = ended_jobs()
    rows["_vs"], rows["_ve"] = calendar(rows["finished"], "Europe/Zurich", "W")
    by = rows.assign(failed=rows["status"] == "failed").groupby(["_vs", "_ve", "site"])
    answer = by.agg(ended=("job", "size"), failed=("failed", "mean")).reset_index()
    return answer[answer["failed"] > 0.2]


def known_edits() -> pd.DataFrame:
    rows = EDIT_TABLES["edits"]
    gone = rows.loc[rows["hidden"], "edit"]
    return rows[~rows["edit"].isin(gone)].sort_values(["user", "at"])


def visits() -> pd.DataFrame:
    rows = known_edits()
    begins = (rows["user"] != rows["user"].shift()) | (rows["at"] - rows["at"].shift() > HOUR)
    by = rows.assign(visit=begins.cumsum()).groupby("visit")
    answer = by.agg(
        _vs=("at", "min"),
        _ve=("at", "max"),
        user=("user", "first"),
        edits=("edit", "size"),
        pages=("page", "nunique"),
        bytes=("bytes", "sum"),
    )
    return answer.assign(_ve=answer["_ve"] + TICK)


def long() -> pd.DataFrame:
    answer = visits()
    return answer[answer["_ve"] - answer["_vs"] > 2 * HOUR]


def busiest() -> pd.DataFrame:
    rows = known_edits()
    rows["_vs"], rows["_ve"] = calendar(rows["at"], "America/New_York", "D")
    counts = rows.groupby(["_vs", "_ve", "user"]).size().reset_index(name="edits")
    counts = counts.sort_values(["_vs", "edits", "user"], ascending=[True, False, True])
    counts["rank"] = counts.groupby("_vs").cumcount() + 1
    return counts[counts["rank"] <= 3]


def undone() -> pd.DataFrame:
    rows = known_edits()
    undoing = rows.dropna(subset="undoes")[["undoes", "user", "at"]]
    pairs = rows.merge(undoing, left_on="edit", right_on="undoes", suffixes=("", "_by"))
    pairs = pairs[(pairs["user"] != pairs["user_by"]) & (pairs["at_by"] < pairs["at"] + DAY)]
    pairs = pairs.assign(_vs=pairs["at_by"], _ve=pairs["at_by"] + TICK, by=pairs["user_by"])
    return pairs[["_vs", "_ve", "edit", "user", "page", "bytes", "by"]]


def unlucky() -> pd.DataFrame:
    rows = undone()
    rows["_vs"], rows["_ve"] = calendar(rows["_vs"], "America/New_York", "W")
    answer = rows.groupby(["_vs", "_ve", "user"]).size().reset_index(name="undone")
    return answer[answer["undone"] > 1]


def estimates() -> pd.DataFrame:
    rows = GDP.sort_values(["quarter", "published"]).rename(columns={"published": "_vs"})
    following = rows.groupby("quarter")["_vs"].shift(-1)
    return rows.assign(_ve=following)[["_vs", "_ve", "quarter", "growth"]]


def last() -> pd.DataFrame:
    rows = estimates()
    rows["before"] = rows.groupby("quarter")["growth"].shift()
    rows = rows.dropna(subset="before")
    return rows.assign(by=rows["growth"] - rows["before"])


def by_year() -> pd.DataFrame:
    rows = last().sort_values(["_vs", "quarter"])
    rows["_vs"], rows["_ve"] = calendar(rows["_vs"], "UTC", "Y")
    rows["size"] = rows["by"].abs().astype(float)
    by = rows.assign(up=rows["by"] > 0).groupby(["_vs", "_ve"])
    answer = by.agg(revisions=("by", "size"), up=("up", "sum"), mean=("size", "mean")).reset_index()
    largest = rows.loc[by["size"].idxmax()]
    return answer.assign(largest=largest["quarter"].to_numpy())


PROGRAMS = (
    (JOBS, JOB_TABLES, (cost, bill, load, overdue, failing)),
    (EDITS, EDIT_TABLES, (visits, long, busiest, undone, unlucky)),
    (VINTAGES, {"gdp": GDP}, (estimates, last, by_year)),
)
QUERIES = [(program, tables, meaning) for program, tables, all_of in PROGRAMS for meaning in all_of]
ON_SPARK = [question for question in QUERIES if question[2] in (bill, busiest, last)]


def inputs(query: rc.Stream, tables: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    return {name: table for name, table in tables.items() if f"source {name} " in query.explain()} | {
        name: table for name, table in tables.items() if f"table {name}\n" in query.explain()
    }


def assert_same(found: pd.DataFrame, meaning: pd.DataFrame) -> None:
    """Equal rows, in any order; numbers but for the last digits."""
    names = list(found.columns)
    assert set(names) == set(meaning.columns)
    assert len(found) == len(meaning) > 0
    exact = [name for name in names if name not in ("cost", "mean", "failed")]
    left, right = (one.sort_values(exact, ignore_index=True) for one in (found, meaning[names]))
    for name in names:
        if name in exact:
            assert plain(left[name]) == plain(right[name]), name
        else:
            np.testing.assert_allclose(left[name].astype(float), right[name].astype(float), atol=1e-5)


def plain(column: pd.Series) -> list[Any]:
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        return [str(t) for t in column.dt.tz_convert("UTC")]
    return list(column)


@pytest.mark.parametrize("question", QUERIES, ids=lambda question: question[2].__name__)
def test_the_local_engine_says_what_pandas_says(question: Any) -> None:
    program, tables, meaning = question
    query = program[meaning.__name__]
    found = rc.run(query, inputs(query, tables), batch_size=50).history()
    assert_same(found.to_pandas(), meaning())


@pytest.mark.parametrize("question", ON_SPARK, ids=lambda question: question[2].__name__)
def test_so_does_a_batch_on_spark(spark: Any, question: Any) -> None:
    program, tables, meaning = question
    query = program[meaning.__name__]
    # Through Arrow: of pandas, Spark 4.1 makes doubles of whole numbers with gaps, and wide decimals.
    rows = {
        name: pa.Table.from_pandas(table, preserve_index=False)
        for name, table in inputs(query, tables).items()
    }
    frames = {name: spark.createDataFrame(table) for name, table in rows.items()}
    found = rc.History.from_arrow(rc.spark.batch(spark, query, frames).toArrow())
    assert_same(found.to_pandas(), meaning())


def test_so_does_a_stream_on_spark(spark: Any) -> None:
    """Four micro-batches of rows out of order."""
    rows = pa.Table.from_pandas(GDP.sample(frac=1, random_state=1), preserve_index=False)
    rows = rows.set_column(3, "growth", rows["growth"].cast(pa.decimal128(4, 1)))
    answers = ask(VINTAGES["last"], {"gdp": rows}, "spark")
    assert answers.revised > 0
    assert_same(answers.history.to_pandas(), last())


def test_what_was_believed_is_what_the_session_had_been_told() -> None:
    told, estimated = VINTAGES["told"](GDP), rc.run(VINTAGES["estimates"], {"gdp": GDP}).history()
    for day in ("2021-03-01T00:00:00Z", "2022-09-30T00:00:00Z", "2023-12-31T12:00:00Z"):
        one, other = told.history(as_of=day).to_pandas(), estimated.at(day).to_pandas()
        assert dict(zip(one["quarter"], one["growth"], strict=True)) == dict(
            zip(other["quarter"], other["growth"], strict=True)
        )


def test_the_page_shows_the_queries_of_the_examples() -> None:
    """Every line of Python on the page is in one of the three files."""
    code = "\n".join((ROOT / "examples" / f"{n}.py").read_text() for n in ("jobs", "edits", "vintages"))
    lines = {line for line in code.splitlines() if line}
    page = ROOT / "docs" / "guide" / "everyday.md"
    shown = [s for s in snippets(page) if s.language == "python" and s.expected is None]
    lines |= {"import datetime as dt", "from decimal import Decimal"}
    assert len(shown) >= 3
    for snippet in shown:
        assert [line for line in snippet.code.splitlines() if line and line not in lines] == []
