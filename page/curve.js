// The calibration curve of a task: what was predicted and what came, in buckets of the score. Both axes are logits with probabilities as marks, so that
// a model that is wrong by a factor of the odds lies at one distance from the diagonal everywhere.
import { colour, colours } from "./charts.js";
import { byId, element, fillTable, short, significant, text, unknown } from "./elements.js";

const MARKS = [1e-6, 1e-5, 1e-4, 1e-3, 0.003, 0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 0.99, 0.999, 0.9999];
const MARGIN = 0.25; // of a logit
const MARK_PIXELS = 38;
const AXES = "predicted across, observed upwards";
const logit = (p) => Math.log(p / (1 - p));

let shown = null; // {figure, plot, at, judged, choice, graph, buckets, redraw}

const percent = (p) => (unknown(p) ? "–" : p === 0 ? "0 %" : `${p < 1e-5 ? significant(100 * p) : (100 * p).toPrecision(3)} %`);
const words = (bucket) => `predicted ${percent(bucket.predicted)}, observed ${percent(bucket.observed)} (${percent(bucket.low)} to ${percent(bucket.high)})`;
const isOutside = (bucket) => bucket.predicted < bucket.low || bucket.predicted > bucket.high;

function makeFigure(parent) {
  const at = element("p", { className: "judged" }), plot = element("div", { className: "plot square" }), choice = element("select");
  const label = element("label", { className: "choice" }, "Half-life ", choice), judged = element("p", { className: "judged" });
  const figure = element("figure", { className: "curve" }, element("figcaption", {}, element("span", { textContent: "Calibration curve" }), label), judged, plot,
    at);
  plot.setAttribute("role", "img");
  choice.addEventListener("change", () => shown.redraw());
  text(at, AXES);
  parent.insertBefore(figure, parent.children[2] ?? null); // at three columns: beside the two first charts and what is below them
  shown = { figure, plot, at, judged, choice, graph: null };
}

function marks(from, to, pixels) {
  const within = MARKS.map((p) => ({ v: logit(p), label: `${significant(100 * p)} %` })).filter(({ v }) => v >= from && v <= to);
  let last = -Infinity;
  return within.filter(({ v }) => ((v - last) / (to - from)) * pixels >= MARK_PIXELS && (last = v, true));
}

const look = () => ({
  colors: [colours()[0], colours()[1]], axisLineColor: colour("--line"), gridLineColor: colour("--line"), fillAlpha: 1.5 * colour("--band"),
});

function plotBuckets(buckets) {
  const inside = buckets.flatMap((one) => [one.predicted, one.observed, one.high]).filter((p) => p > 0 && p < 1).map(logit);
  const from = Math.min(...inside) - MARGIN, to = Math.max(...inside) + MARGIN, clip = (p) => Math.min(to, Math.max(from, logit(p)));
  const nothing = [null, null, null], equal = (x) => [x, x, x];
  const rows = [[from, nothing, equal(from)], ...buckets.map((one) => [clip(one.predicted), [clip(one.low), clip(one.observed), clip(one.high)], equal(clip(one.predicted))]),
    [to, nothing, equal(to)]];
  const ranges = { dateWindow: [from, to], valueRange: [from, to] };
  if (shown.graph) {
    shown.graph.updateOptions({ file: rows, ...ranges });
    return;
  }
  const axis = { ticker: marks, axisLabelFormatter: (v) => `${v}` };
  shown.graph = new Dygraph(shown.plot, rows, {
    labels: ["predicted", "observed", "right"], customBars: true, interactionModel: {}, gridLineWidth: 1, axisLineWidth: 1, rightGap: 12, ...look(), ...ranges,
    series: { observed: { drawPoints: true, pointSize: 3.5, strokeWidth: 2, highlightCircleSize: 5 }, right: { strokePattern: [7, 3], strokeWidth: 1.5, highlightCircleSize: 0 } },
    axes: { x: { ...axis, drawGrid: false }, y: { ...axis, axisLabelWidth: 58 } },
    highlightCallback: (event, x, points, row) => text(shown.at, shown.buckets[row - 1] ? words(shown.buckets[row - 1]) : AXES),
    unhighlightCallback: () => text(shown.at, AXES),
  });
}

export function dropCurve() {
  shown?.graph?.destroy();
  shown?.figure.remove();
  shown = null;
}

// task: as in /auc; null in `curve`: the task predicts a value, and nothing is drawn.
export function drawCurve(parent, name, task) {
  const table = byId("curve-buckets"), details = table.closest("details");
  details.hidden = !task?.curve;
  if (!task?.curve) return dropCurve();
  if (!shown) makeFigure(parent);
  const halfLives = Object.keys(task.curve);
  if (shown.choice.length !== halfLives.length) shown.choice.replaceChildren(...halfLives.map((one) => element("option", { textContent: one })));
  const halfLife = shown.choice.value, buckets = task.curve[halfLife] ?? [];
  Object.assign(shown, { buckets, redraw: () => drawCurve(parent, name, task) });
  const outside = buckets.filter(isOutside), judged = buckets.length === 0 ? "no sample yet" : outside.length === 0
    ? `right within the 95 % interval in all ${buckets.length} buckets` : `${outside.length} of ${buckets.length} buckets lie outside their 95 % interval`;
  text(shown.judged, judged);
  shown.plot.setAttribute("aria-label", `Calibration curve of ${name}, half-life ${halfLife}: ${judged}. The table of its buckets follows the charts.`);
  if (buckets.length > 0 && !shown.figure.closest("[hidden]")) plotBuckets(buckets);
  fillTable("curve-buckets", ["Bucket by score", "Predicted", "Observed", "95 % interval", "Weight", "Predicted / observed"], buckets.map((one, i) => [`${i + 1}`,
    { text: percent(one.predicted), key: `predicted ${i}`, value: one.predicted }, { text: percent(one.observed), key: `observed ${i}`, value: one.observed },
    `${percent(one.low)} to ${percent(one.high)}${isOutside(one) ? ", predicted outside" : ""}`, short(one.weight),
    one.observed > 0 ? (one.predicted / one.observed).toFixed(2) : "–"]), `Calibration curve of ${name}, half-life ${halfLife}`);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => shown?.graph?.updateOptions(look()));
