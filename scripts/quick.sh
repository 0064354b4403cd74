#!/bin/sh
# For while you work: the tests that need neither Spark, Kafka nor much time, in two halves beside each other.
# The output of the second half is shown when both are done.
set -u
cd "$(dirname "$0")/.." || exit 1
export HYPOTHESIS_PROFILE=quick
python=.venv/bin/python
# Hundreds of processes are started: each would compile all modules anew where this is set.
export PYTHONDONTWRITEBYTECODE=
wanted="not soak and not spark and not kafka and not slow"
# Whole folders that `make test` runs: pages, examples, the demo, measurements, wheels, other processes.
others="tests/runners/spark tests/docs tests/examples tests/demo tests/benchmarks tests/architecture/test_wheel.py
        tests/cli/test_standard_output.py"
half="tests/lmerge tests/modules tests/operators tests/runners tests/schemes"
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# shellcheck disable=SC2086 -- one path a word
$python -m pytest -m "$wanted" -p no:cacheprovider --ignore=tests/runners/spark $half >"$log" 2>&1 &
second=$!
# A shell keeps Ctrl-C from what runs beside it.
trap 'kill "$second"; exit 130' INT TERM
# shellcheck disable=SC2046,SC2086 -- one option a word
$python -m pytest -m "$wanted" $(printf -- '--ignore=%s ' $others $half)
one=$?
wait "$second"
two=$?
cat "$log"
exit $((one > two ? one : two))
