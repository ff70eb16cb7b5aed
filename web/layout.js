// The layout as a grid: a row for each pipeline, a column for each stage, in each seat its instance.
import { h, fill, put, wide } from "./dom.js";
import * as f from "./format.js";

const DENSE = 60, NOTICES_NAMED = 8;

export function layoutGrid() {
  const grid = h("div.seats", { role: "table", "aria-label": "Layout: pipelines and stages" });
  const spares = h("div.seats", {});
  const note = h("p.soft.small", {}), notices = h("p.small.notices", { hidden: true });
  const legend = h("div.legend", { "aria-hidden": "true" }, ["spot", "od", "notice", "gone"].map((k, i) => h("span", {}, h("span.key." + k), ["spot", "on-demand", "has a preemption notice", "gone"][i])));
  const el = h("section.card", { "aria-labelledby": "layout-title" }, h("div.row", {}, h("h2", { id: "layout-title" }, "Layout"), h("span.grow"), note), wide("Seats", grid), spares, notices, legend);
  let shape = "", cells = [], spareCells = [], counting = [];

  el.update = (status) => {
    const l = status.layout, byId = new Map(status.instances.map((i) => [i.id, i]));
    if (!l || !l.pipelines) {
      fill(grid, h("p.soft", { role: "note" }, status.state === "starting" || status.state === "waiting" ? status.reason || "waiting for instances" : "no layout"));
      shape = ""; fill(spares); put(note, ""); counting = [];
      return;
    }
    const dense = l.pipelines * l.stages > DENSE;
    const next = `${l.pipelines}x${l.stages}x${l.first_layers.join()}`;
    if (next !== shape) { shape = next; build(l, status.job.layers, dense); }
    counting = [];
    const each = status.job.workers || 1; // seats have workers, which are numbered instance after instance
    l.seats.forEach((id, i) => { const at = id ? Math.floor((id - 1) / each) + 1 : 0; draw(cells[i], at, byId.get(at), status); });
    const free = status.instances.filter((i) => (i.seat === "spare" || i.seat === "keeps copies") && i.state !== "lost" && i.state !== "released");
    drawSpares(free, status, dense);
    nameNotices(dense ? status.instances.filter((i) => i.state === "noticed" && i.leaves_utc_ms > 0) : []);
    put(note, `${f.plural(l.pipelines, "pipeline")} of ${f.plural(l.stages, "stage")}${l.spares ? ", " + f.plural(l.spares, "spare") : ""}`);
    legend.hidden = !status.live;
    el.tick();
  };
  // Notices count down between two statuses.
  el.tick = () => { for (const [node, at] of counting) put(node, f.span((at - Date.now()) / 1000)); };

  function build(l, layers, dense) {
    grid.classList.toggle("dense", dense);
    // Many pipelines stand side by side, each a row of its own.
    grid.style.gridTemplateColumns = dense ? `repeat(auto-fill, minmax(${Math.min(44 * l.stages + 44, 1200)}px, 1fr))` : `max-content repeat(${l.stages}, minmax(92px, 230px))`;
    const last = (s) => (s + 1 < l.stages ? l.first_layers[s + 1] : layers) - 1;
    cells = [];
    const rows = dense ? [] : [h("div", { role: "row", class: "contents" }, h("span.head", { role: "columnheader" }, "layers"), Array.from({ length: l.stages }, (_, s) => h("span.head", { role: "columnheader" }, `stage ${s}: ${l.first_layers[s]}–${last(s)}`)))];
    for (let p = 0; p < l.pipelines; p++) {
      const row = h("div", { role: "row" }, h("span.head", { role: "rowheader" }, dense ? `p${p}` : `pipeline ${p}`));
      for (let s = 0; s < l.stages; s++) { const cell = h("div.seat", { role: "cell" }); cells.push(cell); row.append(cell); }
      rows.push(row);
    }
    for (const r of rows) { if (dense) r.style.gridTemplateColumns = `34px repeat(${l.stages}, minmax(40px, 1fr))`; else r.style.display = "contents"; }
    fill(grid, rows);
  }

  function drawSpares(list, status, dense) {
    spares.classList.toggle("dense", dense);
    spares.style.gridTemplateColumns = `repeat(auto-fill, minmax(${dense ? 44 : 150}px, ${dense ? "1fr" : "230px"}))`;
    spares.style.marginTop = list.length ? "8px" : "0";
    while (spareCells.length < list.length) spareCells.push(h("div.seat", {}));
    list.forEach((one, i) => draw(spareCells[i], one.id, one, status, one.seat));
    const shown = spareCells.slice(0, list.length);
    if (spares.children.length !== shown.length) fill(spares, shown);
  }

  // Where seats are too small to say it.
  function nameNotices(list) {
    notices.hidden = list.length === 0;
    const shown = list.slice(0, NOTICES_NAMED).map((one) => { const left = h("b.count", {}); counting.push([left, one.leaves_utc_ms]); return h("span.pill.warn", {}, `instance ${one.id} leaves in `, left); });
    fill(notices, shown.flatMap((s) => [s, " "]), list.length > NOTICES_NAMED ? `and ${f.count(list.length - NOTICES_NAMED)} more` : null);
  }

  function draw(cell, id, one, status, extra) {
    const gone = !one || one.state === "lost" || one.state === "released" || one.state === "preempted";
    const noticed = one?.state === "noticed" && one.leaves_utc_ms > 0;
    const past = gone && !status.live;
    const name = "seat" + (past ? " past" : gone ? " gone" : noticed ? " notice" : "") + (one && !one.spot ? " od" : "");
    if (cell.className !== name) cell.className = name;
    const price = one?.price_usd_h ? f.hourly(one.price_usd_h) : "";
    const pool = status.pools?.length ? status.pools[one?.pool ?? 0] : null, gpu = (pool ? pool.gpu : status.job.gpu) || "";
    const where = !one ? "" : pool ? pool.pool : one.zone ? `zone ${one.zone}` : "";
    const text = past ? "was here last" : gone ? "gone" : [extra, one.spot ? "spot" : "on-demand", gpu, where, one.worker ? "" : "no worker yet"].filter(Boolean).join(" · ");
    const key = `${dense(cell)}|${id}|${text}|${price}|${noticed ? one.leaves_utc_ms : ""}`;
    if (cell.dataset.key !== key) {
      cell.dataset.key = key;
      cell.title = `instance ${id}: ${text} ${price}`;
      if (dense(cell)) put(cell, id);
      else fill(cell, h("b", {}, String(id)), noticed ? h("span", {}, " leaves in ", h("span.count", {})) : h("span", {}, price ? " " + price : ""), h("span", {}, h("br"), text));
    }
    if (noticed && !dense(cell)) counting.push([cell.querySelector(".count"), one.leaves_utc_ms]);
  }
  function dense(cell) { return cell.parentNode === spares ? spares.classList.contains("dense") : grid.classList.contains("dense"); }
  return el;
}
