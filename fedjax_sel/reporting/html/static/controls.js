// The controls and the initialization of the page.
const scroll = recall();

function choice(label, name, choices) {
  const buttons = choices.map(([value, text]) => {
    const button = element("button", { type: "button", "data-control": name, "data-value": value }, text);
    button.addEventListener("click", () => { state[name] = value; changed(); });
    return button;
  });
  return element("div", { class: "group choice", role: "group", "aria-label": label }, element("span", {}, label), ...buttons);
}
function toggle(label, name) {
  const box = element("input", { type: "checkbox", "data-control": name });
  box.checked = state[name];
  box.addEventListener("change", () => { state[name] = box.checked; changed(); });
  return element("label", {}, box, " " + label);
}
function swatch(name) {
  const space = "http://www.w3.org/2000/svg";
  const [drawing, line] = ["svg", "line"].map((tag) => document.createElementNS(space, tag));
  for (const [key, value] of Object.entries({ width: 34, height: 10, "aria-hidden": "true" })) drawing.setAttribute(key, value);
  const dash = report.styles[name].dash;
  const about = { x1: 0, x2: 34, y1: 5, y2: 5, "stroke-width": 2.5, "stroke-dasharray": dash === "solid" ? "none" : dash.replace(/px/g, "") };
  for (const [key, value] of Object.entries(about)) line.setAttribute(key, value);
  drawing.append(line);
  drawing.dataset.style = name;
  return drawing;
}
function strategies() {
  const group = element("div", { class: "group strategies", role: "group", "aria-label": "Strategies" });
  const names = Object.keys(report.styles);
  if (names.length > 2) {
    const all = element("button", { type: "button", "data-strategies": "all" }, "all");
    all.addEventListener("click", () => { state.hidden = []; changed(); });
    const none = element("button", { type: "button", "data-strategies": "none" }, "none");
    none.addEventListener("click", () => { state.hidden = [...names]; changed(); });
    group.append(all, none);
  }
  for (const name of names) {
    const button = element("button", { type: "button", class: "strategy", "data-strategy": name, title: "show or hide in all plots and tables" }, swatch(name), name);
    button.addEventListener("click", () => {
      state.hidden = isShown(name) ? [...state.hidden, name] : state.hidden.filter((other) => other !== name);
      changed();
    });
    group.append(button);
  }
  return group;
}
// Updates controls, tables and plots to the current `state`.
function changed() {
  for (const button of document.querySelectorAll("button[data-control]"))
    button.setAttribute("aria-pressed", String(state[button.dataset.control] === button.dataset.value));
  for (const button of document.querySelectorAll("button[data-strategy]"))
    button.setAttribute("aria-pressed", String(isShown(button.dataset.strategy)));
  for (const drawing of document.querySelectorAll("svg[data-style]"))
    drawing.firstChild.setAttribute("stroke", colorOf(drawing.dataset.style));
  for (const own of document.querySelectorAll("[data-run]")) own.hidden = !isShown(own.dataset.run);
  redraw();
  remember();
}

// A click on a heading sorts the table by the first number in that column; a second click reverses the order.
function sortable(table) {
  table.querySelectorAll("thead th").forEach((head, column) => head.addEventListener("click", () => {
    const lines = [...table.tBodies[0].rows];
    const value = (line) => {
      const text = line.cells[column].textContent;
      const number = parseFloat(text.replace(/,/g, ""));
      return Number.isNaN(number) ? text : number;
    };
    const way = head.dataset.way === "up" ? -1 : 1;
    head.dataset.way = way === 1 ? "up" : "down";
    const rank = (a, b) => (typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1);
    lines.sort((a, b) => way * rank(value(a), value(b)));
    table.tBodies[0].append(...lines);
  }));
}

const KINDS = {
  curves: curvePictures, pairs: pairPictures, selection: selectionPictures, cohorts: cohortPictures, labels: labelPictures,
  served: servedPictures, inside: insidePictures,
};
const hasClock = report.settings.some((setting) => setting.runs.some((run) => run.at["simulated seconds"]));
const simulated = hasClock ? [["simulated seconds", "simulated seconds"]] : [];
document.getElementById("controls").append(
  strategies(),
  choice("against", "x", [["round", "rounds"], ["megabytes", "megabytes"], ["seconds", "seconds"], ...simulated]),
  choice("band", "band", [["deviation", "deviation"], ["interval", "95 % of the mean"], ["range", "all seeds"], ["none", "none"]]),
  element("div", { class: "group" }, toggle("smoothed", "smooth"), toggle("logarithmic", "log")),
);
for (const place of document.querySelectorAll("[data-plots]")) {
  const number = Number(place.dataset.setting);
  KINDS[place.dataset.plots](place, report.settings[number], number);
}
document.querySelectorAll("table").forEach(sortable);
changed();
window.scrollTo(0, scroll);

darkness.addEventListener("change", changed);
// Print layout: black on white, page width, and all details open.
function paper(on) {
  document.documentElement.classList.toggle("paper", on);
  for (const one of document.querySelectorAll("details[data-run]")) one.open = on;
  changed();
}
window.addEventListener("beforeprint", () => paper(true));
window.addEventListener("afterprint", () => paper(false));
window.addEventListener("beforeunload", remember);

if (report.refresh) {
  const box = element("input", { type: "checkbox", "data-control": "follow" });
  box.checked = true;
  document.querySelector("header").append(element("label", {}, box, " follow the run (reloads every few seconds)"));
  setInterval(() => { if (box.checked && !document.hidden) { remember(); location.reload(); } }, 1000 * report.refresh);
}
