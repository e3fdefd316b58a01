"""The signatures of an export: one graph from raw text to labelled scores."""

import keras
import tensorflow as tf

from gpt1_keras.transforms import pad


class ClassifierSignatures(tf.Module):
    """A text classifier's signatures, as functions of named tensors.

    - `serving_default`: `text`, or `premise` and `hypothesis`, string `[batch]`.
    - `classify`: serialized `tf.Example`s with these features, for TF Serving's Classify.
    - `tokenize`: the same texts to what the decoder reads.
    - `tokens`: what `tokenize` gives, in place of text.

    Args:
        model: `GPT1TextClassifier` with a preprocessor, whose fields name the texts.
    """

    def __init__(self, model):
        super().__init__()
        self._model = model
        self._fields = model.preprocessor.fields
        self._class_names = tf.constant(model.class_names)
        self._variables = [variable.value for variable in model.variables]  # for the checkpoint
        self._to_probabilities = (
            tf.identity if model.activation is keras.activations.softmax else tf.nn.softmax
        )

    def functions(self):
        """The signatures by name."""
        texts = {field: tf.TensorSpec([None], tf.string, field) for field in self._fields}
        ids = {
            name: tf.TensorSpec([None, None], tf.int32, name)
            for name in ("token_ids", "padding_mask")
        }
        examples = {"inputs": tf.TensorSpec([None], tf.string, "inputs")}
        return {
            "serving_default": _signature(self._predict, texts),
            "classify": _signature(self._classify, examples),
            "tokenize": _signature(self._tokenize, texts),
            "tokens": _signature(self._predict_tokens, ids),
        }

    def _predict(self, **texts):
        inputs = self._tokenize(**texts)
        outputs = self._predict_tokens(inputs["token_ids"], inputs["padding_mask"])
        return {**outputs, "truncated": inputs["truncated"]}

    def _classify(self, inputs):
        features = {field: tf.io.FixedLenFeature([], tf.string) for field in self._fields}
        texts = tf.io.parse_example(inputs, features)
        scores = self._predict(**texts)["scores"]
        return {"classes": tf.tile([self._class_names], [tf.shape(scores)[0], 1]), "scores": scores}

    def _tokenize(self, **texts):
        preprocessor = self._model.preprocessor
        ids, truncated = preprocessor.transform([texts[field] for field in self._fields])
        inputs = pad(ids, preprocessor.tokenizer, preprocessor.sequence_length)
        return {**inputs, "truncated": truncated}

    def _predict_tokens(self, token_ids, padding_mask):
        inputs = {"token_ids": token_ids, "padding_mask": padding_mask}
        scores = self._to_probabilities(self._model(inputs, training=False))
        return {
            "label": tf.gather(self._class_names, tf.argmax(scores, axis=-1)),
            "scores": scores,
            "num_tokens": tf.reduce_sum(padding_mask, axis=-1),
        }


def _signature(function, specs):
    """Compiles a function of named tensors, without XLA, which the stock TF Serving has not."""
    compiled = tf.function(function, autograph=False, jit_compile=False)
    return compiled.get_concrete_function(**specs)
