// Small charts in SVG: lines over time with what was read at the pointer, lanes of instances, points of plans.
import { h, fill } from "./dom.js";
import { span, usd } from "./format.js";

const LEFT = 52, RIGHT = 12, TOP = 10, BOTTOM = 22;

function ticks(min, max, wanted) {
  const raw = (max - min) / Math.max(1, wanted) || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((m) => m * power >= raw) * power;
  const out = [];
  for (let t = Math.ceil(min / step) * step; t <= max + step * 1e-9; t += step) out.push(Number(t.toPrecision(12)));
  return out;
}
function timeTicks(max, wanted) {
  const steps = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800];
  const step = steps.find((s) => max / s <= wanted) ?? 604800 * Math.ceil(max / 604800 / wanted);
  const out = [];
  for (let t = 0; t <= max; t += step) out.push(t);
  return out;
}
const shortSpan = (s) => span(s).replace(/ 00[sm]$/, "");

// A box that keeps its drawing up to date with its width.
function box(label, height, draw) {
  const el = h("div.chartbox", {});
  let data = null;
  const redraw = () => {
    if (data === null || !el.isConnected) return;
    const width = Math.max(240, el.clientWidth || 600);
    const svg = h("svg.chart", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label(data) });
    svg.style.height = height + "px";
    draw(svg, data, width, height, el);
    fill(el, svg);
  };
  new ResizeObserver(redraw).observe(el);
  el.update = (next) => { data = next; redraw(); };
  return el;
}

function frame(svg, width, height, x, y, xTicks, yTicks, xText, yText) {
  for (const t of yTicks) svg.append(h("line.gridline", { x1: LEFT, x2: width - RIGHT, y1: y(t), y2: y(t) }), h("text", { x: LEFT - 6, y: y(t) + 4, "text-anchor": "end" }, yText(t)));
  for (const t of xTicks) svg.append(h("text", { x: x(t), y: height - 6, "text-anchor": "middle" }, xText(t)));
  svg.append(h("line.axis", { x1: LEFT, x2: width - RIGHT, y1: height - BOTTOM, y2: height - BOTTOM }));
}

function pathOf(xs, ys, x, y, stepped) {
  let d = "", pen = false, lastY = 0;
  for (let i = 0; i < xs.length; i++) {
    const v = ys[i];
    if (v === null || v === undefined || !Number.isFinite(v)) { pen = false; continue; }
    const px = x(xs[i]).toFixed(1), py = y(v).toFixed(1);
    d += pen ? (stepped ? `H${px}V${py}` : `L${px} ${py}`) : `M${px} ${py}h0`; // a point without neighbours is a dot
    pen = true; lastY = v;
  }
  return d;
}

// options: title, value(v) as text, fromZero, stepped, area. data: {x, end, series: [{name, y, class, dashed}], pauses}
export function lineChart(options) {
  const text = options.value;
  const label = (d) => `${options.title}: ` + (d.series.map((s) => { const v = s.y.filter(Number.isFinite); return v.length ? `${s.name} from ${text(v[0])} to ${text(v[v.length - 1])}, lowest ${text(Math.min(...v))}, highest ${text(Math.max(...v))}` : `${s.name}: nothing yet`; }).join("; "));
  return box(label, options.height ?? 210, (svg, data, width, height, el) => {
    const all = data.series.flatMap((s) => s.y.filter(Number.isFinite));
    if (all.length === 0) { svg.append(h("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, "nothing yet")); return; }
    let min = options.fromZero ? 0 : Math.min(...all), max = Math.max(...all, data.top ?? -Infinity);
    if (max - min < 1e-12) { max += Math.abs(max) * 0.1 || 1; if (!options.fromZero) min -= Math.abs(min) * 0.1; }
    max += (max - min) * 0.06;
    const end = Math.max(data.end ?? 0, data.x[data.x.length - 1] ?? 1, 1e-9);
    const x = (t) => LEFT + (t / end) * (width - LEFT - RIGHT);
    const y = (v) => height - BOTTOM - ((v - min) / (max - min)) * (height - TOP - BOTTOM);
    frame(svg, width, height, x, y, timeTicks(end, Math.max(2, Math.floor(width / 110))), ticks(min, max, 4).filter((t) => t <= max), shortSpan, text);
    drawPauses(svg, data.pauses ?? [], end, x, height);
    if (data.fan) svg.append(h("path.area", { class: "f3", d: `M${x(data.fan.from_s)} ${y(data.fan.from)}L${x(data.fan.low_s)} ${y(data.fan.to)}L${x(data.fan.high_s)} ${y(data.fan.to)}Z` }, h("title", {}, "forecast: done between here, with four chances in five")));
    for (const s of data.series) {
      const d = pathOf(data.x, s.y, x, y, options.stepped);
      if (options.area && d && !s.dashed) svg.append(h("path.area", { class: s.class.replace("s", "f"), d: `${d}L${x(data.x[data.x.length - 1])} ${y(min)}L${x(data.x[0])} ${y(min)}Z` }));
      svg.append(h("path.line", { class: s.class + (s.dashed ? " dash" : ""), d }));
    }
    pointer(svg, el, data, x, text, width, height);
  });
}

// Where there are too many to tell apart, each piece is as dark as its share of time that training stood still.
const PAUSES_APART = 120;
function drawPauses(svg, list, end, x, height) {
  const add = (from, to, share) => svg.append(h("rect.pause", { x: x(from), width: Math.max(1, x(to) - x(from)), y: TOP, height: height - TOP - BOTTOM, "fill-opacity": share.toFixed(2) }));
  if (list.length <= PAUSES_APART) { for (const p of list) add(p.from_s, p.to_s, 1); return; }
  const piece = end / PAUSES_APART, stood = new Array(PAUSES_APART).fill(0);
  for (const p of list) for (let i = Math.max(0, Math.floor(p.from_s / piece)); i < PAUSES_APART && i * piece < p.to_s; i++) stood[i] += Math.max(0, Math.min(p.to_s, (i + 1) * piece) - Math.max(p.from_s, i * piece));
  stood.forEach((s, i) => { if (s > piece / 100) add(i * piece, (i + 1) * piece, Math.min(1, s / piece)); });
}

function pointer(svg, el, data, x, text, width, height) {
  const cross = h("line.cross", { y1: TOP, y2: height - BOTTOM, visibility: "hidden" });
  const tip = h("div.tip", { hidden: true, "aria-hidden": "true" });
  svg.append(cross);
  const show = (event) => {
    const at = ((event.clientX - svg.getBoundingClientRect().left) * width) / svg.getBoundingClientRect().width;
    let best = 0;
    for (let i = 1; i < data.x.length; i++) if (Math.abs(x(data.x[i]) - at) < Math.abs(x(data.x[best]) - at)) best = i;
    if (data.x.length === 0) return;
    const px = x(data.x[best]);
    cross.setAttribute("x1", px); cross.setAttribute("x2", px); cross.setAttribute("visibility", "visible");
    tip.textContent = [span(data.x[best]), ...data.series.filter((s) => Number.isFinite(s.y[best])).map((s) => `${s.name} ${text(s.y[best])}`), ...(data.notes?.[best] ? [data.notes[best]] : [])].join("  ·  ");
    tip.hidden = false;
    if (!tip.isConnected) el.append(tip);
    tip.style.left = Math.min(Math.max(0, px - tip.offsetWidth / 2), Math.max(0, width - tip.offsetWidth)) + "px";
  };
  svg.addEventListener("pointermove", show);
  svg.addEventListener("pointerleave", () => { tip.hidden = true; cross.setAttribute("visibility", "hidden"); });
}

export function keys(series) { return h("div.keys", { "aria-hidden": "true" }, series.map(([k, name]) => h("span", {}, h("i." + k), name))); }

// When each instance was there. data: {end, instances}
export function lanes() {
  const shown = (d) => d.instances.slice(-40);
  const label = (d) => `When instances were there: ${d.instances.length > 40 ? `the last 40 of ${d.instances.length}` : d.instances.length}`;
  const el = h("div", {});
  let current = null, size = 0;
  el.update = (d) => {
    const height = TOP + BOTTOM + Math.max(3, shown(d).length) * 13;
    if (current === null || size !== height) {
      size = height;
      current = box(label, height, (svg, data, width) => draw(svg, shown(data), data.end, width, height));
      fill(el, current);
    }
    current.update(d);
  };
  return el;
  function draw(svg, list, end, width, height) {
    const x = (t) => LEFT + (t / Math.max(end, 1e-9)) * (width - LEFT - RIGHT);
    frame(svg, width, height, x, (v) => v, timeTicks(end, Math.max(2, Math.floor(width / 110))), [], shortSpan, String);
    list.forEach((one, i) => {
      const y = TOP + i * 13, to = one.to_s ?? end;
      svg.append(h("text", { x: LEFT - 6, y: y + 9, "text-anchor": "end" }, String(one.id)));
      const bar = h("rect.lane", { class: (one.spot ? "" : "od ") + (one.state === "running" ? "" : "lost"), x: x(one.from_s), y: y + 1, rx: 2, height: 9, width: Math.max(2, x(to) - x(one.from_s)) });
      bar.append(h("title", {}, `instance ${one.id}, ${one.spot ? "spot" : "on-demand"}: ${one.state}${one.announced ? " with notice" : ""}`));
      svg.append(bar);
      if (Number.isFinite(one.notice_s)) svg.append(h("rect.noticed", { x: x(one.notice_s), y: y + 1, rx: 2, height: 9, width: Math.max(2, x(to) - x(one.notice_s)) }));
      if (one.state === "lost" || one.state === "preempted") svg.append(h("path.cut", { d: `M${x(to) - 3} ${y + 2}l6 7M${x(to) + 3} ${y + 2}l-6 7` }));
    });
  }
}

// Pools over time, a lane for each: what was wanted, what was there, and what it had cost by then, all to one scale.
// data: {end, pools: [{pool, usd, points: [[time_s, want, here, usd]]}]}
const LANE = 78, POOLS_SHOWN = 12;
export function poolLanes() {
  const el = h("div", {});
  const chosen = (d) => [...d.pools].sort((a, b) => b.usd - a.usd).slice(0, POOLS_SHOWN);
  const now = (p) => p.points[p.points.length - 1] ?? [0, 0, 0, 0];
  const words = (p) => `${p.pool}: ${now(p)[2]} of ${now(p)[1]} wanted, ${usd(p.usd)}`;
  let current = null, size = 0;
  el.update = (d) => {
    if (d.pools.length === 0) { fill(el, h("p.soft", {}, "nothing was asked for yet")); current = null; return; }
    const height = BOTTOM + chosen(d).length * LANE;
    if (current === null || size !== height) {
      size = height;
      current = box((data) => "Pools over time. " + chosen(data).map(words).join("; "), height, (svg, data, width) => draw(svg, chosen(data), data.end, width, height));
      fill(el, current);
    }
    current.update(d);
  };
  return el;
  function draw(svg, list, end, width, height) {
    const most = Math.max(1, ...list.flatMap((p) => p.points.map((v) => Math.max(v[1], v[2])))), dearest = Math.max(1e-9, ...list.map((p) => p.usd));
    const x = (t) => LEFT + (t / Math.max(end, 1e-9)) * (width - LEFT - RIGHT);
    frame(svg, width, height, x, (v) => v, timeTicks(end, Math.max(2, Math.floor(width / 110))), [], shortSpan, String);
    list.forEach((p, i) => {
      const bottom = (i + 1) * LANE, room = LANE - 24, points = [...p.points, [end, now(p)[1], now(p)[2], p.usd]], xs = points.map((v) => v[0]);
      const y = (v) => bottom - (v / most) * room, money = (v) => bottom - (v / dearest) * room;
      const there = pathOf(xs, points.map((v) => v[2]), x, y, true);
      svg.append(h("line.gridline", { x1: LEFT, x2: width - RIGHT, y1: bottom, y2: bottom }), h("text", { x: LEFT - 6, y: y(most) + 8, "text-anchor": "end" }, String(most)), h("text", { x: LEFT - 6, y: bottom, "text-anchor": "end" }, "0"));
      svg.append(h("path.area", { class: "f1", d: `${there}V${bottom}H${x(xs[0]).toFixed(1)}Z` }), h("path.line.s1", { d: there }));
      svg.append(h("path.line.s3.dash", { d: pathOf(xs, points.map((v) => v[1]), x, y, true) }), h("path.line.s2", { d: pathOf(xs, points.map((v) => v[3]), x, money) }));
      svg.append(h("text.lead", { x: LEFT + 4, y: i * LANE + 15 }, p.pool), h("text", { x: width - RIGHT, y: i * LANE + 15, "text-anchor": "end" }, `${now(p)[2]} of ${now(p)[1]} wanted · ${usd(p.usd)}`));
    });
  }
}

// Cost against time, each point a fleet. data: {points: [{x, y, name, kind}], deadline, budget}
export function scatter(options) {
  return box((d) => `Expected cost against expected time of ${d.points.length} fleets`, 320, (svg, data, width, height, el) => {
    const xs = data.points.map((p) => p.x), ys = data.points.map((p) => p.y);
    if (data.deadline) xs.push(data.deadline);
    const log = (v) => Math.log10(Math.max(v, 1e-9));
    const wide = Math.max(...ys) / Math.min(...ys) > 20, long = Math.max(...xs) / Math.min(...xs) > 20;
    const fx = long ? log : (v) => v, fy = wide ? log : (v) => v;
    const x0 = fx(Math.min(...xs)), x1 = fx(Math.max(...xs)), y0 = fy(Math.min(...ys)), y1 = fy(Math.max(...ys));
    const px = (x1 - x0 || 1) * 0.08, py = (y1 - y0 || 1) * 0.12;
    const x = (v) => LEFT + ((fx(v) - x0 + px) / (x1 - x0 + 2 * px || 1)) * (width - LEFT - RIGHT);
    const y = (v) => height - BOTTOM - 14 - ((fy(v) - y0 + py) / (y1 - y0 + 2 * py || 1)) * (height - TOP - BOTTOM - 14);
    const decades = (a, b, f) => f === log ? [1, 2, 5].flatMap((m) => ticks(Math.floor(a), Math.ceil(b), 9).filter(Number.isInteger).map((d) => m * 10 ** d)).filter((v) => log(v) >= a && log(v) <= b) : ticks(a, b, 4);
    const xt = long ? [60, 300, 900, 3600, 10800, 21600, 43200, 86400, 172800, 345600, 604800, 1209600, 2592000].filter((v) => log(v) >= x0 - px && log(v) <= x1 + px) : timeTicks(Math.max(...xs), 5).filter((v) => v >= x0 - px);
    frame(svg, width, height - 14, x, y, xt, decades(y0 - py, y1 + py, fy), shortSpan, options.money);
    svg.append(h("text", { x: width - RIGHT, y: height - 4, "text-anchor": "end" }, "expected time →"));
    svg.append(h("text", { x: LEFT + 6, y: TOP + 8 }, "↑ expected cost"));
    if (data.deadline) svg.append(h("line.limit", { x1: x(data.deadline), x2: x(data.deadline), y1: TOP, y2: height - BOTTOM - 14 }), h("text", { x: x(data.deadline) - 5, y: TOP + 22, "text-anchor": "end" }, "deadline"));
    if (data.budget && fy(data.budget) <= y1 + py && fy(data.budget) >= y0 - py) svg.append(h("line.limit", { y1: y(data.budget), y2: y(data.budget), x1: LEFT, x2: width - RIGHT }), h("text", { x: width - RIGHT - 4, y: y(data.budget) - 5, "text-anchor": "end" }, "budget"));
    const sorted = data.points.filter((p) => p.curve).sort((a, b) => a.x - b.x);
    if (sorted.length > 1) svg.append(h("path.line.s1", { d: pathOf(sorted.map((p) => p.x), sorted.map((p) => p.y), x, y) }));
    for (const p of data.points) {
      const dot = h("circle.p", { class: p.kind, cx: x(p.x), cy: y(p.y), r: p.kind === "best" ? 8 : 6 });
      dot.append(h("title", {}, p.name));
      svg.append(dot);
    }
  });
}
