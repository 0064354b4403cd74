"""Parameters of modules are checked when they are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Optional, Protocol

import numpy as np
import pytest

import recension as rc
from recension.core.errors import SchemaError


class Shape(Protocol):
    sides: int


class Tuned(rc.Operator):
    """Parameters of all kinds."""

    inputs: ClassVar[Any] = {"v": "int64"}
    result: dict[str, str] = {"v": "int64"}  # type: ignore[misc]
    mode: Literal["up", "down"] = "up"
    depth: int = 1
    share: float = 0.5
    is_loud: bool = False
    weights: list[float] = []
    names: Sequence[str] = ()
    pair: tuple[int, str] = (1, "a")
    many: tuple[int, ...] = ()
    table: Mapping[str, int] = {}
    limit: Optional[int] = None  # noqa: UP045
    how: Callable[[int], int] = abs
    shape: Shape | None = None
    anything: object = None

    def compute(self, payloads: Any) -> Any:
        return []


@pytest.mark.parametrize(
    "given",
    [
        {"mode": "down"},
        {"depth": np.int32(4)},
        {"share": 1},
        {"share": np.float32(0.25)},
        {"is_loud": True},
        {"weights": [1, 0.5]},
        {"names": ("a", "b")},
        {"pair": (2, "b")},
        {"many": (1, 2, 3)},
        {"table": {"a": 1}},
        {"limit": None},
        {"how": len},
        {"shape": object()},
        {"anything": True},
    ],
    ids=str,
)
def test_what_fits_is_taken(given: Any) -> None:
    (name,) = given
    assert getattr(Tuned(**given), name) == given[name]


@pytest.mark.parametrize(
    "given",
    [
        {"mode": "sideways"},
        {"depth": True},
        {"depth": 1.5},
        {"share": "half"},
        {"is_loud": 1},
        {"weights": ["much"]},
        {"weights": (1.0,)},
        {"names": [1]},
        {"pair": (2,)},
        {"pair": ("b", 2)},
        {"many": (1, "2")},
        {"table": {"a": "b"}},
        {"limit": "none"},
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(given: Any) -> None:
    (name,) = given
    with pytest.raises(SchemaError, match=rf"^Tuned: the parameter {name}: .* cannot be "):
        Tuned(**given)


def test_what_the_contract_names_is_no_parameter() -> None:
    assert "result" not in Tuned.signature()
    assert Tuned.signature().startswith("(v: int64, mode: Literal['up', 'down'] = 'up', depth: int = 1")


def test_an_input_is_no_parameter() -> None:
    class Torn(rc.Operator):
        inputs = {"v": "int64"}
        result = {"v": "int64"}
        v: int = 3

        def compute(self, payloads: Any) -> Any:
            return []

    with pytest.raises(SchemaError, match="Torn: 'v' is an input and a parameter; rename one"):
        Torn(v=4)
