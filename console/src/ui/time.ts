// Times and durations in words.
import { currentLanguage } from "@/app/i18n";

const STEPS: [Intl.RelativeTimeFormatUnit, number][] = [
  ["year", 31_536_000],
  ["month", 2_592_000],
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
  ["second", 1],
];

/** "3 minutes ago", "in 2 hours". */
export function relative(at: number, now: number, language: string): string {
  const seconds = Math.round((at - now) / 1000);
  const words = new Intl.RelativeTimeFormat(language, { numeric: "auto" });
  if (Math.abs(seconds) < 5) return words.format(0, "second");
  const [unit, size] = STEPS.find(([, size]) => Math.abs(seconds) >= size) ?? ["second", 1];
  return words.format(Math.trunc(seconds / size), unit);
}

const UNITS = {
  en: { d: "d", h: "h", min: "min", s: "s" },
  vi: { d: "ngày", h: "giờ", min: "phút", s: "giây" },
} as const;

/** "1 h 4 min", "350 ms"; "1 giờ 4 phút". The two largest units, never more. */
export function duration(ms: number, language = currentLanguage()): string {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const names = UNITS[language];
  const units: [string, number][] = [
    [names.d, 86_400_000],
    [names.h, 3_600_000],
    [names.min, 60_000],
    [names.s, 1000],
  ];
  const first = units.findIndex(([, size]) => ms >= size);
  const parts: string[] = [];
  let rest = ms;
  for (const [name, size] of units.slice(first, first + 2)) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count > 0) parts.push(`${count} ${name}`);
  }
  return parts.join(" ");
}
