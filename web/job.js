// One run, live: what it is doing, on what, at which cost; its curves, pauses, events and logs.
import { h, fill, put, wide, confirm } from "./dom.js";
import { get, lines, post, follow, jobPath } from "./api.js";
import { lineChart, lanes, poolLanes, keys } from "./chart.js";
import { layoutGrid } from "./layout.js";
import { steering, copyCard, poolCard } from "./steer.js";
import * as f from "./format.js";

const HISTORY_MS = 4000, EVENTS_KEPT = 20000, EVENTS_SHOWN = 100, EVENTS_BEFORE = 2000, EVENTS_PAGE = 2000, LOG_MS = 3000;

export function jobView(main, name, app, say) {
  const state = { status: null, prediction: {}, history: null, gone: false };
  const head = header(name, app, state);
  const orders = steering(name, app, state);
  const tiles = tileRow();
  const layout = layoutGrid();
  const charts = chartCards();
  const pauses = pauseCard(), copies = copyCard(), pools = poolCard();
  const events = eventCard(name);
  const logs = logCard(name, state);
  fill(main, head.el, orders.el, tiles.el, h("div.stack", {}, layout), charts.el, h("div.stack", {}, charts.pools), h("div.grid2", {}, pools.el, copies.el), h("div.grid2", {}, pauses.el, charts.lanes), h("div.stack", {}, events.el, logs.el));
  let source = null, timer = 0, frame = 0, due = false;

  // However fast events come, the page is drawn once a frame.
  const draw = () => {
    frame = 0;
    if (state.gone || !state.status) return;
    head.update(state.status); orders.update(state.status); pools.update(state.status); copies.draw(); tiles.update(state.status, state.prediction); layout.update(state.status);
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
      pauses.update(state.history);
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
      if (e.status === 503) { say(e.message); timer = setTimeout(begin, 1000); return; }
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
      open: () => say(""),
      lost: () => say("The dashboard does not answer. It is asked again every second; runs go on without it."),
    });
  };
  begin();
  return () => { state.gone = true; source?.close(); clearTimeout(timer); clearInterval(ticking); cancelAnimationFrame(frame); logs.stop(); };
}

// ---- head ----

function header(name, app, state) {
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
  const el = h("div", {}, h("div.row", {}, h("a.small", { href: "#/" }, "← Jobs")), h("div.row", {}, h("h1", {}, name), pill, what, h("span.grow"), resume, stop), reason, error, output);
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
  const el = h("section.tiles", { "aria-label": "In numbers" }, tile("steps", "Progress", true), tile("loss", "Loss"), tile("rate", "Throughput"), tile("cost", "Cost"), tile("fleet", "Instances"), tile("durable", "Durable"));
  made.steps.extra.append(bar);
  const set = (key, value, note) => { put(made[key].value, value); put(made[key].note, note); };
  return { el, update: (s, prediction) => {
    const steps = s.job.steps, done = s.steps.committed, rate = s.steps.per_s;
    const left = s.live ? s.left_s : null;
    bar.max = Math.max(1, steps); bar.value = done;
    const planned = prediction?.run?.time_s;
    set("steps", `${f.count(done)} of ${f.count(steps)} steps`, [f.percent(steps ? done / steps : 0), left === null ? "" : `${f.span(left)} left${between(s)}, done at ${f.day(Date.now() + left * 1000)}`, planned ? `planned ${f.span(planned)} in the cloud` : "", s.deadline_s ? `deadline ${f.span(s.deadline_s)} in the cloud` : ""].filter(Boolean).join(" · "));
    set("loss", f.loss(s.loss), s.steps.step_s ? `step time ${f.span(s.steps.step_s)}` : "");
    set("rate", s.live ? `${f.short(rate)} steps/s` : "–", s.live && s.tokens_per_s ? `${f.short(s.tokens_per_s)} tokens/s` : s.job.samples_per_step ? `${f.count(s.job.samples_per_step)} samples a step` : "");
    const less = f.less(s.bill_usd, s.on_demand_usd);
    set("cost", f.usd(s.bill_usd), [less === null ? "" : `${less}% less than on-demand ${f.usd(s.on_demand_usd)}`, prediction?.run?.bill_usd ? `plan ${f.usd(prediction.run.bill_usd)}` : "", s.budget_usd ? `budget ${f.usd(s.budget_usd)}` : "", s.job.samples_per_step && done ? `${f.usd((s.bill_usd / (done * s.job.samples_per_step)) * 1e6)} a million samples` : ""].filter(Boolean).join(" · "));
    const wanted = (s.want_spot ?? 0) + (s.want_on_demand ?? 0);
    set("fleet", s.live ? `${f.count(s.instances_here)}${wanted ? ` of ${f.count(wanted)}` : ""}` : f.count(s.arrivals), s.live ? [s.instances_noticed ? `${s.instances_noticed} with notice` : "", `${f.count(s.arrivals)} arrived`, `${f.count((s.losses_announced ?? 0) + (s.losses_unannounced ?? 0))} preempted`].filter(Boolean).join(" · ") : `arrived · ${f.count((s.losses_announced ?? 0) + (s.losses_unannounced ?? 0))} preempted`);
    set("durable", `step ${f.count(s.steps.durable)}`, `${f.count(done - s.steps.durable)} behind · ${f.plural(s.steps.redone, "step")} redone`);
  } };
}

// ---- curves ----

function chartCards() {
  const card = (title, chart, below) => h("section.card", { "aria-label": title }, h("div.row", {}, h("h2", {}, title), h("span.grow"), below ?? null), chart);
  const progress = lineChart({ title: "Steps", value: (v) => f.short(v), fromZero: true });
  const loss = lineChart({ title: "Loss", value: (v) => f.short(v, 4) });
  const rate = lineChart({ title: "Throughput", value: (v) => f.short(v), fromZero: true, area: true });
  const fleet = lineChart({ title: "Instances", value: (v) => String(Math.round(v)), fromZero: true, stepped: true, area: true });
  const cost = lineChart({ title: "Cost", value: f.usd, fromZero: true });
  const when = lanes(), places = poolLanes();
  const el = h("div.grid2.charts", {}, card("Progress and forecast", progress, keys([["k1", "steps"], ["k3", "plan"]])), card("Loss", loss), card("Throughput (steps/s)", rate, keys([["k1", "steps/s"]])),
    card("Instances", fleet, keys([["k1", "running"], ["k3", "wanted"], ["k2", "with notice"]])), card("Cost", cost, keys([["k1", "paid"], ["k2", "on-demand"], ["k3", "plan"]])));
  return { el, lanes: card("Instances over time", when, keys([["k1", "spot"], ["k3", "on-demand"], ["k2", "notice"]])), pools: card("Pools over time", places, keys([["k1", "there"], ["k3", "wanted"], ["k2", "cost so far"]])), update: async (hist, prediction, status) => {
    const end = hist.wall_s, p = hist.progress;
    progress.update(progressData(hist, prediction, status));
    await breath();
    loss.update({ x: p.time_s, end, series: [{ name: "loss", y: p.loss, class: "s1" }], pauses: hist.pauses });
    await breath();
    const rates = throughput(p, end);
    rate.update({ x: rates.x, end, series: [{ name: "steps/s", y: rates.y, class: "s1" }], pauses: hist.pauses });
    await breath();
    const extend = (list) => (list.length ? [...list, list[list.length - 1]] : list);
    const fx = hist.fleet.time_s.length ? [...hist.fleet.time_s, end] : [];
    const series0 = [{ name: "running", y: extend(hist.fleet.here), class: "s1" }, { name: "with notice", y: extend(hist.fleet.noticed), class: "s2" }];
    if (hist.pools?.length) series0.push({ name: "wanted", y: wantedAt(hist.pools, fx), class: "s3", dashed: true });
    fleet.update({ x: fx, end, series: series0 });
    await breath();
    places.update({ end, pools: hist.pools ?? [] });
    await breath();
    // The curve has a point where the cloud billed; the status has the newest word.
    const now = status && status.bill_usd !== null && hist.bill.time_s.length > 0;
    const x = now ? [...hist.bill.time_s, end] : hist.bill.time_s, add = (list, v) => (now ? [...list, v] : list);
    const series = [{ name: "paid", y: add(hist.bill.bill_usd, status?.bill_usd), class: "s1" }, { name: "on-demand", y: add(onDemand(hist.bill, now ? status.on_demand_usd : null, end), status?.on_demand_usd), class: "s2", dashed: true }];
    const highest = Math.max(...series.flatMap((s) => s.y.filter(Number.isFinite)), 0), planned = prediction?.run?.bill_usd;
    if (planned && planned < 3 * highest) series.push({ name: "plan, in the end", y: x.map(() => planned), class: "s3", dashed: true });
    cost.update({ x, end, series });
    await breath();
    when.update({ end, instances: hist.instances });
  } };
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

// Committed steps, the plan's straight line, and the fan of when it will be done.
function progressData(hist, prediction, status) {
  const p = hist.progress, end = hist.wall_s, steps = status?.job.steps ?? 0, done = status?.steps.committed ?? 0;
  const fan = status?.live && status.left_low_s !== null && status.left_high_s !== null ? { low_s: status.left_low_s, high_s: status.left_high_s } : null, planned = (prediction?.run?.time_s ?? 0) / (status?.job.speed || 1);
  const x = [...p.time_s], y = [...p.step];
  if (status?.live && x.length) { x.push(end); y.push(done); }
  const ahead = fan && end + fan.high_s < 20 * end ? fan : null, until = Math.max(end, ahead ? end + ahead.high_s : 0, planned && planned < 3 * end ? planned : 0);
  const series = [{ name: "steps", y, class: "s1" }];
  if (planned > 0 && steps > 0) series.push({ name: "plan", y: x.map((t) => Math.min(steps, (steps * t) / planned)), class: "s3", dashed: true });
  return { x, end: until, series, pauses: hist.pauses, top: ahead ? steps : undefined, fan: ahead ? { from_s: end, from: done, low_s: end + ahead.low_s, high_s: end + ahead.high_s, to: steps } : null };
}

// Steps of an interval by its length: what stood still counts.
function throughput(p, end) {
  const n = p.time_s.length, bins = Math.min(120, Math.max(8, n >> 1)), x = [], y = [];
  if (n < 2 || end <= 0) return { x, y };
  let i = 0, before = 0;
  for (let b = 1; b <= bins; b++) {
    const to = (end * b) / bins;
    while (i < n && p.time_s[i] <= to) i++;
    const at = i > 0 ? p.step[i - 1] : 0;
    x.push(to); y.push(Math.max(0, (at - before) / (end / bins)));
    before = at;
  }
  return { x, y };
}

// ---- pauses ----

const causes = { waiting: "waiting for instances", start: "start", loss: "preemption without notice, or failure", notice: "preemption with notice", arrival: "arrival" };

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
      return h("tr", {}, h("td", {}, causes[cause] ?? cause), [f.count(list.length), f.span(list[list.length >> 1]), f.span(list[list.length - 1]), f.span(sum(list))].map((t) => h("td.num", {}, t)));
    });
    fill(body, rows.length ? rows : h("tr", {}, h("td.soft", { colspan: "5" }, "none")));
  } };
}
const sum = (list) => list.reduce((a, b) => a + b, 0);

// ---- events ----

function eventCard(name) {
  let kept = [];
  const hidden = new Set(), kinds = new Map();
  let text = "", changed = true, shown = EVENTS_SHOWN, first = Infinity; // the oldest number that was asked for
  const list = h("ol", {}), chips = h("div.chips", { role: "group", "aria-label": "Kinds of events" });
  const search = h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter events by text", oninput: () => { text = search.value.toLowerCase(); changed = true; draw(); } });
  const more = h("button", { type: "button", onclick: () => older() }, "Show older ones");
  const el = h("section.card", { "aria-labelledby": "events-title" }, h("div.row", {}, h("h2", { id: "events-title" }, "Events"), h("span.grow"), search), chips, h("div.events", { tabindex: "0", "aria-label": "Events, newest first", role: "region" }, list, more));
  const brief = (e) => ({ sequence: e.sequence, utc_ms: e.utc_ms, kind: e.kind, text: e.text });
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
  return { el, take, draw };
}

// ---- logs ----

function logCard(name, state) {
  const select = h("select", { "aria-label": "Instance", onchange: () => read() });
  const log = h("pre.log", { tabindex: "0", "aria-label": "Output of the worker", role: "region" }, "Choose an instance to see what its worker printed.");
  const el = h("section.card", { "aria-labelledby": "logs-title" }, h("div.row", {}, h("h2", { id: "logs-title" }, "Logs"), h("span.grow"), select), log);
  let ids = "", timer = 0, seen = null;
  const clean = (line) => line.replace(/\u001b\[[0-9;?]*[A-Za-z]/g, "").replace(/[\u0000-\u0008\u000b-\u001f\u007f]/g, "");
  const read = async () => {
    clearTimeout(timer);
    if (!select.value || state.gone) return;
    try {
      const answer = await get(jobPath(name, `logs?instance=${select.value}&last=300`));
      const lines = answer.instances[0]?.lines ?? [];
      const end = log.scrollTop + log.clientHeight >= log.scrollHeight - 20;
      put(log, lines.length ? lines.map(clean).join("\n") : "It has printed nothing.");
      if (end) log.scrollTop = log.scrollHeight;
    } catch (e) { put(log, e.message); }
    if (!state.gone && state.status?.live) timer = setTimeout(read, LOG_MS);
  };
  const offer = async (s) => {
    const key = `${s.arrivals}|${s.live}`;
    if (key === seen) return;
    seen = key;
    try {
      const all = (await get(jobPath(name, "logs?last=0"))).instances.map((i) => i.instance);
      if (all.join() === ids) return;
      ids = all.join();
      const chosen = select.value;
      fill(select, h("option", { value: "" }, "choose an instance"), all.map((i) => h("option", { value: String(i) }, `instance ${i}`)));
      if (chosen) select.value = chosen;
    } catch { seen = null; }
  };
  return { el, offer, stop: () => clearTimeout(timer) };
}
