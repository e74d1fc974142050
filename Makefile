# Every target sets up what it needs.  `make help` lists them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
KAFKA_VERSION ?= 4.4.0
FILE ?=
OPTIONS ?=
CASES ?= 1000000
SEEDS ?= 200
WALKS ?= 5000
STATES ?= 150000
SUITE_DIR ?=

.PHONY: help install run server test check format docs model bench bench-scale bench-hotpath bench-peer bench-failover bench-cluster-peer bench-wal bench-kip bench-scaling crash chaos soak sim planted fuzz suite-aiokafka suite-kafka-python suite-librdkafka java-tools lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(STAMP): pyproject.toml requirements.lock
	@command -v $(PYTHON) >/dev/null || { echo "Wherry needs Python 3.11 or newer; set PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Wherry needs Python 3.11 or newer; set PYTHON=/path/to/python3"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $(STAMP)

install: $(STAMP) ## set up .venv: the broker, the tests' clients and the checkers

run: $(STAMP) ## three brokers in three zones, a load and a board: wherry demo, with OPTIONS="--no-load --port 19092"
	@exec $(BIN)/wherry demo $(OPTIONS)

server: $(STAMP) ## one broker on 127.0.0.1:9092, its data under ./data/server; FILE= a properties file
	@exec $(BIN)/wherry server $(FILE) $(OPTIONS)

test: $(STAMP) ## run every test that can run here, and say what was skipped and why
	$(BIN)/python -m pytest $(OPTIONS)

check: $(STAMP) ## lint, format, types, import contracts, architecture tests, alarms and boards
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/architecture tests/monitoring
	@if command -v promtool >/dev/null; then promtool check rules config/prometheus/alarms.yml; \
	else echo "promtool is missing (Debian's package prometheus): alarm rules are not checked"; fi

format: $(STAMP) ## rewrite the code in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP) ## regenerate the reference pages, Grafana's boards, and the picture of a broker's page
	$(BIN)/python -m broker.config.reference
	$(BIN)/python -m broker.server.protocol_reference
	$(BIN)/python -m broker.metrics.reference
	$(BIN)/python config/grafana/boards.py
	$(BIN)/python -m tests.support.web_page_picture

bench: $(STAMP) ## the canonical workload: throughput, latency, CPU, memory
	$(BIN)/python benchmarks/workload.py $(OPTIONS)

bench-scale: $(STAMP) ## 1,500 connections, 10,000 partitions: what they cost, and what must not grow with them
	$(BIN)/python benchmarks/scale.py $(OPTIONS)

bench-wal: $(STAMP) ## replication through buckets beside the usual way: latency, hops, requests, dollars per GB
	KAFKA_VERSION=$(KAFKA_VERSION) $(BIN)/python benchmarks/wal.py $(OPTIONS)

bench-kip: $(STAMP) ## KIP-1176's comparison: standard and WAL topic, Apache Kafka beside them; writes JSON and plots
	KAFKA_VERSION=$(KAFKA_VERSION) $(BIN)/python benchmarks/kip.py $(OPTIONS)

bench-scaling: $(STAMP) ## the formulas of docs/scaling.md beside the upload queue in virtual time and three real brokers
	$(BIN)/python benchmarks/scaling.py $(OPTIONS)

bench-hotpath: $(STAMP) ## produce and fetch beside a small C server: CPU per gigabyte and ratios (needs cc)
	$(BIN)/python benchmarks/hotpath/hotpath.py $(OPTIONS)

bench-peer: $(STAMP) ## the same loads on Apache Kafka and on us, taking turns (needs `make java-tools`)
	KAFKA_VERSION=$(KAFKA_VERSION) $(BIN)/python benchmarks/peer.py $(OPTIONS)

bench-failover: $(STAMP) ## how long a partition takes no records when its leader is killed, and when it is stopped
	KAFKA_VERSION=$(KAFKA_VERSION) $(BIN)/python benchmarks/failover.py $(OPTIONS)

bench-cluster-peer: $(STAMP) ## three brokers with replication factor 3 beside three of Apache Kafka (needs `make java-tools`)
	KAFKA_VERSION=$(KAFKA_VERSION) $(BIN)/python benchmarks/cluster_peer.py $(OPTIONS)

.PHONY: bench-tiering
bench-tiering: $(STAMP) ## tiered storage: copies, and reads from a bucket beside reads from the local log
	$(BIN)/python benchmarks/tiering.py $(OPTIONS)

crash: $(STAMP) ## fifty times kill -9 under load; then a thousand seeds of the simulated disk
	WHERRY_KILLS=50 $(BIN)/python -m pytest -q -s tests/interop/test_crash.py
	WHERRY_SEEDS=1000 $(BIN)/python -m pytest -q -s tests/properties/test_log_recovery.py tests/simulation

FAULTS ?= kill
chaos: $(STAMP) ## faults under load on three brokers: FAULTS=kill|pause|cut|roll OPTIONS="--seconds 600" (docs/testing.md)
	KAFKA_VERSION=$(KAFKA_VERSION) $(BIN)/python -m tests.cluster.chaos $(FAULTS) $(OPTIONS)

soak: $(STAMP) ## half an hour of replication through faulty buckets: OPTIONS="--seconds 120 --rate 500" for less
	$(BIN)/python -m tests.cluster.wal_soak $(OPTIONS)

.PHONY: tiered-proof
tiered-proof: $(STAMP) ## 10 GB through small disks, with faults of a minute: OPTIONS="--gigabytes 2 --segment-megabytes 16"
	$(BIN)/python -m tests.cluster.tiered_proof $(OPTIONS)

sim: $(STAMP) ## a cluster in virtual time, one process per core: make sim SEEDS=10000; failing seeds are written down
	PYTHONHASHSEED=0 $(BIN)/python -m tests.simulation.hunt --seeds $(SEEDS) --record $(OPTIONS)

model: $(STAMP) ## the model of KIP-1176's protocol for long: make model WALKS=20000 STATES=1500000 (docs/testing.md)
	$(BIN)/python -m tests.model.hunt --walks $(WALKS) --states $(STATES) $(OPTIONS)

planted: $(STAMP) ## plant each known bug in a copy of the tree; the simulation must find it within 200 seeds
	PYTHONHASHSEED=0 $(BIN)/python -m tests.simulation.planted $(OPTIONS)

# Peers' own suites against our broker; SUITE_DIR names a checkout (tests/suites/expected tells the versions).
suite-aiokafka: $(STAMP) ## aiokafka's own tests, compared with the list of what passes
	@$(BIN)/python -m tests.suites.run_suite aiokafka $(SUITE_DIR) $(OPTIONS)

suite-kafka-python: $(STAMP) ## kafka-python's own integration tests, likewise
	@$(BIN)/python -m tests.suites.run_suite kafka-python $(SUITE_DIR) $(OPTIONS)

suite-librdkafka: $(STAMP) ## librdkafka's own tests that use a broker, likewise; wants its test runner built
	@$(BIN)/python -m tests.suites.run_suite librdkafka $(SUITE_DIR) $(OPTIONS)

fuzz: $(STAMP) ## a million damaged requests (CASES=) against a running broker, and as many in the process
	WHERRY_FUZZ_CASES=$(CASES) $(BIN)/python -m pytest -q -s tests/interop/test_fuzz.py tests/properties/test_frame_fuzz.py

java-tools: ## collect Apache Kafka's tools from Maven Central into .cache (for the tests marked java)
	tests/java/collect.sh $(KAFKA_VERSION)

PIP_COMPILE = $(BIN)/pip-compile --quiet --strip-extras --generate-hashes --allow-unsafe --no-emit-index-url \
	  --no-emit-trusted-host --no-emit-find-links --no-header --no-annotate
lock: $(STAMP) ## write requirements.lock anew from pyproject.toml, and requirements-runtime.lock, which the image installs
	$(BIN)/python -m pip install --quiet pip-tools
	$(PIP_COMPILE) --all-extras --upgrade --output-file requirements.lock pyproject.toml
	$(PIP_COMPILE) --constraint requirements.lock --output-file requirements-runtime.lock pyproject.toml

clean: ## remove what the targets made, except data
	rm -rf $(VENV) .cache build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
