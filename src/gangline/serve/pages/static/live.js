// Makes a page move that works without it: parts follow the record, numbers follow the gang, ticks are counted.
"use strict";

const main = document.querySelector("main");

/* Parts: ask for the page again, put the parts that differ in the place of the old; what the reader did stays. */

const details = (part) => [...part.querySelectorAll("details")];
const fields = (part) => [...part.querySelectorAll("input:not([type=hidden]), select, textarea")];

function carryOver(old, fresh) {
  details(old).forEach((each, place) => {
    const twin = details(fresh)[place];
    if (twin) twin.open = each.open;
  });
  const known = new Map(fields(fresh).map((field) => [field.name + "=" + (field.type === "checkbox" ? field.value : ""), field]));
  for (const field of fields(old)) {
    const twin = known.get(field.name + "=" + (field.type === "checkbox" ? field.value : ""));
    if (twin && field.type === "checkbox") twin.checked = field.checked;
    else if (twin) twin.value = field.value;
  }
  const scrolled = [...old.querySelectorAll(".scroll")].map((each) => [each.scrollLeft, each.scrollTop]);
  return () => [...fresh.querySelectorAll(".scroll")].forEach((each, place) => {
    if (scrolled[place]) [each.scrollLeft, each.scrollTop] = scrolled[place];
  });
}

const asked = new WeakMap();  // a part as the service gave it, whatever has moved in it since

function exchange(old, fresh) {
  const text = fresh.outerHTML;
  if ((asked.get(old) ?? old.outerHTML) === text) return;
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  const scroll = carryOver(old, fresh);
  old.replaceWith(fresh);
  asked.set(fresh, text);
  scroll();
  if (!focused) return;
  const twin = focused.id ? document.getElementById(focused.id)
    : [...fresh.querySelectorAll(focused.tagName)].find((each) => each.textContent === focused.textContent && each.value === focused.value);
  if (twin) twin.focus({ preventScroll: true });
}

async function renew() {
  const answer = await fetch(location.href, { headers: { accept: "text/html" }, cache: "no-store" });
  if (!answer.ok || answer.redirected) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const old of document.querySelectorAll("[data-part]")) {
    const fresh = page.querySelector(`[data-part="${old.dataset.part}"]`);
    if (fresh) exchange(old, document.adoptNode(fresh));
  }
  announce(page.title);
  show(latest);
  countPicks();
}

function announce(title) {
  const place = document.querySelector("[data-announce]");
  if (place && title !== document.title) place.textContent = title;
  document.title = title;
}

const later = () => {};  // the service is away: the next event or interval asks again

let waiting = false;
function renewSoon() {
  if (waiting) return;
  waiting = true;
  setTimeout(() => { waiting = false; renew().catch(later); }, 400);
}

/* Numbers of the running stage. */

let latest = null;
let losses = null;  // until the first event: as the page knows them

const digits = (value) => (value === 0 || (Math.abs(value) >= 1e-3 && Math.abs(value) < 1e6))
  ? String(Number(value.toPrecision(4))) : value.toExponential(1);

function duration(seconds) {
  if (seconds < 10) return seconds.toFixed(1) + " s";
  const whole = Math.round(seconds);
  if (whole < 60) return whole + " s";
  if (whole < 3600) return Math.floor(whole / 60) + " min " + whole % 60 + " s";
  return Math.floor(whole / 3600) + " h " + Math.floor(whole % 3600 / 60) + " min";
}

function count(value) {
  let size = value, unit = "";
  for (unit of ["", " k", " M", " G", " T"]) {
    if (Math.abs(size) < 1000 || unit === " T") break;
    size /= 1000;
  }
  return (unit === "" || Math.abs(size) >= 100 ? size.toFixed(0) : size.toFixed(1)) + unit;
}

const words = {
  stage: String, sentence: String, loss: digits, eta_seconds: duration, tokens_per_second: count,
  step: (value) => value.toLocaleString("en-US"), steps: (value) => value.toLocaleString("en-US"),
};

function show(said) {
  const now = document.querySelector("[data-now]");
  if (!said || !now) return;
  for (const [name, word] of Object.entries(words)) {
    const place = now.querySelector(`[data-field="${name}"]`);
    const known = said[name] !== undefined && said[name] !== null;
    if (place && known) place.textContent = word(said[name]);
    else if (place && (name === "eta_seconds" || name === "tokens_per_second")) place.textContent = "-";
  }
  const bar = now.querySelector("[data-bar]");
  if (said.steps) bar.max = said.steps;
  if (typeof said.step === "number") bar.value = said.step;
  trace(now.querySelector("[data-trace]"));
}

const known = (line) => line && line.dataset.losses ? line.dataset.losses.split(",").map(Number) : [];

function trace(line) {
  if (!line || !losses || losses.length < 2) return;
  const low = Math.min(...losses), span = (Math.max(...losses) - low) || 1;
  line.setAttribute("points", losses.map((loss, place) =>
    `${(place * 640 / (losses.length - 1)).toFixed(1)},${(60 - (loss - low) / span * 56).toFixed(1)}`).join(" "));
}

function hear(said) {
  if (latest && (latest.stage !== said.stage || said.step < latest.step)) losses = [];  // another stage, another seed
  losses ??= known(document.querySelector("[data-trace]"));
  if (typeof said.loss === "number" && (!latest || latest.step !== said.step)) losses.push(said.loss);
  if (losses.length > 512) losses = losses.filter((_, place) => place % 2 === 0);
  latest = said;
  show(said);
}

function follow(url) {
  const source = new EventSource(url);
  source.addEventListener("record", renewSoon);
  source.addEventListener("progress", (event) => hear(JSON.parse(event.data)));
  source.addEventListener("end", () => { source.close(); renewSoon(); });
  source.addEventListener("error", () => { if (source.readyState === EventSource.CLOSED) poll(); });  // refused
}

function poll() {
  const reads = () => document.hidden || !getSelection().isCollapsed;
  setInterval(() => { if (!reads()) renew().catch(later); }, main.dataset.poll * 1000);
}

/* Runs that are ticked for a comparison. */

function countPicks() {
  const form = document.querySelector("[data-picks]");
  const button = form && form.querySelector("[data-pick-button]");
  if (!button) return;
  const boxes = [...form.querySelectorAll("input[name=run]")];
  const picked = boxes.filter((box) => box.checked).length;
  button.disabled = picked < 2 || picked > 10;
  button.textContent = picked > 1 ? `Compare ${picked} runs` : "Compare";
  const full = picked >= 10;
  boxes.forEach((box) => { box.disabled = full && !box.checked; });
}

document.addEventListener("change", countPicks);
countPicks();
if (main && main.dataset.events) follow(main.dataset.events);
else if (main && main.dataset.poll) poll();
