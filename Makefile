# Everything runs in .venv, which is built here with plain venv and pip: python 3.11 or newer, git and make are all it needs.
PYTHON ?= python3
BIN := .venv/bin
# Every folder that holds a distribution; a new family or arch needs no entry. Core comes first and with its command line.
PARTS := $(sort $(dir $(wildcard runtime/pyproject.toml arch/*/pyproject.toml plugins/*/pyproject.toml)))
EDITABLE := -e 'core[cli]' $(foreach part,$(PARTS),-e $(part)) -e .
PROJECT_FILES := pyproject.toml $(wildcard core/pyproject.toml) $(foreach part,$(PARTS),$(part)pyproject.toml)
INSTALLED := .venv/.installed

.PHONY: .venv venv llvm20 demo test unit compile simulate bench torch sweep goldens bless docs lint ci clean
.DEFAULT_GOAL := test

venv .venv: $(INSTALLED)

$(INSTALLED): $(PROJECT_FILES)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"python 3.11 or newer is needed, this is {sys.version}; make PYTHON=python3.12 picks another")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --group build --group dev
	$(BIN)/python -m pip install --quiet --no-build-isolation $(EDITABLE)
	$(BIN)/python -m compileall -q core/src $(addsuffix src,$(PARTS))
	@touch $@

# The LLVM of flavor llvm20, in a Python of its own under the cache's root: the lanes of older LLVM need it.
llvm20: $(INSTALLED)
	@$(BIN)/python -c 'from kinfolk_runtime.toolchains import install_llvm20; install_llvm20()'

# The spine end to end: models' decode requests on two archs, dispatched, compiled, gated, simulated and checked.
demo: $(INSTALLED)
	$(BIN)/python demos/spine.py

# All lanes with the gates on skips, on files that no lane collects and on empty lanes.
test: $(INSTALLED) llvm20
	$(BIN)/python .ci/lanes.py unit compile simulate bench

unit compile simulate: $(INSTALLED) llvm20
	$(BIN)/python .ci/lanes.py $@

bench: $(INSTALLED)
	$(BIN)/python -m pytest tests/bench -p no:xdist -o 'python_files=bench_*.py' --benchmark-only --benchmark-sort=name

# The operators of torch, from wheels, in an environment that has torch for the CPU; no other target needs it.
torch: $(INSTALLED)
	$(BIN)/python .ci/torch_stage.py

# Every spec of every family and arch, not only those that CI compiles, every shape of models, those that take long too,
# every class of mutants, a hundred thousand requests of the bundles' readers, and what Triton makes of its kernels now
# (which installs Triton beside the caches).
sweep: $(INSTALLED)
	$(BIN)/kinfolk resources --all
	for shapes in plugins/*/src/*/shapes; do $(BIN)/kinfolk bench $$(echo $$shapes | cut -d/ -f2) --mode verify --long || exit 1; done
	for shapes in plugins/*/src/*/shapes; do for flavor in llvm20 llvm22; do \
		$(BIN)/kinfolk bench $$(echo $$shapes | cut -d/ -f2) --mode verify --executor isa --flavor $$flavor || exit 1; done; done
	for family in $(notdir $(wildcard plugins/*)); do $(BIN)/kinfolk conformance $$family --level full || exit 1; done
	for family in $(notdir $(wildcard plugins/*)); do $(BIN)/kinfolk mutate $$family --all || exit 1; done
	$(BIN)/python -m pytest -q --every-request tests/test_bundle_drift.py
	$(BIN)/python tools/compile_triton.py --check

# Every kernel against what was last approved of, by every LLVM of the project; the compile lane does the same.
goldens: $(INSTALLED) llvm20
	$(BIN)/kinfolk golden check --require llvmlite,llvmlite20,llc

# Approve of every kernel as it is: make bless REASON='what moved, and why that is right'.
bless: $(INSTALLED) llvm20
	$(BIN)/kinfolk golden bless --reason "$$REASON"
	$(BIN)/python tools/measure_quality.py
	$(BIN)/python tools/generate_docs.py

docs: $(INSTALLED)
	$(BIN)/python tools/generate_docs.py

lint: $(INSTALLED)
	@status=0; for check in 'ruff check .' 'ruff format --check .' 'python .ci/rules.py' 'python .ci/import_contracts.py' 'python tools/generate_docs.py --check' 'pyright --pythonpath $(BIN)/python'; do \
		echo "$(BIN)/$$check"; $(BIN)/$$check || status=1; done; exit $$status

# What is checked before anything lands: the stages, in a clean clone of HEAD, with time beside budget.
ci:
	bash .ci/run

clean:
	rm -rf .venv .ci/out
