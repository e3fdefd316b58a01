
// An answer as elements. `outputs` are those of one example, by name.

const MAX_BARS = 20;
const MAX_NAMED_WORDS = 5;
const EXPLAINING = ["words", "word_fields", "word_starts", "word_ends", "word_shares", "num_words"];
const OF_CHOICES = "word_choices"; // the index of each word's choice; -1 in other fields

// Returns the parts of the answer's first line: the answer itself, its score, "unsure", and whether
// a text is blank. `names` are the names of the classes or choices that the scores belong to.
function headlineOf({ label, choice, scores, continuation, score, is_sure: isSure, blank }, names) {
  const chosen = label ?? names[choice];
  const answer = [chosen, continuation, score].find((each) => each !== undefined) ?? "Answered";
  const notes = [];
  if (chosen !== undefined && areNumbers(scores)) notes.push(Math.max(...scores).toFixed(3));
  if (isSure === false) notes.push("unsure");
  if (blank) notes.push("a text is blank");
  return [String(answer), ...notes.flatMap((note) => [" ", element("span", { class: "note" }, note)])];
}

// Returns the elements for the other outputs. `texts` are the texts of the question, by field.
function partsOf(outputs, names, texts, whole) {
  const parts = [];
  const shown = new Set(["label", "continuation", "score", "is_sure", "blank"]);
  if (areNumbers(outputs.scores)) {
    parts.push(bars(outputs.scores, names));
    shown.add("scores").add("classes");
  }
  if (EXPLAINING.every((name) => name in outputs)) {
    parts.push(...explanation(outputs, texts));
    [...EXPLAINING, OF_CHOICES].forEach((name) => shown.add(name));
  }
  const others = Object.keys(outputs).filter((name) => !shown.has(name)).sort();
  if (others.length) {
    const pairs = others.flatMap((name) => [element("dt", {}, name), element("dd", {}, asText(outputs[name]))]);
    parts.push(element("dl", {}, ...pairs));
  }
  const json = element("pre", { tabindex: 0, role: "region", "aria-label": "Answer as JSON" });
  json.append(JSON.stringify(whole, null, 1));
  parts.push(element("details", {}, element("summary", {}, "All of the answer, as JSON"), json));
  return parts;
}

function areNumbers(value) {
  return Array.isArray(value) && value.every((each) => typeof each === "number");
}

function asText(value) {
  if (typeof value === "boolean") return value ? "yes" : "no";
  return shortened(typeof value === "string" ? value : JSON.stringify(value));
}

function withShare(made, share) {
  made.style.setProperty("--share", share); // the policy forbids style attributes
  return made;
}

function bars(scores, names) {
  const areParts = scores.every((score) => score >= 0 && score <= 1);
  const rows = scores.map((score, index) => ({ score, name: names[index] ?? `class ${index}` }));
  rows.sort((a, b) => b.score - a.score);
  const items = rows.slice(0, MAX_BARS).map(({ score, name }) =>
    element(
      "li",
      {},
      element("span", { class: "name" }, name),
      areParts
        ? element("span", { class: "bar", "aria-hidden": "true" }, withShare(element("span", {}), score))
        : "",
      element("span", { class: "value" }, score.toFixed(3)),
    ),
  );
  if (rows.length > MAX_BARS) items.push(element("li", { class: "note" }, `and ${rows.length - MAX_BARS} more`));
  return element("ul", { class: "scores", "aria-label": "Scores" }, ...items);
}

function signed(share) {
  return `${share < 0 ? "−" : "+"}${Math.abs(share).toFixed(3)}`;
}

function wordsOf(outputs) {
  const count = Math.min(outputs.num_words, outputs.words.length);
  return Array.from({ length: count }, (_, index) => ({
    word: outputs.words[index],
    field: outputs.word_fields[index],
    start: outputs.word_starts[index],
    end: outputs.word_ends[index],
    share: outputs.word_shares[index],
    choice: outputs[OF_CHOICES]?.[index] ?? -1,
  }));
}

// Returns the field, and the number of the choice, that a word or passage stands in.
function titleOf({ field, choice }) {
  return choice < 0 ? field : `${field}, ${choice + 1}`;
}

// Returns all texts of the question, those of a list one by one.
function passagesOf(texts) {
  return Object.entries(texts).flatMap(([field, text]) =>
    Array.isArray(text)
      ? text.map((each, choice) => ({ text: each, field, choice }))
      : [{ text, field, choice: -1 }],
  );
}

// Returns the texts with coloured words, the words with the largest shares, and a table of all.
function explanation(outputs, texts) {
  const words = wordsOf(outputs);
  const largest = Math.max(...words.map(({ share }) => Math.abs(share))) || 1;
  const passages = passagesOf(texts).filter(({ text }) => typeof text === "string");
  const parts = passages.flatMap((passage) => {
    const its = words.filter((word) => word.field === passage.field && word.choice === passage.choice);
    const heading = passages.length > 1 ? [element("h3", {}, titleOf(passage))] : [];
    return [...heading, element("p", { class: "words", dir: "auto" }, ...coloured(passage.text, its, largest))];
  });
  const isNumber = "score" in outputs && !("scores" in outputs);
  const [above, below] = isNumber ? ["Raises the score", "Lowers it"] : ["For the answer", "Against it"];
  parts.push(legend("for", above, words.filter(({ share }) => share > 0)));
  parts.push(legend("against", below, words.filter(({ share }) => share < 0)));
  const heads = ["Word", "Field", "Share"].map((title) => element("th", { scope: "col" }, title));
  const rows = words.map((each) => {
    const cells = [titleOf(each), signed(each.share)].map((text) => element("td", {}, text));
    return element("tr", {}, element("th", { scope: "row" }, each.word), ...cells);
  });
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows));
  parts.push(element("details", {}, element("summary", {}, "Each word's share"), table));
  return parts;
}

// Starts and ends count bytes of UTF-8, but JavaScript's strings are UTF-16.
function coloured(text, words, largest) {
  const bytes = new TextEncoder().encode(text);
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  const between = (start, end) => decoder.decode(bytes.subarray(start, end));
  const pieces = [];
  let at = 0;
  for (const { start, end, share } of words.toSorted((a, b) => a.start - b.start)) {
    if (!share || start < at || end > bytes.length) continue; // the table shows all words
    const mark = element("mark", { class: share < 0 ? "against" : "for", title: signed(share) });
    mark.append(between(start, end));
    // The square root: otherwise, beside one large share the other words would have no colour.
    pieces.push(between(at, start), withShare(mark, Math.sqrt(Math.abs(share) / largest)));
    at = end;
  }
  return [...pieces, between(at, bytes.length)];
}

function legend(kind, title, words) {
  const first = words.toSorted((a, b) => Math.abs(b.share) - Math.abs(a.share)).slice(0, MAX_NAMED_WORDS);
  const named = first.map(({ word, share }) => `“${word}”\u00a0${signed(share)}`).join(", ");
  return element("p", { class: "legend" }, element("mark", { class: kind }, title), ` ${named || "no word"}`);
}
