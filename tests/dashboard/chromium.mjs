// What the tests in a browser share: Chromium, pages that tell what is wrong with them, axe-core, and checks that are counted.
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const modules = process.argv[2]; // the node_modules with playwright-core and axe-core
const { chromium } = createRequire(path.join(modules, "x.js"))("playwright-core");
const axe = fs.readFileSync(path.join(modules, "axe-core/axe.min.js"), "utf8");
let wrong = 0, checked = 0;
export const check = (good, text) => { checked++; if (!good) { wrong++; console.log("FAILED " + text); } };
export const tally = () => ({ checked, wrong });

export const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"] });

// The page's policy holds in all of them, as it does for users: what it forbids is told by the page itself.
export async function open(base, token, { width = 1280, scheme = "light", ignoreHTTPSErrors = false } = {}) {
  const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme: scheme, ignoreHTTPSErrors, reducedMotion: "reduce" });
  await context.addInitScript(() => {
    window.forbidden = [];
    document.addEventListener("securitypolicyviolation", (e) => window.forbidden.push(`${e.violatedDirective} ${e.blockedURI} ${e.sourceFile ?? ""}`));
  });
  const page = await context.newPage();
  page.errors = [];
  page.outside = [];
  page.on("console", (m) => { if (m.type() === "error" && !/^Failed to load resource|status of 401|net::ERR_/.test(m.text())) page.errors.push(m.text()); });
  page.on("pageerror", (e) => page.errors.push(String(e)));
  page.on("request", (r) => { if (!r.url().startsWith(base) && !r.url().startsWith("data:")) page.outside.push(r.url()); });
  await page.goto(`${base}/${token ? "#token=" + token : ""}`);
  await page.waitForFunction(() => !document.querySelector(".loading"));
  return page;
}
export const go = async (page, hash, ready) => { await page.evaluate((h) => { location.hash = h; }, hash); await page.waitForSelector(ready); };
export async function close(page, what) {
  const forbidden = await page.evaluate(() => window.forbidden);
  check(forbidden.length === 0, `${what}: the page's policy forbids something: ${forbidden.join("; ")}`);
  check(page.errors.length === 0, `${what}: the page complains: ${page.errors.join("; ")}`);
  check(page.outside.length === 0, `${what}: something from outside is asked for: ${page.outside.join(" ")}`);
  await page.context().close();
}

// Through the debugger, which the page's policy does not bind.
export async function accessible(page, what) {
  const debug = await page.context().newCDPSession(page);
  const run = async (expression) => {
    const answer = await debug.send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    if (answer.exceptionDetails) throw new Error(answer.exceptionDetails.exception?.description ?? answer.exceptionDetails.text);
    return answer.result.value;
  };
  await run(axe + ";0");
  const found = await run("axe.run().then((r) => r.violations.map((v) => `${v.id}: ${v.nodes[0].html.slice(0, 120)}`))");
  check(found.length === 0, `${what}: ${found.join("; ")}`);
  await debug.detach();
}

// The tab key until it is there: what has the focus says its text, its label or its name.
export async function tabTo(page, wanted, most = 60) {
  for (let i = 0; i < most; i++) {
    const here = await page.evaluate(() => { const e = document.activeElement; return [e?.textContent, e?.getAttribute?.("aria-label"), e?.getAttribute?.("name"), e?.closest?.("label")?.firstChild?.textContent]; });
    if (here.includes(wanted)) return true;
    await page.keyboard.press("Tab");
  }
  return false;
}
export async function finish() {
  await browser.close();
  console.log(`${checked} checked in the browser, ${wrong} wrong`);
  process.exit(wrong ? 1 : 0);
}
