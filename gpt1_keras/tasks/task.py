"""Task: the base class of all tasks, which train on strings and predict from them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import keras
import numpy as np
from keras import ops, tree

from gpt1_keras.examples import Examples
from gpt1_keras.lazy import has_tensorflow
from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.models.causal_backbone import CausalBackbone
from gpt1_keras.models.functional_model import FunctionalModel
from gpt1_keras.models.left_padding import move_to_front
from gpt1_keras.optimization.objective import AuxiliaryLanguageModeling, sequence_weights
from gpt1_keras.optimization.optimizer import (
    check_dtypes,
    check_sets_no_rate,
    finetuning_optimizer,
    open_schedule,
    stretch_schedule,
    warn_of_no_rate,
)
from gpt1_keras.optimization.training_step import TaskHooks, training_step
from gpt1_keras.preset_files import loading_checked_files
from gpt1_keras.tasks.batches import (
    as_batches,
    check_sequences,
    errors_in_words,
    in_order,
    string_tensors,
    training_batches,
    warn_of_blank_examples,
)
from gpt1_keras.tasks.classify import classify
from gpt1_keras.tasks.fields_preprocessor import FieldsPreprocessor
from gpt1_keras.tasks.fresh_head import fit_head, reads_one_state
from gpt1_keras.tasks.heads import Calibration, ExtractHead, Head, last_token_states
from gpt1_keras.tasks.label_heads import task_with_classes
from gpt1_keras.tasks.labels import as_labels, as_weights, beside, check_comparable, keras_name
from gpt1_keras.tasks.saving import (
    OF_TEXTS,
    CompileArguments,
    check_export,
    compile_from,
    load_head,
    load_task_preset,
    save_head,
    serialized_compile_arguments,
)
from gpt1_keras.tokenization.padding import PadTo
from gpt1_keras.transformers_writers import write_for_transformers
from gpt1_keras.types import Tensor
from gpt1_keras.upstream import (
    in_grain_data_pipeline,
    is_selected,
    keras_loops,
    to_backend_tensors,
)


class Task(FunctionalModel, TaskHooks):
    """A model that trains on strings and predicts from them.

    A task inherits from it and from one of KerasHub's tasks, in this order:
    `class MyTask(Task, keras_hub.models.Task)`. It is a functional model of ids, which its
    constructor builds. It is composed of a `backbone`; a `preprocessor`, which turns strings into
    the model's inputs; and a `task_head`, which has the layers on the hidden states and says what
    labels are. `compile` adds a `training_step`.

    What happens in `fit` on strings: `training_batches` makes a dataset of batches; KerasHub maps
    `preprocess_samples` over it, in which the head encodes the labels and the preprocessor frames
    and pads the texts; Keras loops over epochs and batches; and the training step computes
    `forward_loss` and its gradients, and updates the weights.
    """

    # Constructor arguments that say what labels are. `from_preset` makes a fresh head if one of
    # them is given.
    label_arguments: ClassVar[tuple[str, ...]] = ()

    # Further constructor arguments of a fresh head, which replace the preset's.
    fresh_arguments: ClassVar[Mapping[str, Any]] = {}

    task_head: Any = Head()  # each task has its own
    head: Any = None  # the linear layer on the hidden states; None without one
    auxiliary: Any = None  # an `AuxiliaryLanguageModeling`, which adds L1; None without a head
    preprocessor: Any  # a layer or a function; None where inputs are ids
    _takes_class_numbers = True  # whether the compiled loss takes what the head makes of labels

    @property
    def class_names(self) -> list[str] | None:
        """The names of the classes, in the order of the outputs; None without classes."""
        return self.task_head.class_names

    @property
    def num_classes(self) -> int | None:
        """The number of classes; None for scores, choices and the language model."""
        return self.task_head.num_classes

    @property
    def score_range(self) -> tuple[int, int] | None:
        """The least and the greatest score, integers; None unless the model predicts scores."""
        return self.task_head.score_range

    @property
    def activation(self) -> Callable:
        """The function on the logits, the identity if there is none.

        Raises:
            AttributeError: the task's head takes no activation: choices, the language model.
        """
        return self.task_head.activation

    @property
    def tokenizer(self) -> Any:
        """The preprocessor's tokenizer, which turns text into ids; None without one."""
        return getattr(self.preprocessor, "tokenizer", None)

    def activate(self, logits: Tensor) -> Tensor:
        """Calls `LabelHead.activate` of the task's head."""
        return self.task_head.activate(logits)

    def score_of(self, logits: Tensor) -> Tensor:
        """Calls `score_of` of the task's head, a `ScoreHead` or `OneClassHead`."""
        return self.task_head.score_of(logits)

    @property
    def windows(self) -> int:
        """The most windows that a text is cut into; 1 for a task that has none."""
        return getattr(self.preprocessor, "windows", 1)

    @property
    def calibration(self) -> Calibration | None:
        """How logits become probabilities: a temperature, and the score that answers are sure from.

        None for a task whose predictions have no probabilities. It can be set.
        """
        return self.task_head.calibration

    @calibration.setter
    def calibration(self, calibration: Calibration) -> None:
        if self.calibration is None:
            raise ValueError(
                f"A {type(self.task_head).__name__} has no probabilities to calibrate. Received: "
                f"{calibration}."
            )
        self.task_head.calibration = calibration

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Returns calibrated probabilities of classes or choices.

        The temperature changes neither logits nor losses nor labels, so `predict`, `evaluate` and
        `fit` do not use it.

        Args:
            outputs: what `predict` returns, float `[batch, classes or choices]`.

        Returns:
            float of the same shape. After an activation other than softmax, the outputs themselves.

        Raises:
            ValueError: the task's predictions have no probabilities, such as scores; or the task is
                compiled with a binary cross-entropy, and its outputs are logits of classes.
        """
        self._refuse_binary(self.loss)
        return self.task_head.probabilities(outputs)

    def _refuse_binary(self, loss: Any) -> None:
        """Raises ValueError for a loss that does not take the softmax of logits of classes."""
        are_logits = self.class_names is not None and getattr(self.task_head, "is_linear", False)
        if are_logits and keras_name(loss).lower().startswith("binary"):
            raise ValueError(
                "A binary cross-entropy takes each class by itself, and the softmax of logits does "
                f"not. Received: loss={keras_name(loss)}. For several labels of a text, build "
                f"the {type(self).__name__} with activation='sigmoid'."
            )

    def with_classes(self, names: Sequence[str]) -> Self:
        """Returns a classifier of this one's classes and of more, to be trained on.

        Its outputs for the known classes are as before. The new classes come after them, with
        weights as a fresh head has them. The classifier has this one's backbone and preprocessor,
        not copies; it is compiled with the defaults, and is not calibrated, as the temperature and
        the threshold were those of fewer classes. (`from_preset(..., class_names=...)` makes a
        fresh head.)

        Args:
            names: the names of the new classes, one or more.

        Raises:
            ValueError: a name is known or given twice, or would change what numbers as labels mean;
                the task has no classes, or a single one; or its head is quantized or has LoRA.

        Example:
        ```python
        classifier = gpt1_keras.GPT1TextClassifier.from_preset("runs/mine/best")
        classifier = classifier.with_classes(["neutral"])
        texts = ["A lovely film.", "A dull one.", "A film."]
        classifier.fit(texts, ["positive", "negative", "neutral"], epochs=3)
        ```
        """
        return task_with_classes(self, names)

    def attach(
        self,
        backbone: CausalBackbone,
        preprocessor: Any,
        head: ExtractHead | None = None,
        weigh: Any = sequence_weights,
    ) -> None:
        """Sets the task's parts; a constructor calls it before it builds the functional model.

        A preprocessor is any layer or function that returns the model's inputs, or None if inputs
        are ids. Ours then truncate texts to the backbone's context. A task that is fine-tuned has a
        head. `weigh` is as in `AuxiliaryLanguageModeling`.
        """
        if preprocessor is not None and not callable(preprocessor):
            raise ValueError(
                f"The preprocessor of a {type(self).__name__} must be a layer or a function. "
                f"Received: {preprocessor!r}."
            )
        self.backbone = backbone
        length = getattr(preprocessor, "sequence_length", 0)  # functions and plain layers have none
        if length > backbone.max_sequence_length:
            # A copy, as the caller's preprocessor may serve other models.
            config = {**preprocessor.get_config(), "tokenizer": preprocessor.tokenizer}
            config["sequence_length"] = backbone.max_sequence_length
            preprocessor = type(preprocessor).from_config(config)
        self.preprocessor = preprocessor
        if head is None:
            return
        self.task_head = head
        self.auxiliary = AuxiliaryLanguageModeling(
            backbone.token_embedding, weigh, dtype=backbone.dtype_policy, name="auxiliary"
        )
        self.extract_dropout, self.head = head.dropout, head.linear
        self.dropout = head.dropout.rate

    def last_states(self, token_ids: Tensor, padding_mask: Tensor, *masks: Tensor) -> Tensor:
        """Returns the hidden state of each sequence's last token, and adds L1 while training.

        It takes inputs of the functional model, int `[batch, length]`, and further arguments of
        `weigh`; and returns float `[batch, hidden_dim]`.
        """
        token_ids, padding_mask = move_to_front(token_ids, padding_mask)
        hidden_states = self.backbone({"token_ids": token_ids})
        hidden_states = self.auxiliary(hidden_states, token_ids, padding_mask, *masks)
        return last_token_states(hidden_states, padding_mask)

    def predict_outputs(
        self, inputs: dict[str, Tensor], states_at: Callable[..., Tensor] | None = None
    ) -> Tensor:
        """Returns the model's outputs in inference, from only the hidden states that they need.

        `inputs` are what the preprocessor returns. `states_at` computes hidden states instead of
        the backbone's `states_at`. A task's own `predict_outputs` may have no such argument; its
        exports then compute the whole backbone.
        """
        raise NotImplementedError

    def check_inputs(self, inputs: Any) -> None:
        super().check_inputs(inputs)
        if self.auxiliary is not None and "padding_mask" in inputs:
            mask = inputs["padding_mask"]
            # Of a text's windows, only the first is always there.
            check_sequences(mask[:, 0] if self.windows > 1 else mask)

    # === Training and prediction ===

    def compile(  # type: ignore[override]  # names what Keras takes as *args
        self,
        optimizer: Any = "auto",
        loss: Any = "auto",
        *,
        metrics: Any = "auto",
        lm_coefficient: float | None = None,
        accumulation_steps: int = 1,
        **kwargs: Any,
    ) -> None:
        """Configures training. The defaults fine-tune as in the paper (section 4.1).

        Args:
            optimizer: `"auto"` for Adam with the paper's schedule, decay and clipping, at the rate
                of the backbone's `recipe`: the paper's for its weights, higher for small models.
            loss: `"auto"` for the head's default loss, which is L2, cross-entropy.
            metrics: `"auto"` for the head's default metrics: accuracy, if there are classes and the
                loss takes their numbers. Metrics compare labels with what `predict` returns: with
                logits unless there is an activation, or with scores. Numbers of one for each
                example, and their labels, are `[batch, 1]`, so that Keras takes means of examples.
            lm_coefficient: lambda in L3 = L2 + lambda L1, for a task with a head; by default the
                paper's 0.5. `fit` reports L3 as its loss; validation and `evaluate` report L2.
                Weights of examples apply to both.
            accumulation_steps: the number of slices that each batch is computed in; see
                `training_step`.
            **kwargs: see `keras.Model.compile`.

        `.keras` files keep all this, and the optimizer's state; presets do not, as in KerasHub.

        Raises:
            ValueError: a sparse loss for labels that are not classes; `lm_coefficient` without a
                head; or see `training_step`.
        """
        if self.auxiliary is not None:
            self.auxiliary.coefficient = 0.5 if lm_coefficient is None else lm_coefficient
        elif lm_coefficient is not None:
            raise ValueError(
                "`lm_coefficient` weighs L1 beside the loss of a head, and a "
                f"{type(self).__name__} has none. Received: lm_coefficient={lm_coefficient}."
            )
        is_auto, is_sparse = isinstance(loss, str) and loss == "auto", _is_sparse(loss)
        if is_sparse and not self.task_head.labels_are_classes:
            raise ValueError(
                "A sparse loss takes numbers of two classes or more, which the labels of a "
                f"{type(self.task_head).__name__} are not. Received: loss={loss}."
            )
        if self.windows > 1:  # whose mean is one of probabilities
            self._refuse_binary(loss)
        self._takes_class_numbers = is_auto or is_sparse
        if metrics == "auto":
            metrics = self.task_head.default_metrics() if self._takes_class_numbers else []
        if optimizer == "auto":
            optimizer = finetuning_optimizer(self.backbone.recipe.learning_rate)
        optimizer = keras.optimizers.get(optimizer)
        self.training_step = training_step(self, accumulation_steps)
        of_keras = {
            "optimizer": optimizer,
            "loss": self.task_head.default_loss() if is_auto else loss,
            "metrics": metrics,
            **kwargs,
        }
        super().compile(**of_keras)
        given = {**of_keras, "loss": loss, "accumulation_steps": accumulation_steps}
        if self.auxiliary is not None:
            given["lm_coefficient"] = self.auxiliary.coefficient
        self.compiled_with = CompileArguments(of_keras, **given)

    def get_compile_config(self) -> dict[str, Any]:
        """Returns the arguments of `compile`, serialized; empty if it was not called."""
        return serialized_compile_arguments(self)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Calls `compile` with what `get_compile_config` returned.

        An earlier version returned some of the arguments alone. Then the task stays compiled as by
        its constructor, and a warning says so.
        """
        compile_from(self, config)

    def forward_loss(
        self, x: Any, y: Any, sample_weight: Any, training: bool
    ) -> tuple[Any, Tensor]:
        """Computes a batch's outputs, and its mean of the loss that `compile` was given."""
        weighted = contextlib.nullcontext()
        if self.auxiliary is not None:
            weighted = self.auxiliary.weighted(sample_weight)
        with weighted:
            outputs = self(x, training=training)
            check_comparable(self.loss, y, outputs)
            y = beside(y, outputs)
            loss = self.compute_loss(x, y, outputs, sample_weight, training=training)
        if keras.backend.backend() == "tensorflow":
            loss *= tf.distribute.get_strategy().num_replicas_in_sync  # which Keras divides by
        return outputs, loss

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Tensor]:
        """Like `keras.Model.compute_metrics`, of what `predict` returns; see `compile`."""
        given = self.compiled_with.given
        measures = [given["metrics"], given.get("weighted_metrics")]
        if any(measures):
            y_pred = self.task_head.measured(y_pred)
            check_comparable(measures, y, y_pred)
            y = beside(y, y_pred)
        return super().compute_metrics(x, y, y_pred, sample_weight)

    def loss_count(self, x: Any, y: Any, sample_weight: Any) -> Tensor:
        """Returns how many items `forward_loss` averages, float32 scalar: the examples."""
        return ops.cast(ops.shape(tree.flatten(x)[0])[0], "float32")

    def preprocess_samples(self, x: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Like `keras_hub.models.Task.preprocess_samples`; the head encodes the labels."""
        self.check_tokenizer()
        if self.preprocessor is None:
            self.check_inputs(x)
        if y is not None:
            y = self._encode(as_labels(y))
        if isinstance(self.preprocessor, FieldsPreprocessor):
            x, _ = self.preprocessor.read(x)
        return self.frame_examples(x, y, as_weights(sample_weight))

    def read_examples(self, x: Any, y: Any = None, sample_weight: Any = None) -> Examples:
        """Checks texts, labels and weights as `fit` takes them, in memory, and encodes labels.

        `Examples`, as `x` alone, have their labels encoded already.

        Raises:
            ValueError: a text, label or weight is missing or wrong; or the examples are of other
                classes.
        """
        self.check_tokenizer()
        given = x if isinstance(x, Examples) else Examples(x, y, weights=sample_weight)
        if given is x and not (y is sample_weight is None):
            raise ValueError("Expected `Examples` alone. Received also labels or weights.")
        if self.preprocessor is None:
            self.check_inputs(given.texts)
        if given.labels is None and given.weights is not None:
            raise ValueError(
                "`sample_weight` weighs examples with labels. Received: weights without labels."
            )
        texts, is_one = given.texts, given.is_one
        if hasattr(self.preprocessor, "read"):
            is_column = given is x and isinstance(texts, dict) and has_tensorflow()
            texts, is_one = self.preprocessor.read(string_tensors(texts) if is_column else texts)
        labels, names = self._labels_of(given), given.class_names
        if labels is not None and self._takes_class_numbers:
            names = self.class_names  # so that who reads them again does not encode them again
        return dataclasses.replace(
            given,
            texts=texts,
            labels=labels,
            class_names=names,
            weights=as_weights(given.weights),
            is_one=given.is_one or is_one,
        )

    def _labels_of(self, examples: Examples) -> Any:
        """Returns the labels of examples as the compiled loss takes them, or None."""
        if examples.labels is None:
            return None
        if examples.class_names is None:
            labels = as_labels(examples.labels)
            # Without TensorFlow, which encodes labels, only data of ids have some.
            return self._encode(tf.convert_to_tensor(labels)) if has_tensorflow() else labels
        if list(examples.class_names) != self.class_names:
            raise ValueError(
                f"Expected examples of the classes {self.class_names}. Received: those of "
                f"{list(examples.class_names)}."
            )
        if not np.all(examples.is_labelled):
            raise ValueError(
                "Expected a label for each example. Received: none at index "
                f"{int(np.argmin(examples.is_labelled))}."
            )
        return examples.labels

    def frame_examples(self, texts: Any, labels: Any = None, weights: Any = None) -> Any:
        """Turns a batch that `read_examples` has read into what Keras takes: texts become ids."""
        if not isinstance(self.preprocessor, FieldsPreprocessor):
            return super().preprocess_samples(texts, labels, weights)
        self.preprocessor.check_labels(texts, labels)
        inputs = self.preprocessor.inputs_of(texts, self._pad_to())
        return keras.utils.pack_x_y_sample_weight(to_backend_tensors(inputs), labels, weights)

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        sample_weight: Any = None,
        validation_data: Any = None,
        validation_split: float | None = None,
        shuffle: bool = True,
        class_weight: Mapping[Any, float] | None = None,
        epochs: int | str = 1,
        **kwargs: Any,
    ) -> keras.callbacks.History:
        """Trains on strings, a `tf.data.Dataset` or a generator of batches, like `keras.Model.fit`.

        Strings and arrays are reshuffled each epoch (KerasHub would keep their order); a dataset
        keeps its order. Texts without a token, such as empty ones, are trained on, and a warning
        tells of them. A generator goes on from epoch to epoch; once it has ended, Keras warns
        that it "ran out of data". A learning-rate schedule without `total_steps` is stretched over
        all updates until the end of this call. A `keras.utils.PyDataset` or
        `tf.distribute.DistributedDataset` must hold ids, and goes to `keras.Model.fit` unchanged.

        Args:
            x, y, batch_size, sample_weight, validation_data, validation_split: as in
                `keras_hub.models.Task.fit`; or `Examples` as `x` alone, or as validation data. If
                they have `batches`, these are the batches, in their order.
            shuffle: whether to reshuffle strings and arrays.
            class_weight: the weight of each class, by its name or number as labels have it; 1 where
                it is not given.
            epochs: as in `keras.Model.fit`; or `"auto"` for those of the backbone's `recipe`:
                three, or more where the data are so few that they would not make 200 updates.
            **kwargs: see `keras.Model.fit`.

        Raises:
            ValueError: a text, label or weight is missing or wrong; a dataset without batches;
                `validation_split` with anything but strings or arrays; data of unknown length with
                `epochs="auto"` or with a schedule without `total_steps`; such a schedule with a
                callback that sets the rate; unknown classes in `class_weight`; or weights in
                float16.
        """
        check_dtypes(self.trainable_variables)
        if self.compiled:
            check_sets_no_rate(self.optimizer, kwargs.get("callbacks"))
        with errors_in_words():
            batches, validation_data = training_batches(
                *(self, x, y, sample_weight, batch_size),
                validation_data=validation_data,
                validation_steps=kwargs.get("validation_steps"),
                validation_split=validation_split,
                shuffle=shuffle,
            )
        warn_of_blank_examples(self.preprocessor, batches.examples)
        steps, initial = kwargs.get("steps_per_epoch"), kwargs.get("initial_epoch", 0)
        if isinstance(epochs, str):
            epochs = initial + self._recipe_epochs(epochs, steps or batches.count)
        if self.compiled:
            updates = steps or batches.count
            if stretch_schedule(self.optimizer, updates, epochs - initial):
                self.train_function = None  # its graph holds the earlier total as a constant
            warn_of_no_rate(self.optimizer, updates * (epochs - initial))
        if steps and batches.count < 0:
            batches = batches.repeated()  # or Keras would find no data in the second epoch
        loops: Any = keras_loops(self) if batches.are_ready else super()
        with errors_in_words():
            return loops.fit(
                *(batches.x, batches.y),
                sample_weight=batches.sample_weight,
                validation_data=validation_data,
                shuffle=False,
                class_weight=self._by_number(class_weight),
                epochs=epochs,
                **kwargs,
            )

    def fit_head(
        self,
        x: Any,
        y: Any = None,
        batch_size: int | None = None,
        sample_weight: Any = None,
        class_weight: Mapping[Any, float] | None = None,
    ) -> None:
        """Trains a fresh head alone, before `fit` trains all weights.

        With few labels, the gradients of a head of random weights spoil what was pre-trained before
        they teach anything (Kumar et al. 2022). `gpt1 finetune` calls this where the backbone's
        `recipe` says so. It takes as long as `predict`: the hidden states, in inference, are
        computed once, and kept in memory. The loss is the compiled one, the optimizer Adam.

        Args:
            x, y, batch_size, sample_weight, class_weight: as in `fit`; data of known length.

        Raises:
            ValueError: the answers are of choices, or means of windows; the data's length is
                unknown; the model is not compiled; or as in `fit`.

        Example:
        ```python
        texts, labels = ["A lovely film.", "A dull one."], [1, 0]
        classifier = gpt1_keras.GPT1TextClassifier.from_preset("gpt1_tiny_books", num_classes=2)
        classifier.fit_head(texts, labels)
        classifier.fit(texts, labels, epochs=3)
        ```
        """
        if not reads_one_state(self):
            raise ValueError(
                "`fit_head` is for a head that reads one hidden state of each example. Received: a "
                f"{type(self.task_head).__name__}, windows={self.windows}."
            )
        if not self.compiled:
            raise ValueError("`fit_head` needs a loss: call `compile` before it.")
        with errors_in_words():
            batches = as_batches(self, x, y, sample_weight, batch_size)
            if batches.count < 0 or not batches.are_ready:
                raise ValueError(
                    "`fit_head` needs strings, arrays or a `tf.data.Dataset` of known length. "
                    f"Received: {type(x).__name__}."
                )
            fit_head(self, batches, self._by_number(class_weight))

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        sample_weight: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Like `keras.Model.evaluate`, on the kinds of data that `fit` takes."""
        if kwargs.get("_use_cached_eval_dataset"):  # `fit` evaluates batches that are ready
            return keras_loops(self).evaluate(
                x, y, batch_size, sample_weight=sample_weight, **kwargs
            )
        with errors_in_words():
            batches = as_batches(self, x, y, sample_weight, batch_size)
            warn_of_blank_examples(self.preprocessor, batches.examples)
            loops: Any = keras_loops(self) if batches.are_ready else super()
            return loops.evaluate(
                *(batches.x, batches.y, batches.batch_size),
                sample_weight=batches.sample_weight,
                **kwargs,
            )

    def predict(self, x: Any, batch_size: int | None = None, **kwargs: Any) -> Any:
        """Like `keras.Model.predict`, on the kinds of data that `fit` takes.

        Returns:
            float32: `[batch, classes]`, logits unless there is an activation; or scores, `[batch]`;
                or logits, `[batch, choices]`.
        """
        with errors_in_words():
            texts = x.without_labels() if isinstance(x, Examples) else x
            batches = as_batches(self, texts, None, None, batch_size)
            loops: Any = keras_loops(self) if batches.are_ready else super()
            outputs = loops.predict(batches.x, batches.batch_size, **kwargs)
        return in_order(self.task_head.predictions(outputs), x)

    def classify(self, x: Any, batch_size: int | None = None) -> Any:
        """Answers texts with names of classes and calibrated probabilities.

        They are those of the task's export: the temperature and the threshold count.

        Args:
            x: texts as `predict` takes them: a list, a tuple or dict of lists for several fields,
                a `tf.data.Dataset` or a generator of batches, in which labels are left out; or a
                pandas Series, or DataFrame with the fields among its columns.
            batch_size: how many examples of a list or a table are computed at once.

        Returns:
            A dict for each example, in order; one dict for one example, such as a str:

            - of a classifier: `label`, the name of the most probable class; `score`, its
              probability; and `scores`, the probabilities of all classes by name. (After an
              activation other than softmax, these are the outputs themselves.)
            - of a classifier with a sigmoid, which may find several labels in a text: `labels`, the
              names of the classes with a probability above 0.5; and `scores`.
            - of multiple choice: `label`, the text of the most probable choice; `choice`, its
              index; `score`; and `scores`, a list of the probabilities of the choices.
            - of a task with scores or with a single class: `score`.

            With a `sure_threshold`, there is `is_sure` too, whether the largest score reaches it;
            and in all, `blank`, whether a text has no token, so that nothing of it was read. For a
            Series or DataFrame, all this as a DataFrame with the same index, in which a column
            `score_NAME` has the probability of each class.

        Raises:
            ValueError: the texts do not fit the fields; or the task has no answers of these kinds,
                or does not take texts.
        """
        return classify(self, x, batch_size)

    def train_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        class_weight: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Like `keras.Model.train_on_batch`, on strings.

        Raises:
            ValueError: the learning-rate schedule has no `total_steps`.
        """
        schedule = open_schedule(self.optimizer) if self.compiled else None
        if schedule is not None:
            raise ValueError(
                f"The {type(schedule).__name__} spans a whole training, and `train_on_batch` does "
                "not say how many updates that has. Compile with an optimizer that has "
                "`total_steps`, as `gpt1_keras.optimizer.finetuning_optimizer(total_steps=...)`."
            )
        class_weight = self._by_number(class_weight)
        return super().train_on_batch(x, y, sample_weight, class_weight=class_weight, **kwargs)

    def predict_on_batch(self, x: Any, **kwargs: Any) -> Any:
        """Like `keras.Model.predict_on_batch`, on strings; returns what `predict` returns."""
        return self.task_head.predictions(super().predict_on_batch(x, **kwargs))

    def _recipe_epochs(self, asked: str, updates: int) -> int:
        """Returns the recipe's epochs, of `updates` each, a negative number if that is unknown."""
        if asked != "auto":
            raise ValueError(f"epochs must be a number or 'auto'. Received: {asked!r}.")
        if updates < 0:
            raise ValueError(
                "epochs='auto' needs data of known length, or `steps_per_epoch`. Received: a "
                "dataset that does not say how many batches it has."
            )
        return self.backbone.recipe.epochs_for(updates)

    def _pad_to(self) -> PadTo:
        """Returns what the preprocessor pads a batch to."""
        if in_grain_data_pipeline():
            return "sequence_length"  # all batches of Grain must have one length
        # With buckets, XLA compiles for few lengths. A graph without XLA takes any length.
        is_graph = keras.backend.backend() == "tensorflow" and not self.jit_compile
        return "longest" if is_graph else "bucket"

    def _encode(self, labels: Any) -> Tensor:
        """Returns labels as the compiled loss takes them."""
        if self._takes_class_numbers:
            return self.task_head.encode_labels(labels)
        return self.task_head.encode_names(labels)

    def _by_number(self, class_weight: Mapping[Any, float] | None) -> dict[int, float] | None:
        """Returns the weights of classes by their numbers, or None if there are none."""
        return None if class_weight is None else self.task_head.weights_by_number(class_weight)

    # === Presets ===

    @classmethod
    @loading_checked_files
    def from_preset(
        cls,
        preset: str | os.PathLike[str],
        load_weights: bool = True,
        *,
        normalization: str | None = None,
        **kwargs: Any,
    ) -> Task:
        """Loads a preset, like `keras_hub.models.Task.from_preset`.

        Args:
            preset: the name of a preset that ships (`cls.presets` lists them), a folder that
                `save_to_preset` or `transformers` wrote, or a handle such as
                `"hf://openai-community/openai-gpt"`, which is downloaded.
            load_weights: whether to load weights; otherwise they are initialized.
            normalization: how text becomes words, `"bert"` or `"original"`. By default the preset's
                own; `"bert"` for `transformers`, whose files do not say.
            **kwargs: constructor arguments to change, such as `dtype`. An argument that says what
                labels are, such as `class_names`, makes a fresh head on the preset's backbone.

        Raises:
            OSError: see `gpt1_keras.preset_files.local_preset`.
            ValueError: the preset does not exist, holds another model or damaged weights, or has
                lost the weights of its head; the tokenizer, the preset's or that of a preprocessor
                in `kwargs`, does not fit the weights; or the preset has another normalization.
        """
        return load_task_preset(cls, preset, load_weights, normalization, kwargs)

    def save_to_preset(
        self, preset_dir: str | os.PathLike[str], max_shard_size: float = 10
    ) -> None:
        """Like `keras_hub.models.Task.save_to_preset`.

        Raises:
            ValueError: the preset could not be loaded again, see `CausalBackbone.check_loads`.
        """
        self.backbone.check_loads()
        super().save_to_preset(preset_dir, max_shard_size)

    def save_task_weights(self, filepath: str) -> None:
        """Saves the head's weights; see `save_head`."""
        save_head(self, filepath)

    def load_task_weights(self, filepath: str) -> None:
        """Loads the head's weights; see `load_head`."""
        load_head(self, filepath)

    def export_to_transformers(self, path: str | os.PathLike[str]) -> None:
        """Calls `gpt1_keras.convert.save_hugging_face`, under KerasHub's name for it."""
        write_for_transformers(self, path)

    def check_tokenizer(self) -> None:
        """Raises ValueError if the tokenizer has tokens that the backbone does not embed."""
        if self.tokenizer is None:
            return
        tokens = self.tokenizer.vocabulary_size()
        if tokens > self.backbone.vocabulary_size:
            raise ValueError(
                f"The tokenizer does not fit the model: it has {tokens} tokens, and the model "
                f"embeds {self.backbone.vocabulary_size}."
            )

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self.task_head.get_config()}

    # === Export and quantization ===

    def export(
        self, filepath: str | os.PathLike[str], format: str = "tf_saved_model", **kwargs: Any
    ) -> None:
        """Exports the model of ids, without the preprocessor, like `keras.Model.export`.

        For texts in and names out, `serving.export.export(model, folder)` writes a SavedModel, and
        `serving.tflite.convert(model, file)` a .tflite file.

        Raises:
            ValueError: `format="openvino"` for a task with a head; no such format; or an argument
                of a SavedModel that Keras would ignore.
        """
        check_export(self, format, kwargs)
        try:
            super().export(filepath, format, **kwargs)
        except ValueError as error:
            error.add_note(OF_TEXTS)
            raise

    def quantize(
        self, mode: str | None = None, config: Any = None, filters: Any = None, **kwargs: Any
    ) -> None:
        """Like `keras.Model.quantize`, but the head, some thousand weights, stays as it is.

        A preset records data types only for the backbone's layers, and could not load a quantized
        head.
        """
        super().quantize(
            mode,
            config,
            lambda layer: layer is not self.head and is_selected(layer, filters),
            **kwargs,
        )

    def get_quantization_layer_structure(self, mode: str) -> dict[str, list] | None:
        """Calls `get_quantization_layer_structure` of the backbone."""
        return self.backbone.get_quantization_layer_structure(mode)


def _is_sparse(loss: Any) -> bool:
    """Returns whether a loss takes class numbers."""
    if isinstance(loss, str):
        return loss == "sparse_categorical_crossentropy"
    return isinstance(loss, keras.losses.SparseCategoricalCrossentropy)
