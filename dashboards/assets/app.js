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
  // A turned knob asks the server at once; while it is at work, the last turn waits and those before it are dropped.
  ask: function () {
    const turns = (window.specroofTurns = window.specroofTurns || {last: 0, busy: false, next: null});
    const mine = (turns.last += 1);
    const drop = window.dash_clientside.no_update;
    if (turns.next) turns.next(drop);
    turns.next = null;
    if (!window.dash_clientside.callback_context.triggered.length) {  // a page that just opened, with its first answer
      turns.busy = document.documentElement.dataset.theme === "dark";
      return turns.busy ? mine : drop;
    }
    if (!turns.busy) {
      turns.busy = true;
      return mine;
    }
    return new Promise((resolve) => {
      const next = (value) => resolve(value === drop ? drop : mine);
      turns.next = next;
      window.setTimeout(() => {  // the answer was lost
        if (turns.next === next) {
          turns.next = null;
          next();
        }
      }, 5000);
    });
  },
  answered: function () {
    const turns = window.specroofTurns;
    if (!turns) return;
    const next = turns.next;
    turns.busy = next !== null;
    turns.next = null;
    if (next) next();
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

// What the controls lack for those who do not see or point: a list's own button in the order of the Tab key and named
// by the words above it, in place of a hidden field; a name for the file field.
new MutationObserver(function () {
  document.querySelectorAll(".knob .dash-dropdown-wrapper").forEach((box) => {
    const [field, button] = [box.querySelector(".dash-dropdown-focus-target"), box.querySelector("button")];
    const words = box.parentElement.querySelector(".words");
    if (!field || !button || !words) return;
    field.tabIndex = -1;
    button.tabIndex = 0;
    const names = button.getAttribute("aria-labelledby") || "";
    if (!names.split(" ").includes(words.id)) button.setAttribute("aria-labelledby", words.id + " " + names);
  });
  document.querySelectorAll("input[type='file']:not([aria-label])").forEach((field) => {
    field.setAttribute("aria-label", field.parentElement.textContent || "Upload a file");
  });
}).observe(document, {subtree: true, childList: true});
