// Heat maps of training rounds and of label counts per client.
const NO_CLIENT = 65535;
const byNumber = (scores) => scores.map((_, i) => i).sort((a, b) => scores[b] - scores[a] || a - b);

function labelsOf(setting, seed) {
  const place = setting.seeds.indexOf(seed);
  const flat = setting.labels && setting.labels[Math.max(place, 0)];
  if (!flat) return null;
  return Array.from({ length: setting.clients }, (_, i) => flat.slice(i * setting.classes, (i + 1) * setting.classes));
}
function mainLabels(setting, seed) {
  const table = labelsOf(setting, seed);
  return table && table.map((own) => own.indexOf(Math.max(...own)));
}
// Returns clients sorted by main label, then by that label's share in descending order.
function byLabel(setting, seed) {
  const table = labelsOf(setting, seed);
  const main = mainLabels(setting, seed);
  const share = (i) => table[i][main[i]] / Math.max(table[i].reduce((a, b) => a + b, 0), 1);
  return main.map((_, i) => i).sort((a, b) => main[a] - main[b] || share(b) - share(a) || a - b);
}

// Returns one array of 0 and 1 per client: whether it trained in each round of a seed.
function trained(setting, cohorts, seed) {
  const ids = new Uint16Array(bytes(cohorts.ids).buffer);
  const size = cohorts.rounds * cohorts.selected;
  const start = cohorts.seeds.indexOf(seed) * size;
  const found = Array.from({ length: setting.clients }, () => new Uint8Array(cohorts.rounds));
  for (let i = 0; i < size; i++) if (ids[start + i] !== NO_CLIENT) found[ids[start + i]][Math.floor(i / cohorts.selected)] = 1;
  return found;
}
// Returns means over blocks of rows and columns, so that a map has at most as many cells as a screen has pixels.
function reduced(table, most) {
  const tall = Math.ceil(table.length / most);
  const wide = Math.ceil(table[0].length / most);
  if (tall === 1 && wide === 1) return { cells: table.map((line) => Array.from(line)), tall, wide };
  const cells = [];
  for (let top = 0; top < table.length; top += tall) {
    const lines = table.slice(top, top + tall);
    const line = [];
    for (let left = 0; left < lines[0].length; left += wide) {
      let sum = 0, count = 0;
      for (const one of lines) for (let i = left; i < Math.min(left + wide, one.length); i++) { sum += one[i]; count++; }
      line.push(sum / count);
    }
    cells.push(line);
  }
  return { cells, tall, wide };
}

function cohortPictures(place, setting, number) {
  const runs = setting.runs.filter((run) => run.cohorts);
  if (!runs.length) return;
  const kept = runs.map((run) => run.cohorts).sort((a, b) => a.seeds.length - b.seeds.length)[0];
  const seeds = kept.seeds; // the seeds that all runs have
  const orders = [["often", "training rounds"], ["id", "ID"]];
  if (setting.labels) orders.unshift(["label", "main label"]);
  const [which, seedOf, order] = [`cohorts-run-${number}`, `cohorts-seed-${number}`, `cohorts-order-${number}`];
  const pickers = [
    picker(which, "Strategy", runs.map((run) => [run.name, run.name])),
    picker(seedOf, "Seed", seeds.map((seed) => [seed, seed])),
    picker(order, "Sort by", orders),
  ];
  const fewer = [
    kept.seeds.length < kept.of ? `The page has ${kept.seeds.length} of ${kept.of} seeds.` : "",
    Math.max(...runs.map((run) => run.cohorts.every)) > 1 ? "Long runs show evenly spaced rounds." : "",
    setting.labels && setting.labels.length < setting.seeds.length
      ? "Only the first seed has labels; for other seeds, clients are sorted by number of training rounds." : "",
  ].join(" ");
  picture(place, "Training rounds per client.", `A mark means that the client trained. ${fewer}`, () => {
    const run = runs.find((one) => one.name === state.pick[which]);
    const seed = Number(state.pick[seedOf]);
    const table = trained(setting, run.cohorts, seed);
    const sums = table.map((line) => line.reduce((a, b) => a + b, 0));
    const main = mainLabels(setting, seed); // null for a seed without labels on the page
    const sorted = { label: () => byLabel(setting, seed), often: () => byNumber(sums), id: () => sums.map((_, i) => i) };
    const clients = sorted[state.pick[order] === "label" && !main ? "often" : state.pick[order]]();
    const { cells, tall, wide } = reduced(clients.map((i) => table[i]), 400);
    const text = cells.map((line, i) => line.map(() => {
      const id = clients[i * tall];
      return (tall > 1 ? `from client ${id}` : `client ${id}`) + (main ? `, main label ${main[id]}` : "")
        + `, trained in ${sums[id]} of ${run.cohorts.rounds} rounds`;
    }));
    return {
      data: [{
        type: "heatmap", z: cells, x0: 1, dx: wide * run.cohorts.every, text, colorscale: scale(), showscale: false,
        zmin: 0, zmax: 1, hovertemplate: "round %{x}<br>%{text}<extra></extra>",
      }],
      layout: layout("round", "clients, sorted as chosen above",
        { uirevision: run.name, yaxis: { autorange: "reversed", showgrid: false, showticklabels: false, ticks: "" }, xaxis: { showgrid: false } }),
    };
  }, pickers);
}

function labelPictures(place, setting, number) {
  const seeds = setting.seeds.slice(0, setting.labels.length);
  const seedOf = `labels-seed-${number}`;
  state.pick[seedOf] ??= seeds[0];
  picture(place, "Training examples per client and label.",
    "Each column is a client; columns are sorted by the client's most frequent label.", () => {
      const seed = Number(state.pick[seedOf]);
      const table = labelsOf(setting, seed);
      const clients = byLabel(setting, seed);
      const [x, y] = ["clients, sorted by main label", "label"];
      const z = Array.from({ length: setting.classes }, (_, label) => clients.map((i) => table[i][label]));
      return {
        height: Math.min(560, 150 + 18 * setting.classes),
        data: [{
          type: "heatmap", z, customdata: z.map(() => clients), colorscale: scale(),
          colorbar: { title: { text: "examples" }, thickness: 12, outlinewidth: 0 },
          hovertemplate: "client %{customdata}<br>label %{y}: %{z} examples<extra></extra>",
        }],
        layout: layout(x, y, {
          xaxis: { showgrid: false, showticklabels: false, ticks: "" }, yaxis: { showgrid: false, dtick: setting.classes > 20 ? undefined : 1 },
        }),
      };
    }, seeds.length > 1 ? [picker(seedOf, "Seed", seeds.map((seed) => [seed, seed]))] : []);
}
