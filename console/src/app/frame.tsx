// The frame around every page: the rail on the left (a bar at the bottom on a phone), breadcrumb and settings at the top.
import { Link, Outlet, useRouter } from "@tanstack/react-router";
import {
  FileText,
  Gavel,
  GitBranch,
  Inbox,
  ListChecks,
  LogOut,
  type LucideIcon,
  ScrollText,
  Settings2,
  Workflow,
} from "lucide-react";
import { useTranslation } from "react-i18next";
import { Button } from "@/ui/button";
import { LANGUAGES, type Language, setLanguage } from "./i18n";
import { signOut, useMe } from "./session";
import { setTheme, THEMES, type Theme, useTheme } from "./theme";

const PAGES = [
  { to: "/inbox", key: "inbox", Icon: Inbox },
  { to: "/work", key: "work", Icon: ListChecks },
  { to: "/processes", key: "processes", Icon: Gavel },
  { to: "/runs", key: "runs", Icon: Workflow },
  { to: "/definitions", key: "definitions", Icon: GitBranch },
  { to: "/ledger", key: "ledger", Icon: ScrollText },
  { to: "/admin", key: "admin", Icon: Settings2 },
] as const satisfies readonly { to: string; key: string; Icon: LucideIcon }[];

export function Frame() {
  const { t } = useTranslation();
  return (
    <div className="min-h-dvh sm:grid sm:grid-cols-[3.5rem_1fr] xl:grid-cols-[13rem_1fr]">
      <a href="#main" className="sr-only focus:not-sr-only focus:absolute focus:z-50 focus:bg-page focus:p-3">
        {t("frame.skip")}
      </a>
      <nav
        aria-label={t("frame.pages")}
        className="fixed inset-x-0 bottom-0 z-30 flex justify-around border-t border-line bg-wash pb-[env(safe-area-inset-bottom)] sm:sticky sm:top-0 sm:h-dvh sm:flex-col sm:justify-start sm:gap-0.5 sm:border-t-0 sm:border-r sm:px-2 sm:py-4"
      >
        <Link
          to="/inbox"
          className="hidden items-center gap-2 px-2 pb-4 font-serif text-lg font-semibold sm:flex"
        >
          <FileText aria-hidden size={20} className="shrink-0 text-accent" />
          <span className="hidden xl:inline">Countersign</span>
        </Link>
        {PAGES.map(({ to, key, Icon }) => (
          <Link
            key={to}
            to={to}
            title={t(`page.${key}`)}
            className="flex min-h-11 items-center gap-3 rounded-md px-3 text-soft hover:text-ink sm:min-h-9 sm:px-2.5"
            activeProps={{ className: "bg-accent-wash font-medium !text-accent", "aria-current": "page" }}
          >
            <Icon aria-hidden size={19} className="shrink-0" />
            <span className="sr-only xl:not-sr-only">{t(`page.${key}`)}</span>
          </Link>
        ))}
      </nav>
      <div className="min-w-0 pb-16 sm:pb-0">
        <Top />
        <main id="main" tabIndex={-1} className="mx-auto max-w-[90rem] px-4 py-6 outline-none sm:px-8">
          <Outlet />
        </main>
      </div>
    </div>
  );
}

function Top() {
  const { t, i18n } = useTranslation();
  const theme = useTheme();
  const { data: me } = useMe();
  const router = useRouter();
  const pick =
    "rounded-md border border-transparent bg-transparent px-1 py-1 text-xs text-soft hover:border-line";
  return (
    <header className="flex items-center justify-end gap-2 border-b border-line px-4 py-2 sm:px-8">
      <select
        aria-label={t("frame.language")}
        value={i18n.language}
        onChange={(event) => setLanguage(event.target.value as Language)}
        className={pick}
      >
        {LANGUAGES.map((language) => (
          <option key={language} value={language}>
            {t(`language.${language}`)}
          </option>
        ))}
      </select>
      <select
        aria-label={t("frame.theme")}
        value={theme}
        onChange={(event) => setTheme(event.target.value as Theme)}
        className={pick}
      >
        {THEMES.map((name) => (
          <option key={name} value={name}>
            {t(`theme.${name}`)}
          </option>
        ))}
      </select>
      <span className="max-w-40 truncate text-sm" title={me?.actor_ref}>
        {me?.display_name ?? me?.actor_ref}
      </span>
      <Button
        look="quiet"
        aria-label={t("frame.signOut")}
        title={t("frame.signOut")}
        onClick={() => void signOut().then(() => router.navigate({ to: "/sign-in" }))}
      >
        <LogOut aria-hidden size={17} />
      </Button>
    </header>
  );
}
