// The dashboard's own API (/v1/openapi.json): questions, and streams that resume by themselves.
export class ApiError extends Error {
  constructor(status, text) { super(text); this.status = status; }
}

export async function ask(method, path, body, type) {
  const answer = await fetch(path, { method, body, headers: type ? { "Content-Type": type } : {}, cache: "no-store" });
  const text = await answer.text();
  let document = null;
  try { document = JSON.parse(text); } catch { /* an error without words */ }
  if (!answer.ok) throw new ApiError(answer.status, document?.error ?? `answered ${answer.status}`);
  return document;
}
// JSON lines, such as events.
export async function lines(path) {
  const answer = await fetch(path, { cache: "no-store" });
  if (!answer.ok) throw new ApiError(answer.status, `answered ${answer.status}`);
  return (await answer.text()).split("\n").filter(Boolean).map((line) => JSON.parse(line));
}
export const get = (path) => ask("GET", path);
// What is answered as a page.
export async function page(path, body) {
  const answer = await fetch(path, { method: "POST", body, headers: { "Content-Type": "application/yaml" }, cache: "no-store" });
  const text = await answer.text();
  if (!answer.ok) { let words = `answered ${answer.status}`; try { words = JSON.parse(text).error; } catch { /* no words */ } throw new ApiError(answer.status, words); }
  return text;
}
export const post = (path, body = "", type = "text/plain") => ask("POST", path, body, type);
export const jobPath = (name, rest) => `/v1/jobs/${encodeURIComponent(name)}/${rest}`;

const AGAIN_MS = 2000;

// `handlers`: event(e), status(s), away(), again(), open(), lost(why), denied(). Where the connection is cut EventSource comes back by
// itself, with the last number it has; where it was refused (401, 404, 429, 503) it does not: then we ask why, and come back.
export function follow(name, after, handlers) {
  let source = null, timer = 0, gone = false;
  const open = () => {
    source = new EventSource(jobPath(name, `events?status=1&brief=1&after=${after}`));
    source.onmessage = (m) => { after = Number(m.lastEventId) || after; handlers.event(JSON.parse(m.data)); };
    source.addEventListener("status", (m) => handlers.status(JSON.parse(m.data)));
    source.addEventListener("away", () => handlers.away());
    source.addEventListener("again", () => { after = 0; handlers.again(); });
    source.onopen = () => handlers.open();
    source.onerror = refused;
  };
  async function refused() {
    if (source.readyState !== EventSource.CLOSED) { handlers.lost(""); return; }
    let why = "";
    try { await get(jobPath(name, "status")); } catch (e) {
      if (e.status === 401 && !gone) { handlers.denied(); return; }
      why = e.status ? e.message : "";
    }
    if (gone) return;
    handlers.lost(why);
    timer = setTimeout(open, AGAIN_MS);
  }
  open();
  return { close: () => { gone = true; clearTimeout(timer); source.close(); } };
}

// A link's token is in its fragment, which is not sent anywhere: it becomes a cookie that scripts cannot read.
export async function logIn(token) { return post("/v1/session", token.trim()); }
export async function session() {
  const given = /^#token=([0-9a-f]+)/.exec(location.hash);
  if (given) {
    history.replaceState(null, "", location.pathname);
    return logIn(given[1]);
  }
  return get("/v1/session");
}
