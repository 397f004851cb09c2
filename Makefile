# make run: the main job on this machine. make test: everything that installs only into the venv.
# make test-system: what needs root and apt. make bsr-bench: the Hopper kernels as a program, needs nvcc. make lint: types and style alone.
PYTHON ?= python3
VENV := .venv
# The tests of bench time the processor; a CPU build is enough: make test TORCH="torch --index-url https://download.pytorch.org/whl/cpu"
TORCH ?= torch==2.13.0
BIN := $(VENV)/bin

.PHONY: run test test-system lint zipapp dist bsr-bench clean
.DEFAULT_GOAL := run

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 10) else "firstlight needs Python 3.10 or newer; $(PYTHON) is " + sys.version.split()[0] + ". Use: make PYTHON=python3.12 run")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing firstlight into $(VENV)" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.installed-tests: $(VENV)/.installed
	@echo "installing the test tools into $(VENV)" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH) numpy
	@touch $@

run: $(VENV)/.installed
	@BIN=$(BIN) sh tools/first_run.sh

lint: $(VENV)/.installed-tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: lint
	@$(BIN)/python -m tools.run_tests

test-system: $(VENV)/.installed-tests
	@sh tools/system_packages.sh
	$(BIN)/pytest -m "system and not network and not slow"

zipapp: $(VENV)/.installed
	@mkdir -p dist
	$(BIN)/firstlight facts --write-zipapp dist/firstlight-facts.pyz

# an sdist and the wheel that is built from it, looked over by twine and check-wheel-contents
dist: $(VENV)/.installed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dist]'
	@rm -rf dist && $(BIN)/python -m build --quiet --outdir dist
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl

# the Hopper kernels as a self-checking program without Python: needs nvcc
bsr-bench:
	@$(MAKE) --no-print-directory -C benchmarks/bsr_bench -j$$(nproc)

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
