// What is asked: the move that the approval allows, and the values of the request. Values that differ from the last time it was
// asked are marked.
import { ArrowRight } from "lucide-react";
import type { ReactNode } from "react";
import { useTranslation } from "@/app/i18n";
import { Fact, Facts } from "@/ui/facts";
import { Id } from "@/ui/text";
import { Values } from "@/ui/values";

export interface Asked {
  from?: string;
  to?: string;
  scope: string;
  request?: unknown;
  request_digest?: string | null;
  /** The request of the time before. */
  before?: unknown;
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

export function Request({ asked, children }: { asked: Asked; children?: ReactNode }) {
  const { t } = useTranslation();
  const { request, before } = asked;
  return (
    <section>
      <h2 className="mb-3 text-base">{t("gate.request")}</h2>
      <Facts>
        {asked.to && (
          <Fact name={t("gate.move")}>
            {asked.from} <ArrowRight aria-label="→" role="img" size={14} className="mx-1 inline text-soft" />{" "}
            <strong className="font-medium">{asked.to}</strong>
          </Fact>
        )}
        <Fact name={t("admin.scope")}>
          <code className="font-mono text-xs">{asked.scope}</code>
        </Fact>
        {isObject(request) &&
          Object.entries(request).map(([name, value]) => (
            <Fact key={name} name={name.replaceAll("_", " ")}>
              <Values value={value} />
              {isObject(before) && JSON.stringify(before[name]) !== JSON.stringify(value) && (
                <span className="ml-2 rounded bg-warn-wash px-1.5 text-xs text-warn">
                  {t("gate.changed", { before: JSON.stringify(before[name] ?? null) })}
                </span>
              )}
            </Fact>
          ))}
        {request != null && !isObject(request) && (
          <Fact name={t("gate.values")}>
            <Values value={request} />
          </Fact>
        )}
        {asked.request_digest && (
          <Fact name={t("gate.digest")}>
            <Id value={asked.request_digest} length={16} />
          </Fact>
        )}
        {children}
      </Facts>
    </section>
  );
}
