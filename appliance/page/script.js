"use strict";
(() => {
  const now = document.getElementById("now"), lost = document.getElementById("lost");
  if (!now) return;
  let since = 0, busy = false;
  async function refresh() {
    if (document.hidden || busy) return;
    busy = true;
    try {
      const answer = await fetch("/now" + location.search, {signal: AbortSignal.timeout(8000), credentials: "same-origin"});
      if (answer.status === 401) return location.reload();
      if (!answer.ok) throw new Error(answer.statusText);
      const text = await answer.text();
      const open = new Set([...now.querySelectorAll("details[open]")].map((each) => each.id));
      const form = now.querySelector("form.search");
      if (!form.contains(document.activeElement)) {
        now.innerHTML = text;
        now.querySelector("form.search").replaceWith(form); // with what was typed into it
        for (const each of now.querySelectorAll("details")) each.open = open.has(each.id);
      }
      since = 0;
      lost.classList.remove("on");
    } catch {
      since = since || Date.now();
      lost.textContent = `The box has not answered for ${Math.round((Date.now() - since) / 1000)} s. The figures below are old.`;
      lost.classList.add("on");
    } finally {
      busy = false;
    }
  }
  setInterval(refresh, 5000);
  document.addEventListener("visibilitychange", refresh);
})();
