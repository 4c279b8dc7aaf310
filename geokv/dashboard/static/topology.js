// The network as it is: sites, links with length and rate, load on each direction, faults on them.
// Drawn in pixels of the place it has, so that text is as large on a phone as on a desk.

import { h, icon, s } from "./dom.js";
import { km, percent, rate } from "./format.js";

const ROUNDS = 80;
const CROWDED = 12;

/**
 * Places for sites so that links are about as long as their km say (stress majorisation by single
 * pairs, Zheng, Pawar and Goodman 2019), turned so that the longer side lies flat. The same network
 * always gets the same drawing.
 */
export function layout(topology) {
  const names = topology.sites.map((site) => site.name);
  const n = names.length;
  const at = new Map(names.map((name, index) => [name, index]));
  const longest = Math.max(1e-9, ...topology.links.map((link) => link.km ?? 0));
  const apart = names.map((_, i) => names.map((_, j) => (i === j ? 0 : Infinity)));
  for (const link of topology.links) {
    const [i, j] = [at.get(link.a), at.get(link.b)];
    if (i === undefined || j === undefined) continue;
    // No shorter than labels need, no longer than twice that.
    apart[i][j] = apart[j][i] = Math.min(apart[i][j], 1 + Math.sqrt((link.km ?? 0) / longest));
  }
  for (let k = 0; k < n; k += 1) {
    for (let i = 0; i < n; i += 1) {
      for (let j = 0; j < n; j += 1) apart[i][j] = Math.min(apart[i][j], apart[i][k] + apart[k][j]);
    }
  }
  const x = names.map((_, i) => Math.cos((2 * Math.PI * i) / n - 0.4));
  const y = names.map((_, i) => Math.sin((2 * Math.PI * i) / n - 0.4));
  for (let round = 0; round < ROUNDS; round += 1) {
    const pull = Math.exp((-4 * round) / ROUNDS);
    for (let i = 0; i < n; i += 1) {
      for (let j = i + 1; j < n; j += 1) {
        if (!Number.isFinite(apart[i][j])) continue;
        const [dx, dy] = [x[i] - x[j], y[i] - y[j]];
        const now = Math.hypot(dx, dy) || 1e-6;
        const move = (Math.min(1, pull) * (now - apart[i][j])) / 2 / now;
        x[i] -= move * dx;
        y[i] -= move * dy;
        x[j] += move * dx;
        y[j] += move * dy;
      }
    }
  }
  const [mx, my] = [x, y].map((all) => all.reduce((sum, one) => sum + one, 0) / Math.max(1, n));
  let [xx, xy, yy] = [0, 0, 0];
  for (let i = 0; i < n; i += 1) {
    xx += (x[i] - mx) ** 2;
    yy += (y[i] - my) ** 2;
    xy += (x[i] - mx) * (y[i] - my);
  }
  const turn = -0.5 * Math.atan2(2 * xy, xx - yy);
  const places = names.map((name, i) => {
    const [dx, dy] = [x[i] - mx, y[i] - my];
    return { name, x: dx * Math.cos(turn) - dy * Math.sin(turn), y: dx * Math.sin(turn) + dy * Math.cos(turn) };
  });
  // The first site is on the left, and of the rest more are above than below.
  if (places.length && places[0].x > 0) for (const place of places) place.x = -place.x;
  return places;
}

export class TopologyView {
  /** @param pick what is told `{kind: "link" | "site", name}` when one is chosen; null where nothing can be done. */
  constructor(pick) {
    this.pick = pick;
    this.element = h("div", { class: "topology" });
    this.places = [];
    this.nodes = new Map();
    this.lines = new Map();
    this.watch = new ResizeObserver(() => this.draw());
    this.watch.observe(this.element);
  }

  close() {
    this.watch.disconnect();
  }

  setTopology(topology) {
    this.topology = topology;
    this.places = layout(topology);
    this.state = this.state ?? { sites: new Map(), links: new Map() };
    this.drawn = "";
    this.draw();
  }

  /** `state`: sites and links by name, as `run.js` gathers them. */
  update(state) {
    this.state = state;
    if (!this.nodes.size) return;
    for (const [name, node] of this.nodes) this.paintSite(node, state.sites.get(name) ?? {});
    for (const [name, line] of this.lines) this.paintLink(line, state.links.get(name) ?? {});
  }

  draw() {
    const width = Math.floor(this.element.clientWidth);
    if (!this.topology || !width) return;
    const crowded = this.places.length > CROWDED;
    const small = !crowded && width < 520 && this.places.length > 2;
    const least = this.places.length <= 2 ? 190 : crowded ? 520 : Math.min(360, Math.max(300, width * 0.6));
    this.element.style.minHeight = `${Math.round(least)}px`;
    const height = Math.floor(this.element.clientHeight);
    if (this.drawn === `${width}×${height}`) return;
    this.drawn = `${width}×${height}`;
    const box = crowded ? { w: 34, h: 20 } : small ? { w: 58, h: 34 } : { w: Math.min(118, Math.max(86, width / 4.4)), h: 50 };
    const pad = { x: box.w / 2 + 10, y: box.h / 2 + (crowded || small ? 10 : 22) };
    const place = this.fit(width, height, pad);
    const svg = s("svg", {
      viewBox: `0 0 ${width} ${height}`,
      width,
      height,
      class: crowded ? "crowded-net" : "",
      role: "group",
      "aria-label": `Network ${this.topology.title || this.topology.name}`,
    });
    this.lines.clear();
    this.nodes.clear();
    const under = s("g", {});
    const over = s("g", {});
    for (const link of this.topology.links) {
      const [a, b] = [place.get(link.a), place.get(link.b)];
      if (a && b) this.drawLink(under, over, link, a, b, crowded, small);
    }
    svg.append(under);
    for (const site of this.topology.sites) {
      const spot = place.get(site.name);
      if (spot) svg.append(this.drawSite(site, spot, box, crowded, small));
    }
    svg.append(over);
    this.element.replaceChildren(svg);
    this.update(this.state);
  }

  fit(width, height, pad) {
    const [xs, ys] = [this.places.map((one) => one.x), this.places.map((one) => one.y)];
    const span = (all) => [Math.min(...all), Math.max(...all)];
    const [[x0, x1], [y0, y1]] = [span(xs), span(ys)];
    const room = { x: width - 2 * pad.x, y: height - 2 * pad.y };
    const scale = { x: x1 > x0 ? room.x / (x1 - x0) : 0, y: y1 > y0 ? room.y / (y1 - y0) : 0 };
    // A little out of proportion fills the room; more would say wrong things of distances.
    const least = Math.min(scale.x || Infinity, scale.y || Infinity);
    const sx = Math.min(scale.x, 1.7 * least);
    const sy = Math.min(scale.y, 1.7 * least);
    return new Map(
      this.places.map((one) => [
        one.name,
        { x: width / 2 + sx * (one.x - (x0 + x1) / 2), y: height / 2 + sy * (one.y - (y0 + y1) / 2) },
      ]),
    );
  }

  drawLink(under, over, link, a, b, crowded, small) {
    const length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
    const apart = crowded ? 1.3 : 3.2;
    const side = { x: (-(b.y - a.y) / length) * apart, y: ((b.x - a.x) / length) * apart };
    const lane = (sign, css) =>
      s("line", {
        class: `lane ${css}`,
        x1: a.x + sign * side.x,
        y1: a.y + sign * side.y,
        x2: b.x + sign * side.x,
        y2: b.y + sign * side.y,
      });
    const base = s("line", { class: "fibre", x1: a.x, y1: a.y, x2: b.x, y2: b.y });
    const forward = lane(1, "forward");
    const backward = lane(-1, "backward");
    const group = s("g", { class: "link" }, base, forward, backward);
    under.append(group);
    const middle = { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
    const plate = s("rect", { class: "plate", rx: 5 });
    const first = s("text", { class: "first", "text-anchor": "middle" });
    const second = s("text", { class: "second", "text-anchor": "middle" });
    const label = s("g", { class: "link-label", transform: `translate(${middle.x} ${middle.y})` }, plate, first, second);
    const said = s("title");
    label.append(said);
    if (crowded) label.classList.add("crowded");
    this.choosable(label, "link", link.name);
    over.append(label);
    this.lines.set(link.name, { link, small, group, label, plate, first, second, said, forward, backward });
  }

  drawSite(site, spot, box, crowded, small) {
    const group = s("g", { class: "site", transform: `translate(${spot.x - box.w / 2} ${spot.y - box.h / 2})` });
    const frame = s("rect", { class: "frame", width: box.w, height: box.h, rx: crowded ? 5 : 8 });
    const name = s("text", crowded ? { class: "name small", x: box.w / 2, y: 14, "text-anchor": "middle" } : { class: "name", x: 11, y: 20 });
    name.textContent = site.name;
    const said = s("title");
    group.append(frame, name, said);
    const parts = { site, group, said };
    if (!crowded) {
      const title = s("text", { class: "title", x: 11, y: 34 });
      const room = Math.floor((box.w - 18) / 6.1);
      title.textContent = small ? "" : site.title.length > room ? `${site.title.slice(0, room - 1)}…` : site.title;
      const track = { x: 11, y: box.h - 10, width: box.w - 22, height: 4, rx: 2 };
      parts.fill = s("rect", { ...track, width: 0, class: "pool-fill" });
      parts.room = box.w - 22;
      parts.sign = s("g", { class: "sign", transform: `translate(${box.w - (small ? 19 : 25)} ${small ? 5 : 8})` });
      group.append(title, s("rect", { ...track, class: "pool-track" }), parts.fill, parts.sign);
    }
    this.choosable(group, "site", site.name);
    this.nodes.set(site.name, parts);
    return group;
  }

  choosable(element, kind, name) {
    if (!this.pick) return;
    element.setAttribute("tabindex", "0");
    element.setAttribute("role", "button");
    const act = () => this.pick({ kind, name });
    element.addEventListener("click", act);
    element.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      act();
    });
  }

  paintSite(parts, state) {
    const effect = state.effect ?? "";
    parts.group.setAttribute("class", `site ${effect}`);
    const fill = Number.isFinite(state.pool) ? Math.min(1, state.pool) : 0;
    parts.fill?.setAttribute("width", (fill * parts.room).toFixed(1));
    if (parts.sign && parts.sign.dataset.effect !== effect) {
      parts.sign.dataset.effect = effect;
      parts.sign.replaceChildren();
      if (effect) {
        const sign = icon(effect === "down" ? "fail" : "invalid");
        sign.setAttribute("width", "14");
        sign.setAttribute("height", "14");
        parts.sign.append(sign);
      }
    }
    const pool = Number.isFinite(state.pool) ? `, pool ${percent(state.pool)} full` : "";
    const said = `Site ${parts.site.name}${effect ? `, ${effect}` : ""}${pool}`;
    if (parts.said.textContent !== said) {
      parts.said.textContent = said;
      parts.group.setAttribute("aria-label", said);
    }
  }

  paintLink(parts, state) {
    const effect = state.effect ?? "";
    const length = state.km ?? parts.link.km;
    const speed = state.rate_bps ?? parts.link.rate_bps;
    parts.group.setAttribute("class", `link ${effect}`);
    const crowded = parts.label.classList.contains("crowded");
    parts.label.setAttribute("class", `link-label ${effect}${crowded ? " crowded" : ""}`);
    for (const name of ["forward", "backward"]) {
      const load = effect === "cut" ? 0 : (state[name] ?? 0);
      // The root shows a tenth of the line as a third, as little as an eye notices.
      parts[name].style.opacity = load > 0.001 ? (0.12 + 0.88 * Math.sqrt(Math.min(1, load))).toFixed(2) : "0";
    }
    const sign = effect && `${SIGNS[effect] ?? "!"} ${effect}`;
    const first = !effect ? km(length) : parts.small ? sign : `${sign} · ${km(length)}`;
    const loaded = Number.isFinite(state.forward) || Number.isFinite(state.backward);
    const second = parts.small ? "" : loaded && effect !== "cut" ? `→ ${percent(state.forward)}  ← ${percent(state.backward)}` : rate(speed);
    if (parts.first.textContent !== first || parts.second.textContent !== second) {
      parts.first.textContent = first;
      parts.second.textContent = second;
      const wide = Math.max((effect ? 7.3 : 6.7) * first.length, (effect ? 7 : 6.3) * second.length) + 14;
      const tall = second ? 35 : 20;
      for (const [name, value] of Object.entries({ x: -wide / 2, y: -tall / 2, width: wide, height: tall })) {
        parts.plate.setAttribute(name, value);
      }
      parts.first.setAttribute("y", second ? "-3" : "4");
      parts.second.setAttribute("y", "11");
    }
    const load = loaded ? `, carries ${percent(state.forward)} there and ${percent(state.backward)} back` : "";
    const said = `Link ${parts.link.name}, ${km(length)}, ${rate(speed)}${effect ? `, ${effect}` : ""}${load}`;
    if (parts.said.textContent !== said) {
      parts.said.textContent = said;
      parts.label.setAttribute("aria-label", said);
    }
  }
}

const SIGNS = { cut: "✕", degraded: "▲", busy: "≋" };
