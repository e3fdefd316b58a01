"""The calls of TensorFlow Serving's REST interface.

POST /v1/models/NAME[/versions/V|/labels/L]:predict    {"instances": [...]} or {"inputs": ...}
POST /v1/models/NAME[/versions/V|/labels/L]:classify   {"examples": [...]}; so does :regress
GET  /v1/models/NAME[/versions/V|/labels/L]            the status of the model's versions
GET  /v1/models/NAME[/versions/V|/labels/L]/metadata   its signatures
"""

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from tensorflow_serving.apis.classification_pb2 import ClassificationRequest
from tensorflow_serving.apis.get_model_metadata_pb2 import SignatureDefMap
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.apis.regression_pb2 import RegressionRequest

from serving.server.calls import inference, rest_json
from serving.server.calls.inference import Resources
from serving.server.calls.rest_json import read_signature_name
from serving.server.errors import invalid_argument
from serving.server.limits.one_request import Budget
from serving.server.models.servable import Servable

_MODEL = r"/v1/models/([^/:]+)(?:/versions/([0-9]{1,19})|/labels/([^/:]+))?"
_MAX_VERSION = 2**63 - 1
_PATHS = {
    "GET": re.compile(_MODEL + "(?:/(metadata))?", re.IGNORECASE),
    "POST": re.compile(_MODEL + ":(predict|classify|regress)", re.IGNORECASE),
}


class RestCalls:
    """Answers REST requests about a server's models.

    Args:
        timeout: seconds that a request may take after it is received; None for no limit.
    """

    def __init__(self, resources: Resources, timeout: float | None) -> None:
        self._resources = resources
        self._timeout = timeout

    def answer(self, method: str, path: str, body: bytes) -> bytes:
        """Returns the reply to a `GET` or `POST` of a path, a JSON document."""
        resources = self._resources
        budget = Budget(resources.limits, self._timeout)
        path = path.partition("?")[0]
        match = _PATHS[method].fullmatch(path)
        name, version, label, verb = match.groups() if match else ("", None, None, "")
        if match is None or int(version or 0) > _MAX_VERSION:
            raise invalid_argument(f"Malformed request: {method} {path}")
        spec = ModelSpec(name=unquote(name))
        if version:
            spec.version.value = int(version)
        if label:
            spec.version_label = unquote(label)

        models, verb = resources.models, (verb or "").lower()
        with resources.measured(verb, "REST") as measured:
            if method == "GET":
                found = _metadata(models.find(spec)) if verb else _to_dict(models.status(spec))
                return rest_json.encoded(json.dumps(found, ensure_ascii=False))
            measured.model_name = spec.name
            with resources.admission.admitted(budget):
                document = rest_json.parse_document(body)
                reply = _VERBS[verb](models.find(spec), document, budget)
        return rest_json.encoded(reply)


def _predict(servable: Servable, document: Mapping[str, Any], budget: Budget) -> str:
    name = read_signature_name(document)
    signature = servable.signature_defs.get(name)
    if signature is None:
        raise invalid_argument(f'Serving signature name: "{name}" not found in signature def')
    inputs = rest_json.read_inputs(document, signature)
    outputs = servable.predict(name, inputs, budget=budget)
    return rest_json.write_outputs(document, outputs, budget)


def _classify(servable: Servable, document: Mapping[str, Any], budget: Budget) -> str:
    request = ClassificationRequest(input=rest_json.read_examples(document, budget))
    request.model_spec.signature_name = read_signature_name(document)
    result = inference.classify(servable, request, budget).result
    return rest_json.write_classifications(result, budget)


def _regress(servable: Servable, document: Mapping[str, Any], budget: Budget) -> str:
    request = RegressionRequest(input=rest_json.read_examples(document, budget))
    request.model_spec.signature_name = read_signature_name(document)
    result = inference.regress(servable, request, budget).result
    return rest_json.write_regressions(result)


_VERBS = {"predict": _predict, "classify": _classify, "regress": _regress}


def _metadata(servable: Servable) -> Mapping[str, Any]:
    """Returns the description of a servable's signatures."""
    response = inference.get_model_metadata(servable)
    signatures = SignatureDefMap()
    response.metadata[inference.SIGNATURE_DEF].Unpack(signatures)
    return {
        "model_spec": _to_dict(response.model_spec),
        "metadata": {inference.SIGNATURE_DEF: _to_dict(signatures)},
    }


def _to_dict(message: Message) -> Mapping[str, Any]:
    """Returns a message with all of its fields, as TensorFlow Serving writes them."""
    return MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
