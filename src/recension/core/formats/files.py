"""Files: opened, checked and sealed, with errors of one line that say in which file and row a fault is.

A seal is the size of a file and a digest of its bytes: with it a damaged or exchanged file of a table is
noticed. Small JSON files (a manifest, a changelog's mark) carry their own; data files are sealed by the file
that names them. A seal guards against accidents, not against somebody who writes a new one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b, file_digest
from pathlib import Path
from stat import S_ISREG
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from recension.core.errors import FormatError, TimeError, first_failure

Convert: TypeAlias = Callable[[pa.Array], pa.Array]

_UNCONVERTIBLE: Final = (pa.ArrowInvalid, pa.ArrowNotImplementedError, TimeError)
_GZIP: Final = ".gz"
_AT_ONCE: Final = 1 << 20
_ASCII: Final = 0x80
_DIGEST: Final = "digest"
_DIGEST_BYTES: Final = 16
_SEAL: Final = re.compile(rf"[0-9]+:[0-9a-f]{{{2 * _DIGEST_BYTES}}}")


def describe_file_error(why: BaseException) -> str:
    """An error that may run over many lines, in one."""
    if isinstance(why, OSError) and why.errno:
        # Not why.strerror: Arrow writes more there than the system says.
        reason = os.strerror(why.errno)
        return reason[0].lower() + reason[1:]
    if isinstance(why, UnicodeError):
        return f"not UTF-8: {getattr(why, 'reason', why)}"
    text = " ".join(str(why).split()) or type(why).__name__
    # Arrow appends advice for its own callers and the place in its sources.
    return text.split(" Detail: ")[0].split(". If these timestamps")[0][:300]


@contextmanager
def format_errors(file: str) -> Iterator[None]:
    """Errors of the file system and of Arrow become errors that name the file."""
    try:
        yield
    except FormatError:
        raise
    except pa.ArrowCancelled:
        raise KeyboardInterrupt from None
    except MemoryError:
        # Lengths in a damaged file are anything; that there is no room for them is all one learns.
        raise FormatError("it needs more memory than there is; is it damaged?", file=file) from None
    except (OSError, pa.ArrowException, UnicodeError, OverflowError, TimeError) as why:
        raise FormatError(describe_file_error(why), file=file) from None


def require_regular(file: Path) -> None:
    """Refuse what is not a file, such as a pipe, which one would wait for, or a link that leads nowhere."""
    with format_errors(str(file)):
        mode = file.stat().st_mode
    if not S_ISREG(mode):
        raise FormatError("not a regular file", file=str(file))


def is_plain_name(name: object) -> bool:
    """Does it name a file in its own folder, and nothing elsewhere?"""
    if not isinstance(name, str) or name in ("", ".", ".."):
        return False
    return not any(letter in name for letter in "/\\\0")


def convert_column(column: pa.Array, convert: Convert, *, name: str, file: str, first_row: int) -> pa.Array:
    """``convert(column)``, or an error that names the first row it fails on."""
    try:
        return convert(column)
    except _UNCONVERTIBLE as why:
        if _failure(column.slice(0, 0), convert):  # the type itself is the trouble
            raise FormatError(f"column {name}: {describe_file_error(why)}", file=file) from None
        at = first_failure(len(column), lambda n: _failure(column.slice(0, n), convert) is not None)
        reason = describe_file_error(_failure(column.slice(at, 1), convert) or why)
        reason = reason.removeprefix(f"column {name}: ")
        raise FormatError(f"column {name}: {reason}", file=file, row=first_row + at) from None


def _failure(column: pa.Array, convert: Convert) -> Exception | None:
    try:
        convert(column)
    except _UNCONVERTIBLE as why:
        return why
    return None


def is_packed(path: Path) -> bool:
    """Does the file's name say that it is packed?"""
    return path.suffix.lower() == _GZIP


def create_bytes(path: Path) -> Any:
    """A new file for bytes, packed if its name says so."""
    if not is_packed(path):
        return path.open("wb")
    return pa.output_stream(str(path), compression="gzip")


def open_bytes(path: Path) -> Any:
    """The unpacked bytes of a file, to be read from start to end."""
    if not is_packed(path):
        return path.open("rb")
    return pa.input_stream(str(path), compression="gzip", buffer_size=_AT_ONCE)


def validate_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, or ``ArrowInvalid``: sizes, offsets, indices of dictionaries, UTF-8, at every depth.

    Arrow trusts the buffers it is given: offsets that lead elsewhere end the process, and bytes that are not
    UTF-8 surface far from the file that holds them. So what comes out of a file is checked before anything
    computes with it.
    """
    batch.validate()
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            if not _is_plain_ascii(column):
                column.validate(full=True)
        except pa.ArrowInvalid as why:
            raise pa.ArrowInvalid(f"column {name}: {why}") from None
    return batch


def _is_plain_ascii(column: pa.Array) -> bool:
    """Are all texts ASCII and their offsets in order? A quick look that spares Arrow's look at each text."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)) or not len(column):
        return False
    _, places, letters = column.buffers()
    width = "<i4" if pa.types.is_string(column.type) else "<i8"
    if letters is None or places.size < (column.offset + len(column) + 1) * np.dtype(width).itemsize:
        return False
    offsets = np.frombuffer(places, width, len(column) + 1, column.offset * np.dtype(width).itemsize)
    if bool((offsets[1:] < offsets[:-1]).any()):
        return False
    used = np.frombuffer(letters, np.uint8)
    if offsets[0] < 0 or offsets[-1] > len(used):
        return False
    return bool(used[offsets[0] : offsets[-1]].max(initial=0) < _ASCII)


def digest_of(*parts: str) -> str:
    """One short text for several: other parts give another."""
    whole = blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        given = part.encode("utf-8", "surrogatepass")
        whole.update(f"{len(given)}:".encode() + given)
    return whole.hexdigest()


def seal_of(file: Path) -> str:
    """The seal of a file that is complete."""
    with format_errors(str(file)), file.open("rb") as source:
        digest = file_digest(source, lambda: blake2b(digest_size=_DIGEST_BYTES)).hexdigest()
        return f"{source.tell()}:{digest}"


def is_seal(seal: object) -> bool:
    """Is it what `seal_of` gives?"""
    return isinstance(seal, str) and _SEAL.fullmatch(seal) is not None


def require_size(file: Path, seal: str) -> None:
    """Refuse a file that cannot be the one that was sealed, without reading it; no seal, no check."""
    if seal:
        with format_errors(str(file)):
            size = file.stat().st_size
        if str(size) != seal.partition(":")[0]:
            raise FormatError(_describe_change(f"it has {size:,} bytes"), file=str(file))


def require_seal(file: Path, seal: str) -> None:
    """Refuse a file that is not, byte for byte, the one that was sealed; no seal, no check."""
    require_size(file, seal)
    if seal and seal_of(file) != seal:
        raise FormatError(_describe_change("its bytes have changed"), file=str(file))


def _describe_change(how: str) -> str:
    return f"not the file that was written here: {how}; restore the table from a backup, or compute it anew"


def to_sealed_json(stored: dict[str, Any]) -> str:
    """A JSON text with its own digest."""
    return json.dumps({**stored, _DIGEST: _json_digest(stored)}, indent=1)


def from_sealed_json(text: str, *sealed_formats: str) -> dict[str, Any]:
    """What such a text holds; a ValueError if it is not what was written. Older formats have no digest."""
    try:
        stored = json.loads(text)
    except RecursionError:
        raise ValueError(text) from None
    if not isinstance(stored, dict):
        raise ValueError(text)
    digest = stored.pop(_DIGEST, None)
    is_sealed = digest is not None or stored.get("format") in sealed_formats
    if is_sealed and digest != _json_digest(stored):
        raise ValueError(text)
    return stored


def _json_digest(stored: dict[str, Any]) -> str:
    return digest_of(json.dumps(stored, sort_keys=True))
