"""The signatures of a fine-tuned task's export: one graph from raw text to answers."""

import keras
import tensorflow as tf

from gpt1_keras.tokenization.input_transformations import bucket_lengths
from serving.export.batching import by_bucket, merged
from serving.export.quantization import saved_variables


class TaskSignatures(tf.Module):
    """A task's signatures, as functions of named tensors.

    - `serving_default`: texts by field, string `[batch]`; `choices` `[batch, choices]`.
    - `classify` or `regress`: serialized `tf.Example`s with these features, for TF Serving's calls
      of these names.
    - `tokenize`: the same texts to what the decoder reads.
    - `tokens`: what `tokenize` gives, in place of text.

    All outputs have `num_tokens`, int32 `[batch]`, and those of texts `truncated`, bool `[batch]`.

    Args:
        model: a fine-tuned `RawTextTask` with a preprocessor, whose fields name the texts.
        batching: optional `Batching`: texts of many requests are answered together, those of
            `serving_default` and of `tf.Example`s alike.
        int8: bool, weights in 8 bits; the model's are rounded.
    """

    def __init__(self, model, batching=None, int8=False):
        super().__init__()
        untracked = {
            "_model": model,  # would bring all weights into the checkpoint a second time
            # Traced once, whichever signatures use them.
            "_tokenize": tf.function(self._tokenize, autograph=False),
            "_predict_tokens": tf.function(self._predict_tokens, autograph=False),
        }
        for name, value in untracked.items():
            object.__setattr__(self, name, value)
        self._preprocessor = model.preprocessor
        self.sequence_length = model.preprocessor.sequence_length
        self._batching = batching
        self._variables = saved_variables(model, int8)

    def functions(self):
        """The signatures by name."""
        texts = {field: self._text_spec(field) for field in self._preprocessor.fields}
        tokens = {
            tensor.name: tf.TensorSpec(tensor.shape, tf.int32, tensor.name)
            for tensor in self._model.inputs
        }
        name, function = self._for_examples()
        from_tokens = compiled(self._predict_tokens, tokens)
        self._answer = self._merged(from_tokens) if self._batching else self._predict_texts
        return {
            "serving_default": compiled(self._predict, texts),
            name: compiled(function, {"inputs": tf.TensorSpec([None], tf.string, "inputs")}),
            "tokenize": compiled(self._tokenize, texts),
            "tokens": from_tokens,
        }

    def bucket_lengths(self):
        """The lengths that texts are padded to, a list of int."""
        return bucket_lengths(self.sequence_length)

    def sample(self, length):
        """Texts of one example that has about so many tokens, as tensors by field."""
        segments = len(self._preprocessor.fields)
        text = words((length - segments - 1) // segments)
        return dict.fromkeys(self._preprocessor.fields, tf.constant([text]))

    def _text_spec(self, field):
        return tf.TensorSpec([None], tf.string, field)

    def _for_examples(self):
        """The name of the signature that takes tf.Examples, and its function."""
        raise NotImplementedError

    def _outputs(self, answers):
        """Named outputs from the model's."""
        raise NotImplementedError

    def _predict(self, **texts):
        return self._answer(**texts)

    def _predict_texts(self, **texts):
        inputs = self._tokenize(**texts)
        truncated = inputs.pop("truncated")
        return {**self._predict_tokens(**inputs), "truncated": truncated}

    def _merged(self, from_tokens):
        """As `_predict_texts`, for the texts of many requests, by bucket."""

        def predict(**texts):
            inputs = self._tokenize(**self._unpacked(**texts))
            truncated = inputs.pop("truncated")
            num_tokens = self._preprocessor.count_tokens(inputs)
            outputs = by_bucket(from_tokens, inputs, num_tokens, self.bucket_lengths())
            return {**outputs, "truncated": truncated}

        call = merged(predict, self._packed_names(), self._batching)
        return lambda **texts: call(**self._packed(texts))

    def _packed_names(self):
        return self._preprocessor.fields

    def _packed(self, texts):
        """What of a request is merged with others: strings `[batch]` by name."""
        return texts

    def _unpacked(self, **packed):
        """The texts that were packed."""
        return packed

    def _tokenize(self, **texts):
        tensors = self._preprocessor.as_tensors(texts)
        framed, truncated = self._preprocessor.transform(list(tensors.values()))
        return {**self._preprocessor.pad(framed), "truncated": truncated}

    def _predict_tokens(self, **inputs):
        outputs = self._outputs(self._model.predict_outputs(inputs))
        return {**outputs, "num_tokens": self._preprocessor.count_tokens(inputs)}

    def _parse(self, examples):
        """The texts of serialized tf.Examples, by field."""
        features = {
            field: tf.io.FixedLenFeature([], tf.string)
            if self._text_spec(field).shape.rank == 1
            else tf.io.RaggedFeature(tf.string, row_splits_dtype=tf.int64)
            for field in self._preprocessor.fields
        }
        return tf.io.parse_example(examples, features)


class ClassSignatures(TaskSignatures):
    """Of tasks with classes: `label`, string `[batch]`; `scores`, float `[batch, classes]`."""

    def __init__(self, model, batching=None, int8=False):
        super().__init__(model, batching, int8)
        self._class_names = tf.constant(model.class_names)

    def _for_examples(self):
        return "classify", self._classify

    def _outputs(self, answers):
        is_probable = self._model.activation is keras.activations.softmax
        scores = answers if is_probable else tf.nn.softmax(answers)
        return {
            "label": tf.gather(self._class_names, tf.argmax(scores, axis=-1)),
            "scores": scores,
        }

    def _classify(self, inputs):
        scores = self._predict(**self._parse(inputs))["scores"]
        return {"classes": tf.tile([self._class_names], [tf.shape(scores)[0], 1]), "scores": scores}


class ScoreSignatures(TaskSignatures):
    """Of tasks with scores in a range: `score`, float `[batch]`."""

    def _for_examples(self):
        return "regress", self._regress

    def _outputs(self, answers):
        return {"score": self._model.score_of(answers)}

    def _regress(self, inputs):
        return {"outputs": self._predict(**self._parse(inputs))["score"]}


class ChoiceSignatures(TaskSignatures):
    """Of multiple choice.

    `choices` may differ in number: in a tensor, an empty string is none. Outputs are `label`,
    string `[batch]`, the answer chosen, and its number among the choices, `choice`, int32
    `[batch]`; `scores`, float `[batch, choices]`, probabilities, 0 where there is none. From tokens
    there is no `label`.
    """

    def __init__(self, model, batching=None, int8=False):
        super().__init__(model, batching, int8)
        self._field = self._preprocessor.fields[-1]

    def bucket_lengths(self):
        lengths = super().bucket_lengths()
        # Answers behind a long context are often more than a sequence of the longest.
        return [*lengths, 2 * lengths[-1]]

    def sample(self, length):
        *others, choices = self._preprocessor.fields
        answer = max(1, length // 8 - 2)
        context = length - 4 * (answer + 2) - len(others)
        texts = dict.fromkeys(others, tf.constant([words(1)]))
        texts[others[0]] = tf.constant([words(context)])
        return {**texts, choices: tf.constant([[words(answer)] * 4])}

    def _text_spec(self, field):
        is_choices = field == self._field
        return tf.TensorSpec([None, None] if is_choices else [None], tf.string, field)

    def _for_examples(self):
        return "classify", self._classify

    def _outputs(self, answers):
        scores = tf.nn.softmax(answers)
        return {"choice": tf.argmax(scores, axis=-1, output_type=tf.int32), "scores": scores}

    def _predict(self, **texts):
        texts = self._with_present_choices(texts)
        choices = texts[self._field].to_tensor("")
        outputs = super()._predict(**texts)
        # Merged with requests of more choices, it has columns for them.
        outputs["scores"] = outputs["scores"][:, : tf.shape(choices)[1]]
        label = tf.gather(choices, outputs["choice"], batch_dims=1)
        return {**outputs, "label": label}

    def _classify(self, inputs):
        texts = self._with_present_choices(self._parse(inputs))
        scores = self._predict(**texts)["scores"]
        return {"classes": texts[self._field].to_tensor(""), "scores": scores}

    def _with_present_choices(self, texts):
        """The texts, with a ragged tensor of the choices that are there, at least one each."""
        texts = self._preprocessor.as_tensors(texts)
        choices = texts[self._field]
        count = choices.row_lengths()
        check = tf.debugging.Assert(
            tf.reduce_all(count > 0),
            ["Every example needs a choice. Received numbers of choices:", count],
        )
        with tf.control_dependencies([check]):
            return {**texts, self._field: choices.with_values(tf.identity(choices.values))}

    def _packed(self, texts):
        """Texts whose choices are one string for each example, as the tensors of requests that are
        merged may only differ in their batch; in `sizes` are the lengths of the choices, in bytes.
        """
        choices = texts[self._field]
        sizes = choices.with_values(tf.strings.as_string(tf.strings.length(choices.values)))
        return {
            **texts,
            self._field: tf.strings.reduce_join(choices, axis=-1),
            "sizes": tf.strings.reduce_join(sizes, axis=-1, separator=" "),
        }

    def _packed_names(self):
        return (*self._preprocessor.fields, "sizes")

    def _unpacked(self, sizes, **texts):
        sizes = tf.strings.split(sizes)
        sizes = sizes.with_values(tf.strings.to_number(sizes.values, tf.int32))
        joined = tf.gather(texts[self._field], sizes.value_rowids())
        starts = tf.cumsum(sizes.values, exclusive=True)
        starts -= tf.gather(starts, tf.gather(sizes.row_splits, sizes.value_rowids()))
        choices = tf.strings.substr(joined, starts, sizes.values)
        return {**texts, self._field: sizes.with_values(choices)}


def words(count):
    """A text of so many tokens: a full stop is a token of its own in any vocabulary."""
    return " ".join(["."] * count)


def compiled(function, specs):
    """A concrete function of named tensors, without XLA, which the stock TF Serving has not."""
    return tf.function(function, autograph=False, jit_compile=False).get_concrete_function(**specs)


def input_names(function):
    """The names of a signature's inputs, a list of str."""
    return [spec.name for spec in tf.nest.flatten(function.structured_input_signature)]
