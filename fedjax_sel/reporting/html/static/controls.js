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
  const hidden = Object.keys(report.styles).every((name) => !isShown(name));
  empty.textContent = hidden ? "Nothing is shown, because all strategies are hidden. Press “all”, or a strategy’s name." : "";
  redraw();
  remember();
}

// Makes headings buttons that sort the table by the first number in their column; a second press reverses the order.
// Lines without a number are last.
function sortable(table) {
  const body = table.tBodies[0];
  if (body.rows.length < 2) return;
  const heads = [...table.querySelectorAll("thead th")];
  heads.forEach((head, column) => {
    const button = element("button", { type: "button", class: "sort" }, head.textContent);
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const value = (line) => {
        const text = line.cells[column].textContent;
        const number = parseFloat(text.replace(/,/g, ""));
        return Number.isNaN(number) ? text : number;
      };
      const way = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      for (const one of heads) one.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", way === 1 ? "ascending" : "descending");
      const rank = (a, b) => (typeof a === typeof b ? way * (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1);
      body.append(...[...body.rows].sort((a, b) => rank(value(a), value(b))));
    });
  });
}

const KINDS = {
  curves: curvePictures, others: otherPictures, pairs: pairPictures, selection: selectionPictures, cohorts: cohortPictures,
};
// Controls without an effect on this page are left out.
const runs = report.settings.flatMap((setting) => setting.runs);
const hasClock = runs.some((run) => run.at["simulated seconds"]);
const simulated = hasClock ? [["simulated seconds", "simulated seconds"]] : [];
const controls = document.getElementById("controls");
if (Object.keys(report.styles).length > 1) controls.append(strategies());
controls.append(choice("against", "x", [["round", "rounds"], ["megabytes", "megabytes"], ["seconds", "seconds"], ...simulated]));
if (runs.some((run) => run.seeds > 1)) {
  const bands = [["deviation", "deviation"], ["interval", "95 % of the mean"], ["range", "all seeds"], ["none", "no band"]];
  controls.append(choice("band", "band", bands));
}
const toggles = element("div", { class: "group" }, toggle("log x-axis", "log"));
if (runs.some((run) => run.at.round.length >= SMOOTHED)) toggles.prepend(toggle("smoothed", "smooth"));
const empty = element("p", { id: "empty", role: "status" });
controls.append(toggles, empty);
for (const link of document.querySelectorAll("a[data-x]"))
  link.addEventListener("click", () => { state.x = link.dataset.x; changed(); });
for (const line of document.querySelectorAll(".verdict tbody tr")) line.cells[0].prepend(swatch(line.dataset.run));
for (const place of document.querySelectorAll("[data-plots]")) {
  const number = Number(place.dataset.setting);
  KINDS[place.dataset.plots](place, report.settings[number], number);
}
document.querySelectorAll("table").forEach(sortable);
for (const [id, open] of Object.entries(state.open)) { const one = document.getElementById(id); if (one) one.open = open; }
// A link to a folded section unfolds it.
function unfold(hash) {
  const one = document.getElementById(hash.slice(1));
  if (one && one.matches("details")) one.open = true;
}
document.addEventListener("click", (event) => { const link = event.target.closest("a[href^='#']"); if (link) unfold(link.hash); });
unfold(location.hash);
changed();
if (scroll) window.scrollTo(0, scroll);

darkness.addEventListener("change", changed);
// Print layout: black on white, page width; folded sections are not printed.
function paper(on) {
  document.documentElement.classList.toggle("paper", on);
  changed();
}
window.addEventListener("beforeprint", () => paper(true));
window.addEventListener("afterprint", () => paper(false));
window.addEventListener("beforeunload", remember);
