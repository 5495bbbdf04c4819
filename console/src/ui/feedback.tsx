// What a page shows while it has nothing to show: waiting, nothing there, refused.
import { Link } from "@tanstack/react-router";
import { CircleAlert, Inbox } from "lucide-react";
import type { ReactNode } from "react";
import { Refusal } from "@/api/client";
import { useTranslation } from "@/app/i18n";
import { Button } from "./button";
import { Said } from "./markdown";
import { useRegistry } from "./state";

/** Lines in the shape of what comes; they appear after 150 ms. */
export function Skeleton({ lines = 3 }: { lines?: number }) {
  const { t } = useTranslation();
  return (
    <div role="status" aria-label={t("common.loading")} className="flex flex-col gap-3 py-4">
      {Array.from({ length: lines }, (_, line) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the lines are alike and never move
        <div key={line} className="skeleton h-4" style={{ width: `${90 - ((line * 17) % 40)}%` }} />
      ))}
    </div>
  );
}

/** Says what would appear here, and the one thing that makes it appear. */
export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="flex flex-col items-start gap-2 rounded-lg border border-dashed border-line px-6 py-10 text-soft">
      <Inbox aria-hidden size={22} />
      <p className="font-serif text-lg text-ink">{title}</p>
      <div className="prose">{children}</div>
    </div>
  );
}

/** What went wrong, why, and what to do next. */
export function Failure({ error, retry }: { error: unknown; retry?: () => void }) {
  const { t } = useTranslation();
  const refusal = error instanceof Refusal ? error : undefined;
  const title = useTitle(refusal);
  return (
    <div
      role="alert"
      className="flex flex-col gap-2 rounded-lg border border-bad bg-bad-wash px-4 py-3 text-ink"
    >
      <p className="flex items-start gap-2 font-medium">
        <CircleAlert aria-hidden size={18} className="mt-0.5 shrink-0 text-bad" />
        <span>
          {refusal?.status === 0 ? (
            t("error.unreachable")
          ) : (
            <Said text={title ?? refusal?.detail ?? String(error)} />
          )}
        </span>
      </p>
      {title && (
        <p lang="en" className="pl-6 text-sm text-soft">
          <Said text={refusal?.detail ?? ""} />
        </p>
      )}
      {refusal && refusal.problems.length > 0 && (
        <ul className="list-disc pl-8 text-sm">
          {refusal.problems.map((problem) => (
            <li key={problem.message}>
              <Said text={problem.message} />
            </li>
          ))}
        </ul>
      )}
      <p className="flex items-center gap-3 pl-6 text-xs text-soft">
        {refusal && refusal.status !== 0 && (
          <Link to="/explain/$code" params={{ code: refusal.code }} className="underline">
            {refusal.guard ? `${refusal.code} · ${refusal.guard}` : refusal.code}
          </Link>
        )}
        {retry && <Button onClick={retry}>{t("common.again")}</Button>}
      </p>
    </div>
  );
}

/** Details are written in English; in another language the code's title goes before. */
function useTitle(refusal: Refusal | undefined): string | undefined {
  const { language } = useTranslation();
  const texts = useRegistry().data?.texts?.[language];
  return language === "en" || !refusal ? undefined : texts?.[`problem.${refusal.code}.title`];
}
