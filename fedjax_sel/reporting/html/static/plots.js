// Pictures: each has a function that says what to draw now; all are drawn again where a control changes something.
const pictures = [];
// Only these buttons: Plotly's own set has one that sends a picture's numbers to its maker.
const CONFIG = {
  displaylogo: false, displayModeBar: matchMedia("(pointer: coarse)").matches ? true : "hover",
  modeBarButtons: [["zoom2d", "pan2d", "resetScale2d"], ["toImage"]],
  toImageButtonOptions: { format: "svg" },
};

// Adds a figure to a place; `content` returns {data, layout}, or null where there is nothing to show.
function picture(place, title, about, content, pickers = []) {
  const canvas = element("div", { class: "canvas", role: "img", "aria-label": title });
  const caption = element("figcaption", {}, element("b", {}, title), about ? " " + about : "");
  const figure = element("figure", {}, caption);
  if (pickers.length) figure.append(element("div", { class: "pickers" }, ...pickers));
  figure.append(canvas);
  place.append(figure);
  pictures.push({ canvas, content });
}
function draw(one) {
  const made = one.content();
  one.canvas.parentElement.hidden = made === null;
  if (made === null) return;
  if (made.height) one.canvas.style.height = `${made.height}px`;
  // Said outright: on its way to paper a page does not wait until Plotly has measured it.
  const size = { width: one.canvas.clientWidth, height: one.canvas.clientHeight, autosize: false };
  Plotly.react(one.canvas, made.data, { ...made.layout, ...size }, CONFIG);
}
const redraw = () => pictures.forEach(draw);

// A choice among few, kept under a name; what it changes is drawn again.
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
  if (window.innerWidth === width) return; // a phone's address bar comes and goes
  width = window.innerWidth;
  redraw();
});
