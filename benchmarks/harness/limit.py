"""The limit of a machine: the necessary products of an answer at the fastest product's speed."""

LIMIT = "limit, float32"  # its name in tables


def least_flops(size, tokens):
    """Returns the FLOPs of the products that a classifier needs for a text of `tokens` tokens.

    In the last block, tokens before the last need only keys and values. A token attends to itself
    and to those before it. Normalisation, softmax, GELU and the head are not counted.

    Args:
        size: dict like those in `SIZES`.
        tokens: int.
    """
    width, blocks = size["hidden_dim"], size["num_layers"]
    of_block = 2 * (4 * width**2 + 2 * width * size["intermediate_dim"])
    of_keys_and_values = 2 * 2 * width**2
    attention = 4 * width * (tokens * (tokens + 1) // 2)
    before_last = (blocks - 1) * (tokens * of_block + attention)
    return before_last + (tokens - 1) * of_keys_and_values + of_block + 4 * width * tokens
