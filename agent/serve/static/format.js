// Numbers and times in a reader's words.
import { language, plural, t } from "./texts.js";

export const number = (value) => (value ?? 0).toLocaleString(language);

/** Those that a budget counts: read, unless from a cache, and written. */
export const newTokens = ({ prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0 }) => (
  prompt_tokens - cached_tokens + completion_tokens
);

export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds ?? 0));
  const [hours, minutes, rest] = [
    Math.floor(whole / 3600),
    Math.floor(whole / 60) % 60,
    whole % 60,
  ];
  const two = (value) => String(value).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

export const money = (dollars) => (
  dollars == null ? "–" : `$${dollars.toFixed(dollars < 1 ? 4 : 2)}`
);

/** A number with its noun; `many` where the plural is not made by an s. */
export const counted = (
  count,
  one,
  many = `${one}s`,
) => `${number(count)} ${plural(`${one}|${many}`, count)}`;

/** From one value to another, the last with its noun. */
export const between = ([low, high], last, first = (value) => number(Math.round(value))) => (
  last(low) === last(high) ? last(high) : `${first(low)}–${last(high)}`
);

const TODAY = new Intl.DateTimeFormat(language, { hour: "2-digit", minute: "2-digit", hour12: false });
const DAY = new Intl.DateTimeFormat(language, { day: "numeric", month: "short", year: "numeric" });

export function when(stamp) {
  const date = new Date(stamp);
  if (Number.isNaN(date.getTime())) return "";
  const today = date.toDateString() === new Date().toDateString();
  return today ? t("today, {0}", TODAY.format(date)) : DAY.format(date);
}

const CLOCK = new Intl.DateTimeFormat(
  language,
  { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false },
);

/** A time of this day, to the second. */
export const clock = (date) => CLOCK.format(date);

/** The address where it is safe to link (http or https), else null. */
export function webAddress(location) {
  if (!/^https?:\/\//i.test(location ?? "")) return null;
  return URL.canParse(location) ? new URL(location).href : null;
}

/** What a reader knows a place by: the host of an address, the end of a path. */
export function whereabouts(location) {
  const address = webAddress(location);
  return address ? new URL(address).hostname.replace(/^www\./, "") : (location ?? "");
}

export const share = (value) => (value == null ? "–" : value.toFixed(2));

export const capital = (word) => t(
  word.charAt(0).toUpperCase() + word.slice(1).replaceAll("_", " ")
);
