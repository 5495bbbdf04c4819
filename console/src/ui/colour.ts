// Colours of states for each theme, computed from the registry's tokens, so that text and marks keep their contrast (WCAG AA).
import type { SchemaTokenDef } from "@/api/schema";

export interface Colours {
  /** Text and ground of a chip. */
  fg: string;
  bg: string;
  /** A mark on the page's own ground: an icon, an edge, a bar. */
  line: string;
}

type Rgb = [number, number, number];

const parse = (hex: string): Rgb => {
  const value = Number.parseInt(hex.slice(1), 16);
  return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
};
const format = (rgb: Rgb) => `#${rgb.map((part) => Math.round(part).toString(16).padStart(2, "0")).join("")}`;
const mix = (a: Rgb, b: Rgb, share: number) =>
  a.map((part, at) => part * (1 - share) + (b[at] ?? 0) * share) as Rgb;

function luminance(rgb: Rgb): number {
  const [r = 0, g = 0, b = 0] = rgb.map((part) => {
    const c = part / 255;
    return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

export function contrast(a: string, b: string): number {
  const [x, y] = [luminance(parse(a)), luminance(parse(b))];
  return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
}

/** The colour, moved towards `to` until it is readable on the ground. */
function readable(colour: string, ground: string, to: Rgb, wanted: number): string {
  for (let share = 0; share < 1; share += 0.05) {
    const tried = format(mix(parse(colour), to, share));
    if (contrast(tried, ground) >= wanted) return tried;
  }
  return format(to);
}

const WHITE: Rgb = [255, 255, 255];
const BLACK: Rgb = [0, 0, 0];
const PAGE: Record<string, string> = { light: "#ffffff", dark: "#14181d", contrast: "#000000" };

const known = new Map<string, Colours>();

/** The colours of a token in a theme. */
export function coloursOf(token: SchemaTokenDef | undefined, theme: string): Colours {
  if (!token) return { fg: "var(--soft)", bg: "var(--wash)", line: "var(--strong-line)" };
  const key = `${theme}:${token.token}`;
  const before = known.get(key);
  if (before) return before;
  // The strong one of the pair: tokens are either dark on pale, or white on strong.
  const hue = contrast(token.bg, "#ffffff") > 3 ? token.bg : token.fg;
  const page = PAGE[theme] ?? "#ffffff";
  let made: Colours;
  if (theme === "light") made = { fg: token.fg, bg: token.bg, line: readable(hue, page, BLACK, 3.2) };
  else if (theme === "dark") {
    const bg = format(mix(parse(hue), parse(page), 0.7));
    made = { fg: readable(hue, bg, WHITE, 5), bg, line: readable(hue, page, WHITE, 4.5) };
  } else
    made = {
      fg: token.high_contrast.fg,
      bg: token.high_contrast.bg,
      line: readable(hue, page, WHITE, 7),
    };
  known.set(key, made);
  return made;
}
