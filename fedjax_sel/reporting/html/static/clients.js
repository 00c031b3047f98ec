// A heat map of training rounds per client.
const NO_CLIENT = 65535;
const byNumber = (scores) => scores.map((_, i) => i).sort((a, b) => scores[b] - scores[a] || a - b);

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
  const [which, seedOf, order] = [`cohorts-run-${number}`, `cohorts-seed-${number}`, `cohorts-order-${number}`];
  const pickers = [
    picker(which, "Strategy", runs.map((run) => [run.name, run.name])),
    picker(seedOf, "Seed", seeds.map((seed) => [seed, seed])),
    picker(order, "Sort by", orders),
  ];
  const fewer = [
    kept.seeds.length < kept.of ? `The page has ${kept.seeds.length} of ${kept.of} seeds.` : "",
    Math.max(...runs.map((run) => run.cohorts.every)) > 1 ? "Long runs show evenly spaced rounds." : "",
  ].join(" ");
  picture(place, "Training rounds per client.", `A mark means that the client trained. ${fewer}`, () => {
    const run = runs.find((one) => one.name === state.pick[which]);
    const seed = Number(state.pick[seedOf]);
    const table = trained(setting, run.cohorts, seed);
    const sums = table.map((line) => line.reduce((a, b) => a + b, 0));
    const clients = state.pick[order] === "id" ? sums.map((_, i) => i) : byNumber(sums);
    const { cells, tall, wide } = reduced(clients.map((i) => table[i]), 400);
    const text = cells.map((line, i) => line.map(() => {
      const id = clients[i * tall];
      return (tall > 1 ? `from client ${id}` : `client ${id}`)
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
