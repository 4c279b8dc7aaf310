// Numbers as people read them. Times of a run are its clock's, in ns.

const DASH = "–";

export const whole = (n) => n.toLocaleString("en-GB");

/** 0.018 ms, 21.8 ms, 1.24 s, 2:05 min */
export function duration(ns) {
  if (!Number.isFinite(ns)) return DASH;
  const ms = ns / 1e6;
  if (ms < 1) return `${ms.toFixed(3)} ms`;
  if (ms < 1000) return `${ms.toFixed(ms < 100 ? 2 : 1)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(2)} s`;
  return `${Math.floor(ms / 60_000)}:${String(Math.floor(ms / 1000) % 60).padStart(2, "0")} min`;
}

/** A moment of the run's clock: 12.345 s */
export const moment = (ns) => (Number.isFinite(ns) ? `${(ns / 1e9).toFixed(3)} s` : DASH);

function scaled(value, units, step, digits = 3) {
  let n = value;
  let unit = 0;
  while (Math.abs(n) >= step && unit < units.length - 1) {
    n /= step;
    unit += 1;
  }
  const short = n >= 100 || Number.isInteger(n) ? n.toFixed(0) : n.toPrecision(digits);
  return `${short} ${units[unit]}`;
}

export const rate = (bps) =>
  Number.isFinite(bps) ? scaled(bps, ["bit/s", "kb/s", "Mb/s", "Gb/s", "Tb/s"], 1000) : DASH;
export const bytes = (n) => (Number.isFinite(n) ? scaled(n, ["B", "KiB", "MiB", "GiB", "TiB"], 1024) : DASH);
export const km = (n) => (Number.isFinite(n) ? `${Number(n.toFixed(3))} km` : DASH);
export const percent = (share) => (Number.isFinite(share) ? `${Math.round(100 * share)} %` : DASH);

const TODAY = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const FULL = new Intl.DateTimeFormat("en-GB", { dateStyle: "long", timeStyle: "medium" });

/** When a run was started, in the reader's time. */
export function when(iso) {
  const then = new Date(iso);
  const same = then.toDateString() === new Date().toDateString();
  return same ? `today ${TODAY.format(then)}` : DAY.format(then);
}
export const whenFull = (iso) => FULL.format(new Date(iso));

/** Nearest rank, as the run's own summary has it: above the median none without a sample beyond it. */
export function percentile(sorted, share) {
  const carried = share <= 0.5 || sorted.length >= Math.round(1 / (1 - share));
  if (!sorted.length || !carried) return NaN;
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)];
}
