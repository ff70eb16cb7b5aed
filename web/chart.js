// Charts by uPlot: lines over time, pools over time, and points of plans. Each says in words what it shows, is read by
// arrow keys, too, and is drawn again where its width or the theme changes.
import { h, fill, put } from "./dom.js";
import { count, shortSpan, span, TIME_STEPS, usd, usdTicks } from "./format.js";

const uPlot = globalThis.uPlot; // vendor/uPlot.iife.min.js is loaded before the modules

const AXIS = 54, FONT = '11px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';
const WHOLE = Array.from({ length: 9 }, (_, power) => [1, 2, 5].map((m) => m * 10 ** power)).flat();

const TIME_MARKS = [1, 10, 60, 300, 1800, 3600, 10800, 21600, 43200, 86400, 172800, 345600, 604800, 1209600, 2419200]; // on a logarithmic axis

// ---- theme ----

const shown = new Set();
function redrawAll() { for (const one of shown) one(); }
new MutationObserver(redrawAll).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
export const isDark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
// Calls it whenever the theme changes, until what it returns is called.
export function onTheme(call) { shown.add(call); return () => shown.delete(call); }
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const faint = (name, alpha) => colour(name) + Math.round(alpha * 255).toString(16).padStart(2, "0");

// ---- a place for a plot ----

// make(data, width): uPlot's options and data, and `key`, which changes where the plot is to be made anew. words(data): what
// a screen reader says. reading(data, index): the same at a point.
function holder({ height, words, make, reading, after, empty }) {
  const plot = h("div.plot", { role: "img", tabindex: "0", "aria-label": "not read yet", "aria-description": "Left and right arrows read its values." }, h("p.nothing.soft", {}, "…"));
  const said = h("span.unseen", { role: "status" });
  const el = h("div.chartbox", {}, plot, said);
  plot.style.height = height + "px";
  let data = null, made = null, u = null;
  const end = () => { u?.destroy(); u = null; made = null; };
  const draw = () => {
    if (data === null || !el.isConnected || el.clientWidth === 0) return;
    plot.setAttribute("aria-label", words(data));
    const next = make(data, el.clientWidth);
    if (next === null) {
      end();
      fill(plot, h("p.nothing.soft", {}, empty ?? "nothing yet"));
    } else if (u === null || made !== next.key) {
      end();
      fill(plot);
      u = new uPlot({ width: el.clientWidth, height, ...next.options }, next.data, plot);
      made = next.key;
    } else u.setData(next.data);
    after?.(u, data);
  };
  const again = () => { end(); draw(); };
  const observer = new ResizeObserver(() => {
    if (u === null) draw();
    else if (el.clientWidth > 0 && u.width !== el.clientWidth) u.setSize({ width: el.clientWidth, height });
  });
  observer.observe(el);
  const forget = onTheme(again);
  plot.addEventListener("keydown", (e) => {
    const n = u?.data[0].length ?? 0, pace = Math.max(1, Math.round(n / 60)), at = u?.cursor.idx ?? u?.data[1].findLastIndex((v) => v !== null);
    const to = { ArrowLeft: at - pace, ArrowRight: at + pace, Home: 0, End: n - 1 }[e.key];
    if (to === undefined || n === 0) return;
    e.preventDefault();
    const index = Math.min(n - 1, Math.max(0, to));
    u.setCursor({ left: u.valToPos(u.data[0][index], "x"), top: u.over.clientHeight / 2 });
    put(said, reading(data, index));
  });
  plot.addEventListener("blur", () => { u?.setCursor({ left: -10, top: -10 }); put(said, ""); });
  el.update = (next) => { data = next; draw(); };
  el.stop = () => { observer.disconnect(); forget(); end(); };
  return el;
}

const axis = (more) => ({ stroke: colour("soft"), font: FONT, size: AXIS, gap: 6, grid: { stroke: colour("grid"), width: 1 }, ticks: { show: false }, ...more });
const timeAxis = () => axis({ size: 26, space: 84, incrs: TIME_STEPS, values: (u, splits) => splits.map(shortSpan), grid: { show: false }, border: { show: true, stroke: colour("line"), width: 1 } });

// ---- lines over time ----

// Charts of one group show the same moment at the pointer, and the same part of the run.
export function group() { return { name: `group-${Math.random()}`, part: null, plots: new Set() }; }
function choosePart(all, part) {
  all.part = part;
  for (const one of all.plots) one();
}

// options: title, value(v) as text, ticks(splits), fromZero, stepped, whole, height, group, right: value and ticks of a second axis.
// data: {x, end, series: [{name, y, line, dashed, area, right, band, text(i)}], pauses, top}. `band`: filled up to the series
// before it, with which it is one line of the legend.
export function lineChart(options) {
  const legend = h("div.keys", { role: "group", "aria-label": `Lines of ${options.title}` });
  const hidden = new Set();
  let current = null, plotted = null, keysKey = "";
  const valueOf = (s) => (s.right ? options.right.value : options.value);
  const finite = (s) => s.y.filter(Number.isFinite);
  const words = (d) => `${options.title}: ` + named(d).map((s) => { const v = finite(s); return v.length ? `${s.name} from ${valueOf(s)(v[0])} to ${valueOf(s)(v[v.length - 1])}, lowest ${valueOf(s)(lowest(v))}, highest ${valueOf(s)(highest(v))}` : `${s.name}: nothing yet`; }).join("; ");
  const at = (s, i) => (s.text ? s.text(i) : Number.isFinite(s.y[i]) ? valueOf(s)(s.y[i]) : "");
  const reading = (d, i) => [`at ${span(d.x[i])}`, ...named(d).map((s) => [s.name, at(s, i)]).filter(([, v]) => v).map((pair) => pair.join(" "))].join(", ");

  const el = holder({ height: options.height ?? 216, words, reading, empty: options.empty, make: (data) => {
    if (!data.series.some((s) => s.y.some(Number.isFinite))) return null;
    return { key: data.series.map((s) => s.name).join("|"), data: [data.x, ...data.series.map((s) => s.y)], options: settings(data) };
  }, after: (u, data) => { plotted = u; write(data); } });
  const update = el.update, stop = el.stop;
  const repart = () => {
    if (plotted === null) return;
    plotted.setScale("x", { min: 0, max: 1 }); // its range says the rest
    write(current);
  };
  el.update = (data) => { current = data; update(data); };
  el.stop = () => { options.group?.plots.delete(repart); stop(); };
  el.legend = legend;
  options.group?.plots.add(repart);
  return el;

  function settings(data) {
    return {
      legend: { show: false },
      cursor: { y: false, sync: options.group ? { key: options.group.name } : undefined, drag: { x: Boolean(options.group), y: false, setScale: false, dist: 8 }, points: { show: !options.stepped, size: 7, width: 0, fill: (u, i) => colour(`series-${current.series[i - 1].line}`) }, dataIdx: (u, i, index, t) => before(index, t), bind: { dblclick: () => () => { choosePart(options.group, null); } } },
      scales: { x: { time: false, range: () => options.group?.part ?? [0, Math.max(current.end, 1e-9)] }, y: { range: (u, min, max) => range(min, max) }, usd: { range: (u, min, max) => [0, Math.max(current.topRight ?? 0, max ?? 0, 1e-9) * 1.06] } },
      axes: [timeAxis(), axis({ space: 38, values: (u, splits) => options.ticks?.(splits) ?? splits.map(options.value), ...(options.whole ? { incrs: WHOLE } : options.times ? { incrs: TIME_STEPS } : {}) }), ...(options.right ? [axis({ scale: "usd", side: 1, space: 38, grid: { show: false }, values: (u, splits) => options.right.ticks(splits) })] : [])],
      padding: [10, options.right ? 0 : 24, 0, 0],
      series: [{}, ...data.series.map((s, i) => ({
        show: !hidden.has(s.name), scale: s.right ? "usd" : "y", stroke: colour(`series-${s.line}`), width: s.band !== undefined ? 0.8 : 1.8, dash: s.dashed ? [5, 4] : undefined,
        fill: s.area ? faint(`series-${s.line}`, 0.16) : undefined, paths: options.stepped && !s.right ? uPlot.paths.stepped({ align: 1 }) : undefined,
        points: { show: () => finite(current.series[i]).length === 1, size: 5, width: 0, fill: colour(`series-${s.line}`) },
      }))],
      bands: data.series.flatMap((s, i) => (s.band ? [{ series: [i, i + 1], fill: faint(`series-${s.line}`, 0.22) }] : [])),
      hooks: { drawAxes: [(u) => drawPauses(u, current.pauses ?? [])], setCursor: [() => write(current)], setSelect: [(u) => choose(u)] },
    };
  }
  // A stair has the value of its last step.
  function before(index, t) { return options.stepped && index > 0 && current.x[index] > t ? index - 1 : index; }
  function range(min, max) {
    if (min === null) return [0, 1];
    let low = options.fromZero ? 0 : min, high = Math.max(max, current.top ?? max);
    if (high - low < 1e-12) { high += Math.abs(high) * 0.1 || 1; if (!options.fromZero) low -= Math.abs(low) * 0.1; }
    return [options.fromZero ? 0 : low - (high - low) * 0.06, high + (high - low) * 0.06];
  }
  function choose(u) {
    const { left, width } = u.select;
    if (width <= 0) return;
    const part = [Math.max(0, u.posToVal(left, "x")), u.posToVal(left + width, "x")];
    u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    choosePart(options.group, part);
  }
  // The legend has the values at the pointer, or the newest ones.
  function write(data) {
    const list = named(data), key = list.map((s) => s.name).join("|") + Boolean(options.group?.part);
    if (key !== keysKey) {
      keysKey = key;
      fill(legend, h("time", {}), list.map((s) => h("button.key-line", { type: "button", "aria-pressed": String(!hidden.has(s.name)), onclick: (e) => toggle(s.name, e.currentTarget) }, h(`i.k${s.line}`, { class: s.dashed ? "dashed" : s.band !== undefined || s.area ? "filled" : "" }), s.name, h("b", {}))),
        options.group?.part ? h("button.key-line.whole", { type: "button", onclick: () => choosePart(options.group, null) }, "whole run") : null);
    }
    const cursor = plotted?.cursor, pointed = cursor?.idx === null ? null : cursor?.idxs[1] ?? null, now = data.series[0].y.findLastIndex(Number.isFinite);
    put(legend.firstChild, pointed === null ? "" : span(options.stepped ? plotted.posToVal(cursor.left, "x") : data.x[pointed]));
    list.forEach((s, i) => put(legend.children[i + 1].lastChild, at(s, pointed ?? now)));
  }
  function toggle(name, button) {
    if (hidden.has(name)) hidden.delete(name); else hidden.add(name);
    button.setAttribute("aria-pressed", String(!hidden.has(name)));
    current.series.forEach((s, i) => { if (s.name === name) plotted?.setSeries(i + 1, { show: !hidden.has(name) }); });
  }
}
const named = (data) => data.series.filter((s, i) => data.series.findIndex((other) => other.name === s.name) === i);
const lowest = (list) => list.reduce((a, b) => Math.min(a, b));
const highest = (list) => list.reduce((a, b) => Math.max(a, b));

// Where there are too many to tell apart, each piece is as dark as its share of time that training stood still.
const PAUSES_APART = 120;
function drawPauses(u, list) {
  const { ctx, bbox } = u, { min, max } = u.scales.x, seen = list.filter((p) => p.to_s >= min && p.from_s <= max);
  const x = (t) => Math.min(bbox.left + bbox.width, Math.max(bbox.left, u.valToPos(t, "x", true)));
  ctx.save();
  const add = (from, to, share) => {
    const wide = x(to) - x(from), least = 1.5 * devicePixelRatio;
    ctx.fillStyle = faint("bad", (wide < 3 * least ? 0.3 : 0.14) * share); // a short one is to be seen, too
    ctx.fillRect(x(from), bbox.top, Math.max(least, wide), bbox.height);
  };
  if (seen.length <= PAUSES_APART) for (const p of seen) add(p.from_s, p.to_s, 1);
  else {
    const piece = (max - min) / PAUSES_APART, stood = new Array(PAUSES_APART).fill(0);
    for (const p of seen) for (let i = Math.max(0, Math.floor((p.from_s - min) / piece)); i < PAUSES_APART && min + i * piece < p.to_s; i++) stood[i] += Math.max(0, Math.min(p.to_s, min + (i + 1) * piece) - Math.max(p.from_s, min + i * piece));
    stood.forEach((s, i) => { if (s > piece / 100) add(min + i * piece, min + (i + 1) * piece, Math.min(1, s / piece)); });
  }
  ctx.restore();
}

// ---- pools over time ----

// A chart for each: what was wanted, what was there, and what it had cost by then, all to one scale.
// data: {end, pools: [{pool, usd, points: [[time_s, want, here, usd]]}]}
const POOLS_SHOWN = 12;
export function poolCharts(together) {
  const el = h("div.pools", {}), about = h("p.soft.small", {}), rows = new Map();
  el.update = async (data, breath) => {
    const list = [...data.pools].sort((a, b) => b.usd - a.usd).slice(0, POOLS_SHOWN);
    const most = highest([1, ...list.flatMap((p) => p.points.map((v) => Math.max(v[1], v[2])))]), dearest = highest([1e-9, ...list.map((p) => p.usd)]);
    for (const [name, row] of rows) if (!list.some((p) => p.pool === name)) { row.chart.stop(); rows.delete(name); }
    for (const p of list) if (!rows.has(p.pool)) rows.set(p.pool, make(p.pool));
    const wanted = list.map((p) => rows.get(p.pool).el);
    if (data.pools.length > list.length) { put(about, `The ${list.length} pools that cost most so far, of ${data.pools.length}.`); wanted.unshift(about); }
    if (list.length === 0) fill(el, h("p.soft", {}, "nothing was asked for yet"));
    else if (wanted.length !== el.children.length || wanted.some((row, i) => row !== el.children[i])) fill(el, wanted);
    for (const p of list) {
      const points = p.points.length ? [...p.points, [data.end, ...p.points[p.points.length - 1].slice(1, 3), p.usd]] : [], column = (i) => points.map((v) => v[i]);
      rows.get(p.pool).chart.update({ x: column(0), end: data.end, top: most, topRight: dearest, series: [{ name: "there", y: column(2), line: 1, area: true }, { name: "wanted", y: column(1), line: 3, dashed: true }, { name: "cost", y: column(3), line: 2, right: true }] });
      await breath();
    }
  };
  el.stop = () => { for (const row of rows.values()) row.chart.stop(); };
  return el;
  function make(name) {
    const chart = lineChart({ title: `Pool ${name} over time`, value: count, fromZero: true, stepped: true, whole: true, height: 128, group: together, right: { value: usd, ticks: usdTicks } });
    return { chart, el: h("div", {}, h("div.row", {}, h("h3", {}, name), h("span.grow"), chart.legend), chart) };
  }
}

// ---- cost against time ----

// Each point a fleet. data: {points: [{x, y, name, kind, curve}], deadline, budget}; kind: "best", "out" (does not fit) or "".
export function scatter() {
  const kinds = [["", "fits", 1, 11], ["out", "does not fit", 0, 9], ["best", "chosen", 2, 15]];
  const about = h("p.soft.small.about", {}, "Each point is a fleet.");
  let current = null, sorted = [];
  const words = (d) => `Expected cost against expected time of ${d.points.length} fleets; chosen: ${d.points.find((p) => p.kind === "best")?.name ?? "none"}`;
  const el = holder({ height: 330, words, reading: (d, i) => sorted[i].name, make: (data) => {
    current = data;
    sorted = [...data.points].sort((a, b) => a.x - b.x);
    if (sorted.length === 0) return null;
    const pick = (want) => sorted.map((p) => (want(p) ? p.y : null));
    const xs = [...sorted.map((p) => p.x), ...(data.deadline ? [data.deadline] : [])], ys = sorted.map((p) => p.y);
    const far = { x: highest(xs) / lowest(xs) > 20, y: highest(ys) / lowest(ys) > 20 };
    return { key: JSON.stringify(far), data: [sorted.map((p) => p.x), pick((p) => p.curve), ...kinds.map(([kind]) => pick((p) => p.kind === kind))], options: settings(far) };
  } });
  el.append(about, h("div.keys.dots", { "aria-hidden": "true" }, kinds.map(([, name, line]) => h("span", {}, h(`i.dot.k${line}`), name)), h("span", {}, h("i.k1"), "none is both cheaper and faster"), h("span", {}, h("i.dashed.limit"), "deadline, budget")));
  return el;

  function settings(far) {
    const dot = (line) => (line ? colour(`series-${line}`) : colour("soft"));
    return {
      legend: { show: false },
      cursor: { x: false, y: false, drag: { x: false, y: false }, dataIdx: (u) => nearest(u), points: { size: 20, width: 2, fill: () => "transparent", stroke: () => colour("text") } },
      scales: {
        x: { time: false, distr: far.x ? 3 : 1, range: () => padded(sorted.map((p) => p.x).concat(current.deadline || []), far.x, 0.08) },
        y: { distr: far.y ? 3 : 1, range: () => padded(sorted.map((p) => p.y), far.y, 0.14) },
      },
      axes: [{ ...timeAxis(), size: 42, label: "expected time", labelSize: 16, labelFont: FONT, ...(far.x ? { splits: (u) => between(u.scales.x, TIME_MARKS), filter: (u, splits) => splits } : {}) },
        axis({ size: 70, space: 34, label: "expected cost", labelSize: 16, labelFont: FONT, values: (u, splits) => usdTicks(splits), ...(far.y ? { splits: (u) => between(u.scales.y, WHOLE), filter: (u, splits) => splits } : {}) })],
      padding: [12, 16, 0, 0],
      series: [{}, { stroke: colour("series-1"), width: 1.4, spanGaps: true, points: { show: false } },
        ...kinds.map(([, , line, size]) => ({ paths: () => null, points: { show: true, size, width: 1.5, stroke: colour("card"), fill: line ? dot(line) : faint("soft", 0.55) } }))],
      hooks: { drawAxes: [drawLimits], setCursor: [(u) => { const i = u.cursor.left >= 0 ? nearest(u) : null; put(about, i === null ? "Each point is a fleet." : sorted[i].name); }] },
    };
  }
  // The point nearest to the pointer, in both directions.
  function nearest(u) {
    const far = (p) => Math.hypot(u.valToPos(p.x, "x") - u.cursor.left, u.valToPos(p.y, "y") - u.cursor.top);
    return sorted.reduce((best, p, i) => (far(p) < far(sorted[best]) ? i : best), 0);
  }
  function drawLimits(u) {
    const { ctx, bbox } = u, ratio = devicePixelRatio;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = colour("bad");
    ctx.lineWidth = ratio; ctx.setLineDash([6 * ratio, 4 * ratio]); ctx.textAlign = "right"; ctx.font = FONT.replace("11px", `${11 * ratio}px`);
    const line = (x0, y0, x1, y1, name) => { ctx.beginPath(); ctx.moveTo(x0, y0); ctx.lineTo(x1, y1); ctx.stroke(); ctx.fillText(name, x1 - 5 * ratio, (x0 === x1 ? bbox.top + 14 * ratio : y1 - 5 * ratio)); };
    const x = u.valToPos(current.deadline, "x", true), y = u.valToPos(current.budget, "y", true), right = bbox.left + bbox.width, bottom = bbox.top + bbox.height;
    if (current.deadline) line(x, bottom, x, bbox.top, "deadline");
    if (current.budget && y >= bbox.top && y <= bottom) line(bbox.left, y, right, y, "budget");
    ctx.restore();
  }
}
function padded(list, log, share) {
  const f = log ? Math.log10 : (v) => v, back = log ? (v) => 10 ** v : (v) => Math.max(0, v);
  const low = f(lowest(list)), high = f(highest(list)), pad = (high - low || 1) * share;
  return [back(low - pad), back(high + pad)];
}
const between = ({ min, max }, list) => list.filter((v) => v >= min && v <= max);
