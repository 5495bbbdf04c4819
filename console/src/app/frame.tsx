// The frame around every page: the rail on the left (a bar at the bottom on a phone), search and settings at the top.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, Outlet, useRouter } from "@tanstack/react-router";
import {
  Gavel,
  GitBranch,
  Inbox,
  ListChecks,
  type LucideIcon,
  ScrollText,
  Search,
  Settings2,
  ShieldAlert,
  Workflow,
} from "lucide-react";
import { lazy, Suspense, useEffect, useState } from "react";
import { api, body } from "@/api/client";
import { useBoard } from "@/api/governance";
import { useConnection, useTopic } from "@/api/stream";
import { useRollupLooks } from "@/pages/runs/looks";
import { Mark } from "@/ui/brand";
import { initials } from "@/ui/person";
import { useToken } from "@/ui/state";
import { LANGUAGES, setLanguage, useTranslation } from "./i18n";
import { useKeys } from "./keys";
import { signOut, useMe } from "./session";
import { DENSITIES, setDensity, setTheme, THEMES, useDensity, useTheme } from "./theme";

const Palette = lazy(() => import("./palette"));
const KeyHelp = lazy(() => import("./key-help"));

const PAGES = [
  { to: "/inbox", key: "inbox", Icon: Inbox },
  { to: "/work", key: "work", Icon: ListChecks },
  { to: "/processes", key: "processes", Icon: Gavel },
  { to: "/runs", key: "runs", Icon: Workflow },
  { to: "/definitions", key: "definitions", Icon: GitBranch },
  { to: "/governance", key: "governance", Icon: ShieldAlert },
  { to: "/ledger", key: "ledger", Icon: ScrollText },
  { to: "/admin", key: "admin", Icon: Settings2 },
] as const satisfies readonly { to: string; key: string; Icon: LucideIcon }[];

export function Frame() {
  const { t } = useTranslation();
  const [open, setOpen] = useState<"search" | "keys">();
  const close = () => setOpen(undefined);
  useKeys({
    search: () => setOpen("search"),
    help: () => setOpen("keys"),
    buttons: { a: t("gate.approve"), r: t("gate.reject") },
  });
  return (
    <div className="min-h-dvh sm:grid sm:grid-cols-[3.75rem_1fr] xl:grid-cols-[13.5rem_1fr]">
      <a href="#main" className="sr-only focus:not-sr-only focus:absolute focus:z-50 focus:bg-page focus:p-3">
        {t("frame.skip")}
      </a>
      <Rail />
      <div className="min-w-0 pb-20 sm:pb-0">
        <header className="sticky top-0 z-20 flex h-14 items-center gap-3 border-b border-line bg-page px-4 sm:px-8">
          <button
            type="button"
            onClick={() => setOpen("search")}
            className="field flex w-full max-w-80 items-center gap-2 text-soft"
          >
            <Search aria-hidden size={16} />
            {t("common.search")}
            <kbd aria-hidden className="key ml-auto hidden sm:inline-block">
              /
            </kbd>
          </button>
          <span className="ml-auto" />
          <Connection />
          <Me onKeys={() => setOpen("keys")} />
        </header>
        <main id="main" tabIndex={-1} className="mx-auto max-w-[96rem] px-4 py-8 outline-none sm:px-8">
          <Outlet />
        </main>
      </div>
      <Suspense>
        {open === "search" && <Palette onClose={close} />}
        {open === "keys" && <KeyHelp onClose={close} />}
      </Suspense>
    </div>
  );
}

/** A count on the rail has two digits of room. */
const COUNTED = 100;
const shown = (count = 0) => (count === 0 ? undefined : count < COUNTED ? String(count) : `${COUNTED - 1}+`);

function Rail() {
  const { t } = useTranslation();
  const client = useQueryClient();
  const inbox = useQuery({
    queryKey: ["inbox", "count"],
    queryFn: () => body(api.GET("/v1/inbox/count")),
  });
  useTopic("inbox", () => void client.invalidateQueries({ queryKey: ["inbox", "count"] }));
  const waiting = shown(inbox.data?.count);
  useEffect(() => {
    document.title = waiting ? `(${waiting}) Countersign` : "Countersign";
    return () => {
      document.title = "Countersign";
    };
  }, [waiting]);
  const work = useQuery({
    queryKey: ["worklist", "count"],
    queryFn: () => body(api.GET("/v1/worklist", { params: { query: { limit: COUNTED } } })),
  });
  useTopic("worklist", () => void client.invalidateQueries({ queryKey: ["worklist", "count"] }));
  const counts: Partial<Record<(typeof PAGES)[number]["key"], string>> = {
    inbox: waiting,
    work: shown(work.data?.items.length),
  };
  const { data: me } = useMe();
  const governs = me?.scopes.includes("governance:read") ?? false;
  const red = useBoard(governs).data?.items.some((row) => row.light === "red");
  return (
    <nav
      aria-label={t("frame.pages")}
      className="fixed inset-x-0 bottom-0 z-30 flex justify-around border-t border-line bg-wash pb-[env(safe-area-inset-bottom)] sm:sticky sm:top-0 sm:h-dvh sm:flex-col sm:justify-start sm:gap-1 sm:border-t-0 sm:border-r sm:px-2.5 sm:py-3"
    >
      <Link
        to="/inbox"
        aria-label="Countersign"
        className="mb-4 hidden h-8 items-center gap-2.5 px-1.5 font-serif text-lg font-semibold sm:flex"
      >
        <Mark />
        <span className="hidden xl:inline">Countersign</span>
      </Link>
      {PAGES.filter(({ key }) => key !== "governance" || governs).map(({ to, key, Icon }) => (
        <Link
          key={to}
          to={to}
          title={t(`page.${key}`)}
          className="relative flex min-h-12 min-w-11 items-center justify-center gap-3 rounded-md px-2.5 text-soft hover:text-ink sm:min-h-9 xl:justify-start"
          activeProps={{
            className: "sm:bg-accent-wash font-medium !text-accent contrast:border",
            "aria-current": "page",
          }}
        >
          <Icon aria-hidden size={19} className="shrink-0" />
          <span className="sr-only xl:not-sr-only">{t(`page.${key}`)}</span>
          {counts[key] && (
            <span className="tabular absolute top-1 right-0.5 min-w-5 rounded-full bg-accent px-1.5 text-center text-xs font-medium text-on-accent sm:-top-0.5 xl:static xl:ml-auto">
              {counts[key]}
            </span>
          )}
          {key === "governance" && red && <Red />}
        </Link>
      ))}
    </nav>
  );
}

/** Something is wrong. The colour is the registry's. */
function Red() {
  const { t } = useTranslation();
  const { colours } = useToken(useRollupLooks()("red").token);
  return (
    <span
      style={{ backgroundColor: colours.line }}
      className="absolute top-2 right-1.5 size-2.5 rounded-full ring-2 ring-wash sm:top-1 xl:static xl:ml-auto xl:ring-0"
    >
      <span className="sr-only">{t("governance.red")}</span>
    </span>
  );
}

/** Nothing to see while all is well; words and a mark when what is shown may be old. */
function Connection() {
  const { t } = useTranslation();
  const connection = useConnection();
  const look = { live: "bg-ok", connecting: "bg-strong", lost: "bg-bad" }[connection];
  return (
    <span
      role="status"
      className="flex items-center gap-2 text-xs text-soft"
      title={t(`connection.${connection}`)}
    >
      <span aria-hidden className={`size-2 shrink-0 rounded-full ${look}`} />
      <span className={connection === "lost" ? "" : "sr-only sm:not-sr-only"}>
        {t(`connection.${connection}`)}
      </span>
    </span>
  );
}

function Me({ onKeys }: { onKeys: () => void }) {
  const { t, language } = useTranslation();
  const theme = useTheme();
  const density = useDensity();
  const { data: me } = useMe();
  const router = useRouter();
  const name = me?.display_name ?? me?.actor_ref ?? "";
  const line = "flex min-h-9 w-full items-center rounded-md px-3 text-left hover:bg-wash";
  return (
    <>
      <button
        type="button"
        popoverTarget="me"
        aria-label={t("frame.me", { name })}
        className="flex size-9 shrink-0 items-center justify-center rounded-full bg-accent-wash text-xs font-semibold text-accent contrast:border"
      >
        {initials(name)}
      </button>
      <div
        id="me"
        popover="auto"
        className="inset-auto top-13 right-4 m-0 w-72 rounded-xl border border-line bg-raised p-2 text-ink shadow-xl sm:right-8"
      >
        <p className="px-3 pt-2 font-medium">{name}</p>
        <p className="px-3 pb-2 font-mono text-xs text-soft">{me?.actor_ref}</p>
        <hr className="my-1 border-line" />
        <Choice
          label={t("frame.theme")}
          value={theme}
          options={THEMES.map((one) => [one, t(`theme.${one}`)])}
          onChange={setTheme}
        />
        <Choice
          label={t("frame.density")}
          value={density}
          options={DENSITIES.map((one) => [one, t(`density.${one}`)])}
          onChange={setDensity}
        />
        <Choice
          label={t("frame.language")}
          value={language}
          options={LANGUAGES.map((one) => [one, t(`language.${one}`)])}
          onChange={setLanguage}
        />
        <hr className="my-1 border-line" />
        <button type="button" popoverTarget="me" className={line} onClick={onKeys}>
          {t("keys.title")}
          <kbd className="key ml-auto">?</kbd>
        </button>
        <button
          type="button"
          className={line}
          onClick={() => void signOut().then(() => router.navigate({ to: "/sign-in" }))}
        >
          {t("frame.signOut")}
        </button>
      </div>
    </>
  );
}

function Choice<T extends string>({
  label,
  value,
  options,
  onChange,
}: {
  label: string;
  value: T;
  options: [T, string][];
  onChange: (value: T) => void;
}) {
  return (
    <fieldset className="px-3 py-1.5">
      <legend className="kicker mb-1.5">{label}</legend>
      <div className="flex rounded-md border border-field-line p-0.5">
        {options.map(([one, words]) => (
          <button
            key={one}
            type="button"
            aria-pressed={one === value}
            onClick={() => onChange(one)}
            className="min-h-7 flex-1 rounded px-1.5 text-xs whitespace-nowrap aria-pressed:bg-accent aria-pressed:text-on-accent"
          >
            {words}
          </button>
        ))}
      </div>
    </fieldset>
  );
}
