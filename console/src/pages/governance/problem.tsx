// One problem: what it is about, and the events that opened and resolved it.
import { Link } from "@tanstack/react-router";
import { X } from "lucide-react";
import type { SchemaProblemCount, SchemaProblemItem } from "@/api/schema";
import { useTranslation } from "@/app/i18n";
import { useMe } from "@/app/session";
import { Button } from "@/ui/button";
import { Fact, Facts } from "@/ui/facts";
import { Id, Moment } from "@/ui/text";
import { RunLink } from "./subject";
import { Standing, Timeline } from "./words";

export function Problem({
  problem,
  light,
  onClose,
}: {
  problem: SchemaProblemItem;
  light?: SchemaProblemCount["light"];
  onClose: () => void;
}) {
  const { t } = useTranslation();
  return (
    <aside
      aria-label={t("governance.problem")}
      className="flex flex-col gap-5 rounded-lg border border-line bg-raised p-5 lg:sticky lg:top-18 lg:max-h-[calc(100dvh-6rem)] lg:overflow-y-auto"
    >
      <div className="flex items-start justify-between gap-3">
        <h2 className="first-letter:uppercase [overflow-wrap:anywhere]">{problem.detail}</h2>
        <Button look="quiet" aria-label={t("common.close")} onClick={onClose} className="-mt-1 -mr-2">
          <X aria-hidden size={17} />
        </Button>
      </div>
      <Facts>
        <Fact name={t("runs.state")}>
          <Standing state={problem.state} light={light} />
        </Fact>
        <Fact name={t("governance.since")}>
          <Moment at={problem.since} />
        </Fact>
        {problem.run_id && (
          <Fact name={t("governance.run")}>
            <RunLink run={problem.run_id} step={problem.step} />
          </Fact>
        )}
        {problem.step && <Fact name={t("work.step")}>{problem.step}</Fact>}
        {problem.worker_class && <Fact name={t("governance.workers")}>{problem.worker_class}</Fact>}
        {problem.trace_id && (
          <Fact name={t("governance.trace")}>
            <Id value={problem.trace_id} length={16} />
          </Fact>
        )}
        <Fact name={t("governance.openedBy")}>
          <Event id={problem.opened_event_id} />
        </Fact>
        {problem.resolved_event_id && (
          <Fact name={t("governance.resolvedBy")}>
            <Event id={problem.resolved_event_id} />
          </Fact>
        )}
      </Facts>
      <p>
        <Timeline href={problem.timeline} />
      </p>
      {problem.state === "open" && <p className="text-xs text-soft">{t("governance.notByHand")}</p>}
    </aside>
  );
}

/** The record of an event, for those who may read records. */
export function Event({ id }: { id: string }) {
  const { t } = useTranslation();
  const { data: me } = useMe();
  return (
    <span className="flex flex-wrap items-center gap-x-3">
      <Id value={id} />
      {me?.scopes.includes("audit:read") && (
        <Link to="/ledger" search={{ record: id }} className="text-accent underline">
          {t("ledger.record")}
        </Link>
      )}
    </span>
  );
}
