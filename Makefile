# Everything that a developer or a CI runner starts. The work itself is in the scripts that are named here.
.DEFAULT_GOAL := help
.PHONY: help deps deb lab lab-down test vm-test mutate soak bench bench-runtime engine-trial model-trial fuzz api pictures lint clean
LAB := tests/lab/lab
BIN := .venv/bin
# A completion, of a model that has learnt nothing.
ASK := curl -sS --json '{"prompt": "The ring is", "max_tokens": 24, "temperature": 0}' 127.0.0.1:8888/v1/completions

help: ## List the targets
	@echo "Targets of make:"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | while IFS="$$(printf '\t')" read -r target text; do \
	    printf '  %-13s %s\n' "$$target" "$$text"; done

deps: ## Install what building and testing need (packages as root, and .venv)
	@tests/deps

deb: deps ## Build build/deb/sparkd_VERSION_all.deb
	@packaging/build-deb

lab: deb ## Three virtual Sparks with the package installed and the ring ready (root). ENGINE=sglang: with SGLang
	@$(LAB) up --engine $(or $(ENGINE),probe)
	@$(LAB) exec spark1 -- sparkctl up --wait
	@echo
	@$(LAB) exec spark1 -- sparkctl status
	@echo
ifeq ($(ENGINE),sglang)
	$(LAB) exec spark1 -- $(ASK)
	@echo
	@echo
endif
	@echo "The ring is ready. How to go on:"
	@printf '  %-60s %s\n' \
	    "$(LAB) exec spark2 -- sparkctl status --watch" "every node answers for the ring" \
	    "$(LAB) exec spark1 -- journalctl -u sparkd -f" "what the daemon does, and why" \
	    "$(LAB) exec spark1 -- curl -s 127.0.0.1:7474/v1/ring" "the same over HTTP" \
	    "$(LAB) power-cut spark3" "break something; see $(LAB) --help" \
	    "make lab-down" "remove it all"

lab-down: ## Remove the virtual Sparks
	@$(LAB) down

test: deb ## All tests that need no Spark; they use labs of their own (root). ARGS="-k plan" for some of them
	@$(if $(ARGS),,tests/lab/engine >/dev/null || echo "The tests with SGLang will fail; the others go on.")
	@$(if $(ARGS),,tests/fuzz/deps || echo "The tests with schemathesis will fail; the others go on.")
	@$(BIN)/python -m tests.run $(ARGS)

mutate: deps ## Break each rule of the core in a copy of the tree, and see the tests notice. ARGS="gates.py" for some
	@$(BIN)/python -m tests.mutate $(ARGS)

soak: deb ## Random faults on a lab of its own for MINUTES (30), and whether what must hold does (root). ARGS="--seed 7"
	@$(BIN)/python -m tests.lab.soak --minutes $(or $(MINUTES),30) $(ARGS)

vm-test: deb ## Real RDMA without hardware: three virtual machines with Soft-RoCE (root, QEMU). ARGS="-k pingpong"
	@tests/vm/deps
	@$(BIN)/python -m pytest --vm -m vm -o faulthandler_timeout=1800 tests/vm $(ARGS)

fuzz: deps ## schemathesis against the three listeners for MINUTES (10), with what no request may do. ARGS="--seed 7"
	@tests/fuzz/deps
	@$(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),10) $(ARGS)

bench: deb ## What planner, Engram's reader and daemon cost, against the floor of the run (root); ARGS="--quick" for less
	@$(BIN)/python -m ring_mesh bench
	@$(BIN)/python -m tests.adapter.bench
	@$(BIN)/python -m tests.lab.bench $(ARGS)
	@$(BIN)/python -m tests.lab.apibench

pictures: deps ## The page with a ring in each state, wide and narrow, light and dark, as PNG in build/page (chromium)
	@$(BIN)/python -m tests.page.shots build/page

bench-runtime: deps ## How fast a checkpoint is verified, packed and fetched, beside sha256sum, cp and curl. ARGS="--gib 4"
	@$(BIN)/python -m tests.runtime.throughput $(ARGS)

model-trial: deps ## Fetch a made-up checkpoint of some GiB from a hub that goes wrong, verify it, pack it. ARGS="--gib 4"
	@$(BIN)/python -m tests.runtime.checkpoint.trial $(ARGS)

engine-trial: deps ## Install the CPU profile of the lock for real, killed at random and gone on with. ARGS="--kills 9"
	@$(BIN)/python -m tests.runtime.engine_install.trial $(ARGS)

api: deps ## Record what is new in the API, tests/api/openapi.json; refused if it breaks a client
	@$(BIN)/python -m tests.api.contract --record

lint: deps ## The linters alone
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

clean: ## Remove what was built and the tools' caches; .venv and the lab's base image stay
	@rm -rf build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -path ./.venv -prune -o -type d -name __pycache__ -print0 | xargs -0 -r rm -rf
