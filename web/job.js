// One run, live: what it is doing, on what, at which cost; its curves, pauses, events and logs.
import { h, fill, put, wide, confirm } from "./dom.js";
import { get, lines, post, follow, jobPath } from "./api.js";
import { lineChart, poolCharts, group } from "./chart.js";
import { lanes } from "./lanes.js";
import { layoutGrid } from "./layout.js";
import { steering, copyCard, poolCard } from "./steer.js";
import * as f from "./format.js";

const HISTORY_MS = 4000, EVENTS_KEPT = 20000, EVENTS_SHOWN = 100, EVENTS_BEFORE = 2000, EVENTS_PAGE = 2000, LOG_MS = 3000;

export function jobView(main, name, app, say) {
  const state = { status: null, prediction: {}, history: null, gone: false };
  const orders = steering(name, app, state), head = header(name, app, state, orders);
  const tiles = tileRow();
  const layout = layoutGrid();
  const charts = chartCards();
  const pauses = pauseCard(), copies = copyCard(), pools = poolCard();
  const events = eventCard(name, state);
  const logs = logCard(name, state);
  fill(main, head.el, tiles.el, h("div.stack", {}, layout), charts.el, h("div.stack", {}, charts.pools), h("div.grid2", {}, pools.el, copies.el), h("div.grid2", {}, pauses.el, charts.lanes), h("div.stack", {}, events.el, logs.el));
  let source = null, timer = 0, frame = 0, due = false;

  // However fast events come, the page is drawn once a frame.
  const draw = () => {
    frame = 0;
    if (state.gone || !state.status) return;
    head.update(state.status); orders.update(state.status); pools.update(state.status, state.history); copies.draw(state.status); tiles.update(state.status, state.prediction); layout.update(state.status);
    events.draw(); logs.offer(state.status);
  };
  const later = () => { frame ||= requestAnimationFrame(draw); };
  const ticking = setInterval(() => layout.tick(), 250);

  const readHistory = async () => {
    clearTimeout(timer);
    try {
      state.history = await get(jobPath(name, "history?points=360"));
      if (state.gone) return;
      await breath();
      pauses.update(state.history); copies.learn(state.history); later();
      await charts.update(state.history, state.prediction, state.status);
    } catch { /* the next one may be luckier: a coordinator that restarts */ }
    if (!state.gone && state.status?.live) timer = setTimeout(readHistory, HISTORY_MS);
  };
  const onStatus = (s) => {
    const turned = state.status && (state.status.live !== s.live || state.status.state !== s.state);
    state.status = s;
    say(s.trouble || "");
    if (turned) { readHistory(); }
    later();
  };
  const begin = async () => {
    try {
      [state.status, state.prediction] = await Promise.all([get(jobPath(name, "status")), get(jobPath(name, "prediction"))]);
    } catch (e) {
      if (state.gone) return;
      if (e.status === 401) { app.denied(); return; }
      if (e.status !== 404) { say(e.message); timer = setTimeout(begin, 1000); return; }
      fill(main, h("div.card.empty", {}, h("h2", {}, name), h("p.error", {}, e.message), h("a", { href: "#/" }, "All jobs")));
      return;
    }
    if (state.gone) return;
    draw();
    readHistory();
    source = follow(name, Math.max(0, state.status.sequence - EVENTS_BEFORE), {
      event: (e) => {
        copies.take(e);
        if (events.take(e)) later();
      },
      status: onStatus,
      away: () => say("The coordinator does not answer; training continues without it for a while."),
      again: async () => { // another run in the same place
        events.clear(); copies.clear();
        state.prediction = await get(jobPath(name, "prediction")).catch(() => ({}));
        if (!state.gone) readHistory();
      },
      open: () => say(""),
      lost: (why) => say(why || "The dashboard does not answer. It is asked again every second; runs go on without it."),
      denied: () => app.denied(),
    });
  };
  begin();
  return () => { state.gone = true; source?.close(); charts.stop(); clearTimeout(timer); clearInterval(ticking); cancelAnimationFrame(frame); logs.stop(); };
}

// ---- head ----

function header(name, app, state, orders) {
  const pill = h("span.pill", { role: "status" }), what = h("span.soft", {}), reason = h("p.soft", { hidden: true }), error = h("p.error", { role: "alert", hidden: true });
  const steer = async (path, doing) => {
    error.hidden = true;
    try { await post(jobPath(name, path)); put(pill, doing); } catch (e) { error.hidden = false; put(error, e.message); }
  };
  const stop = h("button.danger", { type: "button", hidden: true, onclick: async () => {
    const answer = await confirm(`Stop ${name}?`, "It stops after a copy of its last step, releases its instances, and can be resumed later. Stopping at once makes no copy: steps since the newest one are redone.", [["now", "Stop at once", "danger"], ["copy", "Stop with a copy", "danger full"]]);
    if (answer) steer(answer === "now" ? "stop?now=1" : "stop", "stopping");
  } }, "Stop…");
  const resume = h("button.main", { type: "button", hidden: true, onclick: async () => {
    if (await confirm(`Resume ${name}?`, "It rents instances again, and goes on from its newest copy with its own settings.", [["yes", "Resume", "main"]])) steer("resume", "starting");
  } }, "Resume…");
  const output = h("pre.log", { hidden: true, tabindex: "0", "aria-label": "The last lines of the worker that failed" });
  const el = h("div", {}, h("div.row", {}, h("a.small", { href: "#/" }, "← Jobs")), h("div.row", {}, h("h1", {}, name), pill, what, h("span.grow"), orders.bar, resume, stop), reason, error, orders.said, output);
  return { el, update: (s) => {
    const over = ["finished", "failed", "stopped"].includes(s.state);
    const shown = !s.live && !over ? "not running" : s.state;
    pill.className = "pill " + (f.stateKinds[shown] ?? "quiet");
    put(pill, shown);
    const generation = Number(BigInt.asUintN(32, BigInt(s.generation ?? 0)));
    put(what, `${s.job.name !== name ? s.job.name + " · " : ""}generation ${f.count(generation)} · ${f.span(s.wall_s)} of real time${s.job.speed > 1 ? `, ${f.span(s.wall_s * s.job.speed)} in the cloud` : ""}`);
    reason.hidden = !s.reason; put(reason, s.reason ?? "");
    stop.hidden = !app.steers || !s.live || over || s.state === "stopping";
    resume.hidden = !app.steers || s.live || s.state === "finished";
    output.hidden = !s.output?.length; put(output, (s.output ?? []).join("\n"));
  } };
}

// ---- numbers ----

function tileRow() {
  const made = {};
  const tile = (key, label, wide) => {
    made[key] = { value: h("div.value", {}), note: h("div.note", {}), extra: h("div", {}) };
    return h("div.card.tile", { class: wide ? "wide" : "" }, h("div.label", {}, label), made[key].value, made[key].extra, made[key].note);
  };
  const bar = h("progress", { "aria-label": "committed steps" });
  const el = h("section.tiles", { "aria-label": "In numbers" }, tile("steps", "Progress", true), tile("loss", "Loss"), tile("rate", "Throughput"), tile("cost", "Cost", true), tile("fleet", "Instances"), tile("durable", "Durable step"));
  made.steps.extra.append(bar);
  const set = (key, value, note) => { put(made[key].value, value); put(made[key].note, note); };
  return { el, update: (s, prediction) => {
    const steps = s.job.steps, done = s.steps.committed, rate = s.steps.per_s;
    const left = s.live ? s.left_s : null;
    bar.max = Math.max(1, steps); bar.value = done;
    const planned = prediction?.run?.time_s;
    set("steps", `${f.count(done)} of ${f.count(steps)} steps`, [f.percent(steps ? done / steps : 0), left === null ? "" : `${f.span(left)} left${between(s)}, done at ${f.day(Date.now() + left * 1000)}`, planned ? `planned ${f.span(planned)} in the cloud` : "", s.deadline_s ? `deadline ${f.span(s.deadline_s)} in the cloud` : ""].filter(Boolean).join(" · "));
    set("loss", f.loss(s.loss), s.steps.step_s ? `step time ${f.span(s.steps.step_s)}` : "");
    set("rate", s.live ? f.short(rate) : s.wall_s > 0 ? f.short(done / s.wall_s) : "–", !s.live ? "steps/s on average" : s.tokens_per_s ? `steps/s · ${f.short(s.tokens_per_s)} tokens/s` : s.job.samples_per_step ? `steps/s · ${f.count(s.job.samples_per_step)} samples a step` : "steps/s");
    const compared = f.compared(s.bill_usd, s.on_demand_usd);
    set("cost", f.usd(s.bill_usd), [compared ? `${compared} ${f.usd(s.on_demand_usd)}` : "", prediction?.run?.bill_usd ? `plan ${f.usd(prediction.run.bill_usd)}` : "", s.budget_usd ? `budget ${f.usd(s.budget_usd)}` : "", s.job.samples_per_step && done ? `${f.usd((s.bill_usd / (done * s.job.samples_per_step)) * 1e6)} a million samples` : ""].filter(Boolean).join(" · "));
    const wanted = s.pools?.length ? sum(s.pools.map((p) => p.want)) : (s.want_spot ?? 0) + (s.want_on_demand ?? 0); // with those that keep copies
    const many = wanted >= 1000; // no room for both
    set("fleet", s.live ? `${f.count(s.instances_here)}${wanted && !many ? ` of ${f.count(wanted)}` : ""}` : f.count(s.arrivals), s.live ? [many ? `${f.count(wanted)} wanted` : "", s.instances_noticed ? `${s.instances_noticed} with notice` : "", `${f.count(s.arrivals)} arrived`, `${f.count((s.losses_announced ?? 0) + (s.losses_unannounced ?? 0))} preempted`].filter(Boolean).join(" · ") : `arrived · ${f.count((s.losses_announced ?? 0) + (s.losses_unannounced ?? 0))} preempted`);
    set("durable", f.count(s.steps.durable), `${f.count(done - s.steps.durable)} behind · ${f.plural(s.steps.redone, "step")} redone`);
  } };
}

// ---- curves ----

function chartCards() {
  const card = (title, chart, legend) => h("section.card", { "aria-label": title }, h("div.row", {}, h("h2", {}, title), h("span.grow"), legend ?? chart.legend ?? null), chart);
  const together = group(), shorter = (splits) => splits.map((v) => f.short(v));
  const progress = lineChart({ title: "Steps", value: f.count, ticks: shorter, fromZero: true, group: together });
  const loss = lineChart({ title: "Loss", value: f.loss, ticks: (splits) => splits.map((v) => f.short(v, 4)), group: together });
  const rate = lineChart({ title: "Throughput", value: (v) => f.short(v), fromZero: true, group: together });
  const fleet = lineChart({ title: "Instances", value: f.count, fromZero: true, stepped: true, whole: true, group: together });
  const cost = lineChart({ title: "Cost", value: f.usd, ticks: f.usdTicks, fromZero: true, group: together });
  const done = lineChart({ title: "When it is done", value: f.span, ticks: (splits) => splits.map(f.shortSpan), times: true, empty: "too little was seen to tell", group: together });
  const when = lanes(), places = poolCharts(together);
  const bars = h("div.keys", { "aria-hidden": "true" }, [["k1", "spot"], ["k3", "on-demand"], ["k2", "notice"]].map(([k, name]) => h("span", {}, h(`i.filled.${k}`), name)));
  const lossCard = card("Loss", loss);
  const el = h("div.grid2.charts", {}, card("Progress and forecast", progress), lossCard, card("Throughput (steps/s)", rate), card("Instances", fleet), card("Cost", cost), card("Forecast, and what came", done));
  return { el, lanes: card("Instances over time", when, bars), pools: card("Pools over time", places), update: async (hist, prediction, status) => {
    const end = hist.wall_s, p = hist.progress;
    progress.update(progressData(hist, prediction, status));
    await breath();
    lossCard.hidden = p.loss.length > 3 && !p.loss.some(Number.isFinite); // of an engine that only paces there is none
    loss.update({ x: p.time_s, end, series: [{ name: "loss", y: p.loss, line: 1 }], pauses: hist.pauses });
    await breath();
    const rates = throughput(p, end);
    rate.update({ x: rates.x, end, series: [{ name: "steps/s", y: rates.y, line: 1, area: true }], pauses: hist.pauses });
    await breath();
    fleet.update(fleetData(hist));
    await breath();
    cost.update(costData(hist, prediction, status));
    await breath();
    done.update(doneData(hist, status));
    await breath();
    await places.update({ end, pools: hist.pools ?? [] }, breath);
    when.update({ end, instances: hist.instances });
  }, stop: () => { for (const one of [progress, loss, rate, fleet, cost, done, places, when]) one.stop(); } };
}

function fleetData(hist) {
  const end = hist.wall_s, extend = (list) => (list.length ? [...list, list[list.length - 1]] : list);
  const x = hist.fleet.time_s.length ? [...hist.fleet.time_s, end] : [];
  const series = [{ name: "running", y: extend(hist.fleet.here), line: 1, area: true }, { name: "with notice", y: extend(hist.fleet.noticed), line: 2 }];
  if (hist.pools?.length) series.push({ name: "wanted", y: wantedAt(hist.pools, x), line: 3, dashed: true });
  return { x, end, series };
}

// The curve has a point where the cloud billed; the status has the newest word.
function costData(hist, prediction, status) {
  const end = hist.wall_s, now = status && status.bill_usd !== null && hist.bill.time_s.length > 0, planned = prediction?.run?.bill_usd;
  const x = now ? [...hist.bill.time_s, end] : hist.bill.time_s, add = (list, v) => (now ? [...list, v] : list);
  const series = [{ name: "paid", y: add(hist.bill.bill_usd, status?.bill_usd), line: 1 }, { name: "on-demand", y: add(onDemand(hist.bill, now ? status.on_demand_usd : null, end), status?.on_demand_usd), line: 2, dashed: true }];
  const highest = series.flatMap((s) => s.y).reduce((a, v) => (v > a ? v : a), 0);
  if (planned && planned < 3 * highest) series.push({ name: "plan, in the end", y: x.map(() => planned), line: 3, dashed: true });
  return { x, end, series };
}

// The record's last word of on-demand may be old where the status knows of now: the curve leads there.
function onDemand(bill, now_usd, end) {
  const n = bill.time_s.length, last = bill.on_demand_usd[n - 1], t = bill.time_s[n - 1];
  if (!(now_usd > 0) || !(last > 0) || !(t > 0)) return bill.on_demand_usd;
  const scale = now_usd / ((last * end) / t);
  return bill.on_demand_usd.map((v) => v * scale);
}

// Between two charts the page may do something else: no update holds it up for long.
const breath = () => new Promise((resolve) => setTimeout(resolve));

// What was wanted of all pools at each of these times, which rise.
function wantedAt(pools, times) {
  const at = pools.map(() => 0);
  return times.map((t) => {
    pools.forEach((p, i) => { while (at[i] < p.points.length && p.points[at[i]][0] <= t) at[i]++; });
    return sum(pools.map((p, i) => (at[i] > 0 ? p.points[at[i] - 1][1] : 0)));
  });
}

// When it will be done if it goes on as it did, with four chances in five.
const between = (s) => (s.left_low_s === null || s.left_high_s === null ? "" : ` (${f.between(s.left_low_s, s.left_high_s)})`);

// What was forecast at each time: between when and when it would be done; beside it, when it was.
function doneData(hist, status) {
  const list = hist.forecasts ?? [], end = hist.wall_s, finished = status?.state === "finished";
  const x = list.map((v) => v[0]), low = list.map((v) => v[2]), high = list.map((v) => v[3]);
  const most = Math.max(...low, finished ? end : 0) * 3, capped = high.map((v) => Math.min(v, most)); // the first ones may be wild
  const text = (i) => (list[i] ? f.between(list[i][2], list[i][3]) : "");
  if (finished && x.length) { x.push(end); low.push(null); capped.push(null); }
  const series = [{ name: "forecast", y: capped, line: 2, band: false, text }, { name: "forecast", y: low, line: 2, band: true }];
  if (finished && x.length) series.push({ name: "was done at", y: x.map(() => end), line: 1, dashed: true });
  return { x, end, series, pauses: hist.pauses };
}

// Of a run that is over, or has no forecast now: what was forecast when a third of it was done, as a fan.
function oldFan(hist, steps) {
  const list = hist.forecasts ?? [], chosen = list.find((v) => v[1] >= steps / 3) ?? null;
  return chosen && chosen[3] < 12 * hist.wall_s ? { time: chosen[0], step: chosen[1], low: chosen[2], high: chosen[3] } : null;
}

// Committed steps, the plan's straight line, and the fan of when it will be done: from now on, or, where it is over, as it was.
function progressData(hist, prediction, status) {
  const p = hist.progress, end = hist.wall_s, steps = status?.job.steps ?? 0, done = status?.steps.committed ?? 0;
  const planned = (prediction?.run?.time_s ?? 0) / (status?.job.speed || 1);
  const known = status?.live && status.left_low_s !== null && status.left_high_s !== null && end + status.left_high_s < 12 * end;
  const old = status?.live ? null : oldFan(hist, steps), from = old?.time ?? end, begun = old?.step ?? done;
  const low = known ? end + status.left_low_s : old?.low ?? 0, high = known ? end + status.left_high_s : old?.high ?? 0;
  const x = p.time_s.length ? [0, ...p.time_s] : [], y = p.time_s.length ? [0, ...p.step] : [];
  if (status?.live && x.length) { x.push(end); y.push(done); }
  const until = Math.max(end, high, planned && planned < 3 * end ? planned : 0), came = x.length - 1;
  const steady = new Map(x.map((t, i) => [t, y[i]]));
  const more = came < 0 ? [] : [from, low, planned, high].filter((t) => t > 0 && t <= until && !steady.has(t));
  x.push(...new Set(more));
  x.sort((a, b) => a - b);
  const series = [{ name: "steps", y: along(x, steady), line: 1 }];
  if (planned > 0 && steps > 0) series.push({ name: "plan", y: x.map((t) => Math.min(steps, (steps * t) / planned)), line: 3, dashed: true });
  if ((known || old) && came >= 0) {
    const edge = (at) => x.map((t) => (t < from || at <= from ? null : Math.min(steps, begun + ((steps - begun) * (t - from)) / (at - from))));
    const early = edge(low), late = edge(high), text = (i) => (x[i] > from && early[i] !== null ? `${f.count(late[i])} to ${f.count(early[i])}` : "");
    const name = old ? "forecast at a third" : "forecast";
    series.push({ name, y: early, line: 2, band: false, text }, { name, y: late, line: 2, band: true });
  }
  return { x, end: until, series, pauses: hist.pauses, top: known || old ? steps : undefined };
}
// A curve at more times than it has points: between two on the line through them, after the last one nothing.
function along(times, points) {
  const known = [...points];
  let i = 0;
  return times.map((t) => {
    if (points.has(t)) return points.get(t);
    while (i + 1 < known.length && known[i + 1][0] < t) i++;
    const a = known[i], b = known[i + 1];
    return !b || t < a[0] ? null : a[1] + ((b[1] - a[1]) * (t - a[0])) / (b[0] - a[0]);
  });
}

// Steps of an interval by its length: what stood still counts. Between two points steps came evenly, as far as is known; after
// the last one nothing is known until it is longer ago than an interval.
export function throughput(p, end) {
  const n = p.time_s.length, x = [], y = [];
  if (n < 2 || end <= 0) return { x, y };
  const bins = Math.min(120, Math.max(8, n >> 1)), last = p.time_s[n - 1], wide = last / bins;
  let i = 0, before = 0;
  for (let b = 1; b <= bins; b++) {
    const to = b === bins ? last : wide * b;
    while (i < n && p.time_s[i] <= to) i++;
    const [t0, s0] = i > 0 ? [p.time_s[i - 1], p.step[i - 1]] : [0, 0];
    const at = i < n && p.time_s[i] > t0 ? s0 + ((p.step[i] - s0) * (to - t0)) / (p.time_s[i] - t0) : s0;
    x.push(to); y.push(Math.max(0, (at - before) / wide));
    before = at;
  }
  if (end > last + 2 * wide) { x.push(last + wide, end); y.push(0, 0); }
  return { x, y };
}

// ---- pauses ----

const causes = { waiting: "waiting for instances", start: "start", loss: "preemption without notice, or failure", notice: "preemption with notice", arrival: "arrival", release: "an instance that was released" };

function pauseCard() {
  const body = h("tbody", {}), note = h("span.soft.small", {});
  const el = h("section.card", { "aria-labelledby": "pauses-title" }, h("div.row", {}, h("h2", { id: "pauses-title" }, "Pauses"), h("span.grow"), note), wide("Pauses, in numbers", h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Cause"), ["Count", "Median", "Longest", "Total"].map((t) => h("th.num", { scope: "col" }, t)))), body)));
  return { el, update: (hist) => {
    const by = new Map();
    for (const p of hist.pauses) { if (!by.has(p.cause)) by.set(p.cause, []); by.get(p.cause).push(p.to_s - p.from_s); }
    const total = [...by.values()].flat().reduce((a, b) => a + b, 0);
    put(note, hist.wall_s > 0 ? `${f.span(total)} in all, ${f.percent(total / hist.wall_s)} of the time` : "");
    const rows = [...by].sort((a, b) => sum(b[1]) - sum(a[1])).map(([cause, list]) => {
      list.sort((a, b) => a - b);
      return h("tr", {}, h("td", {}, causes[cause] ?? cause), [f.count(list.length), f.span(f.median(list)), f.span(list[list.length - 1]), f.span(sum(list))].map((t) => h("td.num", {}, t)));
    });
    fill(body, rows.length ? rows : h("tr", {}, h("td.soft", { colspan: "5" }, "none")));
  } };
}
const sum = (list) => list.reduce((a, b) => a + b, 0);

// ---- events ----

// "pool 2" and counts by pool, with their names.
function named(text, pools) {
  if (!pools?.length) return text;
  return text.replace(/^pool (\d+)(?=:? )/, (all, n) => pools[n - 1]?.pool ?? all)
    .replace(/; by pool ([\d, ]+)$/, (all, list) => ": " + (list.split(", ").map((n, i) => [n, pools[i]?.pool]).filter(([n, pool]) => n !== "0" && pool).map((pair) => pair.join(" × ")).join(", ") || "none"));
}

function eventCard(name, state) {
  let kept = [];
  const hidden = new Set(), kinds = new Map();
  let text = "", changed = true, shown = EVENTS_SHOWN, first = Infinity; // the oldest number that was asked for
  const list = h("ol", {}), chips = h("div.chips", { role: "group", "aria-label": "Kinds of events" });
  const search = h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter events by text", oninput: () => { text = search.value.toLowerCase(); changed = true; draw(); } });
  const more = h("button", { type: "button", onclick: () => older() }, "Show older ones");
  const el = h("section.card", { "aria-labelledby": "events-title" }, h("div.row", {}, h("h2", { id: "events-title" }, "Events"), h("span.grow"), search), chips, h("div.events", { tabindex: "0", "aria-label": "Events, newest first", role: "region" }, list, more));
  const brief = (e) => ({ sequence: e.sequence, utc_ms: e.utc_ms, kind: e.kind, text: named(e.text, state.status?.pools) });
  const seen = (e) => kinds.set(e.kind, (kinds.get(e.kind) ?? 0) + 1);
  const fits = (e) => !hidden.has(e.kind) && (!text || e.text.toLowerCase().includes(text));
  function take(e) {
    first = Math.min(first, e.sequence);
    if (e.quiet) return false;
    kept.push(brief(e));
    if (kept.length > EVENTS_KEPT) kept = kept.slice(-EVENTS_KEPT / 2);
    seen(e);
    return changed = true;
  }
  // Those from before the page was opened come page by page.
  async function older() {
    shown += 400;
    if (kept.filter(fits).length < shown && first > 1) {
      more.disabled = true;
      try {
        const after = Math.max(0, first - 1 - EVENTS_PAGE), found = [];
        for (let from = after; from < first - 1;) {
          const page = await lines(jobPath(name, `events?brief=1&after=${from}&limit=${first - 1 - from}`));
          if (page.length === 0) break;
          found.push(...page);
          from = page[page.length - 1].sequence;
        }
        first = after + 1;
        const loud = found.filter((e) => !e.quiet);
        loud.forEach(seen);
        kept = [...loud.map(brief), ...kept];
      } catch { /* the button is still there */ }
      more.disabled = false;
    }
    changed = true;
    draw();
  }
  const row = (e) => h("li", { "data-sequence": String(e.sequence) }, h("time", { datetime: new Date(e.utc_ms).toISOString(), title: f.day(e.utc_ms) }, f.clock(e.utc_ms)), h("span.kind", {}, e.kind.replaceAll("_", " ")), h("span", {}, e.text));
  function draw() {
    if (!changed) return;
    changed = false;
    const names = [...kinds.keys()].sort();
    if (chips.children.length !== names.length) {
      fill(chips, names.map((kind) => h("button", { type: "button", "aria-pressed": String(!hidden.has(kind)), onclick: (e) => {
        if (hidden.has(kind)) hidden.delete(kind); else hidden.add(kind);
        e.target.setAttribute("aria-pressed", String(!hidden.has(kind)));
        changed = true; draw();
      } }, kind.replaceAll("_", " "))));
    }
    const rows = [];
    let i = kept.length - 1;
    for (; i >= 0 && rows.length < shown; i--) if (fits(kept[i])) rows.push(kept[i]);
    more.hidden = i < 0 && first <= 1;
    place(rows);
    if (rows.length === 0) fill(list, h("li", {}, h("span.soft", {}, kept.length ? "none fits" : "none yet")));
  }
  // Only what is new is made, and what is not shown any more goes: the rest stays where it is.
  function place(rows) {
    const wanted = new Set(rows.map((e) => String(e.sequence)));
    for (const li of [...list.children]) if (!wanted.has(li.dataset.sequence)) li.remove();
    let at = list.firstChild;
    for (const e of rows) {
      if (at?.dataset.sequence === String(e.sequence)) at = at.nextSibling;
      else list.insertBefore(row(e), at);
    }
  }
  const clear = () => { kept = []; kinds.clear(); shown = EVENTS_SHOWN; first = Infinity; changed = true; fill(list); fill(chips); };
  return { el, take, draw, clear };
}

// ---- logs ----

// The list has the newest ones that wrote something; any other is asked for by its number.
function logCard(name, state) {
  const select = h("select", { "aria-label": "Instance", onchange: () => { if (select.value) choose(Number(select.value)); } }, h("option", { value: "" }, "choose an instance"));
  const number = h("input.number", { type: "number", min: "1", step: "1", "aria-label": "Number of any instance", placeholder: "number", onchange: () => typed() });
  const worker = h("input.number", { type: "number", min: "0", step: "1", value: "0", "aria-label": "Which of its workers", title: "which of its workers", hidden: true, onchange: () => typed() });
  const error = h("p.error", { role: "alert", hidden: true });
  const log = h("pre.log", { tabindex: "0", "aria-label": "Output of the worker", role: "region" }, "Choose an instance, or type its number, to see what its worker printed.");
  const el = h("section.card", { "aria-labelledby": "logs-title" }, h("div.row", {}, h("h2", { id: "logs-title" }, "Logs"), h("span.grow"), select, h("span.soft.small", {}, "or"), number, worker), error, log);
  let ids = "", timer = 0, seen = null, each = 1, chosen = 0; // the number of a worker: they are numbered instance after instance
  const clean = (line) => line.replace(/\u001b\[[0-9;?]*[A-Za-z]/g, "").replace(/[\u0000-\u0008\u000b-\u001f\u007f]/g, "");
  const show = (text, wrong) => { error.hidden = !wrong; put(error, wrong); log.hidden = Boolean(wrong); put(log, text); };
  const choose = (id) => {
    chosen = id;
    number.value = String(Math.floor((id - 1) / each) + 1);
    worker.value = String((id - 1) % each);
    select.value = String(id);
    if (select.selectedIndex < 0) select.value = "";
    show("…", "");
    read();
  };
  const typed = () => {
    const instance = Number(number.value), which = Number(worker.value);
    if (number.value === "") return;
    if (!(Number.isSafeInteger(instance) && instance >= 1 && Number.isSafeInteger(which) && which >= 0 && which < each)) { chosen = 0; show("", each > 1 ? `Instances are numbered from 1, the workers of each from 0 to ${each - 1}.` : "Instances are numbered from 1."); return; }
    choose((instance - 1) * each + which + 1);
  };
  const read = async () => {
    clearTimeout(timer);
    const asked = chosen;
    if (!asked || state.gone) return;
    try {
      const answer = await get(jobPath(name, `logs?instance=${asked}&last=300`));
      if (asked !== chosen) return; // another was chosen meanwhile
      const lines = answer.instances[0]?.lines ?? [];
      const end = log.scrollTop + log.clientHeight >= log.scrollHeight - 20;
      show(lines.length ? lines.map(clean).join("\n") : "It has printed nothing.", "");
      if (end) log.scrollTop = log.scrollHeight;
    } catch (e) { if (asked === chosen) show("", e.message); }
    if (!state.gone && state.status?.live) { clearTimeout(timer); timer = setTimeout(read, LOG_MS); }
  };
  // A worker prints its first line a while after its instance came: then the list is asked for again.
  const offer = async (s) => {
    const key = `${s.arrivals}|${s.live}|${s.generation}`;
    each = s.job.workers || 1;
    worker.hidden = each === 1; worker.max = String(each - 1);
    const called = (i) => each > 1 ? `instance ${Math.floor((i - 1) / each) + 1}, worker ${(i - 1) % each}` : `instance ${i}`;
    if (key === seen) return;
    seen = key;
    try {
      const all = (await get(jobPath(name, "logs?last=0"))).instances.map((i) => i.instance);
      if (all.join() === ids) return;
      ids = all.join();
      fill(select, h("option", { value: "" }, "choose an instance"), all.map((i) => h("option", { value: String(i) }, called(i))));
      select.value = all.includes(chosen) ? String(chosen) : "";
    } catch { seen = null; }
  };
  return { el, offer, stop: () => clearTimeout(timer) };
}
