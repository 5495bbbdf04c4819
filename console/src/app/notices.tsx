// What concerns every page: the session is about to end.
import { useTranslation } from "react-i18next";
import { Button } from "@/ui/button";
import { useLeaving } from "./idle";

export function Notices() {
  const { t } = useTranslation();
  const leaving = useLeaving();
  return (
    <div role="status" className="fixed inset-x-0 top-0 z-50 flex justify-center empty:hidden">
      {leaving && (
        <div className="m-3 flex items-center gap-4 rounded-lg border border-strong bg-raised px-4 py-3 shadow-xl">
          <p>{t("session.leaving")}</p>
          {/* Pressing it is presence enough. */}
          <Button look="primary">{t("session.stay")}</Button>
        </div>
      )}
    </div>
  );
}
