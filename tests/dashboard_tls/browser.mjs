// The dashboard over TLS in a real browser: the link's token becomes the cookie of a safe place, and a run is shown as it goes on.
// Use: node browser.mjs MODULES LINK JOB
import { check, close, finish, go, open } from "../dashboard/chromium.mjs";

const [, link, job] = process.argv.slice(2);
const { origin, port, hash } = new URL(link);
const page = await open(origin, hash.slice("#token=".length), { ignoreHTTPSErrors: true }); // nobody vouches for its certificate
await page.waitForSelector(`table.jobs a >> text=${job}`);
check(!page.url().includes("token"), "the token leaves the address");
const cookies = await page.context().cookies();
check(cookies.length === 1 && cookies[0].name === `__Host-tidemill-${port}`, `the cookie is this host's alone: ${cookies.map((c) => c.name)}`);
check(cookies.every((c) => c.secure && c.httpOnly && c.sameSite === "Strict" && c.path === "/"), "it is sent over TLS alone, and no script reads it");
const streams = [];
page.on("response", (r) => { if (/\/events\?status=1/.test(r.url())) streams.push(`${r.status()} ${r.headers()["content-type"]} ${new URL(r.url()).protocol}`); });
await go(page, `#/job/${job}`, ".seat");
await page.waitForSelector(".events li[data-sequence]", { timeout: 60000 });
const committed = () => page.evaluate(() => Number(document.querySelector(".tile progress").value));
const before = await committed();
await page.waitForFunction((n) => Number(document.querySelector(".tile progress").value) > n, before, { timeout: 60000 });
check(streams.length > 0 && streams.every((s) => /^200 text\/event-stream.* https:$/.test(s)), `events come as a stream: ${streams}`);
await close(page, "over TLS");
await finish();
