"""Servable: a loaded version of a model, which checks and runs requests like TensorFlow Serving.

Every error is a `ServingError` with TensorFlow Serving's own status code and message, so that a
client that handles this server's errors also handles those of the real one.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from grpc import StatusCode
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow.core.protobuf.config_pb2 import RunOptions
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef

from serving.runtime import FeedError, StatusError
from serving.server.errors import (
    ServingError,
    invalid_argument,
    malformed_tensor,
    runtime_refusal,
    set_of,
)
from serving.server.limits import UNLIMITED, Budget
from serving.server.models.loading import Loader
from serving.server.prometheus_metrics import Metrics

_MOST_RUNS = 4  # of one request, if other requests in its batch end its run


class Servable:
    """One version of one model, loaded and ready to run.

    Args:
        metrics: times the runs; None if no page shows metrics.
        loader: loads the version; by default with a server's default options.

    Attributes:
        signature_defs: all signatures by name, as the model describes them.
    """

    def __init__(
        self,
        name: str,
        version: int,
        path: Path,
        metrics: Metrics | None = None,
        loader: Loader | None = None,
    ) -> None:
        self.name = name
        self.version = version
        self.path = path
        self._metrics = metrics or Metrics()
        self._cancelled = False
        self._session, self.signature_defs = (loader or Loader()).load(path)

    def cancel(self) -> None:
        """Ends the runs in flight, and refuses further ones."""
        self._cancelled = True
        self._session.cancel()

    def count_examples(self, count: int) -> None:
        """Counts the tf.Examples of a request that was answered."""
        self._metrics.examples(self.name, count)

    def predict(
        self,
        signature_name: str,
        inputs: Mapping[str, TensorProto],
        output_filter: Sequence[str] = (),
        budget: Budget = UNLIMITED,
    ) -> dict[str, np.ndarray]:
        """Checks a request against a signature and runs it.

        Args:
            inputs: a tensor for each of its inputs, by name; those with a default may be missing.
            output_filter: names of the outputs to return; all if empty.

        Returns:
            The outputs by name; strings are arrays of `bytes` objects.
        """
        signature = self.signature_defs.get(signature_name)
        if signature is None:
            raise ServingError(
                StatusCode.FAILED_PRECONDITION,
                f'Serving signature key "{signature_name}" not found.',
            )
        _check_inputs(signature, inputs)
        inputs = {**signature.defaults, **inputs}
        budget.check_inputs(inputs)
        _check_output_filter(signature, output_filter)
        outputs = output_filter or sorted(signature.outputs)
        return self.run(signature, inputs, outputs, "Predict", budget)

    def run(
        self,
        signature: SignatureDef,
        inputs: Mapping[str, TensorProto],
        outputs: Sequence[str],
        api: str,
        budget: Budget = UNLIMITED,
    ) -> dict[str, np.ndarray]:
        """Runs a signature on a tensor for each of its inputs, without checks of these.

        Args:
            api: the name of the call in the metrics, such as `Classify`.
            budget: how long the run may take, and how large the outputs may be.

        Returns:
            The outputs by name; strings are arrays of `bytes` objects.
        """
        budget.check_time("before the run began")
        aliases = {signature.inputs[alias].name: alias for alias in inputs}
        feeds = {name: inputs[alias].SerializeToString() for name, alias in aliases.items()}
        fetches = [signature.outputs[alias].name for alias in outputs]
        try:
            with self._metrics.run(self.name, api):
                found = dict(zip(outputs, self._run(feeds, fetches, budget)))
        except FeedError as error:
            raise malformed_tensor(aliases[error.name]) from error
        except StatusError as error:
            raise runtime_refusal(error) from error
        budget.check_outputs(found)
        return found

    def _run(
        self, feeds: Mapping[str, bytes], fetches: Sequence[str], budget: Budget
    ) -> list[np.ndarray]:
        """Runs the graph until the time is over; repeats it if another request ended it.

        In a graph that merges requests, the last request of a batch ends the run for all of them if
        its own time is over.
        """
        runs = 0
        while True:
            # In RunOptions, 0 milliseconds means no limit.
            left = budget.seconds_left()
            limit = 0 if left is None else max(1, math.ceil(left * 1000))
            options = RunOptions(timeout_in_ms=limit).SerializeToString()
            runs += 1
            try:
                return self._session.run(feeds, fetches, options)
            except StatusError as error:
                is_cancelled = error.code == StatusCode.CANCELLED.value[0]
                if self._cancelled or not is_cancelled or runs == _MOST_RUNS:
                    raise
                budget.check_time("while the model ran")


def _check_inputs(signature: SignatureDef, inputs: Mapping[str, TensorProto]) -> None:
    """Refuses inputs whose names are not the signature's, or that have no default and are missing.

    As in TensorFlow Serving, whose message speaks of sizes where no input has a default.
    """
    sent, wanted, defaults = set(inputs), set(signature.inputs), signature.defaults
    if len(sent) > len(wanted) or (len(sent) < len(wanted) and not defaults):
        raise invalid_argument(
            f"input size does not match signature: {len(sent)}!={len(wanted)} "
            f"len({set_of(sent)}) != len({set_of(wanted)}). Sent extra: {set_of(sent - wanted)}. "
            f"Missing but required: {set_of(wanted - sent)}."
        )
    for alias in sorted(wanted):
        if alias not in sent and alias not in defaults:
            raise invalid_argument(
                f"Signature input alias: {alias}(feed name: {signature.inputs[alias].name}) not "
                "found in request and no default value provided. Inputs expected to be in the "
                f"request {set_of(sent)}, or default input alias set: {','.join(sorted(defaults))}"
            )
    if not sent <= wanted:
        raise invalid_argument(
            f"Inputs contains invalid name. Used request inputs: {','.join(sorted(sent & wanted))}"
            f", request input: {','.join(sorted(sent))}"
        )


def _check_output_filter(signature: SignatureDef, output_filter: Sequence[str]) -> None:
    for index, alias in enumerate(output_filter):
        if alias not in signature.outputs:
            raise invalid_argument(
                f"output tensor alias not found in signature: {alias} "
                f"Outputs expected to be in the set {set_of(signature.outputs)}."
            )
        if alias in output_filter[:index]:
            raise invalid_argument(f"duplicate output tensor alias: {alias}")
