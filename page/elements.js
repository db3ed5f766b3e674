// Elements and tables, and words for numbers. Words are set as text, never as markup: names, ids and problems come from users.
export const byId = (id) => document.getElementById(id);

// ---- building ----

export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// Only if it differs: a screen reader repeats what is set again.
export function text(target, words) {
  if (target.textContent !== words) target.textContent = words;
}

// one: a text, or {text, kind: class, key, value, bar: share of the widest bar}.
function fillCell(made, one) {
  if (made.className !== (one.kind ?? "")) made.className = one.kind ?? "";
  if (one.bar === undefined) {
    text(made, one.text ?? one);
  } else {
    if (made.childElementCount === 0) made.replaceChildren(element("span"), element("span", { className: "bar" }, element("i")));
    text(made.firstChild, one.text);
    made.lastChild.firstChild.style.width = `${100 * Math.min(1, Math.max(0, one.bar))}%`;
  }
  if (one.key) Object.assign(made.dataset, { key: one.key, value: one.value });
}

// rows: [name, cell...], each as of fillCell. A table of the same rows keeps its elements, so that a reader stays where it is.
export function fillTable(id, head, rows, caption = "") {
  const table = byId(id), names = rows.map(([name]) => name.text ?? name).join("\n");
  if (table.tBodies.length === 0 || table.dataset.rows !== names) {
    table.dataset.rows = names;
    table.replaceChildren(
      element("caption", { className: caption ? "" : "hidden", textContent: caption || id }),
      element("thead", {}, element("tr", {}, ...head.map((name, c) => element("th", { scope: "col", textContent: name, className: c > 0 ? (rows[0]?.[c]?.kind ?? "").replace("flagged", "") : "" })))),
      element("tbody", {}, ...rows.map(([, ...cells]) => element("tr", {}, element("th", { scope: "row" }), ...cells.map(() => element("td"))))));
  }
  if (caption) text(table.caption, caption);
  rows.forEach((cells, r) => cells.forEach((one, c) => fillCell(table.tBodies[0].rows[r].cells[c], one)));
}

// ---- words for numbers ----

export const unknown = (value) => value === null || value === undefined || Number.isNaN(value);
export const count = (value, axis) => (unknown(value) ? "–" : axis && !Number.isInteger(value) ? "" : Math.round(value).toLocaleString("en"));
export function short(value) {
  if (unknown(value)) return "–";
  for (const [size, unit] of [[1e9, " G"], [1e6, " M"], [1e4, " k"]])
    if (Math.abs(value) >= size) return (value / (unit === " k" ? 1e3 : size)).toFixed(value >= 1e5 && unit === " k" ? 0 : 1) + unit;
  return value >= 100 || Number.isInteger(value) ? Math.round(value).toLocaleString("en") : value.toFixed(1);
}
export function bytes(value) {
  if (unknown(value)) return "–";
  for (const [size, unit] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]])
    if (value >= size) return `${(value / size).toFixed(value / size >= 100 ? 0 : 1)} ${unit}`;
  return `${Math.round(value)} B`;
}
export function seconds(value) {
  if (unknown(value)) return "–";
  if (value === 0) return "0 s";
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 100) return `${value.toFixed(value < 10 ? 1 : 0)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  return value < 172800 ? `${(value / 3600).toFixed(1)} h` : `${Math.round(value / 86400)} days`;
}
export const ratio = (digits) => (value, axis) => (unknown(value) ? "–" : value.toFixed(axis ? Math.min(3, digits) : digits));
export const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour12: false });
export const when = (ms) => (Date.now() - ms > 86400000 ? new Date(ms).toLocaleString([], { hour12: false }) : clock(ms));
export const significant = (value) => (unknown(value) ? "–" : value === 0 ? "0" : Math.abs(value) >= 1e6 || Math.abs(value) < 1e-4 ? value.toExponential(1) : String(+value.toPrecision(3)));
export function percent(value) {
  if (unknown(value)) return "–";
  const share = 100 * value;
  return `${share === 0 || share >= 10 ? share.toFixed(0) : share < 0.01 ? "< 0.01" : share.toFixed(share < 1 ? 2 : 1)} %`;
}
