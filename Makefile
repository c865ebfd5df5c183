# SPDX-License-Identifier: Apache-2.0
# The short names of what there is to do; CMake does the work. `make help` lists them.
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
WERROR ?= ON
FUZZ_SECONDS ?= 60
SCHEDULES ?= 2000
CMAKE_ARGS ?=
PYTHONS ?= python3
# Suites that choose the CPU's instructions themselves.
FEWER_INSTRUCTIONS := ^(avx2|interpreted)/
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -ec
.DEFAULT_GOAL := build
.PHONY: build debug demo deps deps-docs deps-browser deps-fuzz deps-tsan deps-gpu deps-python deps-torch deps-aarch64 docs wheels test test-all test-torch test-avx2 test-interpreted test-large test-schedules install aarch64 asan tsan fuzz format check bundle diff clean help
MAKEFLAGS += --no-print-directory

# $(call build,preset,folder): configure (its report only when it fails) and compile.
define build
	@mkdir -p $(2)
	@cmake --preset $(1) -DPAODING_WERROR=$(WERROR) $(CMAKE_ARGS) >$(2)/configure.log 2>&1 || { cat $(2)/configure.log; exit 1; }
	@grep -h '^-- CUDA:' $(2)/configure.log || true
	@[[ $(1) != release ]] || tools/build_time.sh $(2) $(JOBS) all
	@cmake --build $(2) --parallel $(JOBS)
endef

build:            ## Build the release into build/ (the default)
	$(call build,release,build)

debug:            ## Build without optimisation into build-debug/
	$(call build,debug,build-debug)

deps:             ## Install what the build needs from apt; does nothing when all is there
	@tools/deps.sh build

deps-docs:        ## Install Doxygen and a theme for `make docs`
	@tools/deps.sh docs

deps-browser:     ## Install Debian's headless Chromium, in which `make test` tests the page of a report
	@tools/deps.sh browser

deps-fuzz:        ## Install clang for `make fuzz`
	@tools/deps.sh fuzz

deps-tsan:        ## Install clang and its OpenMP for `make tsan`
	@tools/deps.sh tsan

deps-gpu:         ## Unpack CUDA 13.0 headers and run-time libraries (NVIDIA's pip packages, 0.9 GB) into .deps/
	@tools/deps.sh gpu

deps-python:      ## Install what the Python package takes to build and test (nanobind, NumPy, pytest, mypy) into .venv/
	@tools/deps.sh python

deps-torch:       ## Install PyTorch (PyPI's, 4.8 GB) and what the Python package takes into .venv-torch/
	@tools/deps.sh torch

deps-aarch64:     ## Install a cross compiler and qemu, unpack libraries of arm64 into .deps-aarch64/
	@tools/deps.sh aarch64

docs: deps-docs   ## Write the guide and the reference as a site, build/docs/html/index.html; a warning is an error
	@tools/docs.sh build/docs

wheels: deps      ## A Python wheel for each of PYTHONS (python3) into build-wheels/, tested in a new environment
	@python/wheels.sh build-wheels $(PYTHONS)

test: deps        ## Build, then run every test, with a fifth of the cases of emulated kernels
	$(call build,release,build)
	@tools/run_tests.sh build $(JOBS)

test-all: deps    ## The same with all cases of emulated kernels, five times as many
	$(call build,release,build)
	@PAODING_CASE_SHARE=1/1 tools/run_tests.sh build $(JOBS)

test-torch: deps deps-python deps-torch  ## The tests of paoding.torch, which `make test` runs too where `make deps-torch` was called
	$(call build,release,build)
	@tools/run_tests.sh build $(JOBS) -R '^PythonTorch$$'

test-avx2: deps   ## Every test as on a CPU without AVX-512
	$(call build,release,build)
	@PAODING_CPU_ISA=avx2 tools/run_tests.sh build $(JOBS) -E '$(FEWER_INSTRUCTIONS)'

test-interpreted: deps  ## Every test with the CPU's groups instruction by instruction, as without AVX2
	$(call build,release,build)
	@PAODING_FUSE_TILES=0 tools/run_tests.sh build $(JOBS) -E '$(FEWER_INSTRUCTIONS)'

test-large: deps  ## The tests of kernels over more than 2^31 elements: minutes, and up to 6 GB of memory
	$(call build,release,build)
	@PAODING_LARGE_TESTS=1 build/paoding_tests --gtest_filter='LargeTensors.*'

test-schedules: deps  ## How CTAs exchange what they make, emulated in SCHEDULES (2000) orders of each layer: hours of a core
	$(call build,release,build)
	@tools/run_schedules.sh build $(JOBS) $(SCHEDULES)

install: deps     ## Build, then install headers, library and program under PREFIX (/usr/local)
	$(call build,release,build)
	@cmake --install build --prefix "$(PREFIX)"

demo: deps        ## Train a seq2seq that pronounces words, on this CPU, in some minutes; then show how it did
	@mkdir -p build
	@cmake --preset release -DPAODING_WERROR=$(WERROR) $(CMAKE_ARGS) >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
	@tools/build_time.sh build $(JOBS) demo
	@cmake --build build --parallel $(JOBS) --target paoding_cli
	@tools/demo.sh build

aarch64: deps deps-aarch64  ## Build for AArch64 into build-aarch64/ and run what the CPU computes, by qemu
	$(call build,aarch64,build-aarch64)
	@tools/run_aarch64.sh build-aarch64 $(JOBS)

asan: deps        ## The tests under AddressSanitizer and UBSan, in build-asan/
	$(call build,asan,build-asan)
	@tools/run_tests.sh build-asan $(JOBS)

tsan: WERROR = OFF
tsan: deps deps-tsan  ## The tests under clang's ThreadSanitizer and instrumented OpenMP, in build-tsan/
	$(call build,tsan,build-tsan)
	@tools/run_tests.sh build-tsan $(JOBS)

fuzz: deps deps-fuzz  ## Run every *_fuzz.cpp for FUZZ_SECONDS (60) each, in build-fuzz/
	@cmake --preset fuzz $(CMAKE_ARGS) >/dev/null
	@cmake --build build-fuzz --parallel $(JOBS) --target fuzz_targets
	@tools/run_fuzz.sh build-fuzz $(FUZZ_SECONDS)

format:           ## Format every .h and .cpp in place
	@tools/check.sh --format

check:            ## Formatting, file sizes, dependencies between folders, names, generated files, run paths
	@tools/check.sh
	@python3 tools/gpu_tests.py stale

bundle:           ## Copy the programs and the libraries they need into build/bundle/, to run elsewhere
	$(call build,release,build)
	@tools/bundle.sh build/bundle

diff:             ## Compare a few rows of the CPU with those of an earlier build: PREVIOUS=its folder or bundle
	@[[ -n "$(PREVIOUS)" ]] || { echo "make diff PREVIOUS=FOLDER: a bundle or build folder of the earlier commit" >&2; exit 2; }
	$(call build,release,build)
	@tools/diff_cpu_rows.sh "$(PREVIOUS)" build

clean:            ## Remove every build folder
	rm -rf build build-debug build-asan build-tsan build-fuzz build-aarch64 build-wheels build-cp3*

help:             ## This list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "make %-16s %s\n", $$1, $$2}' Makefile
	@echo 'Settings: PREFIX=$(PREFIX) JOBS=$(JOBS) WERROR=$(WERROR) FUZZ_SECONDS=$(FUZZ_SECONDS) CMAKE_ARGS="-DPAODING_CUDA=OFF ..."'
