"""Why a Spark job failed, in one line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_OURS = re.compile(r"^(?:\S+: )*?recension\.core\.errors\.\w+: (.*)$", re.MULTILINE)
# Messages of Spark that give the reason, not only that a query has failed.
_SPARKS = re.compile(
    r"\[(?:USER_RAISED_EXCEPTION|FAILED_READ_FILE)(?:\.\w+)?\] (.*?)(?:\s+SQLSTATE: \w+)?\s*$", re.MULTILINE
)
_QUERY = re.compile(r"^\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ")
_SQLSTATE = re.compile(r"\s+SQLSTATE: \w+")
_CAUSE = re.compile(r"^Caused by: [\w.$]+: (.+)$", re.MULTILINE)
# Spark's messages for files of its own that are missing or have changed.
_DAMAGED = re.compile(r"CANNOT_LOAD_STATE_STORE|Checksum error: |batch \d+ doesn't exist")
_BACKUP: Final = (
    "`recension repair CHECKPOINT` says what is still good; or restore the checkpoint and its tables from "
    "the same backup, or start with new ones"
)
# What the operating system says when it refuses something, in the words of Python, Java and RocksDB, and what
# to do about it. No file is damaged then, whatever Spark was about to do.
_GO_ON: Final = "start again, the query goes on where it stopped"
_SYSTEM: Final = {
    "Too many open files": f"raise the limit (`ulimit -n`, or LimitNOFILE= of a service) and {_GO_ON}",
    "Input/output error": f"see what the system's log says of the disk, and {_GO_ON} once it can be read",
    "Read-only file system": f"make it writable and {_GO_ON}",
    "Cannot allocate memory": f"give the machine more memory, or run less on it, and {_GO_ON}",
    "Resource temporarily unavailable": f"raise the limit of processes (`ulimit -u`) and {_GO_ON}",
    "Permission denied": f"let the user who runs Spark read and write it, and {_GO_ON}",
    "Stale file handle": f"mount the file system anew and {_GO_ON}",
    "Transport endpoint is not connected": f"mount the file system anew and {_GO_ON}",
}
# Elsewhere a user's function may have met them, of which the line before says more.
_ALWAYS: Final = ("Too many open files", "Read-only file system")
# And these say nothing about files: a server was away, or there was no memory.
_ELSEWHERE: Final = re.compile(
    r"Connection (?:refused|reset|timed out)|[Tt]imed? ?out|OutOfMemoryError|Java heap space|Interrupted"
)
_FULL = re.compile(r"No space left on device|Disk quota exceeded", re.IGNORECASE)
_PATH = re.compile(r"(?:file:|['\" ])(/[^\s'\":]+)")
_NO_WORKER = re.compile(r"Python worker failed to connect back|Python worker to connect back after \d+")
BUSY: Final = (
    "Spark waited for a Python process that did not start in time: the machine is too busy; start the query "
    "again, it goes on where it stopped (fewer queries at once, or fewer cores in local[N], help)"
)


def reason_of(why: Exception) -> str:
    """The sentence of an error of ours, wherever it was raised; else the first line there is."""
    message = str(why)
    if ours := _OURS.findall(message):
        return str(ours[-1])
    if is_full(message):
        return no_space(_file_beside(_FULL, message))
    if is_worker_missing(message):
        return BUSY
    is_damage = bool(_DAMAGED.search(message))
    if refused := _refusal_of_system(message, _SYSTEM if is_damage else _ALWAYS):
        return refused
    if sparks := _SPARKS.search(message):
        return sparks[1]
    gist = _innermost_cause(message) or type(why).__name__
    if is_damage and not _ELSEWHERE.search(gist):
        return f"the checkpoint is damaged: {gist}; {_BACKUP}"
    return gist


def _innermost_cause(message: str) -> str:
    """The innermost cause that Java names, or the first line; without what Spark puts around it."""
    causes = _CAUSE.findall(message)
    first = next((line.strip() for line in message.splitlines() if line.strip()), "")
    return _SQLSTATE.sub("", causes[-1] if causes else _QUERY.sub("", first)).strip()


def is_damage(message: str) -> bool:
    """Are files of a checkpoint missing or changed? Not if the system or a server refused something."""
    if is_full(message) or any(reason in message for reason in _SYSTEM):
        return False
    return bool(_DAMAGED.search(message)) and not _ELSEWHERE.search(_innermost_cause(message))


def is_worker_missing(message: str) -> bool:
    """Did Spark give up waiting for a Python process? Nothing is wrong then but the time it took."""
    return bool(_NO_WORKER.search(message))


def is_full(message: str) -> bool:
    """Was there no room on a disk, in the words of Python, Java or RocksDB?"""
    return bool(_FULL.search(message))


def no_space(file: str | None = None) -> str:
    """The message of a full disk, with what to do about it."""
    where = f"of {file}" if file else "of the checkpoint or of Spark's scratch files (spark.local.dir)"
    return f"no space left on the disk {where}; make room and start again, the query goes on where it stopped"


def _refusal_of_system(message: str, reasons: Iterable[str]) -> str | None:
    """What the operating system did not do, of which file, and what to do about it."""
    for reason in reasons:
        if reason in message:
            file = _file_beside(re.compile(reason), message)
            said = reason[0].lower() + reason[1:]
            return f"{file}: {said}; {_SYSTEM[reason]}" if file else f"{said}; {_SYSTEM[reason]}"
    return None


def _file_beside(reason: re.Pattern[str], message: str) -> str | None:
    """The path in the line of the error; it may stand before or after."""
    line = next(line for line in message.splitlines() if reason.search(line))
    found = _PATH.search(line)
    return found[1] if found else None
