"""The classifiers that `benchmarks.costs` and `benchmarks.serving` compare.

All have random weights and the same size; peers have Hugging Face's fast tokenizer outside the
model. A classifier's name is the peer's module and its precision; ours have a name in `EXPORTS`.
"""

from benchmarks.harness.measured_models import export_missing
from benchmarks.harness.turns import Worker
from benchmarks.peers import Peer, run

OURS = {
    "ours-float32": Peer("gpt1_keras, float32", "ours", "float32"),
    "ours-bfloat16": Peer("gpt1_keras, bfloat16", "ours", "bfloat16"),
    "ours-int8": Peer("gpt1_keras, int8", "ours", "int8"),
    "ours-unmerged": Peer("gpt1_keras, float32, not merged", "ours", "float32"),
}
PEERS = {
    "hugging_face-float32": Peer("Hugging Face, float32", "hugging_face", "float32"),
    "hugging_face-bfloat16": Peer("Hugging Face, bfloat16", "hugging_face", "bfloat16"),
    "onnxruntime-float32": Peer("ONNX Runtime, float32", "onnxruntime", "float32"),
    "onnxruntime-int8": Peer("ONNX Runtime, int8", "onnxruntime", "int8"),
    "openvino-float32": Peer("OpenVINO, float32", "openvino", "float32"),
    "openvino-int8": Peer("OpenVINO, int8 (NNCF)", "openvino", "int8"),
}
CLASSIFIERS = {**OURS, **PEERS}


def make_classifiers(names, size, tokenizer, folder, calibration):
    """Makes the exports and the peers' files that a folder does not hold yet.

    Args:
        names: keys of `CLASSIFIERS`.
        size, tokenizer, folder: as in `export_missing`.

    Returns:
        `(paths, setting)`: the exports' base paths by name, and the arguments of
        `load_classifier` besides the name, as JSON values.
    """
    setting = {"size": size, "tokenizer": str(tokenizer), "folder": str(folder)}
    exports = {name: name.removeprefix("ours-") for name in names if name in OURS}
    paths = export_missing(exports.values(), **setting, calibration=calibration)
    for name in names:
        if name in PEERS:
            arguments = {**setting, "calibration": calibration}
            with Worker("peers.classifiers:make", name=name, **arguments) as worker:
                worker.summary()
    return {name: paths[export] for name, export in exports.items()}, setting


def make(turns, name, **setting):
    """Makes a peer's files, in a worker."""
    load_classifier(name, **setting)


def load_classifier(name, **setting):
    """Returns a function from texts to scores, float `[texts, classes]`: an array or a tensor."""
    module, _, variant = name.partition("-")
    return run(module, "classifier", variant, **setting)
