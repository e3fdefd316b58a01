"""What our classifiers are compared with: Hugging Face's, in torch and in other runtimes.

All have random weights, the same size, and Hugging Face's fast tokenizer outside of the model.
"""

import importlib.util
import pathlib

from benchmarks.common.setting import SIZES, cores, hugging_face_config, why_not

LABELS = ["negative", "positive"]
PEERS = {
    "torch-float32": "Hugging Face, float32",
    "torch-bfloat16": "Hugging Face, bfloat16",
    "onnxruntime-float32": "ONNX Runtime, float32",
    "onnxruntime-int8": "ONNX Runtime, int8",
    "openvino-float32": "OpenVINO, float32",
    "openvino-int8": "OpenVINO, int8 (NNCF)",
}
_PACKAGES = {
    "torch": ("torch", "transformers"),
    "onnxruntime": ("onnx", "onnxruntime", "onnxscript"),
    "openvino": ("onnx", "onnxscript", "openvino"),
}


def why_not_peer(name):
    """Why a peer is not measured here: a package that is missing, its precision; None if it is."""
    engine, precision = name.split("-")
    packages = [*_PACKAGES[engine], *(["nncf"] if name == "openvino-int8" else [])]
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    return f"{', '.join(missing)} is not installed" if missing else why_not(precision)


def peer_scores(name, size, tokenizer, folder, calibration=()):
    """A function from texts to their scores, float `[texts, classes]`, an array or a tensor.

    Args:
        name: in `PEERS`.
        size: a name in `SIZES`.
        tokenizer: folder of both files of the original.
        folder: of the files of ONNX Runtime's and OpenVINO's models, made if missing.
        calibration: list of str, for OpenVINO in int8.
    """
    engine, precision = name.split("-")
    tokenizer = load_tokenizer(tokenizer)
    size = {**SIZES[size], "vocabulary_size": len(tokenizer)}
    if engine == "torch":
        return _torch_scores(size, tokenizer, precision)
    from benchmarks.peers.runtimes import runtime_scores

    return runtime_scores(
        engine, precision, size, len(LABELS), tokenizer, pathlib.Path(folder), calibration
    )


def load_tokenizer(folder):
    """Hugging Face's tokenizer of the original files, with a padding token."""
    from transformers import OpenAIGPTTokenizer

    tokenizer = OpenAIGPTTokenizer(f"{folder}/encoder_bpe_40000.json", f"{folder}/vocab_40000.bpe")
    tokenizer.pad_token = tokenizer.unk_token
    return tokenizer


def _torch_scores(size, tokenizer, dtype):
    import torch
    from transformers import OpenAIGPTForSequenceClassification

    torch.set_num_threads(cores())
    config = hugging_face_config(size)
    config.num_labels = len(LABELS)
    config.pad_token_id = tokenizer.pad_token_id
    model = OpenAIGPTForSequenceClassification(config).eval().to(getattr(torch, dtype))

    def scores_of(texts):
        inputs = tokenizer(
            texts,
            padding=True,
            truncation=True,
            max_length=size["max_sequence_length"],
            return_tensors="pt",
        )
        with torch.inference_mode():
            return model(**inputs).logits.float().softmax(-1)

    return scores_of
