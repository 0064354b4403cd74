"""What a manifest of a recording must be: read once, so that nobody who uses it meets anything else."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping
from graphlib import TopologicalSorter
from math import isfinite
from typing import Any, Final

import pyarrow as pa

from recension.runners.recording_files import FORMAT, STEPS, SUM, manifest_sum

_NUMBERS: Final = ("state_rows", "state_bytes", "dropped", "late", "events_out", "retractions_out")


def find_fault(manifest: Any) -> str | None:
    """What is wrong with a manifest; None if nothing is."""
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        return "not a recording that this version can read"
    if SUM in manifest and manifest[SUM] != manifest_sum(manifest):
        return "damaged: it is not what was written"
    try:
        return _find_fault(manifest)
    except (KeyError, TypeError, ValueError, AttributeError):
        return "damaged: something is missing, or is not what it should be"


def _find_fault(stored: Mapping[str, Any]) -> str | None:
    """The same; what is not even of the form that is looked at is an error."""
    size = len(stored["plan"])
    # An input that joined a merge later has a later number, but none comes back to itself.
    TopologicalSorter({step["id"]: step["inputs"] for step in stored["plan"]}).prepare()
    edges = [*stored["edges"], *stored["sources"].values(), *stored["queries"].values()]
    is_sound = {
        "plan": isinstance(stored["plan"], list)
        and all(_is_step(number, size, step) for number, step in enumerate(stored["plan"])),
        "edges": all(_is_count(edge) and edge < size for edge in edges),
        "is_whole": isinstance(stored["is_whole"], bool),
        "limit": _is_count(stored["limit"]),
        "ended": isinstance(stored["ended"], str | None),
        "gone": _is_count(stored["gone"]["steps"]) and _are_counts(stored["gone"]["elements"]),
        "files": _are_files(stored["files"], {STEPS, *(f"edges/{edge}" for edge in stored["edges"])}),
        "notes": all(isinstance(note, str) for key in ("notes", "hidden") for note in stored.get(key, [])),
        "spark": _is_of_spark(stored.get("spark", {})),
        "times": isinstance(stored.get("times", ""), str),
    }
    wrong = next((name for name, is_good in is_sound.items() if not is_good), None)
    return None if wrong is None else f"damaged: {wrong!r} is not what it should be"


def _is_step(number: int, size: int, step: Mapping[str, Any]) -> bool:
    """A step of the plan."""
    return (
        _is_count(step["id"])
        and step["id"] == number
        and isinstance(step["label"], str)
        and all(_is_count(one) and one < size for one in step["inputs"])
        and isinstance(step["columns"], str)
        and _is_schema(step["schema"])
        and all(isinstance(step[name], str | None) for name in ("known", "chosen"))
        and all(_is_count(step[name]) for name in _NUMBERS)
        and isinstance(step["seconds"], int | float)
        and isfinite(step["seconds"])
        and isinstance(step["cti"], int)
        and all(isinstance(warning, str) for warning in step["warnings"])
    )


def _is_of_spark(stored: Mapping[str, Any]) -> bool:
    """Which query it is of, and how far; a view of a query's numbers has nothing of it."""
    return not stored or (
        isinstance(stored["pipeline"], str)
        and isinstance(stored["query"], str | None)
        and isinstance(stored["last"], int)
        and all(_is_count(number) and isinstance(content, str) for number, content in stored["recent"])
        and all(isinstance(t, int) for ctis in stored["ctis"].values() for t in ctis)
    )


def _is_schema(stored: str) -> bool:
    try:
        pa.ipc.read_schema(pa.py_buffer(b64decode(stored, validate=True)))
    except (Base64Error, pa.ArrowException, OSError):
        return False
    return True


def _are_files(stored: Mapping[str, Any], folders: set[str]) -> bool:
    """How far the files count."""
    fulls = [(number, size, steps, written) for number, size, steps, written in stored["full"]]
    numbers = [full[0] for full in fulls]
    return (
        all(_is_count(stored[name]) for name in ("number", "steps"))
        and stored["open"].keys() <= folders
        and _are_counts(stored["open"], names=False)
        and _are_counts(stored["written"])
        and _are_counts(stored["numbered"])
        and all(_is_count(one) for full in fulls for one in full[:3])
        and all(_are_counts(full[3]) for full in fulls)
        and numbers == sorted({*numbers})
        and all(number < stored["number"] for number in numbers)
    )


def _are_counts(stored: Mapping[str, Any], *, names: bool = True) -> bool:
    """Counts by the number of an edge, or by any name."""
    return all(_is_count(count) and (not names or name.isdecimal()) for name, count in stored.items())


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
