// What concerns every page: the connection is lost, or the session is about to end.
import { WifiOff } from "lucide-react";
import { useConnection } from "@/api/stream";
import { useTranslation } from "@/app/i18n";
import { Button } from "@/ui/button";
import { useLeaving } from "./idle";

export function Notices() {
  const { t } = useTranslation();
  const leaving = useLeaving();
  const lost = useConnection() === "lost";
  return (
    <div
      role="status"
      className="pointer-events-none fixed inset-x-0 top-0 z-50 flex flex-col items-center gap-2 p-3 empty:hidden"
    >
      {lost && (
        <p className={LOOK}>
          <WifiOff aria-hidden size={17} className="shrink-0 text-warn" />
          {t("session.lost")}
        </p>
      )}
      {leaving && (
        <div className={LOOK}>
          <p>{t("session.leaving")}</p>
          {/* Pressing it is presence enough. */}
          <Button look="primary">{t("session.stay")}</Button>
        </div>
      )}
    </div>
  );
}

const LOOK =
  "pointer-events-auto flex items-center gap-3 rounded-lg border border-strong bg-raised px-4 py-2.5 shadow-xl";
