// The page: who is here, which view is shown, light or dark.
import { h, fill, put } from "./dom.js";
import { session, logIn } from "./api.js";
import { jobsView } from "./jobs.js";
import { jobView } from "./job.js";
import { planView } from "./plan.js";

const main = document.getElementById("main");
const banner = document.getElementById("banner");
let leave = () => {};
export const app = { steers: false, denied: () => { leave(); leave = () => {}; say(""); askToken("The token is not good any more: log in again."); } };
// What cannot be decoded is a name that no run has.
const decoded = (text) => { try { return decodeURIComponent(text); } catch { return text; } };

export function say(text) { banner.hidden = !text; put(banner, text); }

function show() {
  leave();
  say("");
  const [, view, name] = location.hash.split("/");
  for (const [id, on] of [["nav-jobs", view !== "plan"], ["nav-plan", view === "plan"]]) {
    const link = document.getElementById(id);
    if (on) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  const title = view === "plan" ? "Plan" : view === "job" ? decoded(name ?? "") : "Jobs";
  document.title = `${title} – Tidemill`;
  const opened = view === "plan" ? planView(main, app) : view === "job" ? jobView(main, decoded(name ?? ""), app, say) : jobsView(main, app);
  leave = opened ?? (() => {});
  window.scrollTo(0, 0);
}

function askToken(why) {
  const input = h("input", { type: "password", name: "token", autocomplete: "off", required: true });
  const error = h("p.error", { role: "alert" }, why);
  fill(main, h("form.card.login", { onsubmit: async (e) => {
    e.preventDefault();
    try { begin(await logIn(input.value)); } catch (bad) { error.textContent = bad.message; input.select(); }
  } }, h("h1", {}, "Log in"), h("p.soft", {}, "Open the link that ", h("code", {}, "tidemill dashboard"), " printed, or paste its token here."), h("label", {}, "Token", input), h("button.main", {}, "Log in"), error));
  input.focus();
}

function begin(who) {
  app.steers = who.scope === "steer";
  const pill = document.getElementById("scope");
  pill.hidden = app.steers;
  put(pill, "watching only");
  window.addEventListener("hashchange", show);
  show();
}

const root = document.documentElement;
const stored = localStorage.getItem("theme");
if (stored) root.dataset.theme = stored;
document.getElementById("theme").addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
});

session().then(begin, (e) => askToken(e.status === 401 ? "" : e.message));
