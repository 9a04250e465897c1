# Everything a fresh machine needs goes into .venv. `make test` and `make check` are what CI runs.
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: install test check fix bench-hub lock clean

install: .venv/installed

.venv/installed: requirements-dev.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(PIP) install -q --require-hashes -r requirements-dev.txt
	$(PIP) install -q --no-deps --no-build-isolation -e .
	touch $@

# The tests, with complete branch coverage of the pure rooms.
test: install
	rm -f .coverage .coverage.*
	$(BIN)/coverage run -m pytest -n $(WORKERS)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fix: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# In-process cost of the hub, as ratios to msgspec's own decoding of the same bytes.
bench-hub: install
	PYTHONPATH=. $(BIN)/python bench/hub.py

# New pins: hashes, and no address of an index.
lock:
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install -q pip-tools
	.venv-lock/bin/pip-compile $(LOCK_OPTIONS) -o requirements.txt pyproject.toml
	.venv-lock/bin/pip-compile $(LOCK_OPTIONS) --allow-unsafe -o requirements-dev.txt requirements-dev.in
	rm -rf .venv-lock

LOCK_OPTIONS := -q --upgrade --generate-hashes --strip-extras --no-header --annotation-style=line \
	--no-emit-index-url --no-emit-trusted-host --no-emit-find-links

clean:
	rm -rf .venv .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist src/*.egg-info
