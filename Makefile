SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= $(shell for each in python3.11 python3.12 python3.13 python3; do \
  $$each -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$each && break; done)
VENV := .venv
BIN := $(VENV)/bin
JAVA_HOST := services/worker/java-host
JAVA_HOST_BUILT := services/worker/drover_worker/java_host/.built
STUBS := shared/drover/api/common/v1/ids_pb2.py
export PATH := $(CURDIR)/$(BIN):$(PATH)
# without its bytecode each process compiles the sources of all its modules: three quarters of its start
unexport PYTHONDONTWRITEBYTECODE

.PHONY: FORCE help setup installed java-host lock proto wheels run up down clean-data kafka test all-tests test-fast test-faults test-cluster test-mysql lint static-checks fmt docs screenshots bench simulate check-python check-java clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

check-python:
	@$(or $(PYTHON),false) -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || { echo "Drover needs Python 3.11 or newer with venv and pip: install it, or name it with make PYTHON=..." >&2; exit 1; }

check-java: installed
	@$(BIN)/python -m drover.local.java_check

PROJECTS := shared services/coordinator services/config-store services/status-store services/worker services/gateway

EXTRAS := jdbc,postgres,lakehouse,objects,http,avro,protobuf,sql
LOCKED := requirements.lock deploy/install.py deploy/needed.py $(PROJECTS:=/pyproject.toml)

FORCE:

# a folder that was moved or copied, has lost its Python or was left half-made is made again; pyvenv.cfg
# is written then only
$(VENV)/pyvenv.cfg: FORCE | check-python
	@{ test -x $(BIN)/python && $(BIN)/python -I deploy/venv_check.py; } || $(PYTHON) -m venv --clear $(VENV)

# what `make run` needs; the tools of the repository are added by `make setup`
$(VENV)/.installed: $(LOCKED) $(VENV)/pyvenv.cfg
	@echo "installing what Drover needs into $(VENV) (half a minute the first time)"
	@$(BIN)/python -m deploy.install requirements.lock grpcio-tools mypy-protobuf \
	  'shared/pyproject.toml[spark,$(EXTRAS)]' 'services/gateway/pyproject.toml[mcp]' $(PROJECTS:%=--project %)
	@touch $@

$(VENV)/.tools: pyproject.toml $(VENV)/.installed
	@echo "installing the tools of the repository into $(VENV)"
	@$(BIN)/python -m deploy.install requirements.lock --all
	@touch $@

$(STUBS): $(VENV)/.installed protos/generate.py $(shell find protos -name '*.proto')
	@$(BIN)/python protos/generate.py

installed: $(VENV)/.installed $(STUBS)

$(JAVA_HOST_BUILT): $(JAVA_HOST)/pom.xml $(JAVA_HOST)/build.sh $(shell find $(JAVA_HOST)/src -type f)
	@$(JAVA_HOST)/build.sh

java-host: $(JAVA_HOST_BUILT) ## build the host of Java plugins, where Maven and a JDK are installed

setup: installed $(VENV)/.tools $(JAVA_HOST_BUILT) ## install everything into .venv

proto: $(VENV)/.installed ## generate the gRPC stubs
	@$(BIN)/python protos/generate.py

wheels: setup ## build every distribution into dist/
	@rm -rf dist
	@for each in $(PROJECTS); do $(BIN)/python -m build --wheel --no-isolation --quiet --outdir dist $$each || exit 1; done
	@ls dist

run: installed check-java ## the main job: real data through a whole cluster, with workers killed on the way
	@$(BIN)/python -m examples.flights

up: installed check-java ## keep an embedded cluster running in the foreground (Ctrl-C stops it)
	@$(BIN)/drover up

down: installed ## stop what `make up` or `make run` left; its data stays
	@$(BIN)/drover down

clean-data: installed ## stop what `make up` or `make run` left, and delete its data
	@$(BIN)/drover down --delete-data --yes

PORT ?= 9092
kafka: installed check-java ## a Kafka broker in the foreground, from Maven's jars; PORT=9092, data in .drover/kafka
	@$(BIN)/python -m tests.support.kafka --port '$(PORT)'

JOBS ?= 3
test: setup ## lint, and every test but those of faults, in JOBS processes
	@$(MAKE) --no-print-directory check-java
	@$(MAKE) --no-print-directory -j2 static-checks all-tests

all-tests: setup
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --no-loadscope-reorder

test-fast: setup ## the tests that need neither Spark nor other processes
	@$(BIN)/python -m pytest -m 'not spark and not e2e and not kafka'

ONLY ?=
test-faults: setup check-java ## suites that kill, freeze and cut off; ONLY=herder|kafka|coordinator|engine|connectors|clients|security|gateway|console|spark
	@$(BIN)/python -m pytest --faults$(addprefix =,$(ONLY))

test-cluster: setup ## the cluster of docker-compose.yml on a Docker engine that runs: killed, paused, cut off, scaled
	@$(BIN)/python -m pytest --faults=cluster tests/cluster

test-mysql: setup check-java ## the tests of databases on MySQL, which Debian has in its suite sid only
	@$(BIN)/python -m pytest --faults=mysql tests/databases tests/spark/connectors tests/kafka/test_database_kills.py

lint: static-checks ## ruff, mypy, layers, rules of the code
	@$(BIN)/python -m pytest -q tests/contract

static-checks: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

fmt: setup ## format the code
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: setup ## write llms.txt, and the tables of docs/*.md that are made of the code
	@$(BIN)/python -m tests.support.docs_tables

screenshots: setup check-java ## the pictures of docs/console.md, of a running cluster in Chromium
	@$(BIN)/python -m tests.support.console_screenshots

bench: setup check-java ## the figures, one JSON object a line; ONLY=coordinator for a part
	@$(BIN)/python -m bench $(addprefix --only ,$(ONLY))

SEED ?=
SEEDS ?= 200
FIRST_SEED ?= 0
STORY ?=
PLANT ?=
simulate: setup ## simulate cluster lifetimes; SEED=n replays one (STORY=item tells more), SEEDS=n FIRST_SEED=n runs many; KAFKA=1 on brokers
	@$(BIN)/python -m simulation --plant '$(PLANT)' $(if $(KAFKA),--kafka) $(if $(SEED),--seed $(SEED) \
	  --story '$(STORY)',--seeds $(SEEDS) --first-seed $(FIRST_SEED))

lock: ## write requirements.lock: the digests of the versions in constraints.txt, which .venv must have
	@$(BIN)/python -m deploy.lock

clean: ## remove the virtual environment, the stubs and all caches
	rm -rf $(VENV) $(JAVA_HOST)/target $(dir $(JAVA_HOST_BUILT)) shared/drover/api/*/ .mypy_cache .ruff_cache .pytest_cache .hypothesis .drover .kafka .iceberg .apicurio .keycloak .postgres .hadoop .bench-dlt .spark-classes
