"""The test kit: state what a query must do, and find a stream on which it fails.

`assert_equivalent` and `assert_valid` are here. `recension.testing.transcripts` needs PyYAML and
`recension.testing.strategies` needs Hypothesis (``pip install recension[testing]``), so both are imported
by their own names; `recension.testing.generator` needs neither.
"""

from recension.testing.assertions import assert_equivalent, assert_valid

__all__ = ["assert_equivalent", "assert_valid"]
