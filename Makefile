# The two commands of README: `make run` (the main job) and `make test` (all tests). Both set up what is missing first.
BUILD ?= build
JOBS  ?= $(shell nproc)

.PHONY: all run test nightly setup configure program build clean bench

all: build

setup:            ## install missing packages (apt, pip); does nothing when all is there
	@scripts/setup.sh

configure: setup
	@cmake -S . -B $(BUILD) -G Ninja -DCMAKE_BUILD_TYPE=Release > $(BUILD).log 2>&1 || { cat $(BUILD).log; exit 1; }

program: configure  ## compile build/stitchcuda and what it runs, without the tests
	@cmake --build $(BUILD) -j $(JOBS) --target stitchcuda stitch_worker

build: configure  ## compile everything
	@cmake --build $(BUILD) -j $(JOBS)

run: program      ## capture, plan, code, build and verify the example
	@$(BUILD)/stitchcuda run examples/mini_gpt_block.py --out out/mini_gpt_block

test: build       ## C++ tests (ctest), then Python tests (pytest)
	@scripts/test.sh $(BUILD)

nightly: build    ## all tests, with those that take long
	@scripts/test.sh $(BUILD) nightly

bench:            ## the figures of docs/figures.md
	@bench/all.sh

clean:
	rm -rf $(BUILD) $(BUILD).log out
