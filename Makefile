# make demo   set up and run the whole loop at the smallest true scale (under 30 minutes on 2 cores)
# make test   set up and run the tests
PY := .venv/bin/python
# One thread per process: two threads beside another busy process collapse on a small machine.
export OMP_NUM_THREADS := 1
export MKL_NUM_THREADS := 1
export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM := false

.PHONY: setup demo test lint check format
setup:
	@bash scripts/setup.sh

demo: setup
	@$(PY) -m robowm.apps.cli flywheel experiment=demo $(ARGS)

test: setup
	@$(PY) -m pytest tests $(ARGS)

lint: setup
	@$(PY) -m ruff format --check . && $(PY) -m ruff check .

check: lint test

format: setup
	@$(PY) -m ruff format . && $(PY) -m ruff check --fix .
