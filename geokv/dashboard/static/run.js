// One run: what it is, the network now, every request's TTFT, what happened, and the verdict.

import { Acting } from "./act.js";
import { get, listen, mayAct, post } from "./api.js";
import { badge, h, icon, text, toast } from "./dom.js";
import { bytes, moment, when, whenFull, whole } from "./format.js";
import { EventLog } from "./log.js";
import { Model } from "./model.js";
import { gather, key, linkRow, siteRow, unsampled } from "./now.js";
import { Strip } from "./strip.js";
import { TopologyView } from "./topology.js";

export function showRun(main, id, onState) {
  const page = new RunPage(main, id, onState);
  return () => page.close();
}

class RunPage {
  constructor(main, id, onState) {
    this.id = id;
    this.model = new Model();
    this.main = main;
    this.left = false;
    this.due = false;
    const waiting = h("p", { class: "empty" }, "Loading …");
    main.append(waiting);
    document.title = "Run · geokv";
    this.closeStream = listen(
      `/api/runs/${encodeURIComponent(id)}/stream`,
      {
        run: (detail) => this.takeDetail(detail),
        restart: () => {
          const { about } = this.model;
          this.model.clear();
          this.model.about = about;
        },
        steps: (steps) => {
          for (const step of steps) this.model.take(step);
          this.soon();
        },
        end: (data) => {
          if (data.state === "removed") toast("The folder of this run is not there any more.");
          // What broke it is among its steps, which have all come now.
          if (this.model.about) this.drawVerdict(this.model.about);
          this.soon();
        },
        refused: async () => {
          const error = await get(`/api/runs/${encodeURIComponent(id)}`).then(() => null, (one) => one);
          if (error && !this.model.about) waiting.replaceChildren(`${error.message}. `, h("a", { href: "#/" }, "All runs"));
        },
      },
      onState,
    );
  }

  close() {
    this.left = true;
    this.closeStream();
    this.strip?.close();
    this.topology?.close();
  }

  /** Steps come in bursts; the page is drawn once a frame. */
  soon() {
    if (this.due) return;
    this.due = true;
    requestAnimationFrame(() => {
      this.due = false;
      if (!this.left && this.model.about) this.draw();
    });
  }

  takeDetail(detail) {
    const first = this.model.about === null;
    this.model.about = detail;
    document.title = `${detail.name} · geokv`;
    if (first && !this.strip) this.build(detail);
    this.drawVerdict(detail);
    this.soon();
  }

  // -- the frame, once -----------------------------------------------------------

  build(run) {
    this.strip = new Strip();
    this.log = new EventLog();
    this.acting = new Acting(this.id);
    this.topology = new TopologyView(run.live && run.state === "running" ? (what) => this.acting.choose(what) : null);
    this.verdict = h("div", { class: "run-verdict" });
    this.facts = h("dl", { class: "facts" });
    this.ends = h("button", { type: "button", class: "danger small", hidden: true, onclick: () => this.end() }, "End this run");
    this.sites = h("tbody");
    this.links = h("tbody");
    this.clock = h("span", { class: "num" });
    this.shown = h("span", { class: "muted" });
    this.unsampled = [0, 1].map(() => h("p", { class: "unsampled muted" }));
    this.result = h("div", { class: "run-column" });
    this.siteFilter = h("select", { "aria-label": "Site shown", hidden: run.topology.sites.length < 2 || !run.drill }, h("option", { value: "" }, "all sites"), run.topology.sites.map((site) => h("option", { value: site.name }, `site ${site.name}`)));
    this.siteFilter.addEventListener("change", () => this.soon());
    const head = (names) => h("thead", {}, h("tr", {}, names.map(([name, css]) => h("th", { scope: "col", class: css ?? "" }, name))));
    this.main.replaceChildren(
      h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Runs"), " / ", h("span", { class: "mono" }, run.id.replaceAll("~", " / "))),
      h("div", { class: "run-head" }, h("div", {}, h("h1", {}, run.title || run.name), h("p", { class: "question" }, run.question)), this.verdict),
      this.facts,
      h(
        "div",
        { class: "run-grid" },
        h(
          "section",
          { class: "panel net", "aria-labelledby": "net-title" },
          h("header", {}, h("h2", { id: "net-title" }, run.topology.title || "Network"), h("span", { class: "end" }, this.shown, this.clock)),
          this.topology.element,
        ),
        h(
          "div",
          { class: "run-column" },
          h("section", { class: "panel", "aria-labelledby": "sites-title" }, h("header", {}, h("h2", { id: "sites-title" }, "Sites"), h("span", { class: "end pool-key" }, key("pinned", "in use"), key("cached", "cached"))), h("div", { class: "scroll" }, h("table", { class: "sites" }, head([["site"], ["state"], ["pool"], ["requests", "right"]]), this.sites)), this.unsampled[0]),
          h("section", { class: "panel", "aria-labelledby": "links-title" }, h("header", {}, h("h2", { id: "links-title" }, "Links")), h("div", { class: "scroll" }, h("table", { class: "links" }, head([["link"], ["length", "right"], ["rate", "right"], ["load → / ←", "right"], ["state"]]), this.links)), this.unsampled[1]),
        ),
      ),
      this.acting.element,
      h(
        "section",
        { class: "panel", "aria-labelledby": "strip-title" },
        h("header", {}, h("h2", { id: "strip-title" }, "Time to first token"), h("span", { class: "end" }, this.siteFilter, this.strip.cell, this.strip.follow, this.strip.log)),
        h("div", { class: "strip-grid" }, this.strip.frame, h("div", { class: "strip-side" }, this.strip.table)),
      ),
      h("div", { class: "run-grid lower" }, this.log.element, this.result),
    );
    this.topology.setTopology(run.topology);
    this.acting.setTopology(run.topology);
    this.siteRows = new Map(run.topology.sites.map((site) => [site.name, siteRow(site, this.sites)]));
    this.linkRows = new Map(run.topology.links.map((link) => [link.name, linkRow(link, this.links)]));
  }

  // -- what changes ---------------------------------------------------------------

  draw() {
    const { model } = this;
    const run = model.about;
    const state = gather(model);
    this.topology.update(state);
    for (const [name, row] of this.siteRows) row(state.sites.get(name) ?? {});
    for (const [name, row] of this.linkRows) row(state.links.get(name) ?? {});
    this.strip.show(model, this.siteFilter.value);
    this.log.show(model);
    this.acting.update(model, run);
    const real = Number.isFinite(model.real_s) ? ` · ${model.real_s.toFixed(1)} s real` : "";
    text(this.clock, Number.isFinite(model.last_ns) ? `${moment(model.last_ns)}${real}` : "");
    text(this.shown, model.cells.size > 1 && model.foremost ? model.nameOf(model.foremost) : "");
    for (const one of this.unsampled) {
      text(one, unsampled(model));
      one.hidden = !one.textContent;
    }
    this.drawFacts(run);
  }

  drawFacts(run) {
    const { model } = this;
    const total = model.plan?.requests_total ?? 0;
    const facts = [
      ["Requests", total ? `${whole(model.requests)} / ${whole(total)}` : whole(model.requests)],
      ["Clock", run.pace ? `${run.clock}, ${run.pace} real` : run.clock],
      ["Seed", String(run.seed)],
      ["Stands for", run.ran.stands_for ?? "–"],
      ["Ran", run.ran.model ?? "–"],
      ["S", String(run.ran.byte_scale ?? "–")],
      ["Started", when(run.started)],
    ];
    if (this.facts.children.length !== facts.length) {
      this.facts.replaceChildren(...facts.map(([name]) => h("div", {}, h("dt", {}, name), h("dd", { class: "num" }))));
      this.facts.lastChild.title = whenFull(run.started);
    }
    facts.forEach(([, value], index) => text(this.facts.children[index].lastChild, value));
  }

  drawVerdict(run) {
    const mine = run.started_here;
    this.ends.hidden = !(mine && mine.status === null && run.state === "running" && mayAct());
    const broke = (run.unreadable && `it cannot be read: ${run.unreadable}`) || (this.model.failed?.message ?? mine?.said);
    const reasons = run.state === "ended" ? [broke || "it ended, or was ended, before its verdict"] : run.reasons;
    this.verdict.replaceChildren(badge(run, true), this.ends, ...reasons.slice(0, 3).map((said) => h("p", { class: "muted" }, said)));
    const parts = [];
    if (run.judged.length) parts.push(judged(run));
    if (run.state !== "running") parts.push(files(run));
    if (!parts.length) parts.push(h("section", { class: "panel" }, h("header", {}, h("h2", {}, "Judged")), h("p", { class: "empty" }, "The verdict comes when the run is over.")));
    this.result.replaceChildren(...parts);
  }

  async end() {
    this.ends.disabled = true;
    try {
      const { pid } = await post(`/api/runs/${encodeURIComponent(this.id)}/end`);
      toast(`Process ${pid} has been told to end.`);
    } catch (error) {
      toast(error.message);
      this.ends.disabled = false;
    }
  }
}

function judged(run) {
  const words = new Map([[true, "pass"], [false, "fail"], [null, "unknown"]]);
  const wrong = run.judged.filter((one) => one.ok !== true);
  const sorted = [...wrong, ...run.judged.filter((one) => one.ok === true)];
  return h(
    "section",
    { class: "panel", "aria-labelledby": "judged-title" },
    h("header", {}, h("h2", { id: "judged-title" }, "Judged"), h("span", { class: "end num" }, `${run.judged.length - wrong.length} of ${run.judged.length} kept`)),
    h("ul", { class: "judged" }, sorted.map((one) => h("li", { class: words.get(one.ok) }, icon(words.get(one.ok)), h("b", {}, one.name), h("span", {}, one.said)))),
    run.warnings.length ? h("div", { class: "warnings" }, run.warnings.map((said) => h("p", {}, said))) : null,
  );
}

function files(run) {
  const at = (path) => `/runs/${encodeURIComponent(run.id)}/${path.split("/").map(encodeURIComponent).join("/")}`;
  const open = (path, said) => h("a", { href: at(path), target: "_blank", rel: "noopener" }, said);
  const [first, ...rest] = run.reports.filter((one) => one.path.endsWith(".html"));
  return h(
    "section",
    { class: "panel", "aria-labelledby": "files-title" },
    h("header", {}, h("h2", { id: "files-title" }, "Files"), h("span", { class: "end" }, [first, ...rest].filter(Boolean).map((one) => h("a", { class: "button small", href: at(one.path), target: "_blank", rel: "noopener" }, one.title)))),
    h("ul", { class: "files" }, run.files.map((one) => h("li", {}, open(one.path, one.path), h("span", { class: "num muted" }, bytes(one.bytes))))),
  );
}
