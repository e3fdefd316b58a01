"""The text that a language model's tokens stand for: spaced as people write, up to a stop text."""

import tensorflow as tf

# What has no space before it, and may be a word by itself; and what begins a word, such as ".5".
_CLOSING = r"[.,!?;:%)\]}…]"
_PROTECTED = "\x01"  # stands for a space meanwhile; normalisations remove it from texts
_RULES = (
    # `bert` makes three words of "it's", and `original` two.
    (r" ' ?(s|t|m|d|ll|re|ve)( |\n|$)", r"'\1\2"),
    (r" n't( |\n|$)", r"n't\1"),
    (rf" ({_CLOSING})([^\s.,!?;:%)\]}}…])", rf"{_PROTECTED}\1\2"),
    (rf" ({_CLOSING})", r"\1"),
    (_PROTECTED, " "),
    (r"([(\[{]) ", r"\1"),
    (r" ?\n ?", "\n"),
)


def joined(texts: tf.Tensor) -> tf.Tensor:
    """Removes the spaces that tokenization puts around punctuation and inside contractions.

    `it did n't ( yet ) .` becomes `it didn't (yet).`. Quotation marks and hyphens keep their
    spaces, as it takes the meaning of a text to know which word they belong to.

    Args:
        texts: words separated by spaces, string of any shape.
    """
    for pattern, rewrite in _RULES:
        texts = tf.strings.regex_replace(texts, pattern, rewrite)
    return texts


def joined_continuations(texts: tf.Tensor) -> tf.Tensor:
    """Like `joined`, for texts that go on from others: they are joined as in the whole text."""
    return tf.strings.strip(joined(tf.strings.join([" ", texts])))


def before_stops(texts: tf.Tensor, stops: tf.Tensor) -> tf.Tensor:
    """Cuts each text before the earliest place where one of its stop texts occurs.

    Args:
        texts: string `[batch]`.
        stops: string `[batch, n]`; an empty string is none.

    Returns:
        string `[batch]`.
    """

    def cut(inputs: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        text, row = inputs

        def earlier(end: tf.Tensor, stop: tf.Tensor) -> tf.Tensor:
            before = tf.cond(
                tf.equal(stop, ""),  # an empty separator would be white space
                lambda: text,
                lambda: tf.strings.split(text, stop)[0],
            )
            return tf.minimum(end, tf.strings.length(before))

        return tf.strings.substr(text, 0, tf.foldl(earlier, row, tf.strings.length(text)))

    return tf.map_fn(cut, (texts, stops), fn_output_signature=tf.string)
