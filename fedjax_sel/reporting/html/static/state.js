"use strict";
// The display state: controls write it, plots and tables read it.
const report = JSON.parse(document.getElementById("report").textContent);
const KEY = "fedjax_sel " + location.pathname;
const state = { hidden: [], x: "round", band: "deviation", smooth: true, log: false, pick: {}, open: {} };
const narrow = () => window.innerWidth < 700;

function remember() {
  try { sessionStorage.setItem(KEY, JSON.stringify({ ...state, scroll: window.scrollY })); } catch { /* not allowed */ }
}
function recall() {
  try {
    const kept = JSON.parse(sessionStorage.getItem(KEY) || "{}");
    for (const name of Object.keys(state)) if (name in kept) state[name] = kept[name];
    return kept.scroll || 0;
  } catch { return 0; }
}
const isShown = (name) => !state.hidden.includes(name);
const shownRuns = (setting) => setting.runs.filter((run) => isShown(run.name));

// Escapes names, because Plotly interprets HTML in texts.
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
function bytes(text) {
  return Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
}
