
// Sends requests to the server, and writes the same request for curl and Python.

async function send(path, body) {
  let response;
  try {
    response = await fetch(path, body && { method: "POST", body: JSON.stringify(body) });
  } catch {
    throw new Error("The server does not answer. Is it still running?");
  }
  const text = await response.text();
  let reply;
  try {
    reply = JSON.parse(withQuotedNumbers(text));
  } catch {
    throw new Error(`The server's reply, with status ${response.status}, is not JSON: ${shortened(text)}`);
  }
  if (!response.ok) throw new Error(reply.error ?? `The server replied with status ${response.status}.`);
  return reply;
}

// Quotes numbers that JSON does not have, such as the score of a text of one token, -Infinity.
function withQuotedNumbers(json) {
  const stringOrNumber = /"(?:[^"\\]|\\.)*"|-?Infinity|NaN/g;
  return json.replace(stringOrNumber, (found) => (found.startsWith('"') ? found : `"${found}"`));
}

function shortened(text, length = 400) {
  return text.length > length ? `${text.slice(0, length)} …` : text;
}

function asCurl(url, body) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  return `curl ${quoted(url)} \\\n  --data ${quoted(JSON.stringify(body))}`;
}

function asPython(url, body) {
  return [
    "import json",
    "import urllib.request",
    "",
    `url = ${pythonLiteral(url)}`,
    `body = ${pythonLiteral(body)}`,
    "with urllib.request.urlopen(url, json.dumps(body).encode()) as reply:",
    "    print(json.load(reply))",
  ].join("\n");
}

function pythonLiteral(value) {
  if (Array.isArray(value)) return `[${value.map(pythonLiteral).join(", ")}]`;
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return JSON.stringify(value); // the same in Python
  const pairs = Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${pythonLiteral(each)}`);
  return `{${pairs.join(", ")}}`;
}
