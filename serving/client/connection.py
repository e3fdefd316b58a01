"""Connects to a server over REST or gRPC."""

from contextlib import AbstractContextManager, nullcontext

from serving.client.protocol import Client, Model
from serving.client.rest_client import RestClient


def connect(target: str, model: Model, signature: str) -> AbstractContextManager[Client]:
    """Returns a client as a context manager. Its calls raise `QueryError`.

    Args:
        target: `http://host:port` for REST; `host:port`, or another name that gRPC takes, for gRPC.
    """
    if target.startswith(("http://", "https://")):
        return nullcontext(RestClient(target, model, signature))
    # Imported here, as it imports TensorFlow, which REST does not need.
    from serving.client.grpc_client import open_client

    return open_client(target, model, signature)
