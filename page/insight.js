// The tab "Insight": what slots and layers look like while the model learns (/insight), what stands out among them, and one id (/feature).
import { ask } from "./documents.js";
import { byId, clock, count, element, fillTable, percent, seconds, significant, text, unknown } from "./elements.js";

// A slot stands out from these on. Shares are of the slot's ids, norms relative to the median of the other slots'.
const NORM = 5, MISSING = 0.5, SHIFT = 0.25, HOT = 0.1, HOT_TIMES = 20, NEW = 0.9, DEAD = 0.5;
const USELESS = 0.0005; // importance that counts as none
const EXPECTED = 20; // samples that a share must make us expect, before fewer of them mean anything
const AGAIN_MS = 10000, FIRST_MS = 2000;
const VALUES = 32; // of a part of a row, in words

let shown = null, next = 0, asked = "";

// ---- what stands out ----

function median(values) {
  const sorted = values.filter((one) => !unknown(one)).sort((a, b) => a - b), half = sorted.length >> 1;
  return sorted.length === 0 ? null : sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

const importanceOf = (slot, task) => slot.importance?.find((one) => one.task === task) ?? null;

function largeNorm(slot, slots, task) {
  let most = 0, at = "";
  for (const quantile of ["p50", "p90", "p99"]) {
    const others = median(slots.filter((one) => one !== slot && one.row_norm).map((one) => one.row_norm[quantile]));
    const times = others > 0 ? slot.row_norm?.[quantile] / others : 0;
    if (times > most) [most, at] = [times, quantile];
  }
  if (!(most >= NORM)) return null;
  const importance = importanceOf(slot, task)?.importance;
  const useless = !unknown(importance) && importance < USELESS;
  return { word: "large norms", text: `its rows' norms (${at}) are ${significant(most)} times the median of the other slots'${useless ? `, and exchanging its values costs no AUC (${importance.toFixed(4)})` : ""}.`,
    advice: `The slot memorises single ids${useless ? "" : ", if its importance is near 0"}. Remove it, admit ids later (a gate of its table), or lower its learning rate.` };
}

function missing(slot, window) {
  const { present, present_before: before } = slot;
  if (unknown(present)) return null;
  const gone = present === 0 && window.samples >= EXPECTED, known = before * window.samples >= EXPECTED;
  if (gone && !(before > 0) && !slot.keys) return { word: "never there", text: "no sample has had it.", advice: "Compare the slot's name with the keys of the stream (/status, ignored), or remove the slot." };
  if (!known && gone) return { word: "missing", text: `none of ${count(window.samples)} samples has it, but there are rows of it.`, advice: "If the slot is not a rare one, look at what writes the samples: a source of the slot may have failed." };
  if (!known || present >= MISSING * before) return null;
  return { word: gone ? "missing" : "less often there", text: `${percent(present)} of the samples have it, ${percent(before)} before.`,
    advice: "Look at what writes the samples: a source of the slot may have failed, or its name may have changed." };
}

const bucketName = (one) => (one.bucket === "absent" ? "Absent" : `Bucket ${one.bucket}`);

// Of `half_lives`: [short, long]; with one half-life, the long one is the time since the start.
const spans = ([short, long]) => [short, long ?? "the start"];

function shifted(slot, halfLives) {
  const { values, positives, buckets } = slot.drift ?? {};
  if (!(values >= SHIFT) && !(positives >= SHIFT)) return null;
  const moved = values >= SHIFT, one = buckets?.[0], [short, long] = spans(halfLives);
  const shares = one && (moved ? one.values : one.rate).map(percent);
  const example = shares ? ` ${bucketName(one)}: ${shares[0]} over ${long}, ${shares[1]} over ${short}.` : "";
  return { word: moved ? "values shifted" : "positives shifted",
    text: `${moved ? "its values" : "the positives among its values"} are distributed differently than before (PSI ${significant(moved ? values : positives)}).${example}`,
    advice: "Look for another unit, a default value or a new source. If the change is right, the model learns it: watch AUC and calibration." };
}

function hot(slot) {
  const most = slot.hot?.[0], sure = most ? most.share - most.error : 0;
  if (!(sure >= HOT) || !(sure * slot.keys >= HOT_TIMES)) return null;
  return { word: "hot id", text: `id ${most.id ?? most.key} is ${percent(most.share)} of its ids.`, advice: "If it is a default value, a bot or a test, leave it out of the samples." };
}

function fleeting(slot) {
  const share = (slot.new ?? 0) + (slot.unknown ?? 0);
  if (!(share >= NEW)) return null;
  return { word: "ids do not repeat", text: `${percent(share)} of its ids are new or have no row.`,
    advice: "If each sample has an id of its own, remove the slot. If not, the gate of its table may admit ids too late, or its rows may expire too soon." };
}

const flagsOf = (slot, insight, task) => [largeNorm(slot, insight.slots, task), missing(slot, insight.window), shifted(slot, insight.half_lives),
  hot(slot), fleeting(slot)].filter((one) => one);

function showFlags(flagged) {
  const words = JSON.stringify(flagged), list = byId("insight-flags");
  if (list.dataset.shown === words) return;
  list.dataset.shown = words;
  list.replaceChildren(...flagged.map(({ name, word, text: what, advice }) =>
    element("li", {}, element("b", { textContent: `${name}: ${word}` }), what, element("span", { className: "advice", textContent: advice }))));
}

// ---- tables ----

const range = (q, low, high) => (q ? `${significant(q[low])} to ${significant(q[high])}` : "–");
const at = (q, quantile) => significant(q?.[quantile]);

function chooseTask(insight) {
  const names = [...new Set(insight.slots.flatMap((slot) => (slot.importance ?? []).map((one) => one.task)))], choice = byId("insight-task");
  if (choice.length !== names.length) choice.replaceChildren(...names.map((name) => element("option", { textContent: name })));
  byId("insight-task-choice").hidden = names.length < 2;
  return names.length > 0 ? choice.value : null;
}

function showSlots(insight) {
  const task = chooseTask(insight), flags = insight.slots.map((slot) => flagsOf(slot, insight, task));
  const widest = (pick) => Math.max(0, ...insight.slots.map((slot) => pick(slot) ?? 0)) || 1;
  const norms = widest((slot) => slot.row_norm?.p99), best = widest((slot) => importanceOf(slot, task)?.importance);
  const rows = insight.slots.map((slot, s) => {
    const one = importanceOf(slot, task), words = flags[s].map(({ word }) => word).join(", ");
    return [{ text: slot.name, kind: words ? "flagged" : "" }, { text: words || "–", kind: words ? "text flagged" : "text" },
      { text: one ? one.importance.toFixed(4) : "–", bar: one ? one.importance / best : 0, key: `importance ${slot.name}`, value: one?.importance ?? "" },
      { text: percent(slot.present), key: `present ${slot.name}`, value: slot.present ?? "" }, significant(slot.ids), percent(slot.new), percent(slot.unknown),
      { text: at(slot.row_norm, "p50"), key: `norm ${slot.name}`, value: slot.row_norm?.p50 ?? "" }, { text: at(slot.row_norm, "p99"), bar: (slot.row_norm?.p99 ?? 0) / norms },
      at(slot.gradient_norm, "p50"), at(slot.gradient_norm, "p99"), at(slot.update_ratio, "p50"), percent(slot.hot?.[0]?.share), significant(slot.drift?.values), significant(slot.drift?.positives)];
  });
  fillTable("insight-slots", ["Slot", "Stands out", "Importance", "Present", "Ids a sample", "New ids", "Without row", "Row norm p50", "Row norm p99", "Gradient p50",
    "Gradient p99", "Update / weight", "Hottest id", "PSI of values", "PSI of positives"], rows, task ? `Slots, importance for ${task}` : "Slots");
  showFlags(insight.slots.flatMap((slot, s) => flags[s].map((one) => ({ name: slot.name, ...one }))));
  const none = flags.every((one) => one.length === 0);
  text(byId("insight-judged"), none ? "No slot stands out." : "");
}

function showLayers(insight) {
  fillTable("insight-layers", ["Layer", "Operation", "Units", "Dead units", "Weights p01 to p99", "Activations p01 to p99", "Gradient norm"], insight.layers.map((layer) => {
    const flagged = layer.dead >= DEAD;
    return [{ text: layer.name, kind: flagged ? "flagged" : "" }, { text: layer.op, kind: "text" }, count(layer.units),
      { text: percent(layer.dead) + (flagged ? ": lower the learning rate" : ""), kind: flagged ? "flagged" : "" },
      range(layer.weights, "p01", "p99"), range(layer.activations, "p01", "p99"), significant(layer.gradient_norm)];
  }), "Layers");
}

function showSlot() {
  const slot = shown?.slots.find((one) => one.name === byId("feature-slot").value);
  if (!slot) return;
  const quantiles = ["min", "p01", "p10", "p50", "p90", "p99", "max"], sampled = slot.row_norm?.n ?? 0;
  fillTable("slot-quantiles", ["Of its rows", ...quantiles], [["Norm", slot.row_norm], ["Gradient", slot.gradient_norm], ["Update / weight", slot.update_ratio]]
    .map(([name, q]) => [name, ...quantiles.map((one) => at(q, one))]), `${slot.name}: quantiles over ${count(sampled)} rows`);
  const [short, long] = spans(shown.half_lives);
  fillTable("slot-drift", ["Bucket", `Samples, ${long}`, `Samples, ${short}`, `Positive, ${long}`, `Positive, ${short}`], (slot.drift?.buckets ?? []).map((one) =>
    [bucketName(one), ...one.values.map(percent), ...one.rate.map(percent)]), `${slot.name}: ${slot.drift?.buckets?.length > 0 ? "buckets that moved most" : "drift is not known yet: it needs 256 samples, for numbers 512 more"}`);
  const list = byId("slot-hot"), hottest = slot.hot ?? [], words = JSON.stringify([slot.name, hottest]);
  if (list.dataset.shown === words) return;
  list.dataset.shown = words;
  byId("slot-hot-title").hidden = hottest.length === 0;
  list.replaceChildren(...hottest.map((one) => {
    const button = element("button", { type: "button", textContent: one.id ?? one.key });
    button.addEventListener("click", () => lookUp(slot.name, { key: one.key }, one.id ?? one.key)); // /feature takes the key of every slot, the id of some only
    return element("li", {}, button, ` ${percent(one.share)}${one.error > 0 ? `, at least ${percent(one.share - one.error)}` : ""}`);
  }));
}

function chooseSlot(slots) {
  const choice = byId("feature-slot"), names = slots.map((slot) => slot.name);
  if ([...choice.options].map((one) => one.value).join("\n") !== names.join("\n")) choice.replaceChildren(...names.map((name) => element("option", { textContent: name })));
}

// ---- one id ----

const states = {
  row: "it has a row.", waiting: "its table's gate counts it and has not admitted it.", removed: "its row was just removed.",
  unknown: "it was never seen, is counted by a sketch only, or is gone.",
};

function vector(values) {
  return values.slice(0, VALUES).map(significant).join("  ") + (values.length > VALUES ? `  … (${values.length} numbers)` : "");
}

async function lookUp(slot, named, label = named.id ?? named.key) {
  const query = new URLSearchParams({ slot, ...named }), mine = `${query}`;
  asked = mine;
  if (named.id !== undefined) byId("feature-id").value = named.id;
  const { code, body } = await ask(`/feature?${query}`).catch((error) => ({ code: 0, body: { error: error.message } }));
  if (asked !== mine) return; // another id was asked for meanwhile
  const found = code === 200, say = byId("feature-said");
  text(say, found ? `${slot}, ${label}: ${states[body.state] ?? body.state}` : body.error);
  say.classList.toggle("flagged", !found);
  byId("feature-answer").hidden = !found;
  if (!found) return;
  const rows = [["Key", body.key], ["Table", body.table], ["Row", body.state !== "row" ? "none" : body.resident ? "in memory" : "read from disk"], ["Counted by its gate", count(body.count)], ["Last seen", unknown(body.seen_ms) ? "–" : new Date(body.seen_ms).toLocaleString([], { hour12: false })],
    ["Shows", significant(body.show)], ["Clicks", significant(body.click)], ["Norm of its row", significant(body.norm)],
    ...Object.entries(body.contribution ?? {}).map(([task, value]) => [`Adds to ${task}`, significant(value)]),
    ...Object.entries(body.parts ?? {}).map(([part, values]) => [`Part ${part}`, { text: vector(values), kind: "wrap" }])];
  fillTable("feature", ["Of this id", "Value"], rows.map(([name, one]) => [name, one.kind ? one : { text: `${one ?? "–"}`, kind: "wrap" }]), `${slot}, ${label}`);
}

// ---- turns ----

function sayRefusal(code, body) {
  text(byId("insight-summary"), code === 404 ? "Insight is off: set insight.interval, for example to 1m, to see slots and layers here." : body.error);
  byId("insight-found").hidden = true;
}

export async function showInsight() {
  if (Date.now() < next) return;
  const { code, body } = await ask("/insight");
  next = Date.now() + (code === 200 ? Math.max(FIRST_MS, Math.min(body.interval_ms, AGAIN_MS)) : FIRST_MS) - 100;
  if (code !== 200) return sayRefusal(code, body);
  shown = body;
  const { window: looked } = body;
  text(byId("insight-summary"), `From ${count(looked.batches)} of ${count(looked.of_batches)} batches with ${count(looked.samples)} samples, up to ${clock(body.renewed_ms)}, every ${seconds(body.interval_ms / 1000)}. ` +
    `Insight costs ${percent(body.cost)} of the training time${body.importance_every ? ", without importance" : ""}. ` +
    (body.importance_every ? `Importance is measured on one batch in ${count(body.importance_every)}.` : "Importance is not measured: set insight.importance, for example to 100."));
  byId("insight-found").hidden = false;
  chooseSlot(body.slots);
  showSlots(body);
  showLayers(body);
  showSlot();
}

export function followInsight() {
  byId("insight-task").addEventListener("change", () => shown && showSlots(shown));
  byId("feature-slot").addEventListener("change", showSlot);
  byId("feature-form").addEventListener("submit", (event) => {
    event.preventDefault();
    lookUp(byId("feature-slot").value, { id: byId("feature-id").value });
  });
}
