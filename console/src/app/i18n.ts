// English and Vietnamese. The two files have the same keys: the compiler checks it.
import i18next from "i18next";
import { initReactI18next } from "react-i18next";
import { en } from "@/locales/en";
import { vi } from "@/locales/vi";

export const LANGUAGES = ["en", "vi"] as const;
export type Language = (typeof LANGUAGES)[number];

export function startLanguage(): Language {
  const chosen = localStorage.getItem("countersign.language") ?? navigator.language;
  return chosen.startsWith("vi") ? "vi" : "en";
}

export function setLanguage(language: Language) {
  localStorage.setItem("countersign.language", language);
  document.documentElement.lang = language;
  void i18next.changeLanguage(language);
}

void i18next.use(initReactI18next).init({
  lng: startLanguage(),
  fallbackLng: "en",
  resources: { en: { translation: en }, vi: { translation: vi } },
  interpolation: { escapeValue: false },
  returnNull: false,
});
document.documentElement.lang = i18next.language;

declare module "i18next" {
  interface CustomTypeOptions {
    resources: { translation: typeof en };
  }
}
