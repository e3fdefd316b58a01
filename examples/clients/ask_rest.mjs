// Asks a classifier over REST. It needs only Node 18 or newer.
//
//     node ask_rest.mjs http://localhost:8501 sst2 "a joy to watch" "a waste of time"

const [server, model, ...texts] = process.argv.slice(2);

const response = await fetch(`${server}/v1/models/${model}:predict`, {
  method: "POST",
  body: JSON.stringify({ instances: texts }),
  signal: AbortSignal.timeout(10_000),
});
const { predictions, error } = await response.json();
if (!response.ok) {
  console.error(`HTTP ${response.status}: ${error}`);
  process.exit(1);
}
predictions.forEach(({ label, scores }, row) => {
  console.log(`${label}  ${Math.max(...scores).toFixed(4)}  ${texts[row]}`);
});
