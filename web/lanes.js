// When each instance was there: a bar for each, in SVG. uPlot draws values over time; these are spans with names.
import { h, fill } from "./dom.js";
import { count, shortSpan, span, timeTicks } from "./format.js";

const LEFT = 54, RIGHT = 24, TOP = 4, BOTTOM = 22, LANE = 14, SHOWN = 40;

// data: {end, instances}
export function lanes() {
  const el = h("div.chartbox", {});
  let data = null;
  const draw = () => {
    if (data === null || !el.isConnected || el.clientWidth === 0) return;
    const list = data.instances.slice(-SHOWN);
    if (list.length === 0) { fill(el, h("p.soft", {}, "none yet")); return; }
    fill(el, picture(list, data, el.clientWidth), list.length < data.instances.length ? h("p.soft.small", {}, `the newest ${list.length}; those before instance ${count(list[0].id)} are not drawn`) : null);
  };
  const observer = new ResizeObserver(draw);
  observer.observe(el);
  el.update = (next) => { data = next; draw(); };
  el.stop = () => observer.disconnect();
  return el;
}

function picture(list, { end, instances }, width) {
  const height = TOP + BOTTOM + list.length * LANE;
  const since = instances.length > SHOWN ? list.reduce((least, one) => Math.min(least, one.from_s), end) : 0, until = Math.max(end, since + 1e-9);
  const x = (t) => LEFT + ((t - since) / (until - since)) * (width - LEFT - RIGHT);
  const lost = list.filter((one) => one.state === "lost" || one.state === "preempted").length;
  const svg = h("svg.chart", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `When instances were there: ${instances.length > SHOWN ? `the newest ${SHOWN}` : instances.length}, ${lost} of them lost` });
  svg.style.height = height + "px";
  for (const t of timeTicks(since, until, Math.max(2, Math.floor(width / 110)))) svg.append(h("line.gridline", { x1: x(t), x2: x(t), y1: TOP, y2: height - BOTTOM }), h("text", { x: x(t), y: height - 6, "text-anchor": "middle" }, shortSpan(t)));
  svg.append(h("line.axis", { x1: LEFT, x2: width - RIGHT, y1: height - BOTTOM, y2: height - BOTTOM }));
  list.forEach((one, i) => lane(svg, one, TOP + i * LANE, end, x));
  return svg;
}

function lane(svg, one, y, end, x) {
  const to = one.to_s ?? end, wide = (from) => Math.max(2, x(to) - x(from));
  svg.append(h("text", { x: LEFT - 6, y: y + 10, "text-anchor": "end" }, String(one.id)));
  svg.append(h("rect.lane", { class: (one.spot ? "" : "od ") + (one.state === "running" ? "" : "lost"), x: x(one.from_s), y: y + 2, rx: 2, height: 9, width: wide(one.from_s) },
    h("title", {}, `instance ${one.id}, ${one.spot ? "spot" : "on-demand"}: ${one.state}${one.announced ? " with notice" : ""}, ${span(to - one.from_s)}`)));
  if (Number.isFinite(one.notice_s)) svg.append(h("rect.noticed", { x: x(one.notice_s), y: y + 2, rx: 2, height: 9, width: wide(one.notice_s) }));
  if (one.state === "lost" || one.state === "preempted") svg.append(h("path.cut", { d: `M${x(to) - 3} ${y + 3}l6 7M${x(to) + 3} ${y + 3}l-6 7` }));
}
