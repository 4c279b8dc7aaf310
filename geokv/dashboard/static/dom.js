// Elements without markup in strings: text is always text, so nothing a run says can be code.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.setAttribute("class", value);
    else if (name in element && typeof value !== "string" && !(element instanceof SVGElement)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** An HTML element; attributes that begin with `on` are listeners. */
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

/** The same in SVG. */
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** Sets text only where it changes, so that nothing is announced or laid out for nothing. */
export function text(element, value) {
  if (element.textContent !== value) element.textContent = value;
}

const PATHS = {
  pass: "M3.2 8.6 6.6 12 13 4.6",
  fail: "M4 4l8 8M12 4l-8 8",
  invalid: "M8 2.4 14.6 13.6H1.4zM8 6.4v3.4M8 11.4v.6",
  unknown: "M5.4 5.8a2.6 2.6 0 1 1 3.9 2.3C8.4 8.6 8 9.100 8 10.200M8 12.600v.500",
  ended: "M4.500 4.500h7v7h-7z",
};

/** A drawing of a verdict or a state; what it says stands beside it as text. */
export function icon(name) {
  const frame = { viewBox: "0 0 16 16", "aria-hidden": "true", focusable: "false" };
  if (name === "running") return s("svg", frame, s("circle", { class: "pulse", cx: 8, cy: 8, r: 5, fill: "currentColor" }));
  const stroke = { d: PATHS[name] ?? PATHS.unknown, fill: "none", stroke: "currentColor", "stroke-width": 2,
    "stroke-linecap": "round", "stroke-linejoin": "round" };
  return s("svg", frame, s("path", stroke));
}

/** The verdict of a run, or its state where it has none. */
export function badge(run, big = false) {
  const word = run.state === "finished" ? run.verdict : run.state;
  const said = word === "ended" ? "no verdict" : word;
  return h("span", { class: `badge ${word}${big ? " big" : ""}` }, icon(word), said);
}

/** A line at the bottom for a few seconds. */
export function toast(said) {
  const one = h("div", { class: "toast" }, said);
  document.getElementById("toasts").append(one);
  setTimeout(() => one.remove(), 7000);
}
