PYTHON ?= python3
BIN := .venv/bin

.PHONY: smoke-test test faults chaos audit check fix bench gpu-check clean

# Train the built-in model on sums: a minute or two on a CPU, no download of a model.
smoke-test: .venv/installed
	$(BIN)/grpo-kit run recipes/smoke.yaml

# All tests; no GPU, network or hub.
test: .venv/installed
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto

# Kill 40 runs at bad moments, resume each, and compare: about 25 minutes.
faults: .venv/installed
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -s -p no:cacheprovider tests/fault_injection.py

# Kill a short smoke run at every file that it writes, and resume each: an hour or two; POINTS=20 samples them.
chaos: .venv/installed
	OMP_NUM_THREADS=1 $(BIN)/ckpt-chaos run --work .venv/chaos --max-points $(or $(POINTS),1000) --timeout 300 \
	  --step-regex 'after step (\d+)' --result-file '{out}/runs/smoke/final/model.safetensors' -- \
	  sh -c 'mkdir -p {out} && cd {out} && exec $(CURDIR)/$(BIN)/grpo-kit run $(CURDIR)/recipes/smoke.yaml --resume \
	    grpo.max_steps=4 grpo.save_steps=2 eval_dataset.limit=8 grpo.per_device_train_batch_size=16'

# Known vulnerabilities of the pinned dependencies; asks a database on the network.
audit: .venv/installed
	$(PYTHON) -m venv .venv/audit && .venv/audit/bin/pip install --quiet pip-audit
	.venv/audit/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip --strict

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
