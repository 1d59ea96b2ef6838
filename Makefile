PYTHON ?= python3
BIN := .venv/bin

.PHONY: smoke-test test check fix bench gpu-check clean

# Train the built-in model on sums: a minute or two on a CPU, no download of a model.
smoke-test: .venv/installed
	$(BIN)/grpo-kit run recipes/smoke.yaml

# All tests; no GPU, network or hub.
test: .venv/installed
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto

# Format, lint, types and the fast tests.
check: .venv/installed
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy
	$(BIN)/pytest -m "not slow"

# Mend what formatter and linter can mend.
fix: .venv/installed
	$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

# The kit beside bare TRL: step time and memory; `make bench MODEL=FOLDER` adds the cases of a 0.5B model.
bench: .venv/installed
	$(BIN)/python benchmarks/step_time.py $(if $(MODEL),--model $(MODEL)) $(CASES)

# On a CUDA machine, under 5 minutes: gradients, the fit into 24 GB, speed.
gpu-check: .venv/installed
	$(BIN)/python benchmarks/gpu_check.py

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf .venv
