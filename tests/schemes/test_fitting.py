"""Constants are found again from timings that they explain; and kept in a file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recension.core.errors import RecensionError
from recension.operators.extents.calibration import Timing, error, fit, least_squares
from recension.operators.schemes.constants import (
    USUAL,
    Constants,
    constants_file,
    load_constants,
    save_constants,
)
from recension.operators.schemes.costs import CostModel, Load, Queries

GRID = [(cp, oop) for cp in (0.05, 0.35, 0.65, 0.95) for oop in (0.0, 0.3, 0.6, 0.9)]
times = st.floats(0.1, 10)


def _timings(constants: Constants, held: int = 1_000) -> list[Timing]:
    """What the cost model says extents take."""
    found = []
    for cp, oop in GRID:
        q = Queries.broadcast([cp], [oop], 24, groups=0)
        full = CostModel(constants, Load(held, held), 40, oop)
        slid = CostModel(constants, Load(2 * held, held), 40, oop)
        for is_eager in (True, False):
            filling = float(full.eager_update(q)[0]) if is_eager else full.lazy_update()
            both = float(slid.eager_update(q)[0]) if is_eager else slid.lazy_update()
            scan = full.eager_scan(q)[0] if is_eager else full.lazy_scan(q)[0]
            parts = filling / held, (both - filling) / held, float(scan) / held
            found.append(Timing(is_eager, cp, oop, held, *parts))
    return found


@given(st.tuples(*[times] * 13))
@settings(max_examples=20)
def test_constants_are_found_again(drawn: tuple[float, ...]) -> None:
    constants = Constants(*drawn)
    found = fit(_timings(constants))
    assert error(_timings(constants), found) < 1e-4
    assert asdict(found) == pytest.approx(asdict(constants), rel=1e-4)


def test_noise_gives_no_negative_times() -> None:
    rnd = np.random.default_rng(3)
    constants = Constants(1, 2, 3, 0.1, 0.1, 2, 0, 0.5, 0, 0, 0.1, 3, 0.1)
    noisy = [
        Timing(t.is_eager, t.cp, t.oop, t.held, *(x * rnd.uniform(0.7, 1.3) for x in parts))
        for t in _timings(constants)
        for parts in [(t.filling, t.sliding, t.scanning)]
    ]
    found = fit(noisy)
    assert min(asdict(found).values()) >= 0
    assert found.insert == pytest.approx(3, rel=0.3)
    assert found.coalesce == pytest.approx(2, rel=0.5)


@given(st.integers(0, 2**32), st.integers(1, 5))
@settings(max_examples=30)
def test_least_squares_leave_nothing_to_gain(seed: int, size: int) -> None:
    """At the best, more of what is used changes nothing, and more of what is not used makes it worse."""
    rnd = np.random.default_rng(seed)
    rows, wanted = rnd.normal(size=(8, size)), rnd.normal(size=8)
    x = least_squares(rows, wanted)
    pull = rows.T @ (wanted - rows @ x)
    assert (x >= 0).all()
    assert pull[x > 0] == pytest.approx(0, abs=1e-6)
    assert (pull <= 1e-6).all()


def test_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("RECENSION_CONSTANTS", raising=False)
    assert constants_file() == tmp_path / "recension" / "constants.json"
    assert load_constants() == USUAL
    measured = Constants(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
    assert save_constants(measured) == constants_file()
    assert load_constants() == measured
    monkeypatch.setenv("RECENSION_CONSTANTS", str(tmp_path / "other.json"))
    assert load_constants() == USUAL
    for text in ("{", "[]", '{"constants": {"read": 1}}', '{"constants": {"reed": 1}}'):
        constants_file().write_text(text)
        with pytest.raises(
            RecensionError, match=r"other.json: not a file of constants .* `recension calibrate`"
        ):
            load_constants()
    save_constants(Constants(-1, 2, 3, 4, 5, 6))
    with pytest.raises(RecensionError, match="read must be a time, 0 or more"):
        load_constants()
