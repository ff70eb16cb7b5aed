// Numbers for people.
const known = (x) => x !== null && x !== undefined && Number.isFinite(x);

export function usd(x) {
  if (!known(x)) return "–";
  return x === 0 ? "$0" : "$" + (Math.abs(x) < 1 ? x.toFixed(4).replace(/(\.\d\d\d*?)0+$/, "$1") : x < 1000 ? x.toFixed(2) : Math.round(x).toLocaleString("en-US"));
}
// A price, with a digit or two less: it stands beside others.
export function hourly(x) { return known(x) && x >= 0.01 && x < 1 ? "$" + x.toFixed(3).replace(/0$/, "") + "/h" : usd(x) + "/h"; }
// Amounts of an axis, with as many digits as tell them apart.
export function usdTicks(list) {
  const digits = Math.max(0, ...list.map((v) => (String(Number(v.toPrecision(6))).split(".")[1] ?? "").length));
  return list.map((v) => (v === 0 ? "$0" : "$" + v.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits })));
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
// Without what says nothing, for axes.
export const shortSpan = (s) => (s > 0 && s < 10 ? trim(s, 2) + "s" : span(s).replace(/ 00[sm]$/, "").replace(/ 0h$/, ""));
export const TIME_STEPS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 345600, 604800, 1209600, 2419200];
export function timeTicks(min, max, wanted) {
  const step = TIME_STEPS.find((s) => (max - min) / s <= wanted) ?? 2419200 * Math.ceil((max - min) / 2419200 / wanted), first = Math.ceil(min / step - 1e-9);
  return Array.from({ length: Math.max(0, Math.floor(max / step + 1e-9) - first + 1) }, (_, i) => (first + i) * step);
}
// "5m to 8m"
export function between(low_s, high_s) { return `${span(low_s)} to ${span(high_s)}`; }
export function clock(ms) { return new Date(ms).toLocaleTimeString("en-GB"); }
export function day(ms) { return new Date(ms).toLocaleString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" }); }
export function percent(x) { return known(x) ? (x * 100).toFixed(x < 0.1 ? 1 : 0) + "%" : "–"; }
// "64% less than on-demand"; "": nothing to compare with.
export function compared(paid, other) {
  if (!known(paid) || !known(other) || other <= 0) return "";
  const share = Math.round(Math.abs(1 - paid / other) * 100);
  return share === 0 ? "as much as on-demand" : `${share}% ${paid > other ? "more" : "less"} than on-demand`;
}
export function median(sorted) { const n = sorted.length; return n === 0 ? NaN : (sorted[(n - 1) >> 1] + sorted[n >> 1]) / 2; }
export function plural(n, one, many) { return `${count(n)} ${n === 1 ? one : many ?? one + "s"}`; }
export const stateKinds = { training: "", starting: "quiet", waiting: "warn", stopping: "warn", stopped: "quiet", finished: "good", failed: "bad" };
