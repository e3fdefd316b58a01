"""GELU, layer normalisation and causal attention that keep little for the backward pass.

Each makes its gradient by hand: it takes fewer passes over the memory than what automatic
differentiation makes of the same formula, and keeps fewer tensors.
"""

from keras import ops

from gpt1_keras.models.custom_gradients.execution_order import zero_after

_QUERIES = 128  # that are taken together
_SLOPE, _CURVE = 1.5957691216057308, 0.0713548162726009  # 2 sqrt(2 / pi), and 0.044715 times it
_HIDDEN = -1e9  # the score of what comes later


def gelu_dense(x, kernel, bias):
    """GELU(x) kernel + bias, with GELU in its tanh form.

    0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) is x sigmoid(y) with
    y = 2 sqrt(2 / pi) (x + 0.044715 x^3). Of all this only x is kept.

    Args:
        x: float `[..., in]`.
        kernel: float `[in, out]`.
        bias: float `[out]`.

    Returns:
        float `[..., out]`.
    """

    def gate_of(x):
        y = x * (_SLOPE + _CURVE * ops.square(x))
        return ops.sigmoid(y), y

    @ops.custom_gradient
    def apply(x, kernel, bias):
        def gradient(*args, upstream=None):
            upstream = args[0] if upstream is None else upstream
            late_x = x + zero_after(upstream)
            gate, y = gate_of(late_x)
            # gate + x gate' with x y' = 3 y - 2 x _SLOPE
            slope = gate * (1.0 + (1.0 - gate) * (3.0 * y - (2.0 * _SLOPE) * late_x))
            activated = ops.reshape(late_x * gate, (-1, kernel.shape[0]))
            rows = ops.reshape(upstream, (-1, kernel.shape[1]))
            return (
                ops.matmul(upstream, ops.transpose(kernel)) * slope,
                ops.matmul(ops.transpose(activated), rows),
                ops.sum(rows, axis=0),
            )

        return ops.matmul(x * gate_of(x)[0], kernel) + bias, gradient

    return apply(x, kernel, bias)


def layer_norm(x, gain, bias, epsilon):
    """gain (x - mean) / sqrt(variance + epsilon) + bias, over the last axis, in float32.

    Args:
        x: float `[..., width]`.
        gain, bias: float `[width]`.
        epsilon: float.

    Returns:
        float, of the shape and dtype of x.
    """
    width = x.shape[-1]
    per_column = tuple(range(len(x.shape) - 1))

    def mean(x):
        return ops.mean(x, axis=-1, keepdims=True)

    @ops.custom_gradient
    def normalize(x, gain, bias):
        centred = ops.cast(x, "float32")
        centred -= mean(centred)
        scale = ops.rsqrt(mean(ops.square(centred)) + epsilon)
        normal = centred * scale
        wide_gain = ops.cast(gain, "float32")

        def gradient(*args, upstream=None):
            upstream = ops.cast(args[0] if upstream is None else upstream, "float32")
            product = upstream * normal
            # Means over a row, weighed by the gains, as products with a vector.
            row_mean = ops.matmul(upstream, wide_gain[:, None] / width)
            row_slope = ops.matmul(product, wide_gain[:, None] / width)
            x_gradient = (upstream * wide_gain - row_mean - normal * row_slope) * scale
            return (
                ops.cast(x_gradient, x.dtype),
                ops.cast(ops.sum(product, axis=per_column), gain.dtype),
                ops.cast(ops.sum(upstream, axis=per_column), bias.dtype),
            )

        return ops.cast(normal * wide_gain + ops.cast(bias, "float32"), x.dtype), gradient

    return normalize(x, gain, bias)


def causal_attention(query, key, value, sample_kept=None, keep_probability=1.0, branches=None):
    """softmax(q k^T / sqrt(d)) v, where each position sees itself and those before it.

    Only query, key, value, output, the normalisers and the dropout masks are kept. Queries are
    taken in blocks, so that most of what the causal mask would hide is never computed.

    Args:
        query, key, value: float `[batch, heads, length, head_dim]`.
        sample_kept: optional function from the shape of a block of probabilities,
            `[batch, heads, queries, keys]`, to a bool tensor: those that dropout keeps. The
            queries are the last of the keys.
        keep_probability: float, the share that it keeps.
        branches: optional int `[batch, length]`, as in `visible_keys`.

    Returns:
        float `[batch, length, heads, head_dim]`.
    """
    batch, heads, length, head_dim = ops.shape(query)
    dtype, scale = query.dtype, query.shape[-1] ** -0.5
    blocks = _blocks(query.shape[2])
    kept = [None] * len(blocks)
    if sample_kept is not None:
        ends = [length if stop is None else stop for _, stop in blocks]
        kept = [
            sample_kept((batch, heads, end - start, end)) for (start, _), end in zip(blocks, ends)
        ]

    def scores_of(query, key):
        """float32 `[batch, heads, queries, keys]`"""
        scores = ops.cast(ops.matmul(query, _transpose(key)), "float32")
        return ops.where(visible_keys(*ops.shape(scores)[2:], branches), scores, _HIDDEN)

    def drop(x, kept):
        return x if kept is None else ops.where(kept, x, ops.zeros((), x.dtype))

    @ops.custom_gradient
    def attend(query, key, value):
        outputs, normalizers = [], []
        for (start, stop), block_kept in zip(blocks, kept):
            scores = scores_of(query[:, :, start:stop] * scale, key[:, :, :stop])
            largest = ops.max(scores, axis=-1, keepdims=True)
            weights = ops.exp(scores - largest)
            total = ops.sum(weights, axis=-1, keepdims=True)
            normalizers.append(largest + ops.log(total))
            output = ops.matmul(ops.cast(drop(weights, block_kept), dtype), value[:, :, :stop])
            outputs.append(output / ops.cast(total * keep_probability, dtype))
        output = ops.transpose(ops.concatenate(outputs, axis=2), (0, 2, 1, 3))

        def gradient(*args, upstream=None):
            upstream = args[0] if upstream is None else upstream
            late = zero_after(upstream)
            inputs = (query + late) * scale, key + late, value + late
            # The mean slope of a row of probabilities, of which the softmax takes it off.
            means = ops.sum(ops.cast(upstream, "float32") * ops.cast(output, "float32"), axis=-1)
            means = ops.transpose(means, (0, 2, 1))[..., None]
            upstream = ops.transpose(upstream, (0, 2, 1, 3))
            query_gradients, key_gradient, value_gradient = [], 0.0, 0.0
            for (start, stop), block_kept, normalizer in zip(blocks, kept, normalizers):
                block_query, (block_key, block_value) = (
                    inputs[0][:, :, start:stop],
                    (x[:, :, :stop] for x in inputs[1:]),
                )
                block_upstream = upstream[:, :, start:stop] / keep_probability
                weights = ops.exp(scores_of(block_query, block_key) - normalizer)
                dropped = ops.cast(drop(weights, block_kept), dtype)
                slope = ops.matmul(block_upstream, _transpose(block_value))
                slope = drop(ops.cast(slope, "float32"), block_kept) - means[:, :, start:stop]
                slope = ops.cast(slope * weights, dtype)
                query_gradients.append(ops.matmul(slope, block_key))
                key_gradient += _pad(ops.matmul(_transpose(slope), block_query), length)
                value_gradient += _pad(ops.matmul(_transpose(dropped), block_upstream), length)
            query_gradient = ops.concatenate(query_gradients, axis=2) * scale
            return query_gradient, key_gradient, value_gradient

        return output, gradient

    return attend(query, key, value)


def visible_keys(queries, keys, branches=None):
    """Which keys each query sees, the queries being the last of the keys.

    Args:
        queries, keys: int scalars.
        branches: optional int `[batch, length]` of sequences that begin alike, laid one behind the
            other without repeating the beginning: 0 in the beginning that they share, and the
            number of its sequence where a token is in one of them only. A token sees the beginning
            and its own sequence.

    Returns:
        bool, to be broadcast to `[batch, heads, queries, keys]`.
    """
    is_past = ops.arange(keys) <= ops.arange(queries)[:, None] + (keys - queries)
    if branches is None:
        return is_past
    of_keys = branches[:, :keys]
    of_queries = of_keys[:, keys - queries :, None]
    of_keys = of_keys[:, None]
    return ops.expand_dims(is_past & ((of_keys == 0) | (of_keys == of_queries)), 1)


def _blocks(length):
    """The first and the last position of each block of queries; one block for an open length."""
    if not isinstance(length, int):
        return [(0, None)]
    return [(start, min(start + _QUERIES, length)) for start in range(0, length, _QUERIES)]


def _pad(x, length):
    """Adds zeros for the keys that a block does not reach."""
    return ops.pad(x, ((0, 0), (0, 0), (0, length - ops.shape(x)[2]), (0, 0)))


def _transpose(x):
    return ops.transpose(x, (0, 1, 3, 2))
