"""What ``recension inspect`` shows: a recording, or a temporary one that is made from the input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from math import ceil
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self

from recension.cli.inputs import open_inputs, parse_inputs, refuse_versions, report_dropped
from recension.cli.progress import show_progress
from recension.cli.query_file import FRONT_ENDS, load_query, split_query
from recension.core.batch import concat
from recension.core.errors import RecensionError
from recension.core.formats.changelog import MARK
from recension.core.time_kind import KnownKind
from recension.gate.files import MicroBatches, open_stream, read_micro_batches
from recension.plan.node import Node, walk
from recension.plan.source import Source
from recension.runners.finite import push_inputs
from recension.runners.local import Session
from recension.runners.recording import Recording, is_recording, read_recording

# So many steps are enough to step through.
_STEPS: Final = 2_000


@dataclass(frozen=True)
class InspectedRecording:
    """A recording, which can be read again while it grows; and the query, if it is known."""

    read: Callable[[], Recording]
    query: Node | None = None


@contextmanager
def open_recording(
    target: str, inputs: Sequence[str], batch_size: int | None, *, close: bool
) -> Iterator[InspectedRecording]:
    """The recording to show; a temporary one if the path is not a recording."""
    is_query = split_query(target)[0].suffix in FRONT_ENDS
    if inputs and not is_query:
        raise RecensionError(f"--input is for a query, and {target} is not one: queries are .py files")
    if is_recording(Path(target)):
        yield InspectedRecording(partial(read_recording, target))
        return
    with TemporaryDirectory(prefix="recension-") as folder:
        made = Path(folder) / "recording"
        if not is_query and (log := read_micro_batches(target)) is not None:
            with _FollowedChangelog(made, Path(target), log) as followed:
                yield InspectedRecording(followed.read)
            return
        if is_query:
            plan, paths = load_query(target).plan, parse_inputs(inputs)
            refuse_versions(paths, plan)
        else:
            name = Path(target).stem
            plan, paths = Source(name, open_stream(Path(target)).schema), {name: Path(target)}
        _record_run(made, plan, paths, batch_size or _choose_size(plan, paths), close=close)
        yield InspectedRecording(partial(read_recording, made), plan)


@contextmanager
def open_checkpoint(checkpoint: Path, target: str | None) -> Iterator[InspectedRecording]:
    """The query of a checkpoint, with its recording, its changelog or the given path."""
    # Spark's modules are loaded if they are used.
    from recension.runners.spark.checkpoint_view import CheckpointReader
    from recension.runners.spark.query_numbers import empty_manifest

    reader = CheckpointReader(checkpoint)
    tables = reader.tables()
    there = [
        tables[name] for name in ("record", "changelog") if name in tables and Path(tables[name]).is_dir()
    ]
    with ExitStack() as stack:
        place = target or next(iter(there), None)
        found = None if place is None else stack.enter_context(open_recording(place, [], None, close=False))

        def read() -> Recording:
            view, plan = reader.view(), reader.plan()
            ends = {"queries": {"query": 0}, "sources": _sources(plan)}
            if found is None:
                recording = Recording(checkpoint, empty_manifest(checkpoint, plan, ends))
            else:
                recording = found.read()
                if len(recording.manifest["plan"]) == 1:  # a changelog has the answer alone
                    recording = replace(recording, manifest=recording.manifest | {"plan": plan} | ends)
            told = {
                "notes": view.notes,
                "numbers": view.numbers,
                "spark": recording.manifest.get("spark", {}),
            }
            return replace(recording, manifest=recording.manifest | told)

        yield InspectedRecording(read)


def _sources(plan: list[dict[str, Any]]) -> dict[str, int]:
    return {str(step["label"]): int(step["id"]) for step in plan if not step["inputs"] and step["id"]}


def _record_run(made: Path, plan: Node, paths: dict[str, Path], size: int, *, close: bool) -> None:
    """Run a query over files and record all of it."""
    session = Session({"query": plan}, size, history_limit=0)
    readers = open_inputs(paths, plan, session.unchecked_sources, size)
    with session.record(made, "all"), show_progress("running") as meter:
        for taken, _ in enumerate(push_inputs(session, readers, batch_size=size, close=close), start=1):
            session.read()
            meter.say(f"running: {taken:,} batches read")
    report_dropped(session.counts())


class _FollowedChangelog:
    """What a query on Spark has written: one step per micro-batch, with its time, as it grows."""

    def __init__(self, made: Path, path: Path, log: MicroBatches) -> None:
        self._made, self._path, self._name, self._now = made, path, path.name, -1
        times, source = KnownKind(log.time_type), Source(path.name, log.schema)
        self._session = Session({path.name: source}, history_limit=0, clock=lambda: self._now, times=times)
        self._recorder = self._session.record(made, "all")
        self._mark: bytes | None = None

    def read(self) -> Recording:
        """The recording, with what was written since the last time."""
        mark = (self._path / MARK).read_bytes()
        if mark != self._mark and (log := read_micro_batches(self._path, after=self._now)) is not None:
            for self._now, pieces in groupby(log.batches, key=itemgetter(0)):
                self._session.feed(self._name, concat([batch for _, batch in pieces]))
                self._session.read()
            self._recorder.flush()
            self._mark = mark
        return read_recording(self._made)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *why: object) -> None:
        self._recorder.close()


def _choose_size(plan: Node, paths: dict[str, Path]) -> int:
    """One element per step, or more if that would be too many steps."""
    unchecked = {node.name for node in walk(plan) if isinstance(node, Source)}
    readers = open_inputs(paths, plan, unchecked, 1 << 16)
    return ceil(max(1, sum(len(batch) for reader in readers.values() for batch in reader)) / _STEPS)
