// Charts of the history. A chart is a figure: a title, the values of its series at one moment as a table (the newest moment, or the one under the
// pointer or chosen with the arrow keys, in all charts at once), and the plot, which dygraphs draws.
//
// dygraphs is loaded by a script of its own (global Dygraph). Styles are set through the CSS object model only, because the content security policy
// allows no style in markup; so dygraphs' own legend, which sets such styles, is taken out of its plug-ins before the first chart.
import { text, element } from "./elements.js";

const DASHES = [null, [7, 3], [2, 3], [10, 3, 2, 3]];
const charts = [];
let selected = null; // a moment (ms) that all charts show; null: the newest

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const colours = () => ["--accent", "--accent-2", "--accent-3", "--soft"].map(colour);

function swatch(index) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 20 8");
  svg.setAttribute("aria-hidden", "true");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
  for (const [name, value] of Object.entries({ x1: 0, y1: 4, x2: 20, y2: 4, "stroke-width": 2, stroke: colours()[index % 4] })) line.setAttribute(name, value);
  if (DASHES[index % 4]) line.setAttribute("stroke-dasharray", DASHES[index % 4].join(" "));
  svg.append(line);
  return svg;
}

// Spans in which the daemon was not ready, or not there, shaded in every chart.
function shade(context, area, graph, chart) {
  const rows = chart.shaded;
  context.fillStyle = colour("--shade");
  for (let i = 0; i < rows.length; i++) {
    if (!rows[i].bad) continue;
    const begin = rows[i].t;
    while (i + 1 < rows.length && rows[i + 1].bad) i++;
    const left = Math.max(area.x, graph.toDomXCoord(begin)), right = Math.min(area.x + area.w, graph.toDomXCoord(rows[i].t + chart.step * 1000));
    if (right > left) context.fillRect(left, area.y, right - left, area.h);
  }
}

const clock = (ms, seconds) => new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", ...(seconds ? { second: "2-digit" } : {}), hour12: false });

// series: [{name, band}] with band: values are [low, value, high]. format(value): a text. includeZero: the axis begins at 0. binary: its marks are powers
// of two. least: the axis is at least so long, so that its marks differ where values hardly do; 0: as the values are.
export function makeChart(parent, { title, series, format, includeZero = true, binary = false, least = 0, empty = "no value" }) {
  const plot = element("div", { className: "plot", tabIndex: 0 });
  const at = element("span", { className: "at" });
  const body = element("tbody");
  const legend = element("table", { className: "legend" }, element("caption", { className: "hidden", textContent: `${title}: values` }), body);
  const figure = element("figure", {}, element("figcaption", {}, element("span", { textContent: title }), at), legend, plot);
  parent.append(figure);
  plot.setAttribute("role", "img");
  const chart = { title, series, format, includeZero, binary, least, empty, plot, at, body, figure, graph: null, rows: [], shaded: [], step: 1, cells: [] };
  series.forEach((one, i) => {
    const cell = element("td");
    const row = element("tr", {}, element("th", { scope: "row" }, swatch(i), one.name), cell);
    body.append(row);
    chart.cells.push(cell);
  });
  plot.addEventListener("keydown", (event) => onKey(event, chart));
  charts.push(chart);
  return chart;
}

export function dropCharts(parent) {
  for (const chart of charts.filter((one) => parent.contains(one.figure))) {
    chart.graph?.destroy();
    charts.splice(charts.indexOf(chart), 1);
  }
  parent.replaceChildren();
}

function onKey(event, chart) {
  const step = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 }[event.key];
  if (event.key === "Escape") select(null);
  if (!step || chart.rows.length === 0) return;
  event.preventDefault();
  const times = chart.rows.map((row) => +row[0]);
  const now = selected === null ? times.length - 1 : times.indexOf(selected);
  select(times[Math.min(times.length - 1, Math.max(0, now + step))]);
}

function select(t) {
  selected = t;
  for (const chart of charts) show(chart);
}

const plain = (value) => (Array.isArray(value) ? value[1] : value);

// The table of a chart, at the selected moment or the newest one.
function show(chart) {
  let row = chart.rows[chart.rows.length - 1];
  if (selected !== null) row = chart.rows.find((one) => +one[0] === selected) ?? row;
  const nothing = !row?.slice(1).some((value) => plain(value) !== null);
  text(chart.at, nothing ? chart.empty : selected !== null ? clock(+row[0], chart.step === 1) : "");
  const values = chart.series.map((_, i) => (row ? plain(row[i + 1]) : null));
  chart.series.forEach((one, i) => {
    const value = row?.[i + 1];
    const band = one.band && Array.isArray(value) && value[0] !== null && value[2] > value[0] ? ` ± ${((value[2] - value[0]) / 2).toFixed(4)}` : "";
    text(chart.cells[i], values[i] === null || values[i] === undefined ? "–" : chart.format(values[i]) + band);
  });
  const words = chart.series.map((one, i) => `${one.name} ${chart.cells[i].textContent}`).join(", ");
  chart.plot.setAttribute("aria-label", `Chart of ${chart.title}: ${words}. Arrow keys move through time.`);
  const index = selected === null || !chart.graph ? -1 : chart.rows.findIndex((one) => +one[0] === selected);
  if (chart.graph && index >= 0) chart.graph.setSelection(index);
  else chart.graph?.clearSelection();
}

const options = (chart) => ({
  colors: colours(), axisLineColor: colour("--line"), gridLineColor: colour("--line"), fillAlpha: +colour("--band"),
  series: Object.fromEntries(chart.series.map((one, i) => [one.name, { strokePattern: DASHES[i % 4], strokeWidth: i === 0 ? 2 : 1.5 }])),
});

// null: as dygraphs chooses.
function valueRange(chart) {
  let low = Infinity, high = -Infinity;
  for (const row of chart.rows)
    for (const value of row.slice(1).flat()) {
      if (value === null) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
  const spare = (chart.least - (high - low)) / 2;
  return high >= low && spare > 0 ? [low - spare, high + spare] : null;
}

// rows: [[Date, value...]...] in order of time; shaded: [{t, bad}]; range: [from, to] in ms.
export function updateChart(chart, rows, shaded, step, range) {
  Object.assign(chart, { rows, shaded, step });
  if (rows.length === 0) return;
  const shown = { dateWindow: range, valueRange: valueRange(chart) };
  const labels = ["time", ...chart.series.map((one) => one.name)];
  if (chart.graph) {
    chart.graph.updateOptions({ file: rows, ...shown });
  } else {
    Dygraph.PLUGINS = Dygraph.PLUGINS.filter((plugin) => plugin !== Dygraph.Plugins.Legend);
    chart.graph = new Dygraph(chart.plot, rows, {
      labels, ...shown, includeZero: chart.includeZero, customBars: chart.series.some((one) => one.band), ...options(chart),
      interactionModel: {}, gridLineWidth: 1, axisLineWidth: 1, highlightCircleSize: 3, labelsKMB: !chart.binary, labelsKMG2: chart.binary, xRangePad: 4, yRangePad: 4, rightGap: 8,
      axes: {
        x: { axisLabelFormatter: (date) => clock(+date, date.getSeconds() !== 0), pixelsPerLabel: 78, drawGrid: false },
        y: { axisLabelFormatter: (value) => chart.format(value, true), axisLabelWidth: 58, pixelsPerLabel: 22 },
      },
      underlayCallback: (context, area, graph) => shade(context, area, graph, chart),
      highlightCallback: (event, x) => selected !== x && select(x),
      unhighlightCallback: () => select(null),
    });
  }
  show(chart);
}

// After the charts were hidden: their size may have changed meanwhile.
export function resizeCharts() {
  for (const chart of charts) chart.graph?.resize();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const chart of charts) {
    chart.graph?.updateOptions(options(chart));
    chart.body.querySelectorAll("svg").forEach((svg, i) => svg.replaceWith(swatch(i)));
  }
});
