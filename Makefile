# `make help` lists what there is. PYTHON=... names the interpreter for the virtual environment.
.DEFAULT_GOAL := help
SHELL := /bin/sh
export PYTHON ?= python3
export HF_HUB_OFFLINE := 1
export ORT_DISABLE_TELEMETRY := 1

BIN := .venv/bin
CONFIG ?= headway.toml
ARGS ?=
SEED ?=
SEEDS ?= $(if $(SEED),1,200)

.PHONY: help serve test check sim fuzz chaos soak bench diagrams clean ready ready-dev

help: ## what there is
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1#\2/p' $(MAKEFILE_LIST) | awk -F'#' '{ printf "%-16s %s\n", $$1, $$2 }'

serve: ready ## everything made ready, then the default model on 127.0.0.1:8000 (CONFIG=FILE, ARGS="--port 9000")
	@exec $(BIN)/headway serve $(CONFIG) $(ARGS)

test: ready-dev ## everything made ready, then the whole test suite (ARGS="-k name")
	@$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

check: ready-dev ## format, lint, types, imports, tidy and unit tests; under a minute
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m pytest -n 2 tests/tidy tests/unit

sim: ready-dev ## seeded worlds against the scheduler and the planner of language models: SEEDS=1000 from seed 1 on, or SEED=17 alone; a failure says how to replay it
	@$(BIN)/python -m headway.sim.worlds --seed $(or $(SEED),1) --seeds $(SEEDS) $(ARGS)
	@$(BIN)/python -m headway.sim.llm.worlds --seed $(or $(SEED),1) --seeds $(SEEDS) --steps 100

fuzz: ready-dev ## spoiled requests over raw sockets to a real server (CONNECTIONS=10000, SEED=1); then those without sockets
	@$(BIN)/python -m tests.fuzz.sockets --connections $(or $(CONNECTIONS),10000) --seed $(or $(SEED),1)
	@$(BIN)/python -m pytest tests/fuzz $(ARGS)

chaos: ready-dev ## a real server under load, its workers killed and worse (KILLS=100, SEED=1, ARGS="--model minilm"); then the waves
	@$(BIN)/python -m tests.chaos.run --seed $(or $(SEED),1) --kills $(or $(KILLS),100) $(ARGS)
	@$(BIN)/python -m tests.chaos.waves

soak: ready-dev ## the same for long (MINUTES=30, SEED=1), faults at a low rate: does memory grow, or goodput fall?
	@$(BIN)/python -m tests.chaos.soak --seed $(or $(SEED),1) --minutes $(or $(MINUTES),30) $(ARGS)

bench: ready-dev ## the figures of docs/benchmarks.md, one benchmark after the other (minutes; the machine should be idle)
	@set -e; for each in benchmarks/*.py; do echo "== $$each"; $(BIN)/python $$each; done

diagrams: ready-dev ## docs/lifecycles.md from the tables of legal transitions, docs/configuration.md from the settings
	@$(BIN)/python tools/diagrams.py > docs/lifecycles.md
	@$(BIN)/python -m headway.config.reference > docs/configuration.md

ready:
	@tools/set-up serve

ready-dev:
	@tools/set-up dev

clean: ## removes the virtual environment, the exported model and all caches
	rm -rf .venv .headway build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache src/*.egg-info src/headway/_compiled
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
