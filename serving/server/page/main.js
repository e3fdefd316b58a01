
// The page: chooses a model, asks it, and shows its answer.

const byId = (id) => document.getElementById(id);
const [model, version, signature] = ["model", "version", "signature"].map(byId);
let signatures = {}; // of the chosen version, by name
let fields = [];
let round = 0; // counts choices: replies for an earlier choice are too late
let choosing; // a promise of the last choice, which has to load versions and signatures
let isAsking = false;

function modelPath() {
  const path = `v1/models/${encodeURIComponent(model.value)}`;
  return version.value ? `${path}/versions/${version.value}` : path;
}

function option(value, text = value) {
  return element("option", { value }, text);
}

// Begins another round, and clears what the last one has shown.
function startRound() {
  round += 1;
  setAsking(false);
  showProblem();
  return round;
}

function showProblem(error) {
  byId("headline").replaceChildren();
  byId("answer").replaceChildren();
  byId("problem").textContent = error ? error.message : "";
}

async function chooseModel() {
  const now = startRound();
  version.replaceChildren();
  byId("state").textContent = "";
  if (!model.value) return showProblem(new Error("This server has no model."));
  try {
    const { model_version_status: versions } = await send(modelPath());
    if (now !== round) return;
    const served = versions.filter(({ state }) => state === "AVAILABLE").map((each) => each.version);
    if (served.length) version.replaceChildren(option("", `latest (${served[0]})`), ...served.map((each) => option(each)));
    byId("state").textContent = versions.map(stateInWords).filter(Boolean).join(" ");
    await chooseVersion();
  } catch (error) {
    if (now === round) clearFields(error);
  }
}

function stateInWords({ version: number, state, status }) {
  if (status.error_code !== "OK") return `Version ${number} is not served: ${status.error_message}`;
  if (state === "START" || state === "LOADING") return `Version ${number} is being loaded.`;
  return "";
}

async function chooseVersion() {
  const now = startRound();
  try {
    const { metadata } = await send(`${modelPath()}/metadata`);
    if (now !== round) return;
    signatures = metadata.signature_def.signature_def;
    const [askable, ofExamples] = sortSignatures(signatures);
    const before = signature.value;
    signature.replaceChildren(...askable.map((name) => option(name)));
    for (const name of ofExamples) {
      const listed = option(name, `${name} (takes tf.Examples)`);
      listed.disabled = true;
      signature.append(listed);
    }
    if (askable.includes(before)) signature.value = before;
    chooseSignature();
  } catch (error) {
    if (now === round) clearFields(error);
  }
}

function clearFields(error) {
  signature.replaceChildren();
  fields = [];
  byId("fields").replaceChildren();
  showRequest();
  showProblem(error);
}

function chooseSignature() {
  startRound();
  const typed = Object.fromEntries(fields.map(({ name, control }) => [name, control]));
  const { inputs = {}, defaults = {} } = signatures[signature.value] ?? {};
  const names = sorted(Object.keys(inputs), ORDER);
  fields = names.map((name, index) => makeField(name, inputs[name], index, defaults[name]));
  for (const { name, control } of fields) {
    if (typed[name]?.type === control.type) {
      control.value = typed[name].value;
      control.checked = typed[name].checked;
    }
    control.dispatchEvent(new Event("input")); // checks the value that was kept
  }
  byId("fields").replaceChildren(...fields.map((field) => field.element));
  showRequest();
}

function body() {
  const inputs = Object.fromEntries(fields.map(({ name, value }) => [name, value()]));
  return { signature_name: signature.value, inputs };
}

function showRequest() {
  const url = new URL(`${modelPath()}:predict`, document.baseURI).href;
  let [curl, python] = ["Fill in all fields first.", "Fill in all fields first."];
  try {
    if (fields.length) [curl, python] = [asCurl(url, body()), asPython(url, body())];
  } catch {
    // A field has no value yet.
  }
  byId("curl").textContent = curl;
  byId("python").textContent = python;
  byId("copied").textContent = "";
}

async function ask() {
  for (let chosen; chosen !== choosing; ) await (chosen = choosing);
  if (isAsking || !fields.length) return;
  const now = round;
  const { signature_name: name, inputs } = body();
  showProblem();
  setAsking(true);
  try {
    const reply = await send(`${modelPath()}:predict`, { signature_name: name, inputs });
    const outputNames = Object.keys(signatures[name].outputs);
    const all = outputNames.length === 1 ? { [outputNames[0]]: reply.outputs } : reply.outputs;
    const outputs = mapValues(all, firstOf);
    const names = await namesOfScores(outputs, inputs);
    if (now !== round) return;
    byId("answer").replaceChildren(...partsOf(outputs, names, mapValues(inputs, firstOf), reply));
    byId("headline").replaceChildren(...headlineOf(outputs, names));
  } catch (error) {
    if (now === round) showProblem(error);
  } finally {
    if (now === round) setAsking(false);
  }
}

// Returns the value of the first example, the only one here.
function firstOf(value) {
  return Array.isArray(value) ? value[0] : value;
}

function mapValues(object, change) {
  return Object.fromEntries(Object.entries(object).map(([name, value]) => [name, change(value)]));
}

// Returns the names that scores belong to: the choices of the question, or the classes. Of an export
// that does not return them, `classify` names classes; if its scores are the same, so are the classes.
async function namesOfScores({ scores, choice, classes: names }, inputs) {
  const values = mapValues(inputs, firstOf);
  if (!areNumbers(scores)) return [];
  if (Array.isArray(names) && names.length === scores.length) return names;
  if (choice !== undefined) {
    return Object.values(values).find((value) => Array.isArray(value) && value.length === scores.length) ?? [];
  }
  if (!signatures.classify) return [];
  try {
    const request = { signature_name: "classify", examples: [values] };
    const [classes] = (await send(`${modelPath()}:classify`, request)).results;
    const isSame = scores.every((score, index) => Math.abs(score - classes[index][1]) < 1e-3);
    return isSame && classes.length === scores.length ? classes.map(([name]) => name) : [];
  } catch {
    return []; // `classify` takes other inputs; the page shows the scores by their indices
  }
}

function setAsking(value) {
  isAsking = value;
  byId("ask").setAttribute("aria-disabled", value); // `disabled` would remove the focus
  byId("ask").textContent = value ? "Asking …" : "Ask";
}

async function copy(button) {
  const source = byId(button.dataset.copies);
  let isCopied = true;
  try {
    await navigator.clipboard.writeText(source.textContent);
  } catch {
    // Browsers offer a clipboard over HTTPS and on this machine; elsewhere this still works.
    getSelection().selectAllChildren(source);
    isCopied = document.execCommand("copy");
  }
  byId("copied").textContent = isCopied ? "Copied." : "The request is selected: copy it with Ctrl + C.";
}

model.addEventListener("change", () => (choosing = chooseModel()));
version.addEventListener("change", () => (choosing = chooseVersion()));
signature.addEventListener("change", chooseSignature);
byId("form").addEventListener("input", showRequest);
byId("form").addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
byId("form").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("form").requestSubmit();
});
for (const button of document.querySelectorAll("[data-copies]")) button.addEventListener("click", () => copy(button));
choosing = chooseModel();
