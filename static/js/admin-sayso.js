// A run that is under way shows itself anew; without scripts there is a link for that.
const shown = () => document.getElementById("run");

async function refresh() {
  const answer = await fetch(location.href, { headers: { "X-Requested-With": "fetch" } });
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const next = page.getElementById("run");
  if (next) shown().replaceWith(next);
}

async function follow() {
  while (shown()?.hasAttribute("data-refresh")) {
    await new Promise(done => setTimeout(done, 2000));
    if (!document.hidden) await refresh().catch(() => {});
  }
}

follow();
