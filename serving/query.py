"""Asks a running server, this package's or TensorFlow Serving's own, about texts.

    python -m serving.query --model sst2 "a joy to watch" "a waste of time"
    python -m serving.query --model mnli --input premise="It rains." --input hypothesis="It is wet."

It prints a line for each text: the label and its score, or with --json all outputs.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# Read when TensorFlow is imported: only the server's answer and errors are of interest here.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import grpc
import numpy as np

# The requests hold tensors, and the messages for those come with all of TensorFlow only.
import tensorflow as tf
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef
from tensorflow_serving.apis.get_model_metadata_pb2 import GetModelMetadataRequest, SignatureDefMap
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

_SIGNATURE = "serving_default"
_TIMEOUT_SECONDS = 60.0


class QueryError(Exception):
    """A question that does not fit the model's signature."""


def main(argv: Sequence[str] | None = None) -> int:
    """Asks and prints; returns the exit status."""
    parser = _parser()
    options = parser.parse_args(argv)
    if bool(options.texts) == bool(options.input):
        parser.error("expected either texts or --input NAME=TEXT for each of the model's inputs")
    try:
        for row in ask(options.target, options.model, options.texts, options.input):
            print(_line(row, options.json))
    except grpc.RpcError as error:
        print(f"{error.code().name}: {error.details()}", file=sys.stderr)
        return 1
    except QueryError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def ask(
    target: str,
    model: str,
    texts: Sequence[str] = (),
    named_texts: Sequence[tuple[str, str]] = (),
) -> list[dict[str, Any]]:
    """Asks about texts, over gRPC.

    Args:
        target: `host:port` of the server.
        model: the model's name.
        texts: the texts, for a model that takes one text; or
        named_texts: pairs of input name and text, for a model that takes several.

    Returns:
        each text's outputs, by name.

    Raises:
        QueryError: the texts do not fit the model's inputs.
        grpc.RpcError: the server refused or could not be reached.
    """
    with grpc.insecure_channel(target) as channel:
        stub = PredictionServiceStub(channel)
        columns = _columns(_signature(stub, model), texts, named_texts)
        return list(_rows(_predict(stub, model, columns)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m serving.query",
        description="Ask a running server about texts and print the label and score of each.",
    )
    parser.add_argument(
        "texts", nargs="*", metavar="TEXT", help="text for a model that takes one text"
    )
    parser.add_argument(
        "--target",
        default="localhost:8500",
        metavar="HOST:PORT",
        help="gRPC address of the server (default: localhost:8500)",
    )
    parser.add_argument("--model", required=True, metavar="NAME", help="name of the model")
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        type=_named_text,
        metavar="NAME=TEXT",
        help="text for the input NAME of a model that takes several texts; once for each input, "
        "and again for each further question",
    )
    parser.add_argument(
        "--json", action="store_true", help="print all outputs, as a JSON object for each text"
    )
    return parser


def _named_text(argument: str) -> tuple[str, str]:
    name, equals, text = argument.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"expected NAME=TEXT, received {argument!r}")
    return name, text


def _signature(stub: PredictionServiceStub, model: str) -> SignatureDef:
    """Returns the model's default signature, as the server describes it."""
    request = GetModelMetadataRequest(
        model_spec=ModelSpec(name=model), metadata_field=["signature_def"]
    )
    response = stub.GetModelMetadata(request, timeout=_TIMEOUT_SECONDS)
    signatures = SignatureDefMap()
    response.metadata["signature_def"].Unpack(signatures)
    if _SIGNATURE not in signatures.signature_def:
        raise QueryError(f"Model {model} has no signature {_SIGNATURE}")
    return signatures.signature_def[_SIGNATURE]


def _columns(
    signature: SignatureDef, texts: Sequence[str], named_texts: Sequence[tuple[str, str]]
) -> Mapping[str, Sequence[str]]:
    """Returns the texts for each input of the signature."""
    names = sorted(signature.inputs)
    if texts and len(names) == 1:
        return {names[0]: texts}
    columns: dict[str, list[str]] = {}
    for name, text in named_texts:
        columns.setdefault(name, []).append(text)
    counts = {name: len(column) for name, column in columns.items()}
    if set(columns) != set(names) or len(set(counts.values())) != 1:
        raise QueryError(
            f"Expected as many --input {'=TEXT as --input '.join(names)}=TEXT, "
            f"received {counts or 'texts without a name'}"
        )
    return columns


def _predict(
    stub: PredictionServiceStub, model: str, columns: Mapping[str, Sequence[str]]
) -> dict[str, np.ndarray]:
    """Returns the outputs of the default signature, by name."""
    request = PredictRequest(model_spec=ModelSpec(name=model))
    for name, column in columns.items():
        # An argument that is not valid UTF-8 reaches the model as it was typed.
        values = [os.fsencode(text) for text in column]
        request.inputs[name].CopyFrom(tf.make_tensor_proto(values, tf.string))
    response = stub.Predict(request, timeout=_TIMEOUT_SECONDS)
    return {name: tf.make_ndarray(proto) for name, proto in sorted(response.outputs.items())}


def _rows(outputs: Mapping[str, np.ndarray]) -> Iterator[dict[str, Any]]:
    """Yields each text's outputs."""
    for row in zip(*map(_plain, outputs.values())):
        yield dict(zip(outputs, row))


def _plain(array: np.ndarray) -> list[Any]:
    """Returns an output as nested lists that JSON can hold."""
    if array.dtype == object:
        decode = np.vectorize(lambda text: text.decode(errors="replace"), otypes=[object])
        return decode(array).tolist()
    if np.issubdtype(array.dtype, np.floating):
        # By way of text a float32 becomes 0.9, the shortest decimal for it, not 0.8999999761581421.
        return array.astype(str).astype(float).tolist()
    return array.tolist()


def _line(row: Mapping[str, Any], as_json: bool) -> str:
    """Returns what is printed about one text: the best label and its score, or all outputs."""
    scores = row["scores"] if "scores" in row else [row["score"]] if "score" in row else []
    if as_json or not scores:
        return json.dumps(row, ensure_ascii=False)
    score = f"{max(scores):.4f}"
    return f"{row['label']}  {score}" if "label" in row else score


if __name__ == "__main__":
    sys.exit(main())
