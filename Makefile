PYTHON ?= python3
BIN := .venv/bin

.PHONY: smoke-test test check fix clean

# Train the built-in model on sums: a minute or two on a CPU, no download of a model.
smoke-test: .venv/installed
	$(BIN)/grpo-kit run recipes/smoke.yaml

# All tests; no GPU, network or hub.
test: .venv/installed
	$(BIN)/pytest

# Format, lint, types and the fast tests.
check: .venv/installed
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy
	$(BIN)/pytest -m "not slow"

# Mend what formatter and linter can mend.
fix: .venv/installed
	$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf .venv
