# Everything a fresh machine needs goes into a virtualenv: .venv for python3, .venv-3.13 for PYTHON=python3.13 or PYTHON=/path/to/python3.13.
# `.ci/run` is what CI runs.
PYTHON ?= python3
PYTHON_VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
VENV := $(if $(filter python3,$(PYTHON)),.venv,.venv-$(PYTHON_VERSION))
BIN := $(VENV)/bin
WORKERS ?= 2
# The time limit of one test, in seconds, for targets whose tests start real clients; otherwise it is 120.
LONG := 900
# pytest stores the test modules that it compiled, which saves it 10 s in every later run. An environment may forbid that.
export PYTHONDONTWRITEBYTECODE =

.PHONY: install run test test-fast test-within test-clients test-probe test-extension test-vscode editor test-faults check fix bench-hub bench-producer bench bench-against bench-peers bench-dialects bench-streams bench-store bench-client soak lock clean

# tools/install.py does nothing when the virtualenv has this interpreter and these pins already.
install:
	@test -n "$(PYTHON_VERSION)" || { echo "PYTHON=$(PYTHON) does not run; name another, such as PYTHON=/usr/bin/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python $(PYTHON_VERSION) is too old: antiphon needs 3.11 or newer; name one with PYTHON=")'
	@$(PYTHON) tools/install.py $(VENV)

# A gateway that answers, with no key: the embedded model, and every provider whose key is in the environment.
run: install
	$(BIN)/antiphon serve

# Runs all tests in two parts. The first part runs under coverage, and the packages that need no socket must have complete
# branch coverage after it. The second part are the tests with the marker `without_coverage`: coverage would double their time.
test: install
	@echo "testing on $$($(BIN)/python --version), $(VENV)"
	rm -f .coverage .coverage.*
	$(BIN)/coverage run -m pytest -n $(WORKERS) --part within
	$(BIN)/coverage combine -q
	$(BIN)/coverage report
	$(BIN)/python -m pytest -n $(WORKERS) --part through

# Runs every test that opens no socket, starts no process and uses no database server, without coverage and in less than a
# minute: all but those with the markers `io` and `slow`. Laws are tested with fewer generated inputs than in `make test`.
test-fast: install
	ANTIPHON_EXAMPLES=10 $(BIN)/python -m pytest -n $(WORKERS) --fast

# Runs the first part without coverage. CI runs it on a second version of Python.
test-within: install
	@echo "testing on $$($(BIN)/python --version), $(VENV)"
	$(BIN)/python -m pytest -n $(WORKERS) --part within

# Clients that are too heavy for every day, against strict scripted servers. Needs npm.
test-clients: install .clients/installed
	$(BIN)/python -m pytest -m heavy --time-limit $(LONG) tests/clients

# `antiphon probe` against the embedded model's own server, at its three endpoints: some minutes.
test-probe: install
	$(BIN)/python -m pytest -m heavy --time-limit $(LONG) tests/probe

.clients/installed: Makefile
	npm install --prefix .clients --no-save --no-audit --no-fund --loglevel=error $(CLIENTS)
	touch $@

CLIENTS := @openai/codex@0.166.0 @anthropic-ai/claude-code@2.1.197 opencode-ai@1.18.33 ai@6.0.326 @ai-sdk/openai@3.0.139 \
	@ai-sdk/anthropic@3.0.138 @ai-sdk/open-responses@1.0.39 @anthropic-ai/sdk@1.8.0 @google/gemini-cli@0.61.0 zod@4.6.7

# Hostile input to a real gateway process, while another process measures `/health`: timed bounds, so nothing else runs beside it.
test-faults: install
	$(BIN)/python -m pytest -m timed --time-limit $(LONG) tests/faults_outside

# Builds, type-checks and packs the extension for VS Code, and tests it in a stand-in for VS Code with a gateway. Needs Node and npm.
test-extension: install integrations/vscode/node_modules/installed
	$(BIN)/python -m pytest -m heavy --time-limit $(LONG) tests/integrations/test_vscode_extension.py

# Tests the extension in a real VS Code with a browser: a few minutes, and a few more the first time. Needs npm and Debian packages, and
# names the missing packages. `ANTIPHON_SCREENSHOTS=docs/images make test-vscode` renews the screenshots of the documentation.
test-vscode: editor install integrations/vscode/node_modules/installed
	$(BIN)/python -m pytest -m heavy --time-limit $(LONG) tests/integrations/test_vscode_editor.py

editor:
	tests/integrations/editor/install.sh .editor

integrations/vscode/node_modules/installed: integrations/vscode/package.json
	npm install --prefix integrations/vscode --no-package-lock --no-audit --no-fund --loglevel=error
	touch $@

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fix: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# More examples of the laws, a hundred thousand damaged bodies and answers, then two hundred thousand requests to a real gateway with its memory watched, then two
# hundred gateways on each kind of store that are killed while a thousand responses are kept; an hour.
CASES ?= 100000
REQUESTS ?= 200000
KILLS ?= 200
soak: install
	ANTIPHON_EXAMPLES=500 ANTIPHON_RANDOM=1 $(BIN)/python -m pytest -n $(WORKERS) --time-limit 3600 tests/protocol tests/dialects tests/profiles
	ANTIPHON_CASES=$(CASES) ANTIPHON_SEED=$$(date +%s)000000 ANTIPHON_RANDOM=1 $(BIN)/python -m pytest -n $(WORKERS) --time-limit 3600 tests/fuzz
	PYTHONPATH=. $(BIN)/python -m soak.run --requests $(REQUESTS) --seed $$(date +%s)
	PYTHONPATH=. $(BIN)/python -m soak.kills --store sqlite --rounds $(KILLS) --seed $$(date +%s)
	PYTHONPATH=. $(BIN)/python -m soak.kills --store postgres --rounds $(KILLS) --seed $$(date +%s)

# In-process cost of the hub, as ratios to msgspec's own decoding of the same bytes.
bench-hub: install
	PYTHONPATH=. $(BIN)/python bench/hub.py

# What an agent pays for a delta. Results go into bench/RESULTS.md.
bench-producer: install
	PYTHONPATH=. $(BIN)/python bench/producer.py

# CPU per request on the wire, beside nginx and the usual stack; minutes. ROUNDS=1 for a look. Results go into bench/RESULTS.md.
ROUNDS ?= 7
bench: .perf/python/installed .perf/bin/loadgen .perf/bin/mock_upstream .perf/nginx .perf/naive/installed
	PYTHONPATH=. .perf/python/bin/python bench/gateway.py --rounds $(ROUNDS) --write

# Another commit beside the working tree, with the same interpreter and packages: make bench-against COMMIT=main. Prints its results.
COMMIT ?= main
bench-against: .perf/python/installed .perf/bin/loadgen .perf/bin/mock_upstream
	PYTHONPATH=. .perf/python/bin/python bench/gateway.py --against $(COMMIT) --rounds $(ROUNDS)

# The same with other gateways, each in an environment of its own.
bench-peers: .perf/python/installed .perf/bin/loadgen .perf/bin/mock_upstream .perf/nginx .perf/naive/installed .perf/peers-installed
	PYTHONPATH=. .perf/python/bin/python bench/gateway.py --peers --rounds $(ROUNDS) --write

# The gateway before servers of Messages and Gemini, in multiples of the same before a server of chat.
bench-dialects: .perf/python/installed .perf/bin/loadgen .perf/bin/mock_upstream
	PYTHONPATH=. .perf/python/bin/python bench/gateway.py --dialects --rounds $(ROUNDS) --write

# A thousand slow streams on one process.
bench-streams: .perf/python/installed .perf/bin/loadgen .perf/bin/mock_upstream .perf/nginx
	PYTHONPATH=. .perf/python/bin/python bench/streams.py --write

# What it costs to keep responses, to continue long chains, and to hold idle WebSockets; a quarter of an hour.
bench-store: install .perf/bin/loadgen .perf/bin/mock_upstream
	PYTHONPATH=. $(BIN)/python bench/store.py --rounds $(ROUNDS) --write

# What it costs a program to read a stream, beside the openai SDK; a minute.
bench-client: install
	PYTHONPATH=. $(BIN)/python bench/client.py --write

# The interpreter that everything written in Python is measured with. One that was built without optimisation, as version managers do
# by default, costs about a quarter more: BENCH_PYTHON=/usr/bin/python3 is a good choice on Debian.
BENCH_PYTHON ?= $(PYTHON)
.perf/python/installed: requirements.txt pyproject.toml
	rm -rf .perf/python
	$(BENCH_PYTHON) -m venv .perf/python
	.perf/python/bin/python -m pip install -q --require-hashes -r requirements.txt
	.perf/python/bin/python -m pip install -q -U 'setuptools>=77' wheel
	.perf/python/bin/python -m pip install -q --no-deps --no-build-isolation -e .
	touch $@

.perf/bin/%: bench/native/%.c
	mkdir -p .perf/bin
	$(CC) -O2 -Wall -o $@ $<

# Debian's package, unpacked here, where none is installed.
.perf/nginx:
	mkdir -p .perf
	command -v nginx || (cd .perf && apt-get download -q nginx && dpkg -x nginx_*.deb deb)
	ln -sfn $$(command -v nginx || echo deb/usr/sbin/nginx) $@

# sniffio: without it httpx looks for it anew on every request.
.perf/naive/installed: Makefile
	rm -rf .perf/naive
	$(BENCH_PYTHON) -m venv .perf/naive
	.perf/naive/bin/python -m pip install -q fastapi pydantic httpx sniffio uvicorn uvloop httptools
	touch $@

# One that cannot be installed is left out of the results, and named there.
.perf/peers-installed: Makefile
	rm -rf .perf/litellm .perf/llm-rosetta .perf/open-responses-server
	-$(BENCH_PYTHON) -m venv .perf/litellm && .perf/litellm/bin/python -m pip install -q 'litellm[proxy]'
	-$(BENCH_PYTHON) -m venv .perf/llm-rosetta && .perf/llm-rosetta/bin/python -m pip install -q 'llm-rosetta[gateway]'
	-$(BENCH_PYTHON) -m venv .perf/open-responses-server && .perf/open-responses-server/bin/python -m pip install -q open-responses-server
	touch $@

# New pins: hashes, and no address of an index. A newer Python would leave out what only the oldest needs; the other way round, installing fails.
lock:
	@test "$(PYTHON_VERSION)" = 3.11 || { echo "pins are made on Python 3.11, and $(PYTHON) is $(PYTHON_VERSION): name one with PYTHON=" >&2; exit 1; }
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install -q pip-tools
	.venv-lock/bin/pip-compile $(LOCK_OPTIONS) -o requirements.txt pyproject.toml
	.venv-lock/bin/pip-compile $(LOCK_OPTIONS) --allow-unsafe -o requirements-dev.txt requirements-dev.in
	.venv-lock/bin/pip-compile $(LOCK_OPTIONS) -o requirements-uv.txt requirements-uv.in
	rm -rf .venv-lock

LOCK_OPTIONS := -q --upgrade --generate-hashes --strip-extras --no-header --annotation-style=line \
	--no-emit-index-url --no-emit-trusted-host --no-emit-find-links

clean:
	rm -rf .venv .venv-* .clients .editor integrations/vscode/node_modules integrations/vscode/out .perf .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist src/*.egg-info
