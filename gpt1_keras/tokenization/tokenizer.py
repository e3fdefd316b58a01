"""GPT1Tokenizer: byte-pair encoding as a KerasHub tokenizer."""

from __future__ import annotations

import hashlib
import json
import operator
import os
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import keras_hub

from gpt1_keras.models.gpt1_backbone import GPT1Backbone
from gpt1_keras.preset_files import FromHandle
from gpt1_keras.tokenization.backend import batch_of_one, is_single, text_backend
from gpt1_keras.tokenization.learning import learn_merges
from gpt1_keras.tokenization.normalization import NORMALIZATIONS, find_normalizer
from gpt1_keras.tokenization.vocabulary import END_OF_WORD, UNKNOWN, Vocabulary
from gpt1_keras.transformers_writers import write_for_transformers
from gpt1_keras.upstream import (
    add_special_token,
    in_safe_mode,
    to_grain_types,
    update_special_token_ids,
)

VOCABULARY_FILE = "vocabulary.json"
MERGES_FILE = "merges.txt"
SPECIAL_TOKENS = ("<start>", "<delimiter>", "<extract>")


@keras.saving.register_keras_serializable(package="gpt1_keras")
class GPT1Tokenizer(FromHandle, keras_hub.tokenizers.Tokenizer):
    """Turns strings into the ids of GPT-1's byte-pair encoding.

    It consists of core TensorFlow ops, so the ids are equal in eager mode, in `tf.data` and in a
    SavedModel. The ids after the vocabulary's are those of the three special tokens of the paper's
    input transformations (section 3.3): `<start>`, `<delimiter>` and `<extract>`. No text can
    contain these tokens.

    Args:
        vocabulary: path of the original format's JSON file, or a mapping from token to id.
        merges: path of the original format's merges file, or list of `"left right"` strings.
            Without vocabulary and merges, the tokenizer cannot encode before `load_assets`.
        normalization: how text becomes words: `"bert"`, as in Hugging Face's tokenizer, or
            `"original"`, as when the published weights were trained (docs/tokenization.md). Presets
            and exports store this name.
        **kwargs: further arguments of `keras_hub.tokenizers.Tokenizer`.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: the vocabulary does not fit the merges, or the normalization is unknown; or
            Keras loads the tokenizer in safe mode, and it names a file outside what is loaded.

    Example:
    ```python
    tokenizer = gpt1_keras.GPT1Tokenizer("encoder_bpe_40000.json", "vocab_40000.bpe")
    tokenizer(["Some text", ""])  # tf.RaggedTensor [[803, 4830], []]
    tokenizer.detokenize([803, 4830])  # "some text"
    ```
    """

    backbone_cls = GPT1Backbone

    def __init__(
        self,
        vocabulary: str | os.PathLike[str] | Mapping[str, int] | None = None,
        merges: str | os.PathLike[str] | Iterable[str] | None = None,
        normalization: str = "bert",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        # Keras gives a float here: its dtype policy for layers, which does not concern ids.
        if self.compute_dtype != "int32" and "float" not in self.compute_dtype:
            raise ValueError(f"Ids are int32. Received: dtype={self.compute_dtype!r}.")
        for path in (vocabulary, merges):
            if isinstance(path, (str, os.PathLike)) and in_safe_mode():
                raise ValueError(
                    "A saved tokenizer's vocabulary is in its own archive or folder, and this one "
                    f"asks for the file {os.fspath(path)!r}. If you trust its maker, load it with "
                    "safe_mode=False."
                )
        if (vocabulary is None) != (merges is None):
            received = "merges" if vocabulary is None else "vocabulary"
            raise ValueError(
                "A tokenizer needs both `vocabulary` and `merges`, or neither. Received only "
                f"`{received}`."
            )
        find_normalizer(normalization)
        self.normalization = normalization
        self.file_assets = [VOCABULARY_FILE, MERGES_FILE]
        self.pad_token_id = 0  # any id: padding is masked
        self._vocabulary: Vocabulary | None = None
        self._codec: Any = None
        self._tokens: Mapping[int, str] = types.MappingProxyType({})
        self._ids: Mapping[str, int] = types.MappingProxyType({})
        self._saved_fingerprint: str | None = None
        self.built = True
        names = ("start_token", "delimiter_token", "extract_token")
        for token, name in zip(SPECIAL_TOKENS, names, strict=True):
            add_special_token(self, token, name)
        if vocabulary is not None and merges is not None:
            self.set_vocabulary_and_merges(vocabulary, merges)

    @classmethod
    def learn(
        cls,
        texts: Iterable[str],
        num_merges: int = 40000,
        min_frequency: int = 2,
        normalization: str = "bert",
        **kwargs: Any,
    ) -> GPT1Tokenizer:
        """Learns a vocabulary from text, with Hugging Face's `tokenizers`.

        Args:
            texts: any number of strings.
            num_merges: the most merges to learn. The paper's vocabulary has 40,000 merges.
            min_frequency: how often a pair must occur to be merged.
            normalization: see the class.
            **kwargs: further arguments of the class.

        Raises:
            ValueError: the normalization is unknown, or the texts hold no word.
        """
        vocabulary, merges = learn_merges(texts, num_merges, min_frequency, normalization)
        return cls(vocabulary, merges, normalization=normalization, **kwargs)

    def set_vocabulary_and_merges(
        self,
        vocabulary: str | os.PathLike[str] | Mapping[str, int],
        merges: str | os.PathLike[str] | Iterable[str],
    ) -> None:
        """Replaces the vocabulary; see the class for the arguments and errors."""
        self._vocabulary = Vocabulary(vocabulary, merges)
        specials = [self.start_token, self.delimiter_token, self.extract_token]
        if not self._vocabulary.token_to_id.keys().isdisjoint(specials):
            raise ValueError(f"The vocabulary must not hold the special tokens {specials}.")
        # Views of dicts: of a list or a dict, Keras would track each of the thousands of items.
        tokens = dict(enumerate(self._vocabulary.tokens + specials))
        self._tokens = types.MappingProxyType(tokens)
        self._ids = types.MappingProxyType({token: id for id, token in tokens.items()})
        token_texts = [token.replace(END_OF_WORD, " ") for token in self._vocabulary.tokens]
        token_texts += [f"{token} " for token in specials]
        self._codec = text_backend().Codec(self._vocabulary, token_texts, self.normalization)
        update_special_token_ids(self)

    def get_vocabulary(self) -> list[str]:
        """Returns all tokens in the order of their ids, special tokens last."""
        self._check_vocabulary()
        return list(self._tokens.values())

    def vocabulary_size(self) -> int:
        """Returns the number of ids, special tokens included."""
        self._check_vocabulary()
        return len(self._tokens)

    @property
    def line_end_id(self) -> int | None:
        """The id of a line's end; None if the normalization drops line ends."""
        line_end = find_normalizer(self.normalization).line_end
        return None if line_end is None else self.token_to_id(line_end + END_OF_WORD)

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens and merges, without the special tokens."""
        return self._check_vocabulary()

    @property
    def fingerprint(self) -> str:
        """SHA-256 of all that the ids depend on: vocabulary, merges and normalization."""
        return self._fingerprint_with(self.normalization)

    def id_to_token(self, id: int) -> str:
        """Returns the token of an id. Raises ValueError if the id is outside the vocabulary."""
        if not 0 <= id < self.vocabulary_size():
            raise ValueError(f"`id` must be in [0, {self.vocabulary_size()}). Received: {id}")
        return self._tokens[operator.index(id)]

    def token_to_id(self, token: str) -> int:
        """Returns the id of a token, or that of `<unk>` for a token outside the vocabulary."""
        self._check_vocabulary()
        return self._ids.get(token, self._ids[UNKNOWN])

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """Encodes strings; see `tokenize`. In a Grain pipeline, returns an array or lists."""
        # The base class would turn ragged tensors into lists in eager mode.
        return to_grain_types(self.tokenize(inputs))

    def tokenize(self, inputs: Any) -> Any:
        """Encodes strings.

        Args:
            inputs: a string, or a list, tuple, array, tensor or pandas column of strings, of any
                shape. UTF-8; `bert` drops invalid bytes, and `original` reads them as U+FFFD.

        Returns:
            int32: `[length]` for one string; otherwise a `tf.RaggedTensor` of the inputs' shape
            plus a ragged dimension. Without TensorFlow, an array, and otherwise nested lists.

        Raises:
            ValueError: the inputs are not strings.
            ImportError: the normalization is `original`, and TensorFlow is not installed.
        """
        return self._check_codec().encode(inputs)

    def tokenize_with_offsets(self, inputs: Any) -> tuple[Any, Any, Any]:
        """Encodes strings, and says which bytes of them each token came from.

        A token's range is the smallest range of bytes, in the UTF-8 of the string as it was given,
        that the token's characters came from. What the normalization drops (control characters,
        combining marks, invalid bytes) is in a token's range only if it is between characters of
        the token. Several code points may become one character, such as `&eacute;`, which becomes
        `é`; its range is then that of all of them. One code point may become several characters,
        such as a ligature; each then has its range. The range of a line end between two words is
        that of the first line end there.

        Args:
            inputs: as for `tokenize`.

        Returns:
            `(ids, starts, ends)`, as `tokenize_with_offsets` of TensorFlow Text: what `tokenize`
            returns; and int64 of the same shape twice, each token's first byte, and the byte after
            its last. Without TensorFlow, arrays for one string, and otherwise nested lists.

        Raises:
            ValueError: the inputs are not strings.
            ImportError: as for `tokenize`.

        Example:
        ```python
        tokenizer = gpt1_keras.GPT1Tokenizer.from_preset("gpt1_tiny_books")
        ids, starts, ends = tokenizer.tokenize_with_offsets("Naïve text")
        print(starts.numpy(), ends.numpy())  # in UTF-8, `ï` is two bytes
        ```
        """
        return self._check_codec().encode_with_offsets(inputs)

    def tokenize_each(self, batches: Sequence[Any]) -> list[Any]:
        """Encodes batches of strings in one call, because each call has a fixed cost.

        Batches are string `[batch]`, or choices, `[batch, None]`. Returns a list of int32 tensors
        with one more, ragged dimension.
        """
        return self._check_codec().encode_each(batches)

    def detokenize(self, inputs: Any) -> Any:
        """Decodes ids to normalized words, separated by spaces.

        Args:
            inputs: int tensor, ragged tensor, array or list, `[length]` or `[batch, length]`; or
                one id. In a dense `[batch, length]`, padding ids at the end of a row are dropped.

        Returns:
            A str, or a list of str; in a graph, a string tensor.

        Raises:
            ValueError, tf.errors.InvalidArgumentError: an id is outside the vocabulary.
        """
        if isinstance(inputs, int) or is_single(inputs):
            inputs = batch_of_one(inputs)
        return self._check_codec().decode(inputs, self.pad_token_id)

    def save_files(
        self, vocabulary_path: str | os.PathLike[str], merges_path: str | os.PathLike[str]
    ) -> None:
        """Writes the two files of the original format, without the special tokens."""
        self._check_vocabulary().save(vocabulary_path, merges_path)

    def export_to_transformers(self, path: str | os.PathLike[str]) -> None:
        """Writes an `OpenAIGPTTokenizer`; see `gpt1_keras.convert.save_hugging_face`."""
        write_for_transformers(self, path)

    def save_assets(self, dir_path: str | os.PathLike[str]) -> None:
        """Writes the vocabulary and the merges to a directory, as Keras and presets do."""
        self.save_files(
            os.path.join(dir_path, VOCABULARY_FILE), os.path.join(dir_path, MERGES_FILE)
        )

    def load_assets(self, dir_path: str | os.PathLike[str]) -> None:
        """Reads what `save_assets` wrote.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: the tokenizer comes from a saved configuration, and was saved with other
                files or with another normalization.
        """
        self.set_vocabulary_and_merges(
            os.path.join(dir_path, VOCABULARY_FILE), os.path.join(dir_path, MERGES_FILE)
        )
        expected = self._saved_fingerprint
        if expected in (None, self.fingerprint):
            return
        for other in NORMALIZATIONS:
            if expected == self._fingerprint_with(other):
                raise ValueError(
                    f"The tokenizer in {dir_path} was saved with normalization={other!r}, and ids "
                    f"of another mean nothing to its model. Received: {self.normalization!r}."
                )
        raise ValueError(
            f"The vocabulary in {dir_path} is not the one that the tokenizer was saved with: its "
            f"fingerprint is {self.fingerprint}; expected {expected}."
        )

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments for Keras, and the vocabulary's fingerprint."""
        config = {**super().get_config(), "normalization": self.normalization}
        # A model's weights mean nothing with other ids, so a saved tokenizer checks its own.
        saved = self.fingerprint if self._vocabulary else self._saved_fingerprint
        return {**config, "fingerprint": saved} if saved else config

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> GPT1Tokenizer:
        """Makes a tokenizer, without a vocabulary, from what `get_config` returned."""
        config = dict(config)
        saved = config.pop("fingerprint", None)
        tokenizer = super().from_config(config)
        tokenizer._saved_fingerprint = saved
        return tokenizer

    def _fingerprint_with(self, normalization: str) -> str:
        content = [self.get_vocabulary(), self.vocabulary.merges_text(), normalization]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def _check_codec(self) -> Any:
        """Returns the text backend's codec. Raises ValueError if there is no vocabulary yet."""
        self._check_vocabulary()
        return self._codec

    def _check_vocabulary(self) -> Vocabulary:
        """Returns the vocabulary. Raises ValueError if there is none yet."""
        if self._vocabulary is None:
            raise ValueError(
                "The tokenizer has no vocabulary yet: give it `vocabulary` and `merges`, or call "
                "`load_assets`."
            )
        return self._vocabulary
