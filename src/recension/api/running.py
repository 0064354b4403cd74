"""Running queries on the local engine."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

from recension.api.base import StreamBase, plan_of
from recension.core.errors import RecensionError, TimeError
from recension.core.memory_pool import open_pool
from recension.core.ticks import DurationLike, duration
from recension.core.wall_clock import Clock, now
from recension.plan.rewrites.repeat_calls import repeat_calls
from recension.runners.answers import HISTORY_LIMIT
from recension.runners.finite import run as run_plan
from recension.runners.local import BATCH_SIZE, Session
from recension.runners.recorder import EdgeChoice, Recorder
from recension.runners.result import Result


def run(
    query: StreamBase,
    inputs: Mapping[str, Any],
    *,
    batch_size: int = BATCH_SIZE,
    close: bool = False,
    clock: Clock = now,
    verify_modules: bool = False,
    workers: int = 1,
) -> Result:
    """Run a query over finite inputs on the local engine.

    Parameters
    ----------
    query
        A stream built with the API.
    inputs
        For each source by name: an Arrow table, a pandas or polars frame, a history, a result, a list of
        elements, or the path of files. A table must have every column of the source; other columns are
        ignored.
    batch_size
        How many elements of an input are processed at a time; inputs are read in turn.
    close
        Close every input at its end. Otherwise an input that stops may still continue later; only a plain
        table (without a ``_kind`` column) is always closed.
    clock
        Returns microseconds since 1970, for queries that use the wall clock.
    verify_modules
        Call every user-defined module and function twice, and stop if the two results differ.
    workers
        How many processes share the work, see `session`.

    >>> import recension as rc
    >>> s = rc.source("s", {"user": "string"})
    >>> out = rc.run(s.agg(n=rc.count()), {"s": [rc.Insert({"user": "ann"}, 1, 5), rc.Cti(9)]})
    >>> out.show()
    _vs  _ve  n
    1    5    1
    """
    plan = repeat_calls(plan_of(query, "run")) if verify_modules else plan_of(query, "run")
    return run_plan(plan, inputs, batch_size=batch_size, close=close, clock=clock, workers=workers)


def session(
    *queries: StreamBase,
    batch_size: int = BATCH_SIZE,
    clock: Clock = now,
    verify_modules: bool = False,
    history_limit: int | None = HISTORY_LIMIT,
    keep: DurationLike = 0,
    memory: str | int | None = None,
    spill: str | PathLike[str] | None = None,
    workers: int = 1,
    **named: StreamBase,
) -> Session:
    """A session that runs one query, or several by name, while you push data to their sources.

    Common steps of the queries are computed once. ``clock`` returns microseconds since 1970; queries that use
    the wall clock read it at every push and read, and at ``tick()``. ``verify_modules`` calls every
    user-defined module and function twice. The history of each answer is kept for ``session.history()`` until
    it has more than ``history_limit`` events; with None it has no limit, with 0 it is not kept. ``keep`` says
    how far back ``session.history(as_of=...)`` can look, by the clock: the session keeps its output for that
    long, with its time.

    ``memory`` bounds how much of the state is in memory (``"512MB"``, ``"2GiB"``). The rest is in files in
    the directory ``spill``, by default the directory for temporary files; work on it is slower.

    With ``workers`` the steps run in that many processes, each with a share of the keys. A push then returns
    before its output is computed; reading waits for it. A query without keys runs in this process, and
    ``session.explain()`` says why. The processes are forked from this one and end with the session: when it
    is closed, stopped, no longer held, or at the end of a ``with`` block.

    >>> import recension as rc
    >>> s = rc.source("s", {"user": "string"})
    >>> live = rc.session(s.agg(n=rc.count(), speculate="eager"))
    >>> live.push("s", [rc.Insert({"user": "ann"}, 1, 5)])
    >>> [str(element) for element in live.read().elements()]
    ["insert [1, 5) {'n': 1}"]
    """
    plans = {f"query {i}" if i else "query": plan_of(q, "session") for i, q in enumerate(queries)}
    if clash := next((name for name in named if name in plans), None):
        raise RecensionError(
            f"session: a query without a name is called {clash!r}, and so is another: name all of them"
        )
    plans |= {name: plan_of(q, "session") for name, q in named.items()}
    if not plans:
        raise RecensionError("session: give it at least one query, such as rc.session(stream)")
    if verify_modules:
        plans = {name: repeat_calls(plan) for name, plan in plans.items()}
    made = Session(
        *(plans, batch_size, clock, history_limit),
        pool=open_pool(memory, spill),
        keep=_keep(keep),
        workers=workers,
    )
    return made.warn_of_meaning()


def record(
    session: Session, path: str | PathLike[str], *, edges: EdgeChoice = "ends", limit: str | int = "1GiB"
) -> Recorder:
    """Record a session from now on: the elements on the edges of its plan, with the step in which they came.

    The streams go to Arrow files in a new directory; `rc.read_recording` and ``recension inspect`` read them,
    also while they grow. ``edges`` are ``"ends"`` (the sources and the answers), ``"all"``, or a list of
    names as `explain` shows them. When the files are larger than ``limit``, the oldest steps are deleted and
    counted. The recording ends with ``close()``, at the end of a ``with`` block, or with the program.
    Restoring a snapshot ends it, and so does a full disk, with a warning in the log. The session itself
    continues.

    >>> import recension as rc, tempfile
    >>> s = rc.source("s", {"user": "string"})
    >>> live = rc.session(s.agg(n=rc.count(), speculate="eager"))
    >>> with rc.record(live, tempfile.mkdtemp()) as recorder:
    ...     live.push("s", [rc.Insert({"user": "ann"}, 1, 5), rc.Cti(9)])
    >>> rc.read_recording(recorder.path).stream("query").history().show()
    _vs  _ve  n
    1    5    1
    """
    if not isinstance(session, Session):
        raise RecensionError(f"record: a session is needed, as rc.session(query) gives, not {session!r}")
    return session.record(path, edges, limit)


def _keep(length: DurationLike) -> int:
    """A length of time by the clock, from 0."""
    try:
        ticks = duration(length)
    except TimeError as why:
        raise TimeError(f"session: keep: {why}") from None
    if ticks < 0:
        raise TimeError(f"session: keep is a length of time from 0, not {length!r}")
    return ticks
