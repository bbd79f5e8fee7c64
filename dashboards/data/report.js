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

  // Two columns of names on a narrow page, where every name fits half of it.
  const entries = (data, width) => {
    const longest = Math.max(0, ...data.map((trace) => (trace.name || "").length));
    return width < 560 && longest <= 26 ? { entrywidth: Math.floor(width / 2) - 48, font: { size: 11 } } : {};
  };

  for (const holder of plots) {
    const spec = JSON.parse(document.getElementById(holder.id + "-data").textContent);
    if (coarse) spec.layout.dragmode = false;
    spec.layout.legend = { ...spec.layout.legend, ...entries(spec.data, holder.clientWidth) };
    heights.set(holder, spec.layout.height);
    Plotly.newPlot(holder, spec.data, spec.layout, config).then(() => fit(holder));
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
