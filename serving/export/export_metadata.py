"""Describes an export: its metadata, for programs, and its README, for people."""

import json
import shlex
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

import gpt1_keras
from gpt1_keras.presets.publishing import markdown_text
from gpt1_keras.tasks.task import Task
from serving.export.signature import Signature, Signatures
from serving.export_names import DEFAULT_SIGNATURE, GENERATE
from serving.plain_values import plain

_TEMPLATE = """\
# {title}

A `{task}` of gpt1_keras {gpt1_keras}, exported by TensorFlow {tensorflow}. It takes raw text.
{answers}

- tokenizer: {tokenizer} of {vocabulary_size:,} tokens, inside the graph
- its fingerprint: {tokenizer_fingerprint}
- normalisation: {normalization}
- longest text: {sequence_length} tokens; longer ones are cut, and marked `truncated`{blank}

## Signatures

{signatures}

## Serve

The folder above this one is named by a number, the version; the folder above that is the base path.
Either command serves it:

```
docker run -p 8501:8501 -v "BASE_PATH":{folder} -e MODEL_NAME={quoted} tensorflow/serving
gpt1 serve --model_name {quoted} --model_base_path "BASE_PATH"
```

Both share a request's work among all cores. Where texts are short and several clients ask at once,
`--tensorflow_intra_op_parallelism=1` gives each request one core, and answers up to 1.7 times as
many; one long text alone then takes longer. `gpt1 check --tune` measures which is best here.
{setting}
Then ask it:

```
{questions}
```
{named}
## What was changed

{changes}
"""
_NAMED = "\n`classes` names the numbers in `scores`.\n"
_BLANK = "\n- texts without a token, which the model cannot read, are marked `blank`"
# In float32, reading them as they lie is faster for most batches (docs/benchmarks.md, "Serving").
_BFLOAT16_SETTING = """
Set `TF_ONEDNN_ASSUME_FROZEN_WEIGHTS=1` in the server's environment (`-e` for docker). Then oneDNN
packs the weights once. This doubles their memory, and answers a short text sooner. Leave it off
where the server also has models in float32.
"""


def fields_of(model: Task) -> list[str]:
    """Returns the names of the texts that a task with a preprocessor takes."""
    return list(getattr(model.preprocessor, "fields", ("text",)))


def metadata_of(model: Task) -> dict[str, Any]:
    """Describes a task with a preprocessor, by values that JSON can hold."""
    tokenizer = model.preprocessor.tokenizer
    calibration = getattr(model, "calibration", None)
    return {
        "task": type(model).__name__,
        "class_names": getattr(model, "class_names", None),
        "score_range": getattr(model, "score_range", None),
        "temperature": calibration and calibration.temperature,
        "sure_threshold": calibration and calibration.sure_threshold,
        "fields": fields_of(model),
        "tokenizer": type(tokenizer).__name__,
        "tokenizer_fingerprint": tokenizer.fingerprint,
        "normalization": tokenizer.normalization,
        "vocabulary_size": tokenizer.vocabulary_size(),
        "dtype": model.backbone.dtype_policy.compute_dtype,
        "gpt1_keras": gpt1_keras.__version__,
        "tensorflow": tf.__version__,
    }


def readme(name: str, metadata: Mapping[str, Any], signatures: Signatures) -> str:
    """Returns the README, in Markdown."""
    names = [each for each in (DEFAULT_SIGNATURE, GENERATE) if each in signatures.by_name]
    served = signatures.by_name.get(DEFAULT_SIGNATURE)
    answers = served.compiled.structured_outputs if served else ()
    return _TEMPLATE.format(
        **metadata,
        title=markdown_text(name),
        quoted=shlex.quote(name),
        folder=shlex.quote(f"/models/{name}"),
        answers="\n".join([_answers(metadata), *_more_answers(metadata)]),
        blank=_BLANK if "blank" in answers else "",
        named=_NAMED if "classes" in answers else "",
        signatures="\n".join(_signature(*item) for item in signatures.by_name.items()),
        setting=_setting(metadata),
        questions="\n".join(_curl(name, each, signatures.by_name[each]) for each in names),
        changes="\n".join(f"- {change}" for change in _changes(metadata)),
    )


def _curl(model: str, name: str, signature: Signature) -> str:
    example = signature.inputs_of_example(min(signature.lengths))
    row: dict[str, Any] = {}
    for field, spec in signature.specs.items():
        if field in signature.defaults or spec.dtype != tf.string:
            row[field] = plain(signature.defaults.get(field, example[field]).numpy())[0]
        else:
            row[field] = f"A {field}." if spec.shape.rank == 1 else ["One of these.", "Another."]
    document = json.dumps({"signature_name": name, "instances": [row]})
    url = f"localhost:8501/v1/models/{urllib.parse.quote(model, safe='')}:predict"
    return f"curl -d {shlex.quote(document)} {url}"


def _answers(metadata: Mapping[str, Any]) -> str:
    if metadata["class_names"]:
        return f"Classes: {markdown_text(metadata['class_names'])}."
    if metadata["score_range"]:
        return "Scores from {} to {}.".format(*metadata["score_range"])
    return f"It reads {', '.join(metadata['fields'])}."


def _more_answers(metadata: Mapping[str, Any]) -> Iterator[str]:
    temperature, threshold = metadata["temperature"], metadata["sure_threshold"]
    if temperature not in (None, 1.0):
        yield f"Scores are calibrated, by a temperature of {temperature:.4g}."
    if threshold is not None:
        yield f"`is_sure` says whether the best score is at least {threshold:g}."


def _signature(name: str, signature: Signature) -> str:
    rows = [f"### {name}\n"]
    if signature.description:
        rows.append(f"{signature.description}\n")
    rows += ["| | name | type | shape |", "|---|---|---|---|"]
    outputs = signature.compiled.structured_outputs
    for side, tensors in (("in", signature.specs), ("out", outputs)):
        for tensor in sorted(tensors):
            spec = tensors[tensor]
            shape = ", ".join("any" if size is None else str(size) for size in spec.shape)
            rows.append(f"| {side} | {tensor} | {spec.dtype.name} | {shape} |")
    return "\n".join([*rows, ""])


def _setting(metadata: Mapping[str, Any]) -> str:
    is_bfloat16 = metadata["dtype"] == "bfloat16" and metadata["products"] != "int8"
    return _BFLOAT16_SETTING if is_bfloat16 else ""


def _changes(metadata: Mapping[str, Any]) -> Iterator[str]:
    if metadata["dtype"] != "float32":
        yield f"It computes in {metadata['dtype']}."
    if metadata["weights"] == "bfloat16":
        yield "Weights are stored in bfloat16."
    if metadata["products"] == "int8":
        calibration = metadata["calibration"]
        yield (
            "The backbone's matrices are multiplied in 8 bits, with a scale for each column; "
            "embeddings are stored in 8 bits. The ranges of activations were measured on "
            f"{calibration['source']}: {calibration['examples']:,} of {calibration['tokens']:,} "
            f"tokens. It needs {metadata['requires']}, and is refused when it is loaded elsewhere."
        )
    elif metadata["weights"] == "int8":
        yield "Matrices are stored in 8 bits, with a scale for each row or column."
    if metadata["batching"]:
        sizes = metadata["batching"]
        yield (
            f"Requests are answered together, up to {sizes['max_batch_size']} examples at once; "
            f"one waits {sizes['timeout_ms']:g} ms for others. {sizes['max_queue']} batches may "
            "wait; further requests fail with UNAVAILABLE. Answers are the same."
        )
    validation = metadata["validation"]
    if validation:
        yield (
            f"Measured: {validation['metric']} on {validation['examples']:,} labelled examples: "
            f"{validation['before']:.4f} before, {validation['after']:.4f} in this export."
        )
    elif (metadata["dtype"], metadata["weights"]) != ("float32", "float32"):
        yield "What that costs was not measured."
    elif not metadata["batching"]:
        yield "Nothing."
