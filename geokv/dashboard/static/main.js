// Which page is shown, and what stands above every page.

import { takeToken } from "./api.js";
import { h } from "./dom.js";
import { showList } from "./list.js";
import { showRun } from "./run.js";
import { showStart } from "./start.js";

const STATES = { open: "live", lost: "reconnecting", over: "complete", connecting: "connecting", none: "" };

const main = document.getElementById("main");
const state = document.getElementById("link-state");
let leave = () => {};

function onState(name) {
  state.dataset.state = name;
  state.textContent = STATES[name];
  state.title = name === "lost" ? "the dashboard does not answer" : "";
}

/** `#/`, `#/start`, `#/start/NAME`, `#/run/ID` */
function route() {
  leave();
  leave = () => {};
  const [, page = "", argument = ""] = location.hash.replace(/^#/, "").split("/");
  onState("connecting");
  main.replaceChildren();
  for (const link of document.querySelectorAll("nav a")) {
    const here = link.dataset.page === (page === "start" ? "start" : page === "" ? "list" : "none");
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (page === "") leave = showList(main, onState);
  else if (page === "run") leave = showRun(main, decodeURIComponent(argument), onState);
  else if (page === "start") leave = showStart(main, decodeURIComponent(argument), onState);
  else main.append(h("p", { class: "empty" }, "There is no such page. ", h("a", { href: "#/" }, "All runs")));
  window.scrollTo(0, 0);
}

const THEMES = ["", "light", "dark"];
const SAID = { "": "as the system", light: "light", dark: "dark" };
const SIGNS = { "": "◐", light: "○", dark: "●" };

function theme(name) {
  const button = document.getElementById("theme");
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  button.textContent = SIGNS[name];
  button.setAttribute("aria-label", `Colours: ${SAID[name]}`);
  button.title = `Colours: ${SAID[name]}`;
  document.dispatchEvent(new CustomEvent("colours"));
}

document.getElementById("theme").addEventListener("click", () => {
  const next = THEMES[(THEMES.indexOf(localStorage.getItem("theme") ?? "") + 1) % THEMES.length];
  localStorage.setItem("theme", next);
  theme(next);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
  document.dispatchEvent(new CustomEvent("colours")),
);

// With the page in the fragment, the browser's own way to an anchor would be a page.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

theme(THEMES.includes(localStorage.getItem("theme")) ? localStorage.getItem("theme") : "");
takeToken();
addEventListener("hashchange", () => {
  takeToken();
  route();
  main.focus({ preventScroll: true });
});
route();
