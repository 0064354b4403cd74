#!/bin/sh
# All tests in two halves that run beside each other: those that start Spark, and the others. Each takes about
# as much of a processor as the other. What the first half says is shown when both are done. The last line says
# how many tests passed, and what was skipped and why.
set -u
cd "$(dirname "$0")/.." || exit 1
python=.venv/bin/python
# Hundreds of processes are started: each would compile all modules anew where this is set.
export PYTHONDONTWRITEBYTECODE=
# Without them the tests of pages, Kafka, Delta and Iceberg are skipped, with the reason.
sh scripts/browser.sh
$python -m scripts.kafka_jars || true
$python -m scripts.lake_jars || true
folder=$(mktemp -d)
log=$folder/spark.log
trap 'rm -rf "$folder"' EXIT

# To look through all tests takes long: those on Spark are in files that name it (`tests/conftest.py` sees to it).
# shellcheck disable=SC2046 # one word a file
$python -m pytest -m "spark and not soak" --junitxml="$folder/spark.xml" $(grep -rli --include='test_*.py' spark tests | sort) >"$log" 2>&1 &
half=$!
# A shell keeps Ctrl-C from what runs beside it.
trap 'kill "$half"; exit 130' INT TERM
$python -m pytest -m "not spark and not soak" --junitxml="$folder/others.xml"
others=$?
echo "The tests on Spark:"
wait "$half"
spark=$?
cat "$log"
$python -m scripts.test_summary "$folder/others.xml" "$folder/spark.xml"
exit $((others > spark ? others : spark))
