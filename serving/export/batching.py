"""Batching inside the graph: it answers the texts of many requests together."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from serving.export.export_options import Batching
from serving.export.signature import ConcreteFunction

_THREADS = 2  # while one batch is tokenized, another is in the model
_SHARES_LENGTH = ("token_ids", "padding_mask", "positions", "branches")  # on their last axis


def merged(
    function: Callable[..., dict[str, tf.Tensor]], names: Sequence[str], batching: Batching
) -> Callable[..., dict[str, tf.Tensor]]:
    """Makes a function that runs on the examples of many calls at once.

    Examples with the same strings are computed once.

    Args:
        function: from named strings `[batch]` to tensors `[batch, ...]`. Its examples do not depend
            on each other. Check its arguments before: an error in it fails all calls that are
            merged.
        names: the names of the strings.

    Returns:
        A function of the same strings, for graphs. All its calls share one queue.
    """

    def compute(*strings: tf.Tensor) -> dict[str, tf.Tensor]:
        number, first = _distinct(strings)
        outputs = function(**{n: tf.gather(each, first) for n, each in zip(names, strings)})
        return {name: tf.gather(output, number) for name, output in outputs.items()}

    return batched(compute, [tf.TensorSpec([None], tf.string, name) for name in names], batching)


def batched(
    function: Callable[..., dict[str, tf.Tensor]],
    specs: Sequence[tf.TensorSpec],
    batching: Batching,
) -> Callable[..., dict[str, tf.Tensor]]:
    """Makes a function that runs on the rows of many calls at once.

    Args:
        function: from tensors `[batch, ...]`, in the order of `specs`, to tensors `[batch, ...]`.
            Its rows do not depend on each other, and only the batch may differ between calls'
            shapes. An error in it fails all calls that are merged. Its products belong into
            functions that are `not_inlined`: TensorFlow fuses bias, GELU and residual into a
            product only where it knows their device, and in this function's body it does not. If
            they could be inlined, hashes of their names would decide whether they are fused before.
        specs: the specs of its arguments, with their names.

    Returns:
        A function of the same tensors by name, for graphs. All its calls share one queue.
    """
    computation = tf.function(function, autograph=False, jit_compile=False).get_concrete_function(
        *specs
    )
    # In one process, queues of the same name are one queue, even for different models.
    shared_name = f"batching_{uuid.uuid4().hex}"

    def call(**tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        outputs = tf.raw_ops.BatchFunction(
            # In a merged batch, one request of a wrong shape would fail all others.
            in_tensors=[tf.ensure_shape(tensors[spec.name], spec.shape) for spec in specs],
            captured_tensors=computation.captured_inputs,
            f=computation,
            Tout=[output.dtype for output in computation.outputs],
            num_batch_threads=_THREADS,
            batch_timeout_micros=round(1000 * batching.timeout_ms),
            max_enqueued_batches=batching.max_queue,
            # With splitting, this limits a request, and the last allowed size limits a batch. All
            # sizes are allowed, so no batch is padded.
            max_batch_size=batching.max_batch_size * batching.max_queue,
            allowed_batch_sizes=list(range(1, batching.max_batch_size + 1)),
            enable_large_batch_splitting=True,
            shared_name=shared_name,
        )
        outputs = [_shaped(*each) for each in zip(outputs, computation.outputs)]
        return tf.nest.pack_sequence_as(computation.structured_outputs, outputs)

    return call


def _distinct(strings: Sequence[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns each example's number among the distinct ones, and where each of these is first."""
    joined = strings[0]
    if len(strings) > 1:  # lengths tell "a b", "c" from "a", "b c"
        lengths = [tf.strings.as_string(tf.strings.length(each)) for each in strings]
        joined = tf.strings.join([*lengths, *strings], separator=" ")
    distinct, number = tf.unique(joined)
    where = tf.range(tf.size(joined))
    return number, tf.math.unsorted_segment_min(where, number, tf.size(distinct))


def _shaped(output: tf.Tensor, known: tf.Tensor) -> tf.Tensor:
    """Sets the output's shape, which the output for a batch without examples lacks."""
    if known.shape[1:].is_fully_defined():
        return tf.reshape(output, [-1, *known.shape[1:]])
    missing = known.shape.rank - tf.rank(output)
    output = tf.reshape(output, tf.pad(tf.shape(output), [[0, missing]]))
    output.set_shape(known.shape)
    return output


def by_bucket(
    function: ConcreteFunction,
    inputs: Mapping[str, tf.Tensor],
    num_tokens: tf.Tensor,
    lengths: Sequence[int],
) -> dict[str, tf.Tensor]:
    """Runs a function on one bucket's examples at a time, so that few tokens are padding.

    Args:
        function: from the model's inputs to a dict of tensors `[batch, ...]`.
        inputs: the arguments, int32 `[batch, ..., length]`, padded to the longest example.
        num_tokens: int32 `[batch]`, the number of tokens in each example.
        lengths: the buckets' lengths, ascending.

    Returns:
        The outputs, in the order of the examples.
    """
    longest = tf.shape(inputs["token_ids"])[-1]
    bucket = tf.searchsorted(lengths, num_tokens)
    buckets, _ = tf.unique(bucket)
    count = tf.size(buckets)
    rows = tf.TensorArray(tf.int64, count, infer_shape=False, element_shape=[None])
    outputs = {
        name: tf.TensorArray(output.dtype, count, infer_shape=False, element_shape=output.shape)
        for name, output in function.structured_outputs.items()
    }

    def step(number: tf.Tensor, rows: Any, outputs: Any) -> tuple[Any, ...]:
        here = tf.where(bucket == buckets[number])[:, 0]
        length = tf.gather([*lengths, tf.int32.max], buckets[number])
        found = function(
            **{
                name: _cut(name, tf.gather(tensor, here), tf.minimum(length, longest))
                for name, tensor in inputs.items()
            }
        )
        outputs = {name: outputs[name].write(number, found[name]) for name in outputs}
        return number + 1, rows.write(number, here), outputs

    _, rows, outputs = tf.while_loop(
        lambda number, *_: number < count, step, (0, rows, outputs), parallel_iterations=1
    )
    order = tf.math.invert_permutation(rows.concat())
    return {name: tf.gather(array.concat(), order) for name, array in outputs.items()}


def _cut(name: str, tensor: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
    return tensor[..., :length] if name in _SHARES_LENGTH else tensor
