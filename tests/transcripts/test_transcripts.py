"""Every transcript on every runner that plays it."""

from pathlib import Path

import pytest
from tests.transcripts.reconstitution import CoreReconstitution, PlainReconstitution

from recension.testing.local_runners import LocalRunner
from recension.testing.runners import Case, Runner, cases
from recension.testing.transcripts import load_transcripts

RUNNERS: list[Runner] = [
    PlainReconstitution(),
    CoreReconstitution("element"),
    CoreReconstitution("step"),
    LocalRunner("element"),
    LocalRunner("step"),
    LocalRunner("element", restores=True),
]
CASES = cases(load_transcripts([Path(__file__).parent]), RUNNERS)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_transcript(case: Case) -> None:
    case.check()
