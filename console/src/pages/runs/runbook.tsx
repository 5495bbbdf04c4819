// A runbook: may it go on? What was pinned, what differs, how much time is left, and who decides.
import { Link } from "@tanstack/react-router";
import { useTranslation } from "react-i18next";
import type { SchemaRunView } from "@/api/schema";
import { Id } from "@/ui/text";
import { duration } from "@/ui/time";

export function Runbook({ run }: { run: SchemaRunView }) {
  const { t } = useTranslation();
  const waiting = run.gates.find((gate) => gate.state === "Pending");
  return (
    <section
      aria-label={t("runbook.title")}
      className="my-5 flex flex-col gap-4 rounded-lg border border-line px-5 py-4"
    >
      <div className="flex flex-wrap items-baseline gap-x-6 gap-y-1">
        <h2>{t("runbook.title")}</h2>
        {run.phase && (
          <span className="text-sm text-soft">
            {t("runbook.phase", { phase: run.phase.replaceAll("_", " ") })}
          </span>
        )}
        {run.hard_cap_ms != null && (
          <Cap
            used={run.executing_ms ?? 0}
            all={run.hard_cap_ms}
            label={t("runbook.cap", {
              left: duration(Math.max(0, run.hard_cap_ms - (run.executing_ms ?? 0))),
            })}
          />
        )}
      </div>
      {run.state === "stopped" && (
        <p role="status" className="rounded-md bg-bad-wash px-4 py-3">
          <strong>{t("runbook.stopped", { outcome: run.outcome?.replaceAll("_", " ") ?? "" })}</strong>{" "}
          {waiting && (
            <>
              {t("runbook.decides", { who: waiting.approver_ref })}{" "}
              <Link to="/gate/$step" params={{ step: waiting.step_id }} className="underline">
                {t("runbook.open")}
              </Link>
            </>
          )}
        </p>
      )}
      {run.drift && run.drift.length > 0 && (
        <table className="w-full text-sm">
          <caption className="mb-1 text-left font-medium">{t("runbook.drift")}</caption>
          <thead className="text-left text-xs text-soft">
            <tr>
              <th scope="col" className="py-1 font-medium">
                {t("runbook.pin")}
              </th>
              <th scope="col" className="py-1 font-medium">
                {t("runbook.pinned")}
              </th>
              <th scope="col" className="py-1 font-medium">
                {t("runbook.live")}
              </th>
            </tr>
          </thead>
          <tbody>
            {run.drift.map((one) => (
              <tr key={one.pin} className="border-t border-line align-top">
                <td className="py-1.5 font-medium">{one.pin}</td>
                <td className="bg-ok-wash px-2 py-1.5 font-mono text-xs [overflow-wrap:anywhere]">
                  {text(one.pinned)}
                </td>
                <td className="bg-bad-wash px-2 py-1.5 font-mono text-xs [overflow-wrap:anywhere]">
                  {text(one.live)}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {run.pins && run.pins.length > 0 && (
        <ul className="flex flex-wrap gap-x-6 gap-y-1 text-xs text-soft">
          {run.pins.map((pin) => (
            <li key={pin.pin} className="flex items-center gap-1">
              {pin.pin} ({pin.step}) <Id value={pin.digest} length={12} />
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

const text = (value: unknown) =>
  value === null || value === undefined ? "—" : typeof value === "string" ? value : JSON.stringify(value);

function Cap({ used, all, label }: { used: number; all: number; label: string }) {
  return (
    <span className="flex items-center gap-2 text-xs text-soft">
      <span aria-hidden className="h-1 w-28 overflow-hidden rounded-full border border-line bg-wash">
        <span className="block h-full bg-accent" style={{ width: `${Math.min(100, (used / all) * 100)}%` }} />
      </span>
      {label}
    </span>
  );
}
