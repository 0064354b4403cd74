"""Steps of random plans that are users' modules over windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.properties.step import History, StepKind

import recension as rc
from recension import denote
from recension.testing.modules import Echo, Members, Total

UNTIL = 15
"""Windows need an end of the grid wherever events may never end."""


def _step(
    name: str,
    build: Callable[[Any], Any],
    meaning: Callable[[History], History],
    *,
    grouped: bool,
    eager: bool,
) -> StepKind:
    def builds(s: Any, t: Any) -> Any:
        made = build(s.group_by("k") if grouped else s)
        return made if grouped else made.select(k=rc.lit("all"), v=rc.col("v"))

    def means(s: History, t: History) -> History:
        if grouped:
            return denote.grouped(s, "k", meaning)
        return denote.select(meaning(s), k=lambda p: "all", v=lambda p: p["v"])

    label = f"{name}{' eager' if eager else ''}{' by k' if grouped else ''}"
    return StepKind(label, builds, means, is_immediate=eager)


def _echo(clip: Any, stamp: Any, windows: denote.Windows) -> Callable[[History], History]:
    def operator(events: History, window: Any) -> History:
        return [rc.Event({"v": e.payload["v"]}, e.vs, e.ve) for e in events]

    return lambda s: denote.window_apply(s, windows, operator, clip, stamp)


def _steps(*, grouped: bool, eager: bool) -> list[StepKind]:
    speculate = "eager" if eager else "perfect"
    total = denote.agg(v=denote.sum("v"))
    grid, pairs = denote.hopping(5, 2, 1, UNTIL), denote.count_window(2)
    kinds: list[tuple[str, Callable[[Any], Any], Callable[[History], History]]] = [
        (
            "module total over 5/2",
            lambda s: s.hopping(5, 2, offset=1, until=UNTIL).agg(v=Total(), speculate=speculate),
            lambda s: denote.window_aggregate(s, grid, total),
        ),
        (
            "module total over snapshots",
            lambda s: s.snapshot().agg(v=Total(), speculate=speculate),
            lambda s: denote.snapshot(s, total),
        ),
        (
            "module members of 2 starts",
            lambda s: s.count_window(2).apply(Members, speculate=speculate),
            _echo("none", "align", pairs),
        ),
        (
            "module total over sessions",
            lambda s: s.sessions(2).agg(v=Total(), speculate=speculate),
            lambda s: denote.window_aggregate(s, denote.sessions(2), total),
        ),
        (
            "module echo over sessions",
            lambda s: s.sessions(1).clip_input("none").stamp_output("keep").apply(Echo, speculate=speculate),
            _echo("none", "keep", denote.sessions(1)),
        ),
        (
            "module echo left keep",
            lambda s: (
                s.tumbling(4, until=UNTIL)
                .clip_input("left")
                .stamp_output("keep")
                .apply(Echo, speculate=speculate)
            ),
            _echo("left", "keep", denote.tumbling(4, 0, UNTIL)),
        ),
        (
            "module echo none clip",
            lambda s: s.snapshot().clip_input("none").stamp_output("clip").apply(Echo, speculate=speculate),
            _echo("none", "clip", denote.snapshot_windows()),
        ),
    ]
    return [_step(*kind, grouped=grouped, eager=eager) for kind in kinds]


MODULES = [*_steps(grouped=False, eager=True), *_steps(grouped=True, eager=False)]
