// What the pages of governance have in common: lights, sentences, and links to what happened.
import { Link } from "@tanstack/react-router";
import { ListTree } from "lucide-react";
import type { ReactNode } from "react";
import type { SchemaProblemCount, SchemaProblemItem, SchemaSummary } from "@/api/schema";
import { type Translate, useTranslation } from "@/app/i18n";
import { timelineSearch } from "@/app/search";
import { useMe } from "@/app/session";
import { Empty, Skeleton } from "@/ui/feedback";
import { StateMark, useRegistry } from "@/ui/state";
import { useRollupLooks } from "../runs/looks";

/** The page, for those who may read problems. */
export function Governed({ title, children }: { title: string; children: ReactNode }) {
  const { t } = useTranslation();
  const { data: me } = useMe();
  if (!me) return <Skeleton lines={8} />;
  if (me.scopes.includes("governance:read")) return children;
  return (
    <>
      <h1 className="mb-6">{title}</h1>
      <Empty title={t("governance.notYours")}>{t("governance.notYoursWhy")}</Empty>
    </>
  );
}

export function Light({ of, words }: { of: string; words?: string }) {
  const look = useRollupLooks()(of);
  return <StateMark token={look.token} icon={look.icon} words={words ?? look.label} />;
}

/** A problem that is open looks like the light of its category; one that is resolved is green. */
export function Standing({
  state,
  light = "yellow",
}: {
  state: SchemaProblemItem["state"];
  light?: SchemaProblemCount["light"];
}) {
  const { t } = useTranslation();
  const open = state === "open" && light !== "green" ? light : "yellow";
  return <Light of={state === "open" ? open : "green"} words={t(`governance.state.${state}`)} />;
}

/** The server's sentence; in another language its text of the registry, or what the page says in its place. */
export function useSentence(): (row: SchemaProblemCount) => string {
  const { t, language } = useTranslation();
  const texts = useRegistry().data?.texts?.[language];
  return (row) => {
    if (!row.summary) return t("governance.quiet");
    const { text, text_key: key, args } = row.summary;
    const own = texts?.[key]?.replace(/\{(\w+)\}/g, (whole, name) => String(args[name] ?? whole));
    if (own !== undefined) return own;
    return language === "en" ? text : sentence(t, row.count);
  };
}

const sentence = (t: Translate, count: number) =>
  count === 0 ? t("governance.calm") : t("governance.open", { count });

/** Leads to the events behind a sentence. */
export function Evidence({ summary }: { summary: SchemaSummary }) {
  const { t } = useTranslation();
  return (
    <Timeline href={summary.timeline}>
      {t("governance.evidence", { count: summary.source_event_total })}
    </Timeline>
  );
}

/** A link to the timeline that the server names. */
export function Timeline({ href, children }: { href: string; children?: ReactNode }) {
  const { t } = useTranslation();
  const search = timelineSearch(Object.fromEntries(new URL(href, location.origin).searchParams));
  return (
    <Link
      to="/governance/timeline"
      search={search}
      className="inline-flex items-center gap-1.5 whitespace-nowrap text-accent underline"
    >
      <ListTree aria-hidden size={14} />
      {children ?? t("governance.timeline")}
    </Link>
  );
}
