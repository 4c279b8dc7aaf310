// The runs of the folder, newest first, as they come and go.

import { listen } from "./api.js";
import { badge, h, text } from "./dom.js";
import { when, whenFull, whole } from "./format.js";

export function showList(main, onState) {
  const runs = new Map();
  const rows = new Map();
  let leftOff = 0;
  let known = false;

  const count = h("p", {}, "");
  const words = h("input", { type: "search", placeholder: "Filter by name", "aria-label": "Filter runs by name" });
  const kind = h(
    "select",
    { "aria-label": "Filter by verdict" },
    ["all verdicts", "running", "pass", "fail", "invalid", "unknown", "no verdict"].map((name) => h("option", {}, name)),
  );
  const body = h("tbody");
  const nothing = h("div", { class: "empty", hidden: true });
  const head = ["Run", "Verdict", "Requests", "Clock", "Seed", "Started"];
  main.append(
    h("div", { class: "page-head" }, h("h1", {}, "Runs"), count, h("div", { class: "filters" }, words, kind)),
    h(
      "div",
      { class: "panel" },
      h(
        "table",
        { class: "runs" },
        h("thead", {}, h("tr", {}, head.map((name) => h("th", { scope: "col" }, name)))),
        body,
      ),
      nothing,
    ),
  );
  document.title = "Runs · geokv";

  function fits(run) {
    const needle = words.value.trim().toLowerCase();
    const word = run.state === "finished" ? run.verdict : run.state === "ended" ? "no verdict" : run.state;
    return (
      (kind.selectedIndex === 0 || kind.value === word) &&
      (!needle || `${run.name} ${run.title} ${run.id}`.toLowerCase().includes(needle))
    );
  }

  function draw() {
    const shown = [...runs.values()].sort((a, b) => (a.started < b.started ? 1 : a.started > b.started ? -1 : a.id < b.id ? 1 : -1));
    const wanted = shown.filter(fits).map((run) => rows.get(run.id).element);
    // Rows that stay are not touched, so focus and selection stay as well.
    wanted.forEach((row, index) => {
      if (body.children[index] !== row) body.insertBefore(row, body.children[index] ?? null);
    });
    while (body.children.length > wanted.length) body.lastChild.remove();
    const running = shown.filter((run) => run.state === "running").length;
    const more = leftOff ? `, ${whole(leftOff)} older ones not listed` : "";
    text(count, known ? `${whole(shown.length)} in this folder, ${running} running${more}` : "");
    nothing.hidden = !known || wanted.length > 0;
    nothing.replaceChildren(
      ...(shown.length
        ? ["No run fits."]
        : ["No run is here yet. ", h("a", { href: "#/start" }, "Start one"), ", or type ", h("code", {}, "geokv run smoke"), "."]),
    );
  }

  words.addEventListener("input", draw);
  kind.addEventListener("change", draw);
  const close = listen(
    "/api/runs/stream",
    {
      runs(change) {
        known = true;
        leftOff = change.left_off;
        if (change.all) {
          // After a lost connection, too: what is not in it is not there any more.
          const here = new Set(change.upsert.map((run) => run.id));
          change.removed = [...runs.keys()].filter((id) => !here.has(id));
        }
        for (const run of change.upsert) {
          runs.set(run.id, run);
          if (!rows.has(run.id)) rows.set(run.id, makeRow());
          rows.get(run.id).show(run);
        }
        for (const id of change.removed) {
          runs.delete(id);
          rows.delete(id);
        }
        draw();
      },
      refused: () => text(count, "too many pages are open; close one and load this one again"),
    },
    onState,
  );
  return close;
}

function makeRow() {
  const link = h("a", {});
  const title = h("span");
  const folder = h("span", { class: "mono" });
  const state = h("td", { class: "state" });
  const meter = h("i");
  const done = h("span", { class: "num" });
  const bar = h("span", { class: "meter", "aria-hidden": "true" }, meter);
  const doing = h("span", { class: "muted" });
  const clock = h("td", { class: "clock" });
  const seed = h("td", { class: "seed num" });
  const started = h("td", { class: "when num" });
  const element = h(
    "tr",
    {},
    h("td", { class: "what" }, link, title, folder),
    state,
    h("td", { class: "progress" }, done, " ", bar, " ", doing),
    clock,
    seed,
    started,
  );
  element.addEventListener("click", (event) => {
    if (event.target !== link && !getSelection().toString()) link.click();
  });
  return {
    element,
    show(run) {
      text(link, run.name);
      link.href = `#/run/${encodeURIComponent(run.id)}`;
      text(title, run.unreadable ? `cannot be read: ${run.unreadable}` : run.title);
      // Runs of one scenario are told apart by it.
      text(folder, run.id.replaceAll("~", " / "));
      state.replaceChildren(badge(run));
      const running = run.state === "running";
      text(done, run.total && running ? `${whole(run.done)} / ${whole(run.total)}` : run.done ? whole(run.done) : "");
      bar.hidden = !(running && run.total);
      meter.style.width = `${Math.min(100, (100 * run.done) / (run.total || 1))}%`;
      text(doing, running ? run.doing : "");
      text(clock, run.pace ? `${run.clock} ${run.pace}` : run.clock);
      text(seed, run.unreadable ? "" : String(run.seed));
      text(started, when(run.started));
      started.title = whenFull(run.started);
      element.dataset.id = run.id;
    },
  };
}
