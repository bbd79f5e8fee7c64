"use strict";
(() => {
  const config = { responsive: true, displaylogo: false, modeBarButtons: [["toImage", "resetScale2d"]] };
  const coarse = window.matchMedia("(pointer: coarse)").matches;
  if (coarse) config.displayModeBar = false;
  const plots = [...document.querySelectorAll(".plot")];
  const heights = new Map();

  // A narrow page wraps the legend into more lines: give them room instead of squeezing the picture.
  const fit = (holder) => {
    const legend = holder.querySelector("g.legend");
    const need = legend ? legend.getBoundingClientRect().height : 0;
    const height = heights.get(holder) + Math.max(0, need - 44);
    return Math.abs(height - holder.layout.height) > 8 ? Plotly.relayout(holder, { height }) : null;
  };

  // Two columns of names on a narrow page, where every name fits half of the picture.
  const columns = (holder) => {
    if (holder.clientWidth >= 560) return null;
    const names = [...holder.querySelectorAll("g.legend text.legendtext")];
    const longest = Math.max(0, ...names.map((name) => name.getBBox().width));
    const fits = longest + 40 <= holder._fullLayout._size.w / 2 + 4;
    return fits ? Plotly.relayout(holder, { "legend.entrywidth": 0.5, "legend.entrywidthmode": "fraction" }) : null;
  };

  for (const holder of plots) {
    const spec = JSON.parse(document.getElementById(holder.id + "-data").textContent);
    if (coarse) spec.layout.dragmode = false;
    if (holder.clientWidth < 560) spec.layout.legend = { ...spec.layout.legend, font: { size: 10.5 } };
    heights.set(holder, spec.layout.height);
    Plotly.newPlot(holder, spec.data, spec.layout, config).then(() => columns(holder)).then(() => fit(holder));
  }
  let settled;
  window.addEventListener("resize", () => {
    clearTimeout(settled);
    settled = setTimeout(() => plots.forEach(fit), 300);
  });

  window.addEventListener("beforeprint", () => {
    document.querySelectorAll("details").forEach((part) => { part.open = true; });
    plots.forEach((holder) => Plotly.relayout(holder, { width: 640, autosize: false }));
  });
  window.addEventListener("afterprint", () => {
    plots.forEach((holder) => Plotly.relayout(holder, { width: null, autosize: true }));
  });
})();
