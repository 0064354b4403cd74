"""What is said above the figures."""

from __future__ import annotations

from typing import Final

LEAD: Final = (
    "Three servers tell of it, each in its own order, with its own mistakes, and one of them with a gap. "
    "Three replicas of one query count the devices online at each site, all the time. North is killed at "
    "work, west joins late, south is cut over to another plan. A merge reads whatever they say, and makes "
    "one stream of it."
)

CAPTIONS: Final = {
    "lives": (
        "Who spoke when",
        "Each dot is a micro-batch, its size the changes in it. Above, the hours of the day as the feeds "
        "tell them; below, the seconds of the run, the first of which warm everything up.",
    ),
    "promises": (
        "Up to when answers are final",
        "The merged stream is as far as the furthest of its inputs; when that one dies, the next carries on. "
        "The dashed line is how far the feeds are.",
    ),
    "lag": ("Lag", "How many minutes of the day have been told and are not final yet."),
    "revisions": (
        "New answers and revisions",
        "Upwards the new answers of a micro-batch, downwards those taken back or corrected; each stream on "
        "its own scale.",
    ),
    "one-site": (
        "One site, as each stream tells it",
        "Devices online at the library, at a moment after north has died and before the cut-over. What is "
        "outlined in red turned out otherwise in the end.",
    ),
    "plans": (
        "The plans, and what is known of every step",
        "Both plans answer the same question. What is known of the answers of both chooses the algorithm of "
        "the merge.",
    ),
}
