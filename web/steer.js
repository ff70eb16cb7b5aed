// Orders to a run that goes on: a copy now, other limits, an instance that is to go. Each is asked about first.
import { h, fill, put, wide } from "./dom.js";
import { post, jobPath } from "./api.js";
import * as f from "./format.js";

// A dialog with fields; resolves to true where it was confirmed.
function form(title, text, rows, label) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, h("h2", { id: "dialog-title" }, title), h("p", {}, text),
      h("form", { method: "dialog" }, rows, h("div.row", {}, h("button", { type: "button", onclick: () => dialog.close("") }, "Cancel"), h("button.main", { value: "yes" }, label))));
    dialog.addEventListener("close", () => { dialog.remove(); resolve(dialog.returnValue === "yes"); });
    document.body.append(dialog);
    dialog.showModal();
  });
}

const units = { s: 1, m: 60, h: 3600, d: 86400 };
// "36h", "1d 12h" or "" (none) as seconds; null: not understood.
export function seconds(text) {
  const parts = text.trim().toLowerCase().split(/\s+/).filter(Boolean).map((p) => /^(\d+(?:\.\d+)?)([smhd])$/.exec(p));
  return parts.some((p) => p === null) ? null : Math.round(parts.reduce((sum, p) => sum + Number(p[1]) * units[p[2]], 0));
}
// Dollars as cents; null: not understood.
export function cents(text) {
  const given = text.trim().replace(/^\$/, "");
  return given === "" ? 0 : /^\d+(\.\d{1,2})?$/.test(given) ? Math.round(Number(given) * 100) : null;
}
// As seconds() reads it.
const plain = (s) => (!s ? "" : s % 3600 === 0 ? `${s / 3600}h` : s % 60 === 0 ? `${s / 60}m` : `${Math.round(s)}s`);

export function steering(name, app, state) {
  const said = h("p.soft", { role: "status", hidden: true });
  const order = async (path, text) => {
    said.hidden = false;
    said.className = "soft";
    try { await post(jobPath(name, path)); put(said, text); } catch (e) { said.className = "error"; put(said, e.message); }
  };
  const copy = h("button", { type: "button", onclick: async () => {
    if (await form("Make a copy now?", `Step ${f.count(state.status.steps.durable)} is durable; step ${f.count(state.status.steps.committed)} is committed. Training goes on while the copy is made.`, [], "Make a copy")) order("copy", "A copy is ordered; the tile of the durable step shows when it is there.");
  } }, "Copy now…");
  const limits = h("button", { type: "button", onclick: async () => {
    const s = state.status;
    const deadline = h("input", { value: plain(s.deadline_s), placeholder: "none", "aria-describedby": "limits-help" }), budget = h("input", { value: s.budget_usd ? String(s.budget_usd) : "", placeholder: "none", inputmode: "decimal" });
    const ok = await form(`Limits of ${name}`, "Of the whole job. The policy rents by them from now on.", [h("label", {}, "Deadline, from its start in the cloud's time", deadline), h("p.soft.small", { id: "limits-help" }, "for example 36h or 1d 12h; empty: none"), h("label", {}, "Budget, in dollars", budget)], "Change");
    if (!ok) return;
    const time = seconds(deadline.value), money = cents(budget.value);
    if (time === null || money === null) { said.hidden = false; said.className = "error"; put(said, time === null ? `"${deadline.value}" is no time: write 36h or 1d 12h` : `"${budget.value}" is no amount: write 12.50`); return; }
    if (deadline.value !== plain(s.deadline_s)) await order(`deadline?seconds=${time || "none"}`, `The deadline is ${time ? f.span(time) : "gone"}.`);
    if (said.className !== "error" && money !== Math.round((s.budget_usd ?? 0) * 100)) await order(`budget?cents=${money || "none"}`, `The budget is ${money ? f.usd(money / 100) : "gone"}.`);
  } }, "Limits…");
  const drain = h("button", { type: "button", onclick: async () => {
    const here = state.status.instances.filter((i) => i.state === "running" || i.state === "noticed");
    const select = h("select", {}, here.map((i) => h("option", { value: String(i.id) }, `instance ${i.id}, ${i.spot ? "spot" : "on-demand"}${state.status.pools?.length ? ", " + state.status.pools[i.pool]?.pool : ""}${i.price_usd_h ? `, ${f.hourly(i.price_usd_h)}` : ""}`)));
    if (here.length && await form("Drain an instance?", "Its seat moves while the others train on, another is rented in its place, and then it is released.", [h("label", {}, "Instance", select)], "Drain")) order(`drain?instance=${select.value}`, `Instance ${select.value} is to go.`);
  } }, "Drain…");
  const bar = h("div.row.orders", { role: "group", "aria-label": "Orders", hidden: true }, copy, limits, drain);
  return { bar, said, update: (s) => { bar.hidden = !app.steers || !s.live || ["finished", "failed", "stopped", "stopping"].includes(s.state); } };
}

// ---- copies, and pools ----

const KEPT = 8;

// Where the newest copy sets are: from the history, which has all of the record, and from events since.
export function copyCard() {
  let sets = [], changed = true, durable = 0;
  const gone = new Set();
  const body = h("tbody", {});
  const el = h("section.card", { "aria-labelledby": "copies-title" }, h("h2", { id: "copies-title" }, "Copies"), wide("Copies, in numbers", h("table", {}, h("thead", {}, h("tr", {}, ["Step", "Made", "Took", "Where"].map((t, i) => h("th", { class: i === 0 || i === 2 ? "num" : "", scope: "col" }, t)))), body)));
  const known = (set, holders, sequence) => ({ set: set.set, step: set.step, utc_ms: set.utc_ms, took_ms: set.took_ms, sequence, files: holders.includes(0), ids: holders.filter((id) => id !== 0).sort((a, b) => a - b) });
  const keep = (list) => { sets = list.filter((s) => !gone.has(s.set)).slice(0, KEPT); changed = true; };
  return { el,
    take: (e) => {
      if (e.kind === "set_bad") { gone.add(e.set_bad); keep(sets); }
      if (e.kind !== "set_whole") return;
      gone.delete(e.set_whole.set);
      keep([known({ ...e.set_whole, utc_ms: e.utc_ms }, e.holders, e.sequence), ...sets.filter((s) => s.set !== e.set_whole.set)]);
    },
    learn: (history) => {
      const told = (history.copies ?? []).map((c) => known(c, c.holders, history.sequence)).reverse();
      keep([...sets.filter((s) => s.sequence > history.sequence), ...told]);
    },
    clear: () => { gone.clear(); keep([]); },
    draw: (status) => {
      const before = sets.length ? 0 : status?.steps?.durable ?? 0; // the history has not come yet
      if (!changed && before === durable) return;
      changed = false; durable = before;
      const where = (c) => [c.files ? "copy store" : "", c.ids.length ? `memory of ${c.ids.length > 6 ? f.count(c.ids.length) + " workers" : (c.ids.length === 1 ? "worker " : "workers ") + c.ids.join(", ")}` : ""].filter(Boolean).join("; ");
      fill(body, sets.length ? sets.map((c) => h("tr", {}, h("td.num", {}, f.count(c.step)), h("td", {}, f.clock(c.utc_ms)), h("td.num", {}, c.took_ms ? f.span(c.took_ms / 1000) : "–"), h("td", {}, where(c)))) : h("tr", {}, h("td.soft", { colspan: "4" }, before ? `step ${f.count(before)} is durable` : "none yet")));
    } };
}

// What is wanted of each pool, what is there, and what it costs; without a choice of pools, of the two markets.
export function poolCard() {
  const head = h("tr", {}), body = h("tbody", {});
  const el = h("section.card", { "aria-labelledby": "pools-title" }, h("h2", { id: "pools-title" }, "Pools"), wide("Pools, in numbers", h("table", {}, h("thead", {}, head), body)));
  let shown = "";
  return { el, update: (s, history) => {
    const rows = s.pools?.length ? s.pools.map((p) => [p.pool, p.want, p.here, p.price_usd_h, p.instance_hours, p.bill_usd]) : markets(s, history);
    const key = JSON.stringify(rows);
    if (key === shown) return;
    shown = key;
    const timed = rows.some((row) => row[4] != null); // hours are known by pool alone
    fill(head, ["Pool", "Wanted", "Here", "Price", ...(timed ? ["Hours"] : []), "Cost"].map((t, i) => h("th", { class: i ? "num" : "", scope: "col" }, t)));
    fill(body, rows.map(([pool, want, here, price, hours, bill]) => h("tr", {}, h("td", {}, pool), [f.count(want), f.count(here), price ? f.hourly(price) : "–", ...(timed ? [f.short(hours)] : []), f.usd(bill)].map((t) => h("td.num", {}, t)))));
  } };
}
// The status lists the last instances that are gone, the history has what all of them cost.
function markets(s, history) {
  return [["spot", true, s.want_spot, s.spot_usd_h], ["on-demand", false, s.want_on_demand, s.on_demand_usd_h]].map(([name, spot, want, price]) => {
    const all = s.instances.filter((i) => i.spot === spot), here = all.filter((i) => i.state === "running" || i.state === "noticed").length;
    const known = history?.pools?.find((p) => p.pool === name)?.usd ?? 0;
    return [name, want ?? 0, here, price, null, Math.max(known, all.reduce((sum, i) => sum + (i.bill_usd ?? 0), 0))];
  }).filter(([, want, here, , , bill]) => want || here || bill);
}
