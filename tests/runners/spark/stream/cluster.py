"""A sample of the agreement suite on executors of their own: ``cluster.py FOLDER EVERY PLANS STEPS``.

Takes every so many-th transcript and a number of random plans, of those that have at most so many steps.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.runners.spark.stream.test_agreement import agree, sample

import recension as rc

AGREED = "all agreed"


def main() -> None:
    folder, every, plans, steps = sys.argv[1:]
    spark = rc.spark.session("local-cluster[2,1,1024]", "cluster", spark__driver__memory="1g")
    cases = [case for case in sample(int(every), int(plans)) if len(case.turns()) <= int(steps)]
    agree(spark, cases, 2, Path(folder))
    print(AGREED)
    spark.stop()


if __name__ == "__main__":
    main()
