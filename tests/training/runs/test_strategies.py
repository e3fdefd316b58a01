"""A worker that is lost is named by the others."""

import json

import pytest
import tensorflow as tf

from training.runs.strategies import naming_lost_workers

MESSAGE = """Collective ops is aborted by: recvmsg:Connection reset by peer
Additional GRPC error information from remote target /job:worker/replica:0/task:1 while calling it:
"""
OTHER = "No space on /job:worker/replica:0/task:11/device:CPU:0"


def raise_error(message):
    with naming_lost_workers():
        raise tf.errors.UnavailableError(None, None, message)


def test_a_lost_worker_is_named(monkeypatch):
    workers = ["first:2222", "second:2222"]
    config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    with pytest.raises(ConnectionError, match="worker 1, second:2222"):
        raise_error(MESSAGE)
    with pytest.raises(tf.errors.UnavailableError, match="No space"):
        raise_error(OTHER)


def test_one_process_has_no_workers(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(tf.errors.UnavailableError, match="Collective ops"):
        raise_error(MESSAGE)
