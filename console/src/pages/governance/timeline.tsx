// What happened around a problem: every record of a trace, of a run, or of the chain of governance.
import { Link, useSearch } from "@tanstack/react-router";
import { useTranslation } from "@/app/i18n";
import { PageHead } from "@/ui/page";
import { Id } from "@/ui/text";
import { RecordsOf } from "../runs/records";

export function TimelinePage() {
  const { t } = useTranslation();
  const search = useSearch({ from: "/frame/governance/timeline" });
  const id = search.trace_id ?? search.run_id ?? search.instance_id;
  const of = search.trace_id ? "trace" : search.run_id ? "run" : "chain";
  return (
    <>
      <PageHead
        trail={
          <Link to="/governance" className="hover:underline">
            {t("page.governance")}
          </Link>
        }
        title={t("governance.timeline")}
      >
        {id && (
          <p className="flex flex-wrap items-baseline gap-x-3 text-soft">
            {t(`governance.timelineOf.${of}`)} <Id value={id} length={16} />
            {search.step && <span>{search.step}</span>}
          </p>
        )}
      </PageHead>
      <div className="max-w-4xl">{id && <RecordsOf search={search} />}</div>
    </>
  );
}
