"""`python -m benchmarks.peers [--events N]`: W1, W2 and W3 by every peer that is installed under .peers.

W1: hopping windows of 10 s every 2 s, count and sum by key. W2: the interval join of two streams. W3:
tumbling windows of 10 s, count and sum by key. Text keys, floats, timestamps, 20 % of the rows late by up to
30 s, in 40 steps for those that take steps. Two runs over 500 rows go before each: the first loads what it
needs, and what the second takes is taken away, so that the start of a peer (and of a job) is not counted. The
answers of all are compared with DuckDB's. Ratios are of processor seconds, which a busy machine disturbs
least.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.peers.clock import net
from benchmarks.peers.data import write
from benchmarks.peers.homes import HOMES, NotInstalledError, start
from benchmarks.peers.worker import FAILED, Answer, run_within
from benchmarks.report import fill_page, machine, markdown

HERE = Path(__file__).parent
WORKLOADS = ("W1", "W2", "W3")
EVENTS, SMALL, SECONDS, WIDTH = 1_000_000, 500, 300.0, 170


@dataclass(frozen=True, eq=False)
class Peer:
    """Somebody's script, the environment that it needs, and what it does not do."""

    name: str
    script: str
    home: str
    lacks: str
    workloads: tuple[str, ...] = WORKLOADS
    environment: dict[str, str] = field(default_factory=dict)


_ONE_SHOT = "no stream: all rows at once, at the end"
JUDGE = Peer("DuckDB, one shot, 1 thread", "duckdb_sql.py", "duckdb", _ONE_SHOT)
OURS = Peer(
    "Recension, answers at once", "ours.py", "", "not durable in this form (snapshots, or Spark, are)"
)
PEERS = (
    JUDGE,
    OURS,
    Peer(
        "Recension, final answers", "ours.py", "", "the same; nothing is shown before it is final",
        environment={"PEER_LEVEL": "final"},
    ),
    Peer(
        "Flink SQL, parallelism 2", "flink_sql.py", "flink",
        "window answers come once, rows behind the watermark are dropped, none is taken back; "
        "lifetimes are two columns, and the join needs a bound",
    ),
    Peer(
        "Bytewax", "bytewax_flow.py", "bytewax",
        "a row at a time in Python; late rows go to another stream; answers come once; no join by overlap",
        workloads=("W1", "W3"),
    ),
    Peer(
        "Pathway", "pathway_tables.py", "pathway",
        "answers are corrected, but nothing says which are final; the join needs a bound",
    ),
    Peer("Polars, one shot", "polars_frames.py", "polars", _ONE_SHOT),
)  # fmt: skip


def main() -> None:
    """Measure everybody, compare the answers, print one table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--homes", type=Path, default=HOMES, help="the environments of the peers")
    parser.add_argument(
        "--only", default="", help="peers with this in their names; DuckDB and ours in any case"
    )
    parser.add_argument("--page", type=Path, help="a page of the guide that the table is written into")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for a workload by a peer")
    options = parser.parse_args()
    out = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    out.print(", ".join(f"{key} {value}" for key, value in machine().items()), style="dim")
    peers = [peer for peer in PEERS if peer in (JUDGE, OURS) or options.only in peer.name]
    with tempfile.TemporaryDirectory() as place:
        write(Path(place), options.events)
        write(Path(place, "small"), SMALL, steps=2)
        runner = Runner(options.homes, Path(place), options.seconds)
        found = {peer: runner.measure(peer) for peer in peers}
    table = _table(found, options.events)
    out.print(table)
    notes = [f"{peer.name}: {peer.lacks}" for peer in peers]
    for note in notes:
        out.print(note, highlight=False)
    if options.page is not None:
        bullets = "".join(f"- {note}\n" for note in notes)
        fill_page(options.page, "peers", f"{table.title}.\n\n{markdown(table)}\n{bullets}")


@dataclass(frozen=True)
class Runner:
    """Where the environments and the files are, and how long a workload may take."""

    homes: Path
    place: Path
    seconds: float

    def measure(self, peer: Peer) -> dict[str, Answer]:
        """What each workload took and how far the answer is from DuckDB's; why not, if it did not run."""
        found = {}
        for workload in peer.workloads:
            took = self._run(peer, workload)
            if FAILED not in took:
                theirs = self._answer(JUDGE, workload)
                took["wrong"] = _differences(self._answer(peer, workload), theirs, workload)
            print(peer.name, workload, took, file=sys.stderr, flush=True)
            found[workload] = took
        return found

    def _answer(self, peer: Peer, workload: str) -> Path:
        return self.place / "answers" / f"{peer.name} {workload}".replace(" ", "-").replace(",", "")

    def _run(self, peer: Peer, workload: str) -> Answer:
        try:
            there = start(peer.home, HERE / peer.script, self.homes)
        except NotInstalledError as why:
            return {FAILED: str(why)}
        command = [*there.command, workload, str(self.place), str(self._answer(peer, workload))]
        environment = there.environment | peer.environment
        return run_within(command, environment, self.seconds)


def _differences(ours: Path, theirs: Path, workload: str) -> tuple[int, int]:
    """Rows that are missing and rows in addition; sums of floats may differ by a billionth."""
    import duckdb

    start, stop = (f"{name}::TIMESTAMP AS {name}" for name in ("start", "stop"))
    kept = f"key, {start}, n, round(s, 6) AS s"
    if workload == "W2":
        kept = f"key, left_value, right_value, {start}, {stop}"
    with duckdb.connect() as connection:
        connection.sql("SET TimeZone = 'UTC'")
        sides = [
            f"SELECT {kept} FROM read_parquet([{', '.join(repr(str(f)) for f in _files(folder))}])"
            for folder in (theirs, ours)
        ]
        counts = []
        for first, second in (sides, sides[::-1]):
            sql = f"SELECT count(*) AS n FROM ({first} EXCEPT ALL {second})"
            counts.append(int(connection.sql(sql).to_arrow_table()["n"][0].as_py()))
    return counts[0], counts[1]


def _files(folder: Path) -> list[Path]:
    """Whatever their names are; what begins with a dot is not finished."""
    return [file for file in sorted(folder.rglob("*")) if file.is_file() and file.name[0] not in "._"]


def _table(found: dict[Peer, dict[str, Answer]], events: int) -> Table:
    table = Table("", "peer", title=f"{events:,} events; rates and ratios are of processor time, all cores")
    for column in ("events/s", f"× {OURS.name}", "processor s", "wall s", "peak MB", "agreement"):
        table.add_column(column, justify="right")
    for workload in WORKLOADS:
        for peer, workloads in found.items():
            cells = _cells(workloads.get(workload), found[OURS][workload], events)
            table.add_row(workload if peer is JUDGE else "", peer.name, *cells)
        table.add_section()
    return table


def _cells(took: Answer | None, ours: Answer, events: int) -> list[str]:
    if took is None:
        return ["cannot say it"]
    if FAILED in took:
        return [took[FAILED]]
    cpu, (missing, extra) = net(took), took["wrong"]
    return [
        f"{events / cpu:,.0f}",
        "" if FAILED in ours else f"{net(ours) / cpu:.2f}",
        f"{cpu:.1f}",
        f"{net(took, 'seconds'):.1f}",
        f"{took['peak_mb']:,.0f}",
        "equal" if not missing and not extra else f"{missing} missing, {extra} extra",
    ]


if __name__ == "__main__":
    main()
