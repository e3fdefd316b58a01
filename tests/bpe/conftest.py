"""What the tests of the byte-pair encoding share."""

import signal

import pytest


@pytest.fixture
def time_limit():
    """Fails a test that does not end within half a minute."""

    def stop(*_):
        raise TimeoutError("The test did not end within 30 seconds.")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
