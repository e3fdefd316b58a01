"""The other calls over gRPC: good answers, and TensorFlow Serving's error for every mistake."""

import grpc
import pytest
import tensorflow as tf
from tensorflow_serving.apis.classification_pb2 import ClassificationRequest
from tensorflow_serving.apis.get_model_metadata_pb2 import GetModelMetadataRequest, SignatureDefMap
from tensorflow_serving.apis.get_model_status_pb2 import GetModelStatusRequest, ModelVersionStatus
from tensorflow_serving.apis.inference_pb2 import InferenceTask, MultiInferenceRequest
from tensorflow_serving.apis.model_management_pb2 import ReloadConfigRequest
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.regression_pb2 import RegressionRequest


def spec(name="tiny", version=None, label=None, signature=""):
    model_spec = ModelSpec(name=name, signature_name=signature)
    if version is not None:
        model_spec.version.value = version
    if label is not None:
        model_spec.version_label = label
    return model_spec


def example(text):
    features = {"text": tf.train.Feature(bytes_list=tf.train.BytesList(value=[text]))}
    return tf.train.Example(features=tf.train.Features(feature=features))


def classification_request(*texts, signature="classify"):
    request = ClassificationRequest(model_spec=spec(signature=signature))
    request.input.example_list.examples.extend(example(text) for text in texts)
    return request


def metadata_request(*fields):
    return GetModelMetadataRequest(model_spec=spec(), metadata_field=fields)


def test_classify(client):
    response = client.prediction.Classify(classification_request(b"abc", b""), timeout=30)

    assert response.model_spec == spec(version=3, signature="classify")
    found = [
        [(each.label, pytest.approx(each.score)) for each in row.classes]
        for row in response.result.classifications
    ]
    assert found == [[("negative", 0.7), ("positive", 0.3)], [("negative", 1), ("positive", 0)]]


def test_classify_merges_the_context(client):
    request = ClassificationRequest(model_spec=spec(signature="classify"))
    request.input.example_list_with_context.context.CopyFrom(example(b"abcd"))
    request.input.example_list_with_context.examples.extend([tf.train.Example(), example(b"a")])
    response = client.prediction.Classify(request, timeout=30)
    positive = [row.classes[1].score for row in response.result.classifications]
    assert positive == pytest.approx([0.4, 0.1])


def regression_request(*texts, signature="regress"):
    request = RegressionRequest(model_spec=spec(signature=signature))
    request.input.example_list.examples.extend(example(text) for text in texts)
    return request


def test_regress(client):
    response = client.prediction.Regress(regression_request(b"abc", b""), timeout=30)
    assert response.model_spec == spec(version=3, signature="regress")
    assert [each.value for each in response.result.regressions] == pytest.approx([0.3, 0])


def multi_inference_request(*tasks, texts=(b"abc",)):
    request = MultiInferenceRequest(
        tasks=[
            InferenceTask(model_spec=model_spec, method_name=f"tensorflow/serving/{method}")
            for model_spec, method in tasks
        ]
    )
    request.input.example_list.examples.extend(example(text) for text in texts)
    return request


CLASSIFY_TASK = (spec(signature="classify"), "classify")
REGRESS_TASK = (spec(signature="regress"), "regress")


def test_multi_inference(client):
    request = multi_inference_request(CLASSIFY_TASK, REGRESS_TASK)
    first, second = client.prediction.MultiInference(request, timeout=30).results
    assert first.model_spec == spec(version=3, signature="classify")
    [classified] = first.classification_result.classifications
    assert [each.score for each in classified.classes] == pytest.approx([0.7, 0.3])
    assert second.model_spec == spec(version=3, signature="regress")
    assert [each.value for each in second.regression_result.regressions] == pytest.approx([0.3])


def test_get_model_metadata(client):
    response = client.prediction.GetModelMetadata(metadata_request("signature_def"), timeout=30)

    assert response.model_spec == spec(version=3)
    signatures = SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(signatures)
    assert {"serving_default", "classify", "tokens"} <= set(signatures.signature_def)
    text = signatures.signature_def["serving_default"].inputs["text"]
    assert text.dtype == tf.string.as_datatype_enum
    assert [dim.size for dim in text.tensor_shape.dim] == [-1]


@pytest.mark.parametrize("version", [None, 3])
def test_get_model_status(client, version):
    request = GetModelStatusRequest(model_spec=spec(version=version))
    (status,) = client.model.GetModelStatus(request, timeout=30).model_version_status
    assert status.version == 3
    assert status.state == ModelVersionStatus.AVAILABLE
    assert status.status.error_code == 0


SPEC_ERRORS = [
    (None, "INVALID_ARGUMENT: Missing ModelSpec"),
    (spec(name=""), "INVALID_ARGUMENT: ModelSpec has no name specified."),
    (spec(name="other"), "NOT_FOUND: Servable not found for request: Latest(other)"),
    (spec(version=2), "NOT_FOUND: Servable not found for request: Specific(tiny, 2)"),
    (spec(label="old"), "INVALID_ARGUMENT: Unrecognized servable version label: old"),
]


@pytest.mark.parametrize(("model_spec", "error"), SPEC_ERRORS)
def test_model_spec_errors(client, error_of, model_spec, error):
    for call, request in [
        (client.prediction.Predict, PredictRequest(model_spec=model_spec)),
        (client.prediction.Classify, ClassificationRequest(model_spec=model_spec)),
        (client.prediction.Regress, RegressionRequest(model_spec=model_spec)),
        (
            client.prediction.GetModelMetadata,
            GetModelMetadataRequest(model_spec=model_spec, metadata_field=["signature_def"]),
        ),
    ]:
        assert error_of(call, request) == error


STATUS_ERRORS = [
    (None, "INVALID_ARGUMENT: Missing ModelSpec"),
    (spec(name="other"), "NOT_FOUND: Could not find any versions of model other"),
    (spec(version=2), "NOT_FOUND: Could not find version 2 of model tiny"),
    (spec(label="old"), "INVALID_ARGUMENT: Unrecognized servable version label: old"),
]


@pytest.mark.parametrize(("model_spec", "error"), STATUS_ERRORS)
def test_get_model_status_errors(client, error_of, model_spec, error):
    request = GetModelStatusRequest(model_spec=model_spec)
    assert error_of(client.model.GetModelStatus, request) == error


CLASSIFY_ERRORS = [
    (
        classification_request(b"a", signature="nope"),
        "INVALID_ARGUMENT: No signature was found with the name: nope",
    ),
    (
        # The empty name means serving_default here, too.
        classification_request(b"a", signature=""),
        (
            "INVALID_ARGUMENT: Signature serving_default does not classify: expected inputs "
            "{inputs} and outputs {classes,scores}, found inputs {text} and outputs "
            "{label,num_tokens,scores,truncated}"
        ),
    ),
    (classification_request(), "INVALID_ARGUMENT: Input is empty."),
    (
        classification_request(b"a", signature="misclassify"),
        (
            "INVALID_ARGUMENT: Expected classes (string) and scores (float), both "
            "[1, num_classes], from the signature; found {'scores': 'float32 [1]'}"
        ),
    ),
]


@pytest.mark.parametrize(("request_", "error"), CLASSIFY_ERRORS)
def test_classify_errors(client, error_of, request_, error):
    assert error_of(client.prediction.Classify, request_) == error


METADATA_ERRORS = [
    (
        metadata_request(),
        "INVALID_ARGUMENT: GetModelMetadataRequest must specify at least one metadata_field",
    ),
    (
        metadata_request("signature_def", "weights"),
        "INVALID_ARGUMENT: Metadata field weights is not supported",
    ),
]


@pytest.mark.parametrize(("request_", "error"), METADATA_ERRORS)
def test_get_model_metadata_errors(client, error_of, request_, error):
    assert error_of(client.prediction.GetModelMetadata, request_) == error


REGRESS_ERRORS = [
    (
        regression_request(b"a", signature="nope"),
        "INVALID_ARGUMENT: No signature was found with the name: nope",
    ),
    (
        regression_request(b"a", signature="classify"),
        (
            "INVALID_ARGUMENT: Signature classify does not regress: expected inputs {inputs} and "
            "outputs {outputs}, found inputs {inputs} and outputs {classes,scores}"
        ),
    ),
    (regression_request(), "INVALID_ARGUMENT: Input is empty."),
    (
        regression_request(b"a", signature="misregress"),
        (
            "INVALID_ARGUMENT: Expected outputs (float), [1] or [1, 1], from the signature; "
            "found {'outputs': 'int32 [1]'}"
        ),
    ),
]


@pytest.mark.parametrize(("request_", "error"), REGRESS_ERRORS)
def test_regress_errors(client, error_of, request_, error):
    assert error_of(client.prediction.Regress, request_) == error


MULTI_INFERENCE_ERRORS = [
    (multi_inference_request(), "INVALID_ARGUMENT: ModelSpec has no name specified."),
    (
        multi_inference_request(CLASSIFY_TASK, (spec(name="other"), "classify")),
        (
            "INVALID_ARGUMENT: All ModelSpecs in a MultiInferenceRequest must access the same "
            "model name."
        ),
    ),
    (
        multi_inference_request(CLASSIFY_TASK, CLASSIFY_TASK),
        "INVALID_ARGUMENT: Duplicate evaluation of signature: classify",
    ),
    (
        multi_inference_request((spec(signature="nope"), "classify")),
        "INVALID_ARGUMENT: Requested signature not found in model graph: nope",
    ),
    (
        multi_inference_request((spec(signature="classify"), "predict")),
        "UNIMPLEMENTED: Unsupported signature method_name: tensorflow/serving/predict",
    ),
    (
        multi_inference_request(CLASSIFY_TASK, texts=()),
        "INVALID_ARGUMENT: Input is empty.",
    ),
]


@pytest.mark.parametrize(("request_", "error"), MULTI_INFERENCE_ERRORS)
def test_multi_inference_errors(client, error_of, request_, error):
    assert error_of(client.prediction.MultiInference, request_) == error


def reload_request(*models):
    request = ReloadConfigRequest()
    request.config.model_config_list.SetInParent()
    for fields in models:
        fields = {
            "name": "tiny",
            "base_path": "/models/tiny",
            "model_platform": "tensorflow",
        } | fields
        request.config.model_config_list.config.add(**fields)
    return request


RELOAD_ERRORS = [
    (
        ReloadConfigRequest(),
        (
            "INVALID_ARGUMENT: ServerModelConfig type not supported by HandleReloadConfigRequest. "
            "Only ModelConfigList is currently supported"
        ),
    ),
    (
        reload_request({}, {}),
        "INVALID_ARGUMENT: Illegal to list model tiny multiple times in config list",
    ),
    (
        reload_request({"base_path": "models/tiny"}),
        (
            "INVALID_ARGUMENT: Expected model tiny to have an absolute path or URI; "
            "got base_path()=models/tiny"
        ),
    ),
    (
        reload_request({"model_platform": ""}),
        (
            "INVALID_ARGUMENT: Illegal setting neither ModelServerConfig::model_type (deprecated) "
            "nor ModelServerConfig::model_platform."
        ),
    ),
    (
        reload_request({"model_platform": "caffe"}),
        "INVALID_ARGUMENT: Model tiny requests unsupported platform caffe",
    ),
    (
        reload_request({"version_labels": {"stable": 2}}),
        (
            "FAILED_PRECONDITION: Request to assign label to version 2 of model tiny, which is not "
            "currently available for inference"
        ),
    ),
]


@pytest.mark.parametrize(("request_", "error"), RELOAD_ERRORS)
def test_reload_errors_change_nothing(client, error_of, request_, error):
    assert error_of(client.model.HandleReloadConfigRequest, request_) == error
    client.prediction.Classify(classification_request(b"a"), timeout=30)


def test_messages_that_cannot_be_parsed(client):
    with grpc.insecure_channel(client.target) as channel:
        call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        with pytest.raises(grpc.RpcError) as caught:
            call(b"\xff\xff\xff", timeout=30)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == "Expected a PredictRequest"
