// @vitest-environment jsdom
import { expect, it } from "vitest";
import { setLanguage, t, wordsFor } from "@/app/i18n";
import { en } from "@/locales/en";
import { vi } from "@/locales/vi";
import { duration } from "@/ui/time";

function leaves(words: object, path = ""): [string, string][] {
  return Object.entries(words).flatMap(([key, value]) =>
    typeof value === "string"
      ? [[`${path}${key}`, value] as [string, string]]
      : leaves(value, `${path}${key}.`),
  );
}

it("fills texts, and counts in each language", () => {
  setLanguage("en");
  expect(t("run.found", { count: 1 })).toBe("1 match");
  expect(t("run.found", { count: 4 })).toBe("4 matches");
  expect(t("gate.notYours", { who: "Ana" })).toBe("Ana decides this.");
  expect(wordsFor(t, "gate.state", "Approved")).toBe("approved");
  expect(wordsFor(t, "gate.state", "newer_than-this")).toBe("newer than this");
  setLanguage("vi");
  expect(t("common.close")).toBe(vi.common.close);
  expect(document.documentElement.lang).toBe("vi");
});

it("names durations in the language", () => {
  expect(duration(3_840_000, "en")).toBe("1 h 4 min");
  expect(duration(3_840_000, "vi")).toBe("1 giờ 4 phút");
  expect(duration(200_000_000, "vi")).toBe("2 ngày 7 giờ");
});

it("has the same fields in both languages, and no text that was not translated", () => {
  const vietnamese = new Map(leaves(vi));
  const fields = (text: string) => [...text.matchAll(/\{\{(\w+)\}\}/g)].map(([, name]) => name).sort();
  const same: string[] = [];
  for (const [key, text] of leaves(en)) {
    const other = vietnamese.get(key) ?? "";
    const [wanted, given] = [new Set(fields(text)), new Set(fields(other))];
    // "one match" names no number; the language without plurals does.
    wanted.delete("count");
    given.delete("count");
    expect([key, given]).toEqual([key, wanted]);
    if (text === other && /[a-z]{3}/.test(text.replaceAll(/\{\{\w+\}\}/g, ""))) same.push(key);
  }
  // Words that are the same in both.
  expect(same).toEqual(SAME);
});

const SAME = ["language.en"];
