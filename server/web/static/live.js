// Bring a running job's figures up to date; when it ends, show the page of an ended job.
const live = document.getElementById("live");

function seconds(value) {
  if (value === undefined || value === null) return "";
  for (const [size, unit] of [[1, "s"], [1e-3, "ms"], [1e-6, "us"]]) {
    if (value >= size) return `${(value / size).toFixed(2)} ${unit}`;
  }
  return `${Math.round(value * 1e9)} ns`;
}

function show(field, text) {
  const place = live.querySelector(`[data-field="${field}"]`);
  if (place.textContent !== text) place.textContent = text;
}

async function update() {
  try {
    const answer = await fetch(`/v1/jobs/${live.dataset.job}`, { credentials: "same-origin" });
    const job = await answer.json();
    if (!["queued", "running"].includes(job.state)) {
      location.reload();
      return;
    }
    const progress = job.progress ?? {};
    show("state", job.state);
    show("attempt", String(job.attempt));
    show("incumbent_seconds", seconds(progress.incumbent_seconds));
    show("bound_seconds", seconds(progress.bound_seconds));
    show("gap", progress.gap == null ? "" : `${(100 * progress.gap).toFixed(2)} %`);
    show("message", progress.message ?? "");
  } catch {
    show("state", "the server does not answer; trying again");
  }
  setTimeout(update, 1000);
}

if (live) update();
