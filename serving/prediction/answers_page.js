// Chooses and sorts the rows. Without it, the page shows all of them in the input's order.

const body = document.querySelector("tbody");
const rows = [...body.rows].map((row, index) => ({
  row,
  place: index,
  labels: JSON.parse(row.dataset.labels),
  sure: row.dataset.sure ?? "",
  score: row.dataset.score === undefined ? Infinity : Number(row.dataset.score),
}));
const [ofClass, ofSure] = ["class", "sure"].map((id) => document.getElementById(id));

function show() {
  const label = ofClass?.value ? JSON.parse(ofClass.value) : null;
  const sure = ofSure?.value ?? "";
  let count = 0;
  for (const each of rows) {
    const isShown = (label === null || each.labels.includes(label)) && (!sure || each.sure === sure);
    each.row.hidden = !isShown;
    count += isShown;
  }
  document.getElementById("shown").textContent = `${count} of ${rows.length} are shown.`;
}

function compare(a, b) {
  if (Array.isArray(a)) return a.join("\n").localeCompare(b.join("\n"));
  return a === b ? 0 : a < b ? -1 : 1;
}

function sortBy(button) {
  const heading = button.closest("th");
  const isDescending = heading.getAttribute("aria-sort") === "ascending";
  document.querySelectorAll("thead th").forEach((each) => each.removeAttribute("aria-sort"));
  heading.setAttribute("aria-sort", isDescending ? "descending" : "ascending");
  const key = button.dataset.sorts;
  const sorted = rows.toSorted((a, b) => compare(a[key], b[key]) * (isDescending ? -1 : 1) || a.place - b.place);
  body.append(...sorted.map(({ row }) => row));
}

document.querySelectorAll("[data-sorts]").forEach((button) => {
  button.addEventListener("click", () => sortBy(button));
});
if (ofClass || ofSure) {
  const form = document.getElementById("filters");
  form.hidden = false;
  form.addEventListener("change", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.reset(); // browsers keep what was chosen, and not what it has hidden
  show();
}
