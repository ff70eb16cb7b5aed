// The layout as a grid: a row for each pipeline, a column for each stage, in each seat its instance. A large one has room for
// numbers alone: there a line below the grid says the rest of the seat that is chosen, by a touch, a click or the arrow keys.
import { h, fill, put, wide } from "./dom.js";
import * as f from "./format.js";

const DENSE = 60, NOTICES_NAMED = 8;

// The pool, and the zone where the pool's name has not said it.
function placeOf(one, pool) {
  const zone = one.zone_name || (pool || !one.zone ? "" : `zone ${one.zone}`);
  return [pool, pool?.split(/[\s/]+/).includes(zone) ? "" : zone].filter(Boolean).join(" · ");
}

export function layoutGrid() {
  const grid = h("div.seats", { role: "table", "aria-label": "Layout: pipelines and stages" });
  const spares = h("div.seats", { role: "group", "aria-label": "Spares" });
  const note = h("p.soft.small", {}), notices = h("p.small.notices", { hidden: true });
  const words = h("span", {}), left = h("b.count", {}), about = h("p.small.seat-about", { hidden: true }, words, left);
  const legend = h("div.legend", { "aria-hidden": "true" }, ["spot", "od", "notice", "gone"].map((k, i) => h("span", {}, h("span.key." + k), ["spot", "on-demand", "has a preemption notice", "gone"][i])));
  const el = h("section.card", { "aria-labelledby": "layout-title" }, h("div.row", {}, h("h2", { id: "layout-title" }, "Layout"), h("span.grow"), note), wide("Seats", grid), spares, about, notices, legend);
  let shape = "", many = false, cells = [], spareCells = [], counting = [], chosen = null;
  const told = new Map(); // what is known of each seat: {place, text, leaves}

  el.update = (status) => {
    const l = status.layout, byId = new Map(status.instances.map((i) => [i.id, i]));
    if (!l || !l.pipelines) {
      fill(grid, h("p.soft", { role: "note" }, status.state === "starting" || status.state === "waiting" ? status.reason || "waiting for instances" : "no layout"));
      shape = ""; fill(spares); put(note, ""); counting = []; about.hidden = true;
      return;
    }
    many = l.pipelines * l.stages > DENSE;
    const next = `${l.pipelines}x${l.stages}x${l.first_layers.join()}`;
    if (next !== shape) { shape = next; build(l, status.job.layers); }
    counting = [];
    const each = status.job.workers || 1; // seats have workers, which are numbered instance after instance
    l.seats.forEach((id, i) => { const at = id ? Math.floor((id - 1) / each) + 1 : 0; draw(cells[i], at, byId.get(at), status, `pipeline ${Math.floor(i / l.stages)}, stage ${i % l.stages}`); });
    const free = status.instances.filter((i) => (i.seat === "spare" || i.seat === "keeps copies") && i.state !== "lost" && i.state !== "released");
    drawSpares(free, status);
    nameNotices(many ? status.instances.filter((i) => i.state === "noticed" && i.leaves_utc_ms > 0) : []);
    put(note, `${f.plural(l.pipelines, "pipeline")} of ${f.plural(l.stages, "stage")}${l.spares ? ", " + f.plural(l.spares, "spare") : ""}`);
    legend.hidden = !status.live;
    tellChosen();
    el.tick();
  };
  // Notices count down between two statuses.
  el.tick = () => {
    for (const [node, at] of counting) put(node, f.span((at - Date.now()) / 1000));
    const at = many ? told.get(chosen)?.leaves : 0;
    put(left, at ? f.span((at - Date.now()) / 1000) : "");
  };

  // One seat is in the order of the tab key; from there arrow keys lead to the others, as they stand on the screen.
  const all = () => [...cells, ...spares.children];
  function choose(cell) {
    for (const old of el.querySelectorAll(".seat[tabindex='0']")) { old.tabIndex = -1; old.removeAttribute("aria-current"); }
    chosen = cell;
    cell.tabIndex = 0;
    cell.setAttribute("aria-current", "true");
    tellChosen();
    el.tick();
  }
  function tellChosen() {
    const what = told.get(chosen);
    about.hidden = !many;
    if (many) put(words, what ? `${what.place}: ${what.text}${what.leaves ? " · leaves in " : ""}` : "Choose a seat to see its zone, price and GPU; arrow keys lead from one to the next.");
  }
  el.addEventListener("click", (e) => { const cell = many && e.target.closest(".seat"); if (cell) { cell.focus({ preventScroll: true }); choose(cell); } });
  el.addEventListener("focusin", (e) => { if (many && e.target.classList.contains("seat")) choose(e.target); });
  el.addEventListener("keydown", (e) => {
    if (!many || !e.target.classList.contains("seat")) return;
    const seats = all(), at = seats.indexOf(e.target), stages = grid.querySelector("[role=row]").children.length - 1;
    const line = stages * getComputedStyle(grid).gridTemplateColumns.split(" ").length;
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, ArrowUp: at - line, ArrowDown: at + line, Home: 0, End: seats.length - 1 }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    seats[to]?.focus();
  });

  function build(l, layers) {
    const dense = many, focused = grid.contains(document.activeElement) ? cells.indexOf(document.activeElement) : -1;
    grid.classList.toggle("dense", dense);
    grid.setAttribute("role", dense ? "grid" : "table");
    for (const cell of cells) told.delete(cell);
    // Many pipelines stand side by side, each a row of its own.
    grid.style.gridTemplateColumns = dense ? `repeat(auto-fill, minmax(${Math.min(44 * l.stages + 50, 1200)}px, 1fr))` : `max-content repeat(${l.stages}, minmax(92px, 230px))`;
    const last = (s) => (s + 1 < l.stages ? l.first_layers[s + 1] : layers) - 1;
    cells = [];
    const rows = dense ? [] : [h("div", { role: "row", class: "contents" }, h("span.head", { role: "columnheader" }, "layers"), Array.from({ length: l.stages }, (_, s) => h("span.head", { role: "columnheader" }, `stage ${s}: ${l.first_layers[s]}–${last(s)}`)))];
    for (let p = 0; p < l.pipelines; p++) {
      const row = h("div", { role: "row" }, h("span.head", { role: "rowheader" }, dense ? `p${p}` : `pipeline ${p}`));
      for (let s = 0; s < l.stages; s++) { const cell = h("div.seat", dense ? { role: "gridcell", tabindex: "-1" } : { role: "cell" }); cells.push(cell); row.append(cell); }
      rows.push(row);
    }
    for (const r of rows) { if (dense) r.style.gridTemplateColumns = `38px repeat(${l.stages}, minmax(40px, 1fr))`; else r.style.display = "contents"; }
    fill(grid, rows);
    if (dense && focused >= 0) cells[Math.min(focused, cells.length - 1)].focus({ preventScroll: true });
  }

  function drawSpares(list, status) {
    spares.classList.toggle("dense", many);
    spares.style.gridTemplateColumns = `repeat(auto-fill, minmax(${many ? 44 : 150}px, ${many ? "1fr" : "230px"}))`;
    spares.style.marginTop = list.length ? "8px" : "0";
    while (spareCells.length < list.length) spareCells.push(h("div.seat", {}));
    for (const cell of spareCells) {
      if (many && !cell.hasAttribute("role")) { cell.setAttribute("role", "button"); cell.tabIndex = -1; }
      if (!many) { cell.removeAttribute("role"); cell.removeAttribute("tabindex"); }
    }
    list.forEach((one, i) => draw(spareCells[i], one.id, one, status, "", one.seat));
    const shown = spareCells.slice(0, list.length);
    if (spares.children.length !== shown.length) fill(spares, shown);
    if (many && !el.contains(chosen)) { chosen?.removeAttribute("aria-current"); chosen = null; cells[0].tabIndex = 0; } // it is gone
  }

  // Where seats are too small to say it.
  function nameNotices(list) {
    notices.hidden = list.length === 0;
    const shown = list.slice(0, NOTICES_NAMED).map((one) => { const left = h("b.count", {}); counting.push([left, one.leaves_utc_ms]); return h("span.pill.warn", {}, `instance ${one.id} leaves in `, left); });
    fill(notices, shown.flatMap((s) => [s, " "]), list.length > NOTICES_NAMED ? `and ${f.count(list.length - NOTICES_NAMED)} more` : null);
  }

  function draw(cell, id, one, status, place, extra) {
    const gone = !one || one.state === "lost" || one.state === "released" || one.state === "preempted";
    const noticed = one?.state === "noticed" && one.leaves_utc_ms > 0;
    const past = gone && !status.live;
    const name = "seat" + (past ? " past" : gone ? " gone" : noticed ? " notice" : "") + (one && !one.spot ? " od" : "");
    if (cell.className !== name) cell.className = name;
    const price = one?.price_usd_h ? f.hourly(one.price_usd_h) : "";
    const pool = status.pools?.length ? status.pools[one?.pool ?? 0] : null, gpu = (pool ? pool.gpu : status.job.gpu) || "";
    const text = past ? "was here last" : gone ? "gone" : [extra, one.spot ? "spot" : "on-demand", gpu, placeOf(one, pool?.pool), one.worker ? "" : "no worker yet"].filter(Boolean).join(" · ");
    const key = `${many}|${id}|${text}|${price}|${noticed ? one.leaves_utc_ms : ""}`;
    if (cell.dataset.key !== key) {
      cell.dataset.key = key;
      const called = id || "–", whole = `${id ? `instance ${id} · ` : ""}${text}${price ? ` · ${price}` : ""}`;
      cell.title = whole;
      told.set(cell, { place: place || "beside the pipelines", text: whole, leaves: noticed ? one.leaves_utc_ms : 0 });
      if (many) cell.setAttribute("aria-label", `${place ? place + ": " : ""}${whole}${noticed ? " · has a preemption notice" : ""}`);
      else cell.removeAttribute("aria-label");
      if (many) put(cell, called);
      else fill(cell, h("b", {}, String(called)), noticed ? h("span", {}, " leaves in ", h("span.count", {})) : h("span", {}, price ? " " + price : ""), h("span", {}, h("br"), text));
    }
    if (noticed && !many) counting.push([cell.querySelector(".count"), one.leaves_utc_ms]);
  }
  return el;
}
