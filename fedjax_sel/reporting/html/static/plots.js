// All plots, each with a function that returns its current content; a change of a control redraws all of them.
const pictures = [];
// An explicit list, because one of Plotly's default buttons uploads the plot's data to Plotly.
const CONFIG = {
  displaylogo: false, displayModeBar: matchMedia("(pointer: coarse)").matches ? true : "hover",
  modeBarButtons: [["zoom2d", "pan2d", "resetScale2d"], ["toImage"]],
  toImageButtonOptions: { format: "svg" },
};

// Adds a figure to an element; `content` returns {data, layout}, or null to hide the figure.
function picture(place, title, about, content, pickers = []) {
  const canvas = element("div", { class: "canvas", role: "img", "aria-label": title });
  const caption = element("figcaption", {}, element("b", {}, title), about ? " " + about : "");
  const figure = element("figure", {}, caption);
  const useful = pickers.filter((one) => one.querySelector("select").options.length > 1);
  if (useful.length) figure.append(element("div", { class: "pickers" }, ...useful));
  figure.append(canvas);
  place.append(figure);
  pictures.push({ canvas, content });
}
function draw(one) {
  if (one.canvas.closest("details:not([open])")) return; // a folded canvas has no width
  one.canvas.parentElement.hidden = false; // measured below
  const made = one.content(one.canvas);
  one.canvas.parentElement.hidden = made === null;
  if (made === null) return Plotly.purge(one.canvas);
  if (made.height) one.canvas.style.height = `${made.height}px`;
  // An explicit size, because printing does not wait for Plotly's asynchronous measurement.
  const size = { width: one.canvas.clientWidth, height: one.canvas.clientHeight, autosize: false };
  Plotly.react(one.canvas, made.data, { ...made.layout, ...size }, CONFIG);
}
const redraw = () => pictures.forEach(draw);
document.addEventListener("toggle", (event) => {
  if (event.target.id) state.open[event.target.id] = event.target.open;
  pictures.filter((one) => event.target.contains(one.canvas)).forEach(draw);
}, true);

// Returns a select element whose value is kept in `state.pick[name]`; a change redraws all plots.
function picker(name, label, choices) {
  const select = element("select", { "data-pick": name });
  for (const [value, text] of choices) select.append(element("option", { value }, text));
  const values = choices.map(([value]) => String(value));
  if (!values.includes(String(state.pick[name]))) state.pick[name] = values[0];
  select.value = state.pick[name];
  select.addEventListener("change", () => { state.pick[name] = select.value; remember(); redraw(); });
  return element("label", {}, label + " ", select);
}

let width = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth === width) return; // the height changes whenever a phone's address bar appears
  width = window.innerWidth;
  redraw();
});
