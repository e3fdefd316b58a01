"""OpenAIGPTLoader: KerasHub's `from_preset`, on checkpoints of `transformers`."""

import pathlib
from typing import Any

from gpt1_keras.convert.checkpoint import (
    BLOCK_ARRAYS,
    CONFIG,
    HEAD_ARRAY,
    MODEL_TYPE,
    Checkpoint,
    Config,
    added_tokens,
    count_tokens,
    read_vocabulary,
)
from gpt1_keras.convert.last_token_preprocessor import LastTokenPreprocessor
from gpt1_keras.convert.normalization_taken import take_normalization
from gpt1_keras.convert.weights import (
    NUM_SPECIAL_TOKENS,
    assign,
    assign_block,
    assign_embeddings,
)
from gpt1_keras.handles import local_preset
from gpt1_keras.models.gpt1_backbone import GPT1Backbone
from gpt1_keras.tasks.causal_lm import GPT1CausalLM
from gpt1_keras.tasks.task import Task
from gpt1_keras.tasks.text_classifier import GPT1TextClassifier
from gpt1_keras.tokenization.tokenizer import SPECIAL_TOKENS, GPT1Tokenizer
from gpt1_keras.upstream import PresetLoader, register_transformers_loader


class OpenAIGPTLoader(PresetLoader):
    """Loads tasks, backbones, tokenizers and preprocessors, as KerasHub's loaders do.

    It adds the three special tokens, which the vocabulary lacks, with fresh embeddings, and so
    without a part in the language model. It reads the head of an
    `OpenAIGPTForSequenceClassification` with its class names. `config` is the content of
    config.json; see `Config` for the errors.
    """

    def __init__(self, preset: str, config: dict[str, Any]) -> None:
        super().__init__(preset, config)
        self._config = Config(config, f"{preset}/{CONFIG}")

    def check_backbone_class(self) -> type[GPT1Backbone]:
        return GPT1Backbone

    def task_class(self) -> type[Task]:
        """Returns the checkpoint's class of task. Raises ValueError if there is none for it."""
        if self._config.is_classifier:
            return GPT1TextClassifier
        if self._config.architecture in ("OpenAIGPTLMHeadModel", "OpenAIGPTModel"):
            return GPT1CausalLM
        raise ValueError(
            f"{self.preset} holds an {self._config.architecture}, for which there is no task. "
            "Load it by a task's own `from_preset`, with a fresh head."
        )

    def load_backbone(
        self, cls: type[GPT1Backbone], load_weights: bool, **kwargs: Any
    ) -> GPT1Backbone:
        folder = self._folder(load_weights)
        arguments = self._config.backbone_arguments()
        arguments["vocabulary_size"] = count_tokens(folder) + NUM_SPECIAL_TOKENS
        arguments |= kwargs
        if not load_weights:
            return cls(**arguments)
        with Checkpoint(folder) as arrays:
            arrays.check_fits(
                *(arguments["num_layers"], arguments["hidden_dim"]),
                arguments["max_sequence_length"],
            )
            backbone = cls(**arguments)
            tokens = arrays["tokens_embed.weight"]
            if len(tokens) == backbone.vocabulary_size:
                self._check_added_tokens(folder, len(tokens))
            positions = arrays["positions_embed.weight"]
            assign_embeddings(backbone, tokens, positions, self._config.pad_token_id)
            for i, block in enumerate(backbone.blocks):
                assign_block(block, [arrays[f"h.{i}.{name}"] for name in BLOCK_ARRAYS])
        return backbone

    def load_tokenizer(
        self,
        cls: type[GPT1Tokenizer],
        config_file: str | None = None,
        normalization: str | None = None,
        **kwargs: Any,
    ) -> GPT1Tokenizer:
        vocabulary, merges = read_vocabulary(self._folder())
        if self._config.is_classifier:  # which was fine-tuned in transformers
            normalization = normalization or "bert"
        normalization = take_normalization(normalization, "bert")
        return cls(vocabulary, merges, normalization=normalization, **kwargs)

    def load_preprocessor(
        self,
        cls: Any,
        config_file: str | None = None,
        normalization: str | None = None,
        **kwargs: Any,
    ) -> Any:
        if "tokenizer" not in kwargs:
            kwargs["tokenizer"] = self.load_tokenizer(
                cls.tokenizer_cls, normalization=normalization
            )
        elif normalization is not None:
            raise ValueError(f"The tokenizer has a normalization. Received: {normalization!r} too.")
        if self._config.is_classifier and issubclass(LastTokenPreprocessor, cls):
            cls = LastTokenPreprocessor
            kwargs.setdefault("pad_token_id", self._pad_token_id(kwargs["tokenizer"]))
        kwargs.setdefault("sequence_length", self._config.max_sequence_length)
        return cls(**kwargs)

    def load_task(
        self,
        cls: Any,
        load_weights: bool,
        load_task_weights: bool,
        normalization: str | None = None,
        **kwargs: Any,
    ) -> Any:
        if "preprocessor" not in kwargs:
            kwargs["preprocessor"] = self.load_preprocessor(
                cls.preprocessor_cls, normalization=normalization
            )
        else:
            self._check_preprocessor(kwargs["preprocessor"], normalization)
        names = getattr(cls, "label_arguments", ())
        is_fresh = not load_task_weights or any(kwargs.get(name) is not None for name in names)
        has_head = self._config.is_classifier and issubclass(cls, GPT1TextClassifier)
        if is_fresh or not has_head:
            return super().load_task(cls, load_weights, load_task_weights, **kwargs)
        kwargs["class_names"] = self._config.class_names()
        task = super().load_task(cls, load_weights, load_task_weights, **kwargs)
        if load_weights:
            with Checkpoint(self._folder()) as arrays:
                assign(task.head.kernel, arrays[HEAD_ARRAY].T)  # its bias is 0
        return task

    def _folder(self, weights: bool = False) -> pathlib.Path:
        return pathlib.Path(local_preset(self.preset, weights))

    def _check_added_tokens(self, folder: pathlib.Path, rows: int) -> None:
        """Raises ValueError if the table's last rows are of other tokens than the special ones."""
        names = added_tokens(folder)
        found = [names.get(id) for id in range(rows - NUM_SPECIAL_TOKENS, rows)]
        if found != list(SPECIAL_TOKENS):
            raise ValueError(
                f"{self.preset} was trained with {NUM_SPECIAL_TOKENS} tokens that its tokenizer "
                f"adds to the vocabulary: {found}. Expected {list(SPECIAL_TOKENS)}, which the "
                "texts of this package's tasks are framed by, or none."
            )

    def _pad_token_id(self, tokenizer: GPT1Tokenizer) -> int | None:
        """Returns the checkpoint's padding id, or None if no token has it."""
        id = self._config.pad_token_id
        return id if id is not None and 0 <= id < tokenizer.vocabulary_size() else None

    def _check_preprocessor(self, preprocessor: Any, normalization: str | None) -> None:
        """Raises ValueError if a user's preprocessor has another vocabulary than the weights."""
        if normalization is not None:
            raise ValueError(
                "`normalization` is for the checkpoint's own preprocessor. Received: "
                f"normalization={normalization!r} and preprocessor={preprocessor}."
            )
        tokenizer = getattr(preprocessor, "tokenizer", None)
        if tokenizer is None:
            return
        expected = self.load_tokenizer(GPT1Tokenizer, normalization=tokenizer.normalization)
        if tokenizer.fingerprint != expected.fingerprint:
            raise ValueError(
                f"{self.preset} was trained with another vocabulary than the preprocessor's, whose "
                f"ids mean other tokens. Received: a tokenizer of {tokenizer.vocabulary_size()} "
                f"tokens; expected the {expected.vocabulary_size()} of the checkpoint."
            )


register_transformers_loader(MODEL_TYPE, OpenAIGPTLoader)
