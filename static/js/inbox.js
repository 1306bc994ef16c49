// Enhancement only: without it every page reads and answers as well.
"use strict";

const REFRESH_MS = 2000;

function left(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  const parts = [
    [Math.floor(seconds / 86400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"],
    [seconds % 60, "s"],
  ];
  const first = parts.findIndex(([count]) => count > 0);
  if (first < 0) return "0 s";
  return parts.slice(first, first + 2).map(([count, unit]) => `${count} ${unit}`).join(" ");
}

function tick() {
  for (const element of document.querySelectorAll("[data-countdown]")) {
    element.textContent = left(new Date(element.dateTime) - Date.now());
  }
}

// Replaces a part of the page by its present state, unless the person is inside it.
async function refresh(element) {
  if (document.hidden || element.contains(document.activeElement)) return;
  if (element.querySelector("[data-settled]")) return;
  try {
    const response = await fetch(element.dataset.refresh, { headers: { "X-Requested-With": "fetch" } });
    if (!response.ok || response.redirected) return;
    const html = await response.text();
    if (html !== element.dataset.shown) {
      element.dataset.shown = html;
      const parsed = new DOMParser().parseFromString(html, "text/html");
      element.replaceChildren(...parsed.body.childNodes);
      tick();
    }
  } catch {
    // Offline for a moment; the next round tries again.
  }
}

function guardAgainstDoubleSubmit(event) {
  const form = event.target;
  if (form.dataset.sent) {
    event.preventDefault();
    return;
  }
  form.dataset.sent = "yes";
  // Coming back with the back button gives a form that can be sent again.
  window.addEventListener("pageshow", () => delete form.dataset.sent, { once: true });
}

document.addEventListener("submit", guardAgainstDoubleSubmit);
setInterval(tick, 1000);
tick();
for (const element of document.querySelectorAll("[data-refresh]")) {
  setInterval(refresh, REFRESH_MS, element);
}
