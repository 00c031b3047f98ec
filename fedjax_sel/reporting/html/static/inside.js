// Plots of the strategies' state for the first seed.
const HUES = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#8a8a8a", "#d98c3f", "#6f63c7", "#2a9d8f"];

function matrixPicture(place, setting, title, about, one) {
  const values = bytes(one.matrix.bytes);
  const size = one.clients.length;
  picture(place, title, about, () => {
    const seed = setting.seeds[0];
    const main = setting.labels && mainLabels(setting, seed);
    const rank = main ? new Map(byLabel(setting, seed).map((client, i) => [client, i])) : new Map();
    const order = one.clients.map((_, i) => i).sort((a, b) => (rank.get(one.clients[a]) ?? a) - (rank.get(one.clients[b]) ?? b));
    const unit = (one.matrix.high - one.matrix.low) / 255;
    const z = order.map((i) => order.map((j) => one.matrix.low + unit * values[i * size + j]));
    const names = order.map((i) => `client ${one.clients[i]}` + (main ? ` (label ${main[one.clients[i]]})` : ""));
    const side = { showticklabels: false, ticks: "", showgrid: false };
    const words = main ? "clients, sorted by main label" : "client";
    return {
      height: narrow() ? 330 : 460,
      data: [{
        type: "heatmap", z, text: order.map((_, i) => order.map((__, j) => `${names[i]} and ${names[j]}`)),
        colorscale: scale(), colorbar: { thickness: 12, outlinewidth: 0 }, hovertemplate: "%{text}: %{z:.3g}<extra></extra>",
      }],
      layout: layout(words, words, { xaxis: side, yaxis: { ...side, autorange: "reversed" } }),
    };
  });
}

function embeddingPicture(place, setting, title, one) {
  const percent = (share) => `${Math.round(100 * share)} %`;
  const main = setting.labels && mainLabels(setting, setting.seeds[0]);
  const about = main ? "Each dot is a client; color and number give its most frequent label." : "Each dot is a client.";
  picture(place, title, `${about} The axes explain ${percent(one.shares[0])} and ${percent(one.shares[1])} of the variance.`, () => {
    const clients = one.x.map((_, i) => i);
    return {
      height: narrow() ? 330 : 460,
      data: [{
        type: "scatter", mode: main ? "markers+text" : "markers", x: one.x, y: one.y,
        text: main ? main.map(String) : undefined, textfont: { size: 10, color: isDark() ? "#14171a" : "#ffffff" },
        customdata: clients.map((i) => `client ${i}` + (main ? `, main label ${main[i]}` : "")),
        marker: { size: main ? 15 : 9, color: main ? main.map((label) => HUES[label % HUES.length]) : variable("--accent") },
        hovertemplate: "%{customdata}<extra></extra>",
      }],
      layout: layout("first component", "second component", {}),
    };
  });
}

function valuesPicture(place, title, one) {
  picture(place, title, "", () => {
    const order = byNumber(one.values.map((value) => value ?? -Infinity));
    return {
      data: [{
        type: "bar", y: order.map((i) => one.values[i]), customdata: order, marker: { color: variable("--accent") },
        hovertemplate: "client %{customdata}: %{y:.4g}<extra></extra>",
      }],
      layout: layout("clients, highest first", "value", {}),
    };
  });
}

function insidePictures(place, setting) {
  for (const run of setting.runs) {
    for (const one of run.inside) {
      const group = element("div", { "data-run": run.name },
        element("h4", {}, `${run.name}: ${one.title}`), element("p", {}, `${one.about} Seed ${setting.seeds[0]}, after round ${one.rounds}.`));
      const grid = element("div", { class: "plots two" });
      group.append(grid);
      place.append(group);
      const some = one.clients.length < one.of ? `Shows ${one.clients.length} of ${one.of} clients.` : "";
      if (one.kind === "embeddings") {
        embeddingPicture(grid, setting, "Map of the client embeddings.", one);
        matrixPicture(grid, setting, "X^T X.", some, one);
      } else if (one.kind === "matrix") matrixPicture(grid, setting, "One row and column per client.", some, one);
      else valuesPicture(grid, "One bar per client.", one);
    }
  }
}
