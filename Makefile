# Every task by name; needs python3 (3.11 or newer), make and git, nothing else.
PYTHON ?= python3
BIN := .venv/bin
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest
# Tests start thousands of processes: each reads the bytecode that the first one wrote.
export PYTHONDONTWRITEBYTECODE :=
# Many tests wait for processes: two workers more than cores keep the cores busy.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(2 + len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)))')
SUITE := OMP_NUM_THREADS=1 $(BIN)/python -m tests.twice -q

.DEFAULT_GOAL := help
.PHONY: help demo test test-long check lint setup setup-dev lock infer tools test-tools test-versions faults mutations slow proofs gpu gpu-kit bench schemas docs clean

help:            ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 18

setup:           ## .venv from hashed locks: what a user needs
	@$(PYTHON) requirements/install.py run

setup-dev:       ## .venv with the tools of the tests, too
	@$(PYTHON) requirements/install.py dev

demo: setup      ## one commit of a small GPT through the whole line, on this machine
	@$(BIN)/python examples/demo.py

test: setup-dev lint   ## checks and the default test suite; properties are tried on a quarter of the examples of `test-long`
	@$(SUITE) -n $(WORKERS) --hypothesis-profile=quarter -m "not slow and not long and not gpu and not tools and not cluster and not versions"

lint: setup-dev  ## format, lint, types, imports between rooms
	@$(BIN)/ruff format --check -q . || { echo "run: .venv/bin/ruff format ."; exit 1; }
	@$(BIN)/ruff check -q .
	@$(BIN)/mypy
	@found=$$($(BIN)/lint-imports --no-logo --cache-dir .ruff_cache/imports) || { echo "$$found"; exit 1; }

check: lint      ## the same, and the map of rooms, names, sizes, docstrings, keys, manifests, pipelines
	@$(PYTEST) -q tests/test_rooms.py tests/test_house.py tests/surface/test_keys_are_read.py tests/manifests tests/jenkins -m "not cluster and not tools"

infer: setup   ## the environment of `gangline infer`: KServe's server and torch from a hashed lock, outside the tree
	@$(BIN)/python requirements/infer.py

tools: setup-dev ## build MinIO, versitygw, Gitea, MLflow, TensorBoard and HDFS for the tests, from Go modules, locks and pinned jars, outside the tree
	@$(BIN)/python -m tests.tools

test-long: setup-dev ## the longest tests of the default suite's kind: gangs that are killed, cut in all ways, compared; properties on all examples
	@$(SUITE) -n $(WORKERS) -m "(long or hypothesis) and not slow and not gpu and not tools and not cluster and not versions"

test-tools: setup-dev ## the suites that need those servers
	@$(SUITE) --timeout-method=signal -n 2 --dist loadfile -m "tools and not slow"

include tests/cluster/cluster.mk

test-versions: setup-dev ## the demo, a lock and a slice of the suite under Python 3.11 to 3.13 with torch 2.11 to 2.15, and extras at their bounds; ONLY=3.12-2.11 or extras, JSON=found.json, RECORD=1
	@$(BIN)/python -m tests.versions $(if $(ONLY),--only $(ONLY)) $(if $(JSON),--json $(JSON)) $(if $(RECORD),--record)

faults: setup-dev ## the smoke slice of every fault row; ROW=T1 picks one, FULL=1 takes its full size, SEED=17
	@$(PYTEST) -q -m "$(if $(FULL),,not slow and )not gpu and not cluster" tests/faults $$(grep -rlE --include='test_*.py' 'mark\.row\(.*"$(ROW)' tests | grep -v ^tests/faults) $(if $(ROW),--row $(ROW)) $(if $(SEED),--seed $(SEED))

mutations: setup-dev ## protections removed from copies one by one: tests must notice; ROW=T1, JOBS=4, JSON=found.json, FRESH=1
	@$(BIN)/python -m tests.faults.mutate $(ROW) $(if $(JOBS),--jobs $(JOBS)) $(if $(JSON),--json $(JSON)) $(if $(FRESH),--fresh)

slow: setup-dev  ## full size of fault rows
	@$(PYTEST) -q -m slow

proofs: setup-dev ## every parity test of the training runtime, then the table of strategies drawn of them; ONLY=FILES of these files
	@$(PYTEST) -q -n 2 -m "proves and not gpu and not tools" --proofs=docs/reference/proofs.json $(ONLY)
	@$(BIN)/python -m tests.proofs

gpu: setup-dev   ## what needs a CUDA device
	@$(PYTEST) -q -m gpu

gpu-kit: setup-dev ## build/gpu-kit: this source and wheels, for a CUDA machine without network, and its sessions
	@$(BIN)/python benchmarks/gpu/kit.py

bench: setup-dev ## every benchmark; each prints its ratio and writes JSON to .gangline/benchmarks
	@for each in $$(grep -rl --include='*.py' '^if __name__' benchmarks | grep -vE '/(cluster|gpu)/' | sort); do echo "== $$each"; OMP_NUM_THREADS=1 $(BIN)/python $$each || exit 1; done

schemas: setup-dev ## JSON schemas and reference pages from the code
	@$(BIN)/python -m tools.json_schemas docs/schemas
	@$(BIN)/python -m tools.key_tables docs/reference
	@$(BIN)/python -m tools.commands_page docs/reference
	@$(BIN)/python -m tools.metrics_page docs/reference
	@$(BIN)/python -m tools.optimizer_page docs/reference
	@$(BIN)/python -m tools.gpus_page docs/reference
	@$(BIN)/python -m tools.openapi docs/schemas
	@$(BIN)/python -m tools.api_page docs/reference
	@$(BIN)/python -m tools.python_page docs/reference
	@$(BIN)/python -m tests.faults.protections
	@$(BIN)/python -m tests.surface.names

docs: setup-dev schemas ## the documentation site into build/docs, every link checked
	@$(BIN)/zensical build --strict && echo "docs      build/docs/index.html"

lock: setup-dev  ## new locks from pyproject.toml
	@$(BIN)/python requirements/lock.py

clean:           ## forget runs and caches; .venv stays
	@rm -rf .gangline .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
