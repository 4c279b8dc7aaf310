// What a live lab is told from the page: each order goes out, and is confirmed by the events that
// answer it, never by the page itself.

import { mayAct, post } from "./api.js";
import { h, text } from "./dom.js";

const SECONDS = [["", "until healed"], ["500ms", "for 0.5 s"], ["2s", "for 2 s"], ["5s", "for 5 s"], ["20s", "for 20 s"]];
const SHOWN = 6;

export class Acting {
  constructor(id) {
    this.id = id;
    this.orders = [];
    this.model = null;
    this.buttons = [];
    this.target = h("select", { "aria-label": "Where" });
    this.how = h("select", { "aria-label": "What" });
    this.lasts = h("select", { "aria-label": "For how long" }, SECONDS.map(([value, said]) => h("option", { value }, said)));
    this.go = h("button", { type: "submit", class: "primary" }, "Do it");
    this.form = h("form", { class: "act-form" }, this.target, this.how, this.lasts, this.go);
    this.line = h("input", { "aria-label": "Any fault, as geokv live takes it", placeholder: "silent-drop a-b for 3s", spellcheck: "false", autocomplete: "off" });
    this.lineForm = h("form", { class: "act-line" }, this.line, h("button", { type: "submit" }, "Send"));
    this.stop = h("button", { type: "button", class: "danger small" }, "Stop the stream");
    this.active = h("div", { class: "active" });
    this.list = h("ul", { class: "orders", "aria-live": "polite", "aria-label": "Orders and their answers" });
    this.note = h("p", { class: "act-note muted" });
    this.element = h(
      "section",
      { class: "panel acts", hidden: true, "aria-labelledby": "acts-title" },
      h("header", {}, h("h2", { id: "acts-title" }, "Faults by hand"), h("span", { class: "end" }, this.stop)),
      h("div", { class: "acts-body" }, this.note, this.form, this.lineForm, this.active, this.list),
    );
    this.target.addEventListener("change", () => this.offer());
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.inject(JSON.parse(this.how.value));
    });
    this.lineForm.addEventListener("submit", (event) => {
      event.preventDefault();
      const line = this.line.value.trim();
      if (line) this.send({ do: "inject", line }, line);
      this.line.value = "";
    });
    this.stop.addEventListener("click", () => this.send({ do: "stop" }, "stop the stream"));
  }

  setTopology(topology) {
    const group = (label, kind, names) =>
      h("optgroup", { label }, names.map((name) => h("option", { value: `${kind} ${name}` }, `${kind} ${name}`)));
    this.target.replaceChildren(
      group("Links", "link", topology.links.map((link) => link.name)),
      group("Sites", "site", topology.sites.map((site) => site.name)),
    );
    this.offer();
  }

  /** Called where a link or a site of the drawing is chosen. */
  choose({ kind, name }) {
    if (this.element.hidden) return;
    this.target.value = `${kind} ${name}`;
    this.offer();
    this.how.focus();
  }

  offer() {
    const kind = this.target.value.split(" ")[0];
    const before = this.how.selectedOptions[0]?.textContent;
    const offers =
      kind === "link"
        ? [
            ["cut it", { fault: "link-cut" }],
            ["degrade: 1 % loss", { fault: "link-degrade", loss: 0.01 }],
            ["degrade: 10 Gb/s", { fault: "link-degrade", rate: "10G" }],
            ["degrade: +5 ms each way", { fault: "link-degrade", delay: "5ms" }],
            ["load it to 80 %", { fault: "background", share: 0.8 }],
          ]
        : [
            ["crash it (kill -9)", { fault: "site-kill" }],
            ["freeze it", { fault: "site-freeze" }],
            ["restart it, empty", { fault: "site-restart" }],
            ["GPU 4 times slower", { fault: "slow-gpu", factor: 4 }],
          ];
    this.how.replaceChildren(...offers.map(([said, event]) => h("option", { value: JSON.stringify(event), selected: said === before }, said)));
  }

  inject(fault) {
    const [kind, name] = this.target.value.split(" ");
    const event = { ...fault, [kind]: name };
    const lasts = this.lasts.value;
    // A killed site has no "for": it comes back after `restart`. A restart is over at once.
    if (lasts && fault.fault === "site-kill") event.restart = lasts;
    else if (lasts && fault.fault !== "site-restart") event.for = lasts;
    const words = `${this.how.selectedOptions[0].textContent.split(" (")[0]}: ${kind} ${name}`;
    return this.send({ do: "inject", event }, words);
  }

  async send(command, words) {
    const order = { words, id: null, said: "sending …", state: "open" };
    this.orders.unshift(order);
    this.orders.length = Math.min(this.orders.length, SHOWN);
    this.draw();
    try {
      order.id = (await post(`/api/runs/${encodeURIComponent(this.id)}/command`, command)).id;
      order.said = "sent, the lab has not answered yet";
    } catch (error) {
      order.state = "bad";
      order.said = error.hint ? `${error.message} (${error.hint})` : error.message;
    }
    this.draw();
  }

  update(model, run) {
    this.model = model;
    const live = run.state === "running" && run.live;
    this.over = run.state !== "running";
    this.element.hidden = !live && this.orders.length === 0;
    const why = !mayAct()
      ? "This tab may only look: open the address that geokv dashboard has printed to act."
      : !live
        ? "The run is over."
        : !run.drill
          ? "A measurement run takes no faults; a drill does."
          : "";
    text(this.note, why);
    this.note.hidden = !why;
    const able = live && mayAct() && run.drill;
    for (const one of [this.target, this.how, this.lasts, this.go, this.line, this.lineForm.lastChild, this.stop]) one.disabled = !able;
    this.draw(able);
  }

  draw(able = this.able) {
    this.able = able;
    const { model } = this;
    if (!model) return;
    const active = [...model.activeFaults().values()];
    const key = active.map((fault) => `${fault.name}/${fault.phase}`).join() + able;
    if (key !== this.activeKey) {
      this.activeKey = key;
      const kept = this.active.contains(document.activeElement);
      this.active.replaceChildren(
        ...active.map((fault) =>
          h(
            "div",
            { class: "active-fault" },
            h("span", {}, h("b", {}, fault.name), ` ${fault.target}`),
            h("button", { type: "button", class: "small", disabled: !able || fault.phase === "heal-asked", "aria-label": `Heal ${fault.name}`, onclick: () => this.send({ do: "heal", name: fault.name }, `heal ${fault.name}`) }, fault.phase === "heal-asked" ? "healing …" : "Heal"),
          ),
        ),
      );
      // The button that was pressed has gone; the keyboard stays where it was.
      if (kept) (this.active.querySelector("button:not(:disabled)") ?? this.target).focus();
    }
    const lines = this.orders.map((order) => {
      const [state, said] = this.standing(order);
      return { state, said: `${order.words} — ${said}` };
    });
    const orders = lines.map((line) => line.state + line.said).join("|");
    if (orders === this.orderKey) return;
    this.orderKey = orders;
    this.list.replaceChildren(...lines.map(({ state, said }) => h("li", { class: state }, said)));
  }

  /** Where an order stands, by what the lab has said of it. */
  standing(order) {
    const answer = order.id === null ? undefined : this.model.answers.get(order.id);
    if (!answer) return [order.state, order.said];
    if (answer.phase === "refused") return ["bad", `refused: ${answer.reason}`];
    if (answer.do === "stop") return answer.done || this.over ? ["good", "the stream has ended"] : ["open", "accepted, the stream has not ended yet"];
    const fault = answer.name ? this.model.faultNamed(answer.name) : undefined;
    if (!fault) return ["open", "accepted"];
    if (answer.do === "heal") return fault.to_ns === null ? ["open", "accepted, not healed yet"] : ["good", "healed, as was seen"];
    const done = { "took-effect": "took effect, as was seen", "heal-asked": "took effect; being healed", healed: "took effect and has healed" };
    if (fault.phase === "did-not-fire" || fault.phase === "did-not-heal") return ["bad", fault.phase.replaceAll("-", " ")];
    return done[fault.phase] ? ["good", done[fault.phase]] : ["open", "accepted, not seen yet"];
  }
}
