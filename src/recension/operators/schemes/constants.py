"""What one operation on a window extent costs, and the file that keeps these constants for a machine.

The file is ``$RECENSION_CONSTANTS`` if that is set, else ``recension/constants.json`` in the user's folder
for configuration (``$XDG_CONFIG_HOME``, else ``~/.config``). `recension calibrate` writes it; without it the
constants of the machine Recension was made on are used.

Source: temporal coalescing, table 4 and §7.2; coalescing rulings 28 and 30.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from recension.core.errors import RecensionError

Numbers = npt.NDArray[np.float64]

ENVIRONMENT: Final = "RECENSION_CONSTANTS"


@dataclass(frozen=True, slots=True)
class Constants:
    """Nanoseconds, though only their ratios matter.

    ``merge`` and ``split`` include finding the place, and grow with disorder as an array's do:
    ``merge + merge_late·oop·cp`` and ``split + split_late·oop/cp``. ``find`` is what a late tuple costs the
    lazy extent. ``stamp`` is what a scan of an eager extent takes for a timestamp behind a coalesced tuple.
    Where an insert or a delete in the lazy extent costs something else than in an eager one, ``lazy_insert``
    and ``lazy_delete`` say what.
    """

    read: float
    coalesce: float
    insert: float
    delete: float
    detach: float
    merge: float
    merge_late: float = 0.0
    split: float = 0.0
    split_late: float = 0.0
    find: float = 0.0
    stamp: float = 0.0
    lazy_insert: float | None = None
    lazy_delete: float | None = None

    @property
    def lazy_costs(self) -> tuple[float, float]:
        """C_insert and C_delete of the lazy extent."""
        return (
            self.insert if self.lazy_insert is None else self.lazy_insert,
            self.delete if self.lazy_delete is None else self.lazy_delete,
        )

    def merge_cost(self, cp: Numbers, oop: Numbers) -> Numbers:
        """C_merge of each query."""
        return self.merge + self.merge_late * oop * cp

    def split_cost(self, cp: Numbers, oop: Numbers, held: float) -> Numbers:
        """C_split of each query; a run has at most all that is held, so cp is never quite 0."""
        return self.split + self.split_late * oop / np.maximum(cp, 1 / max(held, 1))


def constants_file() -> Path:
    """Where this machine's constants are kept."""
    if named := os.environ.get(ENVIRONMENT):
        return Path(named)
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder) / "recension" / "constants.json"


def save_constants(measured: Constants, path: Path | None = None) -> Path:
    """Remember what was measured; gives the file."""
    path = path or constants_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    known = {name: value for name, value in asdict(measured).items() if value is not None}
    path.write_text(json.dumps({"unit": "ns", "constants": known}, indent=1) + "\n")
    return path


def load_constants(path: Path | None = None) -> Constants:
    """What was measured on this machine, or the usual constants if nothing was."""
    path = path or constants_file()
    if not path.exists():
        return USUAL
    try:
        known = json.loads(path.read_text())["constants"]
        found = Constants(**{name: float(value) for name, value in known.items()})
    except (ValueError, KeyError, TypeError, AttributeError) as why:
        raise RecensionError(
            f"{path}: not a file of constants ({why}); run `recension calibrate` again"
        ) from None
    if bad := [name for name in known if not 0 <= getattr(found, name) < float("inf")]:
        raise RecensionError(f"{path}: {bad[0]} must be a time, 0 or more; run `recension calibrate` again")
    return found


USUAL: Final = Constants(
    read=410,
    coalesce=50,
    insert=3760,
    delete=1480,
    detach=1140,
    merge=2860,
    merge_late=170,
    stamp=280,
    lazy_insert=1590,
    lazy_delete=1310,
)
"""Measured by `recension calibrate` on one core of a shared AMD EPYC."""
