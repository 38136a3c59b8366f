// The report's markup, of which DOMPurify leaves what is listed here: the server cleaned it before,
// and this is the second lock on the same door.
import "./vendor/purify.min.js";
import { webAddress } from "./format.js";

const CLASSES = new Set([
  "alone", "bare", "center", "cite", "left", "maths", "none", "partial", "right", "table-wrap", "tied",
  "unsupported", "within",
]);
/** Those of code, as Pygments names them. */
const CODE = /^c-[a-z0-9]{1,3}$/;
const MARK = /^c(\d{1,4})$/;
const RULES = {
  ALLOWED_TAGS: [
    "a", "blockquote", "br", "button", "code", "del", "div", "em", "h2", "h3", "h4", "h5", "h6",
    "hr", "i", "li", "ol", "p", "pre", "s", "span", "strong", "sub", "sup", "table", "tbody", "td",
    "th", "thead", "tr", "ul",
  ],
  ALLOWED_ATTR: ["aria-label", "class", "href", "popovertarget", "role", "start", "tabindex"],
  ALLOW_ARIA_ATTR: false,
  ALLOW_DATA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};
const purify = globalThis.DOMPurify(window);

/** A fragment of the allowed parts of `markup`; marks of citations carry `data-citation`. */
export function sanitised(markup) {
  const fragment = purify.sanitize(markup, RULES);
  for (const one of fragment.querySelectorAll("[class]")) {
    one.className = [...one.classList].filter((name) => CLASSES.has(name) || CODE.test(name)).join(" ");
  }
  fragment.querySelectorAll("a").forEach(link);
  fragment.querySelectorAll("button").forEach(mark);
  return fragment;
}

function link(anchor) {
  const address = webAddress(anchor.getAttribute("href"));
  if (!address) return anchor.removeAttribute("href");
  anchor.href = address;
  anchor.target = "_blank";
  anchor.rel = "noopener noreferrer nofollow";
}

/** A button that is no mark gives way to what it holds. */
function mark(button) {
  const found = MARK.exec(button.getAttribute("popovertarget") ?? "");
  if (!found) return button.replaceWith(...button.childNodes);
  button.removeAttribute("popovertarget");
  button.type = "button";
  button.dataset.citation = found[1];
}
