"""A sample of the agreement suite on executors of their own: ``cluster.py MASTER FOLDER EVERY PLANS STEPS``.

Takes every so many-th transcript and a number of random plans, of those that have at most so many steps.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.runners.spark.standalone import settings_of
from tests.runners.spark.stream.test_agreement import agree, sample

import recension as rc

AGREED = "all agreed"


def main() -> None:
    master, folder, every, plans, steps = sys.argv[1:]
    spark = rc.spark.session(master, "cluster", spark__driver__memory="1g", **settings_of(master))
    cases = [case for case in sample(int(every), int(plans)) if len(case.turns()) <= int(steps)]
    agree(spark, cases, 2, Path(folder))
    print(AGREED)
    spark.stop()


if __name__ == "__main__":
    main()
