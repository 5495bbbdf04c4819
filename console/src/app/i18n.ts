// English and Vietnamese. The two files have the same keys: the compiler checks it, and that a key that is used is there.
import { useSyncExternalStore } from "react";
import { en, type Words } from "@/locales/en";
import { vi } from "@/locales/vi";

export const LANGUAGES = ["en", "vi"] as const;
export type Language = (typeof LANGUAGES)[number];

type Leaves<T, Path extends string = ""> = {
  [Key in keyof T & string]: T[Key] extends string ? `${Path}${Key}` : Leaves<T[Key], `${Path}${Key}.`>;
}[keyof T & string];
type Text = Leaves<Words>;
/** A text that counts has a form for one and a form for many; it is asked for without their endings. */
type Counted<Path> = Path extends `${infer Base}_one` | `${infer Base}_other` ? Base : Path;
/** What a text is called: `gate.reason`. */
export type Key = Counted<Text>;

type Fill = Record<string, string | number>;
export type Translate = (key: Key, fill?: Fill) => string;

const TEXTS: Record<Language, Words> = { en, vi };

function find(words: Words, path: string): string | undefined {
  let at: unknown = words;
  for (const part of path.split(".")) at = (at as Record<string, unknown> | undefined)?.[part];
  return typeof at === "string" ? at : undefined;
}

function translator(language: Language): Translate {
  const words = TEXTS[language];
  const plural = new Intl.PluralRules(language);
  return (key, fill = {}) => {
    const form = "count" in fill ? `${key}_${plural.select(Number(fill.count))}` : key;
    const text = find(words, form) ?? find(words, key) ?? find(words, `${key}_other`);
    if (text === undefined) console.error(`there is no text ${key}`);
    return (text ?? key).replace(/\{\{(\w+)\}\}/g, (whole, name) => String(fill[name] ?? whole));
  };
}

const TRANSLATORS: Record<Language, Translate> = { en: translator("en"), vi: translator("vi") };

const chosen = localStorage.getItem("countersign.language") ?? navigator.language;
let language: Language = chosen.startsWith("vi") ? "vi" : "en";
document.documentElement.lang = language;
const readers = new Set<() => void>();

export const currentLanguage = () => language;

export function setLanguage(next: Language) {
  language = next;
  localStorage.setItem("countersign.language", next);
  document.documentElement.lang = next;
  for (const reader of readers) reader();
}

/** In the language of now, for what is not a component. */
export const t: Translate = (key, fill) => TRANSLATORS[language](key, fill);

export function useTranslation(): { t: Translate; language: Language } {
  const now = useSyncExternalStore((reader) => {
    readers.add(reader);
    return () => readers.delete(reader);
  }, currentLanguage);
  return { t: TRANSLATORS[now], language: now };
}

/** All that comes before the last part of a key. */
type Group<Path = Key> = Path extends `${infer A}.${infer B}.${string}`
  ? `${A}.${B}`
  : Path extends `${infer A}.${string}`
    ? A
    : never;

/** The words for a code of the server; a code that is newer than this page is shown as words. */
export function wordsFor(t: Translate, group: Group, code: string): string {
  const key = `${group}.${code}`;
  return find(TEXTS.en, key) === undefined ? code.replaceAll(/[_-]/g, " ") : t(key as Key);
}
