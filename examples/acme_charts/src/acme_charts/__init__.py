"""Chart patterns and measures of prices."""

from acme_charts.patterns import HeadAndShoulders
from acme_charts.spread import Spread

__all__ = ["HeadAndShoulders", "Spread"]
