// A line chart: uPlot draws it and its axes; values are read by pointer, by key, and as a table.
import { el, fresh, replace, svg } from "./dom.js";
import { t } from "./texts.js";

const HEIGHT = 165;
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 50_000, 100_000];
const DASHES = [[], [7, 3], [2, 3], [9, 3, 2, 3], [4, 4], [1, 4]];
const FONT = "12px system-ui, sans-serif";
const MANY = 60;
/** what is drawn anew where the theme changes, since a canvas keeps its colours */
const PLOTS = new Set();
let loading = null;

function recolour() {
  for (const plot of PLOTS) {
    if (plot.root.isConnected) plot.redraw(false);
    else PLOTS.delete(plot);
  }
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
addEventListener("theme", recolour);

/** uPlot; it is loaded with the first chart, and not before. */
async function library() {
  const { promise, resolve, reject } = Promise.withResolvers();
  const script = el("script", { src: "static/vendor/uPlot.iife.min.js" });
  script.addEventListener("load", () => resolve(globalThis.uPlot));
  script.addEventListener("error", reject);
  document.head.append(
    el("link", { rel: "stylesheet", href: "static/vendor/uPlot.min.css" }),
    script,
  );
  return promise;
}

export const shown = (value) => (
  value == null
    ? t("no value")
    : Number(value.toPrecision(4)).toLocaleString("en", { maximumSignificantDigits: 4 })
);

/** `series`: [{name, points: [[x, y or null], ...]}], x rising and the same in all. */
export function lineChart({ title, x: xName, y: yName, series, low = null, high = null }) {
  const chart = new LineChart(series, [xName, yName], [low, high]);
  const caption = el("figcaption", { id: fresh("chart") }, title);
  return el(
    "figure",
    { class: "card chart", "aria-labelledby": caption.id },
    el("div", { class: "row apart" }, caption, series.length > 1 && legend(series)),
    chart.place(title),
    chart.readout,
    table(series, xName),
  );
}

class LineChart {
  constructor(series, [xName, yName], bounds) {
    Object.assign(this, { series, xName, yName, bounds });
    this.xs = series[0].points.map(([x]) => x);
    this.at = this.xs.length - 1;
    this.readout = el("p", { class: "readout small", "aria-hidden": "true" });
    this.hues = series.map((_, i) => el("i", { class: `hue s${i % 6}`, hidden: true }));
  }

  /** Where it is drawn, once it stands on the page. */
  place(title) {
    const slider = {
      role: "slider",
      tabindex: "0",
      "aria-label": t("{0}, value at each {1}", title, this.xName),
      "aria-valuemin": "0",
      "aria-valuemax": String(this.xs.length - 1),
    };
    this.slider = el("div", { class: "plot", ...slider }, this.hues);
    this.slider.addEventListener("keydown", (event) => this.key(event));
    this.slider.addEventListener("pointermove", (event) => this.follow(event));
    this.show(this.at);
    const sized = new ResizeObserver(([{ contentRect }]) => this.draw(contentRect.width));
    sized.observe(this.slider);
    return this.slider;
  }

  async draw(width) {
    if (!width) return;
    if (this.plot) return this.plot.setSize({ width, height: HEIGHT });
    if (this.drawing) return;
    this.drawing = true;
    const Plot = await (loading ??= library());
    const data = [this.xs, ...this.series.map(({ points }) => points.map(([, y]) => y ?? null))];
    this.plot = new Plot(this.options(width), data, this.slider);
    for (const canvas of this.slider.querySelectorAll("canvas")) canvas.ariaHidden = "true";
    PLOTS.add(this.plot);
  }

  options(width) {
    const [low, high] = this.bounds;
    const axis = { stroke: () => this.inked("soft"), font: FONT, labelFont: FONT, labelSize: 18 };
    const lines = { stroke: () => this.inked("line"), width: 1 };
    const plain = { ...axis, grid: lines, ticks: lines };
    return {
      width,
      height: HEIGHT,
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false } },
      scales: {
        x: { time: false },
        y: { range: (_, least, most) => around(low ?? least, high ?? most, low, high) },
      },
      axes: [
        { ...plain, label: this.xName, incrs: WHOLE, size: 32 },
        { ...plain, label: this.yName, size: 52, values: (_, found) => found.map(shown) },
      ],
      series: [{}, ...this.series.map(({ name }, i) => this.line(name, i))],
      hooks: { ready: [(plot) => this.point(plot)] },
    };
  }

  line(name, i) {
    const hue = () => getComputedStyle(this.hues[i]).color;
    return {
      label: name,
      stroke: hue,
      width: 2,
      dash: DASHES[i % DASHES.length],
      points: { show: this.xs.length <= MANY, size: 6, fill: hue },
    };
  }

  /** A colour of the page, as a canvas takes it. */
  inked(name) {
    this.ink ??= el("i", { hidden: true });
    if (!this.ink.isConnected) this.slider.append(this.ink);
    this.ink.className = `ink-${name}`;
    return getComputedStyle(this.ink).color;
  }

  key(event) {
    const steps = {
      ArrowLeft: -1,
      ArrowDown: -1,
      ArrowRight: 1,
      ArrowUp: 1,
      PageDown: -10,
      PageUp: 10,
      Home: -Infinity,
      End: Infinity,
    };
    if (!(event.key in steps)) return;
    event.preventDefault();
    this.show(this.at + steps[event.key]);
    this.point();
  }

  /** A pointer that moves reads; one that a chart appeared under does not. */
  follow({ clientX, movementX, movementY }) {
    if (!this.plot || !(movementX || movementY)) return;
    this.show(this.plot.posToIdx(clientX - this.plot.over.getBoundingClientRect().left));
  }

  /** The cursor stands where the values are read. */
  point(plot = this.plot) {
    plot?.setCursor({ left: plot.valToPos(this.xs[this.at], "x"), top: 0 }, false);
  }

  show(at) {
    this.at = Math.max(0, Math.min(this.xs.length - 1, at));
    const x = this.xs[this.at];
    const said = this.series.map(({ name, points }) => `${name} ${shown(points[this.at][1])}`);
    this.slider.setAttribute("aria-valuenow", String(this.at));
    this.slider.setAttribute("aria-valuetext", `${this.xName} ${x}: ${said.join(", ")}`);
    replace(
      this.readout,
      el("strong", {}, `${this.xName} ${x}`),
      said.map((one) => el("span", {}, one)),
    );
  }
}

/** The ends of an axis: those that are given, else with some room around the values. */
function around(least, most, low, high) {
  const pad = (most - least) * 0.06 || Math.abs(most) * 0.1 || 1;
  return [low ?? least - pad, high ?? most + pad];
}

function legend(series) {
  const row = ({ name }, i) => el(
    "li",
    {},
    svg(
      "svg",
      { viewBox: "0 0 24 8", class: `key s${i % 6}`, "aria-hidden": "true" },
      svg("path", { d: "M1 4h22" }),
    ),
    name,
  );
  return el("ul", { class: "legend-list" }, series.map(row));
}

function table(series, xName) {
  const head = el(
    "tr",
    {},
    el("th", { scope: "col" }, xName),
    series.map(({ name }) => el("th", { scope: "col" }, name)),
  );
  const rows = series[0].points.map(
    ([x], i) => el(
      "tr",
      {},
      el("th", { scope: "row" }, String(x)),
      series.map(({ points }) => el("td", {}, shown(points[i][1]))),
    )
  );
  return el(
    "details",
    { class: "fold" },
    el("summary", {}, t("As a table")),
    el(
      "div",
      { class: "table-wrap", tabindex: "0", role: "region", "aria-label": t("Values") },
      el("table", { class: "table" }, el("thead", {}, head), el("tbody", {}, rows)),
    ),
  );
}
