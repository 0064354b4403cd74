#!/bin/sh
# All tests in two halves that run beside each other: those that start Spark, and the others. Each takes about
# as much of a processor as the other. What the first half says is shown when both are done.
set -u
cd "$(dirname "$0")/.." || exit 1
python=.venv/bin/python
# Hundreds of processes are started: each would compile all modules anew where this is set.
export PYTHONDONTWRITEBYTECODE=
# Without them the tests of Kafka, Delta and Iceberg are skipped, with the reason.
$python -m scripts.kafka_jars || true
$python -m scripts.lake_jars || true
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# To look through all tests takes long: those on Spark are in files that name it (`tests/conftest.py` sees to it).
# shellcheck disable=SC2046 # one word a file
$python -m pytest -m "spark and not soak" $(grep -rli --include='test_*.py' spark tests | sort) >"$log" 2>&1 &
half=$!
# A shell keeps Ctrl-C from what runs beside it.
trap 'kill "$half"; exit 130' INT TERM
$python -m pytest -m "not spark and not soak"
others=$?
echo "The tests on Spark:"
wait "$half"
spark=$?
cat "$log"
exit $((others > spark ? others : spark))
