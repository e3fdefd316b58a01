"""Answers as a page for people who decide: one document that needs no network and no other file.

All that comes from the input is escaped, and the page's Content-Security-Policy allows its own
style and script alone, by their hashes: whatever strangers wrote, nothing of it runs.
"""

import collections
import contextlib
import html
import json
import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from string import Template
from typing import Any, NamedTuple

from gpt1_keras.answers import Answer
from gpt1_keras.examples import Examples
from serving.explained_words import Passage, passages, words_of
from serving.server.page import source_expression

MOST_ROWS = 2_000  # which browsers show at once, and a person may read
_MOST_CHARACTERS = 20_000_000  # of all rows, in HTML
_LEVELS = 9  # of colour
_MOST_CLASSES = 200  # to choose from
_MOST_OTHERS = 2  # classes that are named beside the answer
_LEAST_OTHER = 0.05  # their probability
_POLICY = (
    "default-src 'none'; style-src '{style}'; script-src '{script}'; base-uri 'none'; "
    "form-action 'none'"
)
_FOLDER = pathlib.Path(__file__).parent
_EXPLAINED = (
    'Coloured words led to the answer: <mark class="for s6">blue</mark> speaks for it, '
    '<mark class="against s6">orange</mark> against it; the deeper, the more. A word\'s colour '
    "says how the model came to its answer, not whether the answer is right."
)


class _Shown(NamedTuple):
    """A row of the page; texts are HTML."""

    place: str
    texts: str
    labels: list[str] | None  # None for a score, or without an answer
    answer: str
    score: float  # NaN without an answer
    confidence: str
    is_sure: bool | None


class AnswersPage:
    """Collects answers, and makes a page of them.

    Args:
        path: of the page, for messages.
        has_files: whether rows come from several files, whose names are shown.
    """

    def __init__(self, path: pathlib.Path, has_files: bool = False) -> None:
        self._path, self._has_files = path, has_files
        self._rows: list[_Shown] = []
        self._sources: dict[str, None] = {}  # names of files, in order
        self._characters = 0
        self._is_explained = self._is_cut = False

    def add(self, examples: Examples, answers: Sequence[Answer]) -> None:
        """Adds rows. Raises ValueError for more than a page holds."""
        check_rows(self._path, len(self._rows) + len(answers))
        source = pathlib.Path(examples.source).name
        self._sources.setdefault(source)
        for line, texts, answer in zip(examples.indices, examples.rows(), answers, strict=True):
            place = f"{source}, {line}" if self._has_files else str(line)
            row = self._shown(html.escape(place), texts, answer)
            self._characters += len(row.texts) + len(row.answer)
            if self._characters > _MOST_CHARACTERS:
                raise ValueError(
                    f"{self._path.name} would have more than {_MOST_CHARACTERS:,} characters, with "
                    f"{source}, line {line}. Give fewer rows, or write a .xlsx or .jsonl file."
                )
            self._rows.append(row)

    def document(self) -> str:
        """Returns the page."""
        style, script = (
            (_FOLDER / f"answers_page.{suffix}").read_text("utf-8") for suffix in ("css", "js")
        )
        policy = _POLICY.format(style=source_expression(style), script=source_expression(script))
        has_confidence = any(row.confidence for row in self._rows)
        return Template((_FOLDER / "answers_page.html").read_text("utf-8")).substitute(
            policy=html.escape(policy),
            style=style,
            script=script,
            title=html.escape(f"Answers to {', '.join(self._sources) or 'no text'}"),
            summary=self._summary(),
            notes="".join(f"<p>{note}</p>" for note in self._notes(has_confidence)),
            filters=self._filters(),
            headings=_headings(any(row.labels is not None for row in self._rows), has_confidence),
            rows="".join(_row(row, has_confidence) for row in self._rows),
        )

    def _shown(self, place: str, texts: Mapping[str, Any], answer: Answer) -> _Shown:
        found = list(passages(texts, words_of(answer)))
        shown = "".join(_passage(each, len(found) > 1, answer.get("choice")) for each in found)
        if "problem" in answer:
            problem = f'<span class="note">no answer: {html.escape(answer["problem"])}</span>'
            return _Shown(place, shown, None, problem, math.nan, "", None)
        if answer.get("truncated"):
            self._is_cut = True
            shown += '<p class="note">The model has read only a part of this.</p>'
        self._is_explained |= "words" in answer
        if "label" not in answer and "labels" not in answer:
            return _Shown(place, shown, None, _number(answer["score"]), answer["score"], "", None)
        labels = answer.get("labels", [answer.get("label")])
        names = ", ".join(f"<strong>{html.escape(name)}</strong>" for name in labels)
        said = names or '<span class="note">none of the classes</span>'
        scores = answer["scores"]
        if isinstance(scores, Mapping) and "label" in answer:
            said += _others(scores, answer["label"])
        score = answer.get("score")
        if score is None:  # several labels: the least sure of them
            score = min((scores[name] for name in labels), default=max(scores.values()))
        is_sure = answer.get("is_sure")
        confidence = _confidence(score)
        if is_sure is not None:
            confidence += ' <span class="sure">sure</span>' if is_sure else " <em>unsure</em>"
        is_choice = "choice" in answer  # whose texts are no classes
        return _Shown(
            *(place, shown, None if is_choice else labels, said, score, confidence, is_sure)
        )

    def _summary(self) -> str:
        counts = collections.Counter(label for row in self._rows for label in row.labels or ())
        told = [f"{len(self._rows):,} texts"]
        told += [f"{html.escape(name)} {count:,}" for name, count in counts.most_common(10)]
        told += [f"{len(counts) - 10:,} more classes"] if len(counts) > 10 else []
        unsure = sum(row.is_sure is False for row in self._rows)
        told += [f"{unsure:,} unsure"] if unsure else []
        unanswered = sum(math.isnan(row.score) for row in self._rows)
        told += [f"{unanswered:,} without an answer"] if unanswered else []
        return " · ".join(told)

    def _notes(self, has_confidence: bool) -> Iterator[str]:
        """Yields notes that explain the page, as HTML."""
        if self._is_explained:
            is_score = not has_confidence
            yield _EXPLAINED.replace("for it", "for a higher score") if is_score else _EXPLAINED
        if has_confidence:
            yield (
                "The score is how probable the model takes its answer to be. It may be wrong: look "
                "at low scores first, and at texts that matter."
            )
        if any(row.is_sure is not None for row in self._rows):
            yield "“Sure” answers reach the threshold that the model was given."
        if self._is_cut:
            yield "Some texts are longer than the model reads; beneath them, it says so."

    def _filters(self) -> str:
        """Returns the fields that choose rows."""
        counts = collections.Counter(label for row in self._rows for label in row.labels or ())
        filters = ""
        if 1 < len(counts) <= _MOST_CLASSES:
            options = [(json.dumps(name), name, count) for name, count in counts.most_common()]
            filters += _select("class", "Answer", len(self._rows), options)
        sure = collections.Counter(row.is_sure for row in self._rows)
        named = ((True, "true", "sure"), (False, "false", "unsure"))
        options = [(value, name, sure[each]) for each, value, name in named if sure[each]]
        if options:
            filters += _select("sure", "How sure", len(self._rows), options)
        return filters


def check_rows(path: pathlib.Path, rows: int) -> None:
    """Raises ValueError for more rows than a page has."""
    if rows > MOST_ROWS:
        raise ValueError(
            f"{path.name} would have {rows:,} rows; a page has at most {MOST_ROWS:,}. Give fewer "
            "rows, or write a .xlsx, .csv, .jsonl or .parquet file."
        )


@contextlib.contextmanager
def answers_page(path: pathlib.Path, has_files: bool = False) -> Iterator[AnswersPage]:
    """Yields a page to add answers to, and writes it when the block succeeds."""
    page = AnswersPage(path, has_files)
    yield page
    # A file's name may be of any bytes.
    path.write_bytes(page.document().encode("utf-8", "replace"))


def _passage(passage: Passage, is_named: bool, choice: int | None) -> str:
    parts = []
    for text, share, word in passage.pieces:
        # The square root: otherwise, beside one large share the other words would have no colour.
        level = round(_LEVELS * math.sqrt(abs(share)))
        escaped = html.escape(text)
        if word is not None and level:
            side = "for" if share > 0 else "against"
            escaped = f'<mark class="{side} s{level}" title="{word.share:+.3f}">{escaped}</mark>'
        parts.append(escaped)
    name = ""
    if is_named:
        number = f", {passage.choice + 1}" if passage.choice >= 0 else ""
        best = ": the answer" if choice is not None and passage.choice == choice else ""
        name = f"<h3>{html.escape(passage.field)}{number}{best}</h3>"
    # What `dir` isolates cannot turn round what stands beside it.
    return f'{name}<p class="words" dir="auto">{"".join(parts)}</p>'


def _others(scores: Mapping[str, float], label: str) -> str:
    others = sorted(scores.keys() - {label}, key=lambda name: -scores[name])
    named = [
        f"{html.escape(name)} {_percent(scores[name])}"
        for name in others[:_MOST_OTHERS]
        if scores[name] >= _LEAST_OTHER
    ]
    return f'<span class="note next">or {", ".join(named)}</span>' if named else ""


def _confidence(score: float) -> str:
    if not 0.0 <= score <= 1.0:
        return _number(score)
    return f'<meter value="{score:.3f}" aria-hidden="true"></meter> {_percent(score)}'


def _percent(share: float) -> str:
    """Returns a share in whole per cent, without saying 0 or 100 of what is neither."""
    if not 0.0 <= share <= 1.0:
        return _number(share)
    bound = "over&nbsp;99" if 0.995 <= share < 1.0 else "under&nbsp;1" if 0 < share < 0.005 else ""
    return f"{bound or round(100 * share)}&nbsp;%"


def _number(value: float) -> str:
    return f"{value:.4g}"


def _row(row: _Shown, has_confidence: bool) -> str:
    labels = html.escape(json.dumps(row.labels or []))
    sure = "" if row.is_sure is None else f' data-sure="{str(row.is_sure).lower()}"'
    cells = [
        f'<th scope="row">{row.place}</th>',
        f"<td>{row.texts}</td>",
        f'<td class="answer" dir="auto">{row.answer}</td>',
    ]
    if has_confidence:
        cells.append(f'<td class="score">{row.confidence}</td>')
    score = "" if math.isnan(row.score) else f' data-score="{float(row.score)}"'
    return f'<tr data-labels="{labels}"{sure}{score}>{"".join(cells)}</tr>\n'


def _headings(has_labels: bool, has_confidence: bool) -> str:
    """Returns the columns' headings; they sort the rows by what `answers_page.js` has of them."""
    sorts = {"Row": "place", "Text": "", "Answer": "labels" if has_labels else "score"}
    if has_confidence:
        sorts["Score"] = "score"
    buttons = {
        title: f'<button type="button" data-sorts="{key}">{title}</button>' if key else title
        for title, key in sorts.items()
    }
    return "".join(f'<th scope="col">{button}</th>' for button in buttons.values())


def _select(name: str, title: str, rows: int, options: Sequence[tuple[str, str, int]]) -> str:
    items = "".join(
        f'<option value="{html.escape(value)}">{html.escape(shown)} ({count:,})</option>'
        for value, shown, count in options
    )
    first = f'<option value="">all ({rows:,})</option>'
    return f'<label>{title} <select id="{name}">{first}{items}</select></label> '
