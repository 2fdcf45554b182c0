// Finds and fills elements of the page. Knows no speech.

export const NONE = "–"; // a value not known yet

export const $ = (id) => document.getElementById(id);

export function complain(words, detail = "") {
  const small = document.createElement("small");
  small.textContent = detail;
  $("error").replaceChildren(words, ...(detail ? [small] : []));
  $("error").hidden = false;
}

export function show(id, value, unit = "") {
  $(id).classList.toggle("none", value === NONE);
  const small = document.createElement("small");
  small.textContent = unit;
  $(id).replaceChildren(String(value), ...(unit ? [small] : []));
}

export function warn(message) {
  const item = document.createElement("li");
  item.textContent = message;
  $("warnings").append(item);
}
