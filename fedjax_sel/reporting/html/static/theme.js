// Colors of the plots, read from the style sheet; prints are always dark on white.
const darkness = matchMedia("(prefers-color-scheme: dark)");
const onPaper = () => document.documentElement.classList.contains("paper");
const isDark = () => darkness.matches && !onPaper();
const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colorOf = (name) => report.styles[name][isDark() ? "dark" : "light"];
const scale = () => (isDark()
  ? [[0, "#1e2327"], [0.5, "#2f6f9f"], [1, "#cdeaff"]]
  : [[0, "#f3f5f7"], [0.5, "#5fa8d8"], [1, "#08306b"]]);

function translucent(color, share) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
  return `rgba(${red},${green},${blue},${share})`;
}

// The common layout of all plots.
function layout(x, y, more = {}) {
  const axis = (title, own) => ({
    title: { text: title, standoff: 8 }, gridcolor: variable("--line"), zeroline: false, linecolor: variable("--line"),
    automargin: true, ticks: "outside", ticklen: 4, tickcolor: variable("--line"), ...own,
  });
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, hovermode: "closest",
    font: { family: "system-ui, sans-serif", size: 13, color: variable("--text") },
    margin: { l: 56, r: 16, t: 30, b: 48 },
    hoverlabel: { bgcolor: variable("--soft"), bordercolor: variable("--line"), font: { color: variable("--text") } },
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom", // a finger scrolls the page
    modebar: { bgcolor: "rgba(0,0,0,0)", color: variable("--quiet"), activecolor: variable("--accent") },
    ...more, xaxis: axis(x, more.xaxis), yaxis: axis(y, more.yaxis),
  };
}
