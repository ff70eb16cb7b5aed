// Numbers for people.
const known = (x) => x !== null && x !== undefined && Number.isFinite(x);

export function usd(x) {
  if (!known(x)) return "–";
  return x === 0 ? "$0" : "$" + (Math.abs(x) < 1 ? x.toFixed(4) : x < 1000 ? x.toFixed(2) : Math.round(x).toLocaleString("en-US"));
}
export function count(x) { return known(x) ? Math.round(x).toLocaleString("en-US") : "–"; }
export function short(x, digits = 3) {
  if (!known(x)) return "–";
  const a = Math.abs(x);
  for (const [limit, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (a >= limit) return trim(x / limit, digits) + unit;
  return a !== 0 && a < 0.001 ? x.toExponential(1) : trim(x, digits);
}
function trim(x, digits) { return String(Number(x.toPrecision(digits))); }
export function loss(x) { return known(x) ? x.toFixed(4) : "–"; }
export function span(s) {
  if (!known(s)) return "–";
  s = Math.max(0, s);
  if (s > 0 && s < 1) return Math.max(1, Math.round(s * 1000)) + "ms";
  if (s === 0) return "0s";
  if (s < 10) return s.toFixed(1) + "s";
  if (s < 60) return Math.round(s) + "s";
  if (s < 3600) return Math.floor(s / 60) + "m " + String(Math.floor(s % 60)).padStart(2, "0") + "s";
  if (s < 172800) return Math.floor(s / 3600) + "h " + String(Math.floor((s % 3600) / 60)).padStart(2, "0") + "m";
  return Math.floor(s / 86400) + "d " + Math.floor((s % 86400) / 3600) + "h";
}
// "5m to 8m"
export function between(low_s, high_s) { return `${span(low_s)} to ${span(high_s)}`; }
export function clock(ms) { return new Date(ms).toLocaleTimeString("en-GB"); }
export function day(ms) { return new Date(ms).toLocaleString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" }); }
export function percent(x) { return known(x) ? (x * 100).toFixed(x < 0.1 ? 1 : 0) + "%" : "–"; }
export function less(paid, other) { return known(paid) && known(other) && other > 0 ? Math.round((1 - paid / other) * 100) : null; }
export function plural(n, one, many) { return `${count(n)} ${n === 1 ? one : many ?? one + "s"}`; }
export const stateKinds = { training: "", starting: "quiet", waiting: "warn", stopping: "warn", stopped: "quiet", finished: "good", failed: "bad" };
