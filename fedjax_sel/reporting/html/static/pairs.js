// Paired differences from the setting's baseline: one dot with its interval per strategy.
function pairPictures(place, setting) {
  for (const one of setting.pairs) {
    picture(place, `Difference from ${one.baseline}: ${one.words}.`,
      "Paired by seed; whiskers are 95 % intervals.", () => {
        const known = one.pairs.filter((pair) => isShown(pair.name) && pair.numbers[0] !== null);
        if (!known.length) return null;
        const data = known.map((pair) => {
          const [difference, low, high] = pair.numbers;
          const color = colorOf(pair.name);
          const whiskers = low === null ? {} : {
            error_x: { type: "data", symmetric: false, array: [high - difference], arrayminus: [difference - low], color },
          };
          return {
            type: "scatter", mode: "markers", x: [difference], y: [plain(pair.name)], marker: { color, size: 9 },
            customdata: [[low ?? NaN, high ?? NaN]], meta: [plain(pair.name), pair.verdict],
            hovertemplate: "<b>%{meta[0]}</b>: %{x:.4g} (%{customdata[0]:.4g} to %{customdata[1]:.4g})"
              + "<br>%{meta[1]}<extra></extra>", ...whiskers,
          };
        });
        const zero = { type: "line", yref: "paper", x0: 0, x1: 0, y0: 0, y1: 1, line: { color: variable("--quiet"), width: 1 } };
        return {
          height: 110 + 26 * known.length,
          data, layout: layout("difference", "", { shapes: [zero], yaxis: { autorange: "reversed", type: "category" } }),
        };
      });
  }
}
