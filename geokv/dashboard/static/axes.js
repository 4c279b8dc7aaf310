// Scales of the strip: moments of one cell or of several side by side, and times to first token.

export const HEIGHT = 250;
export const PAD = { left: 58, right: 14, top: 36, bottom: 26 };
const FOLLOW_NS = 60e9;

/** Several cells beside each other, each as wide as the others. `at(cell, t_ns)` is in pixels. */
export function cellsAxis(cells, width) {
  const each = (width - PAD.left - PAD.right) / cells.length;
  return {
    holds: () => true,
    at: (cell, t_ns) => {
      const span = cell.to_ns - cell.from_ns || 1;
      return PAD.left + each * (cells.indexOf(cell) + 0.06 + (0.88 * (t_ns - cell.from_ns)) / span);
    },
    cells,
    each,
  };
}

/**
 * One cell from its first request on, or its last minute.
 *
 * now_ns: the run's clock where the cell goes on, else NaN.
 */
export function timeAxis(cell, width, now_ns, following) {
  const room = width - PAD.left - PAD.right;
  const from = cell?.from_ns ?? 0;
  const end = Math.max(cell?.to_ns ?? 0, Number.isFinite(now_ns) ? now_ns : 0, from + 1e6);
  // Requests are in the order in which they ended, not in which they were sent.
  const first = (cell?.requests ?? []).reduce((least, one) => Math.min(least, one.t_ns), end);
  const start = Math.max(from, following ? end - FOLLOW_NS : first - 0.03 * (end - first));
  const scale = room / Math.max(1, end - start);
  return {
    holds: (t_ns) => t_ns >= start,
    at: (_, t_ns) => PAD.left + Math.min(room, Math.max(0, (t_ns - start) * scale)),
    start,
    end,
    from,
    room,
  };
}

/** From 0, or logarithmic around what there is; `values` in ns. */
export function ttftAxis(values, logarithmic) {
  const most = values.length ? values.reduce((a, b) => Math.max(a, b)) : 1e8;
  const least = values.length ? values.reduce((a, b) => Math.min(a, b)) : 1e6;
  const room = HEIGHT - PAD.top - PAD.bottom;
  const ticks = [];
  if (logarithmic) {
    const low = Math.log10(Math.max(1e3, least) * 0.8);
    const high = Math.log10(Math.max(1e4, most) * 1.25);
    for (let power = Math.floor(low); power <= high; power += 1) {
      for (const one of high - low < 1.5 ? [1, 2, 5] : [1]) {
        const value = one * 10 ** power;
        if (Math.log10(value) >= low && Math.log10(value) <= high) ticks.push(value);
      }
    }
    return { ticks, at: (ns) => PAD.top + room * (1 - (Math.log10(Math.max(1, ns)) - low) / (high - low || 1)) };
  }
  const step = nice(most / 4);
  const top = Math.max(step, Math.ceil(most / step) * step);
  for (let value = 0; value <= top + step / 2; value += step) ticks.push(value);
  return { ticks, at: (ns) => PAD.top + room * (1 - ns / top) };
}

/** 1, 2 or 5 times a power of ten, at least `least`. */
export function nice(least) {
  const power = 10 ** Math.floor(Math.log10(least || 1));
  return [1, 2, 5, 10].map((one) => one * power).find((one) => one >= least - 1e-12);
}
