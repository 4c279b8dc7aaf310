// What a run's steps add up to: cells, their requests and faults, the last sample of the lab.

export const MOST_REQUESTS = 50_000;
export const MOST_LOG = 400;

/** What a fault does to its target, in one word of the drawing. */
const EFFECTS = {
  "link-cut": "cut",
  "link-one-way-cut": "cut",
  "link-flap": "cut",
  "link-degrade": "degraded",
  "silent-drop": "degraded",
  "path-switch": "degraded",
  "corrupt-chunk": "degraded",
  "lost-completion": "degraded",
  background: "busy",
  incast: "busy",
  partition: "cut",
  "site-kill": "down",
  "site-restart": "down",
  "site-freeze": "frozen",
  "slow-gpu": "slow",
  "memory-pressure": "slow",
  "disk-full": "slow",
  "disk-slow": "slow",
  "store-outage": "slow",
};

/** Kinds that happen and are over; the rest lasts until it heals. */
const MOMENTARY = new Set(["bit-rot", "directory-restart", "eviction-storm", "key-revoke", "purge", "site-restart"]);

const SERIES = {
  recompute: { order: 0, said: "recompute", colour: "--recompute", shape: "square" },
  computed: { order: 0, said: "recomputed", colour: "--recompute", shape: "square" },
  "local-hit": { order: 1, said: "local hit", colour: "--local", shape: "triangle" },
  local: { order: 1, said: "local", colour: "--local", shape: "triangle" },
  "remote-hit": { order: 2, said: "remote hit", colour: "--remote", shape: "dot" },
  remote: { order: 2, said: "remote", colour: "--remote", shape: "dot" },
  answered: { order: 3, said: "answered", colour: "--remote", shape: "dot" },
  failed: { order: 9, said: "failed", colour: "--bad", shape: "cross" },
};
export const seriesOf = (name) =>
  SERIES[name] ?? { order: 5, said: name.replaceAll("-", " "), colour: "--other", shape: "diamond" };

export class Model {
  constructor() {
    this.clear();
  }

  clear() {
    this.about = null;
    this.cells = new Map();
    this.newest = null;
    this.sample = null;
    this.samples = 0;
    this.log = [];
    this.written = 0;
    this.answers = new Map();
    this.requests = 0;
    this.dropped = 0;
    this.clocks = new Map();
    this.real_s = NaN;
    this.failed = null;
    this.plan = null;
    this.parts = new Map();
  }

  take(step) {
    if (Number.isFinite(step.t_ns)) this.clocks.set(step.part ?? 0, step.t_ns);
    if (Number.isFinite(step.real_s)) this.real_s = step.real_s;
    const take = TAKERS[step.event];
    if (take) take(this, step);
  }

  /** The cell a step belongs to: by its number, or the one its part is in. */
  cellOf(step) {
    const number = step.cell ?? this.parts.get(step.part ?? 0);
    return number === undefined ? null : (this.cells.get(number) ?? null);
  }

  /** What the clock of the newest cell showed last; VMs side by side have one each. */
  get last_ns() {
    return this.clocks.get(this.newest?.part ?? 0) ?? NaN;
  }

  /** What a cell is called; a control is named by what it must do, or did. */
  nameOf(cell) {
    if (!cell.control) return cell.label;
    return `control: ${this.about?.verdicts?.[cell.number] ?? "must fail"}`;
  }

  /** Faults that last in the newest cell: name → fault. */
  activeFaults() {
    const found = new Map();
    for (const fault of this.newest?.faults.values() ?? []) {
      if (fault.lasts && fault.from_ns !== null && fault.to_ns === null) found.set(fault.name, fault);
    }
    return found;
  }

  /** Whether a cell is the one in which a drill must fail; it is the last. */
  isControl(number) {
    const planned = this.plan?.cells?.find((cell) => cell.cell === number);
    return planned ? Boolean(planned.control) : Boolean(this.about?.has_control) && number > 0 && this.cells.size > 0;
  }

  /** Cells by their number; those of VMs side by side begin in any order. */
  get inOrder() {
    return [...this.cells.values()].sort((a, b) => a.number - b.number);
  }

  /** What is worth looking at first: what goes on, or what was judged. */
  get foremost() {
    if (this.about?.state === "running") return this.newest;
    const judged = this.inOrder.filter((cell) => !cell.control);
    return judged.at(-1) ?? this.newest;
  }

  /** A fault of that name, of the newest cell that has one. */
  faultNamed(name) {
    return [...this.cells.values()].reverse().find((cell) => cell.faults.has(name))?.faults.get(name);
  }

  /** Failures one after another are one line, so that they drive nothing else out of sight. */
  writeFailure(step, name) {
    const cell = this.cellOf(step);
    const last = this.log.findLast((entry) => entry.cell === cell.number);
    const words = String(step.error || step.status || "");
    if (last?.failures) {
      last.failures += 1;
      last.said = `${last.failures} requests failed`;
      last.words = `the last ${name}: ${words}`;
      return;
    }
    this.write(step, "bad", "1 request failed", `${name}: ${words}`);
    this.log.at(-1).failures = 1;
  }

  write(step, kind, said, words = "") {
    // What no VM said is of the whole run.
    const whole = step.part === undefined && step.cell === undefined;
    const cell = whole ? undefined : this.cellOf(step)?.number;
    this.log.push({ cell, over: whole && this.cells.size > 0, t_ns: step.t_ns, kind, said: String(said), words: String(words ?? "") });
    this.written += 1;
    if (this.log.length > MOST_LOG) this.log.shift();
  }
}

export const effectOf = (kind) => EFFECTS[kind] ?? "slow";

const TAKERS = {
  run(model, step) {
    model.plan = step;
    model.write(step, "step", "run begun", `${step.clock} clock${step.pace ? `, at most ${step.pace}× real time` : ""}`);
  },
  folder: (model, step) => model.write(step, "step", "starting", step.parts > 1 ? `${step.parts} VMs, ${step.kernel}` : step.kernel),
  lab: (model, step) => model.write(step, "step", "network built", `${step.sites} sites, ${step.links} links`),
  sites: (model, step) => model.write(step, "step", "sites started", (step.sites ?? []).join(", ")),
  cell(model, step) {
    const cell = {
      number: step.cell,
      part: step.part ?? 0,
      label: step.label ?? `cell ${step.cell}`,
      links: new Map((step.links ?? []).map((link) => [link.link, link])),
      control: model.isControl(step.cell),
      from_ns: step.t_ns,
      to_ns: step.t_ns,
      requests: [],
      faults: new Map(),
    };
    model.cells.set(step.cell, cell);
    model.parts.set(step.part ?? 0, step.cell);
    model.newest = cell;
    model.sample = null;
  },
  check: (model, step) => model.write(step, "step", `links checked ${step.phase ?? ""}`.trim()),
  request(model, step) {
    const cell = model.cellOf(step);
    if (!cell) return;
    cell.to_ns = step.t_ns;
    if (step.warmup) return;
    model.requests += 1;
    const ttft_ns = step.ttft_ns ?? (step.ttft_ms === undefined || step.ttft_ms === null ? NaN : step.ttft_ms * 1e6);
    const failed = Boolean(step.error) || (step.status !== undefined && step.status !== "ok");
    const source = step.source && ({ none: "computed", remote: "remote" }[step.source] ?? "local");
    const series = failed ? "failed" : (step.arm ?? source ?? "answered");
    cell.requests.push({
      // Where it began: what a fault did to it depends on that.
      t_ns: step.sent_ns ?? step.t_ns,
      ttft_ns,
      series,
      site: step.site ?? "",
      name: step.request_id ?? `${step.arm ?? ""} ${step.repeat ?? ""}`.trim(),
      error: step.error ?? "",
    });
    if (cell.requests.length > MOST_REQUESTS) {
      cell.requests.shift();
      model.dropped += 1;
    }
    if (failed) model.writeFailure(step, cell.requests.at(-1).name);
  },
  fault(model, step) {
    const cell = model.cellOf(step);
    const key = step.name;
    const fault = cell?.faults.get(key) ?? {
      name: key,
      kind: step.kind ?? "",
      target: step.target ?? "",
      byHand: Boolean(step.by_hand),
      from_ns: null,
      to_ns: null,
      phase: "",
    };
    fault.phase = step.phase;
    fault.kind ||= step.kind ?? "";
    fault.target ||= step.target ?? "";
    fault.lasts = !MOMENTARY.has(fault.kind);
    // When it was really seen, which is before it was said.
    const seen_ns = step.seen_ns ?? step.t_ns;
    if (step.phase === "took-effect") fault.from_ns = seen_ns;
    if (step.phase === "healed") fault.to_ns = seen_ns;
    cell?.faults.set(key, fault);
    const bad = step.phase === "did-not-fire" || step.phase === "did-not-heal";
    const where = fault.target && fault.target !== fault.name ? `${fault.name} (${fault.target})` : fault.name;
    model.write(step, bad ? "bad" : step.phase === "healed" ? "good" : "fault", `${where}: ${step.phase.replaceAll("-", " ")}`, step.seen || step.said);
  },
  quiesce(model, step) {
    // What was asked to stop has: no answer of its own says so.
    for (const answer of model.answers.values()) if (answer.do === "stop") answer.done = true;
    model.write(step, "step", "stream over", "looking at the books of every site");
  },
  cold: (model, step) => model.write(step, "step", "cold engine", `answers ${step.prompts} prompts again`),
  report: (model, step) => model.write(step, "step", "writing the report"),
  sample(model, step) {
    model.sample = step;
    model.samples += 1;
    if (model.newest) model.newest.to_ns = Math.max(model.newest.to_ns, step.t_ns);
  },
  command(model, step) {
    model.answers.set(step.id, step);
    const what = { inject: "fault asked for", heal: "healing asked for", stop: "stop asked for" }[step.do] ?? "command";
    const refused = step.phase === "refused";
    model.write(step, refused ? "bad" : "hand", `${what} by hand: ${step.phase}`, refused ? step.reason : step.name);
  },
  error(model, step) {
    model.write(step, "bad", step.message ?? "error", step.hint);
  },
  failed(model, step) {
    model.failed = step;
    model.write(step, "bad", "the run failed", step.message);
  },
  verdict: (model, step) => model.write(step, step.verdict === "pass" ? "good" : "bad", `verdict: ${step.verdict}`, (step.reasons ?? []).join("; ")),
};
