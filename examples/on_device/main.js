// Scores the typed text with the classifier in model.tflite; see docs/on_device.md.
// index.html?text=... starts with that text.

import { loadAndCompile, loadLiteRt, Tensor } from '@litertjs/core';
import { readMetadata } from './metadata.js';

const status = document.getElementById('status');

async function start() {
  await loadLiteRt('./node_modules/@litertjs/core/wasm/');
  const response = await fetch('model.tflite');
  if (!response.ok) throw new Error(`model.tflite: ${response.status} ${response.statusText}`);
  const bytes = new Uint8Array(await response.arrayBuffer());
  const metadata = readMetadata(bytes);
  if (!metadata.class_names) throw new Error(`a ${metadata.task} without classes is not for this page`);
  const model = await loadAndCompile(bytes, { accelerator: 'wasm' });

  const fields = metadata.fields.map((name) => addField(name, () => show()));
  let asked = 0;
  const show = async () => {
    const number = ++asked;
    const started = performance.now();
    if (!fields.every((field) => field.value.trim())) {
      showAnswer([], [], fields.length > 1 ? 'Type a text in each box.' : 'Type a text.');
      return;
    }
    const texts = Object.fromEntries(fields.map((field) => [field.name, field.value]));
    const { scores, is_sure, num_tokens, truncated, blank } = await score(model, texts, metadata.max_bytes);
    if (number !== asked) return; // the texts have changed meanwhile
    const milliseconds = (performance.now() - started).toFixed(1);
    const sure = is_sure ? (is_sure[0] ? 'sure; ' : 'not sure; ') : '';
    showAnswer(
      metadata.class_names,
      scores,
      `${sure}${num_tokens[0]} tokens${truncated[0] ? ', truncated' : ''}${blank?.[0] ? ', blank' : ''}; ${milliseconds} ms; ` +
        `the file has ${(bytes.length / 1e6).toFixed(1)} MB`,
    );
  };
  await show();
}

/** Runs the signature `text` on strings by field; returns the outputs as typed arrays by name. */
async function score(model, texts, maxBytes) {
  const inputs = {};
  for (const [name, text] of Object.entries(texts)) {
    const padded = new Int32Array(maxBytes[name]);
    padded.set(new TextEncoder().encode(text).subarray(0, padded.length));
    inputs[name] = new Tensor(padded, [padded.length]);
  }
  const outputs = await model.run('text', inputs);
  Object.values(inputs).forEach((tensor) => tensor.delete());
  const arrays = {};
  for (const [name, tensor] of Object.entries(outputs)) {
    arrays[name] = (await tensor.data()).slice();
    tensor.delete();
  }
  return arrays;
}

function addField(name, onInput) {
  const label = document.createElement('label');
  const area = Object.assign(document.createElement('textarea'), { name, rows: 2 });
  area.value = new URLSearchParams(location.search).get(name) ?? '';
  area.addEventListener('input', onInput);
  label.append(name, area);
  document.getElementById('texts').append(label);
  return area;
}

function showAnswer(classNames, scores, said) {
  const rows = classNames.map((name, i) => {
    const row = Object.assign(document.createElement('div'), { className: 'score' });
    const bar = Object.assign(document.createElement('div'), { className: 'bar' });
    bar.style.width = `${100 * scores[i]}%`;
    const number = Object.assign(document.createElement('span'), { className: 'number' });
    number.textContent = `${(100 * scores[i]).toFixed(1)} %`;
    const label = Object.assign(document.createElement('span'), { textContent: name });
    row.append(label, bar, number);
    return row;
  });
  document.getElementById('scores').replaceChildren(...rows);
  document.body.dataset.scores = JSON.stringify([...scores]);
  status.textContent = said;
}

start().catch((error) => {
  status.textContent = `Error: ${error.message}`;
});
