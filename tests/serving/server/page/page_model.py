"""A model for the tests of the page: names, labels and errors that are markup, every kind of input.

Its signature `explain` has the outputs of an export's: words at the bytes where they stand. Here
words are what spaces separate, and one that begins with "not" speaks against the answer.
"""

import tensorflow as tf

NAME = '<script>document.title = "run"</script> "a" & b'
LABELS = ['<img src="x" onerror="document.title = 1">', "fine & good"]
TEXT = tf.TensorSpec([None], tf.string, "text")
EXAMPLES = tf.TensorSpec([None], tf.string, "inputs")
CHOICES = tf.TensorSpec([None, None], tf.string, "choices")
MIXED = {
    "choices": CHOICES,
    "flag": tf.TensorSpec([None], tf.bool, "flag"),
    "matrix": tf.TensorSpec([None, None], tf.float32, "matrix"),
    "scalar": tf.TensorSpec([], tf.int64, "scalar"),
    "temperature": tf.TensorSpec([None], tf.float32, "temperature"),
    "text": TEXT,
    "length": tf.TensorSpec([None], tf.int32, "length"),
}
FORTY = tf.constant([40])


class PageModel(tf.Module):
    """Answers that a text is fine if it has many words."""

    @tf.function(input_signature=[TEXT])
    def default(self, text):
        return _answer(text)

    @tf.function(input_signature=[EXAMPLES])
    def classify(self, inputs):
        text = tf.io.parse_example(inputs, {"text": tf.io.FixedLenFeature([], tf.string)})["text"]
        scores = _answer(text)["scores"]
        return {"classes": tf.broadcast_to(LABELS, tf.shape(scores)), "scores": scores}

    @tf.function(input_signature=[TEXT])
    def explain(self, text):
        words = tf.strings.split(text, " ")
        lengths = tf.strings.length(words)
        ends = tf.cumsum((lengths + 1).to_tensor(), axis=1) - 1
        share = tf.where(tf.strings.regex_full_match(words.to_tensor(), "not.*"), -0.5, 0.25)
        answer = _answer(text)
        return {
            **answer,
            "score": tf.reduce_max(answer["scores"], axis=-1),
            "classes": tf.broadcast_to(LABELS, tf.shape(answer["scores"])),
            "words": words.to_tensor(),
            "word_fields": tf.fill(tf.shape(share), "text"),
            "word_starts": ends - lengths.to_tensor(),
            "word_ends": ends,
            "word_shares": share,
            "num_words": tf.cast(words.row_lengths(), tf.int32),
            "is_sure": tf.fill(tf.shape(text), False),
            "blank": text == "",
        }

    @tf.function(input_signature=list(MIXED.values()))
    def mixed(self, choices, flag, matrix, scalar, temperature, text, length=FORTY):
        return dict(zip(MIXED, (choices, flag, matrix, scalar, temperature, text, length)))

    @tf.function(input_signature=[TEXT, CHOICES])
    def pick(self, text, choices):
        """The last choice, as every text is one word, and each counts more than the one before."""
        words = tf.concat([text[:, tf.newaxis], choices], axis=1)
        order = tf.range(tf.shape(words)[1])[tf.newaxis]
        scores = tf.nn.softmax(tf.cast(order[:, 1:], tf.float32))
        return {
            "choice": tf.argmax(scores, axis=-1, output_type=tf.int32),
            "scores": scores,
            "words": words,
            "word_fields": tf.where(order == 0, "text", "choices"),
            "word_choices": order - 1,
            "word_starts": tf.zeros_like(order),
            "word_ends": tf.strings.length(words),
            "word_shares": tf.cast(order, tf.float32) - 0.5,
            "num_words": tf.shape(words)[1:],
        }

    @tf.function(input_signature=[TEXT])
    def only(self, text):
        return {"continuation": text + " and on"}

    @tf.function(input_signature=[TEXT])
    def refuse(self, text):
        asserted = tf.debugging.Assert(tf.constant(False), ["<b>No</b>", text])
        with tf.control_dependencies([asserted]):
            return {"text": tf.identity(text)}

    @tf.function(input_signature=[TEXT])
    def unbounded(self, text):
        return {"score": tf.math.log(tf.zeros_like(text, tf.float32))}


def _answer(text):
    count = tf.cast(tf.strings.split(text, " ").row_lengths(), tf.float32)
    fine = count / (count + 2.0)
    scores = tf.stack([1.0 - fine, fine], axis=-1)
    return {"label": tf.gather(LABELS, tf.argmax(scores, axis=-1)), "scores": scores}


def save(path):
    """Writes the model's SavedModel."""
    model = PageModel()
    signatures = {
        "serving_default": model.default,
        "classify": model.classify,
        "explain": model.explain,
        "mixed": model.mixed,
        "only": model.only,
        "pick": model.pick,
        "refuse": model.refuse,
        "unbounded": model.unbounded,
    }
    tf.saved_model.save(model, str(path), signatures=signatures)
