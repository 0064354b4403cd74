"""Seals: by the size and a digest of its bytes a damaged or exchanged file of a table is noticed.

Small JSON files (a manifest, a changelog's mark) carry their own; data files are sealed by the file that
names them. A seal guards against accidents, not against somebody who writes a new one.
"""

from __future__ import annotations

import json
import re
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any, Final

from recension.core.errors import FormatError
from recension.core.formats.place import reading

_DIGEST: Final = "digest"
_BYTES: Final = 16
_SEAL: Final = re.compile(rf"[0-9]+:[0-9a-f]{{{2 * _BYTES}}}")


def digest_of(*parts: str) -> str:
    """One short text for several: other parts give another."""
    whole = blake2b(digest_size=_BYTES)
    for part in parts:
        given = part.encode("utf-8", "surrogatepass")
        whole.update(f"{len(given)}:".encode() + given)
    return whole.hexdigest()


def seal_of(file: Path) -> str:
    """The seal of a file that is complete."""
    with reading(str(file)), file.open("rb") as opened:
        digest = file_digest(opened, lambda: blake2b(digest_size=_BYTES)).hexdigest()
        return f"{opened.tell()}:{digest}"


def is_seal(seal: object) -> bool:
    """Is it what `seal_of` gives?"""
    return isinstance(seal, str) and _SEAL.fullmatch(seal) is not None


def require_size(file: Path, seal: str) -> None:
    """Refuse a file that cannot be the one that was sealed, without reading it; no seal, no check."""
    if seal:
        with reading(str(file)):
            size = file.stat().st_size
        if str(size) != seal.partition(":")[0]:
            raise FormatError(_other(f"it has {size:,} bytes"), file=str(file))


def require_seal(file: Path, seal: str) -> None:
    """Refuse a file that is not, byte for byte, the one that was sealed; no seal, no check."""
    require_size(file, seal)
    if seal and seal_of(file) != seal:
        raise FormatError(_other("its bytes have changed"), file=str(file))


def _other(how: str) -> str:
    return f"not the file that was written here: {how}; restore the table from a backup, or compute it anew"


def sealed_json(stored: dict[str, Any]) -> str:
    """A JSON text that tells whether it was damaged."""
    return json.dumps({**stored, _DIGEST: _json_digest(stored)}, indent=1)


def opened_json(text: str, sealed_format: str) -> dict[str, Any]:
    """What such a text says; a ValueError if it is not what was written. Older formats have no digest."""
    try:
        stored = json.loads(text)
    except RecursionError:
        raise ValueError(text) from None
    if not isinstance(stored, dict):
        raise ValueError(text)
    digest = stored.pop(_DIGEST, None)
    is_sealed = digest is not None or stored.get("format") == sealed_format
    if is_sealed and digest != _json_digest(stored):
        raise ValueError(text)
    return stored


def _json_digest(stored: dict[str, Any]) -> str:
    return digest_of(json.dumps(stored, sort_keys=True))
