// All runs that are known here.
import { h, fill, wide } from "./dom.js";
import { get } from "./api.js";
import * as f from "./format.js";

const EVERY_MS = 2000;

export function jobsView(main, app) {
  const table = h("tbody", {});
  const note = h("p.soft.small", {});
  const empty = h("div.card.empty", { hidden: true }, h("h2", {}, "No runs yet"), h("p", {}, "Start one with ", h("code", {}, "tidemill run JOB.yaml"), ", or see what to rent under ", h("a", { href: "#/plan" }, "Plan"), "."));
  const head = ["Job", "Progress", "Loss", "Throughput", "Cost", "Per million samples", "Done in", "Instances"];
  const card = h("div.card", {}, wide("All jobs", h("table.jobs", {}, h("thead", {}, h("tr", {}, head.map((t, i) => h("th", { class: i > 1 ? "num" : "", scope: "col" }, t)))), table)));
  fill(main, h("div.row", {}, h("h1", {}, "Jobs"), h("span.grow"), note), h("div.stack", {}, h("span"), card, empty));
  let timer = 0, gone = false, shown = "";
  const refresh = async () => {
    try {
      const jobs = [];
      for (let after = 0; after !== null;) { const page = await get(`/v1/jobs?after=${after}`); jobs.push(...page.jobs); after = page.next; }
      if (gone) return;
      jobs.sort((a, b) => Number(b.live) - Number(a.live) || b.utc_ms - a.utc_ms);
      const text = JSON.stringify(jobs);
      if (text !== shown) { shown = text; draw(jobs); }
    } catch (e) {
      if (gone) return;
      if (e.status === 401) { app.denied(); return; }
      note.textContent = e.message;
    }
    if (!gone) timer = setTimeout(refresh, EVERY_MS);
  };
  function draw(jobs) {
    const live = jobs.filter((j) => j.live).length;
    note.textContent = jobs.length === 0 ? "" : `${live} running, ${jobs.length - live} not`;
    empty.hidden = jobs.length > 0; card.hidden = jobs.length === 0;
    const focused = document.activeElement?.getAttribute?.("href");
    fill(table, jobs.map(row));
    if (focused) table.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
  }
  refresh();
  return () => { gone = true; clearTimeout(timer); };
}

// With four chances in five.
function interval(j) { return j.left_low_s === null || j.left_high_s === null ? null : h("div.small.soft.interval", { title: "with four chances in five" }, f.between(j.left_low_s, j.left_high_s)); }

function row(j) {
  const compared = f.compared(j.bill_usd, j.on_demand_usd);
  const cell = (label, ...text) => h("td.num", { "data-label": label }, ...text);
  const state = !j.live && !["finished", "failed", "stopped"].includes(j.state) ? "not running" : j.state ?? "unknown";
  return h("tr", {},
    h("td", {}, h("a", { href: "#/job/" + encodeURIComponent(j.name) }, j.name), " ", h("span.pill", { class: f.stateKinds[state] ?? "quiet" }, state), h("div.soft.small", {}, j.begun_utc_ms ? `started ${f.day(j.begun_utc_ms)}, ${f.span(j.wall_s)} long` : "")),
    h("td.bar", {}, h("progress", { max: Math.max(1, j.steps), value: j.committed, "aria-label": `steps of ${j.name}` }), h("div.small.soft.num", {}, `step ${f.count(j.committed)} of ${f.count(j.steps)}`)),
    cell("Loss", f.loss(j.loss)),
    cell("Throughput", j.live && j.steps_per_s ? `${f.short(j.steps_per_s)} steps/s` : "–", j.live && j.tokens_per_s ? h("div.small.soft", {}, `${f.short(j.tokens_per_s)} tokens/s`) : null),
    cell("Cost", f.usd(j.bill_usd), compared ? h("div.small.soft", {}, compared) : null),
    cell("Per million samples", f.usd(j.usd_per_million_samples)),
    cell("Done in", !j.live || j.left_s === null ? "–" : f.span(j.left_s), ...(!j.live || j.left_s === null ? [] : [interval(j), h("div.small.soft", {}, "at " + f.day(Date.now() + j.left_s * 1000))])),
    cell("Instances", j.live ? f.count(j.here) : "–", j.live && j.noticed ? h("div.small", {}, h("span.pill.warn", {}, `${j.noticed} with notice`)) : null));
}
