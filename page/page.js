// The page: asks freshetd for /status, /auc and the new part of /history every two seconds while the page is visible, and shows them.
// An element whose value a test compares with a document has data-key, and the number itself in data-value.
import { byId, bytes, clock, count, element, fillTable, ratio, seconds, short, text, unknown, when } from "./elements.js";
import { POINTS, column, followHistory, forget, get, history, newest } from "./documents.js";
import { drawModel } from "./model.js";
import { dropCharts, makeChart, resizeCharts, updateChart } from "./charts.js";
import { drawCurve, dropCurve } from "./curve.js";
import { followInsight, showInsight } from "./insight.js";

const EVERY_MS = 2000;

// ---- charts ----

let model = null, drawn = []; // [{chart, columns: () => [values...], limit}]

function addChart(parent, spec) {
  drawn.push({ chart: makeChart(byId(parent), spec), series: spec.series });
}

const of = (name, label, more = {}) => ({ name: label, values: () => column(name), ...more });
const limit = (value, label = "limit") => ({ name: label, values: (n) => Array(n).fill(value) });

function addQualityCharts(task) {
  const halfLives = history.columns.filter((one) => one.name === "auc" && one.task === task).map((one) => one.half_life);
  const first = halfLives[0], loss = model.tasks.find((one) => one.name === task)?.loss;
  if (loss !== "mse") {
    addChart("quality-charts", {
      title: "AUC by half-life", format: ratio(4), includeZero: false, least: 0.02,
      series: halfLives.map((name, i) => ({ name, band: true, values: () => column("auc", task, name), error: i === 0 ? () => column("auc_error", task, name) : null })),
    });
  }
  addChart("quality-charts", {
    title: `${loss === "mse" ? "Squared error" : "Log loss"}, half-life ${first}`, format: ratio(4), includeZero: false, least: 0.02,
    series: [{ name: loss === "mse" ? "mse" : "log loss", values: () => column(loss === "mse" ? "mse" : "logloss", task, first) }],
  });
  addChart("quality-charts", {
    title: `Calibration, half-life ${first}`, format: ratio(3), includeZero: false, least: 0.02,
    series: [{ name: "predicted / observed", values: () => column("calibration", task, first) }, limit(1, "right")],
  });
}

function addCharts() {
  const limits = model.limits;
  addChart("flow-charts", { title: "Samples a second", format: short, series: [of("samples_per_second", "trained")] });
  addChart("flow-charts", { title: "Lag behind the log", format: seconds, series: [of("lag_seconds", "lag")], empty: "not known: no broker answers" });
  addChart("flow-charts", { title: "Age of records when trained", format: seconds, series: [of("arrival_trained_p50", "median"), of("arrival_trained_p99", "p99")] });
  addChart("flow-charts", { title: "Age of records when published", format: seconds, series: [of("arrival_published_p50", "median"), of("arrival_published_p99", "p99")] });
  addChart("flow-charts", { title: "Epochs that wait for the delta topic", format: count, series: [of("outbox_epochs", "epochs")] });
  addChart("state-charts", { title: "Rows", format: short, series: [of("rows", "rows"), of("pending", "keys that wait for admission")] });
  addChart("state-charts", { title: "Rows a second", format: short, series: [of("admitted_per_second", "admitted"), of("expired_per_second", "expired")] });
  addChart("state-charts", { title: "Memory", format: bytes, binary: true, series: [of("resident_bytes", "process"), of("store_bytes", "tables"), limit(limits.memory_limit)] });
  addChart("state-charts", { title: "Journal", format: bytes, binary: true, series: [of("journal_bytes", "journal"), of("unfolded_bytes", "not folded"), limit(limits.journal_max)] });
  addChart("state-charts", { title: "Disk", format: bytes, binary: true, series: [of("cold_bytes", "cold store"), of("disk_free_bytes", "free")] });
}

function updateCharts() {
  const n = history.values[0]?.length ?? 0, times = Array.from({ length: n }, (_, i) => history.begin_ms + (history.first + i * history.step) * 1000);
  const ready = column("ready"), shaded = times.map((t, i) => ({ t, bad: ready[i] !== 1 }));
  const to = history.begin_ms + history.second * 1000, span = POINTS[history.step] * history.step * 1000;
  const range = [Math.max(to - span, Math.min(times[0], to - 60000)), to];
  for (const { chart, series } of drawn) {
    const values = series.map((one) => one.values(n)), errors = series.map((one) => (one.error ? one.error() : null));
    const banded = series.some((one) => one.band);
    const point = (s, i) => {
      const value = values[s][i] ?? null, error = errors[s] ? 1.96 * (errors[s][i] ?? 0) : 0;
      return !banded ? value : value === null ? [null, null, null] : [value - error, value, value + error];
    };
    updateChart(chart, times.map((t, i) => [new Date(t), ...series.map((_, s) => point(s, i))]), shaded, history.step, range);
  }
}

// ---- numbers ----

function tile(key, name, value, words, more = "", share = null) {
  let box = byId(`tile-${key}`);
  if (!box) {
    box = element("div", { id: `tile-${key}` }, element("dt", { textContent: name }), element("dd", { className: "value" }), element("dd", { className: "more" }, element("span")));
    byId("tiles").append(box);
  }
  const [label, shown, below] = box.children;
  text(label, name);
  text(shown, words);
  Object.assign(shown.dataset, { key, value: value ?? "" });
  text(below.firstChild, more);
  if (share === null) return;
  const meter = byId(`meter-${key}`) ?? element("div", { id: `meter-${key}` }, element("i"));
  meter.className = share > 0.9 ? "meter full" : "meter";
  meter.firstChild.style.width = `${Math.min(100, 100 * share)}%`;
  below.append(meter);
}

function sum(status, pick) {
  return Object.values(status.tables).reduce((total, table) => total + pick(table), 0);
}
const expired = (table) => Object.values(table.expired).reduce((a, b) => a + b, 0);

function showTiles(status, auc) {
  const rate = newest(column("samples_per_second")), lag = status.ingest.lag_ms, age = newest(column("arrival_published_p99"));
  const rows = sum(status, (table) => table.rows.ram), resident = newest(column("resident_bytes")), most = model.limits.memory_limit;
  const [name, task] = Object.entries(auc.tasks)[0] ?? [], [half, block] = Object.entries(task?.decayed ?? {})[0] ?? [];
  tile("samples", "Samples a second", status.samples.trained, short(rate), `${count(status.samples.trained)} trained`);
  tile("lag_ms", "Lag", lag, lag === null ? "not known" : seconds(lag / 1000), status.ingest.connected ? (status.ingest.at_end ? "at the end of the log" : "behind the newest record") : "no broker answers");
  tile("published_age", "Age when published", age, seconds(age), "p99, since the record's timestamp");
  if (block) {
    const number = block.auc ?? block.mse ?? null, isAuc = block.mse === undefined;
    tile("auc", `${isAuc ? "AUC" : "Squared error"}, ${name}`, number, unknown(number) ? "–" : number.toFixed(4),
      unknown(number) && block.outside > 0.01 ? "the scores lie beyond the range in which AUC is measured" : `half-life ${half} of event time`);
  }
  tile("rows", "Rows", rows, short(rows), `${count(sum(status, (table) => table.pending))} keys wait for admission`);
  tile("memory", "Memory", resident, bytes(resident), `of ${bytes(most)}`, unknown(resident) ? null : resident / most);
}

// 1.96 standard errors by Hanley and McNeil, as the daemon computes them for /history.
function interval(block) {
  const a = block.auc, p = block.weight * block.positive_rate, n = block.weight - p;
  if (unknown(a) || !(p >= 1 && n >= 1)) return "";
  const q1 = a / (2 - a), q2 = (2 * a * a) / (1 + a);
  return ` ± ${(1.96 * Math.sqrt((a * (1 - a) + (p - 1) * (q1 - a * a) + (n - 1) * (q2 - a * a)) / (p * n))).toFixed(4)}`;
}

function showTasks(auc) {
  const rows = [];
  for (const [name, task] of Object.entries(auc.tasks))
    for (const [half, block] of [...Object.entries(task.decayed), ["lifetime", task.lifetime]])
      rows.push([`${name}, ${half}`,
        { text: unknown(block.auc) ? "–" : block.auc.toFixed(4) + interval(block), key: `auc ${name} ${half}`, value: block.auc ?? "" },
        block.mse === undefined ? ratio(4)(block.logloss) : `${ratio(4)(block.mse)} (mse)`, ratio(3)(block.calibration),
        block.positive_rate === null ? "–" : block.positive_rate.toPrecision(3), short(block.weight)]);
  fillTable("tasks", ["Task, half-life", "AUC", "Log loss", "Calibration", "Positive rate", "Weight"], rows);
}

function showTables(status) {
  const maximum = Object.fromEntries(model.tables.map((table) => [table.name, table.rows_max]));
  fillTable("tables", ["Table", "Rows", "Rows at most", "Waiting keys", "In memory", "Bytes", "Admitted", "Rejected", "Expired"],
    Object.entries(status.tables).map(([name, table]) => [name, { text: count(table.rows.ram), key: `rows ${name}`, value: table.rows.ram },
      maximum[name] ? count(maximum[name]) : "–", count(table.pending), count(table.resident), bytes(table.bytes), count(table.admitted), count(table.rejected), count(expired(table))]));
}

function showEpochs(status) {
  const stages = [["Cut", "epoch", "the trainer ended it"], ["Durable", "durable", "on disk, synced"], ["Folded", "folded", "in the cold store"],
    ["Sent", "sent", "to the delta topic"], ["Acknowledged", "acked", "by the delta topic"]];
  fillTable("epochs", ["Stage", "Newest epoch", "Means"], [
    ...stages.map(([name, key, words]) => [name, { text: count(status[key]), key, value: status[key] }, { text: words, kind: "text" }]),
    ["Outbox", { text: count(status.outbox.epochs), key: "outbox_epochs", value: status.outbox.epochs },
      { text: `${bytes(status.outbox.waiting_bytes)} wait for the delta topic`, kind: "text" }],
    ["Held back", status.held ? "yes" : "no", { text: status.held || "publishing is not held", kind: "wrap" }],
    ["Reading", status.paused ? "paused" : "on", { text: status.paused || "reading is not paused by a limit", kind: "wrap" }],
  ], `Epochs of timeline ${status.timeline}`);
  const stagesOfAge = ["trained", "durable", "published"];
  fillTable("ages", ["Stage", "Median", "p90", "p99"], [
    ...stagesOfAge.map((name) => [`Record to ${name}`, ...["p50", "p90", "p99"].map((q) => seconds(status.freshness[`arrival_${name}`][q]))]),
    ...stagesOfAge.map((name) => [`Event to ${name}`, ...["p50", "p90", "p99"].map((q) => seconds(status.freshness[name][q]))]),
  ], "Age of samples since the start");
  fillTable("partitions", ["Topic and partition", "Offset", "Lag", "Samples", "Waits"], status.partitions.map((one) => [`${one.topic}/${one.partition}`,
    count(one.offset), one.lag < 0 ? "–" : count(one.lag), count(one.samples), one.waits ? "yes" : "no"]));
  text(byId("partitions-title"), `Partitions (${status.partitions.length})`);
}

// ---- replicas ----

function replicaRow(one) {
  const serves = one.epoch > 0 ? `${count(one.epoch)}${one.epochs_behind === null ? ` of timeline ${one.timeline}` : ""}` : "nothing yet";
  const heard = one.silent ? `silent for ${seconds(one.silence)}` : `${seconds(one.silence)} ago`;
  return [one.name, { text: seconds(one.freshness), key: `freshness ${one.name}`, value: one.freshness ?? "" }, { text: serves, key: `serves ${one.name}`, value: one.epoch },
    count(one.epochs_behind), { text: heard, kind: one.silent ? "flagged" : "" }, short(one.rows), short(one.scores_per_second), { text: one.problem || "–", kind: one.problem ? "wrap flagged" : "wrap" }];
}

function showReplicas(replicas) {
  byId("replicas-section").hidden = !replicas;
  if (!replicas) return;
  const { slowest, silent, starting } = replicas;
  tile("replicas", "Replicas", replicas.count, count(replicas.count), [silent > 0 ? `${count(silent)} silent` : "", starting > 0 ? `${count(starting)} starting` : ""]
    .filter((one) => one).join(", ") || "that acknowledge epochs");
  tile("served_age", "Age of what is served", slowest?.freshness ?? null, slowest ? seconds(slowest.freshness) : "–", slowest ? `by the slowest, ${slowest.name}` : "no replica serves an epoch");
  const words = replicas.problem || (replicas.count === 0 ? `No replica has acknowledged an epoch on ${replicas.topic} yet: give each replica a name (docs/serving.md, "The fleet").`
    : "Freshness is how old the newest sample is in what a replica serves. A silent replica has ended, or still serves its last epoch." +
      (replicas.unlisted > 0 ? ` The slowest are listed; ${count(replicas.unlisted)} more are not.` : ""));
  text(byId("replicas-words"), words);
  byId("replicas-scroll").hidden = replicas.list.length === 0;
  fillTable("replicas", ["Replica", "Freshness", "Serves epoch", "Epochs behind", "Last record", "Rows", "Scores a second", "Problem"], replicas.list.map(replicaRow),
    "Replicas, the slowest first");
}

// ---- state ----

// What to do about a problem, by its place (docs/http.md, "Problems"); the problem's own text says what is wrong.
const ADVICE = {
  service: "The daemon starts or ends. If it stays so, its log names what it waits for.",
  publisher: "Replicas get nothing new. Nothing is lost: epochs wait in the journal until the delta topic takes them.",
  trainer: "Reading is paused until there is room again. Nothing is lost: records stay in their topic.",
  durable: "Look at what it waits for: the disk under state_dir, or the topic of the dead letters.",
  brokers: "Nothing is lost: reading continues where it stopped.",
  streams: "Check these partitions or files. The others are read meanwhile.",
  transactions: "A producer has left a transaction open. Reading of its partition continues when the transaction ends or times out.",
  records: "Look at what the dead letters say, and correct the producer or ingest.format; or the clock, where the text names one.",
  dead_letter_sink: "Check the dead-letter topic or the disk. Until it takes the letters, no epoch becomes durable.",
  lag: "If the lag falls, wait. If it grows, give the daemon more cores or the stream fewer samples.",
  journal: "Make room under state_dir, or bring the delta topic back: acknowledged epochs are deleted.",
  fold: "Check the disk under state_dir: space, errors, speed.",
  savepoint: "Check the disk and the folder of the savepoints.",
  snapshot: "Check snapshot.dir and the output of snapshot.hook. Replicas that begin now need a snapshot.",
  dead_letters: "Look at the newest dead letters: each has its reason.",
  numbers: "Publishing is held, so replicas keep the last good model. Look for broken values in the stream, or lower the learning rates.",
  watermark: "Set this host's clock (NTP), or look for event times in the future.",
  stream: "Look at the topics that are read.",
  ingest: "If it does not end, restart the daemon: nothing is lost.",
  log: "Check what reads standard error.",
};

const phases = { recovering: "Recovering: the state is loaded.", draining: "Draining: the last epoch is made durable and published, then the daemon ends." };

function showState(status) {
  const ready = newest(column("ready")) === 1, running = status.phase === "running";
  const words = !running ? phases[status.phase] : ready ? `Running, ready${status.problems.length > 0 ? ", with problems." : "."}`
    : `Running, not ready${status.problems.length > 0 ? ", with problems." : "."}`;
  text(byId("state"), words);
  byId("state").className = `state ${running && ready && status.problems.length === 0 ? "good" : "bad"}`;
  const list = status.problems.map((one) => `${one.where} ${one.text}`).join("\n");
  if (byId("problem-list").dataset.shown !== list) {
    byId("problem-list").dataset.shown = list;
    byId("problem-list").replaceChildren(...status.problems.map((one) =>
      element("li", {}, element("b", { textContent: one.where }), one.text, " ",
        element("time", { dateTime: new Date(one.since_ms).toISOString(), textContent: `since ${when(one.since_ms)}` }),
        element("span", { className: "advice", textContent: ADVICE[one.where] ?? "" }))));
  }
  document.title = `${running && ready ? "" : "! "}${status.model} · Freshet`;
}

let answered = Date.now(), newestAuc = null;

function showSilence(error) {
  text(byId("state"), `No answer since ${clock(answered)}: the daemon has ended, or this browser does not reach it. The numbers are from then.`);
  byId("state").className = "state bad";
  document.body.classList.add("stale");
  console.info(error.message);
}

// ---- turns ----

function chooseTask() {
  const names = [...new Set(history.columns.filter((one) => one.task).map((one) => one.task))];
  if (byId("task").length !== names.length) {
    byId("task").replaceChildren(...names.map((name) => element("option", { textContent: name })));
    byId("task-choice").hidden = names.length < 2;
  }
  return byId("task").value;
}

function showQuality() {
  drawn = drawn.filter(({ chart }) => !byId("quality-charts").contains(chart.figure));
  dropCurve();
  dropCharts(byId("quality-charts"));
  addQualityCharts(chooseTask());
}

// Charts that are drawn while they are hidden have no size: the overview's are drawn when it is open.
function drawOverview() {
  if (open !== "overview") return;
  const task = chooseTask();
  updateCharts();
  drawCurve(byId("quality-charts"), task, newestAuc.tasks[task]);
}

async function turn() {
  const [status, auc] = await Promise.all([get("/status"), get("/auc"), followHistory()]);
  if (!model) {
    model = await get("/model");
    document.body.classList.add("scripted");
    drawModel(model);
    addCharts();
    showQuality();
  }
  answered = Date.now();
  document.body.classList.remove("stale");
  text(byId("seen"), `as of ${clock(answered)}, every ${EVERY_MS / 1000} s`);
  showState(status);
  showTiles(status, auc);
  showTasks(auc);
  showTables(status);
  showEpochs(status);
  showReplicas(status.replicas);
  newestAuc = auc;
  drawOverview();
  if (open === "insight") await showInsight();
}

// ---- tabs ----

const tabs = [...document.querySelectorAll("[role=tab]")];
let open = "overview";

function openTab(name) {
  open = name;
  for (const tab of tabs) {
    const mine = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", mine);
    tab.tabIndex = mine ? 0 : -1;
    byId(tab.getAttribute("aria-controls")).hidden = !mine;
  }
  window.history.replaceState(null, "", name === "overview" ? location.pathname : `#${name}`);
  if (name === "overview" && model) {
    drawOverview();
    resizeCharts();
  }
  turns();
}

function followTabs() {
  for (const tab of tabs) {
    tab.addEventListener("click", () => openTab(tab.getAttribute("aria-controls")));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: tabs.length - 1, ArrowRight: 1 }[event.key], to = { Home: 0, End: tabs.length - 1 }[event.key] ?? (tabs.indexOf(tab) + step) % tabs.length;
      if (!tabs[to]) return;
      event.preventDefault();
      tabs[to].focus();
      tabs[to].click();
    });
  }
}

// ---- the clock ----

let waiting = null, busy = false, again = false;

// One turn at a time; a call during a turn is one more turn after it.
async function turns() {
  again = busy;
  if (busy || document.hidden) return; // nobody looks: nothing is asked
  clearTimeout(waiting);
  busy = true;
  try {
    await turn();
  } catch (error) {
    showSilence(error);
  }
  busy = false;
  waiting = setTimeout(turns, again ? 0 : EVERY_MS);
}

document.addEventListener("visibilitychange", turns);
byId("task").addEventListener("change", () => { showQuality(); drawOverview(); });
for (const input of document.querySelectorAll("input[name=range]"))
  input.addEventListener("change", () => { forget(+input.value); turns(); });
followTabs();
followInsight();
openTab(location.hash === "#insight" ? "insight" : "overview");
