"""What the page gets of recordings: the plan in words, and the elements as columns.

Numbers travel as the bytes of little-endian arrays in base64: int64 times are exact that way, which JSON
numbers are not in a browser. A payload column is codes into a list of texts. Text is data: nothing here or on
the page makes markup of it.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recension.core.batch import KIND_NAMES
from recension.core.formats.columns import BATCH, CONTROL, KIND, NEW_VE, SEQ, VE, VS
from recension.core.ticks import FOREVER
from recension.core.values import values_of
from recension.runners.recording import Recording

LIMIT: Final = 200_000
"""How many elements a page shows unless it is told otherwise; a browser draws them without a stutter."""
_LONGEST: Final = 2_000
_NULL: Final = 0xFFFFFFFF
_DESCRIBED: Final = ("label", "columns", "known", "chosen")
_MEASURED: Final = (
    "state_rows",
    "state_bytes",
    "dropped",
    "late",
    "seconds",
    "warnings",
    "events_out",
    "retractions_out",
)


@dataclass(frozen=True)
class Shown:
    """Recordings on one page, each with a name; the first is the one that is looked at."""

    title: str
    recordings: Sequence[tuple[str, Recording]]
    limit: int = LIMIT

    def whole(self) -> dict[str, Any]:
        """All that the page needs."""
        after, left_out = self._cut()
        said = []
        if left_out:
            said.append(
                f"this page has at most the last {self.limit:,} elements, and not the {left_out:,} that came "
                "before; --limit shows more"
            )
        return {
            "title": self.title,
            "left_out": said,
            "times": self._times(),
            "unit": "micro-batch" if self.recordings[0][1].is_by_micro_batch else "step",
            "plan": [self._describe(at, vertex) for at, vertex in self._vertices()],
            **self.since(after),
        }

    def since(self, after: int) -> dict[str, Any]:
        """What came after a step."""
        steps, edges = dict[int, tuple[int, str | None]](), dict[str, Any]()
        for number, (_, recording) in enumerate(self.recordings):
            # Read before the elements: of a step that is being written, nothing is shown yet.
            table = recording.steps(after)
            moments = table["at"].cast(pa.int64()).to_pylist()
            came = list(zip(moments, table["source"].to_pylist(), strict=True))
            steps = dict(zip(table["step"].to_pylist(), came, strict=True)) | steps
            for edge in recording.edges if len(table) else []:
                rows = recording.rows(edge, after)
                if rows is not None:
                    rows = rows.filter(pc.less_equal(rows[BATCH], table["step"][-1]))
                    edges[edge_id(number, edge)] = encode_elements(rows)
        order = sorted(steps)
        return {
            "steps": encode_numbers(np.array(order, np.int64), "<u4"),
            "at": encode_numbers(np.array([steps[step][0] for step in order], np.int64), "<i8"),
            "fed": [steps[step][1] for step in order],
            "edges": {edge: found for edge, found in edges.items() if found["size"]},
            "measured": {
                edge_id(at, int(vertex["id"])): _measured(vertex) for at, vertex in self._vertices()
            },
            "notes": [note for name, one in self.recordings for note in self._say(name, one.describe())],
            "numbers": [row for _, one in self.recordings for row in one.manifest.get("numbers", [])],
            "live": any(one.manifest["ended"] is None for _, one in self.recordings),
        }

    def _say(self, name: str, said: list[str]) -> list[str]:
        return said if len(self.recordings) == 1 else [f"{name}: {line}" for line in said]

    def _cut(self) -> tuple[int, int]:
        """The step after which the page begins, and how many elements came before."""
        steps = [
            rows[BATCH].to_numpy()
            for _, one in self.recordings
            for edge in one.edges
            if (rows := one.rows(edge)) is not None
        ]
        every = np.sort(np.concatenate([np.zeros(0, np.int64), *steps]))
        if len(every) <= self.limit:
            return 0, 0
        # A step is shown whole or not at all; the last one is shown whatever its size.
        first = min(int(every[-self.limit - 1]), int(every[-1]) - 1)
        return first, int(np.searchsorted(every, first, side="right"))

    def _times(self) -> str:
        """How times are written: ``ticks``, ``naive``, or the name of a zone."""
        for _, one in self.recordings:
            for edge in one.edges:
                if (rows := one.rows(edge)) is not None:
                    kind = rows.schema.field(VS).type
                    if pa.types.is_timestamp(kind):
                        return kind.tz or "naive"
        return str(self.recordings[0][1].manifest.get("times", "ticks"))

    def _vertices(self) -> list[tuple[int, dict[str, Any]]]:
        return [
            (number, vertex)
            for number, (_, one) in enumerate(self.recordings)
            for vertex in one.manifest["plan"]
        ]

    def _describe(self, number: int, vertex: dict[str, Any]) -> dict[str, Any]:
        name, recording = self.recordings[number]
        edge = int(vertex["id"])
        is_source, is_answer = edge in recording.sources.values(), edge in recording.queries.values()
        return {
            "id": edge_id(number, edge),
            "of": name if len(self.recordings) > 1 else None,
            "name": recording.name_of(edge),
            "role": "source" if is_source else "answer" if is_answer else "step",
            "kind": "stream" if is_source and is_answer else None,
            "is_answer": is_answer,
            "inputs": [edge_id(number, i) for i in vertex["inputs"]],
            "recorded": edge in recording.edges,
            **{key: vertex.get(key) for key in _DESCRIBED},
        }


def _measured(vertex: dict[str, Any]) -> dict[str, Any]:
    """What a step holds and has done; its CTI as text, since it may be too long for a number there."""
    return {key: vertex.get(key) for key in _MEASURED} | {"cti": str(vertex["cti"])}


def edge_id(recording: int, edge: int) -> str:
    """How the page calls an edge of one of its recordings."""
    return f"{recording}:{edge}"


def split_edge_id(given: str) -> tuple[int, int]:
    """The recording and the edge; a ValueError if it is none."""
    recording, _, edge = given.partition(":")
    return int(recording), int(edge)


def encode_elements(rows: pa.Table) -> dict[str, Any]:
    """The elements of an edge, by column."""
    kinds = pa.array(KIND_NAMES)
    times = {
        name: rows[name].combine_chunks().cast(pa.int64()).fill_null(FOREVER) for name in (VS, VE, NEW_VE)
    }
    return {
        "first": rows[SEQ][0].as_py() if len(rows) else 0,
        "size": len(rows),
        "step": encode_numbers(rows[BATCH].to_numpy(), "<u4"),
        "kind": encode_numbers(pc.index_in(rows[KIND], kinds).to_numpy(), "<u1"),
        **{name[1:]: encode_numbers(column.to_numpy(), "<i8") for name, column in times.items()},
        "columns": [
            {"name": name, **encode_texts(rows[name])} for name in rows.column_names if name not in CONTROL
        ],
    }


def encode_texts(column: pa.ChunkedArray) -> dict[str, Any]:
    """A column as codes into a list of texts, which differ."""
    whole = column.combine_chunks()
    try:
        found = whole.dictionary_encode()
        values = values_of(found.dictionary)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        given = [None if value is None else str(value) for value in values_of(whole)]
        found = pa.array(given, pa.string()).dictionary_encode()
        values = values_of(found.dictionary)
    numbers = found.indices.cast(pa.int64()).fill_null(_NULL).to_numpy(zero_copy_only=False)
    return {"codes": encode_numbers(numbers, "<u4"), "texts": [show_value(value) for value in values]}


def show_value(value: Any) -> str:
    """A value as text; one that is too long for a page is cut, with what tells it from others."""
    text = str(value)
    if len(text) <= _LONGEST:
        return text
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{text[:_LONGEST]}… ({len(text):,} characters, digest {digest})"


def encode_numbers(numbers: Any, kind: str) -> str:
    """The bytes of an array in base64."""
    return b64encode(np.ascontiguousarray(numbers).astype(kind).tobytes()).decode("ascii")
