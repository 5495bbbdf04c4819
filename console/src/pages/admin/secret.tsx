// A token that is shown this once.
import { useTranslation } from "@/app/i18n";
import { Id } from "@/ui/text";

export function Secret({ of, token }: { of: string; token: string }) {
  const { t } = useTranslation();
  return (
    <div role="status" className="flex flex-col gap-1 rounded-lg border border-warn bg-warn-wash p-4">
      <p>{t("admin.tokenOnce", { who: of })}</p>
      <p>
        <Id value={token} length={token.length} />
      </p>
    </div>
  );
}
