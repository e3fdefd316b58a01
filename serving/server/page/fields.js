
// Makes a form field for each input of a signature.

// Signatures that take serialized tf.Examples, which people cannot type.
const OF_EXAMPLES = ["classify", "regress"];

// The usual order of the inputs of tasks' exports; signatures have no order.
const ORDER = ["text", "premise", "hypothesis", "text1", "text2", "context", "question", "choices"];

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children); // strings become text, never HTML
  return made;
}

// Returns the field of an input: `element`, for the page; `control`, for typing; and
// `value()`, which returns the input's value for one example, and throws if there is none. Numbers
// are at first the signature's default, a tensor.
function makeField(name, { dtype, tensor_shape: shape }, index, initial) {
  const rank = shape.unknown_rank ? null : shape.dim.length;
  const batched = (value) => (rank === 0 || rank === null ? value : [value]);
  const isList = rank === null || rank > 1;
  const id = `field-${index}`;
  const make = { id, "aria-describedby": `${id}-hint` };
  const area = () => element("textarea", { ...make, rows: 3, dir: "auto", spellcheck: "false" });
  let hint, control, value;
  if (dtype === "DT_STRING" && !isList) {
    [hint, control] = ["", area()];
    value = () => control.value;
  } else if (dtype === "DT_STRING" && rank === 2) {
    [hint, control] = ["texts, one in each line", area()];
    value = () => control.value.split("\n").filter((line) => line !== "");
  } else if (isList) {
    [hint, control] = ["JSON, such as [1, 2, 3]", area()];
    value = () => JSON.parse(control.value);
    control.addEventListener("input", () => control.setCustomValidity(problemOf(value)));
    control.setCustomValidity(problemOf(value));
  } else if (dtype === "DT_BOOL") {
    [hint, control] = ["yes or no", element("input", { ...make, type: "checkbox" })];
    value = () => control.checked;
  } else {
    const isWhole = /^DT_U?INT\d+$/.test(dtype);
    // JavaScript's integers are exact up to these bounds; the server checks each dtype's own.
    const bounds = isWhole ? { min: Number.MIN_SAFE_INTEGER, max: Number.MAX_SAFE_INTEGER } : { step: "any" };
    control = element("input", { ...make, ...bounds, type: "number", required: "" });
    control.value = firstNumber(initial);
    hint = isWhole ? "whole number" : "number";
    value = () => {
      if (!control.checkValidity()) throw new Error(`Expected a ${hint}.`);
      return control.valueAsNumber;
    };
  }
  const label = element("label", { for: id }, name);
  const note = element("span", { id: `${id}-hint`, class: "note" }, hint);
  const field = element("div", { class: "field" }, element("div", {}, label, note), control);
  return { name, control, element: field, value: () => batched(value()) };
}

// Returns the first number of a tensor, which has its values in the field of its dtype.
function firstNumber(tensor = {}) {
  const values = Object.entries(tensor).find(([field, each]) => field.endsWith("_val") && each.length);
  return values ? values[1][0] : 0;
}

// Returns the names: those in `first` in its order, and then the others in alphabetical order.
function sorted(names, first) {
  const rank = (name) => (first.includes(name) ? first.indexOf(name) : first.length);
  return names.toSorted((a, b) => rank(a) - rank(b) || a.localeCompare(b));
}

function problemOf(value) {
  try {
    value();
    return "";
  } catch (error) {
    return `Expected JSON: ${error.message}`;
  }
}

// Returns the names of the signatures that the page can ask, and of those that it cannot.
// A signature without inputs belongs to loading the model.
function sortSignatures(signatures) {
  const asked = Object.keys(signatures).filter((name) => Object.keys(signatures[name].inputs).length);
  const names = sorted(asked, ["explain", "serving_default"]);
  const takesExamples = (name) => OF_EXAMPLES.includes(name) && "inputs" in signatures[name].inputs;
  return [names.filter((name) => !takesExamples(name)), names.filter(takesExamples)];
}
