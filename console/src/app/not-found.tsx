import { Link } from "@tanstack/react-router";
import { useTranslation } from "@/app/i18n";

export function NotFound() {
  const { t } = useTranslation();
  return (
    <main className="mx-auto max-w-2xl px-6 py-16">
      <h1>{t("error.notFound")}</h1>
      <p className="mt-3 text-soft">{t("error.notFoundWhy")}</p>
      <Link to="/inbox" className="mt-6 inline-block text-accent underline">
        {t("error.home")}
      </Link>
    </main>
  );
}
