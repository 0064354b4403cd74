"""The last line of `make test`: how many tests passed, and what was skipped and why.

``python -m scripts.test_summary RESULTS.xml...`` reads what pytest has written with ``--junitxml``.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree


def summarize(files: Iterable[Path]) -> str:
    """One line about the tests of all files; a file that is not there is a run that did not end."""
    outcomes, skipped, missing = Counter[str](), Counter[str](), 0
    for file in files:
        if not file.exists() or not file.stat().st_size:
            missing += 1
            continue
        for case in ElementTree.parse(file).iter("testcase"):
            found = next((part for part in case if part.tag in ("failure", "error", "skipped")), None)
            outcomes["passed" if found is None else found.tag] += 1
            if found is not None and found.tag == "skipped":
                skipped[_reason(found)] += 1
    failed = outcomes["failure"] + outcomes["error"]
    parts = [f"{outcomes['passed']:,} passed"]
    parts += [f"{failed:,} failed"] if failed else []
    parts += ["a half did not end"] * missing
    reasons = [f"{count:,} × {reason}" for reason, count in skipped.most_common()]
    return f"make test: {', '.join(parts)}; skipped: {'; '.join(reasons) or 'nothing'}"


def _reason(skipped: ElementTree.Element) -> str:
    """Why; for a whole file pytest says it behind the name of the file."""
    said = skipped.get("message") or ""
    if said == "collection skipped":
        said = (skipped.text or "").strip().rstrip(")").split("Skipped: ", 1)[-1].strip("\"'")
    return " ".join(said.split())


if __name__ == "__main__":
    print(summarize(map(Path, sys.argv[1:])))
