"""Batching inside the graph: texts of many requests are answered together."""

import dataclasses
import math
import uuid

import tensorflow as tf

from gpt1_keras.cli import option

GROUP = "batching inside the graph"  # of options in --help
_THREADS = 2  # while one batch is tokenized, another is in the decoder
_SHARES_LENGTH = ("token_ids", "padding_mask", "positions", "branches")  # on their last axis


@dataclasses.dataclass(frozen=True)
class Batching:
    """How requests that come at the same time are merged.

    Args:
        max_batch_size: int, the most examples that are answered at once. Requests of more are
            split.
        timeout_ms: float, milliseconds that the first example waits for others while there is room.
            With 0, an idle server answers at once, and a busy one takes together what has come
            meanwhile.
        max_queue: int, batches that may wait. Further requests fail at once with UNAVAILABLE; one
            of more examples than a whole queue holds, with INVALID_ARGUMENT.

    Raises:
        ValueError: a size below 1, or a negative time.
    """

    max_batch_size: int = option("examples to answer at once", 32, group=GROUP)
    timeout_ms: float = option(
        "milliseconds that one waits for others", 0.0, name="--batch-timeout-ms", group=GROUP
    )
    max_queue: int = option(
        "batches that may wait; what comes then is UNAVAILABLE", 16, group=GROUP
    )

    def __post_init__(self):
        for name in ("max_batch_size", "max_queue"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {getattr(self, name)}.")
        if not 0.0 <= self.timeout_ms < math.inf:
            raise ValueError(f"`timeout_ms` must be at least 0. Received: {self.timeout_ms}.")


def merged(function, names, batching):
    """A function that is run on the rows of many calls at once.

    Args:
        function: from named strings `[batch]` to a dict of tensors `[batch, ...]`. An error in it
            fails all calls that are merged, so what it takes has to be checked before.
        names: of the strings.
        batching: `Batching`.

    Returns:
        A function of the same strings, for graphs. Its calls share one queue, wherever they are.
    """
    computation = tf.function(
        lambda *strings: function(**dict(zip(names, strings))), autograph=False, jit_compile=False
    ).get_concrete_function(*(tf.TensorSpec([None], tf.string, name) for name in names))
    # In one process of Python, queues of the same name are one, whatever model they belong to.
    shared_name = f"batching_{uuid.uuid4().hex}"

    def call(**strings):
        outputs = tf.raw_ops.BatchFunction(
            # A merged request of a wrong shape would be an error to all others.
            in_tensors=[tf.ensure_shape(strings[name], [None]) for name in names],
            captured_tensors=computation.captured_inputs,
            f=computation,
            Tout=[output.dtype for output in computation.outputs],
            num_batch_threads=_THREADS,
            batch_timeout_micros=round(1000 * batching.timeout_ms),
            max_enqueued_batches=batching.max_queue,
            # With splitting, this is how large a request may be; what the last allowed size is, a
            # batch may be. As all sizes are allowed, none is padded.
            max_batch_size=batching.max_batch_size * batching.max_queue,
            allowed_batch_sizes=list(range(1, batching.max_batch_size + 1)),
            enable_large_batch_splitting=True,
            shared_name=shared_name,
        )
        outputs = [_shaped(*each) for each in zip(outputs, computation.outputs)]
        return tf.nest.pack_sequence_as(computation.structured_outputs, outputs)

    return call


def _shaped(output, known):
    """Gives an output its shape, which that of no example at all does not have."""
    if known.shape[1:].is_fully_defined():
        return tf.reshape(output, [-1, *known.shape[1:]])
    output.set_shape(known.shape)
    return output


def by_bucket(function, inputs, num_tokens, lengths):
    """Runs a function on examples of the same bucket at a time: long ones do not delay short ones.

    Args:
        function: concrete function of what the decoder reads, to a dict of tensors.
        inputs: its arguments, int32 `[batch, ..., length]`, padded to the longest example.
        num_tokens: int32 `[batch]`, how many tokens each example has.
        lengths: list of int, the buckets.

    Returns:
        dict of tensors: the outputs in the order of the examples.
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

    def step(number, rows, outputs):
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
    places = tf.math.invert_permutation(rows.concat())
    return {name: tf.gather(array.concat(), places) for name, array in outputs.items()}


def _cut(name, tensor, length):
    return tensor[..., :length] if name in _SHARES_LENGTH else tensor
