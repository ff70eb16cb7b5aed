// What to rent, and what would happen: the answers of tidemill plan and tidemill simulate, drawn.
import { h, fill, put, wide } from "./dom.js";
import { post, page } from "./api.js";
import { isDark, onTheme, scatter } from "./chart.js";
import * as f from "./format.js";

// key, label, at first, what it may be (a list: a choice), how it is written in the job file
const fields = [
  ["model", "Model", "gpt2-124m"], ["samples", "Samples", "20000000"], ["batch", "Batch", "512"],
  ["deadline", "Deadline", "48h"], ["budget", "Budget (dollars)", "500"],
  ["infra", "Pools: where", "", null, (v) => `  infra: [${v.split(/[\s,]+/).filter(Boolean).map((w) => JSON.stringify(w)).join(", ")}]\n`],
  ["types", "Pools: instance types", "", null, (v) => `  instance_type: [${v.split(/[\s,]+/).filter(Boolean).map((w) => JSON.stringify(w)).join(", ")}]\n`],
  ["market", "Pools: market", "mixed", ["mixed", "spot", "on-demand"], (v) => (v === "mixed" ? "" : `market: ${v}\n`)],
  ["trace", "Simulate on the trace", "", [["", "the job's own"], ["hadp", "hadp: many instances, many preemptions"], ["hasp", "hasp: many, few preemptions"], ["ladp", "ladp: few, many preemptions"], ["lasp", "lasp: few, few preemptions"]], (v) => (v ? `fleet: {trace: ${v}}\n` : "")],
];
const examples = { infra: "aws/us-east-1, gcp", types: "p3.2xlarge" };
let kept = null; // what was typed, while the page is open

export function planView(main, app) {
  kept ??= { values: Object.fromEntries(fields.map(([k, , v]) => [k, v])), yaml: "", own: false };
  const inputs = {};
  const yaml = h("textarea", { "aria-label": "Job file", spellcheck: "false" });
  const form = h("div.form", {}, fields.map(([key, label, , choices]) => {
    const changed = () => { kept.values[key] = inputs[key].value; kept.own = false; write(); };
    inputs[key] = choices ? h("select", { onchange: changed }, choices.map((c) => { const [value, text] = Array.isArray(c) ? c : [c, c]; return h("option", { value, selected: value === kept.values[key] }, text); })) : h("input", { type: "text", value: kept.values[key], placeholder: examples[key], oninput: changed });
    return h("label", { class: key === "trace" ? "two" : "" }, label, inputs[key]);
  }));
  const write = () => {
    if (kept.own) { yaml.value = kept.yaml; return; }
    const said = fields.map(([key, , , , put]) => [key, kept.values[key].trim(), put]).filter(([, value]) => value !== "");
    const resources = said.filter(([key]) => key === "infra" || key === "types").map(([, value, put]) => put(value)).join("");
    yaml.value = "name: what-if\n" + said.filter(([key]) => key !== "infra" && key !== "types").map(([key, value, put]) => (put ? put(value) : `${key}: ${value}\n`)).join("") + (resources ? "resources:\n" + resources : "");
  };
  yaml.addEventListener("input", () => { kept.yaml = yaml.value; kept.own = true; });
  write();
  const error = h("p.error", { role: "alert" }), busy = h("span.soft", { role: "status" });
  const result = h("div.stack", {}), simulated = h("div.stack", {});
  let endPlan = () => {}, endReport = () => {}, gone = false; // of what is drawn
  const plan = h("button.main", { type: "button", disabled: !app.steers }, "Plan");
  const simulate = h("button", { type: "button", disabled: !app.steers }, "Simulate");
  const run = async (what, work) => {
    const from = document.activeElement;
    plan.disabled = simulate.disabled = true; put(error, ""); put(busy, what);
    try { await work(); } catch (e) { put(error, e.message.replace(/^tidemill: error: (job file: )?/gm, "")); }
    plan.disabled = simulate.disabled = !app.steers; put(busy, "");
    if (document.activeElement === document.body) from?.focus({ preventScroll: true }); // a button that was disabled lost it
  };
  plan.onclick = () => run("Weighing fleets…", async () => {
    const [chosen, curve] = await Promise.all([post("/v1/plan", yaml.value, "application/yaml"), post("/v1/plan?pareto=1", yaml.value, "application/yaml")]);
    if (gone) return;
    endPlan();
    endPlan = drawPlan(result, chosen, curve);
  });
  simulate.onclick = () => run("Simulating…", async () => {
    const [answer, report] = await Promise.all([post("/v1/simulate", yaml.value, "application/yaml"), page("/v1/report", yaml.value)]);
    if (gone) return;
    endReport();
    endReport = drawSimulation(simulated, answer, report);
  });
  fill(main, h("div.row", {}, h("h1", {}, "Plan"), h("span.soft", {}, "what to rent for a job, and what would happen")),
    h("div.stack", {}, h("span"), h("section.card", { "aria-label": "The job" }, form, h("p", {}, h("details", { open: kept.own }, h("summary", {}, "Job file"), h("p.soft.small", {}, "Any key of tidemill-job(5) may be added here: pools, quotas, a trace to simulate on."), yaml)), h("div.row", {}, plan, simulate, busy, app.steers ? null : h("span.soft.small", {}, "This link may only watch.")), error)), result, simulated);
  return () => { gone = true; endPlan(); endReport(); };
}

const place = (a) => [a.cloud, a.region, a.zone].filter(Boolean).join(" · ");
const part = (p) => [p.spot ? `${p.spot} spot` : "", p.on_demand ? `${p.on_demand} on-demand` : ""].filter(Boolean).join(" + ") + " × " + p.instance;
const parts = (a) => (a.pools?.length ? a.pools : [{ instance: a.instance, spot: a.spot_nodes, on_demand: a.on_demand_nodes }]);
export const fleet = (a) => parts(a).map(part).join(" + ") + (a.anchors?.nodes ? ` + ${f.plural(a.anchors.nodes, "anchor")}` : "");
const id = (a) => JSON.stringify([a.cloud, a.region, parts(a).map((p) => [p.instance, p.zone, p.spot, p.on_demand]), a.anchors]);
// Those that no other one beats in both: the curve, from all that were judged.
export function frontier(all) {
  let least = Infinity;
  const sorted = [...all].sort((p, q) => p.a.time_s.mean - q.a.time_s.mean || p.a.cost_usd.mean - q.a.cost_usd.mean);
  for (const p of sorted) { p.curve = p.a.cost_usd.mean < least; least = Math.min(least, p.a.cost_usd.mean); }
}

// The probability that it takes at most so much, with what is known of its spread: between p10 and p90 lie four cases of five, as
// of a normal curve over the logarithm.
export function chance(estimate, limit) {
  const { p10, p90 } = estimate, spread = Math.log(p90 / p10) / 2.5631;
  if (!(p10 > 0) || !Number.isFinite(p90)) return null;
  if (!(spread > 0)) return limit >= p90 ? 1 : 0;
  const z = (Math.log(limit / p10) / spread) - 1.28155, t = 1 / (1 + 0.3275911 * Math.abs(z) / Math.SQRT2);
  const tail = 0.5 * t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))) * Math.exp(-z * z / 2);
  return z < 0 ? tail : 1 - tail;
}

// Returns what ends it, as drawSimulation does.
function drawPlan(into, answer, curve) {
  const best = answer.answers.find((a) => a.chosen) ?? answer.answers[0];
  const points = new Map();
  for (const a of [...answer.answers, ...curve.answers]) points.set(id(a), { a, curve: false });
  const all = [...points.values()].sort((p, q) => p.a.cost_usd.mean - q.a.cost_usd.mean);
  frontier(all);
  const longest = Math.max(...all.map((p) => p.a.time_s.p90)), dearest = Math.max(...all.map((p) => p.a.cost_usd.p90));
  const chart = scatter();
  const body = h("tbody", {}), why = h("p", { role: "status" });
  const slider = (label, max, text) => {
    const out = h("output", {}), input = h("input", { type: "range", min: "0", max: "1000", value: "1000", "aria-label": label });
    const read = () => (Number(input.value) >= 1000 ? Infinity : max * (Number(input.value) / 1000) ** 2);
    const show = () => { put(out, read() === Infinity ? " any" : " " + text(read())); update(); };
    input.addEventListener("input", show);
    return { el: h("label", {}, label, out, input), read, show };
  };
  const time = slider("What if the deadline were", longest * 1.05, f.span), money = slider("What if the budget were", dearest * 1.05, f.usd);
  const update = () => {
    if (!money || !time) return;
    const fits = ({ a }) => a.time_s.p90 <= time.read() && a.cost_usd.p90 <= money.read();
    const cheapest = all.find(fits), any = time.read() === Infinity && money.read() === Infinity;
    const chosen = any ? all.find((p) => id(p.a) === id(best)) : cheapest;
    put(why, chosen ? `${any ? "Chosen" : "The cheapest that fits in 9 of 10 cases"}: ${fleet(chosen.a)} in ${place(chosen.a)}: ${f.usd(chosen.a.cost_usd.mean)} in ${f.span(chosen.a.time_s.mean)}${any ? reasons(answer) : ""}.` : "None of these fits: plan again with that deadline or budget to search further.");
    chart.update({ points: all.map((p) => ({ x: p.a.time_s.mean, y: p.a.cost_usd.mean, curve: p.curve, name: `${fleet(p.a)}, ${place(p.a)}: ${f.usd(p.a.cost_usd.mean)} in ${f.span(p.a.time_s.mean)}`, kind: p === chosen ? "best" : fits(p) ? "" : "out" })), deadline: time.read() === Infinity ? 0 : time.read(), budget: money.read() === Infinity ? 0 : money.read() });
    fill(body, all.map((p) => h("tr", { class: p === chosen ? "chosen" : fits(p) ? "" : "out" }, h("td", {}, fleet(p.a), h("div.soft.small", {}, place(p.a))), h("td.num", {}, f.span(p.a.time_s.mean), h("div.soft.small", {}, `${f.span(p.a.time_s.p10)} – ${f.span(p.a.time_s.p90)}`)), h("td.num", {}, f.usd(p.a.cost_usd.mean), h("div.soft.small", {}, `${f.usd(p.a.cost_usd.p10)} – ${f.usd(p.a.cost_usd.p90)}`)), h("td.num", {}, f.hourly(p.a.price_usd_h)), h("td.num", {}, f.short(p.a.samples_per_s)), h("td.num", {}, time.read() === Infinity ? f.percent(p.a.p_deadline) : likely(chance(p.a.time_s, time.read()))))));
  };
  fill(into, h("section.card", { "aria-label": "Cost against time" }, h("h2", {}, "Cost against time"), chart, why, h("div.form", {}, time.el, money.el)),
    h("section.card", { "aria-label": "Fleets" }, h("h2", {}, "Fleets"), wide("Fleets, in numbers", h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Fleet"), ["Time (p10–p90)", "Cost (p10–p90)", "Price", "Samples/s", "P(deadline)"].map((t) => h("th.num", { scope: "col" }, t)))), body)), h("p.soft.small", {}, `${f.count(answer.fleets_weighed)} fleets weighed; judged by ${answer.judge}.`)));
  time.show(); money.show();
  return chart.stop;
}

// An estimate is never written as certain.
const likely = (p) => (p === null ? "–" : p > 0.99 ? "over 99%" : p < 0.01 ? "under 1%" : "about " + f.percent(p));

function reasons(answer) {
  const value = answer.objective === "fastest" ? f.span : f.usd;
  const binds = (answer.binds ?? []).map((b) => b.constraint.replace(/^--/, "") + (Number.isFinite(b.value_without) ? ` (without it ${value(b.value_without)})` : ""));
  return binds.length ? `. What limits it: ${binds.join(", ")}` : ", the cheapest that meets deadline and budget";
}

function drawSimulation(into, answer, report) {
  const expected = answer.expected ?? [];
  const rows = expected.length
    ? expected.map((e) => h("tr", { class: e.chosen ? "chosen" : "" }, h("td", {}, e.policy), h("td.num", {}, f.span(e.time_s?.mean), h("div.soft.small", {}, `${f.span(e.time_s?.p10)} – ${f.span(e.time_s?.p90)}`)), h("td.num", {}, f.usd(e.bill_usd?.mean), h("div.soft.small", {}, `${f.usd(e.bill_usd?.p10)} – ${f.usd(e.bill_usd?.p90)}`)), h("td.num", {}, f.percent(e.p_deadline))))
    : [];
  const runs = (answer.runs ?? []).map((r) => h("tr", {}, h("td", {}, r.policy, h("div.soft.small", {}, `on ${r.trace}`)), h("td.num", {}, f.span(r.finished_at_s)), h("td.num", {}, f.usd(r.bill_usd)), h("td.num", {}, f.short(r.samples_per_s)), h("td.num", {}, f.span(Object.values(r.stall_s ?? {}).reduce((a, b) => a + b, 0))), h("td.num", {}, f.percent(r.fraction_of_ideal))));
  const table = (label, head, body) => wide(label, h("table", {}, h("thead", {}, h("tr", {}, head.map((t, i) => h("th", { class: i ? "num" : "", scope: "col" }, t)))), h("tbody", {}, body)));
  const shown = inline(report);
  fill(into, h("section.card", { "aria-label": "Simulation" }, h("h2", {}, "Simulated"), runs.length ? table("What was simulated, in numbers", ["Policy", "Time", "Cost", "Samples/s", "Stood still", "Of ideal"], runs) : null, rows.length ? [h("h2", {}, "Expected"), table("What is expected, in numbers", ["Policy", "Time (p10–p90)", "Cost (p10–p90)", "P(deadline)"], rows)] : null), h("section.card", { "aria-labelledby": "report-title" }, h("h2", { id: "report-title" }, "Report"), shown));
  const dress = () => shown.classList.toggle("dark", isDark());
  dress();
  return onTheme(dress);
}

// Its headings stand below the one of its card.
function lower(page) {
  for (const [from, to] of [["h4", "h5"], ["h3", "h5"], ["h2", "h4"], ["h1", "h3"]]) for (const el of page.querySelectorAll(from)) {
    const next = page.createElement(to);
    next.className = el.className;
    next.append(...el.childNodes);
    el.replaceWith(next);
  }
}

// The report of tidemill simulate in a room of its own: it brings its style, and no script of it runs.
function inline(html) {
  const sheets = []; // neither they nor styles of elements may be read as such: the page's policy forbids what stands in a text
  const text = html.replace(/<style>([^]*?)<\/style>/g, (_, css) => { sheets.push(css); return ""; }).replace(/ style=/g, " data-style=");
  const made = new DOMParser().parseFromString(text, "text/html");
  const host = h("div.report", { tabindex: "0", role: "region", "aria-label": "Report of the simulation" }), room = host.attachShadow({ mode: "open" });
  const css = sheets.join("\n").replace(/@media screen and \(prefers-color-scheme:dark\)\{:root(\{[^}]*\})\}/g, ":host(.dark)$1").replaceAll(":root", ":host").replace(/\bbody\{/g, ".page{").replace(/\bh([1-4])(?=[{,])/g, (_, n) => `h${Math.min(5, Number(n) + 2)}`);
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(css + ".page{padding:0;max-width:none}");
  room.adoptedStyleSheets = [sheet];
  for (const el of made.querySelectorAll("script, .repeat")) el.remove(); // its command names files that are gone
  lower(made);
  for (const [i, el] of [...made.querySelectorAll(".scroll")].entries()) { el.tabIndex = 0; el.setAttribute("role", "region"); el.setAttribute("aria-label", `Table ${i + 1} of the report`); }
  const body = h("div.page", {});
  for (const el of made.body.querySelectorAll("[data-style]")) el.style.cssText = el.dataset.style;
  body.append(...[...made.body.childNodes].map((n) => document.adoptNode(n)));
  room.append(body);
  return host;
}
