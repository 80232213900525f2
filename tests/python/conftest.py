import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))


def pytest_addoption(parser):
    parser.addoption("--sample", type=int, default=0, help="with KernelBench's problems: only every Nth, so that about this many run")


def pytest_configure(config):
    config.addinivalue_line("markers", "nightly: takes long, or needs files that CI does not have (make nightly)")
