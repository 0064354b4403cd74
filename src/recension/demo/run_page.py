"""The run of the demo in the inspector: what every replica said, and what the merge made of it, when."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory

from recension.core.time_kind import NAIVE, KnownKind
from recension.demo.trace import MERGED, Trace
from recension.inspector.export import page_in_one_file
from recension.inspector.page_data import Shown
from recension.plan.source import Source
from recension.runners.local import Session
from recension.runners.recording import read_recording


def run_page(trace: Trace) -> str:
    """The page as one file: every output of a stream is a step, at its time."""
    schema = trace.outputs[0].batch.schema
    streams = {name: Source(name, schema) for name in [*trace.streams, MERGED]}
    now = [0]
    session = Session(streams, clock=lambda: now[0], times=KnownKind(NAIVE), history_limit=0)
    with TemporaryDirectory(prefix="recension-") as folder:
        with session.record(Path(folder) / "run", "all", 1 << 40):
            for output in sorted(trace.outputs, key=attrgetter("at")):
                now[0] = int((trace.began + output.at) * 1e6)
                session.feed(output.stream, output.batch)
        shown = Shown(
            "Replicas that disagree, and one answer", [("demo", read_recording(Path(folder) / "run"))]
        )
        return page_in_one_file({**shown.whole(), "live": False})
