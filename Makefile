.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Made when the packages of the lock are in .venv; older than the lock or pyproject.toml: again.
STAMP := $(VENV)/.installed
SPARK_STAMP := $(VENV)/.spark-installed
BENCH_STAMP := $(VENV)/.bench-installed
SUITE := $(BIN)/python -m tests.run

OPTIONS ?=
SEED ?=
RUNS ?=
SCENARIO ?=
PIPELINE ?=

.PHONY: help
help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: install
install: $(STAMP) ## make .venv with the `ottla` command in it (PYTHON=python3.12 for another Python)

$(STAMP): locks/dev.lock locks/uv.lock pyproject.toml
	@command -v $(PYTHON) > /dev/null || { echo "make: there is no $(PYTHON) here. Ottla needs Python 3.11 or later: install it, or name it with PYTHON=…" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: Ottla needs Python 3.11 or later, and $(PYTHON) is $$($(PYTHON) -V 2>&1). Name a newer one with PYTHON=…" >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || { echo "make: $(PYTHON) cannot make a virtual environment; on Debian and Ubuntu install python3-venv." >&2; exit 1; }
	locks/install.sh $(BIN) locks/dev.lock --compile-bytecode
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@# As pip does for a package that is not editable: each start of a node would compile it all.
	$(BIN)/python -m compileall -q -j 0 bench chaos clients controller examples node ottla proto replication tests
	@touch $@

.PHONY: run
run: install ## three nodes at localhost:9092 to 9094, their data in data-cluster/, until Ctrl-C: make run [OPTIONS="KEY=VALUE …"]
	@exec $(BIN)/ottla cluster start --nodes 3 $(OPTIONS)

.PHONY: node
node: install ## one node at localhost:9092, its data in data/, until Ctrl-C: make node [OPTIONS="KEY=VALUE …"]
	@exec $(BIN)/ottla node $(OPTIONS)

.PHONY: up
up: ## the cluster of compose/ in containers, until `make down` (NODE1_PORT=…: compose/README.md)
	@compose/run.sh up

.PHONY: down
down: ## stop it; its data stay (VOLUMES=1: they go too)
	@compose/run.sh down

.PHONY: logs
logs: ## what it writes, until Ctrl-C
	@compose/run.sh logs

.PHONY: status
status: ## what of it runs, and whether it is well
	@compose/run.sh status

.PHONY: test
test: install ## everything that needs no Docker and no Java; ends in one line (downloads 0.5 GB of Spark meanwhile, the first time)
	@$(SUITE) test

.PHONY: check
check: install ## the quick part of it, before each commit
	@$(SUITE) check

.PHONY: fmt
fmt: install ## format, and mend what can be mended
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

.PHONY: fmt-check
fmt-check: install
	$(BIN)/ruff format --check .

.PHONY: lint
lint: install ## ruff
	$(BIN)/ruff check .

.PHONY: types
types: install ## mypy, strict
	$(BIN)/mypy

.PHONY: arch
arch: install ## who may import whom, and that cores do no I/O
	$(BIN)/lint-imports

.PHONY: tidy
tidy: install ## the house rules
	$(BIN)/pytest -q tests/tidy

.PHONY: sim
sim: install ## simulation, on all cores: make sim [SEED=…] [RUNS=…] [FIRST=…] [SCENARIO=…]
	$(BIN)/python -m tests.sim.run $(if $(SEED),--seed $(SEED)) $(if $(RUNS),--runs $(RUNS)) $(if $(FIRST),--first $(FIRST)) $(if $(SCENARIO),--scenario $(SCENARIO))

.PHONY: crash
crash: install ## the long kill -9 and power-cut runs of logs, nodes and controllers
	$(BIN)/pytest -m "long and not interop and not containers and not transactions" --ignore=tests/integration/replicated --ignore=tests/integration/spark --ignore=tests/observed --ignore=tests/chaos

.PHONY: spark-install
spark-install: $(SPARK_STAMP) ## PySpark and a Java into .venv as well (0.5 GB)

$(SPARK_STAMP): $(STAMP) locks/spark.lock
	@# PySpark is built where it is installed: not packed for that, and what uv unpacked (3 GB) is not kept.
	UV_CACHE_DIR=$(VENV)/.uv locks/install.sh $(BIN) locks/spark.lock --config-settings-package=pyspark:--build-option=--compression=stored
	@rm -rf $(VENV)/.uv
	@touch $@

.PHONY: pipeline
pipeline: spark-install ## a pipeline on local Spark, end to end, with a page of charts: make pipeline [PIPELINE=clickstream|ticks|viewing]
	$(BIN)/python docs/pipelines/$(or $(PIPELINE),clickstream).py target/pipeline

.PHONY: spark
spark: spark-install ## the tests of the Spark source, sink and pipelines, the long ones too (no Java needed)
	$(BIN)/pytest -s -n0 tests/integration/spark

.PHONY: failover
failover: install ## leaders die by every means while clients write: nothing is lost, and how long it takes
	$(BIN)/pytest -s -n0 -m long tests/integration/replicated

.PHONY: containers
containers: install ## the cluster of compose/ in real containers: used, broken, refused (needs Docker)
	$(BIN)/pytest -s -n0 -m "containers and not long" tests/containers

.PHONY: spark-containers
spark-containers: install ## a pipeline on the Spark master and worker of compose/ (needs Docker; builds an image of 1.2 GB)
	$(BIN)/pytest -s -n0 -m "containers and long" tests/containers

.PHONY: observe
observe: install ## every metric, alert and panel with a real Prometheus (needs its Debian package, or Docker)
	$(BIN)/pytest -s -n0 -m long tests/observed

.PHONY: chaos
chaos: install ## break a cluster and judge it: make chaos [SCENARIO=…] [SEED=…] [BACKEND=local|docker|kafka]; alone: the quick set
	$(if $(filter kafka,$(BACKEND)),KAFKA_CLASS_PATH="$$($(BIN)/python -m tests.interop.kafka class-path)") \
		$(BIN)/ottla chaos run $(if $(SCENARIO),$(SCENARIO),--tier pr) $(if $(SEED),--seed $(SEED)) $(if $(BACKEND),--backend $(BACKEND)) --out target/chaos

.PHONY: soak
soak: install ## random faults for HOURS=…, five nodes, in rounds of ROUND_MINUTES=…; stops at the first round that is not good
	$(BIN)/ottla chaos soak --hours $(or $(HOURS),1) $(if $(ROUND_MINUTES),--round-minutes $(ROUND_MINUTES)) $(if $(SEED),--seed $(SEED)) --out target/soak

.PHONY: mutants
mutants: install ## rules undone on purpose, one by one, in real nodes: the judge of chaos must notice each
	$(BIN)/pytest -s -n0 -m long tests/chaos

.PHONY: interop
interop: install ## Kafka's own programs judge our node and our files (needs Java 17 and Maven)
	@$(BIN)/python -m tests.interop.kafka
	$(BIN)/pytest -m "interop and not transactions" tests/interop tests/integration/clients_own tests/integration/groups

.PHONY: transactions
transactions: install ## transactions on real nodes that are killed, thousands of them, drivers that die; on Apache Kafka too where there is Java
	$(BIN)/pytest -n0 -m "transactions and not long" tests/integration tests/interop tests/hostile

.PHONY: bench-install
bench-install: $(BENCH_STAMP) ## what `make bench` needs beside it: NATS and its client, matplotlib, py-spy

$(BENCH_STAMP): $(STAMP) locks/bench.lock
	locks/install.sh $(BIN) locks/bench.lock
	@touch $@

.PHONY: bench
bench: bench-install ## Ottla beside Apache Kafka and NATS, the whole table, into docs/benchmarks; goes on where it ended: make bench [OPTIONS="--minutes 30 --only goals"]
	$(BIN)/python -m bench.versus run --out docs/benchmarks $(OPTIONS)

.PHONY: bench-twice
bench-twice: bench-install ## the whole table twice, about 45 min each, and whether the two agree
	$(BIN)/python -m bench.versus twice --out docs/benchmarks $(OPTIONS)

.PHONY: bench-quick
bench-quick: bench-install ## a few minutes of it, into target/bench/quick
	$(BIN)/python -m bench.versus run --run quick --fresh --only quick --rounds 2 --warm-gb 0.5 --uncounted 0 --out target/bench/quick-page $(OPTIONS)

.PHONY: profile
profile: bench-install ## flame graphs of each node under load, into target/profile: make profile [OPTIONS="--only ack-1000 --variant ottla-fsync"]
	$(BIN)/python -m bench.versus.profile $(OPTIONS)

.PHONY: bench-log
bench-log: install ## what this machine can do, and the log beside it
	$(BIN)/python -m bench.limit
	$(BIN)/python -m bench.log
	$(BIN)/python -m bench.open

.PHONY: bench-node
bench-node: install ## a node beside a loop that keeps no promise, driven by librdkafka
	$(BIN)/python -m bench.node

.PHONY: bench-replication
bench-replication: install ## three nodes that replicate: throughput, latency, CPU (OPTIONS=--quick: two minutes)
	$(BIN)/python -m bench.replication $(OPTIONS)

.PHONY: bench-cluster
bench-cluster: install ## how long a cluster takes to start, and what thousands of partitions cost it
	$(BIN)/python -m bench.cluster_start
	$(BIN)/python -m bench.cluster_partitions

.PHONY: protos
protos: install ## write proto/gen anew from proto/*.proto
	$(BIN)/python -m grpc_tools.protoc -I proto --python_out=proto/gen --pyi_out=proto/gen proto/*.proto

.PHONY: docs
docs: install ## write docs/generated anew from the tables
	$(BIN)/ottla docs

.PHONY: docs-check
docs-check: install
	$(BIN)/ottla docs --check

COMPILE := target/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header

.PHONY: lock
lock: ## write locks/ anew from pyproject.toml (downloads uv into a throw-away environment)
	rm -rf target/lock
	$(PYTHON) -m venv target/lock
	target/lock/bin/pip install --quiet --disable-pip-version-check uv
	$(COMPILE) --extra dev --extra chaos pyproject.toml locks/build.in -o locks/dev.lock
	$(COMPILE) --all-extras -c locks/dev.lock pyproject.toml locks/build.in -o locks/all.lock
	$(COMPILE) --extra spark -c locks/all.lock pyproject.toml -o locks/spark.lock
	$(COMPILE) --extra bench -c locks/all.lock pyproject.toml -o locks/bench.lock
	$(COMPILE) -c locks/dev.lock pyproject.toml -o locks/node.lock
	$(COMPILE) -c locks/dev.lock locks/build.in -o locks/build.lock
	$(COMPILE) locks/uv.in -o locks/uv.lock
	rm -rf target/lock

.PHONY: clean
clean: ## remove what make made, except .venv
	rm -rf target build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
