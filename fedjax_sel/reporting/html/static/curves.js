// Curves over rounds, megabytes, seconds or simulated seconds, and over client ranks: one line per strategy, with a band over seeds.
const X_TITLES = {
  round: "round", megabytes: "megabytes moved, down and up (mean over seeds)",
  seconds: "seconds, without compilation", "simulated seconds": "simulated seconds (mean over seeds)",
};
// 97.5 % quantiles of Student's t for 1 to 10 degrees of freedom; above, an expansion in 1 / degrees.
const STUDENT = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
const student = (degrees) => STUDENT[degrees - 1] ?? 1.96 + 2.372 / degrees + 2.82 / degrees ** 2;

const SMOOTHED = 75; // points from which 2 % of them are more than one

function runningMean(values, width) {
  let sum = 0;
  return values.map((value, place) => {
    sum += value - (place >= width ? values[place - width] : 0);
    return sum / Math.min(place + 1, width);
  });
}

// Returns the limits of the band at each point, clipped to the measure's range if no seed is outside; null without one.
function bandOf(curve, mean, deviation, seeds, floor, ceiling) {
  if (seeds < 2 || state.band === "none") return null;
  const wide = state.band === "interval" ? student(seeds - 1) / Math.sqrt(seeds) : 1;
  const least = curve.low.some((value) => value < floor) ? -Infinity : floor ?? -Infinity;
  const most = curve.high.some((value) => value > ceiling) ? Infinity : ceiling ?? Infinity;
  const cut = (value) => Math.min(Math.max(value, least), most);
  if (state.band === "range") return { low: curve.low.map(cut), high: curve.high.map(cut) };
  return {
    low: mean.map((value, i) => cut(value - wide * deviation[i])),
    high: mean.map((value, i) => cut(value + wide * deviation[i])),
  };
}

// Returns the traces of one strategy's band and line.
function traces(run, x, curve, options) {
  const at = curve.mean.map((value, i) => (value === null ? -1 : i)).filter((i) => i >= 0);
  if (!at.length) return { name: run.name, band: [], line: [] };
  const [low, high, known, spread] = ["low", "high", "mean", "sd"].map((name) => at.map((i) => curve[name][i]));
  const width = options.smooth && state.smooth ? Math.round(0.02 * at.length) : 1;
  const mean = width > 1 ? runningMean(known, width) : known;
  const deviation = width > 1 ? runningMean(spread.map((value) => value ?? 0), width) : spread.map((value) => value ?? 0);
  const places = at.map((i) => x[i]);
  const color = colorOf(run.name);
  const band = bandOf({ low, high }, mean, deviation, run.seeds, options.floor, options.ceiling);
  const shared = { x: places, type: "scatter", mode: "lines" };
  const edge = { ...shared, line: { width: 0 }, hoverinfo: "skip" };
  const dense = Math.min(0.15, 0.6 / Math.max(options.together, 1)); // keeps lines visible where all bands overlap
  const shade = translucent(color, isDark() ? 1.3 * dense : dense);
  const edges = band === null ? [] : [
    { ...edge, y: band.low }, { ...edge, y: band.high, fill: "tonexty", fillcolor: shade },
  ];
  const sd = run.seeds > 1 ? " ± %{customdata:.4g}" : "";
  const line = {
    ...shared, y: mean, customdata: deviation, name: plain(run.name), meta: plain(run.name),
    mode: at.length > 1 ? "lines" : "markers", line: { color, width: 2, dash: report.styles[run.name].dash },
    marker: { color, size: 8 },
    hovertemplate: `<b>%{meta}</b><br>${options.xShort} %{x:.5~g}: %{y:.4g}${sd}<extra></extra>`,
  };
  return { name: run.name, band: edges, line: [line] };
}
// Returns the traces of all strategies, bands first, so that no band covers a line.
function together(found) {
  return [...found.flatMap((one) => one.band), ...found.flatMap((one) => one.line)];
}

// Returns a name at the end of each line, moved apart where lines end close together, and the right margin for them.
const LABEL_HEIGHT = 14;
function endLabels(found, height, logarithmic) {
  const lines = found.flatMap((one) => one.line.map((line) => ({ line, name: shortened(one.name) })));
  if (lines.length < 2) return {};
  const values = found.flatMap((one) => [...one.line, ...one.band].flatMap((trace) => trace.y));
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const room = height - 78; // without the margins
  const scale = (0.9 * room) / (high - low || 1); // pixels per unit: Plotly pads a range by 5 % at each end
  const ends = lines.map((one) => ({ ...one, at: (high - one.line.y.at(-1)) * scale })).sort((a, b) => a.at - b.at);
  let [free, last] = [-Infinity, room];
  for (const one of ends) { one.moved = Math.max(one.at, free); free = one.moved + LABEL_HEIGHT; }
  for (const one of ends.slice().reverse()) { one.moved = Math.min(one.moved, last); last = one.moved - LABEL_HEIGHT; }
  return {
    margin: { l: 56, r: 14 + 7.5 * Math.max(...ends.map((one) => one.name.length)), t: 30, b: 48 },
    annotations: ends.map(({ line, name, at, moved }) => ({
      x: logarithmic ? Math.log10(line.x.at(-1)) : line.x.at(-1), y: line.y.at(-1), text: plain(name), xanchor: "left",
      yanchor: "middle", xshift: 4, yshift: at - moved, showarrow: false, font: { color: line.line.color, size: 12 },
    })),
  };
}
function shortened(name) {
  const most = narrow() ? 12 : 24;
  return name.length > most ? name.slice(0, most - 1) + "…" : name;
}
function horizontal(value) {
  return value === null || value === undefined ? [] : [{
    type: "line", xref: "paper", x0: 0, x1: 1, y0: value, y1: value, line: { color: variable("--quiet"), width: 1, dash: "5px,4px" },
  }];
}

function overTime(setting, key, label, options) {
  return (canvas) => {
    const known = shownRuns(setting).filter((run) => run.curves[key]);
    const x = setting.runs.some((run) => run.at[state.x]) ? state.x : "round"; // not every setting has a clock
    const own = { ...options, smooth: true, xShort: x, together: known.length };
    const found = known.map((run) => traces(run, run.at[x], run.curves[key], own));
    const slow = x === "seconds" && known.some((run) => !run.at.steady);
    const title = slow ? "seconds since the start of the first round, with compilation" : X_TITLES[x];
    const shapes = horizontal(options.target);
    const rangemode = options.floor === 0 && options.ceiling !== 1 ? "tozero" : "normal";
    return found.length ? {
      data: together(found), layout: layout(title, label, {
        ...endLabels(found, canvas.clientHeight, state.log), shapes, uirevision: `${x} ${state.log}`, xaxis: { type: state.log ? "log" : "linear" }, yaxis: { rangemode },
      }),
    } : null;
  };
}

function counts(setting) {
  return (canvas) => {
    const known = shownRuns(setting);
    const own = { floor: 0, xShort: "client", together: known.length };
    const found = known.map((run) => traces(run, run.counts.rank, run.counts, own));
    const labels = endLabels(found, canvas.clientHeight, false);
    const axes = { ...labels, uirevision: "counts", yaxis: { rangemode: "tozero" } };
    return found.length ? { data: together(found), layout: layout("client rank, most selected first", "rounds with training", axes) } : null;
  };
}

const IN_WORDS = {
  gemd: "GEMD of the cohort", clients_seen: "Clients that have trained at least once", seconds: "Simulated seconds per round",
};
function nameOf(key) {
  if (IN_WORDS[key]) return IN_WORDS[key];
  const words = key.replace(/_/g, " ");
  return capital(words.replace(/^train /, "training ").replace(/^worst decile /, "worst-decile training ")
    .replace(/^(gini|jain) /, (index) => `${capital(index)}index of client `));
}
const measuresOf = (setting) => [...new Set(setting.runs.flatMap((run) => Object.keys(run.curves)))]
  .filter((key) => key !== "clients_seen").sort((a, b) => (b === setting.measure) - (a === setting.measure));
const blocksOf = (setting) => Math.max(...setting.runs.map((run) => run.block));
function curvePictures(place, setting) {
  for (const key of measuresOf(setting).slice(0, 1)) timePicture(place, setting, key, blocksOf(setting));
}
function otherPictures(place, setting) {
  for (const key of measuresOf(setting).slice(1)) timePicture(place, setting, key, blocksOf(setting));
  place.closest("details").hidden = !place.children.length;
}
function timePicture(place, setting, key, blocks) {
  const share = key.includes("accuracy");
  const options = { floor: 0, ceiling: share ? 1 : key === "clients_seen" ? setting.clients : undefined };
  if (key === setting.measure) options.target = setting.target;
  const about = [
    key === "gemd" ? "Distance between the labels of a cohort and of all clients; lower is more diverse." : "",
    key === setting.measure && setting.target !== null ? "The dashed line is the target." : "",
    key === "clients_seen" ? `Out of ${setting.clients} clients.` : "",
    key === setting.measure && blocks > 1 ? `Each point is the mean of up to ${blocks} rounds.` : "",
  ].join(" ").trim();
  const axis = key === "clients_seen" ? "clients" : nameOf(key).toLowerCase().replace("gemd", "GEMD").replace(/^(gini|jain)/, capital);
  picture(place, nameOf(key) + ".", about, overTime(setting, key, axis, options));
}
function selectionPictures(place, setting) {
  picture(place, "Selection counts.", "Clients are sorted by number of training rounds, in descending order.",
    counts(setting));
  timePicture(place, setting, "clients_seen", 1);
}
