// A large run in a real browser: when it is first painted, and what its updates take of the page's main thread, by the
// browser's own trace. Use: node large.mjs MODULES BASE-URL TOKEN JOB OUT SECONDS
// Prints what was measured; times are processor time of that thread, so that other programs do not count. Exit status 1
// where something is beyond its limit.
import fs from "node:fs";
import { accessible, browser, check, finish } from "./chromium.mjs";

const [, base, token, job, out, seconds] = process.argv.slice(2);
const context = await browser.newContext({ viewport: { width: 1400, height: 900 } });
const login = await context.newPage();
await login.goto(`${base}/#token=${token}`);
await login.waitForSelector("table.jobs");
await login.close();

// Tasks of the page's main thread in a trace: [{ms, cpu_ms}].
function tasks(file) {
  const events = JSON.parse(fs.readFileSync(file)).traceEvents;
  const main = new Set(events.filter((e) => e.name === "thread_name" && e.args.name === "CrRendererMain").map((e) => `${e.pid}.${e.tid}`));
  const found = events.filter((e) => e.name === "RunTask" && e.ph === "X" && main.has(`${e.pid}.${e.tid}`)).map((e) => ({ ms: e.dur / 1000, cpu_ms: (e.tdur ?? e.dur) / 1000, from: e.ts, to: e.ts + e.dur, thread: `${e.pid}.${e.tid}` }));
  const inside = (t) => events.filter((e) => e.ph === "X" && e.name !== "RunTask" && `${e.pid}.${e.tid}` === t.thread && e.ts >= t.from && e.ts < t.to && e.dur > 4000).map((e) => `${e.name} ${Math.round(e.dur / 1000)}${e.args?.data?.functionName ? " " + e.args.data.functionName : ""}`);
  return { found, inside };
}
async function traced(name, work) {
  const file = `${out}/${name}.json`;
  await browser.startTracing(page, { path: file, categories: ["devtools.timeline", "toplevel", "disabled-by-default-devtools.timeline"] });
  await work();
  await browser.stopTracing();
  const { found, inside } = tasks(file);
  check(found.length > 0, `${name}: the trace has no tasks`);
  const longest = found.reduce((a, b) => (b.cpu_ms > a.cpu_ms ? b : a), { cpu_ms: 0 });
  if (process.env.EXPLAIN) for (const t of found.filter((t) => t.cpu_ms > 20)) console.log(`  task ${t.cpu_ms.toFixed(0)} ms: ${inside(t).join(", ")}`);
  return { tasks: found.length, longest_ms: longest.cpu_ms, total_ms: found.reduce((sum, t) => sum + t.cpu_ms, 0), over_50: found.filter((t) => t.cpu_ms > 50).length };
}

const load = async (page) => { await page.goto(`${base}/#/job/${job}`); await page.waitForFunction(() => window.seen.content > 0, null, { timeout: 60000 }); };
const page = await context.newPage();
page.on("pageerror", (e) => check(false, `the page complains: ${e}`));
await context.addInitScript(() => {
  window.seen = { content: 0, updates: 0, mutations: 0, made: 0 };
  new MutationObserver((list) => {
    window.seen.mutations += list.length;
    for (const m of list) window.seen.made += m.addedNodes.length;
    if (!window.seen.content && document.querySelector(".seats canvas, .seat")) requestAnimationFrame(() => { window.seen.content ||= performance.now(); });
  }).observe(document, { childList: true, subtree: true, characterData: true });
});
const first = await traced("first", () => load(page));
const paintOf = (page) => page.evaluate(() => ({ paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime, content: window.seen.content }));
let paint = await paintOf(page);
// By the clock, so that other programs do count: the best of a few.
for (let tries = 0; tries < 4 && !(paint.paint < 1000 && paint.content < 1000); tries++) {
  const other = await context.newPage();
  await load(other);
  paint = await paintOf(other);
  await other.close();
}
console.log(`first paint after ${paint.paint.toFixed(0)} ms, with its layout after ${paint.content.toFixed(0)} ms, of which ${first.total_ms.toFixed(0)} ms on the main thread (longest task ${first.longest_ms.toFixed(0)} ms)`);
check(paint.paint < 1000, `the first paint is after ${paint.paint.toFixed(0)} ms`);
check(paint.content < 1000, `the layout is painted after ${paint.content.toFixed(0)} ms`);
check(first.total_ms < 1000, "until the layout is painted a second of the main thread is used");
await page.waitForFunction(() => document.querySelectorAll(".events li").length > 20, null, { timeout: 60000 });
await page.waitForTimeout(4000); // what is before it has come
await page.evaluate(() => { window.seen.mutations = window.seen.made = 0; });
const steps = () => page.evaluate(() => Number(document.querySelector(".tile progress").value));
const before = await steps();
const updates = await traced("updates", () => page.waitForTimeout(Number(seconds) * 1000));
const seen = await page.evaluate(() => ({ ...window.seen, nodes: document.querySelectorAll("*").length }));
console.log(`in ${seconds} s: ${updates.tasks} tasks, longest ${updates.longest_ms.toFixed(1)} ms, together ${(updates.total_ms / seconds).toFixed(0)} ms a second, ${updates.over_50} over 50 ms; ${seen.nodes} elements, ${(seen.made / seconds).toFixed(0)} made a second`);
check((await steps()) > before, "it goes on meanwhile");
check(updates.over_50 === 0, `${updates.over_50} updates take more than 50 ms of the main thread, the longest ${updates.longest_ms.toFixed(0)} ms`);
check(/the newest 40; those before instance 1,\d+ are not drawn/.test(await page.textContent("main")), "it says that the older instances are not drawn");
check(seen.nodes < 6000, `the page has ${seen.nodes} elements`);
// A seat has room for a number: what else is known of it is told below the grid, by keyboard, too.
await page.focus(".seat[tabindex='0']");
await page.keyboard.press("ArrowRight");
await page.keyboard.press("ArrowDown");
const about = await page.locator(".seat-about").textContent();
check(/^pipeline \d+, stage 1: instance \d+ · (spot|on-demand) · (A10G|A100-40GB) · (aws|gcp)\/.* · \$[\d.]+\/h/.test(about), `a seat says the rest: ${about}`);
// Scrolling through all events, and a filter.
await page.screenshot({ path: `${out}/large.png`, fullPage: true });
const rows = () => page.locator(".events li").count();
const shown = await rows();
await page.click("text=Show older ones");
await page.waitForFunction((n) => document.querySelectorAll(".events li").length > n, shown);
await page.fill("input[type=search]", "worker 7 joined");
const found = () => page.evaluate(() => [...document.querySelectorAll(".events li")].some((li) => /worker 7 joined/.test(li.textContent)));
for (let i = 0; i < 20 && !(await found()); i++) {
  const button = page.locator(".events button");
  if (!(await button.isVisible())) break;
  await button.click();
  await page.waitForFunction(() => !document.querySelector(".events button").disabled);
}
check(await found(), "an event from the beginning can be found");
await page.locator("h1").scrollIntoViewIfNeeded();
await accessible(page, "a large run");
await finish();
