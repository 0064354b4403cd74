#!/bin/sh
# The wheel in clean environments: one for each Spark that is supported, and one without Spark. The demo runs in each.
# The tests use the connectors that exist for each Spark (scripts/*_jars.lock); without one they skip, and say so.
# Usage: scripts/compat.sh [VERSION ...]       JAVA_HOME names the Java to try it with.
set -eu
cd "$(dirname "$0")/.."

versions=${*:-"none 4.1.3 4.2.1 4.3.0"}
tests="tests/runners/spark/stream/test_answers.py tests/runners/spark/stream/test_restart.py
tests/runners/spark/stream/test_chained.py tests/runners/spark/sinks tests/transcripts/test_spark_batch.py
tests/runners/spark/kafka tests/runners/spark/lake"
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

.venv/bin/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$place" .
wheel=$(ls "$place"/recension-*.whl)
cp -r tests examples benchmarks scripts pyproject.toml "$place"

for version in $versions; do
    echo "== pyspark $version"
    .venv/bin/python -m venv "$place/$version"
    python="$place/$version/bin/python"
    if [ "$version" = none ]; then
        "$python" -m pip install --quiet --disable-pip-version-check "$wheel"
    else
        "$python" -m pip install --quiet --disable-pip-version-check \
            "$wheel[spark,kafka,testing]" "pyspark==$version" pytest duckdb
        for jars in kafka_jars lake_jars; do
            (cd "$place" && "$python" -m scripts.$jars) || true
        done
        # shellcheck disable=SC2086 -- a test a word
        (cd "$place" && "$python" -m pytest -c pyproject.toml $tests)
    fi
    (cd "$place" && "$place/$version/bin/recension" demo --size 2000)
    rm -rf "${place:?}/$version"
done
