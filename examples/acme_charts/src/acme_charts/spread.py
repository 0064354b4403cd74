"""A measure of prices."""

from __future__ import annotations

from typing import Any

import recension as rc


class Spread(rc.Aggregate):
    """The greatest price less the least."""

    inputs = {"price": "float64"}
    result = "float64"
    is_order_sensitive = False

    def compute(self, payloads: Any) -> Any:
        return payloads["price"].max() - payloads["price"].min()
