"""A pytest plugin: atheris, guided by coverage, searches one of hypothesis's tests.

`tests.coverage_fuzz` starts pytest with it, in a process for each test, which libFuzzer ends.
"""

import inspect
import os

import atheris
import pytest

from tests.coverage_fuzz import OPTIONS

# It applies to everything that is imported later, until the process ends.
atheris.instrument_imports(include=["gpt1_keras", "training", "serving"]).__enter__()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Searches the test instead of running it."""
    test = pyfuncitem.obj
    fixtures = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}
    inner = test.hypothesis.inner_test
    test.hypothesis.inner_test = lambda **drawn: inner(**fixtures, **drawn)
    test.__signature__ = inspect.Signature()  # so that hypothesis does not miss the fixtures
    atheris.Setup(["atheris", *os.environ[OPTIONS].split(" ")], test.hypothesis.fuzz_one_input)
    atheris.Fuzz()
