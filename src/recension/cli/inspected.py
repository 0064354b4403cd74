"""What ``recension inspect`` looks at: a recording, made for the while if it is not one already."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from math import ceil
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from recension.cli.inputs import open_inputs, parse_inputs, refuse_versions, report_dropped
from recension.cli.progress import show_progress
from recension.cli.query_file import load_query, split_query
from recension.core.batch import concat
from recension.core.errors import RecensionError
from recension.core.formats import open_stream
from recension.core.formats.reader import MicroBatches, read_micro_batches
from recension.core.time_kind import KnownKind
from recension.plan.node import Node, walk
from recension.plan.source import Source
from recension.runners.finite import push_inputs
from recension.runners.local import Session
from recension.runners.recording_files import MANIFEST

# So many steps are enough to step through.
_STEPS: Final = 2_000


@contextmanager
def open_recording(
    target: str, inputs: Sequence[str], batch_size: int | None, *, close: bool
) -> Iterator[tuple[Path, Node | None]]:
    """The directory of a recording, made for the while if the target is none; and the query, if known."""
    is_query = split_query(target)[0].suffix == ".py"
    if inputs and not is_query:
        raise RecensionError(f"--input is for a query, and {target} is not one: queries are .py files")
    if (Path(target) / MANIFEST).is_file():
        yield Path(target), None
        return
    with TemporaryDirectory(prefix="recension-") as folder:
        made = Path(folder) / "recording"
        if not is_query and (log := read_micro_batches(target)) is not None:
            yield _record_changelog(made, Path(target).name, log), None
            return
        if is_query:
            plan, paths = load_query(target).plan, parse_inputs(inputs)
            refuse_versions(paths, plan)
        else:
            name = Path(target).stem
            plan, paths = Source(name, open_stream(Path(target)).schema), {name: Path(target)}
        yield _record_run(made, plan, paths, batch_size or _choose_size(plan, paths), close=close), plan


def _record_run(made: Path, plan: Node, paths: dict[str, Path], size: int, *, close: bool) -> Path:
    """Run a query over files and record all of it."""
    session = Session({"query": plan}, size, history_limit=0)
    readers = open_inputs(paths, plan, session.unchecked_sources, size)
    with session.record(made, "all"), show_progress("running") as meter:
        for taken, _ in enumerate(push_inputs(session, readers, batch_size=size, close=close), start=1):
            session.read()
            meter.say(f"running: {taken:,} batches read")
    report_dropped(session.counts())
    return made


def _record_changelog(made: Path, name: str, log: MicroBatches) -> Path:
    """What a query on Spark has written, a micro-batch a step, each at its time."""
    now = [0]
    times = KnownKind(log.time_type)
    session = Session({name: Source(name, log.schema)}, history_limit=0, clock=lambda: now[0], times=times)
    with session.record(made, "all"):
        for now[0], pieces in groupby(log.batches, key=itemgetter(0)):
            session.feed(name, concat([batch for _, batch in pieces]))
            session.read()
    return made


def _choose_size(plan: Node, paths: dict[str, Path]) -> int:
    """One element a step, or more where that would be too many steps."""
    unchecked = {node.name for node in walk(plan) if isinstance(node, Source)}
    readers = open_inputs(paths, plan, unchecked, 1 << 16)
    return ceil(max(1, sum(len(batch) for reader in readers.values() for batch in reader)) / _STEPS)
