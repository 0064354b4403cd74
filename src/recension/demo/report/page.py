"""The page: the verdict, the numbers, the figures; style and shapes are in it, nothing is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Final

from recension.demo.leases import SITES
from recension.demo.report.captions import CAPTIONS, LEAD
from recension.demo.report.drawing import style_of
from recension.demo.report.lives import lives
from recension.demo.report.one_site import one_site
from recension.demo.report.plan_tree import plans
from recension.demo.report.progress import lag, promises, revisions
from recension.demo.story import ENGINES, numbers, up_to
from recension.demo.trace import MERGED, Trace
from recension.demo.verdict import Verdict, Witness

_COLUMNS: Final = ("", "new answers", "revisions", "final up to", "answers it missed", "left wrong")


def page(trace: Trace, verdict: Verdict, engine: str) -> str:
    """The whole report as HTML."""
    style = files("recension.demo.report").joinpath("page.css").read_text(encoding="utf-8")
    title = "One answer out of replicas that disagree"
    body = "".join(
        [
            f"<h1>{title}</h1>",
            _lead(verdict, engine),
            _verdict(verdict),
            _numbers(verdict),
            _table(trace, verdict),
            *_figures(trace, verdict),
            "<footer>Written by <code>recension demo</code>.</footer>",
        ]
    )
    head = f'<meta charset="utf-8"><title>Recension: {title}</title><style>{style}</style>'
    view = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head>{head}{view}</head><body><main>{body}</main></body></html>\n'
    )


def _lead(verdict: Verdict, engine: str) -> str:
    happened = f"On one day {verdict.leases:,} devices held an address at one of {len(SITES)} sites."
    return f"<p>{happened} {LEAD} It ran on {escape(ENGINES[engine])}.</p>"


def _verdict(verdict: Verdict) -> str:
    style, word = ("right", "yes") if verdict.is_right else ("failed", "NO")
    shown = "" if verdict.is_right else f"<pre>{escape(str(verdict.difference))}</pre>"
    return f'<p class="verdict {style}">Merged history equals the batch answer: <b>{word}</b></p>{shown}'


def _numbers(verdict: Verdict) -> str:
    tiles = [
        f"<div><b>{escape(value)}</b><span>{escape(what)}</span></div>" for what, value in numbers(verdict)
    ]
    return f'<div class="numbers">{"".join(tiles)}</div>'


def _table(trace: Trace, verdict: Verdict) -> str:
    head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
    rows = "".join(_row(trace, witness) for witness in [*verdict.inputs, verdict.output])
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _row(trace: Trace, witness: Witness) -> str:
    numbers = (witness.answers, witness.revisions)
    cells = [*(f"{n:,}" for n in numbers), up_to(witness), f"{witness.missed:,}", f"{witness.wrong:,}"]
    name = f'<span class="key {style_of(witness.name, trace.streams)}"></span>{escape(witness.name)}'
    return f"<tr><th>{name}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _figures(trace: Trace, verdict: Verdict) -> list[str]:
    key = _key([*trace.streams, MERGED], trace.streams)
    return [
        _figure("lives", lives(trace)),
        _figure("promises", key + promises(trace)),
        _figure("lag", key + lag(trace)),
        _figure("revisions", revisions(trace)),
        _figure("one-site", one_site(trace, verdict.truth)),
        _figure("plans", plans()),
    ]


def _figure(name: str, content: str) -> str:
    title, caption = CAPTIONS[name]
    words = f"<h2>{escape(title)}</h2><figcaption>{escape(caption)}</figcaption>"
    return f'<figure id="{name}">{words}{content}</figure>'


def _key(names: Sequence[str], streams: Sequence[str]) -> str:
    entries = [f'<span><i class="key {style_of(name, streams)}"></i>{escape(name)}</span>' for name in names]
    return f'<p class="legend">{"".join(entries)}</p>'
