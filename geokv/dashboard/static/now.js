// The lab as it is now: what is known of sites and links, and the tables that say it.

import { h, icon, text } from "./dom.js";
import { km, percent, rate, whole } from "./format.js";
import { effectOf } from "./model.js";

const TIERS = ["device", "dram", "disk"];

/** Sites and links as they are now, by the last sample and the faults that last. */
export function gather(model) {
  const sites = new Map();
  const links = new Map();
  for (const [name, link] of model.foremost?.links ?? []) links.set(name, { km: link.km, rate_bps: link.rate_bps });
  const running = model.about.state === "running";
  const { sample } = model;
  for (const one of model.foremost?.requests ?? []) {
    if (one.site) sites.set(one.site, { asked: (sites.get(one.site)?.asked ?? 0) + 1 });
  }
  for (const [name, seen] of Object.entries((running && sample?.links) || {})) {
    const [forward, backward] = seen.load ?? [];
    links.set(name, { ...links.get(name), km: seen.km, rate_bps: seen.rate_bps, forward, backward, effect: { dark: "cut", degraded: "degraded" }[seen.state] });
  }
  for (const [name, seen] of Object.entries(sample?.sites ?? {})) {
    const device = seen.pools?.device;
    const pool = device?.total ? (device.total - device.free) / device.total : NaN;
    const now = { running: seen.running, waiting: seen.waiting, effect: seen.up === false ? "down" : seen.answers === false ? "frozen" : "" };
    sites.set(name, { ...sites.get(name), pool, pools: seen.pools, ...(running ? now : {}) });
  }
  if (running) {
    for (const fault of model.activeFaults().values()) {
      const effect = effectOf(fault.kind);
      for (const name of named(fault.target, model.about.topology.links)) links.set(name, { ...links.get(name), effect: links.get(name)?.effect || effect, fault: fault.name });
      for (const name of named(fault.target, model.about.topology.sites)) sites.set(name, { ...sites.get(name), effect: sites.get(name)?.effect || (effect === "cut" ? "" : effect), fault: fault.name });
    }
  }
  return { sites, links };
}

/** Why columns that samples fill are empty, or hold what is past; empty where they do not. */
export function unsampled(model) {
  if (!model.samples) {
    if (model.about.state === "running" && model.about.live) return "No sample has come yet.";
    return "No samples: state, pools and load are known of runs started with --live or --pace.";
  }
  return model.about.state === "running" ? "" : "Pools are those of the last sample; state and load are shown while a run goes on.";
}

/** Which of these a fault's target names: `a-b`, `b`, or a list of them in words. */
function named(target, all) {
  const words = new Set(target.split(/[\s,|]+/));
  return all.map((one) => one.name).filter((name) => words.has(name));
}

export const key = (css, said) => h("span", {}, h("i", { class: `swatch ${css}` }), said);

export function siteRow(site, body) {
  const state = h("td", { class: "state" });
  const bars = h("div", { class: "pools" });
  const [count, unit] = [h("span"), h("span", { class: "word" })];
  const load = h("td", { class: "num right" }, count, unit);
  body.append(h("tr", {}, h("th", { scope: "row" }, site.name, site.title ? h("small", {}, site.title) : null), state, h("td", {}, bars), load));
  const tiers = new Map();
  return (now) => {
    const word = now.effect === "slow" ? now.fault : now.effect || (Number.isFinite(now.running) ? "up" : "–");
    if (state.dataset.word !== word) {
      state.dataset.word = word;
      state.replaceChildren(now.effect ? h("span", { class: `trouble ${word}` }, icon(now.effect === "down" ? "fail" : "invalid"), word) : word);
    }
    for (const tier of TIERS) {
      const pool = now.pools?.[tier];
      if (!pool?.total) continue;
      if (!tiers.has(tier)) {
        const [used, cached] = [h("i", { class: "pinned" }), h("i", { class: "cached" })];
        const said = h("span", { class: "num" });
        bars.append(h("div", { class: "pool" }, h("span", { class: "tier" }, tier), h("span", { class: "track" }, used, cached), said));
        tiers.set(tier, { used, cached, said });
      }
      const bar = tiers.get(tier);
      const [used, cached] = [(pool.pinned ?? 0) + (pool.reserved ?? 0), pool.cached ?? 0];
      bar.used.style.width = `${(100 * used) / pool.total}%`;
      bar.cached.style.width = `${(100 * cached) / pool.total}%`;
      text(bar.said, percent((used + cached) / pool.total));
    }
    if (!tiers.size) text(bars, "–");
    else if (bars.firstChild.nodeType === Node.TEXT_NODE) bars.firstChild.remove();
    const live = Number.isFinite(now.running);
    text(count, live ? `${now.running + (now.waiting ?? 0)}` : now.asked ? whole(now.asked) : "–");
    text(unit, live ? ` in flight` : now.asked ? " asked" : "");
  };
}

export function linkRow(link, body) {
  const cells = ["right num", "right num", "right num", "state"].map((css) => h("td", { class: css }));
  const [length, speed, load, state] = cells;
  body.append(h("tr", {}, h("th", { scope: "row" }, link.name), cells));
  return (now) => {
    text(length, km(now.km ?? link.km));
    text(speed, rate(now.rate_bps ?? link.rate_bps));
    text(load, Number.isFinite(now.forward) ? `${percent(now.forward)} / ${percent(now.backward)}` : "–");
    const word = now.effect || (Number.isFinite(now.forward) ? "lit" : link.kind);
    if (state.dataset.word === word) return;
    state.dataset.word = word;
    state.replaceChildren(now.effect ? h("span", { class: `trouble ${word}` }, icon(now.effect === "cut" ? "fail" : "invalid"), word) : word);
  };
}
