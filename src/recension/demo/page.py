"""The page: the verdict, the numbers, the figures; style and shapes are in it, nothing is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Final

import recension as rc
from recension.demo.drawing import style_of
from recension.demo.figures import final_times, lag, lives, one_site, revisions
from recension.demo.leases import SITES
from recension.demo.plans import POLICY, common_properties, first_plan, other_plan
from recension.demo.trace import MERGED, Trace
from recension.demo.verdict import ENGINES, StreamSummary, Verdict, describe_final, key_figures
from recension.lowering import describe_choice
from recension.plan.node import Node
from recension.plan.properties import describe_properties
from recension.plan.rewrites import optimize
from recension.plan.schemas import describe_columns

_COLUMNS: Final = ("", "new answers", "revisions", "final up to", "answers it missed", "left wrong")
_LEAD: Final = (
    "Three servers report it, each in its own order, with its own mistakes, and one of them with a gap. "
    "Three replicas of one query count the devices online at each site, all the time. North is killed at "
    "work, west joins late, south is cut over to another plan. A merge reads all their outputs, and makes "
    "one stream of them."
)

_CAPTIONS: Final = {
    "lives": (
        "When each stream put something out",
        "Each dot is a micro-batch, its size the changes in it. Above, the hours of the day as the feeds "
        "send them; below, the seconds of the run, the first of which warm everything up.",
    ),
    "final-times": (
        "Up to when answers are final",
        "The merged stream is as far as the furthest of its inputs; when that one dies, the next carries on. "
        "The dashed line is how far the feeds are.",
    ),
    "lag": ("Lag", "How many minutes of the day have been sent and are not final yet."),
    "revisions": (
        "New answers and revisions",
        "Upwards the new answers of a micro-batch, downwards those taken back or corrected; each stream on "
        "its own scale.",
    ),
    "one-site": (
        "One site, as each stream has it",
        "Devices online at the library, at a moment after north has died and before the cut-over. What is "
        "outlined in red turned out otherwise in the end.",
    ),
    "plans": (
        "The plans, and what is known of every step",
        "Both plans answer the same question. What is known of the answers of both chooses the algorithm of "
        "the merge.",
    ),
}


_STEP_THROUGH = "The run can be stepped through, forwards and backwards, on the page beside this one:"


def page(trace: Trace, verdict: Verdict, engine: str, inspector: str) -> str:
    """The whole report as HTML; it names the file in which the inspector shows the run."""
    style = files("recension.demo").joinpath("page.css").read_text(encoding="utf-8")
    title = "One answer out of replicas that disagree"
    body = "".join(
        [
            f"<h1>{title}</h1>",
            _lead(verdict, engine),
            _verdict(verdict),
            _numbers(verdict),
            _table(trace, verdict),
            _late_lease(verdict),
            *_figures(trace, verdict),
            f"<footer>{_STEP_THROUGH} <code>{escape(inspector)}</code>. "
            "Written by <code>recension demo</code>.</footer>",
        ]
    )
    head = f'<meta charset="utf-8"><title>Recension: {title}</title><style>{style}</style>'
    view = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head>{head}{view}</head><body><main>{body}</main></body></html>\n'
    )


def _lead(verdict: Verdict, engine: str) -> str:
    happened = f"On one day {verdict.leases:,} devices held an address at one of {len(SITES)} sites."
    return f"<p>{happened} {_LEAD} It ran on {escape(ENGINES[engine])}.</p>"


def _verdict(verdict: Verdict) -> str:
    style, word = ("right", "yes") if verdict.is_right else ("failed", "NO")
    details = "" if verdict.is_right else f"<pre>{escape(str(verdict.difference))}</pre>"
    return f'<p class="verdict {style}">Merged history equals the batch answer: <b>{word}</b></p>{details}'


def _numbers(verdict: Verdict) -> str:
    tiles = [
        f"<div><b>{escape(value)}</b><span>{escape(what)}</span></div>"
        for what, value in key_figures(verdict)
    ]
    return f'<div class="numbers">{"".join(tiles)}</div>'


def _table(trace: Trace, verdict: Verdict) -> str:
    head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
    rows = "".join(_row(trace, stream) for stream in [*verdict.inputs, verdict.output])
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _row(trace: Trace, stream: StreamSummary) -> str:
    numbers = (stream.answers, stream.revisions)
    cells = [*(f"{n:,}" for n in numbers), describe_final(stream), f"{stream.missed:,}", f"{stream.wrong:,}"]
    name = f'<span class="key {style_of(stream.name, trace.streams)}"></span>{escape(stream.name)}'
    return f"<tr><th>{name}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _late_lease(verdict: Verdict) -> str:
    """Why one answer was wrong at noon, if one was."""
    if verdict.late_lease is None:
        return ""
    told = "<br>".join(map(escape, verdict.late_lease.tell()))
    return f'<section id="why"><h2>Wrong at noon: why?</h2><p>{told}</p></section>'


def _figures(trace: Trace, verdict: Verdict) -> list[str]:
    key = _key([*trace.streams, MERGED], trace.streams)
    return [
        _figure("lives", lives(trace)),
        _figure("final-times", key + final_times(trace)),
        _figure("lag", key + lag(trace)),
        _figure("revisions", revisions(trace)),
        _figure("one-site", one_site(trace, verdict.truth)),
        _figure("plans", _plans()),
    ]


def _figure(name: str, content: str) -> str:
    title, caption = _CAPTIONS[name]
    words = f"<h2>{escape(title)}</h2><figcaption>{escape(caption)}</figcaption>"
    return f'<figure id="{name}">{words}{content}</figure>'


def _key(names: Sequence[str], streams: Sequence[str]) -> str:
    entries = [f'<span><i class="key {style_of(name, streams)}"></i>{escape(name)}</span>' for name in names]
    return f'<p class="legend">{"".join(entries)}</p>'


def _plans() -> str:
    """Two plans side by side, and the merge that reads the replicas that run them."""
    answers = first_plan().schema
    merge = rc.merge(rc.source("all replicas", answers, properties=common_properties()), policy=POLICY)
    columns = [
        _column("the first plan: north, south, west", first_plan()),
        _column("the other plan: south-2", other_plan()),
    ]
    return f'{_step(_optimize(merge))}<div class="plans">{"".join(columns)}</div>'


def _optimize(query: rc.Stream) -> Node:
    (root,) = optimize([query.plan])
    return root


def _column(title: str, query: rc.Stream) -> str:
    steps = "".join(_step(node) for node in _downwards(_optimize(query)))
    return f'<div class="plan"><h4>{escape(title)}</h4>{steps}</div>'


def _downwards(node: Node) -> list[Node]:
    """From the answer to the source: these plans do not branch."""
    return [node, *(below for child in node.inputs for below in _downwards(child))]


def _step(node: Node) -> str:
    facts = [("columns", describe_columns(node.schema)), ("known", describe_properties(node.properties))]
    if choice := describe_choice(node):
        facts.append(("chosen", choice))
    rows = "".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    return f'<div class="step"><strong>{escape(node.label)}</strong><dl>{rows}</dl></div>'
