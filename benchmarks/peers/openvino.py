"""Hugging Face's model in OpenVINO: in float32, and in int8, calibrated by NNCF."""

import queue

from benchmarks.harness.machine import cores
from benchmarks.peers.hugging_face import load_tokenizer
from benchmarks.peers.onnxruntime import float_model, padded_ids, scores_by


def classifier(precision, size, tokenizer, folder, calibration=(), callers=1):
    """Makes a classifier of the ONNX file that ONNX Runtime reads too."""
    import openvino

    path = float_model(size, tokenizer, folder)
    requests = min(callers, cores())
    settings = {"PERFORMANCE_HINT": "LATENCY"}
    if requests > 1:
        settings = {"PERFORMANCE_HINT": "THROUGHPUT", "NUM_STREAMS": requests}
    if precision == "int8":
        path = _quantized(path, size, tokenizer, calibration)
    else:
        settings["INFERENCE_PRECISION_HINT"] = "f32"  # otherwise it uses bfloat16 where it can
    compiled = openvino.compile_model(path, "CPU", settings)
    free = queue.SimpleQueue()  # two threads at once in one request can deadlock
    for _ in range(requests):
        free.put(compiled.create_infer_request())

    def run(ids):
        request = free.get()
        try:
            return request.infer([ids])[0].copy()
        finally:
            free.put(request)

    return scores_by(run, size, tokenizer)


def _quantized(float_path, size, tokenizer, calibration):
    import nncf
    import openvino

    path = float_path.with_name("int8.xml")
    if not path.exists():
        tokenizer = load_tokenizer(tokenizer)
        ids = [padded_ids(tokenizer, [text], size)[0] for text in calibration]
        model = nncf.quantize(
            openvino.convert_model(float_path),
            nncf.Dataset(ids),
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(ids),
        )
        openvino.save_model(model, path)
    return path
