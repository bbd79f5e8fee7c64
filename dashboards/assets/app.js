"use strict";
// What the app does without asking its server: the URL, the theme, the numbers beside the sliders.
window.dash_clientside = window.dash_clientside || {};
window.dash_clientside.specroof = {
  // The knobs of the page in its address, so that it can be kept and sent; no entry in the history per turn.
  remember: function (values, ids) {
    if (ids && ids.length) {
      const query = new URLSearchParams();
      ids.forEach((id, i) => {
        const value = values[i];
        if (value !== null && value !== undefined && String(value) !== "") query.set(id.knob, String(value));
      });
      window.history.replaceState(window.history.state, "", window.location.pathname + "?" + query.toString());
    }
    return window.dash_clientside.no_update;
  },
  // The chosen theme, or the system's until one is chosen; kept by the browser.
  theme: function (clicks, stored) {
    const system = window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    let theme = stored || system;
    if (clicks && window.dash_clientside.callback_context.triggered_id === "theme-button") {
      theme = theme === "dark" ? "light" : "dark";
    }
    document.documentElement.dataset.theme = theme;
    return [theme, theme === "dark" ? "Light" : "Dark"];
  },
  show: function (value) {
    if (value === null || value === undefined) return "";
    return Number(value).toPrecision(4).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
  },
  // Another scenario begins the page anew; what was set for the last one does not apply.
  restart: function (value) {
    const now = new URLSearchParams(window.location.search).get("scenario");
    const shown = now === null ? document.body.dataset.scenario : now;
    if (!value || value === shown) return window.dash_clientside.no_update;
    document.body.dataset.scenario = value;
    return "?" + new URLSearchParams({scenario: value}).toString();
  },
};
