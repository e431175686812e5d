# `make help` lists what there is. PYTHON=... names the interpreter for the virtual environment.
.DEFAULT_GOAL := help
SHELL := /bin/sh
export PYTHON ?= python3
export HF_HUB_OFFLINE := 1

BIN := .venv/bin
CONFIG ?= headway.toml
ARGS ?=
SEEDS ?= 200
SEED ?=

.PHONY: help serve test check sim bench clean ready ready-dev

help: ## what there is
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1#\2/p' $(MAKEFILE_LIST) | awk -F'#' '{ printf "%-16s %s\n", $$1, $$2 }'

serve: ready ## everything made ready, then the default model on 127.0.0.1:8000 (CONFIG=FILE, ARGS="--port 9000")
	@exec $(BIN)/headway serve $(CONFIG) $(ARGS)

test: ready-dev ## everything made ready, then the whole test suite (ARGS="-k name")
	@$(BIN)/python -m pytest -n 2 $(ARGS)

check: ready-dev ## format, lint, types, imports, tidy and unit tests; under a minute
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m pytest -n 2 tests/tidy tests/unit

ready:
	@tools/set-up serve

ready-dev:
	@tools/set-up dev

clean: ## removes the virtual environment, the exported model and all caches
	rm -rf .venv .headway build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache src/*.egg-info
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
