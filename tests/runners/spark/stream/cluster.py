"""A sample of the agreement suite on executors of their own: ``cluster.py FOLDER EVERY PLANS``.

Takes every so many-th transcript and a number of random plans.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.runners.spark.stream.test_agreement import agree, sample

import recension as rc

AGREED = "all agreed"


def main() -> None:
    folder, every, plans = sys.argv[1:]
    spark = rc.spark.session("local-cluster[2,1,1024]", "cluster", spark__driver__memory="1g")
    agree(spark, sample(int(every), int(plans)), 2, Path(folder))
    print(AGREED)
    spark.stop()


if __name__ == "__main__":
    main()
