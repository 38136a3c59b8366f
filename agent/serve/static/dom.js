// Elements are built here and nowhere else: text goes in as text nodes, never as markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element with its attributes and children.
 *
 * `on` holds listeners, `data` the dataset, `class` may hold falsy parts; a property whose value
 * is true or false is set as one, a null is left out. Children are nodes, strings or lists.
 */
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) set(element, name, value);
  return fill(element, children);
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return fill(element, children);
}

function set(element, name, value) {
  if (value === null || value === undefined) return;
  if (name === "on") {
    for (const event of Object.keys(value)) element.addEventListener(event, value[event]);
  } else if (name === "data") Object.assign(element.dataset, value);
  else if (typeof value === "boolean" && name in element) element[name] = value;
  else element.setAttribute(name, value);
}

function fill(element, children) {
  element.append(
    ...children.flat(Infinity).filter(
      (child) => child !== null && child !== undefined && child !== false && child !== ""
    )
  );
  return element;
}

export function replace(element, ...children) {
  element.replaceChildren();
  return fill(element, children);
}

/** Class names joined, those that are falsy left out. */
export const classes = (...names) => names.filter(Boolean).join(" ");

/** Sentences for whoever listens instead of looking; the last one within a second is said. */
let timer = 0;
export function say(sentence) {
  clearTimeout(timer);
  timer = setTimeout(() => (document.getElementById("said").textContent = sentence), 400);
}

let ids = 0;
/** An id for what a label or a description has to name. */
export const fresh = (stem) => `${stem}-${++ids}`;
