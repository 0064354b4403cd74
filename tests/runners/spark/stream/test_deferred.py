"""What Spark loads on the driver for every level of every query that starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pyspark.serializers import CloudPickleSerializer

import recension as rc
from recension.runners.spark.stream.deferred import DeferredProcessor
from recension.runners.spark.stream.processor import FragmentProcessor
from recension.runners.spark.stream.topology import topology

# As `transform_with_state_driver_worker` does: the class is read, `init` is called, and no row comes.
ASK = """
import pickle, sys
import pyspark.sql.streaming.transform_with_state_driver_worker
theirs = set(sys.modules)
class Handle:
    def getMapState(self, name, key, value):
        print(name, key.simpleString(), value.simpleString())
operator = pickle.load(open(sys.argv[1], "rb"))
operator.init(Handle())
operator.close()
print(sorted({"recension", "pandas", "pyarrow", "numpy"} & (set(sys.modules) - theirs)))
"""


def test_to_say_what_state_there_is_loads_nothing_of_ours(tmp_path: Path) -> None:
    query = rc.source("s", {"x": "int64"}).tumbling(5).agg(n=rc.count())
    processor = FragmentProcessor(topology([query.plan], 2, {}), 1, [0, 1])
    file = tmp_path / "operator"
    file.write_bytes(CloudPickleSerializer().dumps(DeferredProcessor(processor)))
    said = subprocess.run([sys.executable, "-c", ASK, file], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == ["chunks struct<name:string> struct<chunk:binary>", "[]"]
