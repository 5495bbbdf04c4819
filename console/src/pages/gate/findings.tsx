// Of a runbook: how the checks of its steps held so far, and which files they left.
import { Check, FileText, X } from "lucide-react";
import type { SchemaInboxItem } from "@/api/schema";
import { useTranslation } from "@/app/i18n";
import { Id } from "@/ui/text";

export function Findings({ item }: { item?: SchemaInboxItem }) {
  const { t } = useTranslation();
  const checks = item?.checks ?? [];
  const files = item?.artifacts ?? [];
  if (!item || checks.length + files.length === 0) return null;
  return (
    <section>
      <h2 className="mb-3 text-base">{t("gate.findings")}</h2>
      <ul className="flex flex-col gap-1.5">
        {checks.map((check) => (
          <li key={`${check.step}:${check.name}`} className="flex items-start gap-2.5">
            {check.held ? (
              <Check aria-hidden size={16} className="mt-0.5 shrink-0 text-ok" />
            ) : (
              <X aria-hidden size={16} className="mt-0.5 shrink-0 text-bad" />
            )}
            <span>
              {check.step}: {check.name}{" "}
              <span className={check.held ? "text-soft" : "text-bad"}>
                {check.held ? t("step.held") : t("step.notHeld")}
              </span>
            </span>
          </li>
        ))}
        {files.map((file) => (
          <li key={`${file.step}:${file.path}`} className="flex items-start gap-2.5">
            <FileText aria-hidden size={16} className="mt-0.5 shrink-0 text-soft" />
            <span className="min-w-0 [overflow-wrap:anywhere]">
              <a
                href={`/v1/runs/${item.instance_id}/artifacts/${file.sha256}`}
                download
                className="text-accent underline"
              >
                {file.path}
              </a>{" "}
              <Id value={file.sha256} length={12} />
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}
