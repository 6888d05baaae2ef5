# `make demo` and `make test` set up all they need in this folder; Python 3.10 to 3.13 and make are enough.
PYTHON ?= python3
WORKERS ?= 2
SECONDS = 600
OUT = out/gpu
NVRTC = out/nvrtc/nvidia/cu13/lib
TEST_PYTHON := .venv-test/bin/python

# Several processes share the cores: threads that have nothing to do sleep, where they would else spin.
test check stress: export OMP_WAIT_POLICY = passive
# The tests start many processes, which share the bytecode of the package.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check stress lowest compile lint docs dist gpu gpu-ahead clean
.DELETE_ON_ERROR:

# The main job on real data: a LeNet-5 for handwritten digits, trained by scan; results in out/demo.
demo: .venv-demo/ready
	.venv-demo/bin/python tools/demo.py

# The tests, in some minutes: a case or more of every law, kind of layer, method, family of kernels, file format and
# command. `make check` adds the long ones. Property tests draw the same examples in every run.
test: .venv-test/ready
	$(TEST_PYTHON) -m pytest -n $(WORKERS) --dist worksteal -m "not gpu and not long"

# Every check that needs no GPU, in half an hour: `make test`, lint and types, the tests that take long (examples of pages,
# sanitizers, races, NVRTC, wide layers, ranks, memory that ends), the site, the packages.
check: test lint
	$(TEST_PYTHON) -m pytest -n $(WORKERS) --dist worksteal -m "long and not gpu"
	$(MAKE) --no-print-directory docs dist

# Random edits of every file format, and commands killed at random moments, for SECONDS each; each result is read back in a
# child process. Prints seeds and counts.
stress: .venv-test/ready
	$(TEST_PYTHON) tests/stress/files.py $(SECONDS)
	$(TEST_PYTHON) tests/stress/kills.py $(SECONDS)

# The tests with the oldest packages that setup.cfg admits, by the oldest Python at hand: `make lowest PYTHON=python3.10`;
# then with the oldest NumPy beside the newest of the rest. Tests that need packages which are not there are skipped.
lowest:
	$(PYTHON) -I .ci/lowest.py .venv-lowest -n $(WORKERS)
	$(PYTHON) -I .ci/lowest.py .venv-lowest --keep numpy -n $(WORKERS)

# Every kernel by NVRTC for every GPU generation that it knows, in a quarter of an hour; `make check` takes two of them.
# By another NVRTC than the environment's: `make compile NVRTC=nvidia-cuda-nvrtc-cu12==12.4.127`.
compile: .venv-test/ready
ifdef NVRTC
	$(TEST_PYTHON) -m pip install --quiet --upgrade --no-deps --target out/nvrtc/$(NVRTC) $(NVRTC)
endif
	$(if $(NVRTC),BPPSA_NVRTC=$$(echo out/nvrtc/$(NVRTC)/nvidia/*/lib/libnvrtc.so.*)) \
		$(TEST_PYTHON) -m pytest tests/raw_kernels/test_kernels_compile.py -n $(WORKERS) --all-targets

lint: .venv-test/ready
	$(TEST_PYTHON) -m ruff check .
	$(TEST_PYTHON) -m ruff format --check .
	$(TEST_PYTHON) -I .ci/types.py
	$(TEST_PYTHON) -I .ci/prose.py

# The site, in out/site: every warning is an error.
docs: .venv-docs/ready
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/python -m mkdocs build --strict

# Wheel and sdist in dist/, and each installed in an empty environment and tried there.
dist: .venv-dist/ready
	rm -rf build dist
	.venv-dist/bin/python -m build
	.venv-dist/bin/python -I .ci/dist.py dist/*

# All that needs a GPU, in 560 seconds, with the machine's own Python and packages; `make gpu OUT=DIR ONLY=PART,PART`.
# Before it, on a machine without a GPU, `make gpu-ahead` leaves machine code in out/ahead: take that folder along.
gpu:
	$(PYTHON) tools/gpu.py --out $(OUT) $(if $(ONLY),--only $(ONLY))

gpu-ahead: .venv-test/ready out/nvrtc/ready
	LD_LIBRARY_PATH=$(NVRTC) BPPSA_NVRTC=$(NVRTC)/libnvrtc.so.13 $(TEST_PYTHON) tools/gpu.py --compile

# The NVRTC with which machine code is made ahead: that of the machine with the GPU.
out/nvrtc/ready:
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --target out/nvrtc 'nvidia-cuda-nvrtc==13.0.*'
	@touch $@

.venv-%/ready: setup.cfg pyproject.toml
	@echo "setting up .venv-$* (some minutes at the first time)"
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

clean:
	rm -rf .venv-demo .venv-docs .venv-dist .venv-lowest .venv-test build dist out *.egg-info
	rm -rf .hypothesis .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
