// Shows the progress of a check without loading the page again. Without this script, the page loads itself again.
"use strict";
const bar = document.querySelector("progress[data-events]");
if (bar) {
  const stage = document.getElementById("stage");
  const events = new EventSource(bar.dataset.events);
  events.addEventListener("progress", (event) => {
    const [percent, ...words] = event.data.split(" ");
    if (percent === "?") bar.removeAttribute("value");
    else bar.value = Number(percent);
    stage.textContent = words.join(" ");
  });
  events.addEventListener("end", () => {
    events.close();
    location.reload();
  });
}
