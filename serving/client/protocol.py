"""The interface of a model server's clients, the same for gRPC and REST."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

TIMEOUT_SECONDS = 60.0


class QueryError(Exception):
    """The question does not fit the model, or the server did not answer."""


class Model(NamedTuple):
    """A model by its name, and one of its versions by its number or its label; else the newest."""

    name: str
    version: int | None = None
    label: str | None = None


class Input(NamedTuple):
    """An input of a signature.

    Attributes:
        dtype: the name of its DataType.
        rank: its number of dimensions, if known.
        has_default: whether a request may leave it out.
    """

    dtype: str
    rank: int | None
    has_default: bool = False


class Client(Protocol):
    """Asks one signature of one model on a server."""

    def inputs(self) -> Mapping[str, Input]:
        """Returns the signature's inputs by name, as the server describes them.

        Raises:
            QueryError: the model does not have it, or the server did not answer.
        """

    def predict(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the outputs for inputs. Call it after `inputs`.

        Args:
            inputs: nested lists of numbers, strings or bytes, by name.

        Returns:
            Nested lists of numbers or strings, by name.

        Raises:
            QueryError: the inputs do not fit the signature, or the server did not answer.
        """
