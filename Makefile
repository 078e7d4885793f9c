# Everything starts from a clean clone with Python (3.11 or newer) and make alone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH ?= torch==2.13.0
export OMP_NUM_THREADS ?= 1

.PHONY: demo test lint bench fuzz mutants clean

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

# random tables, artefacts, command lines and optimisations, minutes; `make fuzz SEED=7 SHARE=0.1` for others, or fewer
SEED ?= 0
SHARE ?= 1
fuzz: $(VENV)/.dev
	$(BIN)/pytest -q -p no:cacheprovider --hypothesis-seed=$(SEED) --share=$(SHARE) tests/fuzz/fuzz_*.py

# changes the code in one place at a time, and asks whether a test notices; within the hour
SAMPLE ?= 300
mutants: $(VENV)/.mutants
	$(BIN)/python tests/mutants/run.py --sample $(SAMPLE) --seed $(SEED)

$(VENV)/.mutants: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "cosmic-ray==8.7.0"
	@touch $@

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
