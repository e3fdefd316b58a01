"""Overload: some requests run, some wait, and the others are refused at once."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from grpc import StatusCode

from serving.server.errors import ServingError
from serving.server.limits.one_request import Budget
from serving.server.limits.waiting import Admission
from serving.server.prometheus_metrics import Metrics


@pytest.fixture
def full():
    """An admission where two requests run until they are let go."""
    metrics = Metrics()
    admission, ended = Admission(2, 3, metrics), threading.Event()
    begun = threading.Barrier(3)

    def run():
        with admission.admitted(Budget()):
            begun.wait(30)
            ended.wait(30)

    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(run) for _ in range(2)]
        begun.wait(30)
        try:
            yield admission, metrics, ended
        finally:
            ended.set()
            for each in running:
                each.result()


def waiting(metrics):
    [line] = [
        line
        for line in metrics.page().decode().splitlines()
        if line.startswith(":gpt1_keras:serving:queued_requests ")
    ]
    return float(line.split()[1])


def test_first_come_first_served_and_no_more_than_may_wait(full):
    admission, metrics, ended = full
    order = []

    def wait_for_turn(number):
        with admission.admitted(Budget()):
            order.append(number)

    with ThreadPoolExecutor(3) as pool:
        for number in range(3):
            pool.submit(wait_for_turn, number)
            while waiting(metrics) != number + 1:
                pass
        with pytest.raises(
            ServingError, match="2 requests run and 3 wait, as many as may"
        ) as caught:
            wait_for_turn(3)
        assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED
        ended.set()
    assert sorted(order) == [0, 1, 2]
    assert waiting(metrics) == 0
    wait_for_turn(4)  # there is room again
    page = metrics.page().decode()
    assert ":gpt1_keras:serving:running_requests 0.0" in page
    assert ":gpt1_keras:serving:queued_requests_limit 3.0" in page


def test_a_request_whose_time_runs_out_leaves_the_queue(full):
    admission, metrics, _ = full
    for seconds in 0.02, -1.0:
        with pytest.raises(ServingError, match="Timed out while waiting for a turn") as caught:
            with admission.admitted(Budget(seconds=seconds)):
                pass
        assert caught.value.code is StatusCode.DEADLINE_EXCEEDED
    assert waiting(metrics) == 0


def test_a_request_whose_client_leaves_leaves_the_queue(full):
    admission, metrics, _ = full
    budget = Budget(seconds=30)

    def wait_for_turn():
        with admission.admitted(budget):
            pass

    with ThreadPoolExecutor(1) as pool:
        left = pool.submit(wait_for_turn)
        while waiting(metrics) != 1:
            assert not left.done()
        budget.cancel()
        for refused in left.result, wait_for_turn:  # also one that comes only now
            with pytest.raises(ServingError, match="client left while waiting for") as caught:
                refused()
            assert caught.value.code is StatusCode.CANCELLED
    assert waiting(metrics) == 0


def test_the_bytes_of_all_requests_together():
    """Small requests do not count, so that large ones cannot keep them out."""
    admission = Admission(1, 1, Metrics(), max_bytes=2**17)
    with admission.held() as first, admission.held() as second, admission.held() as third:
        for hold in first, second:
            for _ in range(2):
                hold(2**16)
        for hold in third, first:
            with pytest.raises(ServingError, match="131072 bytes, of at most 131072") as caught:
                hold(2**16 + 1)
            assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED
        with admission.held() as small:
            small(2**16)
    with admission.held() as again:
        again(2**17)


@pytest.mark.parametrize("seconds", [None, 1e10, 2.0**63 / 1e9, 2.0**63, float("inf")])
def test_a_request_without_a_deadline_waits(full, seconds):
    """gRPC gives it one that no thread can wait for."""
    admission, metrics, ended = full

    def wait_for_turn():
        with admission.admitted(Budget(seconds=seconds)):
            return "answered"

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(wait_for_turn)
        while waiting(metrics) != 1:
            assert not answer.done() or answer.result()
        ended.set()
        assert answer.result(30) == "answered"
    assert waiting(metrics) == 0


def test_a_request_that_fails_makes_room(full):
    admission, metrics, ended = full
    ended.set()
    for _ in range(5):
        with pytest.raises(KeyError), admission.admitted(Budget()):
            raise KeyError
    with admission.admitted(Budget()):
        assert ":gpt1_keras:serving:queued_requests 0.0" in metrics.page().decode()
