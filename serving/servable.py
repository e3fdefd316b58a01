"""A loaded model version: found on disk, checked and run as TensorFlow Serving does it.

Every refusal is a `ServingError` with TensorFlow Serving's own status code and message, so that a
client that copes with this server also copes with the real one.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
from grpc import StatusCode
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow.core.framework.types_pb2 import DataType
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow_serving.apis.model_pb2 import ModelSpec

DEFAULT_SIGNATURE = "serving_default"
_SERVE_TAG = "serve"
_MAX_ERROR_BYTES = 1024
_STATUS_CODES = {code.value[0]: code for code in StatusCode}


class ServingError(Exception):
    """A model that cannot be loaded or a request that cannot be answered.

    Attributes:
        code: the gRPC status code.
        message: what was wrong, in at most 1,024 bytes of UTF-8.
    """

    def __init__(self, code: StatusCode, message: str) -> None:
        # The text travels in an HTTP header: it must be valid UTF-8, and short in bytes.
        text = message.encode(errors="replace")[:_MAX_ERROR_BYTES].decode(errors="ignore")
        super().__init__(text)
        self.code = code
        self.message = text


class Servable:
    """One version of one model, loaded from a SavedModel folder and ready to run.

    Attributes:
        name: the model's name.
        version: the version's number.
        signature_defs: all signatures by name, as the SavedModel describes them.

    Raises:
        ServingError: `path` holds no SavedModel that can be loaded for serving.
    """

    def __init__(self, name: str, version: int, path: Path) -> None:
        self.name = name
        self.version = version
        try:
            # Kept whole, not only its functions: they hold its variables by weak references.
            self._model = tf.saved_model.load(str(path), tags=[_SERVE_TAG])
            self.signature_defs = _read_signature_defs(path)
        except Exception as error:  # the loader's many parts raise what they like
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise ServingError(
                StatusCode.INTERNAL, f"Cannot load version {version} of model {name}: {reason}"
            ) from error

    def signature(self, name: str) -> SignatureDef | None:
        """Returns the signature `name`, or None where there is no such signature to run."""
        return self.signature_defs[name] if name in self._model.signatures else None

    def predict(
        self,
        signature_name: str,
        inputs: Mapping[str, TensorProto],
        output_filter: Sequence[str] = (),
    ) -> dict[str, np.ndarray]:
        """Checks a request against a signature and runs it.

        Args:
            signature_name: the signature to run.
            inputs: a tensor for each of its inputs, by name.
            output_filter: names of the outputs to return; all if empty.

        Returns:
            The outputs by name; strings are arrays of `bytes` objects.

        Raises:
            ServingError: the request does not fit the signature, or the graph refused it.
        """
        signature = self.signature(signature_name)
        if signature is None:
            raise ServingError(
                StatusCode.FAILED_PRECONDITION,
                f'Serving signature key "{signature_name}" not found.',
            )
        tensors = _parse_inputs(signature, inputs)
        _check_output_filter(signature, output_filter)
        outputs = self.run(signature_name, tensors)
        return {alias: outputs[alias] for alias in output_filter or sorted(outputs)}

    def run(self, signature_name: str, tensors: Mapping[str, tf.Tensor]) -> dict[str, np.ndarray]:
        """Runs an existing signature on tensors for all of its inputs; else as `predict`."""
        inputs = self.signature_defs[signature_name].inputs
        # The C++ session numbers its arguments in the order of their names in the graph.
        for index, alias in enumerate(sorted(tensors, key=lambda alias: inputs[alias].name)):
            expected, received = inputs[alias].dtype, tensors[alias].dtype.as_datatype_enum
            if received != expected:
                raise invalid_argument(
                    f"Expects arg[{index}] to be {type_name(expected)} "
                    f"but {type_name(received)} is provided"
                )
        try:
            outputs = self._model.signatures[signature_name](**tensors)
        except tf.errors.OpError as error:
            code, text = _STATUS_CODES[error.error_code], _runtime_text(error.message)
            raise ServingError(code, text) from error
        except UnicodeDecodeError as error:
            # TensorFlow could not make its message a str: it quotes bytes of the request.
            raise invalid_argument(_runtime_text(error.object.decode(errors="replace"))) from error
        return {
            # The dtype is given because NumPy would cut the trailing zeros of a scalar's bytes.
            alias: np.asarray(tensor.numpy(), tensor.dtype.as_numpy_dtype)
            for alias, tensor in outputs.items()
        }


def load_latest(name: str, base_path: str) -> Servable:
    """Loads the latest version of a model.

    Args:
        name: the name to serve it under.
        base_path: a folder of SavedModels, each in a child folder named by its version number.

    Raises:
        ServingError: there is no such folder, no version in it, or a version that does not load.
    """
    base = Path(base_path)
    if not base.is_dir():
        raise ServingError(
            StatusCode.NOT_FOUND, f"Base path {base_path} of model {name} is not a folder"
        )
    versions = {int(child.name): child for child in base.iterdir() if _is_version(child)}
    if not versions:
        raise ServingError(
            StatusCode.NOT_FOUND,
            f"No version of model {name} under base path {base_path}: "
            "expected a folder named by a number, such as 1",
        )
    version = max(versions)
    return Servable(name, version, versions[version])


def find(servables: Iterable[Servable], spec: ModelSpec) -> Servable:
    """Returns the servable that `spec` asks for: one version of a model, or its latest.

    Raises:
        ServingError: `spec` names no model, or one that is not in `servables`.
    """
    if not spec.name:
        raise invalid_argument("ModelSpec has no name specified.")
    refuse_label(spec)
    candidates = [servable for servable in servables if servable.name == spec.name]
    asked = f"Latest({spec.name})"
    if spec.HasField("version"):
        candidates = [each for each in candidates if each.version == spec.version.value]
        asked = f"Specific({spec.name}, {spec.version.value})"
    if not candidates:
        raise ServingError(StatusCode.NOT_FOUND, f"Servable not found for request: {asked}")
    return max(candidates, key=lambda servable: servable.version)


def refuse_label(spec: ModelSpec) -> None:
    """Refuses to find a version by its label: no version has one."""
    if spec.WhichOneof("version_choice") == "version_label":
        raise invalid_argument(f"Unrecognized servable version label: {spec.version_label}")


def invalid_argument(message: str) -> ServingError:
    """Returns the commonest refusal: the request itself is wrong."""
    return ServingError(StatusCode.INVALID_ARGUMENT, message)


def type_name(dtype: int) -> str:
    """Returns the C++ runtime's name of a DataType: DT_FLOAT is `float`, not `float32`."""
    return DataType.Name(dtype).removeprefix("DT_").lower()


def set_of(names: Iterable[str]) -> str:
    """Returns names as they stand in messages: `{a,b}`."""
    return "{" + ",".join(sorted(names)) + "}"


def _is_version(path: Path) -> bool:
    digits = path.name.isascii() and path.name.isdecimal()
    return digits and int(path.name) < 2**63 and path.is_dir()


def _read_signature_defs(path: Path) -> dict[str, SignatureDef]:
    """Returns the signatures that the SavedModel in `path` declares for serving."""
    saved_model = SavedModel.FromString((path / "saved_model.pb").read_bytes())
    graphs = [graph for graph in saved_model.meta_graphs if _SERVE_TAG in graph.meta_info_def.tags]
    return dict(graphs[0].signature_def)


def _parse_inputs(
    signature: SignatureDef, inputs: Mapping[str, TensorProto]
) -> dict[str, tf.Tensor]:
    """Returns a request's inputs as tensors, once their names match the signature's."""
    sent, wanted = set(inputs), set(signature.inputs)
    if len(sent) != len(wanted):
        raise invalid_argument(
            f"input size does not match signature: {len(sent)}!={len(wanted)} "
            f"len({set_of(sent)}) != len({set_of(wanted)}). Sent extra: {set_of(sent - wanted)}. "
            f"Missing but required: {set_of(wanted - sent)}."
        )
    tensors = {}
    for alias in sorted(wanted):
        if alias not in sent:
            raise invalid_argument(
                f"Signature input alias: {alias}(feed name: {signature.inputs[alias].name}) not "
                "found in request and no default value provided. Inputs expected to be in the "
                f"request {set_of(sent)}, or default input alias set: "
            )
        proto = inputs[alias]
        try:
            # The op reads a tensor as the C++ server does; tf.make_ndarray is stricter.
            tensors[alias] = tf.io.parse_tensor(proto.SerializeToString(), proto.dtype)
        except (tf.errors.OpError, TypeError) as error:  # TypeError: there is no such dtype
            raise invalid_argument(f"tensor parsing error: {alias}") from error
    return tensors


def _check_output_filter(signature: SignatureDef, output_filter: Sequence[str]) -> None:
    """Refuses an output_filter with a name that is unknown or there twice."""
    for index, alias in enumerate(output_filter):
        if alias not in signature.outputs:
            raise invalid_argument(
                f"output tensor alias not found in signature: {alias} "
                f"Outputs expected to be in the set {set_of(signature.outputs)}."
            )
        if alias in output_filter[:index]:
            raise invalid_argument(f"duplicate output tensor alias: {alias}")


def _runtime_text(message: str) -> str:
    """Returns the C++ runtime's message without what Python TensorFlow wraps around it."""
    message = re.sub(r"(?s)\AGraph execution error:.*<stack traces unavailable>\n", "", message)
    message = re.sub(r"\A\{\{function_node \S+\}\} ", "", message)
    return re.sub(r" \[Op:\w+\]\Z", "", message)
