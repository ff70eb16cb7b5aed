// The dashboard in a real browser. Use: node browser.mjs MODULES BASE-URL STEER-TOKEN WATCH-TOKEN LIVE DONE OUT [full]
// MODULES: the node_modules with playwright-core and axe-core. LIVE and DONE: a run that goes on, and one that is over.
// Screenshots go to OUT. Prints a line for each thing that is wrong; exit status 1 if there is one.
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const [modules, base, steer, watch, live, done, out, full] = process.argv.slice(2);
const require = createRequire(path.join(modules, "x.js"));
const { chromium } = require("playwright-core");
const axe = fs.readFileSync(path.join(modules, "axe-core/axe.min.js"), "utf8");
let wrong = 0, checked = 0;
const check = (good, text) => { checked++; if (!good) { wrong++; console.log("FAILED " + text); } };

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"] });

async function open(token, { width = 1280, scheme = "light", bypassCSP = false } = {}) {
  const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme: scheme, bypassCSP, reducedMotion: "reduce" });
  const page = await context.newPage();
  page.errors = [];
  page.outside = [];
  page.on("console", (m) => { if (m.type() === "error" && !/401|Failed to load resource|ERR_/.test(m.text())) page.errors.push(m.text()); });
  page.on("pageerror", (e) => page.errors.push(String(e)));
  page.on("request", (r) => { if (!r.url().startsWith(base) && !r.url().startsWith("data:")) page.outside.push(r.url()); });
  await page.goto(`${base}/${token ? "#token=" + token : ""}`);
  await page.waitForFunction(() => !document.querySelector(".loading"));
  return page;
}
const go = async (page, hash, ready) => { await page.evaluate((h) => { location.hash = h; }, hash); await page.waitForSelector(ready); };
async function close(page, what) {
  check(page.errors.length === 0, `${what}: the page complains: ${page.errors.join("; ")}`);
  check(page.outside.length === 0, `${what}: something from outside is asked for: ${page.outside.join(" ")}`);
  await page.context().close();
}
async function accessible(page, what) {
  await page.evaluate(axe);
  const found = await page.evaluate(async () => (await window.axe.run()).violations.map((v) => `${v.id}: ${v.nodes[0].html.slice(0, 120)}`));
  check(found.length === 0, `${what}: ${found.join("; ")}`);
}
const committed = (page) => page.evaluate(() => Number(document.querySelector(".tile progress").value));

// Logging in: nothing without a token, a wrong one is refused, the link's one becomes a cookie and leaves the address.
{
  const page = await open("");
  check(await page.isVisible("text=Log in"), "without a token there is a form to log in");
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
  await page.waitForSelector("table.jobs .interval >> text=/ to /", { timeout: 60000 }); // when it will be done, with its interval
  await page.screenshot({ path: `${out}/jobs.png` });
  // A page that another site serves, or frames, gets nothing.
  check(await page.evaluate(() => document.styleSheets.length === 1), "the style is there");
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
  check((await page.locator("svg.chart path.line").count()) >= 4, "curves are drawn");
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
  await page.waitForSelector("section[aria-labelledby=copies-title] td >> text=files", { timeout: 60000 });
  check((await page.locator("section[aria-labelledby=pools-title] tbody tr").count()) > 0, "pools are listed");
  check((await page.locator("svg.chart[aria-label^=Steps] path.line").count()) === 2, "steps, and the plan's");
  check((await page.locator("svg.chart[aria-label^='Pools over time'] path.line").count()) >= 3, "pools over time: there, wanted, cost");
  // Filters.
  const chip = page.locator(".chips button").first();
  const kind = (await chip.textContent()).trim();
  await chip.click();
  check(!(await page.locator(".events .kind").allTextContents()).includes(kind), "a kind of events can be hidden");
  await page.screenshot({ path: `${out}/live.png`, fullPage: true });
  await close(page, "a run");
}
// Who may only watch is not offered more.
{
  const page = await open(watch);
  await go(page, `#/job/${live}`, ".seat");
  check(!(await page.isVisible("text=Stop…")) && !(await page.isVisible("text=Drain…")) && (await page.isVisible("text=watching only")), "who may only watch cannot stop");
  await close(page, "watching");
}
if (full) {
  for (const [name, width, scheme, hash, ready] of [["jobs", 1280, "light", "#/", "table.jobs a"], ["live", 1400, "light", `#/job/${live}`, ".seat"], ["done-dark", 1400, "dark", `#/job/${done}`, ".seat"], ["phone", 390, "light", `#/job/${live}`, ".seat"], ["jobs-phone-dark", 390, "dark", "#/", "table.jobs a"], ["plan", 1280, "light", "#/plan", "button.main"]]) {
    const page = await open(steer, { width, scheme, bypassCSP: true });
    await go(page, hash, ready);
    if (name === "live" || name === "done-dark") await page.waitForSelector("path.line", { state: "attached" }); // a short run is one point
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
    await close(page, "keyboard");
  }
  // A plan, drawn; and the wrong words of a job come back as tidemill says them.
  {
    const page = await open(steer);
    await go(page, "#/plan", "button.main");
    await page.click("button.main");
    await page.waitForSelector("circle.best", { timeout: 90000 });
    check((await page.locator("circle.p").count()) >= 3, "each point is a fleet");
    await page.locator("input[type=range]").first().fill("200");
    await page.waitForFunction(() => document.querySelector("svg.chart .limit") !== null);
    await page.screenshot({ path: `${out}/plan.png`, fullPage: true });
    // What would happen on a trace, with the report inline.
    await page.selectOption("label:has-text('trace') select", "ladp");
    check(await page.evaluate(() => document.querySelector("textarea").value.includes("fleet: {trace: ladp}")), "the trace is in the job file");
    await page.click("button >> text=/^Simulate$/");
    await page.waitForSelector(".report", { timeout: 90000 });
    check(await page.evaluate(() => { const room = document.querySelector(".report").shadowRoot; return room.querySelectorAll("svg").length > 2 && room.querySelector("script") === null && /ladp/.test(room.textContent); }), "the report is there, drawn, of that trace");
    await page.screenshot({ path: `${out}/simulated.png`, fullPage: true });
    await page.locator("input").first().fill("no-such-model");
    await page.click("button.main");
    await page.waitForFunction(() => /no model/.test(document.querySelector(".error").textContent), null, { timeout: 60000 });
    await close(page, "plan");
  }
}
// The coordinator is killed while the page is open: it goes on without a reload, and tells of it.
if (full) {
  const page = await open(steer);
  await go(page, `#/job/${live}`, ".seat");
  const pid = execFileSync("pgrep", ["-P", process.env.RUN_PID, "-f", "coordinator --state"]).toString().trim().split("\n")[0];
  const before = await committed(page), restarts = await page.locator(".events li >> text=/^restart$/").count();
  process.kill(Number(pid), "SIGKILL");
  await page.waitForFunction((n) => [...document.querySelectorAll(".events .kind")].filter((k) => k.textContent === "restart").length > n, restarts, { timeout: 60000 });
  await page.waitForFunction((n) => Number(document.querySelector(".tile progress").value) > n + 3, before, { timeout: 60000 });
  await page.waitForFunction(() => document.getElementById("banner").hidden, null, { timeout: 30000 });
  const numbers = await page.evaluate(() => [...document.querySelectorAll(".events li")].map((li) => Number(li.dataset.sequence)));
  check(numbers.every((n, i) => i === 0 || n < numbers[i - 1]), "each event once, newest first");
  await close(page, "a coordinator's restart");
}
// Stop and resume, each confirmed; logs.
if (full) {
  const page = await open(steer);
  await go(page, `#/job/${live}`, ".seat");
  const state = () => page.evaluate(async (n) => (await (await fetch(`/v1/jobs/${n}/status`)).json()).state, live);
  await page.click("text=Stop…");
  await page.click("dialog >> text=Stop with a copy");
  await page.waitForSelector("button >> text=Resume…", { timeout: 60000 });
  check((await state()) === "stopped", "stopped from the page");
  const before = await committed(page);
  await page.click("text=Resume…");
  await page.click("dialog >> text=Cancel");
  check((await state()) === "stopped", "not resumed without a yes");
  await page.click("text=Resume…");
  await page.click("dialog button.main");
  await page.waitForFunction((n) => Number(document.querySelector(".tile progress").value) > n, before, { timeout: 90000 });
  check((await state()) === "training", "resumed from the page");
  // Logs of an instance.
  await page.waitForFunction(() => document.querySelectorAll("select[aria-label=Instance] option").length > 1, null, { timeout: 30000 });
  await page.selectOption("select[aria-label=Instance]", { index: 1 });
  await page.waitForFunction(() => !/Choose an instance/.test(document.querySelector("pre.log[aria-label='Output of the worker']").textContent));
  await close(page, "stop and resume");
}
await browser.close();
console.log(`${checked} checked in the browser, ${wrong} wrong`);
process.exit(wrong ? 1 : 0);
