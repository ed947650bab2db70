# Thin on purpose: what the targets do is in ops/.
STACK ?= local
PYTHON ?= python3
ARGS ?=
MANIFESTS ?=
export STACK ARGS MANIFESTS
# Set in the shell, it would hide this folder from `python3 -m ops` and from all that it starts.
export PYTHONSAFEPATH =
OPS = $(PYTHON) -m ops

.DEFAULT_GOAL := help
.PHONY: help up release preview down heal drift preflight pin api-keys pulumi pr-check test unit lint format lock clean
.PHONY: policy-env policy-pack policy-audit mutate-policies
.PHONY: bench test-unit test-simulator test-envoy test-preview integration kills drills
.PHONY: cluster cluster-down test-cluster

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo "  They work on STACK=$$STACK; ARGS='...' goes to pulumi or pytest."

up: ## Deploy STACK; the local one is then asked for predictions until every instance has answered
	@exec $(OPS) up --stack="$$STACK" --arguments="$$ARGS"

release: ## Move a pool of STACK to another version, GPU by GPU: ARGS="main --to 2" (--abort, --status; docs/releases.md)
	@exec $(OPS) release --stack="$$STACK" --arguments="$$ARGS"

preview: ## Show what `make up` would change; without a shared backend, a plan from nothing
	@exec $(OPS) preview --stack="$$STACK" --arguments="$$ARGS"

down: ## Destroy STACK; for the local one, stop the Docker Engine that `make up` started
	@exec $(OPS) down --stack="$$STACK" --arguments="$$ARGS"

heal: ## After a killed run: remove what the state of STACK does not know, refresh it (ARGS=--yes: do not ask)
	@exec $(OPS) heal --stack="$$STACK" --arguments="$$ARGS"

drift: ## Does what runs still match the state of STACK? Changes nothing (ARGS="--out FILE")
	@exec $(OPS) drift --stack="$$STACK" --arguments="$$ARGS"

preflight: ## Reach every host of STACK and name every problem, changing nothing
	@exec $(OPS) preflight --stack="$$STACK"

pin: ## Ask registries for the digests of STACK's images and write images.lock.yaml
	@$(OPS) pin --stack="$$STACK"

api-keys: ## Lines client=key become the file of front_end.api_keys_secret: make -s api-keys < keys
	@exec $(OPS) api-keys

pulumi: ## Run the Pulumi CLI on STACK: make pulumi ARGS="stack output"
	@exec $(OPS) pulumi --stack="$$STACK" --arguments="$$ARGS"

pr-check: ## What this branch changes in every stack, and what policies say: ARGS="--base origin/main --out FILE"
	@exec $(OPS) pr-check --arguments="$$ARGS"

test: ## Run every tier of tests and lint, with what they need installed first
	@exec $(OPS) test --arguments="$$ARGS"

unit: test-unit
test-unit: ## Tests of pure code, mocks and helpers: no engine, no CLI
	@exec $(OPS) test unit --arguments="$$ARGS"

test-simulator: ## Tests of the stand-in server's binary
	@exec $(OPS) test simulator --arguments="$$ARGS"

test-envoy: ## Tests with the real Envoy binary
	@exec $(OPS) test envoy --arguments="$$ARGS"

test-preview: ## Tests with the real Pulumi CLI, without a Docker Engine
	@exec $(OPS) test preview --arguments="$$ARGS"

integration: ## Tests with the real Pulumi CLI and a Docker Engine of their own
	@exec $(OPS) test integration --arguments="$$ARGS"

kills: ## The long ones of those: Pulumi killed at eleven further points of an `up` (about 7 min; not in `make test`)
	@exec $(OPS) test drill --arguments="$$ARGS"

drills: ## Changes and failures under load, every request counted, into docs/drills.md: make drills ARGS="1 8"
	@$(PYTHON) -m toolchain setup --dev
	@.venv/bin/python -m drills $$ARGS

cluster: ## Start a Kubernetes control plane of our own on the loopback, with nodes of simulated GPUs
	@exec $(OPS) cluster

cluster-down: ## Stop it and delete what is in it
	@exec $(OPS) cluster-down

test-cluster: ## Tests with a control plane of their own and the real Kubernetes provider (not in `make test`)
	@exec $(OPS) test cluster --arguments="$$ARGS"

mutate-policies: ## Remove each condition of each policy rule in turn: do its tests notice? (ARGS=gpu-memory; not in `make test`)
	@$(PYTHON) -m toolchain setup --dev
	@.venv/bin/python -m tests.mutation $$ARGS

bench: ## Measure, and write bench/results.md: make bench ARGS="plan preview-10 up"
	@$(PYTHON) -m toolchain setup --dev
	@.venv/bin/python -m bench $$ARGS

lint: ## ruff, ruff format, mypy --strict, actionlint
	@exec $(OPS) lint

format: ## Rewrite the Python files in the project's format
	@exec $(OPS) lint --fix

lock: ## Write requirements*.txt from requirements*.in, with hashes
	@exec $(OPS) lock

policy-audit: ## Judge what STACK has deployed by the policy pack, or YAML: MANIFESTS=folder (ARGS="--json --config FILE")
	@exec $(OPS) policy-audit --stack="$$STACK" --manifests="$$MANIFESTS" --arguments="$$ARGS"

policy-env: ## Make the policy pack's own environment, which plain `pulumi` needs to run it
	@exec $(OPS) policy-env

policy-pack: ## Copy the policy pack to .local/policy-pack, for programs outside this repository
	@exec $(OPS) policy-pack

clean: ## Remove what set-up made in this checkout (after `make down`); the shared cache stays
	@exec $(OPS) clean
