# Everything starts from a clean clone with Python (3.11 or newer) and make alone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH ?= torch==2.13.0
export OMP_NUM_THREADS ?= 1

.PHONY: demo test lint bench clean

# the main job, through the real command line, on the repository's own fixtures
demo: $(VENV)/.core
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh fixtures/demo.sh

# the whole suite; tests that need torch skip where `make test TORCH=` leaves it out
test: $(VENV)/.dev
	$(BIN)/pytest -q

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

# the tables that the README quotes; one after another, so that nothing disturbs a timing
bench: $(VENV)/.dev
	@status=0; for script in tests/benchmarks/bench_*.py; do \
	  echo "## $$script"; $(BIN)/python $$script || status=1; done; exit $$status

$(VENV)/.core: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	@if [ -n "$(TORCH)" ]; then $(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)"; fi
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) demo-output .pytest_cache .ruff_cache
