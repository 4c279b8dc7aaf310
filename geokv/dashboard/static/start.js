// Choosing a scenario, checking what was changed of it, and starting it.

import { get, mayAct, post } from "./api.js";
import { h, text } from "./dom.js";
import { whole } from "./format.js";

const PACES = [
  ["", "full speed"],
  ["1x", "1× real"],
  ["0.1x", "0.1× real"],
  ["5x", "5× real"],
  ["20x", "20× real"],
];
const GIVE_UP_MS = 90_000;

export function showStart(main, chosen, onState) {
  document.title = "Start a run · geokv";
  let left = false;
  let all = [];
  const loading = h("p", { class: "empty" }, "Loading every scenario as a run would …");
  const list = h("div", { class: "panel choices", role: "radiogroup", "aria-label": "Scenarios", tabindex: "-1" }, loading);
  const clock = h("select", {}, h("option", { value: "" }, "as written"), h("option", {}, "virtual"), h("option", {}, "wall"));
  const pace = h("select", {}, PACES.map(([value, said]) => h("option", { value }, said)));
  const live = h("input", { type: "checkbox" });
  const seed = h("input", { type: "number", min: "0", step: "1", placeholder: "as is", inputmode: "numeric" });
  const set = h("textarea", { rows: "4", spellcheck: "false", placeholder: "links.a-b.km=80\nworkload.requests=5" });
  const said = h("p", { class: "said", role: "status" }, "");
  const check = h("button", { type: "submit", value: "check" }, "Check");
  const start = h("button", { type: "submit", value: "start", class: "primary" }, "Start");
  const title = h("h2", {}, "Choose a scenario");
  const form = h(
    "form",
    { class: "panel" },
    h("header", {}, title),
    h(
      "div",
      { class: "form" },
      h("div", { class: "row" }, h("label", {}, h("span", {}, "Clock"), clock), h("label", {}, h("span", {}, "Pace"), pace), h("label", {}, h("span", {}, "Seed"), seed)),
      h("label", { class: "check" }, live, "Live: samples, and faults by hand (a pace has both)"),
      h("label", {}, h("span", {}, "Changed values, one PATH=VALUE a line"), set),
      h("div", { class: "buttons" }, start, check),
      said,
      h("p", { class: "muted" }, "A run that is started here is a process of the dashboard's: it ends when the dashboard does."),
    ),
  );
  main.append(
    h("div", { class: "page-head" }, h("h1", {}, "Start a run"), h("p", {}, "Checked before it is started; its folder lies beside the others.")),
    h("p", { class: "note", hidden: mayAct() }, "This tab may only look: it was not opened with the address that geokv dashboard has printed, which carries a token."),
    h("div", { class: "start" }, list, form),
  );

  const name = () => list.querySelector("input:checked")?.value ?? "";

  function choose() {
    const one = all.find((entry) => entry.name === name());
    text(title, one ? one.name : "Choose a scenario");
    start.disabled = check.disabled = !one || !mayAct();
    say("", "");
  }

  function say(kind, words) {
    said.className = `said ${kind}`;
    text(said, words);
  }

  function row(entry) {
    const size = entry.error
      ? "cannot be loaded"
      : `${entry.sites} sites · ${entry.cells > 1 ? `${entry.cells} cells · ` : ""}${whole(entry.requests)} requests`;
    return h(
      "label",
      { class: "choice" },
      h("input", { type: "radio", name: "scenario", value: entry.name, checked: entry.name === chosen, disabled: Boolean(entry.error) }),
      h("b", {}, entry.name),
      h("span", { class: "size num" }, size),
      h("em", {}, entry.error || entry.title),
    );
  }

  get("/api/scenarios").then(
    (data) => {
      if (left) return;
      onState("none");
      all = data.scenarios;
      const part = (kind, words) => [h("h3", {}, words), ...all.filter((one) => one.kind === kind).map(row)];
      list.replaceChildren(...part("scenario", "Scenarios"), ...part("drill", "Drills"));
      choose();
    },
    (error) => {
      onState("lost");
      text(loading, error.message);
    },
  );
  list.addEventListener("change", choose);

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const wish = { scenario: name(), set: set.value.split("\n").map((line) => line.trim()).filter(Boolean) };
    if (clock.value) wish.clock = clock.value;
    if (pace.value) wish.pace = pace.value;
    if (live.checked) wish.live = true;
    if (seed.value) wish.seed = Number(seed.value);
    const go = event.submitter?.value === "start" || event.submitter === null;
    start.disabled = check.disabled = true;
    say("", go ? "starting …" : "checking …");
    try {
      if (go) await run(wish);
      else {
        const found = await post("/api/check", wish);
        say("good", `In order: ${found.sites} sites, ${found.cells} cells, ${whole(found.requests)} requests.\n${found.command}`);
      }
    } catch (error) {
      say("bad", error.hint ? `${error.message}\n→ ${error.hint}` : error.message);
    }
    start.disabled = check.disabled = !mayAct();
  });

  // A run is there when its folder says what it is; until then its process may still refuse.
  async function run(wish) {
    const { id, pid } = await post("/api/start", wish);
    say("", `started as process ${pid}, which is getting ready …`);
    const until = Date.now() + GIVE_UP_MS;
    while (!left && Date.now() < until) {
      await new Promise((done) => setTimeout(done, 300));
      const { runs } = await get("/api/runs");
      if (runs.some((one) => one.id === id)) {
        location.hash = `#/run/${encodeURIComponent(id)}`;
        return;
      }
      const started = await get(`/api/started/${encodeURIComponent(id)}`);
      if (started.status !== null) throw new Error(started.said || `it ended with status ${started.status}`);
    }
    if (!left) throw new Error("it has not made its run folder yet; look at the list of runs");
  }

  choose();
  return () => {
    left = true;
  };
}
