#!/bin/sh
# The tests that need neither Spark nor a long search, in two halves beside each other: for while you work.
# What the second half says is shown when both are done.
set -u
cd "$(dirname "$0")/.." || exit 1
export HYPOTHESIS_PROFILE=quick
python=.venv/bin/python
# Whole pages, examples, plays, measurements, wheels and processes of their own are left to `make test`.
slow="tests/runners/spark tests/docs tests/examples tests/demo tests/benchmarks tests/architecture/test_wheel.py
      tests/cli/test_standard_output.py"
half="tests/lmerge tests/modules tests/operators tests/runners tests/schemes"
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# shellcheck disable=SC2086 -- one path a word
$python -m pytest -m "not soak and not spark" -p no:cacheprovider --ignore=tests/runners/spark $half >"$log" 2>&1 &
other=$!
# A shell keeps Ctrl-C from what runs beside it.
trap 'kill "$other"; exit 130' INT TERM
# shellcheck disable=SC2046,SC2086 -- one option a word
$python -m pytest -m "not soak and not spark" $(printf -- '--ignore=%s ' $slow $half)
one=$?
wait "$other"
two=$?
cat "$log"
exit $((one > two ? one : two))
