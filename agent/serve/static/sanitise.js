// The report's markup, built anew from what is allowed: the server renders it with HTML off, and
// this is the second lock on the same door.
//
// Nothing of the parsed document is put into the page: allowed elements are made afresh with
// allowed attributes, unknown ones give way to their children, and what could run, load or style
// goes with all that is in it.
import { webAddress } from "./format.js";

const ALLOWED = new Set([
  "a", "blockquote", "br", "button", "code", "em", "h2", "h3", "h4", "h5", "h6", "hr", "i",
  "li", "ol", "p", "pre", "span", "strong", "sub", "sup", "table", "tbody", "td", "th",
  "thead", "tr", "ul",
]);
const DROPPED = new Set([
  "applet", "audio", "base", "embed", "form", "frame", "frameset", "iframe", "input", "link",
  "math", "meta", "noembed", "noframes", "noscript", "object", "plaintext", "script", "select",
  "style", "svg", "template", "textarea", "title", "video", "xmp",
]);
const CLASSES = new Set(["bare", "cite", "none", "partial", "tied", "unsupported"]);
const HTML = "http://www.w3.org/1999/xhtml";
const MARK = /^c(\d{1,4})$/;
const DEEPEST = 60;

/** A fragment of the allowed parts of `markup`; marks of citations carry `data-citation`. */
export function sanitised(markup) {
  const parsed = new DOMParser().parseFromString(markup, "text/html");
  const fragment = document.createDocumentFragment();
  copy(parsed.body, fragment, 0);
  return fragment;
}

function copy(from, to, depth) {
  for (const node of from.childNodes) {
    if (node.nodeType === Node.TEXT_NODE) to.append(node.data);
    else if (node.nodeType === Node.ELEMENT_NODE) element(node, to, depth + 1);
  }
}

function element(node, to, depth) {
  const name = node.localName;
  if (node.namespaceURI !== HTML || DROPPED.has(name)) return;
  if (depth > DEEPEST) {
    to.append(node.textContent);
    return;
  }
  if (!ALLOWED.has(name) || (name === "button" && !MARK.test(value(node, "popovertarget")))) {
    copy(node, to, depth);
    return;
  }
  const made = document.createElement(name);
  attributes(node, made);
  copy(node, made, depth);
  to.append(made);
}

const value = (node, name) => node.getAttribute(name) ?? "";

function attributes(node, made) {
  const names = [...node.classList].filter((name) => CLASSES.has(name));
  if (names.length) made.className = names.join(" ");
  if (made.localName === "a") link(node, made);
  if (made.localName === "button") mark(node, made);
  const start = value(node, "start");
  if (made.localName === "ol" && /^\d{1,6}$/.test(start)) made.start = Number(start);
}

function link(node, made) {
  const address = webAddress(node.getAttribute("href"));
  if (!address) return;
  made.href = address;
  made.target = "_blank";
  made.rel = "noopener noreferrer nofollow";
}

function mark(node, made) {
  made.type = "button";
  made.dataset.citation = MARK.exec(node.getAttribute("popovertarget"))[1];
  const label = node.getAttribute("aria-label");
  if (label) made.setAttribute("aria-label", label);
}
