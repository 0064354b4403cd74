"""Test streams: the generator of the LMerge paper, replicas of one history, and their arrival times."""

from recension.testing.generator.profiles import Burst, Congestion, Failure, Profile, TimedBatch, add_arrivals
from recension.testing.generator.replicas import generate, replica, replicas
from recension.testing.generator.settings import CASES, Case, SettingsError, StreamSettings

__all__ = [
    "CASES",
    "Burst",
    "Case",
    "Congestion",
    "Failure",
    "Profile",
    "SettingsError",
    "StreamSettings",
    "TimedBatch",
    "add_arrivals",
    "generate",
    "replica",
    "replicas",
]
