# Everything starts from a clean clone with Python (3.11 or newer) and make alone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH ?= torch==2.13.0
# the versions that continuous integration tests; `make CONSTRAINTS=` takes the newest there are
CONSTRAINTS ?= .ci/newest.txt
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check $(if $(CONSTRAINTS),-c $(CONSTRAINTS))
export OMP_NUM_THREADS ?= 1

.PHONY: demo figures reference test test-ecosystem lint bench study-report fuzz clean

# the main job, through the real command line, on the repository's own fixtures
demo: $(VENV)/.core
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh fixtures/demo.sh

# the README's figures, from what the demo wrote
figures: $(VENV)/.dev
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh fixtures/figures.sh

# the pages that are made from the program itself: commands, options, exit codes
reference: $(VENV)/.dev
	$(BIN)/python tests/write_reference.py

# the whole suite, on two cores (a third worker makes it 2% slower); tests that need torch skip where
# `make test TORCH=` leaves it out
JOBS ?= 2
test: $(VENV)/.dev
	$(BIN)/pytest -q -n $(JOBS) --dist worksteal

# the tracker and exports inside other people's trainers: each folder of tests/ecosystem has its requirements and an environment of
# its own, which sees the packages of the main one below them; `make test-ecosystem FAMILY=hf` for one
FAMILY ?= $(patsubst tests/ecosystem/%/requirements.txt,%,$(wildcard tests/ecosystem/*/requirements.txt))
ECOSYSTEM := .venv-ecosystem
test-ecosystem: $(patsubst %,$(ECOSYSTEM)/%/.done,$(FAMILY))
	@status=0; for family in $(FAMILY); do \
	  echo "## $$family"; $(ECOSYSTEM)/$$family/bin/python -m pytest -q -W default -p no:cacheprovider \
	    tests/ecosystem/$$family || status=1; done; exit $$status

$(ECOSYSTEM)/%/.done: tests/ecosystem/%/requirements.txt $(VENV)/.dev
	$(PYTHON) -m venv $(ECOSYSTEM)/$*
	@$(BIN)/python -c "import sys; print(*[p for p in sys.path[1:] if p and not p.startswith(sys.base_prefix)], sep='\n')" \
	  > "$$($(ECOSYSTEM)/$*/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/main.pth"
	$(ECOSYSTEM)/$*/bin/python -m pip install --quiet --disable-pip-version-check $(if $(TORCH),"$(TORCH)") -r $<
	@touch $@

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

# the benchmarks behind shapleymix/docs/results.md; one after another, so that nothing disturbs a timing
bench: $(VENV)/.dev
	@status=0; for script in tests/benchmarks/bench_*.py; do \
	  echo "## $$script"; $(BIN)/python $$script || status=1; done; exit $$status

# the tables of the study's page (fixtures/study), recomputed from its logs
study-report: $(VENV)/.dev
	$(BIN)/python fixtures/study/report.py --write

# random command lines, tables and problems, minutes; `make fuzz SEED=7 SHARE=0.1` for others, or fewer
SEED ?= 0
SHARE ?= 1
fuzz: $(VENV)/.dev
	$(BIN)/pytest -q -p no:cacheprovider --hypothesis-seed=$(SEED) --share=$(SHARE) tests/fuzz/fuzz_*.py

$(VENV)/.core: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	@if [ -n "$(TORCH)" ]; then $(PIP) "$(TORCH)"; fi
	$(PIP) -e ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) $(ECOSYSTEM) demo-output .pytest_cache .ruff_cache
