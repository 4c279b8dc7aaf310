// Time to first token of every request: a mark at the moment it was sent, faults behind it.
// On a canvas, because a run may have tens of thousands; what it shows stands in a table as well.

import { HEIGHT, PAD, cellsAxis, nice, timeAxis, ttftAxis } from "./axes.js";
import { h, text } from "./dom.js";
import { duration, moment, percentile, whole } from "./format.js";
import { seriesOf } from "./model.js";

const NEAR_PX = 14;

export class Strip {
  constructor() {
    this.canvas = h("canvas", { role: "img" });
    this.tip = h("div", { class: "tip", hidden: true });
    this.body = h("tbody");
    this.frame = h("div", { class: "strip" }, this.canvas, this.tip);
    this.table = h(
      "table",
      { class: "strip-table" },
      h("caption", { class: "hidden" }, "Time to first token by kind of request"),
      h("thead", {}, h("tr", {}, ["kind", "n", "p50", "p99", "max"].map((name, index) => h("th", { scope: "col", class: index ? "right" : "" }, name)))),
      this.body,
    );
    this.follow = h("button", { type: "button", class: "small", "aria-pressed": "false" }, "last 60 s");
    this.log = h("button", { type: "button", class: "small", "aria-pressed": "false" }, "log scale");
    this.cell = h("select", { "aria-label": "Cell shown", hidden: true });
    for (const button of [this.follow, this.log]) {
      button.addEventListener("click", () => {
        button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
        this.draw();
      });
    }
    this.chosen = "";
    this.cell.addEventListener("change", () => {
      this.chosen = this.cell.value;
      this.draw();
    });
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => (this.tip.hidden = true));
    this.model = null;
    this.marks = [];
    this.watch = new ResizeObserver(() => this.draw());
    this.watch.observe(this.frame);
    this.recolour = () => this.draw();
    document.addEventListener("colours", this.recolour);
  }

  close() {
    this.watch.disconnect();
    document.removeEventListener("colours", this.recolour);
  }

  show(model, site) {
    this.model = model;
    this.site = site;
    const key = `${model.inOrder.map((cell) => model.nameOf(cell)).join("|")}|${model.about?.state}`;
    if (key !== this.key) {
      this.key = key;
      this.cell.hidden = model.cells.size < 2;
      const first = model.about?.state === "running" ? "newest cell" : "as judged";
      const options = [["", first], ["all", "all cells"]].concat(model.inOrder.map((cell) => [String(cell.number), model.nameOf(cell)]));
      this.cell.replaceChildren(...options.map(([value, said]) => h("option", { value, selected: value === this.chosen }, said)));
    }
    this.draw();
  }

  colour(name) {
    this.probe ??= this.frame.appendChild(h("i", { hidden: true }));
    this.probe.style.color = `var(${name})`;
    return getComputedStyle(this.probe).color;
  }

  shownCells() {
    const { model, chosen } = this;
    const all = model.inOrder;
    if (chosen === "all") return all;
    // A sweep that is over is looked at as a whole.
    if (chosen === "" && model.about?.state !== "running" && !model.about?.drill) return all;
    const one = chosen === "" ? model.foremost : model.cells.get(Number(chosen));
    return one ? [one] : [];
  }

  draw() {
    const { model, canvas } = this;
    const width = Math.floor(this.frame.clientWidth);
    if (!model || !width) return;
    const dots = Math.min(2, devicePixelRatio || 1);
    if (canvas.width !== width * dots || canvas.height !== HEIGHT * dots) {
      canvas.width = width * dots;
      canvas.height = HEIGHT * dots;
      canvas.style.width = `${width}px`;
      canvas.style.height = `${HEIGHT}px`;
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(dots, 0, 0, dots, 0, 0);
    pen.clearRect(0, 0, width, HEIGHT);
    pen.font = "11.5px ui-monospace, 'DejaVu Sans Mono', monospace";
    const cells = this.shownCells();
    const on = (button) => button.getAttribute("aria-pressed") === "true";
    const running = model.about?.state === "running" && cells[0] === model.newest;
    const x = cells.length > 1 ? cellsAxis(cells, width) : timeAxis(cells[0], width, running ? model.last_ns : NaN, on(this.follow));
    const shown = cells.flatMap((cell) =>
      cell.requests.filter((one) => (!this.site || one.site === this.site) && x.holds(one.t_ns)).map((one) => ({ cell, one })),
    );
    const y = ttftAxis(shown.map(({ one }) => one.ttft_ns).filter(Number.isFinite), on(this.log));
    for (const cell of cells) this.drawFaults(pen, cell, x);
    this.drawAxes(pen, x, y, width);
    this.marks = shown.map(({ cell, one }) => ({
      one,
      x: x.at(cell, one.t_ns),
      // What has no first token stands at the upper edge.
      y: Number.isFinite(one.ttft_ns) ? y.at(one.ttft_ns) : PAD.top,
    }));
    this.drawMarks(pen);
    this.tabulate(shown.map(({ one }) => one), cells);
  }

  drawFaults(pen, cell, x) {
    // Names side by side where they fit, else one above the other.
    const taken = [0, 0];
    for (const fault of cell.faults.values()) {
      if (fault.from_ns === null) continue;
      const [left, right] = [x.at(cell, fault.from_ns), x.at(cell, fault.to_ns ?? (fault.lasts ? Math.max(cell.to_ns, this.model.last_ns || 0) : fault.from_ns))];
      const wide = Math.max(2, right - left);
      if (!fault.lasts) {
        pen.strokeStyle = this.colour("--bad");
        pen.setLineDash([5, 4]);
        pen.beginPath();
        pen.moveTo(left, PAD.top);
        pen.lineTo(left, HEIGHT - PAD.bottom);
        pen.stroke();
        pen.setLineDash([]);
      }
      pen.globalAlpha = 0.45;
      pen.fillStyle = this.colour("--bad-ground");
      pen.fillRect(left, PAD.top, wide, HEIGHT - PAD.top - PAD.bottom);
      // Hatched, too: the shade alone is faint, and colour alone says nothing to some.
      pen.globalAlpha = 1;
      pen.save();
      pen.beginPath();
      pen.rect(left, PAD.top, wide, HEIGHT - PAD.top - PAD.bottom);
      pen.clip();
      pen.strokeStyle = this.colour("--bad");
      pen.globalAlpha = 0.16;
      pen.beginPath();
      for (let at = left - HEIGHT; at < right; at += 9) {
        pen.moveTo(at, HEIGHT - PAD.bottom);
        pen.lineTo(at + HEIGHT, -PAD.bottom);
      }
      pen.stroke();
      pen.restore();
      pen.fillStyle = this.colour("--bad");
      pen.textAlign = "left";
      const room = pen.measureText(fault.name).width;
      const at = Math.min(left + 1, this.frame.clientWidth - PAD.right - room);
      const row = taken.findIndex((end) => end <= at);
      if (row < 0) continue;
      taken[row] = at + room + 8;
      pen.fillText(fault.name, at, PAD.top - 8 - 13 * row);
    }
  }

  drawAxes(pen, x, y, width) {
    const muted = this.colour("--muted");
    pen.strokeStyle = this.colour("--line");
    pen.fillStyle = muted;
    pen.lineWidth = 1;
    pen.textAlign = "right";
    for (const tick of y.ticks) {
      const at = Math.round(y.at(tick)) + 0.5;
      pen.beginPath();
      pen.moveTo(PAD.left, at);
      pen.lineTo(width - PAD.right, at);
      pen.stroke();
      pen.fillText(tick ? duration(tick).replace(/\.0+ /, " ") : "0", PAD.left - 8, at + 4);
    }
    pen.textAlign = "center";
    const base = HEIGHT - PAD.bottom + 16;
    if (x.cells) {
      const every = Math.ceil(82 / x.each);
      x.cells.forEach((cell, index) => {
        const left = PAD.left + x.each * index;
        if (index) {
          pen.beginPath();
          pen.moveTo(Math.round(left) + 0.5, PAD.top);
          pen.lineTo(Math.round(left) + 0.5, HEIGHT - PAD.bottom);
          pen.stroke();
        }
        if (index % every) return;
        const most = Math.floor((x.each * every) / 7.2);
        pen.fillText(cell.label.length > most ? `${cell.label.slice(0, most - 1)}…` : cell.label, left + x.each / 2, base);
      });
      return;
    }
    const span = (x.end - x.start) / 1e9;
    const step = nice(span / Math.max(2, Math.min(8, x.room / 90)));
    const first = Math.ceil((x.start - x.from) / 1e9 / step) * step;
    for (let at = first; at <= (x.end - x.from) / 1e9 + 1e-9; at += step) {
      pen.fillText(`${Number(at.toPrecision(4))} s`, Math.min(width - 20, x.at(null, x.from + at * 1e9)), base);
    }
  }

  drawMarks(pen) {
    const small = this.marks.length > 600;
    const size = small ? 2.4 : 3.6;
    pen.globalAlpha = this.marks.length > 2500 ? 0.55 : 0.9;
    const colours = new Map();
    for (const { one, x, y } of this.marks) {
      const { colour, shape } = seriesOf(one.series);
      if (!colours.has(colour)) colours.set(colour, this.colour(colour));
      pen.fillStyle = pen.strokeStyle = colours.get(colour);
      pen.beginPath();
      if (shape === "dot") pen.arc(x, y, size, 0, 7);
      else if (shape === "square") pen.rect(x - size * 0.9, y - size * 0.9, size * 1.8, size * 1.8);
      else if (shape === "triangle") path(pen, [[x, y - size * 1.2], [x + size * 1.15, y + size * 0.85], [x - size * 1.15, y + size * 0.85]]);
      else if (shape === "diamond") path(pen, [[x, y - size * 1.25], [x + size * 1.25, y], [x, y + size * 1.25], [x - size * 1.25, y]]);
      else {
        pen.lineWidth = 2;
        pen.moveTo(x - size, y - size);
        pen.lineTo(x + size, y + size);
        pen.moveTo(x + size, y - size);
        pen.lineTo(x - size, y + size);
        pen.stroke();
        continue;
      }
      pen.fill();
    }
    pen.globalAlpha = 1;
  }

  tabulate(requests, cells) {
    const groups = new Map();
    for (const one of requests) {
      if (!groups.has(one.series)) groups.set(one.series, []);
      groups.get(one.series).push(one.ttft_ns);
    }
    const names = [...groups.keys()].sort((a, b) => seriesOf(a).order - seriesOf(b).order);
    const rows = names.map((name) => {
      const values = groups.get(name).filter(Number.isFinite).sort((a, b) => a - b);
      const numbers = [whole(groups.get(name).length), ...[0.5, 0.99].map((share) => duration(percentile(values, share))), duration(values.at(-1))];
      const { said, colour, shape } = seriesOf(name);
      return h("tr", {}, h("th", { scope: "row" }, h("i", { class: `key ${shape}`, "data-colour": colour }), said), numbers.map((value) => h("td", { class: "num right" }, value)));
    });
    const key = rows.map((row) => row.textContent).join("|");
    if (key !== this.tableKey) {
      this.tableKey = key;
      this.body.replaceChildren(...rows);
      for (const mark of this.body.querySelectorAll(".key")) mark.style.color = `var(${mark.dataset.colour})`;
    }
    const where = cells.length > 1 ? "all cells" : (cells[0] ? this.model.nameOf(cells[0]) : "no cell yet");
    const said = `Time to first token of ${requests.length} requests, ${where}; the table has the numbers`;
    if (this.canvas.getAttribute("aria-label") !== said) this.canvas.setAttribute("aria-label", said);
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const [px, py] = [event.clientX - box.left, event.clientY - box.top];
    let [best, near] = [null, NEAR_PX];
    for (const mark of this.marks) {
      const far = Math.hypot(mark.x - px, mark.y - py);
      if (far < near) [best, near] = [mark, far];
    }
    this.tip.hidden = best === null;
    if (!best) return;
    const { one } = best;
    text(this.tip, [one.name, seriesOf(one.series).said, one.site && `site ${one.site}`, duration(one.ttft_ns), `at ${moment(one.t_ns)}`, one.error].filter(Boolean).join(" · "));
    const half = this.tip.offsetWidth / 2;
    this.tip.style.left = `${Math.min(box.width - half - 4, Math.max(half + 4, best.x))}px`;
    this.tip.style.top = `${best.y}px`;
  }
}

function path(pen, corners) {
  corners.forEach(([x, y], index) => (index ? pen.lineTo(x, y) : pen.moveTo(x, y)));
  pen.closePath();
}
