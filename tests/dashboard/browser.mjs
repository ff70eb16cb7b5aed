// The dashboard in a real browser. Use: node browser.mjs MODULES BASE-URL STEER-TOKEN WATCH-TOKEN LIVE DONE OUT [full]
// MODULES: the node_modules with playwright-core and axe-core. LIVE and DONE: a run that goes on, and one that is over.
// Screenshots go to OUT. Prints a line for each thing that is wrong; exit status 1 if there is one.
import { execFileSync, spawn } from "node:child_process";
import fs from "node:fs";
import { accessible, check, close, finish, go, open as openAt, tabTo } from "./chromium.mjs";

const [, base, steer, watch, live, done, out, full] = process.argv.slice(2);
const open = (token, options) => openAt(base, token, options);
// How many dots of a chart's canvas have a colour of the theme.
const ink = (page, chart, name) => page.evaluate(([chart, name]) => {
  const canvas = document.querySelector(`.plot[aria-label^="${chart}"] canvas`), hex = getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  if (!canvas) return 0;
  const want = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)), dots = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  let found = 0;
  for (let i = 0; i < dots.length; i += 4) if (dots[i + 3] > 200 && want.every((v, k) => Math.abs(dots[i + k] - v) < 12)) found++;
  return found;
}, [chart, name]);
const inked = (page, chart, name) => page.waitForFunction(([chart]) => document.querySelector(`.plot[aria-label^="${chart}"] canvas`), [chart], { timeout: 60000 }).then(() => page.waitForTimeout(100)).then(() => ink(page, chart, name));
const lines = (page, chart) => page.locator(`[role=group][aria-label="Lines of ${chart}"] button`);
const named = async (page, chart) => (await lines(page, chart).allTextContents()).map((text) => text.replace(/[$\d–].*/, "").trim());
const committed = (page) => page.evaluate(() => Number(document.querySelector(".tile progress").value));

// The card of logs: what its pane shows once it has been read. A pane that tells of an error is none.
const logCard = "section[aria-labelledby=logs-title]", numberField = "input[aria-label='Number of any instance']";
async function typeNumber(page, id) { await page.fill(numberField, String(id)); await page.press(numberField, "Enter"); }
async function logOf(page, which) {
  await page.waitForFunction((card) => { const log = document.querySelector(card + " pre.log"), error = document.querySelector(card + " .error"); return !error.hidden || (!log.hidden && !/^(…|Choose an instance)/.test(log.textContent)); }, logCard, { timeout: 30000 });
  const error = await page.locator(`${logCard} .error`).textContent();
  check(!(await page.isVisible(`${logCard} .error`)), `the log of ${which}: ${error}`);
  return (await page.isVisible(`${logCard} pre.log`)) ? page.locator(`${logCard} pre.log`).textContent() : "";
}

// The log of an instance that is gone is read as that of one that is here. Faults make lost ones; without them one that was
// drained will do.
async function logsOfTheGone(page) {
  const states = full ? ["lost", "preempted"] : ["lost", "preempted", "released"];
  const gone = () => page.evaluate(async ([n, states]) => (await (await fetch(`/v1/jobs/${n}/status`)).json()).instances.find((i) => states.includes(i.state))?.id ?? 0, [live, states]);
  let id = 0;
  for (let tries = 0; tries < 600 && !(id = await gone()); tries++) await page.waitForTimeout(100);
  check(id > 0, "an instance is gone");
  fs.appendFileSync(`${process.env.XDG_STATE_HOME}/tidemill/${live}/logs/worker-${id}.log`, `the last words of ${id}\n`);
  await typeNumber(page, id);
  const log = await logOf(page, `instance ${id}, which is gone`);
  check(log.includes(`the last words of ${id}`), `the log of an instance that is gone: ${log.slice(-200)}`);
}

// A chart at the pointer, by keyboard, without one of its lines, in part, in the other theme, and on a narrow screen.
async function charts(page) {
  const steps = page.locator(".plot[aria-label^='Steps']"), loss = lines(page, "Loss").first();
  await steps.scrollIntoViewIfNeeded();
  await steps.hover({ position: { x: 200, y: 80 } });
  check(/\d/.test(await page.locator("[aria-label='Lines of Loss'] time").textContent()), "what one chart points at, the others do, too");
  await page.mouse.move(0, 0);
  await steps.focus();
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("ArrowLeft");
  check(/^at .*steps [\d,]+/.test(await steps.locator("xpath=../span[@role='status']").textContent()), "arrow keys read it");
  await loss.click();
  check((await loss.getAttribute("aria-pressed")) === "false" && (await ink(page, "Loss", "series-1")) === 0, "a line can be hidden");
  await loss.click();
  await steps.scrollIntoViewIfNeeded();
  const box = await steps.boundingBox();
  await page.mouse.move(box.x + 100, box.y + 80);
  await page.mouse.down();
  await page.mouse.move(box.x + 240, box.y + 80, { steps: 4 });
  await page.mouse.up();
  check((await page.locator("button.whole").count()) >= 5, "a part of the run can be chosen, of all charts");
  await page.locator("button.whole").first().click();
  check((await page.locator("button.whole").count()) === 0, "and the whole again");
  const light = await ink(page, "Loss", "series-1");
  await page.click("#theme");
  await page.waitForTimeout(200);
  check(light > 0 && (await ink(page, "Loss", "series-1")) > 0, "charts are drawn in the other theme's colours");
  await page.click("#theme");
  await page.setViewportSize({ width: 500, height: 900 });
  await page.waitForFunction(() => [...document.querySelectorAll(".plot .u-wrap")].every((w) => w.clientWidth <= 500 && w.clientWidth === w.closest(".plot").clientWidth));
  await page.setViewportSize({ width: 1400, height: 900 });
  await page.waitForFunction(() => [...document.querySelectorAll(".plot .u-wrap")].every((w) => w.clientWidth === w.closest(".plot").clientWidth));
}

// Logging in: nothing without a token, a wrong one is refused, the link's one becomes a cookie and leaves the address.
{
  const page = await open("");
  check(await page.isVisible("text=Log in"), "without a token there is a form to log in");
  await accessible(page, "logging in");
  await page.fill("input[type=password]", "guess");
  await page.keyboard.press("Enter");
  await page.waitForSelector("text=not the token");
  await page.fill("input[type=password]", steer);
  await page.keyboard.press("Enter");
  await page.waitForSelector("table.jobs");
  const cookies = await page.context().cookies();
  check(cookies.length === 1 && cookies[0].httpOnly && cookies[0].sameSite === "Strict", "the cookie is for this page alone");
  await close(page, "logging in");
}
{
  const page = await open(steer);
  check(!page.url().includes(steer), "the token leaves the address");
  await page.waitForSelector(`text=${live}`);
  check(await page.isVisible(`text=${done}`), "both runs are listed");
  const price = await page.evaluate(async (n) => {
    const s = await (await fetch(`/v1/jobs/${n}/status`)).json(), f = await import("/format.js");
    return f.usd((s.bill_usd / (s.steps.committed * s.job.samples_per_step)) * 1e6);
  }, done);
  const listed = await page.locator("table.jobs tr", { has: page.locator(`a[href="#/job/${done}"]`) }).locator("td[data-label='Per million samples']").textContent();
  check(/^\$[\d.,]+$/.test(price) && listed === price, `a million samples cost what was paid for them: ${listed}, ${price}`);
  await page.waitForSelector("table.jobs .interval >> text=/ to /", { timeout: 60000 }); // when it will be done, with its interval
  await page.screenshot({ path: `${out}/jobs.png` });
  // A page that another site serves, or frames, gets nothing.
  check(await page.evaluate(() => document.styleSheets.length === 2), "the styles are there");
  await close(page, "jobs");
}
// One run, live: it goes on without a reload.
{
  const page = await open(steer, { width: 1400 });
  await go(page, `#/job/${live}`, ".seat");
  const before = await committed(page);
  await page.waitForFunction((n) => Number(document.querySelector(".tile progress").value) > n, before, { timeout: 30000 });
  check((await page.locator(".events li").count()) > 3, "events are listed");
  check((await page.locator(".seat >> text=/V100/").count()) > 0 && (await page.locator(".seat >> text=/\\$/").count()) > 0, "a seat has its GPU and its price");
  for (const chart of ["Steps", "Loss", "Throughput", "Instances", "Cost"]) check((await inked(page, chart, "series-1")) > 20, `${chart}: its curve is drawn`);
  check(await page.isVisible("text=Stop…"), "who may steer can stop it");
  await page.click("text=Stop…");
  check(await page.isVisible("dialog[open]"), "a stop is to be confirmed");
  await page.keyboard.press("Escape");
  await page.waitForSelector("dialog", { state: "detached" });
  check(await page.evaluate(async (n) => (await (await fetch(`/v1/jobs/${n}/status`)).json()).state, live) === "training", "and not done without");
  // Orders: each is asked about, and what was ordered is in the record.
  const order = async (button, values) => {
    await page.click(`text=${button}`);
    await page.waitForSelector("dialog[open]");
    if (full) await accessible(page, button);
    for (const [i, value] of values.entries()) await page.locator("dialog input").nth(i).fill(value);
    await page.click("dialog button.main");
    await page.waitForSelector("dialog", { state: "detached" });
  };
  await page.click("text=Copy now…");
  await page.click("dialog >> text=Cancel");
  await page.waitForSelector("dialog", { state: "detached" });
  check(!(await page.isVisible("text=A copy is ordered")), "an order that was not confirmed is not given");
  await order("Copy now…", []);
  await page.waitForSelector("text=A copy is ordered");
  await page.waitForSelector(".events >> text=ordered: a copy", { timeout: 30000 });
  await order("Limits…", ["90x", "50"]);
  await page.waitForSelector("text=is no time");
  await order("Limits…", ["300h", "5000"]);
  await page.waitForSelector("text=deadline 12d 12h in the cloud", { timeout: 30000 });
  await page.waitForSelector("text=budget $5,000", { timeout: 30000 });
  await order("Drain…", []);
  await page.waitForSelector(".events >> text=is to go", { timeout: 30000 });
  // Copies and where they are, pools, the forecast.
  await page.waitForSelector("section[aria-labelledby=copies-title] td >> text=copy store", { timeout: 60000 });
  check((await page.locator("section[aria-labelledby=pools-title] tbody tr").count()) > 0, "pools are listed");
  if (full) check((await inked(page, "When it is done", "series-2")) > 20, "what was forecast on the way is drawn");
  // The forecast is drawn once a twelfth is done.
  if (full) await page.waitForFunction(() => /forecast/.test(document.querySelector("[role=group][aria-label='Lines of Steps']").textContent), null, { timeout: 120000 });
  check((await named(page, "Steps")).join().startsWith(full ? "steps,plan,forecast" : "steps,plan"), `steps, the plan's, and the forecast: ${await named(page, "Steps")}`);
  check((await named(page, "Cost")).join().startsWith("paid,on-demand"), `what was paid, beside on-demand: ${await named(page, "Cost")}`);
  await page.waitForFunction(() => [...document.querySelectorAll("section[aria-labelledby=pauses-title] tbody tr")].some((row) => /^(start|waiting for instances|arrival|preemption with)/.test(row.cells[0].textContent) && /\d/.test(row.cells[4]?.textContent)), null, { timeout: 30000 });
  check((await page.locator(".plot[aria-label^='Pool '] canvas").count()) > 0 && (await page.locator(".pools .keys button").allTextContents()).some((text) => /^cost\$/.test(text)), "pools over time: there, wanted, cost");
  await charts(page);
  await logsOfTheGone(page);
  // Filters.
  const chip = page.locator(".chips button").first();
  const kind = (await chip.textContent()).trim();
  await chip.click();
  check(!(await page.locator(".events .kind").allTextContents()).includes(kind), "a kind of events can be hidden");
  await page.screenshot({ path: `${out}/live.png`, fullPage: true });
  await close(page, "a run");
}
// A run that is over: what it came to, and nothing to steer.
{
  const page = await open(steer, { width: 1400 });
  // A short run was never forecast: then this is as if it had been.
  if (!full) await page.route(`**/v1/jobs/${done}/history?*`, async (route) => {
    const answer = await route.fetch(), known = await answer.json(), t = known.wall_s;
    await route.fulfill({ response: answer, json: { ...known, forecasts: [0.2, 0.4, 0.8].map((part) => [part * t, 40 * part, 0.9 * t, 1.2 * t]) } });
  });
  await go(page, `#/job/${done}`, ".seat.past");
  check((await page.locator("h1 + .pill").textContent()) === "finished", "it is finished");
  for (const button of ["Stop…", "Resume…", "Drain…", "Copy now…", "Limits…"]) check(!(await page.isVisible(`button >> text=${button}`)), `it has no ${button}`);
  await inked(page, "When it is done", "series-1");
  check((await named(page, "When it is done")).includes("was done at"), `when it was done: ${await named(page, "When it is done")}`);
  check((await named(page, "Steps")).includes("forecast at a third"), `what was forecast at a third: ${await named(page, "Steps")}`);
  check((await named(page, "Cost")).join() === "paid,on-demand,plan, in the end", `the bill's lines: ${await named(page, "Cost")}`);
  check(/on-demand \$.* · plan \$/.test(await page.locator(".tile", { hasText: "Cost" }).textContent()), "the bill against on-demand and the plan");
  // The log of any instance: the list has the newest, the field takes every number.
  await page.waitForFunction(() => document.querySelectorAll("select[aria-label=Instance] option").length > 200);
  check((await page.locator("select[aria-label=Instance] option[value='1']").count()) === 0, "the list has the newest ones alone");
  await typeNumber(page, 1);
  check(/known to the test/.test(await logOf(page, "the oldest")), "the log of an instance that is not listed");
  await typeNumber(page, 1300);
  check((await logOf(page, "the newest")) === "line of 1300" && (await page.locator("select[aria-label=Instance]").inputValue()) === "1300", "the list goes along");
  await page.selectOption("select[aria-label=Instance]", "1299");
  check((await logOf(page, "one of the list")) === "line of 1299" && (await page.locator(numberField).inputValue()) === "1299", "and the field with it");
  await typeNumber(page, 4000000);
  await page.waitForSelector(`${logCard} .error >> text=there is no instance 4000000`);
  await typeNumber(page, -3);
  await page.waitForSelector(`${logCard} .error >> text=numbered from 1`);
  await close(page, "a run that is over");
}
// Notices count down in their seats.
{
  const page = await open(steer);
  await go(page, "#/job/small", ".seat");
  await page.waitForFunction(() => {
    for (const count of document.querySelectorAll(".seat.notice .count")) {
      const last = parseFloat(count.dataset.last), now = parseFloat(count.textContent);
      if (last > now) return true;
      count.dataset.last = count.textContent;
    }
    return false;
  }, null, { timeout: 60000 });
  check(true, "a notice counts down");
  await close(page, "notices");
}
// The layout by itself: zones, and a large one by keyboard and by touch.
{
  const page = await open(steer);
  const seat = (id, more) => ({ id, state: "running", spot: true, pool: id % 2, zone: 1, zone_name: "", leaves_utc_ms: 0, price_usd_h: 0.5, worker: true, seat: "trains", ...more });
  const status = (pipelines, stages, instances) => ({ live: true, state: "training", job: { layers: stages, workers: 1 }, layout: { pipelines, stages, spares: 0, first_layers: Array.from({ length: stages }, (_, i) => i), seats: Array.from({ length: pipelines * stages }, (_, i) => i + 1) },
    pools: [{ pool: "p3.2xlarge aws/us-east-1/us-east-1a", gpu: "V100" }, { pool: "a2-highgpu-1g gcp/europe-west4", gpu: "A100-40GB" }], instances });
  const show = (s) => page.evaluate(async (s) => {
    const { layoutGrid } = await import("/layout.js");
    if (!window.shown) { window.shown = layoutGrid(); const title = document.createElement("h1"); title.textContent = "A layout"; document.getElementById("main").replaceChildren(title, window.shown); }
    for (const one of s.instances) if (one.leaves_s) one.leaves_utc_ms = Date.now() + one.leaves_s * 1000;
    window.shown.update(s);
  }, s);
  await show(status(1, 4, [seat(1, { zone_name: "europe-west4-b" }), seat(2, { zone_name: "us-east-1a" }), seat(3), seat(4, { zone_name: "us-east-1b", state: "noticed", leaves_s: 3600 })]));
  const texts = await page.locator(".seat").allTextContents();
  check(/gcp\/europe-west4 · europe-west4-b$/.test(texts[0]), `a seat names its zone: ${texts[0]}`);
  check(/aws\/us-east-1\/us-east-1a$/.test(texts[1]), `not twice: ${texts[1]}`);
  check(/gcp\/europe-west4$/.test(texts[2]), `nor where it is not known: ${texts[2]}`);
  check(/leaves in (1h 00m|59m \d\ds)/.test(texts[3]) && (await page.locator(".seat").nth(3).getAttribute("class")) === "seat notice", `one with a notice: ${texts[3]}`);
  const many = status(25, 4, Array.from({ length: 100 }, (_, i) => seat(i + 1, i === 1 ? { zone_name: "europe-west4-b", pool: 1, state: "noticed", leaves_s: 3600 } : {})).concat(seat(101, { seat: "spare", spot: false })));
  await show(many);
  const about = () => page.locator(".seat-about").textContent(), stops = () => page.locator(".seat[tabindex='0']").count();
  check(/^Choose a seat/.test(await about()) && (await stops()) === 1, "a large layout has one seat in the order of the tab key");
  check(await tabTo(page, await page.locator(".seat").first().getAttribute("aria-label")), "which the tab key reaches");
  check(/^pipeline 0, stage 0: instance 1 · spot · A100-40GB · a2-highgpu-1g gcp\/europe-west4 · \$0\.50\/h$/.test(await about()), `it says the rest: ${await about()}`);
  await page.keyboard.press("ArrowRight");
  check(/^pipeline 0, stage 1: instance 2 · .* · europe-west4-b · \$0\.50\/h · leaves in (1h 00m|59m \d\ds)$/.test(await about()), `of the next, too: ${await about()}`);
  check(/instance 2 · .*europe-west4-b.* has a preemption notice$/.test(await page.evaluate(() => document.activeElement.getAttribute("aria-label"))), "and to who hears it");
  const top = () => page.evaluate(() => { const r = document.activeElement.getBoundingClientRect(); return [r.left, r.top]; }), before = await top();
  await page.keyboard.press("ArrowDown");
  const below = await top();
  check(below[0] === before[0] && below[1] > before[1], "an arrow down leads to the seat below");
  await page.keyboard.press("End");
  check(/^beside the pipelines: instance 101 · spare · on-demand/.test(await about()) && (await stops()) === 1, `a spare: ${await about()}`);
  await page.locator(".seat").nth(42).click();
  check(/instance 43 /.test(await about()), `by a touch: ${await about()}`);
  many.instances[42].price_usd_h = 0.7;
  await show(many);
  check(/instance 43 .*\$0\.70\/h$/.test(await about()) && (await page.evaluate(() => document.activeElement.textContent)) === "43", "what it says follows, the focus stays");
  many.instances.pop();
  await page.keyboard.press("End");
  await show(many);
  check((await stops()) === 1, "a spare that went leaves a seat to tab to");
  if (full) await accessible(page, "a large layout");
  await close(page, "the layout");
}
// What the page works out by itself, in its own modules: a steady run is level, a mixed fleet has all its parts, the curve has every
// fleet that none beats, amounts stand beside each other.
{
  const page = await open(steer);
  const got = await page.evaluate(async () => {
    const { throughput } = await import("/job.js"), { fleet, frontier, chance } = await import("/plan.js"), f = await import("/format.js");
    const time_s = Array.from({ length: 57 }, (_, i) => 1 + i * 1.05), step = time_s.map((t) => Math.floor((t - 1) * 10.3));
    const level = throughput({ time_s, step }, 60).y.slice(2);
    const all = [[10, 9], [20, 5], [30, 7], [40, 3]].map(([t, c]) => ({ a: { time_s: { mean: t }, cost_usd: { mean: c } } }));
    frontier(all);
    const { poolCharts, group } = await import("/chart.js"), places = poolCharts(group()), pooled = [];
    document.body.append(places);
    for (const n of [14, 12]) {
      await places.update({ end: 9, pools: Array.from({ length: n }, (_, i) => ({ pool: `p${i}`, usd: i, points: [[0, 1, 1, 0], [5, 1, 1, i]] })) }, async () => {});
      pooled.push(places.children.length, places.children[0].textContent.slice(0, 38), places.querySelector("h3").textContent);
    }
    places.stop();
    places.remove();
    const time = { p10: 100, p90: 400 }, chances = [100, 200, 400, 800].map((limit) => chance(time, limit).toFixed(3)).concat(chance({ p10: 5, p90: 5 }, 4), chance({ p10: 5, p90: 5 }, 5), chance({ p10: null, p90: null }, 5)).join();
    return { chances, pooled: pooled.join("|"), low: Math.min(...level), high: Math.max(...level), curve: all.map((p) => p.curve).join(),
      fleet: fleet({ instance: "a", spot_nodes: 3, pools: [{ instance: "a", spot: 2, on_demand: 0 }, { instance: "b", spot: 1, on_demand: 1 }] }),
      money: [f.hourly(0.9), f.hourly(1.1), f.hourly(0.126), f.usd(0.5), f.usd(0.0012), f.compared(6.53, 1), f.compared(1, 4), f.compared(1, null), f.median([1, 3])].join() };
  });
  check(got.low > 9.5 && got.high < 11, `a steady run is level: ${got.low} to ${got.high}`);
  check(got.fleet === "2 spot × a + 1 spot + 1 on-demand × b", `all parts of a fleet: ${got.fleet}`);
  check(got.chances === "0.100,0.500,0.900,0.995,0,1,", `the probability of a deadline: ${got.chances}`);
  check(/^13\|The 12 pools that cost most so far, of\|p13\|12\|p11.*\|p11$/.test(got.pooled), `of more than twelve pools it says which are shown: ${got.pooled}`);
  check(got.curve === "true,true,false,true", `the curve: ${got.curve}`);
  check(got.money === "$0.90/h,$1.10/h,$0.126/h,$0.50,$0.0012,553% more than on-demand,75% less than on-demand,,2", `amounts: ${got.money}`);
  // A name that is none, and a token that is good no more.
  await go(page, "#/job/%E0%A4%A", ".error");
  await go(page, "#/", "table.jobs a");
  await page.context().clearCookies();
  await page.waitForSelector("text=Log in", { timeout: 30000 });
  await page.fill("input[type=password]", steer);
  await page.keyboard.press("Enter");
  await page.waitForSelector("table.jobs a");
  // A stream that is refused for a while is asked for again.
  let refused = 0;
  await page.route("**/events?*", (route) => (refused++ < 2 ? route.fulfill({ status: 429, body: "{}" }) : route.continue()));
  await go(page, `#/job/${live}`, ".seat");
  await page.waitForSelector(".events li time", { timeout: 30000 });
  check(refused > 2, "it came back after it was refused");
  await close(page, "the page's own sums");
}
// Who may only watch is not offered more.
{
  const page = await open(watch);
  await go(page, `#/job/${live}`, ".seat");
  check(!(await page.isVisible("text=Stop…")) && !(await page.isVisible("text=Drain…")) && (await page.isVisible("text=watching only")), "who may only watch cannot stop");
  await close(page, "watching");
}
if (full) {
  for (const [name, width, scheme, hash, ready] of [["jobs", 1280, "light", "#/", "table.jobs a"], ["live", 1400, "light", `#/job/${live}`, ".seat"], ["live-dark", 1400, "dark", `#/job/${live}`, ".seat"], ["done-dark", 1400, "dark", `#/job/${done}`, ".seat"], ["phone", 390, "light", `#/job/${live}`, ".seat"], ["jobs-phone-dark", 390, "dark", "#/", "table.jobs a"], ["plan", 1280, "light", "#/plan", "button.main"]]) {
    const page = await open(steer, { width, scheme });
    await go(page, hash, ready);
    if (/^live|^done/.test(name)) await page.waitForSelector(".plot canvas");
    await accessible(page, name);
    check(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), `${name}: the page is not wider than the screen`);
    await page.screenshot({ path: `${out}/${name}.png`, fullPage: true });
    await close(page, name);
  }
  // Keyboard alone: from the top to a run, and back.
  {
    const page = await open(steer);
    await page.waitForSelector("table.jobs a");
    let reached = false;
    for (let i = 0; i < 12 && !reached; i++) { await page.keyboard.press("Tab"); reached = await page.evaluate((n) => document.activeElement?.textContent === n, live); }
    check(reached, "a run can be reached by the keyboard");
    await page.keyboard.press("Enter");
    await page.waitForSelector(".seat");
    // An order, by the keyboard alone: to its button, and through its dialog.
    const to = (text) => tabTo(page, text);
    check(await to("Copy now…"), "orders can be reached by the keyboard");
    await page.keyboard.press("Enter");
    await page.waitForSelector("dialog[open]");
    check(await to("Make a copy"), "and confirmed");
    await page.keyboard.press("Enter");
    await page.waitForSelector("text=A copy is ordered");
    check(await to("Drain…"), "another");
    await page.keyboard.press("Enter");
    await page.waitForSelector("dialog[open]");
    await page.keyboard.press("Escape");
    await page.waitForSelector("dialog", { state: "detached" });
    check(await page.evaluate(() => document.activeElement?.textContent === "Drain…"), "one that was left leads back to its button");
    await close(page, "keyboard");
  }
  // Logging in, and a plan, by the keyboard alone.
  {
    const page = await open("");
    const press = async (text, key = "Enter") => { check(await tabTo(page, text), `${text} can be reached by the keyboard`); await page.keyboard.press(key); };
    await tabTo(page, "token");
    await page.keyboard.type(steer);
    await page.keyboard.press("Enter");
    await page.waitForSelector("table.jobs a");
    await press("Plan");
    await page.waitForSelector("button.main");
    check(await tabTo(page, "Samples"), "a field of the form");
    await page.keyboard.press("Control+A");
    await page.keyboard.type("10000000");
    check(await page.evaluate(() => document.querySelector("textarea").value.includes("samples: 10000000")), "what is typed is in the job file");
    check(await tabTo(page, "Simulate on the trace"), "a choice of the form");
    await page.keyboard.type("lasp");
    check(await page.evaluate(() => document.querySelector("textarea").value.includes("trace: lasp")), "what is chosen, too");
    await tabTo(page, "Job file"); // past it stands the button, which is named as the view is
    await press("Plan");
    await page.waitForSelector(".plot canvas", { timeout: 90000 });
    const why = page.locator("section[aria-label='Cost against time'] p[role=status]"), first = await why.textContent();
    for (const slider of ["What if the deadline were", "What if the budget were"]) {
      check(await tabTo(page, slider), `${slider} can be reached by the keyboard`);
      await page.keyboard.press("Home");
      check(/^None of these fits/.test(await why.textContent()), `${slider}: its lowest`);
      await page.keyboard.press("End");
      check((await why.textContent()) === first, `${slider}: its highest`);
      await page.keyboard.press("PageDown");
      check(/^The cheapest|^None/.test(await why.textContent()), `${slider}: another`);
      await page.keyboard.press("End");
    }
    await page.locator("main").focus();
    await press("Simulate");
    await page.waitForSelector(".report", { timeout: 90000 });
    await close(page, "a plan by keyboard");
  }
  // A plan, drawn; and the wrong words of a job come back as tidemill says them.
  {
    const page = await open(steer);
    await go(page, "#/plan", "button.main");
    await page.click("button.main");
    await page.waitForSelector(".plot canvas", { timeout: 90000 });
    check((await ink(page, "Expected cost", "series-2")) > 50, "the chosen fleet is a point");
    const why = page.locator("section[aria-label='Cost against time'] p[role=status]");
    check(/^Chosen: \d.* in \w.*: \$[\d.,]+ in \d.*(, the cheapest that meets deadline and budget|\. What limits it: .+)\.$/.test(await why.textContent()), `the chosen one, and why: ${await why.textContent()}`);
    check(/of (\d+) fleets; chosen: \d/.exec(await page.locator(".plot").getAttribute("aria-label"))?.[1] >= 3, "each point is a fleet, in words");
    await page.locator(".plot").hover({ position: { x: 300, y: 150 } });
    check(/\$.* in /.test(await page.locator(".about").textContent()), "a point says which fleet it is");
    await page.locator("input[type=range]").first().fill("200");
    const cells = await page.locator("[aria-label='Fleets'] tbody td:last-child").allTextContents();
    check(cells.some((text) => /^(over 99|about \d\d)%$/.test(text)) && cells.some((text) => text === "under 1%"), `the probability of that deadline: ${cells}`);
    let line = 0;
    for (let tries = 0; tries < 50 && line <= 20; tries++, await page.waitForTimeout(100)) line = await ink(page, "Expected cost", "bad");
    check(line > 20, `the deadline is a line: ${line}`);
    check(/^The cheapest that fits in 9 of 10 cases: \d/.test(await why.textContent()), `what fits that deadline: ${await why.textContent()}`);
    // Another budget: what costs more is out, and below all of them nothing fits.
    const money = page.locator("input[aria-label='What if the budget were']"), lost = () => page.locator("[aria-label='Fleets'] tr.out").count();
    await page.locator("input[type=range]").first().fill("1000");
    const without = await lost();
    await money.fill("700");
    check(/budget were \$[\d.,]+/.test(await page.locator("label", { hasText: "What if the budget were" }).textContent()) && (await lost()) > without && /^The cheapest/.test(await why.textContent()), `what fits another budget: ${await why.textContent()}`);
    await money.fill("0");
    check(/^None of these fits/.test(await why.textContent()), `nothing for nothing: ${await why.textContent()}`);
    await money.fill("1000");
    await page.locator("input[type=range]").first().fill("200");
    await page.evaluate(() => window.scrollTo(0, 0));
    await page.screenshot({ path: `${out}/plan.png`, fullPage: true });
    // What would happen on a trace, with the report inline.
    await page.selectOption("label:has-text('trace') select", "ladp");
    check(await page.evaluate(() => document.querySelector("textarea").value.includes("fleet: {trace: ladp}")), "the trace is in the job file");
    await page.click("button >> text=/^Simulate$/");
    await page.waitForSelector(".report", { timeout: 90000 });
    check(await page.evaluate(() => { const room = document.querySelector(".report").shadowRoot; return room.querySelectorAll("svg").length > 2 && room.querySelector("script") === null && /ladp/.test(room.textContent); }), "the report is there, drawn, of that trace");
    await page.screenshot({ path: `${out}/simulated.png`, fullPage: true });
    await accessible(page, "simulated");
    await page.setViewportSize({ width: 390, height: 900 });
    await accessible(page, "simulated, on a phone");
    check(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), "simulated: the page is not wider than a phone");
    await page.setViewportSize({ width: 1280, height: 900 });
    // What is there changes with the theme, the report with it.
    await page.emulateMedia({ colorScheme: "dark" });
    await page.waitForFunction(() => document.querySelector(".report").classList.contains("dark"), null, { timeout: 10000 });
    check((await inked(page, "Expected cost", "series-2")) > 50, "the chosen fleet is a point, in the dark");
    await accessible(page, "simulated, dark");
    await page.evaluate(() => window.scrollTo(0, 0));
    await page.screenshot({ path: `${out}/simulated-dark.png`, fullPage: true });
    await page.emulateMedia({ colorScheme: "light" });
    await page.waitForFunction(() => !document.querySelector(".report").classList.contains("dark"), null, { timeout: 10000 });
    await page.locator("input").first().fill("no-such-model");
    await page.click("button.main");
    await page.waitForFunction(() => /no model/.test(document.querySelector(".error").textContent), null, { timeout: 60000 });
    await close(page, "plan");
  }
}
// The coordinator is killed while the page is open: it goes on without a reload, and tells of it.
if (full) {
  const page = await open(steer);
  await go(page, `#/job/${live}`, ".events li[data-sequence]"); // seats may be there before events are
  const pid = execFileSync("pgrep", ["-P", process.env.RUN_PID, "-f", "coordinator --state"]).toString().trim().split("\n")[0];
  // By number, not by count: of many events the page keeps the newest.
  const restart = () => page.evaluate(() => Math.max(0, ...[...document.querySelectorAll(".events li")].filter((li) => li.querySelector(".kind")?.textContent === "restart").map((li) => Number(li.dataset.sequence))));
  const before = await committed(page), last = await restart();
  process.kill(Number(pid), "SIGKILL");
  for (let tries = 0; tries < 600 && (await restart()) <= last; tries++) await page.waitForTimeout(100);
  check((await restart()) > last, "the page tells of a coordinator's restart");
  await page.waitForFunction((n) => Number(document.querySelector(".tile progress").value) > n + 3, before, { timeout: 60000 });
  await page.waitForFunction(() => document.getElementById("banner").hidden, null, { timeout: 30000 });
  const numbers = await page.evaluate(() => [...document.querySelectorAll(".events li")].map((li) => Number(li.dataset.sequence)));
  check(numbers.every((n, i) => i === 0 || n < numbers[i - 1]), "each event once, newest first");
  await close(page, "a coordinator's restart");
}
// The dashboard itself ends and starts again, on the same port, while its page is open: the page goes on, without a reload.
if (full) {
  const serve = (listen) => new Promise((resolve) => {
    const child = spawn(process.env.TIDEMILL, ["dashboard", "--json", "--listen", listen], { stdio: ["ignore", "pipe", "inherit"] });
    let text = "";
    child.stdout.on("data", (piece) => { text += piece; if (text.includes("}")) resolve({ child, at: new URL(JSON.parse(text).steer).origin }); });
  });
  let { child, at } = await serve("127.0.0.1:0");
  const page = await openAt(at, steer);
  await go(page, `#/job/${live}`, ".events li[data-sequence]");
  await page.evaluate(() => { window.stays = true; });
  const newest = () => page.evaluate(() => Math.max(...[...document.querySelectorAll(".events li")].map((li) => Number(li.dataset.sequence)))), last = await newest(), before = await committed(page);
  child.kill("SIGKILL");
  await page.waitForSelector("#banner >> text=does not answer", { timeout: 30000 });
  ({ child } = await serve(new URL(at).host));
  await page.waitForFunction(() => document.getElementById("banner").hidden, null, { timeout: 30000 });
  await page.waitForFunction((n) => Number(document.querySelector(".tile progress").value) > n + 3, before, { timeout: 60000 });
  await page.waitForFunction((n) => [...document.querySelectorAll(".events li")].some((li) => Number(li.dataset.sequence) > n), last, { timeout: 60000 });
  const numbers = await page.evaluate(() => [...document.querySelectorAll(".events li")].map((li) => Number(li.dataset.sequence)));
  check(numbers.every((n, i) => i === 0 || n < numbers[i - 1]), "each event once after the dashboard's restart");
  check(await page.evaluate(() => window.stays === true), "it is the same page, not read anew");
  await close(page, "a dashboard's restart");
  child.kill();
}
// Stop and resume, each confirmed, by the keyboard alone.
if (full) {
  const page = await open(steer);
  await go(page, `#/job/${live}`, ".seat");
  const state = () => page.evaluate(async (n) => (await (await fetch(`/v1/jobs/${n}/status`)).json()).state, live);
  const press = async (text) => { check(await tabTo(page, text), `${text} can be reached by the keyboard`); await page.keyboard.press("Enter"); };
  await press("Stop…");
  await accessible(page, "the dialog of a stop");
  await press("Stop with a copy");
  await page.waitForSelector("button >> text=Resume…", { timeout: 60000 });
  check((await state()) === "stopped" && !(await page.isVisible("text=Stop…")), "stopped from the page");
  const before = await committed(page);
  await page.locator("a.small").focus(); // the button that had it is hidden
  await press("Resume…");
  await accessible(page, "the dialog of a resume");
  await press("Cancel");
  check((await state()) === "stopped", "not resumed without a yes");
  await press("Resume…");
  await press("Resume");
  await page.waitForFunction((n) => Number(document.querySelector(".tile progress").value) > n, before, { timeout: 90000 });
  check((await state()) === "training", "resumed from the page");
  await close(page, "stop and resume");
}
await finish();
