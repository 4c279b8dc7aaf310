// The events of a run as lines, newest last; stays at the end unless somebody has scrolled up.

import { h, text } from "./dom.js";
import { moment } from "./format.js";

const SIGNS = { cell: "▸", fault: "!", good: "✓", bad: "✕", hand: "☞", step: "·" };

export class EventLog {
  constructor() {
    this.list = h("ol", { class: "log", role: "log", "aria-live": "polite", "aria-label": "Event log", tabindex: "0" });
    this.count = h("span", { class: "num" });
    this.element = h("section", { class: "panel", "aria-labelledby": "log-title" }, h("header", {}, h("h2", { id: "log-title" }, "Events"), h("span", { class: "end" }, this.count)), this.list);
    this.shown = 0;
  }

  show(model) {
    if (model.written < this.shown) {
      this.list.replaceChildren();
      this.shown = 0;
    }
    const fresh = Math.min(model.written - this.shown, model.log.length);
    if (this.revised !== model.revised && model.log.length > fresh) {
      // The newest line that is shown may have been written on.
      this.list.lastChild?.replaceWith(line(model.log.at(-1 - fresh)));
    }
    this.revised = model.revised;
    if (!fresh) return;
    const atEnd = this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < 24;
    this.list.append(...model.log.slice(-fresh).map(line));
    while (this.list.children.length > model.log.length) this.list.firstChild.remove();
    this.shown = model.written;
    text(this.count, model.written > model.log.length ? `last ${model.log.length} of ${model.written}` : `${model.written}`);
    if (atEnd) this.list.scrollTop = this.list.scrollHeight;
  }
}

function line(entry) {
  return h(
    "li",
    { class: entry.kind },
    h("time", { class: "num" }, Number.isFinite(entry.t_ns) ? moment(entry.t_ns) : ""),
    h("i", { "aria-hidden": "true" }, SIGNS[entry.kind] ?? "·"),
    h("span", {}, h("b", {}, entry.said), entry.words ? ` ${entry.words}` : ""),
  );
}
