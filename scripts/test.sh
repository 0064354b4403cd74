#!/bin/sh
# All tests in two halves that run beside each other: those that mostly wait for Spark, and the others.
# What the first half says is shown when both are done.
set -u
cd "$(dirname "$0")/.." || exit 1
python=.venv/bin/python
on_spark="tests/runners/spark tests/transcripts/test_spark_batch.py"
# Without them the tests of Kafka are skipped, with the reason.
$python scripts/kafka_jars.py || true
log=$(mktemp)
trap 'rm -f "$log"' EXIT

$python -m pytest $on_spark >"$log" 2>&1 &
half=$!
# A shell keeps Ctrl-C from what runs beside it.
trap 'kill "$half"; exit 130' INT TERM
# shellcheck disable=SC2046 -- one option a word
$python -m pytest $(printf -- '--ignore=%s ' $on_spark)
others=$?
echo "The tests on Spark:"
wait "$half"
spark=$?
cat "$log"
exit $((others > spark ? others : spark))
