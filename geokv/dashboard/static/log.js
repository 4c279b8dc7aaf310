// The events of a run as lines, cell by cell, because cells that run side by side have clocks of
// their own; in each the newest last. Stays at the end unless somebody has scrolled up.

import { h, text } from "./dom.js";
import { moment } from "./format.js";

const SIGNS = { fault: "!", good: "✓", bad: "✕", hand: "☞", step: "·" };
/** Places of what belongs to the whole run: before the first cell, behind the last. */
const BEGINNING = -1;
const END = Infinity;

export class EventLog {
  constructor() {
    this.list = h("div", { class: "log", role: "log", "aria-live": "polite", "aria-label": "Event log", tabindex: "0" });
    this.cell = h("select", { "aria-label": "Cell of the events shown", hidden: true });
    this.cell.addEventListener("change", () => this.choose());
    this.count = h("span", { class: "num" });
    this.element = h("section", { class: "panel", "aria-labelledby": "log-title" }, h("header", {}, h("h2", { id: "log-title" }, "Events"), h("span", { class: "end" }, this.cell, this.count)), this.list);
    this.clear();
  }

  clear() {
    this.list.replaceChildren();
    this.groups = new Map();
    this.lines = [];
    this.shown = 0;
  }

  show(model) {
    if (model.written < this.shown) this.clear();
    const atEnd = this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < 24;
    for (const one of this.lines) {
      // A line about failures is written on as more of them come.
      if (one.said === one.entry.said) continue;
      const fresh = this.line(one.entry);
      one.element.replaceWith(fresh.element);
      Object.assign(one, fresh);
    }
    const fresh = Math.min(model.written - this.shown, model.log.length);
    for (const entry of model.log.slice(model.log.length - fresh)) {
      const one = this.line(entry);
      this.group(entry).list.append(one.element);
      this.lines.push(one);
    }
    for (const gone of this.lines.splice(0, this.lines.length - model.log.length)) gone.element.remove();
    this.shown = model.written;
    this.name(model);
    text(this.count, model.written > model.log.length ? `last ${model.log.length} of ${model.written}` : `${model.written}`);
    if (fresh && atEnd) this.list.scrollTop = this.list.scrollHeight;
  }

  line(entry) {
    const words = h("span", {}, h("b", {}, entry.said), entry.words ? ` ${entry.words}` : "");
    const at = h("time", { class: "num" }, Number.isFinite(entry.t_ns) ? moment(entry.t_ns) : "");
    return { entry, said: entry.said, element: h("li", { class: entry.kind }, at, h("i", { "aria-hidden": "true" }, SIGNS[entry.kind] ?? "·"), words) };
  }

  /** The lines of one cell, in their place among those of others. */
  group(entry) {
    const place = entry.cell ?? (entry.over ? END : BEGINNING);
    let group = this.groups.get(place);
    if (group) return group;
    const title = h("h3", {}, place === END ? "the run" : "");
    group = { title, list: h("ol") };
    // What comes before every cell needs no name.
    group.element = h("section", {}, place === BEGINNING ? null : title, group.list);
    const behind = [...this.groups].filter(([other]) => other > place).sort(([a], [b]) => a - b)[0];
    this.list.insertBefore(group.element, behind ? behind[1].element : null);
    this.groups.set(place, group);
    return group;
  }

  /** Cells get their names, and one can be chosen where there are several. */
  name(model) {
    const named = model.inOrder.map((cell) => [String(cell.number), model.nameOf(cell)]);
    for (const [place, said] of named) {
      const group = this.groups.get(Number(place));
      if (group) text(group.title, said);
    }
    const key = JSON.stringify(named);
    if (key !== this.key) {
      this.key = key;
      const chosen = this.cell.value;
      this.cell.replaceChildren(...[["", "all cells"], ...named].map(([value, said]) => h("option", { value, selected: value === chosen }, said)));
      this.cell.hidden = named.length < 2;
    }
    this.choose();
  }

  choose() {
    for (const [place, group] of this.groups) {
      group.element.hidden = !group.list.firstChild || (this.cell.value !== "" && String(place) !== this.cell.value);
    }
  }
}
