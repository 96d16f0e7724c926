// Makes pages faster and live. Every page works without it.
"use strict";

const SEARCH_DELAY_MS = 200;
const RETRY_MIN_MS = 1000;
const RETRY_MAX_MS = 30000;
// longer than the server's pings, so that a silent connection is noticed
const SILENCE_MAX_MS = 40000;
const TIMES_EVERY_MS = 10000;

const byId = (id) => document.getElementById(id);

// --- times -------------------------------------------------------------------------------------

function span(seconds) {
  if (seconds < 120) return `${seconds} s`;
  return seconds < 7200 ? `${Math.floor(seconds / 60)} min` : `${Math.floor(seconds / 3600)} h`;
}

function showTimes(root) {
  for (const time of root.querySelectorAll("time")) {
    if (!time.title) time.title = time.textContent;
    const seconds = Math.round((Date.now() - Date.parse(time.dateTime)) / 1000);
    time.textContent = seconds >= 0 ? `${span(seconds)} ago` : `in ${span(-seconds)}`;
  }
}

// --- replacing parts of the page ---------------------------------------------------------------

function swap(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  showTimes(template.content);
  for (const fresh of [...template.content.children]) {
    const old = byId(fresh.id);
    if (!old) continue;
    if (old.getAttribute("role") === "status") {
      // screen readers announce changes inside a live region, not its replacement
      if (old.innerHTML !== fresh.innerHTML) old.replaceChildren(...fresh.childNodes);
      continue;
    }
    const wasFocused = old.contains(document.activeElement);
    const focused = wasFocused ? focusable(old).indexOf(document.activeElement) : -1;
    const picked = old.querySelector("input[type=checkbox]:checked");
    const unfolded = [...old.querySelectorAll("details[open][id]")].map((each) => each.id);
    old.replaceWith(fresh);
    for (const id of unfolded) byId(id)?.setAttribute("open", "");
    if (picked) {
      const box = fresh.querySelector("input[type=checkbox]");
      if (box) box.checked = true;
    }
    if (wasFocused) focusable(fresh)[Math.max(focused, 0)]?.focus({ preventScroll: true });
  }
}

function focusable(element) {
  return [...element.querySelectorAll("a[href], input, button, summary, [tabindex]")];
}

// --- search and filters ------------------------------------------------------------------------

let searching = null;

function filterUrl() {
  const form = byId("filters");
  const fields = [...new FormData(form)].filter(([name, value]) => value !== "" && !(name === "sort" && value === "failed"));
  const query = new URLSearchParams(fields).toString();
  return query ? `${form.getAttribute("action")}?${query}` : form.getAttribute("action");
}

async function showResults(url, { keepPicked = false, keepStream = false } = {}) {
  searching?.abort();
  searching = new AbortController();
  const results = byId("results");
  const picked = new Set(keepPicked ? pickedBoxes().map((box) => box.value) : []);
  results.setAttribute("aria-busy", "true");
  try {
    const part = new URL(url, location.href);
    part.searchParams.set("part", "results");
    const response = await fetch(part, { signal: searching.signal, redirect: "manual" });
    if (response.type === "opaqueredirect" || !response.ok) {
      location.assign(url);
      return;
    }
    const template = document.createElement("template");
    template.innerHTML = await response.text();
    showTimes(template.content);
    for (const box of template.content.querySelectorAll("input[name=name]")) {
      box.checked = picked.has(box.value);
    }
    results.replaceWith(template.content);
    history.replaceState(null, "", url);
    showPicked();
    if (!keepStream) stream?.restart();
  } catch (error) {
    if (error.name === "AbortError") return;
    results.removeAttribute("aria-busy");
    byId("found").textContent = "The list could not be loaded: the gateway does not answer.";
  }
}

function pickedBoxes() {
  return [...document.querySelectorAll("#results input[name=name]:checked")];
}

function showPicked() {
  const label = byId("selected");
  if (!label) return;
  const every = document.querySelector("input[name=every]")?.checked;
  const picked = pickedBoxes();
  showCounts(every ? [] : picked);
  const count = picked.length.toLocaleString("en");
  label.textContent = every ? "With all of this list" : picked.length ? `With the ${count} selected` : "With the selected";
}

// An action is offered if it does something with a selected connector, or with any of the list.
function showCounts(boxes) {
  const picked = boxes.map((box) => box.closest(".row[data-does]")).filter(Boolean);
  const isWhole = !document.querySelector("#results .pages");
  const rows = picked.length ? picked : isWhole ? document.querySelectorAll("#results .row[data-does]") : null;
  // thousands of rows have a few sets of actions
  const sets = new Map();
  for (const row of rows ?? []) sets.set(row.dataset.does, (sets.get(row.dataset.does) ?? 0) + 1);
  for (const button of document.querySelectorAll(".bulk button[data-all]")) {
    let count = rows ? 0 : Number(button.dataset.all);
    for (const [does, size] of sets) if (does.split(" ").includes(button.value)) count += size;
    button.querySelector(".count").textContent = count.toLocaleString("en");
    button.hidden = !count;
  }
}

function watchFilters() {
  const form = byId("filters");
  if (!form) return;
  let timer = 0;
  const later = (delay) => {
    clearTimeout(timer);
    timer = setTimeout(() => showResults(filterUrl()), delay);
  };
  form.addEventListener("input", (event) => later(event.target.type === "search" ? SEARCH_DELAY_MS : 0));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    later(0);
  });
  document.addEventListener("change", (event) => {
    if (event.target.closest("#results")) showPicked();
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-reload]")) {
      event.preventDefault();
      showResults(location.href, { keepPicked: true }).then(() => byId("main").focus());
    }
  });
  showPicked();
}

// --- the stream of updates ---------------------------------------------------------------------

let stream = null;

class Stream {
  constructor(bar) {
    this.url = bar.dataset.live;
    this.bar = bar;
    this.text = byId("stream-text");
    this.retry = byId("stream-retry");
    this.source = null;
    this.version = "";
    this.delayMs = RETRY_MIN_MS;
    this.timers = [];
    this.lostAt = null;
    this.isOver = false;
    this.isPaused = false;
    this.retry.addEventListener("click", () => this.open());
    document.addEventListener("visibilitychange", () => (document.hidden ? this.close() : this.open()));
    window.addEventListener("online", () => this.open());
    window.addEventListener("pageshow", (event) => event.persisted && this.open());
    window.addEventListener("pagehide", () => this.close());
    if (!document.hidden) this.open();
  }

  restart() {
    this.version = "";
    if (this.source) this.open();
  }

  open() {
    if (this.isOver || this.isPaused) return;
    this.close();
    const url = new URL(this.url, location.href);
    url.searchParams.set("since", this.version || document.querySelector("[data-version]")?.dataset.version || "");
    const source = (this.source = new EventSource(url));
    const on = (name, handle) =>
      source.addEventListener(name, (event) => {
        this.listen();
        if (event.lastEventId) this.version = event.lastEventId;
        handle(event.data);
      });
    on("live", () => this.show());
    on("ping", () => {});
    on("swap", (html) => {
      swap(html);
      showPicked();
    });
    on("reload", () => {
      this.show();
      // the stream has all that changes after this
      if (byId("results")) showResults(location.href, { keepPicked: true, keepStream: true });
    });
    on("rows", (html) => {
      this.show();
      addRecords(html);
    });
    on("failed", (data) => {
      const { title, message } = JSON.parse(data);
      this.lost(`${title ?? "The cluster does not answer"}: ${message}`);
    });
    on("replaced", () => this.end("Updates stopped: other pages of this session use their streams."));
    // the response to the new request sets the cookie with the renewed token
    on("renew", () => this.open());
    on("refused", () => {
      this.end("The workers no longer accept your token.");
      location.reload();
    });
    source.addEventListener("error", () => this.again());
    this.listen();
  }

  close() {
    this.source?.close();
    this.source = null;
    this.timers.forEach(clearTimeout);
    this.timers = [];
  }

  // a connection that is silent for long is lost
  listen() {
    clearTimeout(this.silence);
    this.silence = setTimeout(() => this.source && this.again(), SILENCE_MAX_MS);
  }

  again() {
    this.close();
    const waitMs = this.delayMs * (0.75 + Math.random() / 2);
    this.delayMs = Math.min(this.delayMs * 2, RETRY_MAX_MS);
    const at = new Date(Date.now() + waitMs).toLocaleTimeString("en-GB");
    this.lost(`The gateway does not answer. Next attempt at ${at}.`);
    this.timers.push(setTimeout(() => this.open(), waitMs));
  }

  lost(text) {
    this.lostAt ??= new Date();
    const since = this.lostAt.toLocaleTimeString("en-GB");
    document.body.classList.add("stale");
    const end = /[.!?]$/.test(text) ? "" : ".";
    this.text.textContent = `${text}${end} What you see is from ${since}.`;
    this.retry.hidden = false;
  }

  show() {
    this.delayMs = RETRY_MIN_MS;
    if (this.lostAt) this.text.textContent = "";
    this.lostAt = null;
    this.retry.hidden = true;
    document.body.classList.remove("stale");
  }

  end(text) {
    this.close();
    this.lost(text);
  }
}

// --- records of a topic ------------------------------------------------------------------------

const RECORDS_MAX = 500;
let added = 0;

function addRecords(html) {
  const list = byId("records");
  const template = document.createElement("template");
  template.innerHTML = html;
  added += template.content.querySelectorAll("details.record").length;
  list.append(template.content);
  while (list.children.length > RECORDS_MAX) list.firstElementChild.remove();
  showFollowing();
}

function showFollowing() {
  const state = stream?.isPaused ? "Paused" : "Following";
  byId("follow-text").textContent = `${state}; ${added.toLocaleString("en")} new records.`;
}

function watchFollowing() {
  const button = byId("follow-pause");
  if (!button) return;
  button.hidden = false;
  showFollowing();
  button.addEventListener("click", () => {
    stream.isPaused = !stream.isPaused;
    button.textContent = stream.isPaused ? "Continue" : "Pause";
    if (stream.isPaused) stream.close();
    else stream.open();
    showFollowing();
  });
}

// --- one connector -----------------------------------------------------------------------------

for (const button of document.querySelectorAll("button[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const text = byId(button.dataset.copy);
    text.select();
    try {
      await navigator.clipboard.writeText(text.value);
    } catch {
      // no clipboard without HTTPS: the old way copies what is selected
      document.execCommand("copy");
    }
    button.textContent = "Copied";
  });
}

// --- start -------------------------------------------------------------------------------------

showTimes(document);
setInterval(() => showTimes(document), TIMES_EVERY_MS);
watchFilters();
if (byId("stream")) stream = new Stream(byId("stream"));
watchFollowing();

// --- config form -------------------------------------------------------------------------------

const CHECK_DELAY_MS = 400;
// fields without an effect on the config until their button is pressed
const NOT_CHECKED = ["filter", "new-name", "new-value", "new-transforms-class", "new-transforms-name", "new-predicates-class", "new-predicates-name"];

function watchConfigForm() {
  const form = byId("config-form");
  if (!form) return;
  let timer = 0;
  let running = null;
  let isChanged = false;
  const check = async () => {
    running?.abort();
    running = new AbortController();
    const fields = new URLSearchParams(new FormData(form));
    NOT_CHECKED.forEach((name) => fields.delete(name));
    fields.set("do", "check");
    fields.set("part", "checks");
    try {
      const url = form.getAttribute("action");
      const response = await fetch(url, { method: "POST", body: fields, signal: running.signal, redirect: "manual" });
      const html = await response.text();
      if (!response.ok || !html.startsWith('<div id="checks"')) throw new Error(String(response.status));
      showChecks(html);
    } catch (error) {
      if (error.name === "AbortError") return;
      byId("checks-state").textContent = "The last change was not checked. Press Validate to see why.";
    }
  };
  form.addEventListener("input", (event) => {
    isChanged = true;
    if (form.dataset.liveCheck === undefined) return;
    if (NOT_CHECKED.includes(event.target.name) || event.target.name === "rows") return;
    clearTimeout(timer);
    timer = setTimeout(check, CHECK_DELAY_MS);
  });
  form.addEventListener("submit", () => {
    isChanged = false;
    clearTimeout(timer);
    running?.abort();
  });
  // what was entered is on this page only
  window.addEventListener("beforeunload", (event) => isChanged && event.preventDefault());
}

// What the user entered stays: only faults, choices and visibility are replaced.
function showChecks(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  const fresh = template.content;
  const list = fresh.querySelector("#checks-list");
  const count = list.querySelectorAll(".faults.bad > li").length;
  byId("checks-state").textContent = count ? `Errors: ${count.toLocaleString("en")}` : "No errors";
  byId("checks-list").replaceWith(list);
  const settings = byId("settings");
  let lastGroup = null;
  for (const group of [...fresh.querySelectorAll("#settings > section")]) {
    let own = byId(group.id);
    if (!own) {
      own = group.cloneNode(false);
      own.append(group.querySelector("h2"));
      lastGroup ? lastGroup.after(own) : settings.prepend(own);
    }
    let last = own.querySelector("h2");
    for (const setting of [...group.querySelectorAll(".setting")]) {
      const old = byId(setting.id);
      if (old && own.contains(old)) {
        showCheck(old, setting);
        last = old;
      } else {
        old?.remove();
        last.after(setting);
        last = setting;
      }
      last.isFresh = true;
    }
    own.hidden = ![...own.querySelectorAll(".setting")].some((each) => !each.hidden);
    lastGroup = own;
  }
  for (const setting of settings.querySelectorAll(".setting")) {
    if (!setting.isFresh && !setting.contains(document.activeElement)) setting.remove();
    setting.isFresh = false;
  }
}

function showCheck(old, setting) {
  old.querySelector(".notes").replaceWith(setting.querySelector(".notes"));
  const choices = setting.querySelector("datalist");
  if (choices) old.querySelector("datalist")?.replaceWith(choices);
  const invalid = setting.querySelector("[id$='-v']")?.getAttribute("aria-invalid");
  const field = old.querySelector("[id$='-v']");
  invalid ? field?.setAttribute("aria-invalid", invalid) : field?.removeAttribute("aria-invalid");
  if (!old.contains(document.activeElement)) old.hidden = setting.hidden;
}

watchConfigForm();
