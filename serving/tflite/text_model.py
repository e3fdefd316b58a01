"""TextModel: runs a .tflite file on strings."""

import os
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.special

from gpt1_keras.answers import Answer, Engine, Outputs, answer
from gpt1_keras.examples import Examples
from serving.export_names import TEXT
from serving.tflite_metadata import read_metadata

_NEXT_TOKENS = 10  # of a language model's answer
_FLAGS = ("is_sure", "truncated", "blank")


class TextModel:
    """A .tflite file in LiteRT: strings in, names and probabilities out.

    ```python
    model = TextModel("sst2.tflite")
    model("a joy to watch")["label"]  # "positive"
    ```

    Sizes, fields and names come from the file's metadata.

    Args:
        path: a file that `convert` wrote.
        num_threads: the threads that one call uses.

    Attributes:
        metadata: what `read_metadata` returns.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: another program wrote it, or it is damaged.
        ImportError: LiteRT is not installed.
    """

    def __init__(self, path: str | os.PathLike[str], num_threads: int = 1) -> None:
        self.metadata = read_metadata(path)
        try:
            from ai_edge_litert.interpreter import Interpreter
        except ImportError as error:
            raise ImportError(
                "A .tflite file runs in LiteRT: pip install 'gpt1-keras[device]'."
            ) from error
        try:
            interpreter = Interpreter(os.fspath(path), num_threads=num_threads)
            self._run = interpreter.get_signature_runner(TEXT)
            self._outputs = list(self._run.get_output_details())
            self._lock = threading.Lock()  # as only one thread may run it at a time
        except (ValueError, RuntimeError) as error:
            raise ValueError(f"{path} is damaged: {str(error).strip()}") from error

    def __call__(self, *texts: str | Sequence[str]) -> Answer:
        """Answers one example.

        Args:
            *texts: a string for each of `metadata["fields"]`, in their order. Of multiple choice,
                the last one is a sequence of strings, at most `metadata["num_choices"]`.

        Returns:
            A dict as `gpt1_keras`'s `Task.classify` returns it: `label`, `score` and `scores`, and
            `is_sure` if the model has a threshold; of a score range, `score` alone. A language
            model's are of the ten tokens that are the likeliest to come next. Beside them,
            `num_tokens`, how many tokens the model has read; `truncated`, whether it has not
            read all; and `blank`, whether a text has no token, unless the file is of an earlier
            version or of a language model.

        Raises:
            ValueError: there are more or fewer texts than fields, or a text is no string; there are
                no choices, too many, or the last is empty; or a language model's text has no token.
        """
        fields = list(self.metadata["max_bytes"])
        if len(texts) != len(fields):
            raise ValueError(f"Expected a text for each of {fields}. Received: {len(texts)}.")
        if "logits" in self._outputs:
            return self._next_tokens(self._run_one(texts))
        examples = Examples({field: [text] for field, text in zip(fields, texts)})
        [found] = answer(self.engine, examples)
        return found

    @property
    def engine(self) -> Engine:
        """The same as an engine of answers, which several threads may use.

        Raises:
            ValueError: it is of a language model.
        """
        outputs = [*self._outputs, "label"]
        outputs += [] if self.metadata["num_choices"] is None else ["choice"]
        fields = list(self.metadata["max_bytes"])
        return Engine(fields, self.metadata["class_names"], outputs, self._run_each)

    def _run_each(self, examples: Examples) -> Outputs:
        """Returns the outputs of examples, one after the other, by the names of an export's."""
        rows = zip(*(examples.texts[field] for field in self.metadata["max_bytes"]))
        found = [self._named(texts, self._run_one(texts)) for texts in rows]
        return {name: [each[name] for each in found] for name in found[0]}

    def _named(self, texts: Sequence[Any], outputs: dict[str, np.ndarray]) -> dict[str, Any]:
        """Returns the outputs of an example as plain values, with the label that they lack."""
        named: dict[str, Any] = {"num_tokens": int(outputs["num_tokens"][0])}
        named |= {name: bool(outputs[name][0]) for name in _FLAGS if name in outputs}
        if "score" in outputs:
            return {"score": float(outputs["score"][0]), **named}
        best, named["scores"] = int(np.argmax(outputs["scores"])), outputs["scores"].tolist()
        if self.metadata["num_choices"] is not None:
            return {"label": texts[-1][best], "choice": best, **named}
        return {"label": self.metadata["class_names"][best], **named}

    def _run_one(self, texts: Sequence[Any]) -> dict[str, np.ndarray]:
        sizes, most = self.metadata["max_bytes"], self.metadata["num_choices"]
        *fields, last = sizes
        inputs = {field: _to_input(text, sizes[field]) for field, text in zip(fields, texts)}
        if most is None:
            inputs[last] = _to_input(texts[-1], sizes[last])
        else:
            choices = self._check_choices(texts[-1])
            padded = [*choices, *[""] * (most - len(choices))]
            inputs[last] = np.stack([_to_input(each, sizes[last]) for each in padded])
        with self._lock:
            return self._run(**inputs)

    def _check_choices(self, choices: Any) -> Sequence[str]:
        most = self.metadata["num_choices"]
        # After the last text, empty choices would count as absent.
        if isinstance(choices, str) or not 1 <= len(choices) <= most or choices[-1] == "":
            raise ValueError(
                f"Expected 1 to {most} choices, the last of them not empty. Received: {choices!r}."
            )
        return choices

    def _next_tokens(self, outputs: dict[str, np.ndarray]) -> Answer:
        if not outputs["num_tokens"][0]:
            raise ValueError("A text goes on from at least one token. Received: none.")
        probabilities = scipy.special.softmax(outputs["logits"])
        best = np.argsort(-probabilities)[:_NEXT_TOKENS]
        vocabulary = self.metadata["vocabulary"]
        scores = {vocabulary[index]: float(probabilities[index]) for index in best}
        label, score = next(iter(scores.items()))
        told = {"num_tokens": int(outputs["num_tokens"][0])}
        told |= {name: bool(outputs[name][0]) for name in _FLAGS if name in outputs}
        return {"label": label, "score": score, "scores": scores, **told}


def _to_input(text: Any, size: int) -> np.ndarray:
    """Returns a text's UTF-8, cut or followed by zeros, int32 `[size]`."""
    if not isinstance(text, str):
        raise ValueError(f"Expected a string as a text. Received: {text!r}.")
    encoded = text.encode()[:size].ljust(size, b"\0")
    return np.frombuffer(encoded, np.uint8).astype(np.int32)
