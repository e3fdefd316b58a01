"""The README inside an export: what it is, what it takes and gives, and how to serve it."""

import tensorflow as tf

_TEMPLATE = """\
# {name}

A `{task}` of gpt1_keras {gpt1_keras}, exported by TensorFlow {tensorflow}. It takes text as it is.
{answers}

- tokenizer: {tokenizer} of {vocabulary_size:,} tokens, inside the graph
- its fingerprint: {tokenizer_fingerprint}
- normalisation: {normalization}
- longest text: {sequence_length} tokens; what is cut is `truncated`

## Signatures

{signatures}

## Serve

The folder above this one is named by a number, the version; the folder above that is the base path.

```
docker run -p 8501:8501 -v "BASE_PATH:/models/{name}" -e MODEL_NAME={name} tensorflow/serving
curl -d '{{"instances": [{instance}]}}' localhost:8501/v1/models/{name}:predict
```

## What was changed

{changes}
"""


def readme(name, metadata, functions):
    """The text, in Markdown.

    Args:
        name: str, the model's.
        metadata: dict, as `serving.export` writes it.
        functions: the signatures by name.
    """
    instance = ", ".join(f'"{field}": ...' for field in _inputs(functions["serving_default"]))
    return _TEMPLATE.format(
        **metadata,
        name=name,
        answers=_answers(metadata),
        signatures="\n".join(_signature(*item) for item in functions.items()),
        instance=f"{{{instance}}}",
        changes="\n".join(f"- {change}" for change in _changes(metadata)),
    )


def _answers(metadata):
    if metadata["class_names"]:
        return f"Classes: {', '.join(metadata['class_names'])}."
    if metadata["score_range"]:
        return "Scores from {} to {}.".format(*metadata["score_range"])
    return f"It reads {', '.join(metadata['fields'])}."


def _signature(name, function):
    rows = [f"### {name}\n", "| | name | type | shape |", "|---|---|---|---|"]
    for side, tensors in (("in", _inputs(function)), ("out", function.structured_outputs)):
        for tensor in sorted(tensors):
            spec = tensors[tensor]
            shape = ", ".join("any" if size is None else str(size) for size in spec.shape)
            rows.append(f"| {side} | {tensor} | {spec.dtype.name} | {shape} |")
    return "\n".join([*rows, ""])


def _inputs(function):
    """The specs of a signature's inputs by name."""
    return {spec.name: spec for spec in tf.nest.flatten(function.structured_input_signature)}


def _changes(metadata):
    if metadata["dtype"] != "float32":
        yield f"It computes in {metadata['dtype']}."
    if metadata["weights"] == "bfloat16":
        yield "Weights are stored in bfloat16."
    if metadata["weights"] == "int8":
        yield "Matrices are stored in 8 bits, with a scale for each row or column."
    if metadata["batching"]:
        sizes = metadata["batching"]
        yield (
            f"Requests are answered together, up to {sizes['max_batch_size']} examples at once; "
            f"one waits {sizes['timeout_ms']:g} ms for others. {sizes['max_queue']} batches may "
            "wait, and what comes then fails with UNAVAILABLE. Answers are the same."
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
