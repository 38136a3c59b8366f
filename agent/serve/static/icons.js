// Icons as strokes on a grid of 20; decoration beside text, so always hidden from listeners.
import { svg } from "./dom.js";

const PATHS = {
  ask: "M10 4v12M4 10h12",
  history: "M3.5 10a6.5 6.5 0 1 1 2 4.7M3.5 16v-4h4M10 6.5V10l2.5 1.5",
  threads: "M4 5.5h12M4 10h12M4 14.5h7",
  memory: "M5 3.5h10v13l-5-3.2-5 3.2z",
  judge: "M10 4v12.5M6 16.5h8M4 6.5h12M4 6.5L2 11.5h4zM16 6.5l-2 5h4z",
  training: "M3 16.5h14M4 13l4-4.5 3 2.5 5-6.5",
  settings: "M4 6h7M15 6h1M4 14h1M9 14h7M13 8a2 2 0 1 0 0-4a2 2 0 1 0 0 4M7 16a2 2 0 1 0 0-4a2 2 0 1 0 0 4",
  search: "M9 15A6 6 0 1 0 9 3a6 6 0 0 0 0 12zM13.5 13.5L17 17",
  page: "M6 3h6l3 3v11H6zM12 3v3h3",
  check: "M4 10.5l4 4 8-9",
  half: "M4.5 10h11",
  cross: "M5 5l10 10M15 5L5 15",
  open: "M10 3.5a6.5 6.5 0 1 0 0 13a6.5 6.5 0 1 0 0-13",
  warn: "M10 3.5l7.5 13h-15zM10 8.5v3.5M10 14.2v.01",
  pen: "M4 16l.8-3.4L13.3 4l2.7 2.7-8.6 8.5zM11.5 5.8l2.7 2.7",
  stop: "M5.5 5.5h9v9h-9z",
  pin: "M7 3.5h6M8 3.5v5l-2.5 3h9L12 8.5v-5M10 11.5v5.5",
  branch: "M6 4v12M6 12c0-3.5 8-2 8-6M14 6V4",
  trash: "M4 6h12M8 6V4h4v2M5.5 6l.8 10.5h7.4L14.5 6",
  send: "M10 16V4.5M5 9.5l5-5 5 5",
  left: "M12 5l-5 5 5 5",
  right: "M8 5l5 5-5 5",
  down: "M10 4v9M6 9.5l4 4 4-4M4 16.5h12",
  sun:
    "M10 13.5a3.5 3.5 0 1 0 0-7a3.5 3.5 0 1 0 0 7M10 2.5v1.5M10 16v1.5" +
    "M2.5 10H4M16 10h1.5M4.7 4.7l1 1M14.3 14.3l1 1M4.7 15.3l1-1M14.3 5.7l1-1",
  moon: "M15.5 12A6.5 6.5 0 0 1 8 4.5a6.5 6.5 0 1 0 7.5 7.5z",
  auto: "M3 4.5h14v9H3zM7.5 16.5h5M10 13.5v3",
};

export function icon(name) {
  const drawn = svg("path", { d: PATHS[name] });
  return svg(
    "svg",
    { viewBox: "0 0 20 20", class: `icon icon-${name}`, "aria-hidden": "true" },
    drawn,
  );
}
