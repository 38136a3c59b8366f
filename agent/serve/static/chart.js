// A line chart as SVG: axes, series with their own dash and mark, values by pointer and by key.
import { el, fresh, replace, svg } from "./dom.js";

const WIDE = [640, 240];
const NARROW = [340, 220];
const MARGIN = { left: 52, right: 16, top: 14, bottom: 40 };
const TICKS = 5;

/** Round steps that divide a span into about `TICKS` parts. */
function ticks(low, high) {
  const span = high - low || 1;
  const power = 10 ** Math.floor(Math.log10(span / TICKS));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => span / each <= TICKS);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from(
    { length: last - first + 1 },
    (_, i) => Number(((first + i) * step).toPrecision(12)),
  );
}

export const shown = (value) => (
  value == null
    ? "no value"
    : Number(value.toPrecision(4)).toLocaleString("en", { maximumSignificantDigits: 4 })
);

/** `series`: [{name, points: [[x, y or null], ...]}], x rising and the same in all. */
export function lineChart({ title, x: xName, y: yName, series, low = null, high = null }) {
  const chart = new LineChart(series, xName, [low, high]);
  const caption = el("figcaption", { id: fresh("chart") }, title);
  const scale = el("p", { class: "small soft" }, yName);
  return el(
    "figure",
    { class: "card chart", "aria-labelledby": caption.id },
    el("div", { class: "row apart" }, caption, series.length > 1 && legend(series)),
    scale,
    chart.drawn(title),
    chart.readout,
    table(series, xName),
  );
}

class LineChart {
  constructor(series, xName, [low, high]) {
    this.series = series;
    this.xName = xName;
    this.xs = series[0].points.map(([x]) => x);
    const values = series.flatMap(
      ({ points }) => points.map(([, y]) => y)
    ).filter((y) => y != null);
    const [least, most] = [Math.min(...values), Math.max(...values)];
    const pad = (most - least) * 0.06 || Math.abs(most) * 0.1 || 1;
    this.range = [low ?? least - pad, high ?? most + pad];
    this.readout = el("p", { class: "readout small", "aria-hidden": "true" });
    this.place = this.xs.length - 1;
    [this.width, this.height] = matchMedia("(max-width: 36rem)").matches ? NARROW : WIDE;
  }

  atX(x) {
    const [first, last] = [this.xs[0], this.xs.at(-1)];
    return MARGIN.left + ((x - first) / (last - first || 1)) * (
      this.width - MARGIN.left - MARGIN.right
    );
  }

  atY(y) {
    const [low, high] = this.range;
    return this.height - MARGIN.bottom - ((y - low) / (high - low || 1)) * (
      this.height - MARGIN.top - MARGIN.bottom
    );
  }

  drawn(title) {
    this.cursor = svg("line", { class: "cursor", y1: MARGIN.top, y2: this.height - MARGIN.bottom });
    const picture = svg(
      "svg",
      { viewBox: `0 0 ${this.width} ${this.height}`, "aria-hidden": "true" },
      this.axes(),
      this.cursor,
      this.series.map((one, i) => this.line(one, i)),
    );
    const slider = {
      role: "slider",
      tabindex: "0",
      "aria-label": `${title}, value at each ${this.xName}`,
      "aria-valuemin": "0",
      "aria-valuemax": String(this.xs.length - 1),
    };
    this.slider = el("div", { class: "plot", ...slider }, picture);
    this.slider.addEventListener("keydown", (event) => this.key(event));
    this.slider.addEventListener("pointermove", (event) => this.point(event));
    this.show(this.place);
    return this.slider;
  }

  axes() {
    const base = this.height - MARGIN.bottom;
    const rows = ticks(...this.range).map(
      (y) => [
        svg(
          "line",
          {
            class: "grid",
            x1: MARGIN.left,
            x2: this.width - MARGIN.right,
            y1: this.atY(y),
            y2: this.atY(y),
          },
        ),
        svg("text", { x: MARGIN.left - 8, y: this.atY(y) + 4, "text-anchor": "end" }, shown(y)),
      ]
    );
    const whole = ticks(this.xs[0], this.xs.at(-1)).filter(Number.isInteger);
    const columns = whole.map(
      (x) => svg("text", { x: this.atX(x), y: base + 18, "text-anchor": "middle" }, String(x))
    );
    const name = svg(
      "text",
      {
        x: (MARGIN.left + this.width - MARGIN.right) / 2,
        y: this.height - 4,
        "text-anchor": "middle",
      },
      this.xName,
    );
    return svg(
      "g",
      { class: "axes" },
      rows,
      svg("line", { x1: MARGIN.left, x2: this.width - MARGIN.right, y1: base, y2: base }),
      columns,
      name,
    );
  }

  /** A line broken where there is no value, and a dot for each value. */
  line({ points }, place) {
    let drawing = false;
    const d = points.map(([x, y]) => {
      const move = drawing ? "L" : "M";
      drawing = y != null;
      return y == null ? "" : `${move}${this.atX(x).toFixed(1)} ${this.atY(y).toFixed(1)}`;
    });
    const dots = points.filter(([, y]) => y != null).map(
      ([x, y]) => svg(
        "circle",
        { cx: this.atX(x), cy: this.atY(y), r: points.length > 60 ? 1.5 : 2.8 },
      )
    );
    return svg("g", { class: `series s${place % 6}` }, svg("path", { d: d.join("") }), dots);
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
    this.show(this.place + steps[event.key]);
  }

  point(event) {
    const box = this.slider.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * this.width;
    const near = this.xs.reduce(
      (best, x, i) => (
        Math.abs(this.atX(x) - at) < Math.abs(this.atX(this.xs[best]) - at) ? i : best
      ),
      0,
    );
    this.show(near);
  }

  show(place) {
    this.place = Math.max(0, Math.min(this.xs.length - 1, place));
    const x = this.xs[this.place];
    const said = this.series.map(({ name, points }) => `${name} ${shown(points[this.place][1])}`);
    this.cursor.setAttribute("x1", this.atX(x));
    this.cursor.setAttribute("x2", this.atX(x));
    this.slider.setAttribute("aria-valuenow", String(this.place));
    this.slider.setAttribute("aria-valuetext", `${this.xName} ${x}: ${said.join(", ")}`);
    replace(
      this.readout,
      el("strong", {}, `${this.xName} ${x}`),
      said.map((one) => el("span", {}, one)),
    );
  }
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
    el("summary", {}, "As a table"),
    el(
      "div",
      { class: "table-wrap", tabindex: "0", role: "region", "aria-label": "Values" },
      el("table", { class: "table" }, el("thead", {}, head), el("tbody", {}, rows)),
    ),
  );
}
