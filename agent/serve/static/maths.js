// Formulas, typeset by KaTeX; it is loaded where a report holds one, and not before.
import { el } from "./dom.js";

const LIMITS = { throwOnError: true, trust: false, strict: "ignore", maxExpand: 500, maxSize: 20 };
let loading = null;

async function katex() {
  document.head.append(el("link", { rel: "stylesheet", href: "static/vendor/katex.min.css" }));
  await import("./vendor/katex.min.js");
  return globalThis.katex;
}

/** Put formulas in the place of their sources; one that KaTeX does not understand stays as it is. */
export async function typeset(place) {
  const sources = place.querySelectorAll(".maths > code");
  if (!sources.length) return;
  const { render } = await (loading ??= katex());
  for (const source of sources) {
    const formula = el("span");
    try {
      const displayMode = source.classList.contains("alone");
      render(source.textContent, formula, { ...LIMITS, displayMode });
      source.replaceWith(formula);
    } catch {
      source.classList.remove("within"); // it reads as code
    }
  }
}
