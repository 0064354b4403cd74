# Two commands for a newcomer: `make demo` and `make test`. Each does its own set-up.
.DEFAULT_GOAL := help
.PHONY: help setup demo lake test quick soak mutants compat check format bench peers docs lock clean

BIN := .venv/bin
READY := .venv/.ready

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## make .venv with the locked dependencies, and see that Java 17+ is there

$(READY): requirements.lock pyproject.toml scripts/setup.sh
	@sh scripts/setup.sh

demo: $(READY) ## replicas on Spark that disagree and die, one right answer; writes demo/report.html
	@$(BIN)/recension demo

lake: $(READY) ## orders and shipments from Kafka into Delta, the driver killed on the way, asked in SQL
	@$(BIN)/python -m examples.lake

test: check ## everything CI runs: the checks, then all tests
	@sh scripts/test.sh

quick: $(READY) ## while you work: the local tests, without Spark and long searches, in less than a minute
	@sh scripts/quick.sh

compat: $(READY) ## the wheel in clean environments: every supported Spark, and none
	@sh scripts/compat.sh

soak: $(READY) ## the long tests: everything is killed, five times over; a million rows of mutated files
	@HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest -m soak -o faulthandler_timeout=3600
	@HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest -m "not soak and not spark" tests

mutants: $(READY) ## do the tests notice? a hundred small wrong changes to a copy of the code, one at a time
	@$(BIN)/python -m scripts.mutants

check: $(READY) ## lint, types and layers, in seconds
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

format: $(READY) ## put the code into its standard form
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(READY) ## every benchmark, as one table; then what got slower since the last release
	@$(BIN)/python -m benchmarks
	@$(BIN)/python -m benchmarks.against --most 200000 --rounds 5

peers: $(READY) ## Flink, Bytewax, Pathway, Polars, DuckDB over the same files; NEXMark beside Flink and Spark
	@sh scripts/peers.sh

docs: $(READY) ## the guide as a site, in site/; a link that leads nowhere stops it
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

lock: $(READY) ## choose dependency versions anew (needs uv)
	@uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --no-emit-index-url \
	  --no-emit-find-links --all-extras --group dev pyproject.toml --output-file requirements.lock

clean: ## remove what the other targets made
	@rm -rf .venv .peers .mutants .mypy_cache .ruff_cache .import_linter_cache .pytest_cache .hypothesis bench-results demo site
