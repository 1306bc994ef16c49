// Enhancement only: without it every page reads and answers as well.
"use strict";

const POLL_MS = 3000;
const POLL_WITH_STREAM_MS = 15000;
const SAVE_AFTER_MS = 1200;
const body = document.body;

// --- Times --------------------------------------------------------------------------------------

const units = (body.dataset.units || "d h min s").split(" ");

function left(milliseconds) {
  const seconds = Math.floor(milliseconds / 1000);
  if (seconds <= 0) return body.dataset.passed || "0";
  const parts = [
    Math.floor(seconds / 86400),
    Math.floor(seconds / 3600) % 24,
    Math.floor(seconds / 60) % 60,
    seconds % 60,
  ].map((count, index) => [count, units[index]]);
  const first = parts.findIndex(([count]) => count > 0);
  return parts.slice(first, first + 2).map(([count, unit]) => `${count} ${unit}`).join(" ");
}

function tick() {
  for (const element of document.querySelectorAll("[data-countdown]")) {
    const rest = new Date(element.dateTime) - Date.now();
    element.textContent = left(rest);
    element.classList.toggle("soon", rest < 10 * 60 * 1000);
    if (rest <= 0 && "endsForm" in element.dataset) endForm();
  }
}

// What was typed stays; sending it would be refused.
function endForm() {
  for (const button of document.querySelectorAll("#answer button")) {
    if (button.disabled) continue;
    button.disabled = true;
    announce(body.dataset.passed);
  }
}

// Without a zone of their own, people read times in their browser's.
function localise(root) {
  if (body.dataset.zone) return;
  const format = new Intl.DateTimeFormat(document.documentElement.lang, {
    year: "numeric", month: "short", day: "numeric", hour: "numeric", minute: "2-digit", timeZoneName: "short",
  });
  for (const element of root.querySelectorAll("time[data-local]")) {
    element.title = element.dateTime;
    element.textContent = format.format(new Date(element.dateTime));
  }
}

// Nor do they type them in another one.
function nameZone() {
  const zone = new Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (body.dataset.zone || !zone) return;
  for (const element of document.querySelectorAll("[data-browser-zone]")) {
    element.value = element.textContent = zone;
  }
}

// --- Live parts ---------------------------------------------------------------------------------

function announce(text) {
  const place = document.getElementById("announcement");
  if (place && text) place.textContent = text;
}

let waiting = null;

function showCount(root) {
  const element = root.querySelector("[data-waiting]");
  if (!element) return;
  const count = Number(element.dataset.waiting);
  document.title = document.title.replace(/^\(\d+\+?\) /, "");
  if (count) document.title = `(${count >= 100 ? "99+" : count}) ${document.title}`;
  if (waiting !== null && count > waiting) announce(element.textContent.trim());
  waiting = count;
}

function key(element) {
  return element && (element.getAttribute("href") || element.id);
}

// Replaces a part of the page by its present state; the focus stays where it was.
async function refresh(element) {
  if (document.hidden || element.querySelector("[data-settled]")) return;
  try {
    const response = await fetch(element.dataset.refresh, { headers: { "X-Requested-With": "fetch" } });
    if (!response.ok || response.redirected) return;
    const html = await response.text();
    if (html === element.dataset.shown) return;
    element.dataset.shown = html;
    const focused = element.contains(document.activeElement) ? key(document.activeElement) : null;
    const parsed = new DOMParser().parseFromString(html, "text/html");
    element.replaceChildren(...parsed.body.childNodes);
    if (focused) [...element.querySelectorAll("a, button")].find((one) => key(one) === focused)?.focus();
    localise(element);
    tick();
    showCount(element);
  } catch {
    // Offline for a moment; the next round tries again.
  }
}

function live() {
  const parts = [...document.querySelectorAll("[data-refresh]")];
  if (!parts.length) return;
  let streaming = false;
  const all = () => parts.forEach(refresh);
  if (body.dataset.live && window.EventSource) {
    const stream = new EventSource(body.dataset.live);
    stream.onopen = () => { streaming = true; };
    stream.onmessage = all;
    stream.onerror = () => { streaming = false; };
  }
  let last = Date.now();
  setInterval(() => {
    // What becomes of an answer is not in the stream.
    const unsettled = document.querySelector(".fate:not([data-settled]), .session:not([data-settled])");
    const pause = unsettled ? 1000 : streaming ? POLL_WITH_STREAM_MS : POLL_MS;
    if (Date.now() - last < pause) return;
    last = Date.now();
    all();
  }, 500);
  document.addEventListener("visibilitychange", all);
}

// --- Answering ----------------------------------------------------------------------------------

let unsent = false;

function keepDrafts() {
  const form = document.querySelector("form[data-draft]");
  if (!form) return;
  const state = document.getElementById("draft-state");
  let timer = null;
  async function save() {
    timer = null;
    let saved = false;
    try {
      const response = await fetch(form.dataset.draft, {
        method: "POST",
        body: new URLSearchParams(new FormData(form)),
        headers: { "X-Requested-With": "fetch" },
      });
      saved = response.ok;
    } catch {
      saved = false;
    }
    unsent = !saved;
    state.textContent = saved
      ? `${form.dataset.saved} ${new Date().toLocaleTimeString(document.documentElement.lang)}`
      : form.dataset.unsaved;
    state.classList.toggle("field-error", !saved);
  }
  form.addEventListener("input", () => {
    unsent = true;
    clearTimeout(timer);
    timer = setTimeout(save, SAVE_AFTER_MS);
  });
  form.addEventListener("submit", () => {
    clearTimeout(timer);
    unsent = false;
  });
  window.addEventListener("beforeunload", (event) => {
    if (unsent) event.preventDefault();
  });
}

function guardAgainstDoubleSubmit(event) {
  const form = event.target;
  if (form.method === "dialog") return;
  if (form.dataset.sent) {
    event.preventDefault();
    return;
  }
  form.dataset.sent = "yes";
  // Coming back with the back button gives a form that can be sent again.
  window.addEventListener("pageshow", () => delete form.dataset.sent, { once: true });
}

// --- Long requests --------------------------------------------------------------------------------

// Says how much stands between here and the buttons; nothing is cut off.
function showBelow() {
  const note = document.getElementById("below");
  const buttons = document.querySelector("#answer .actions");
  if (!note || !buttons) return;
  const rest = buttons.getBoundingClientRect().top - window.innerHeight;
  note.hidden = rest <= 0;
  if (rest > 0) note.textContent = `${note.dataset.text} ${Math.ceil((rest / window.innerHeight) * 10) / 10}`;
}

// --- Keyboard -----------------------------------------------------------------------------------

function move(step) {
  const rows = [...document.querySelectorAll(".row")];
  const at = rows.indexOf(document.activeElement);
  const next = rows[Math.min(rows.length - 1, Math.max(0, at + step))];
  next?.focus();
}

function press(event) {
  const typing = event.target.closest("input, textarea, select");
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    const button = document.querySelector("#answer .button.primary, #answer .actions .button:only-of-type");
    if (button && !button.classList.contains("destructive")) button.click();
    return;
  }
  if (!("shortcuts" in body.dataset) || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (document.querySelector("dialog[open]")) return;
  const actions = {
    j: () => move(1),
    k: () => move(-1),
    "/": () => document.getElementById("id_q")?.focus(),
    "?": () => document.getElementById("keys")?.showModal(),
  };
  const marked = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
  if (!actions[event.key] && !marked) return;
  event.preventDefault();
  if (actions[event.key]) actions[event.key]();
  else marked.click();
}

// --- Start --------------------------------------------------------------------------------------

document.addEventListener("submit", guardAgainstDoubleSubmit);
document.addEventListener("keydown", press);
setInterval(tick, 1000);
tick();
localise(document);
nameZone();
showCount(document);
live();
keepDrafts();
showBelow();
document.addEventListener("scroll", showBelow, { passive: true });
window.addEventListener("resize", showBelow);
// On a phone the request comes first, its context on demand.
if (window.matchMedia("(width < 60rem)").matches) {
  for (const details of document.querySelectorAll("details.conversation")) details.open = false;
}
