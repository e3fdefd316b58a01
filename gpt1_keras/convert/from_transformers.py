"""Reads the checkpoints of `transformers`, also through KerasHub's `from_preset`."""

import contextlib
import functools
import os
import pathlib
import re
from typing import Any

import numpy as np
import safetensors

from gpt1_keras.convert.last_token_preprocessor import LastTokenPreprocessor
from gpt1_keras.convert.published_weights import (
    NUM_SPECIAL_TOKENS,
    assign,
    assign_block,
    assign_embeddings,
    take_normalization,
)
from gpt1_keras.files import read_json
from gpt1_keras.models.gpt1_backbone import GPT1Backbone
from gpt1_keras.models.layers import LAYER_NORM_EPSILON
from gpt1_keras.preset_files import TRANSFORMERS_WEIGHTS, local_preset, shards
from gpt1_keras.tasks.causal_lm import GPT1CausalLM
from gpt1_keras.tasks.task import Task
from gpt1_keras.tasks.text_classifier import GPT1TextClassifier
from gpt1_keras.tokenization.tokenizer import SPECIAL_TOKENS, GPT1Tokenizer
from gpt1_keras.upstream import PresetLoader, transformers_loaders

CONFIG, VOCABULARY, MERGES, TOKENIZER = (
    "config.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.json",
)
WEIGHTS, _INDEX = TRANSFORMERS_WEIGHTS
MODEL_TYPE = "openai-gpt"
CLASSIFIER = "OpenAIGPTForSequenceClassification"
# A block's arrays, in the order of `block_variables`.
BLOCK_ARRAYS = [
    f"{layer}.{array}"
    for layer in ("attn.c_attn", "attn.c_proj", "ln_1", "mlp.c_fc", "mlp.c_proj", "ln_2")
    for array in ("weight", "bias")
]
HEAD_ARRAY = "score.weight"
# An attribute of backbones, which `save_hugging_face` adds to config.json.
UNTRAINED = "num_untrained_tokens"
_TOKENS, _POSITIONS, _TIED = "tokens_embed.weight", "positions_embed.weight", "lm_head.weight"
_BLOCK_ARRAY = re.compile(r"h\.(\d{1,9})\.(.+)")
_CAUSAL_MASK = "attn.bias"  # older versions of transformers saved it
_HEADS = ("score.", "multiple_choice_head.")


class Config:
    """The content of config.json; `path` is for messages.

    Raises ValueError if it says too little, a size is not a whole number of at least 1, or it is of
    another architecture than GPT-1's.
    """

    def __init__(self, content: Any, path: str | os.PathLike[str]) -> None:
        sizes = {"n_layer", "n_head", "n_embd", "n_positions"}
        if not isinstance(content, dict) or not sizes <= set(content):
            raise ValueError(f"{path} must be an object with {', '.join(sorted(sizes))}.")
        for name in sorted(sizes):
            if type(content[name]) is not int or content[name] < 1:
                raise ValueError(
                    f"{path} must have a whole number of at least 1 as its {name}. Received: "
                    f"{content[name]!r}."
                )
        # With other values of these, the architecture is not the paper's.
        for name, expected in (("afn", "gelu"), ("layer_norm_epsilon", LAYER_NORM_EPSILON)):
            if content.get(name, expected) != expected:
                raise ValueError(f"{path} has {name}={content[name]!r}; GPT-1 has {expected!r}.")
        self._content, self._path = content, path
        architectures = content.get("architectures") or ["OpenAIGPTLMHeadModel"]
        self.architecture: str = architectures[0]
        self.pad_token_id: int | None = content.get("pad_token_id")
        self.max_sequence_length: int = content["n_positions"]

    @property
    def is_classifier(self) -> bool:
        """Whether there is a head for classes."""
        return self.architecture == CLASSIFIER

    def backbone_arguments(self) -> dict[str, Any]:
        """The arguments of `GPT1Backbone`, without the vocabulary's size."""
        return {
            "num_layers": self._content["n_layer"],
            "num_heads": self._content["n_head"],
            "hidden_dim": self._content["n_embd"],
            "intermediate_dim": 4 * self._content["n_embd"],
            "max_sequence_length": self.max_sequence_length,
            "dropout": self._content.get("resid_pdrop", 0.1),
            UNTRAINED: self._content.get(UNTRAINED, 0),
        }

    def class_names(self) -> list[str]:
        """Returns the classes. Raises ValueError if the head does not choose one of several."""
        # transformers does not write its defaults.
        names = self._content.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
        kind = self._content.get("problem_type") or "single_label_classification"
        if kind != "single_label_classification" or len(names) < 2:
            raise ValueError(
                f"{self._path} describes a head for {kind} with {len(names)} labels; expected one "
                "for single_label_classification with at least 2. For a fresh head on its "
                "backbone, give `num_classes`, `class_names` or `score_range`."
            )
        if set(names) != {str(number) for number in range(len(names))}:
            raise ValueError(f"{self._path} must number its labels from 0. Received: {names}.")
        return [names[str(number)] for number in range(len(names))]


class Checkpoint(contextlib.ExitStack):
    """The arrays of model.safetensors, or of the files of its index; a context manager.

    Args:
        folder: its path.

    Raises:
        FileNotFoundError: there are no such files. Pickled weights are not read.
        ValueError: a file is damaged.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__()
        self._folder = folder
        self._arrays: dict[str, Any] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        names = [WEIGHTS]
        if not (folder / WEIGHTS).is_file() and (folder / _INDEX).is_file():
            names = shards(folder / _INDEX)
        require_weights(folder, names)
        for name in names:
            try:
                file = self.enter_context(safetensors.safe_open(folder / name, framework="numpy"))
            except safetensors.SafetensorError as error:
                raise ValueError(f"{folder / name} is damaged: {error}.") from None
            # The published file has no prefix; later versions of transformers write it.
            for key in file.keys():
                name = key.removeprefix("transformer.")
                self._arrays[name] = functools.partial(file.get_tensor, key)
                self._shapes[name] = tuple(file.get_slice(key).get_shape())

    def __getitem__(self, name: str) -> np.ndarray:
        """Returns an array by its name without prefix, as float32. ValueError if there is none."""
        self._require(name)
        return self._arrays[name]().astype(np.float32)

    def check_fits(self, num_layers: int, hidden_dim: int, max_sequence_length: int) -> None:
        """Checks that the arrays are those of a backbone, before one of these sizes is made.

        Raises:
            ValueError: a table has another shape, there are other blocks than those of the
                backbone, or an array that GPT-1 does not have.
        """
        path = self._folder / WEIGHTS
        for name, shape in (
            (_TOKENS, (None, hidden_dim)),
            (_POSITIONS, (max_sequence_length, hidden_dim)),
        ):
            self._require(name)
            found = self._shapes[name]
            if len(found) != 2 or any(size not in (None, own) for size, own in zip(shape, found)):
                raise ValueError(f"{path} has {name} of shape {found}; {CONFIG} describes {shape}.")
        blocks = set()
        for name in self._arrays:
            match = _BLOCK_ARRAY.fullmatch(name)
            if match and match[2] in (*BLOCK_ARRAYS, _CAUSAL_MASK):
                blocks.add(int(match[1]))
            elif name not in (_TOKENS, _POSITIONS, _TIED) and not name.startswith(_HEADS):
                raise ValueError(f"{path} has an array {name}, which GPT-1 does not have.")
        if len(blocks) != num_layers or max(blocks) != num_layers - 1:
            raise ValueError(
                f"{path} has arrays of {len(blocks)} blocks; {CONFIG} describes {num_layers}."
            )
        if _TIED in self._arrays and not np.array_equal(self[_TIED], self[_TOKENS]):
            raise ValueError(
                f"{path} has a {_TIED} of its own. GPT-1's output layer is {_TOKENS} (equation 2)."
            )

    def _require(self, name: str) -> None:
        if name not in self._arrays:
            raise ValueError(f"{self._folder / WEIGHTS} has no array {name}.")


def require_weights(folder: pathlib.Path, names: list[str]) -> None:
    """Raises FileNotFoundError, naming the files of weights that are missing."""
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        pickled = [path.name for path in sorted(folder.glob("*.bin"))]
        reason = f" It has {', '.join(pickled)}, and pickled files are not read, as they can run "
        raise FileNotFoundError(
            f"{folder} has no {', '.join(missing)}."
            + (f"{reason}programs: let transformers write {WEIGHTS}." if pickled else "")
        )


def read_vocabulary(folder: pathlib.Path) -> tuple[dict[str, int] | str, list[str] | str]:
    """Returns what `GPT1Tokenizer` takes as vocabulary and merges: paths or content.

    The content is that of tokenizer.json, where neither vocab.json nor merges.txt exists:
    transformers 5 leaves them out.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: tokenizer.json is damaged, or not of a byte-pair encoding.
    """
    paths = [folder / VOCABULARY, folder / MERGES]
    missing = [path.name for path in paths if not path.is_file()]
    if not missing:
        return os.fspath(paths[0]), os.fspath(paths[1])
    path = folder / TOKENIZER
    if len(missing) == 1 or not path.is_file():
        raise FileNotFoundError(f"{folder} has no {', '.join(missing)}.")
    try:
        model = read_json(path)["model"]
        merges = [each if isinstance(each, str) else " ".join(each) for each in model["merges"]]
        return dict(model["vocab"]), merges
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} does not describe a byte-pair encoding: {error!r}.") from None


def count_tokens(folder: pathlib.Path) -> int:
    """Returns the size of the vocabulary in the files; raises what `read_vocabulary` raises."""
    vocabulary, _ = read_vocabulary(folder)
    return len(read_json(folder / VOCABULARY) if isinstance(vocabulary, str) else vocabulary)


def added_tokens(folder: pathlib.Path) -> dict[int, str]:
    """Returns the tokens that a tokenizer's files name beside the vocabulary, by id.

    Raises:
        ValueError: a file is damaged.
    """
    names: dict[int, str] = {}
    try:
        # In the order of transformers' versions: each wrote another file.
        if (path := folder / "added_tokens.json").is_file():
            names |= {int(id): token for token, id in read_json(path).items()}
        if (path := folder / "tokenizer_config.json").is_file():
            added = read_json(path).get("added_tokens_decoder") or {}
            names |= {int(id): token["content"] for id, token in added.items()}
        if (path := folder / TOKENIZER).is_file():
            added = read_json(path).get("added_tokens") or []
            names |= {int(token["id"]): token["content"] for token in added}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} does not describe added tokens: {error!r}.") from None
    return names


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
            raise ValueError(
                f"The tokenizer has a normalization. Received also: {normalization!r}."
            )
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


def load_hugging_face(
    directory: str | os.PathLike[str], normalization: str | None = None
) -> GPT1CausalLM:
    """Loads a checkpoint of `transformers`' OpenAIGPT models, as `GPT1CausalLM.from_preset` does.

    Args:
        directory: a folder with `config.json` and `model.safetensors`, and with `vocab.json` and
            `merges.txt`, or `tokenizer.json` instead of these two.
        normalization: how text becomes words: `"bert"`, as in `transformers`, by default; or
            `"original"`, as OpenAI's weights were trained.

    Returns:
        The language model, with its preprocessor.

    Raises:
        FileNotFoundError: a file is missing. Pickled weights (`pytorch_model.bin`) are not read.
        ValueError: a file is damaged, or the files do not fit each other.
    """
    path = pathlib.Path(directory, CONFIG)
    if not path.is_file():
        raise FileNotFoundError(f"{directory} has no {CONFIG}.")
    loader = OpenAIGPTLoader(os.path.abspath(directory), read_json(path))
    return loader.load_task(GPT1CausalLM, True, True, normalization=normalization)


class _LoaderOfKerasHub(transformers_loaders.TransformersPresetLoader):  # type: ignore[misc]
    """KerasHub's loader of all models of `transformers`: it has a fixed list, and loads no head."""

    def __new__(cls, preset: str, config: dict[str, Any]) -> Any:
        if config["model_type"] == MODEL_TYPE:
            return OpenAIGPTLoader(preset, config)
        return super().__new__(cls)


transformers_loaders.TransformersPresetLoader = _LoaderOfKerasHub
