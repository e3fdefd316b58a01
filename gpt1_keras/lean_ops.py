"""GELU and causal attention that keep little between the forward and the backward pass.

What is cheap to compute, and large, is formed again for the gradient instead of being kept.
"""

from keras import ops

_QUERIES = 128  # that are taken together
_SLOPE, _CURVE = 1.5957691216057308, 0.0713548162726009  # 2 sqrt(2 / pi), and 0.044715 times it


def gelu(x):
    """GELU in its tanh form, 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).

    That is x sigmoid(y) with y = 2 sqrt(2 / pi) (x + 0.044715 x^3). Only x is kept.

    Args:
        x: float, of any shape.

    Returns:
        float, of the same shape and dtype.
    """

    def gate(x):
        return ops.sigmoid(x * (_SLOPE + _CURVE * x * x))

    @ops.custom_gradient
    def apply(x):
        def gradient(*args, upstream=None):
            upstream = args[0] if upstream is None else upstream
            s = gate(x)
            return upstream * (s + x * s * (1.0 - s) * (_SLOPE + 3.0 * _CURVE * x * x))

        return x * gate(x), gradient

    return apply(x)


def causal_attention(query, key, value, keep=None, keep_probability=1.0):
    """softmax(q k^T / sqrt(d)) v, where each position sees itself and those before it.

    Only query, key, value, the normalisers and the dropout mask are kept. Queries are taken in
    blocks, so that most of what the causal mask would hide is never computed.

    Args:
        query, key, value: float `[batch, heads, length, head_dim]`.
        keep: optional bool `[batch, heads, length, length]`, the probabilities that dropout keeps.
        keep_probability: float, the share that it keeps.

    Returns:
        float `[batch, heads, length, head_dim]`.
    """
    scale = query.shape[-1] ** -0.5
    blocks = _blocks(query.shape[2])

    def block_scores(query, key, start, stop):
        scores = ops.matmul(query[:, :, start:stop], _transpose(key[:, :, :stop]))
        scores = ops.cast(scores, "float32") * scale  # (B, heads, queries, keys)
        rows = start + ops.arange(ops.shape(scores)[2])
        is_past = ops.arange(ops.shape(scores)[3]) <= ops.expand_dims(rows, 1)
        return ops.where(is_past, scores, -1e9)

    def drop(x, start, stop):
        if keep is None:
            return x
        return ops.where(keep[:, :, start:stop, :stop], x / keep_probability, 0.0)

    @ops.custom_gradient
    def attend(query, key, value):
        outputs, normalizers = [], []
        for start, stop in blocks:
            scores = block_scores(query, key, start, stop)
            probabilities = ops.softmax(scores)
            # log sum exp = max - log(softmax at the max), as the largest term of the sum is 1.
            normalizers.append(
                ops.max(scores, axis=-1, keepdims=True)
                - ops.log(ops.max(probabilities, axis=-1, keepdims=True))
            )
            probabilities = ops.cast(drop(probabilities, start, stop), value.dtype)
            outputs.append(ops.matmul(probabilities, value[:, :, :stop]))

        def gradient(*args, upstream=None):
            upstream = args[0] if upstream is None else upstream
            query_gradients, key_gradient, value_gradient = [], 0.0, 0.0
            for (start, stop), normalizer in zip(blocks, normalizers):
                probabilities = ops.exp(block_scores(query, key, start, stop) - normalizer)
                output = upstream[:, :, start:stop]
                dropped = ops.cast(drop(probabilities, start, stop), value.dtype)
                value_gradient += _pad(ops.matmul(_transpose(dropped), output), query)
                slope = ops.matmul(output, _transpose(value[:, :, :stop]))
                slope = drop(ops.cast(slope, "float32"), start, stop)
                slope -= ops.sum(slope * probabilities, axis=-1, keepdims=True)
                slope = ops.cast(slope * probabilities * scale, query.dtype)
                query_gradients.append(ops.matmul(slope, key[:, :, :stop]))
                key_gradient += _pad(ops.matmul(_transpose(slope), query[:, :, start:stop]), query)
            return ops.concatenate(query_gradients, axis=2), key_gradient, value_gradient

        return ops.concatenate(outputs, axis=2), gradient

    return attend(query, key, value)


def _blocks(length):
    """The first and the last position of each block of queries; one block for an open length."""
    if not isinstance(length, int):
        return [(0, None)]
    return [(start, min(start + _QUERIES, length)) for start in range(0, length, _QUERIES)]


def _pad(x, like):
    """Adds zeros for the keys that a block does not reach."""
    missing = ops.shape(like)[2] - ops.shape(x)[2]
    return ops.pad(x, ((0, 0), (0, 0), (0, missing), (0, 0)))


def _transpose(x):
    return ops.transpose(x, (0, 1, 3, 2))
